"""Differential privacy: guarantees, and the noise that they take."""
