"""How a study trains and tests learners, a module per method; vocabulary.LEARNERS names them.

Each has `settings(lab, cell)`, the part of a digest besides cell, data and artefacts; `accuracy(lab,
cell)`, the result; and `check(lab)`, which fails before anything is trained.
"""
