"""The changes that studies/mutations.py tries, and that the page says what its record says."""

import ast
import json

from mutations import ROOMS, ROOT, changes, statement

SOURCE = b"""
LIMIT = 3

def kept(x: int = 4) -> int:
    "Five is 5."
    if x < LIMIT and not x:
        raise ValueError(f"{x} of 6")
    assert x > 7
    return max(x, 1) + 2
"""


def test_operators_numbers_and_statements_of_functions_are_changed_and_nothing_else():
    made = {(SOURCE[:start] + text.encode() + SOURCE[end:]).decode() for start, end, text in changes(SOURCE)}
    lines = SOURCE.decode().splitlines()
    changed = {tuple(line for line in each.splitlines() if line not in lines) for each in made}
    assert changed == {
        ("    if x <= LIMIT and not x:",),
        ("    if x < LIMIT or not x:",),
        ("        pass",),
        ("    return min(x, 1) + 2",),
        ("    return max(x, 2) + 2",),
        ("    return max(x, 1) - 2",),
        ("    return max(x, 1) + 3",),
    }


def test_tests_of_a_statement_are_those_that_ran_any_of_its_lines():
    tree = ast.parse(SOURCE)
    assert [list(statement(tree, line)) for line in (6, 7, 9)] == [[6], [7], [9]]
    long = ast.parse("if (a and\n    b):\n    c(\n        1)\nfor d in e: f()")
    assert [list(statement(long, line)) for line in (1, 2, 3, 4, 5)] == [[1, 2], [1, 2], [3, 4], [3, 4], [5]]


def test_contributing_says_of_each_room_what_the_record_says():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    record = json.loads((ROOT / "studies" / "results" / "mutations.json").read_text(encoding="utf-8"))
    assert {room for made in record.values() for room in made} == set(ROOMS)
    for room in ROOMS:
        cells = []
        for tried in record.values():
            if (made := tried.get(room)) is None:
                cells.append("not tried")
                continue
            low, high = (round(100 * end) for end in made["interval"])
            nothing = sum(each["means"] == "nothing" for each in made["lives"])
            assert made["seen"] + len(made["lives"]) == made["tried"]
            cells.append(f"{made['seen']} of {made['tried']} ({low} to {high}%), {nothing} change nothing")
        assert f"| {room} | {' | '.join(cells)} |" in page
