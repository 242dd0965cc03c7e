"""What several releases of one person tell: by the strongest of all ways, and beside the recommendation."""

from typing import Any

import pytest
import synthetic

from sfumato.study.choose import estimates, recommend
from sfumato.study.records import Record
from sfumato.study.report.sections import several
from sfumato.study.report.tables import tables


def group(share: float) -> dict[str, Any]:
    ends = {"low": share - 0.05, "high": share + 0.05}
    return {"top1": share, **ends, "hits": [1.0], "auc": 0.7, "tar_at_far": {"1e-2": share / 2, "1e-3": 0.0}}


def attack(
    name: str, seed: int, groups: dict[str, dict[int, float]], linked: dict[int, float]
) -> dict[str, Any]:
    """A record of an attack on blur; `groups` are of each classifier, `linked` of PLDA."""
    scores = [
        {
            "classifier": classifier,
            **{"top1": 0.1, "low": 0.05, "high": 0.2},
            "groups": {str(size): group(share) for size, share in of.items()},
        }
        for classifier, of in groups.items()
    ]
    links = [
        {"classifier": "plda", "releases": size, "rounds": 2, **group(share)}
        for size, share in linked.items()
    ]
    cell = {"protection": "blur:radius=1", "seed": seed, "attack": name}
    result = {"scores": scores, "chance": 0.02, "identities": 50, "linking": links}
    return {"kind": "attack", "cell": cell, "digest": "ab", "seconds": 0.0, "result": result}


def study(*records: dict[str, Any], seeds: tuple[int, ...] = (0,)) -> tuple[dict[str, Any], list[Record]]:
    cells = [{key: record[key] for key in ("kind", "cell", "digest")} for record in records]
    described = {"cells": cells, "seeds": list(seeds), "protections": ["none", "blur:radius=1"], "task": {}}
    return described, synthetic.typed([*records])


def shares(measured: Any) -> dict[int, float]:
    return {size: estimate.value for size, estimate in measured.items()}


def test_the_strongest_classifier_of_all_attacks_counts_for_each_number_of_releases():
    records = [
        attack("reidentify-adaptive", 0, {"svm": {1: 0.3, 5: 0.4}, "1-nn": {1: 0.1, 5: 0.5}}, {}),
        attack("reidentify-values", 0, {"plda": {1: 0.2, 5: 0.45, 10: 0.6}}, {5: 0.2}),
    ]
    measured = estimates.several(*study(*records))["blur:radius=1"]
    assert shares(measured.named) == {1: 0.3, 5: 0.5, 10: 0.6}
    assert shares(measured.accepted) == {1: 0.15, 5: 0.25, 10: 0.3}
    assert shares(measured.linked) == {5: 0.2}


def test_over_seeds_it_is_the_mean_of_what_all_seeds_have():
    records = [
        attack("reidentify-values", seed, {"plda": {5: share}, **more}, {5: 0.1})
        for seed, share, more in ((0, 0.4, {"rbf": {5: 0.9}}), (1, 0.5, {}))
    ]
    measured = estimates.several(*study(*records, seeds=(0, 1)))["blur:radius=1"]
    assert measured.named[5] == estimates.Estimate(pytest.approx(0.45), 0.4, 0.5, 2)


def test_records_of_earlier_versions_have_none_and_no_section():
    record = attack("reidentify-adaptive", 0, {"svm": {}}, {})
    del record["result"]["scores"][0]["groups"], record["result"]["linking"]
    assert estimates.several(*study(record)) == {}
    assert several.section(*study(record)) is None


def test_the_section_has_a_column_for_each_number_of_releases():
    made = several.section(*study(attack("reidentify-values", 0, {"plda": {1: 0.2, 5: 0.5}}, {1: 0.1})))
    assert made is not None
    assert (made.values["sizes"], made.values["sizes_linked"]) == ([1, 5], [1])
    assert made.values["protections"] == ["blur:radius=1"]


def test_the_table_of_several_releases_has_a_row_a_classifier_and_number_and_no_other_table_has_them():
    record = attack("reidentify-values", 0, {"plda": {1: 0.2, 10: 0.6, 5: 0.5}}, {5: 0.1})
    listed, records = study(record)
    listed |= {"learners": ["clean"], "task": {"way": 2}}
    made = {table.name: table for table in tables(listed, records)}
    rows = [dict(zip(made["several"].columns, row, strict=True)) for row in made["several"].rows]
    assert [(row["what"], row["classifier"], row["releases"], row["top1"]) for row in rows] == [
        *(("named", "plda", size, share) for size, share in ((1, 0.2), (5, 0.5), (10, 0.6))),
        ("linked", "plda", 5, 0.1),
    ]
    assert [row["tar_at_far_1e-2"] for row in rows] == [0.1, 0.25, 0.3, 0.05]
    assert made["reidentification"].rows
    assert not {"groups", "linking", "no_groups"} & set(made["reidentification"].columns)


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ({1: 0.03, 5: 0.2, 10: 0.4}, "adversaries name 20.0% from 5 and 40.0% from 10 releases."),
        ({1: 0.03}, "too few photographs show what several tell."),
    ],
)
def test_what_several_tell_stands_beside_a_recommendation(named: dict[int, float], sentence: str):
    measured = estimates.several(*study(attack("reidentify-values", 0, {"plda": named}, {})))["blur:radius=1"]
    words = recommend.together_in_words(measured)
    assert words.startswith("All of this is for one release of a person")
    assert words.endswith(sentence)
