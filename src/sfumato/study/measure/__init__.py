"""Measurements of a study: a module per question, each with its cells, settings, learners and measurement."""
