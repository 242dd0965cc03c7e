"""What left of an image counts within its budgets, and for everybody who is in it, whenever that was said."""

import itertools
import math
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import NormalDist
from tempfile import TemporaryDirectory
from typing import Any

import charges
import pytest
import torch
from charges import guarantee, proves
from cloud import SIDE, encoder
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sfumato.device.jobs import releasing
from sfumato.device.ledger import Charge, Ledger
from sfumato.device.ledger.budgets import Budget
from sfumato.device.ledger.near_copies import Fingerprint
from sfumato.device.ledger.tables import describe
from sfumato.dp.guarantee import Guarantee
from sfumato.errors import BudgetExceededError, ConfigError
from sfumato.networks.classifiers import CLASSIFIERS
from sfumato.protect import answer, parse
from sfumato.protect.answer import Answerer

# What is proved of a release: a definition and its value, and bits; None for nothing.
SPECS: dict[str, tuple[tuple[str, float] | None, float]] = {
    "code of 8": (None, 8.0),
    "code of 16": (None, 16.0),
    "noise of 1": (("pure", 1.0), math.inf),
    "noise of 0.1": (("pure", 0.1), math.inf),
    "gaussian of 1": (("gaussian", 1.0), math.inf),
    "blur": (None, math.inf),
}
PEOPLE = ("anna", "bert")
ALIKE = [{"a", "b"}, {"b", "c"}]  # b is a near copy of both, and they are none of each other
BUDGETS = ["releases=1", "releases=2", "releases=3", "bits=16", "bits=24", "bits=40"]
BUDGETS += ["epsilon=0.3", "epsilon=1.1", "epsilon=2", "mu=1", "rho=0.5", "rho=1.1", "none"]


def cost(spec: str, kind: str) -> float:
    """What a release costs of a budget; infinite if nothing is proved in its unit."""
    proved, bits = SPECS[spec]
    match proved, kind:
        case _, "releases":
            return 1.0
        case _, "bits":
            return bits
        case ("pure", value), "epsilon":
            return value
        case ("gaussian", value), "mu":
            return value**2
        case ("pure", value), "mu":  # Dong, Roth & Su 2022, Prop. 2
            return 4 * NormalDist().inv_cdf(math.exp(value) / (1 + math.exp(value))) ** 2
        case (_, value), "rho":  # Bun & Steinke 2016, Prop. 1.4; Dong, Roth & Su 2022
            return value**2 / 2
    return math.inf


def charge(image: str, spec: str, person: str | None = None, *, printed: bool = True) -> Charge:
    proved, bits = SPECS[spec]
    return charges.charge(
        image,
        spec,
        guarantee=proves(*proved) if proved else lambda pixels: None,
        person=person,
        fingerprint=Fingerprint(image.encode(), (1,), (1,)) if printed else None,
        bits=bits,
    )


