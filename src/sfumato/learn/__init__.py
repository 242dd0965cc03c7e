"""The trainer: data in, an artefact out; one module a method."""
