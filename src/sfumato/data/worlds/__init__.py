"""Worlds that are drawn: glyphs, faces, scenes, and hats for photographs."""
