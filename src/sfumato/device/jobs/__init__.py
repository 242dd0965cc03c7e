"""Jobs over many files: folders and videos, resumable, with a journal and a manifest."""
