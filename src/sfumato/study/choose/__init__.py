"""Reading a run, and choosing from it: estimates, the frontier, the recommendation and its use."""
