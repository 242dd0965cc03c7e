"""What left of an image counts for everybody who is in it, whenever that was said."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sfumato.device.ledger import Charge, Ledger
from sfumato.device.ledger.budgets import Budget
from sfumato.device.ledger.near_copies import Fingerprint
from sfumato.device.ledger.scopes import describe
from sfumato.dp.naming import Information
from sfumato.errors import BudgetExceededError

BITS = {"code of 8": 8.0, "code of 16": 16.0, "average of two": 16.0}
LIMITS = {"anna": 32.0, "bert": 24.0}
ALIKE = [{"a", "b"}, {"b", "c"}]  # b is a near copy of both, and they are none of each other


def charge(image: str, spec: str, person: str | None = None, *, printed: bool = True) -> Charge:
    return Charge(
        image=image.encode(),
        spec=spec,
        shape=(3, 8, 8),
        guarantee=lambda _: None,
        release=None,
        person=person,
        fingerprint=Fingerprint(image.encode(), (1,), (1,)) if printed else None,
        information=Information(outputs=BITS[spec], leakage=BITS[spec]),
        averaged=spec.startswith("average"),
    )


@contextmanager
def a_ledger(folder: Path) -> Iterator[Ledger]:
    """A ledger with the budgets LIMITS alone, to which images are near copies as ALIKE says."""
    with pytest.MonkeyPatch.context() as patch, Ledger(folder / "ledger.db") as ledger:
        patch.setattr(
            "sfumato.device.ledger.pictures.near_copies",
            lambda first, second: {first.decode(), second.decode()} in ALIKE,
        )
        ledger.set_budget(None)
        ledger.set_budget(None, person="")
        for name, limit in LIMITS.items():
            ledger.set_budget(Budget.parse(f"bits={limit:g}"), person=name)
        yield ledger


def spent(ledger: Ledger) -> dict[str, float]:
    """What is spent for each person."""
    limits = {describe(limit.scope).removeprefix("the person "): limit for limit in ledger.summary().budgets}
    return {name: limits[name].spent for name in LIMITS}


class Model:
    """What left, of which images, with whom in them: sets, and sums over all of them."""

    def __init__(self) -> None:
        self.left: set[tuple[str, str]] = set()  # image and spec
        self.names: set[tuple[str, str]] = set()  # image and person
        self.seen: dict[str, bool] = {}  # image -> whether with its fingerprint

    def copies(self, image: str) -> set[str]:
        alike = (pair for pair in ALIKE if image in pair and all(self.seen.get(each) for each in pair))
        return {image}.union(*alike)

    def spent(self, name: str) -> float:
        images = {copy for image, other in self.names if other == name for copy in self.copies(image)}
        left = [spec for image, spec in self.left if image in images]
        once = {spec for spec in left if spec.startswith("average")}
        return sum(BITS[spec] for spec in left if spec not in once) + sum(BITS[spec] for spec in once)

    def add(self, one: Charge) -> bool:
        """Whether a charge fits all budgets; it is added in any case."""
        before = {name: self.spent(name) for name in LIMITS}
        image, printed = one.image.decode(), one.fingerprint is not None
        was = self.seen.get(image)
        self.seen[image] = bool(was) or printed
        joined = was is False and printed and len(self.copies(image)) > 1
        if one.person is not None:
            self.names.add((image, one.person))
        self.left.add((image, one.spec))
        concerned = {name for other, name in self.names if other in self.copies(image)}
        return not any(
            self.spent(name) > LIMITS[name]
            and (self.spent(name) > before[name] or (joined and name in concerned))
            for name in LIMITS
        )

    def after(self, batch: list[Charge]) -> "Model | None":
        """What there is after a batch; None where one of it passes a budget, and nothing is charged."""
        model = Model()
        model.left, model.names, model.seen = set(self.left), set(self.names), dict(self.seen)
        fits = [model.add(one) for one in batch]
        return model if all(fits) else None


one_charge = st.builds(
    charge,
    st.sampled_from("abcd"),
    st.sampled_from(["code of 8", "code of 16"]),
    st.sampled_from([None, "anna", "bert"]),
    printed=st.booleans(),
)
average = st.builds(
    lambda person: [charge(image, "average of two", person) for image in "ad"],
    st.sampled_from([None, "anna"]),
)


# a is known without a fingerprint, and the ledger finds out only now that b is a copy of it.
FOUND_OUT = [
    [charge("a", "code of 16", "anna", printed=False), charge("a", "code of 8", printed=False)],
    [charge("b", "code of 16")],
    [charge("a", "code of 16")],
]


@settings(max_examples=40, deadline=None)
@example(FOUND_OUT)
@given(batches=st.lists(st.one_of(st.lists(one_charge, min_size=1, max_size=2), average), max_size=12))
def test_the_ledger_adds_up_and_refuses_what_a_brute_force_model_does(batches: list[list[Charge]]):
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with TemporaryDirectory(dir=memory) as folder, a_ledger(Path(folder)) as ledger:
        model = Model()
        for batch in batches:
            expected = model.after(batch)
            if expected is None:
                with pytest.raises(BudgetExceededError):
                    ledger.charge(batch)
            else:
                ledger.charge(batch)
                model = expected
            assert spent(ledger) == {name: model.spent(name) for name in LIMITS}
            assert all(model.spent(name) <= limit for name, limit in LIMITS.items())


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
        ledger.set_budget(None, person="anna")
        ledger.set_budget(Budget.parse(words), person="anna")
        ledger.charge([charge("a", "code of 16"), *(charge(other, "code of 16", "anna") for other in others)])
        with pytest.raises(BudgetExceededError, match=f"with the earlier releases of this image, {refused}"):
            ledger.charge([charge("a", "code of 16", "anna")])
        with pytest.raises(BudgetExceededError):
            ledger.charge([charge("b", "code of 8", "anna")])  # a near copy, which never left itself
        ledger.charge([charge("a", "code of 16")])  # of nobody, it leaves again
        ledger.set_budget(None, person="anna")
        ledger.charge([charge("a", "code of 16", "anna")])


def test_a_person_by_another_name_is_charged_under_both(tmp_path: Path):
    with a_ledger(tmp_path) as ledger:
        ledger.charge([charge("a", "code of 16", "anna")])
        ledger.charge([charge("a", "code of 16", "bert")])
        assert spent(ledger) == {"anna": 16, "bert": 16}
        ledger.charge([charge("a", "code of 8")])
        assert spent(ledger) == {"anna": 24, "bert": 24}
        with pytest.raises(BudgetExceededError, match="8 of 32 are left for the person anna"):
            ledger.charge([charge("a", "average of two")])