class Model:
    """What left, of which images, with whom in them, and the budgets: sets, and sums over all of them."""

    def __init__(self) -> None:
        self.left: set[tuple[str, str]] = set()  # image and spec
        self.names: set[tuple[str, str]] = set()  # image and person
        self.seen: dict[str, bool] = {}  # image -> whether with its fingerprint
        self.budgets: dict[tuple[str | None, bool], str] = {}  # scope, and whether it counts -> words
        self.mode = "charge"

    def limit(self, words: str, scope: str | None) -> None:
        """Set the budget of every image (None), of every person (""), or of a person; "none" lifts both."""
        for counted in (False, True):
            if words != "none" and words.startswith("releases") == counted:
                self.budgets[scope, counted] = words
            elif words == "none" and scope:
                self.budgets[scope, counted] = words  # they are exempt from that of every person
            elif words == "none":
                self.budgets.pop((scope, counted), None)

    def copies(self, image: str) -> set[str]:
        alike = (pair for pair in ALIKE if image in pair and all(self.seen.get(each) for each in pair))
        return {image}.union(*alike)

    def of(self, person: str) -> set[str]:
        return {copy for image, name in self.names if name == person for copy in self.copies(image)}

    def people(self, image: str) -> set[str]:
        return {person for person in PEOPLE if image in self.of(person)}

    def spent(self, images: set[str], kind: str) -> float:
        return math.fsum(cost(spec, kind) for image, spec in self.left if image in images)

    def over(self, images: set[str], words: str | None) -> bool:
        if words in (None, "none"):
            return False
        kind, _, amount = words.partition("=")
        limit = float(amount) ** (2 if kind == "mu" else 1)
        return self.spent(images, kind) > limit * (1 + 1e-9)

    def add(self, one: Charge) -> bool:
        """Add a charge. Returns whether it fits all budgets that it adds to."""
        image = one.image.decode()
        printed = one.fingerprint is not None and self.mode != "ignore"
        self.seen[image] = self.seen.get(image, False) or printed
        new = (image, one.spec) not in self.left
        copies = {image} if self.mode == "ignore" else self.copies(image)
        before = {person: {pair for pair in self.left if pair[0] in self.of(person)} for person in PEOPLE}
        if one.person is not None:
            self.names.add((image, one.person))
        self.left.add((image, one.spec))
        adding = [
            (self.of(person), self.budgets.get((person, counted), self.budgets.get(("", counted))))
            for counted in (False, True)
            for person in self.people(image)
            if new or before[person] != {pair for pair in self.left if pair[0] in self.of(person)}
        ]
        for counted in (False, True) if new else ():
            alone = self.mode == "ignore"
            adding += [
                ({copy} if alone else self.copies(copy), self.budgets.get((None, counted))) for copy in copies
            ]
        return not any(self.over(images, words) for images, words in adding)

    def after(self, batch: Sequence[Charge]) -> "Model | None":
        """What there is after a batch; None if one of it passes a budget, and nothing is charged."""
        model = Model()
        model.left, model.names = set(self.left), set(self.names)
        model.seen, model.budgets, model.mode = dict(self.seen), dict(self.budgets), self.mode
        return model if all(model.add(one) for one in batch) else None


drawn = st.builds(
    charge,
    st.sampled_from("abcd"),
    st.sampled_from([*SPECS]),
    st.sampled_from([None, *PEOPLE]),
    printed=st.booleans(),
)
limits = st.tuples(st.sampled_from(BUDGETS), st.sampled_from([None, "", *PEOPLE]))
modes = st.sampled_from(["charge", "ignore"])
# a is known without a fingerprint, and the ledger finds out only now that b is a copy of it.
FOUND_OUT = [
    ("bits=32", "anna"),
    [charge("a", "code of 16", "anna", printed=False), charge("a", "code of 8", printed=False)],
    [charge("b", "code of 16")],
    [charge("a", "code of 16")],
    [charge("a", "noise of 1")],
]
# c is no copy of a, and its release is one too many for b.
OF_BOTH: list[list[Charge] | tuple[str, str | None] | str] = [
    ("releases=2", None),
    *([charge(image, "blur")] for image in "bac"),
]


@settings(max_examples=150, deadline=None)
@example(FOUND_OUT)
@example(OF_BOTH)
@given(steps=st.lists(st.one_of(st.lists(drawn, min_size=1, max_size=3), limits, modes), max_size=16))
def test_the_ledger_adds_up_and_refuses_what_a_brute_force_model_does(
    steps: list[list[Charge] | tuple[str, str | None] | str],
):
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with (
        TemporaryDirectory(dir=memory) as folder,
        pytest.MonkeyPatch.context() as patch,
        Ledger(Path(folder) / "ledger.db") as ledger,
    ):
        patch.setattr(
            "sfumato.device.ledger.charging.near_copies",
            lambda first, second: {first.decode(), second.decode()} in ALIKE,
        )
        ledger.set_budget(None)
        ledger.set_budget(None, person="")
        model = Model()
        for step in steps:
            if isinstance(step, str):
                model.mode = step
                ledger.set_near_copies(step)  # type: ignore[arg-type]
            elif isinstance(step, tuple):
                words, scope = step
                model.limit(words, scope)
                ledger.set_budget(None if words == "none" else Budget.parse(words), person=scope)
            elif (expected := model.after(step)) is None:
                with pytest.raises(BudgetExceededError):
                    ledger.charge(step)
            else:
                ledger.charge(step)
                model = expected
        for scope, budget, spent in ledger.summary().budgets:
            person = describe(scope).removeprefix("the person ")
            if person in PEOPLE and math.isfinite(budget.amount):
                kind = budget.words.partition("=")[0]
                assert spent == pytest.approx(model.spent(model.of(person), kind))
        assert ledger.summary().releases == len(model.left)


