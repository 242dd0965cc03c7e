"""The report of a study: one HTML file that needs nothing else, and its tables as CSV.

A pure function of the results: no clock and no chance, so that the same run gives the same bytes. The page
makes no request to a network; it holds its style, its charts and its pictures.
"""

from sfumato.study.choose.results import Results, load, load_all
from sfumato.study.report.page import as_json, holding_pictures, page_of, render, write, write_pdf
from sfumato.study.report.tables import Table, tables

__all__ = [
    "Results",
    "Table",
    "as_json",
    "holding_pictures",
    "load",
    "load_all",
    "page_of",
    "render",
    "tables",
    "write",
    "write_pdf",
]
