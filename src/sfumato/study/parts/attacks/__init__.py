"""How adversaries of a study work, a module per method; vocabulary.ATTACKS and RECONSTRUCTIONS name them.

Each has `settings(lab, cell)`, the part of a digest besides cell, data and artefacts, and either
`attack(lab, cell)`, which counts named people, or `rebuild(lab, cell, clean)`, which makes images.
"""