# What a refusal says


def code(image: str, bits: float = 16.0, **fields: Any) -> Charge:
    return charges.charge(image, bits=bits, **{"person": "anna"} | fields)


def noise(image: str, epsilon: float, **fields: Any) -> Charge:
    return charges.charge(image, f"noise:{epsilon}", guarantee=proves("pure", epsilon), **fields)


UNNAMED, NAMED = code("a", person=None), code("a")  # what left of an image counts for who is named in it now
ANOTHER, EARLIER = code("d"), "with the earlier releases of this image, "
# A budget, and whose; what left before; what does not fit; why, and the cure by the command {set} with {of}.
REFUSALS: list[tuple[str, str | None, list[Charge], Charge, str]] = [
    (
        "epsilon=6",
        None,
        [noise("a", epsilon) for epsilon in (1.0, 2.0, 3.0)],
        noise("a", 0.5),
        "noise:0.5: this release costs eps = 0.5, and 0 of 6 is left for this image (epsilon=6 for any 1 "
        "pixel): ask for more noise, or raise the budget: `{set} epsilon=12{of}`",
    ),
    (
        "bits=64",
        "anna",
        [code(f"{row}") for row in range(4)],
        code("4"),
        "code: this release costs 16 bits, and 0 of 64 are left for the person anna: release fewer images, "
        "choose a code of fewer bits, or raise the budget: `{set} bits=128 --person anna{of}`",
    ),
    (
        "naming=1%,of=1000,per=year",
        "anna",
        [code(f"{row}", 1.0) for row in range(3)],
        code("3", 1.0),
        "code: with this release of the person anna somebody could name them in 1.6% of cases (at most 1% "
        "named among 1,000 people, by the releases of any year (nothing is assumed of the images)): wait, "
        "release fewer images, choose a code of fewer bits, or raise the budget: `{set} "
        "naming=1.6%,of=1000,per=year,assuming=none --person anna{of}`; more is allowed if you may assume "
        "more (assuming=chain or assuming=shuffled or assuming=exchangeable)",
    ),
    (
        "rho=1e9",
        None,
        [UNNAMED],
        noise("a", 0.1),
        "nothing is left for this image (rho=1e9 for any 1 pixel), since nothing is proved of a release made "
        "before, such as a blur, or nothing that adds up in rho: lift the budget with `{set} none{of}`, then "
        "limit the number of releases with `{set} releases=5{of}`",
    ),
    (
        "bits=64",
        "anna",
        [],
        noise("a", 0.1, person="anna"),
        "its outputs are not counted, so no budget in bits can hold it: release a code of bits or an answer "
        "(budget of the person anna: at most 64 bits), or count releases instead: `{set} none --person anna",
    ),
    ("releases=2", "anna", [ANOTHER, code("b")], NAMED, "the person anna has 2 different releases already"),
    ("releases=1", "a'b", [code("b", person="a'b")], code("a", person="a'b"), """person 'a'"'"'b'"""),
    ("bits=16", "anna", [UNNAMED, ANOTHER], NAMED, f"{EARLIER}this release costs 16 bits, and 0 of 16 are"),
    ("releases=1", "anna", [UNNAMED, ANOTHER], NAMED, f"{EARLIER}the person anna has 2 different releases"),
    ("rho=1", "anna", [UNNAMED], NAMED, f"{EARLIER}nothing is left for the person anna (rho=1 for any 1"),
    ("naming=1%,of=1000", "anna", [UNNAMED], NAMED, "anna nothing would be proved about naming them (at"),
]


@pytest.mark.usefixtures("unlimited")
@pytest.mark.parametrize(("words", "person", "before", "refused", "message"), REFUSALS)
def test_a_refusal_says_what_is_spent_and_ends_with_the_command_that_goes_on(
    ledger: Ledger, words: str, person: str | None, before: list[Charge], refused: Charge, message: str
):
    ledger.charge(before)
    ledger.set_budget(Budget.parse(words), person=person)
    with pytest.raises(BudgetExceededError) as raised:
        ledger.charge([refused])
    assert message.format(set="sfumato ledger budget", of=f" --ledger {ledger.path}") in str(raised.value)
    assert ledger.charge(before).new == 0  # what left before costs nothing, and others are not held
    ledger.charge([noise("another", 0.1, person="ben")])


