"""No adversary of any study whose records are kept names more people than is proved.

Of M outputs without noise the bound needs no statistics: whatever is guessed on seeing an output is right
for one person's probes alone, so that the probes of the M people whom most of them show are the most that can
be named. Of Gaussian noise about a centre it is Phi(Phi^-1(prior) + c/sigma), and the lower end of an
interval stays below it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kept import studies, study
from scipy.stats import norm

from sfumato.study.choose.results import Results
from sfumato.study.records import Record

Counted = Callable[[int], int]  # outputs of a release -> how many count


def by_counting(probes: Sequence[float], outputs: int) -> float:
    """The most of these probes that anybody names who sees one of so many outputs of each."""
    return sum(sorted(probes, reverse=True)[:outputs])


def attacks(kept: Results) -> Iterator[tuple[Record, Any]]:
    """The attacks on what has a proof, and the proof."""
    proved = {record.cell.protection: record.result for record in kept.records if record.kind == "proved"}
    for record in kept.records:
        if record.kind == "attack" and record.cell.protection in proved and record.result.people:
            yield record, proved[record.cell.protection]


def above_counting(kept: Results, counted: Counted = int) -> list[str]:
    """Who names more than counting allows."""
    found = []
    for record, proof in attacks(kept):
        if proof.outputs is None:
            continue
        for score in record.result.scores:
            hits, probes = score.hits, record.result.people
            most = by_counting(probes, counted(proof.outputs))
            if sum(hits) > most * (1 + 1e-9):
                words = f"{record.cell.protection} by {score.classifier}"
                found.append(f"{words}: {sum(hits):g} of {sum(probes):g}, at most {most:g}")
    return found


def above_sequences(kept: Results) -> list[str]:
    """Who names people from sets of releases more often than the number of sequences allows."""
    proved = {record.cell.protection: record.result for record in kept.records if record.kind == "proved"}
    found = []
    for record in kept.records:
        proof = proved.get(record.cell.protection)
        if record.kind != "many" or proof is None or proof.outputs is None:
            continue
        for point in record.result.points:
            most = min(proof.outputs**point.releases, record.result.panel) / record.result.panel
            largest = max(point.by_adversary.values())
            if largest > most * (1 + 1e-3):  # shares are rounded
                found.append(f"{record.cell.protection} from {point.releases}: {largest}, at most {most}")
    return found


def above_a_centre(kept: Results, share: float = 1.0) -> list[str]:
    """Whoever surely names more than Gaussian noise about a centre allows, at that share of its c/sigma."""
    found = []
    for record, proof in attacks(kept):
        centre = (proof.guarantee.model_extra or {}).get("centre") if proof.guarantee else None
        if centre is None:
            continue
        probes = record.result.people
        most = norm.cdf(norm.ppf(max(probes) / sum(probes)) + share * centre)
        found += [
            f"{record.cell.protection} by {score.classifier}: {score.low} to {score.high}, at most {most}"
            for score in record.result.scores
            if score.low > most
        ]
    return found


def test_no_adversary_of_any_study_names_more_than_is_proved():
    counted = [proof for kept in studies() for _, proof in attacks(kept) if proof.outputs]
    assert len(counted) > 100
    for kept in studies():
        assert above_counting(kept) == [], kept.study["name"]
        assert above_sequences(kept) == [], kept.study["name"]
        assert above_a_centre(kept) == [], kept.study["name"]


def test_one_bit_of_gender_is_used_up_to_the_last_probe_that_counting_allows():
    """Two people are named from it, by the exact table, and by no adversary a third."""
    rights = [
        (sum(score.hits), by_counting(record.result.people, 2))
        for record, _ in attacks(study("lfw-gender"))
        if record.cell.protection == "code:bits=1"
        for score in record.result.scores
    ]
    assert max(hits for hits, _ in rights) == {most for _, most in rights}.pop()


def test_a_bound_of_one_output_less_is_broken_by_the_records():
    assert above_counting(study("lfw-gender"), lambda outputs: outputs - 1)


def test_noise_of_which_it_is_said_that_it_hides_everything_is_convicted_by_the_records():
    assert above_a_centre(study("faces-expression"), share=0.0)
