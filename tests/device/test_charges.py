"""What left of an image counts within its budgets, and for everybody who is in it, whenever that was said."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import NormalDist
from tempfile import TemporaryDirectory

import charges
import pytest
from charges import proves
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sfumato.device.ledger import Charge, Ledger
from sfumato.device.ledger.budgets import Budget
from sfumato.device.ledger.near_copies import Fingerprint
from sfumato.device.ledger.tables import describe
from sfumato.errors import BudgetExceededError

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


@contextmanager
def a_ledger(folder: Path) -> Iterator[Ledger]:
    """A ledger without budgets, to which images are near copies as ALIKE says."""
    with pytest.MonkeyPatch.context() as patch, Ledger(folder / "ledger.db") as ledger:
        patch.setattr(
            "sfumato.device.ledger.charging.near_copies",
            lambda first, second: {first.decode(), second.decode()} in ALIKE,
        )
        ledger.set_budget(None)
        ledger.set_budget(None, person="")
        yield ledger


class Model:
    """What left, of which images, with whom in them, and the budgets: sets, and sums over all of them."""

    def __init__(self) -> None:
        self.left: set[tuple[str, str]] = set()  # image and spec
        self.names: set[tuple[str, str]] = set()  # image and person
        self.seen: dict[str, bool] = {}  # image -> whether with its fingerprint
        self.budgets: dict[tuple[str | None, bool], str] = {}  # scope, and whether it counts -> words

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
        self.seen[image] = self.seen.get(image, False) or one.fingerprint is not None
        new = (image, one.spec) not in self.left
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
            adding += [(self.copies(copy), self.budgets.get((None, counted))) for copy in self.copies(image)]
        return not any(self.over(images, words) for images, words in adding)

    def after(self, batch: Sequence[Charge]) -> "Model | None":
        """What there is after a batch; None if one of it passes a budget, and nothing is charged."""
        model = Model()
        model.left, model.names = set(self.left), set(self.names)
        model.seen, model.budgets = dict(self.seen), dict(self.budgets)
        return model if all(model.add(one) for one in batch) else None


drawn = st.builds(
    charge,
    st.sampled_from("abcd"),
    st.sampled_from([*SPECS]),
    st.sampled_from([None, *PEOPLE]),
    printed=st.booleans(),
)
limits = st.tuples(st.sampled_from(BUDGETS), st.sampled_from([None, "", *PEOPLE]))
# a is known without a fingerprint, and the ledger finds out only now that b is a copy of it.
FOUND_OUT = [
    ("bits=32", "anna"),
    [charge("a", "code of 16", "anna", printed=False), charge("a", "code of 8", printed=False)],
    [charge("b", "code of 16")],
    [charge("a", "code of 16")],
    [charge("a", "noise of 1")],
]
# c is no copy of a, and its release is one too many for b.
OF_BOTH: list[list[Charge] | tuple[str, str | None]] = [
    ("releases=2", None),
    *([charge(image, "blur")] for image in "bac"),
]


@settings(max_examples=150, deadline=None)
@example(FOUND_OUT)
@example(OF_BOTH)
@given(steps=st.lists(st.one_of(st.lists(drawn, min_size=1, max_size=3), limits), max_size=16))
def test_the_ledger_adds_up_and_refuses_what_a_brute_force_model_does(
    steps: list[list[Charge] | tuple[str, str | None]],
):
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with TemporaryDirectory(dir=memory) as folder, a_ledger(Path(folder)) as ledger:
        model = Model()
        for step in steps:
            if isinstance(step, tuple):
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


@pytest.mark.parametrize(
    ("words", "others", "refused"),
    [
        ("bits=16", "d", "this release costs 16 bits, and 0 of 16 are left for the person anna"),
        ("releases=1", "d", "the person anna has 2 different releases already"),
        ("rho=1", "", r"nothing is left for the person anna \(rho=1 for any 1 pixel\)"),
    ],
)
def test_what_left_of_an_image_counts_for_who_is_named_in_it_now(
    tmp_path: Path, words: str, others: str, refused: str
):
    with a_ledger(tmp_path) as ledger:
        ledger.set_budget(Budget.parse(words), person="anna")
        ledger.charge([charge("a", "code of 16"), *(charge(other, "code of 16", "anna") for other in others)])
        with pytest.raises(BudgetExceededError, match=f"with the earlier releases of this image, {refused}"):
            ledger.charge([charge("a", "code of 16", "anna")])
