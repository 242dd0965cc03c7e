"""Data sets on disk, each in its official layout, and own folders and tables.

Every reader raises DataError for a source that is missing, malformed or of more than one meaning, and
ImageError for a file that has an image suffix and is not an image, unless `skip_unreadable` takes it.
"""