# What is proved


def roots(pixels: int | None) -> Guarantee:
    """Grows like the square root, as Gaussian noise has it; group privacy knows only the multiple."""
    return guarantee("pure", math.sqrt(pixels or 1), pixels=pixels or 1)


@pytest.fixture
def spent(ledger: Ledger, unlimited: None) -> Any:
    """What is spent of a budget of Anna."""
    return lambda words: ledger.set_budget(Budget.parse(words), person="anna")


def test_each_budget_asks_the_protection_for_its_own_number_of_pixels(ledger: Ledger, spent):
    ledger.charge([charges.charge("a", "x", guarantee=roots, person="anna")])
    assert spent("epsilon=100,pixels=16") == 16  # in 16 steps of 1
    ledger.charge([charges.charge("b", "x", guarantee=roots, person="anna")])
    assert spent("epsilon=100,pixels=16") == 8  # a better guarantee that comes later is for both
    assert spent("epsilon=100") == 2


def test_what_was_known_of_a_code_is_not_forgotten_where_a_charge_says_nothing_of_it(ledger: Ledger, spent):
    ledger.charge([code("a", 16), code("b", math.inf)])
    assert spent("bits=64") == 32


@pytest.mark.parametrize(("words", "bits"), [("", 12), (",epsilon=2", 12), ("answer", math.log2(3))])
def test_a_code_costs_its_bits_whatever_its_noise_and_an_answer_those_of_its_classes(
    ledger: Ledger, tmp_path: Path, spent, words: str, bits: float
):
    path = tmp_path / "a.safetensors"
    if words == "answer":
        network = CLASSIFIERS["conv4"]((3, SIDE, SIDE), 3)
        answerer = Answerer(network, classes=("x", "y", "z"), shape=(3, SIDE, SIDE)).eval()
        answer.save(path, answerer, network="conv4", card={})
        protection = parse(f"answer:artefact={path}", takes=["answer"])
    else:
        protection = parse(f"code:artefact={encoder(path, bits=12)}{words}", takes=["bits"])
    images = torch.randint(0, 256, (2, 3, SIDE, SIDE), dtype=torch.uint8)
    releasing.release(protection, images, ledger, people=["anna"] * 2)
    assert spent("bits=64") == pytest.approx(2 * bits)


# Naming


def fitting(ledger: Ledger, words: str, *, spec: str = "code") -> int:
    """How many images of Anna leave under a budget, a bit each."""
    ledger.set_budget(Budget.parse(words), person="anna")
    for count in itertools.count():
        try:
            ledger.charge([code(f"{spec}{count}", 1.0, spec=spec)])
        except BudgetExceededError:
            return count
    raise AssertionError


@pytest.mark.parametrize(
    ("assuming", "count"),
    # 2^n <= 10; 8.30 of a chain of 4 and 10.04 of 5; n + 1 <= 10;
    # Σ_k n!/((n-k)! n^k) <= 10, which is 9.93 of 55 and 10.02 of 56.
    [("", 3), (",assuming=chain", 4), (",assuming=shuffled", 9), (",assuming=exchangeable", 55)],
)
@pytest.mark.usefixtures("unlimited")
def test_as_many_answers_of_one_bit_leave_as_what_is_assumed_of_them_allows(
    ledger: Ledger, assuming: str, count: int
):
    assert fitting(ledger, f"naming=1%,of=1000{assuming}") == count


