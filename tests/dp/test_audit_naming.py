"""The audit of statements of naming: it convicts what is planted, and nothing that holds."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sfumato.dp.audit import audit_naming
from sfumato.dp.naming import Assumption, Naming, Proof, compose, counting, make_statement
from sfumato.errors import ConfigError

PEOPLE, N = 1_000, 100


def statement(assuming: Assumption, releases: int = N) -> Naming:
    bound = counting(1 / PEOPLE, outputs=2, releases=releases, assuming=assuming)
    return make_statement(bound, candidates=PEOPLE, prior=None, releases=releases, assuming=assuming)


def draws(people: Tensor, generator: torch.Generator) -> Tensor:
    """Independent draws, of people who are spread as an adversary wants them."""
    share = torch.sin(people / (PEOPLE - 1) * torch.pi / 2) ** 2
    return (torch.rand(len(people), N, generator=generator) < share[:, None]).long()


def shuffled(
    view: Callable[[Tensor, torch.Generator], Tensor],
) -> Callable[[Tensor, torch.Generator], Tensor]:
    def batch(people: Tensor, generator: torch.Generator) -> Tensor:
        seen = view(people, generator)
        return seen.gather(1, torch.rand(seen.shape, generator=generator).argsort(1))

    return batch


def drifting(people: Tensor, generator: torch.Generator) -> Tensor:
    """From one output to the other, at a day that is the person's own."""
    return (torch.arange(N) < (people % (N + 1))[:, None]).long()


def spelt(people: Tensor, generator: torch.Generator) -> Tensor:
    """Ten releases, whose order is the number of the person."""
    return people[:, None] >> torch.arange(10) & 1


def bursts(people: Tensor, generator: torch.Generator) -> Tensor:
    """Ten scenes, of each ten near copies; how many of them are of one kind is the person's own."""
    scenes = people[:, None] // 10 ** torch.arange(3) % 10  # their digits
    counts = scenes[:, torch.randint(3, (10,), generator=generator)]
    return (torch.arange(10) < counts[..., None]).long().flatten(1)


def test_independent_draws_keep_within_what_is_proved_of_them():
    found = audit_naming(draws, statement("exchangeable"), outputs=2, trials=6_000)
    assert not found.convicted
    assert 0.1 * found.stated.chance < found.lower <= found.stated.chance


def test_a_shuffled_batch_keeps_within_its_bound_even_if_it_drifts():
    found = audit_naming(shuffled(drifting), statement("shuffled"), outputs=2)
    assert not found.convicted
    assert found.lower > 0.7 * found.stated.chance  # there is hardly anything to add to it


def test_order_that_is_kept_is_convicted():
    found = audit_naming(spelt, statement("shuffled", 10), outputs=2)
    assert found.convicted
    assert found.adversary == "the order of releases"
    assert found.lower > 0.99
    assert str(found).startswith(
        "an adversary who compares the order of releases names people at least 99.5% (with 99% confidence) "
        "of the time, and 1.1% is stated (assumed: they leave as one shuffled batch"
    )
    assert not audit_naming(shuffled(spelt), statement("shuffled", 10), outputs=2).convicted


@pytest.mark.parametrize(
    "view", [drifting, shuffled(drifting), bursts], ids=["drift", "shuffled drift", "bursts"]
)
def test_drift_and_bursts_are_convicted_if_they_are_counted_as_draws(view):
    assert audit_naming(view, statement("exchangeable"), outputs=2).convicted


def test_bursts_counted_as_one_draw_each_are_not_convicted():
    proof = Proof(releases=N, outputs=1, leakage=1, draws=10)
    bound = compose(1 / PEOPLE, [proof], assuming="exchangeable")
    whole = make_statement(bound, candidates=PEOPLE, prior=None, releases=N, assuming="exchangeable")
    assert not audit_naming(bursts, whole, outputs=2).convicted


def test_a_statement_of_a_prior_has_no_people_to_draw():
    alone = make_statement(counting(0.1, outputs=2), candidates=None, prior=0.1, releases=1)
    with pytest.raises(ConfigError, match="an audit draws people"):
        audit_naming(draws, alone, outputs=2)
