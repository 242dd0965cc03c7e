"""Plumbing that every room uses: files, settings, databases, processes, listening, logs."""
