"""The device side of an artefact on other runtimes, and its cost there."""