def test_a_period_is_any_stretch_of_that_length(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    assert fitting(ledger, "naming=1%,of=1000,per=week") == 3
    now += 6 * 86_400
    assert fitting(ledger, "naming=1%,of=1000,per=week", spec="later") == 0
    now += 2 * 86_400
    assert fitting(ledger, "naming=1%,of=1000,per=week", spec="later") == 3
    assert fitting(ledger, "naming=1%,of=1000", spec="last") == 0  # without a period all of them count


def test_a_second_release_of_an_image_is_not_a_draw_and_counts_in_full(ledger: Ledger, spent):
    ledger.charge([code(f"{i}", 1, spec=spec) for spec in ("one", "two") for i in range(3)])
    # Three draws have the Shtarkov sum 1 + 1 + 2/3 + 2/9, and three more bits are a sequence.
    bits = math.log2(1 + 1 + 2 / 3 + 2 / 9) + 3
    assert spent("naming=50%,of=1000,assuming=exchangeable") == pytest.approx(bits)


@pytest.mark.usefixtures("unlimited")
def test_noise_is_held_by_what_it_proves_of_naming_and_a_blur_is_not(ledger: Ledger):
    ledger.set_budget(Budget.parse("naming=1%,of=1000"), person="")
    ledger.charge([code("a", math.inf, guarantee=proves("pure", 0.5, 0.5))])
    with pytest.raises(BudgetExceededError, match="nothing is proved of it, so no budget of naming can hold"):
        ledger.charge([code("b", math.inf, spec="blur")])


def test_naming_is_of_a_person_and_of_no_image(ledger: Ledger):
    with pytest.raises(ConfigError, match="a budget of naming needs a person: write --person NAME"):
        ledger.set_budget(Budget.parse("naming=1%,of=1000"))


# Names and clocks

NOW, DAY = 1_764_000_000.0, 86_400.0
NAMES = ["anna", "an\u200bna", "anna ", "an\u200dna", "anna\ufe0f", "\u0430nna", "\uff41nna"]
ADDRESSES = [
    "https://cloud.example",
    "HTTPS://Cloud.Example/",
    "https://cloud.example:443",
    "https://cloud.example.",
    "https://\uff43loud.example//",
]


def test_people_whose_names_look_alike_share_a_budget(ledger: Ledger):
    ledger.set_budget(Budget.parse("releases=7"), person="anna")
    ledger.charge([code(f"image {row}", 1.0, person=name) for row, name in enumerate(NAMES)])
    assert ledger.people() == ["anna"]
    for name in NAMES:
        with pytest.raises(BudgetExceededError, match="the person anna has 7 different releases"):
            ledger.charge([code("another", 1.0, person=name)])


def test_a_name_of_which_nothing_is_seen_is_refused(ledger: Ledger):
    with pytest.raises(ConfigError, match=r"'\\u200d' is not the name of a person"):
        ledger.charge([code("image", person="\u200d")])


def test_a_service_has_one_pin_under_every_way_to_type_its_address(ledger: Ledger):
    ledger.set_pin(ADDRESSES[0], "people", "blur:radius=4")
    assert {pin.spec for each in ADDRESSES if (pin := ledger.pin(each, "people"))} == {"blur:radius=4"}
    for each in ADDRESSES:
        ledger.set_pin(each, "people", "blur:radius=4")
        assert ledger.unpin(ADDRESSES[-1]) == 1


@pytest.mark.parametrize(
    "clocks",
    [
        (NOW, 1000.0, NOW + 200),  # it starts at 1970
        (NOW, NOW - 90 * DAY, NOW + 200),  # or at its last shutdown
        (NOW, NOW + 9999 * DAY, NOW + 200),  # it was years ahead once
        (1000.0, 2000.0, NOW),  # the ledger itself was begun in 1970
        (NOW, -5.0, NOW),
    ],
)
def test_a_budget_of_a_year_holds_whatever_the_clock_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clocks: tuple[float, ...]
):
    path = tmp_path / "ledger.db"
    monkeypatch.setattr(time, "time", lambda: clocks[0])
    with Ledger(path) as ledger:
        ledger.set_budget(Budget.parse("naming=1%,of=1000,per=year"), person="anna")
        left = 0
        for number, clock in enumerate(clocks):
            monkeypatch.setattr(time, "time", lambda clock=clock: clock)
            for row in range(5):
                try:
                    ledger.charge([code(f"{number} {row}", 1.0)])
                    left += clock < NOW + DAY  # far ahead, another year may have begun
                except BudgetExceededError:
                    break
        assert left == 3
    with closing(sqlite3.connect(path)) as database:
        times = [at for (at,) in database.execute("select time from charges order by id")]
    assert times == sorted(times)


def test_a_clock_that_is_behind_is_said_with_its_cure(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    assert ledger.clock == ""
    ledger.set_budget(Budget.parse("naming=0.2%,of=1000,per=year"), person="anna")
    ledger.charge([code("a", 1.0)])
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    behind = "the clock of this device says 1970-01-01 00:16 UTC, and the ledger was at"
    assert ledger.clock.startswith(behind)
    with pytest.raises(BudgetExceededError, match=r"set the clock$"):
        ledger.charge([code("b", 1.0)])
