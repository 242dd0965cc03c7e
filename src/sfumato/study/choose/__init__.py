"""Reading a run, and choosing from it: its results, the recommendation and its use."""
