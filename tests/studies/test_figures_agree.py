"""No study says less of a protection than another study of the same photographs and people.

A protection is only as good as the strongest adversary who was tried on it, so that a study which leaves one
out would recommend what another shows to be unsafe.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable

import pytest
from kept import studies, study
from results import ROOT

from sfumato.study.choose.figures import Risk
from sfumato.study.choose.results import Results

# The adversary of a paper alone, whose sentences it judges: nothing is recommended by it.
PAPERS = {"lfw-published-named"}


def people_of(study: Results) -> str:
    """What two studies have in common whose adversaries look for the same people on the same photographs."""
    data = study.study["data"]
    return f"{data['images']} of {data['source']} at {data['shape']}, by {study.study['task']['sensitive']}"


def strongest(study: Results) -> dict[str, Risk]:
    """Protection -> the strongest adversary who was tried; a trained one is another in every study."""
    trained = ("mask", "feature", "code", "answer")
    return {
        each.protection: each.risk
        for each in study.settings
        if each.risk is not None and each.protection.partition(":")[0] not in trained
    }


def contradictions(compared: Iterable[Results]) -> list[str]:
    """Where a study's figure lies above another's, by more than their intervals allow."""
    together = defaultdict(list)
    for each in compared:
        together[people_of(each)].append((each.study["name"], strongest(each)))
    found = []
    for group in together.values():
        for (name, own), (other, theirs) in itertools.permutations(group, 2):
            for spec in own.keys() & theirs.keys():
                if own[spec].top1.low > theirs[spec].top1.high:
                    found.append(
                        f"{spec}: {other} has {theirs[spec].top1.value:.3f} by {theirs[spec].adversary}, "
                        f"{name} {own[spec].top1.value:.3f} by {own[spec].adversary}"
                    )
    return found


def test_the_strongest_adversary_of_a_protection_is_as_strong_in_every_study_of_the_same_people():
    assert contradictions(each for each in studies() if each.study["name"] not in PAPERS) == []
    assert contradictions(studies()) != []


def test_a_study_that_leaves_the_strongest_adversary_out_contradicts_one_that_has_them():
    whole = study("lfw-smile")
    strong = ("reidentify-values", "reidentify-fused")  # of whom the second has what the first finds
    records = [record for record in whole.records if record.cell.attack not in strong]
    less = Results(whole.study | {"name": "less"}, records)
    assert any(line.startswith("pixelize:cell=8: less has") for line in contradictions([whole, less]))


@pytest.mark.parametrize("change", [{"source": "table:others.csv"}, {"shape": [3, 42, 42]}])
def test_other_photographs_are_not_compared(change):
    whole = study("lfw-smile")
    data = whole.study["data"] | change
    other = Results(whole.study | {"data": data}, [])
    assert people_of(other) != people_of(whole)


def test_pages_by_hand_have_the_minutes_that_the_cells_of_the_five_papers_took():
    minutes = sum(record.processor_seconds for record in study("five-papers").records) / 120
    for page in ("README.md", "docs/guides/study.md"):
        words = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert f"{minutes:.1f} minutes of two idle cores" in words
