"""What the site's reference is generated from: docstrings, commands, settings and the HTTP API."""
