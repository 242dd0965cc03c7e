"""What a study measures: a module per question, each with its cells, settings, learners and measurement."""
