"""Reading a run, and choosing from it: estimates, the frontier, what to recommend and how to use it."""
