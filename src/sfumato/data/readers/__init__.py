"""Readers of data sets on disk."""
