"""A side of an artefact on other runtimes: its graph, what it computes there, and its card."""
