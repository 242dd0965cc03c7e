"""Studies: a grid of protections, learners, attacks and measures; its records; one report."""
