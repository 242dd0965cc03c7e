"""The parts of a study: kinds of cells, attacks, learners, and protections that it trains."""
