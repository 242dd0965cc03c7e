"""What a study is made of: kinds of cells, attacks, learners, and protections that it trains."""
