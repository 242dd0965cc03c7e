"""Budgets in bits: what releases tell by counting, added up for images and people."""

import itertools
import math
import sqlite3
import time
from pathlib import Path
from typing import Any

import charges
import pytest
import torch
from cloud import SIDE, encoder
from torch import Tensor

from sfumato.device.jobs import releasing
from sfumato.device.ledger import Charge, Ledger
from sfumato.device.ledger.budgets import Budget
from sfumato.errors import BudgetExceededError, ConfigError, LedgerError
from sfumato.networks.classifiers import CLASSIFIERS
from sfumato.networks.weights import initial_weights
from sfumato.protect import answer, parse
from sfumato.protect.answer import Answerer


@pytest.fixture
def photographs() -> Tensor:
    """(6, 3, SIDE, SIDE) uint8 of noise, no two alike."""
    return torch.randint(
        0, 256, (6, 3, SIDE, SIDE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )


def classifier(path: Path, classes: str) -> Path:
    """The artefact of a classifier that was never trained."""
    with initial_weights(0):
        network = CLASSIFIERS["conv4"]((3, SIDE, SIDE), len(classes))
    answerer = Answerer(network, classes=tuple(classes), shape=(3, SIDE, SIDE)).eval()
    answer.save(path, answerer, network="conv4", card={})
    return path


def charge(image: str, bits: float = 16.0, **fields: Any) -> Charge:
    return charges.charge(image, bits=bits, **fields)


pytestmark = pytest.mark.usefixtures("unlimited")
BITS_64 = Budget.parse("bits=64")


@pytest.mark.parametrize(("spec", "bits"), [("code", 12), ("code,flip=0.1", 12), ("code,epsilon=2", 12)])
def test_a_code_costs_its_bits_whatever_its_noise(
    ledger: Ledger, photographs: Tensor, tmp_path: Path, spec: str, bits: int
):
    name, _, noise = spec.partition(",")
    artefact = encoder(tmp_path / "c.safetensors", bits=12)
    code = parse(f"{name}:artefact={artefact}{',' * bool(noise)}{noise}", takes=["bits"])
    releasing.release(code, photographs[:3], ledger, people=["anna"] * 3)
    assert ledger.set_budget(BITS_64, person="anna") == 3 * bits


def test_an_answer_of_three_classes_costs_log2_of_three_bits(
    ledger: Ledger, photographs: Tensor, tmp_path: Path
):
    protection = parse(f"answer:artefact={classifier(tmp_path / 'a.safetensors', 'xyz')}", takes=["answer"])
    releasing.release(protection, photographs[:2], ledger, people=["anna"] * 2)
    assert ledger.set_budget(BITS_64, person="anna") == pytest.approx(2 * math.log2(3))


@pytest.mark.parametrize("spec", ["dp-pix:cell=4,epsilon=3", "blur:radius=2", "code"])
def test_what_is_not_counted_is_refused_with_the_cure(
    ledger: Ledger, photographs: Tensor, tmp_path: Path, spec: str
):
    if spec == "code":
        spec = f"code:artefact={encoder(tmp_path / 'c.safetensors', numbers=4)},norm=1,noise=0.1"
    protection = parse(spec, takes=["pixels", "numbers"])
    ledger.set_budget(BITS_64, person="anna")
    with pytest.raises(BudgetExceededError) as raised:
        releasing.release(protection, photographs[:1], ledger, people=["anna"])
    option = f"--person anna --ledger {ledger.path}"
    assert str(raised.value).endswith(
        ": its outputs are not counted, so no budget in bits can hold it: release a code of bits or an "
        "answer (budget of the person anna: at most 64 bits), or count releases instead: "
        f"`sfumato ledger budget none {option}`, then `sfumato ledger budget releases=5 {option}`"
    )
    assert ledger.summary().releases == 0


def fitting(ledger: Ledger, words: str, *, bits: float = 1.0, spec: str = "code") -> int:
    """How many images of Anna leave under a budget."""
    ledger.set_budget(Budget.parse(words), person="anna")
    for count in itertools.count():
        try:
            ledger.charge([charge(f"{spec}{count}", bits, spec=spec, person="anna")])
        except BudgetExceededError:
            return count
    raise AssertionError


@pytest.mark.parametrize(
    ("assuming", "count"),
    # 2^n <= 10; n + 1 <= 10; Σ_k n!/((n-k)! n^k) <= 10, which is 9.93 of 55 and 10.02 of 56.
    [("", 3), (",assuming=none", 3), (",assuming=shuffled", 9), (",assuming=exchangeable", 55)],
)
def test_as_many_answers_of_one_bit_leave_as_what_is_assumed_of_them_allows(
    ledger: Ledger, assuming: str, count: int
):
    assert fitting(ledger, f"naming=1%,of=1000{assuming}") == count


def test_a_refusal_by_naming_says_what_would_be_proved_and_what_to_do(ledger: Ledger):
    fitting(ledger, "naming=1%,of=1000,per=year")
    with pytest.raises(BudgetExceededError) as raised:
        ledger.charge([charge("a", person="anna")])
    assert str(raised.value) == (
        "code: with this release of the person anna somebody could name them in 1.6% of cases (at most 1% "
        "named among 1,000 people, by the releases of any year (nothing is assumed of the images)): wait, "
        "release fewer images, choose a code of fewer bits, or raise the budget: `sfumato ledger budget "
        f"naming=1.6%,of=1000,per=year,assuming=none --person anna --ledger {ledger.path}`; more is "
        "allowed if you may assume more (assuming=shuffled or assuming=exchangeable)"
    )
    ledger.charge([charge("a", person="ben"), charge("code0", person="anna")])  # others, and what left before
    ((_, budget, spent),) = ledger.summary().budgets
    assert budget.describe_spent(spent) == (
        "3 of 3.322 bits are spent, which name them in at most 0.8% of cases"
    )
    ledger.set_budget(Budget.parse("naming=1.6%,of=1000,per=year,assuming=none"), person="anna")
    ledger.charge([charge("a", person="anna")])


def test_a_period_is_any_stretch_of_that_length(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    assert fitting(ledger, "naming=1%,of=1000,per=week") == 3
    now += 6 * 86_400
    assert fitting(ledger, "naming=1%,of=1000,per=week", spec="later") == 0
    now += 2 * 86_400
    assert fitting(ledger, "naming=1%,of=1000,per=week", spec="later") == 3
    assert fitting(ledger, "naming=1%,of=1000", spec="last") == 0  # without a period all of them count


def test_a_second_release_of_an_image_is_not_a_draw_and_counts_in_full(ledger: Ledger):
    ledger.charge([charge(f"{i}", 1, spec=spec, person="anna") for spec in ("one", "two") for i in range(3)])
    spent = ledger.set_budget(Budget.parse("naming=50%,of=1000,assuming=exchangeable"), person="anna")
    # Three draws have the Shtarkov sum 1 + 1 + 2/3 + 2/9, and three more bits are a sequence.
    assert spent == pytest.approx(math.log2(1 + 1 + 2 / 3 + 2 / 9) + 3)


def test_noise_is_held_by_what_it_proves_of_naming_and_a_blur_is_not(ledger: Ledger, photographs: Tensor):
    ledger.set_budget(Budget.parse("naming=1%,of=1000"), person="")
    ledger.charge([charge("a", math.inf, guarantee=charges.proves("pure", 0.5, 0.5), person="anna")])
    blur = parse("blur:radius=2")
    with pytest.raises(BudgetExceededError, match="nothing is proved of it, so no budget of naming can hold"):
        releasing.release(blur, photographs[:1], ledger, people=["anna"])
    with pytest.raises(BudgetExceededError, match="nothing would be proved about naming them"):
        ledger.charge([charge("b", 40, spec="long", person="anna")])


def test_who_is_named_in_an_image_later_has_what_left_of_it_counted(ledger: Ledger):
    ledger.charge([charge(f"{i}") for i in range(2)])
    ledger.set_budget(Budget.parse("naming=1%,of=1000"), person="anna")
    with pytest.raises(BudgetExceededError, match="nothing would be proved about"):
        ledger.charge([charge("0", person="anna")])
    ledger.charge([charge("0")])


def test_naming_is_of_a_person_and_of_no_image(ledger: Ledger):
    with pytest.raises(ConfigError, match="a budget of naming needs a person: write --person NAME"):
        ledger.set_budget(Budget.parse("naming=1%,of=1000"))


def test_n_codes_of_a_person_cost_n_times_their_bits_and_no_more_leave_than_fit(ledger: Ledger):
    ledger.set_budget(BITS_64, person="anna")
    ledger.charge([charge(f"{i}", person="anna") for i in range(4)])
    with pytest.raises(BudgetExceededError) as raised:
        ledger.charge([charge("4", person="anna")])
    assert str(raised.value) == (
        "code: this release costs 16 bits, and 0 of 64 are left for the person anna: release fewer "
        "images, choose a code of fewer bits, or raise the budget: "
        f"`sfumato ledger budget bits=128 --person anna --ledger {ledger.path}`"
    )
    ledger.charge([charge("4", person="ben")])


def test_what_was_known_of_a_code_is_not_forgotten_where_a_charge_says_nothing_of_it(ledger: Ledger):
    ledger.charge([charge("a", 16, person="anna"), charge("b", math.inf, person="anna")])
    assert ledger.set_budget(BITS_64, person="anna") == 32


@pytest.mark.parametrize("junk", [-1.0, "many"])
def test_damage_to_what_releases_tell_is_an_error_of_the_ledger(ledger: Ledger, junk: object):
    ledger.charge([charge("a", person="anna")])
    with sqlite3.connect(ledger.path) as database:
        database.execute("update terms set outputs = ?", (junk,))
    database.close()
    with pytest.raises(LedgerError, match="damaged"):
        ledger.set_budget(BITS_64, person="anna")
