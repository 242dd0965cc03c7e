"""A side of an artefact on other runtimes: its graph, its comparison with PyTorch, and its card."""
