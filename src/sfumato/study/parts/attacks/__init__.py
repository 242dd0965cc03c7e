"""How adversaries of a study work, a module a method; vocabulary.ATTACKS and RECONSTRUCTIONS name them.

Each has `settings(lab, cell)`, of what decides its figures beside cell, data and artefacts, and either
`attack(lab, cell)`, who is named how often, or `rebuild(lab, cell, clean)`, images.
"""
