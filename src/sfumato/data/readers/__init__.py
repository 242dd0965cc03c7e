"""Data sets on disk, each in its official layout, and own folders and tables."""
