"""Audits of what people already run: what they found, as text, as JSON and as one page.

An audit puts adversaries, judges and proofs together, asks one question, and answers it with a `Report`,
whose first sentence says what to do. A module an audit; all share `findings` and `page`.
"""
