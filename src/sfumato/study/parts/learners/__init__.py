"""How learners are trained and tested in a study, a module a method; vocabulary.LEARNERS names them.

Each has `settings(lab, cell)`, of what decides its accuracy beside cell, data and artefacts; `accuracy(lab,
cell)`, the result; and `check(lab)`, which fails before anything is trained.
"""
