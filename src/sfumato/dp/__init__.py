"""Differential privacy: what is guaranteed, and the noise that it takes."""
