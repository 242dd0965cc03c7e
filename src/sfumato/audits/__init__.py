"""Audits of the user's own models and updates; they report as text, as JSON and as one page.

An audit combines adversaries, judges and proofs, asks one question, and answers it with a `Report`, whose
first sentence says what to do. A module has one audit, or all of one kind of claim; they share `findings`.
"""
