"""The device side of an artefact on other runtimes, and what it costs there."""
