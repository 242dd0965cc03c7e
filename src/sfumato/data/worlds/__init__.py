"""Worlds that are drawn: glyphs, faces, and hats for photographs."""
