"""Many releases of one picture: what a ledger allows of an image, its near copies, and a person."""

import math
from itertools import permutations
from pathlib import Path

import pytest
import torch
from charges import charge
from torch import Tensor

from sfumato import data, images
from sfumato.base.engines import EngineConfig
from sfumato.device.jobs import releasing
from sfumato.device.jobs.folder import FolderConfig, protect_folder
from sfumato.device.ledger import Ledger
from sfumato.device.ledger.budgets import Budget
from sfumato.device.ledger.near_copies import fingerprints
from sfumato.device.ledger.tables import DEFAULT_BUDGETS, EVERY_IMAGE, EVERY_PERSON
from sfumato.errors import BudgetExceededError
from sfumato.protect import Release, parse

ALLOWED = int(DEFAULT_BUDGETS[EVERY_IMAGE].amount)
ALLOWED_OF_A_PERSON = int(DEFAULT_BUDGETS[EVERY_PERSON].amount)


@pytest.fixture(scope="module")
def portraits() -> Tensor:
    """Drawn faces of different people, (8, 3, 64, 64)."""
    world = data.load("faces", identities=40, images_per_identity=1, size=64)
    return world.images[:8]


NOISE = "dp-pix:cell=8,epsilon=3"


def release(ledger: Ledger, image: Tensor, spec: str = NOISE, *, person: str | None = None) -> Release:
    return releasing.release(parse(spec), image[None], ledger, people=[person])


# An image


def test_a_spec_that_changes_in_the_last_digit_gets_no_more_noise_than_a_new_ledger_allows(
    ledger: Ledger, portraits: Tensor
):
    drawn = 0
    for step in range(100):
        try:
            release(ledger, portraits[0], f"dp-pix:cell=8,epsilon={3 + step * 1e-6:.6f}")
        except BudgetExceededError:
            continue
        drawn += 1
    assert drawn == ALLOWED
    with pytest.raises(BudgetExceededError) as raised:
        release(ledger, portraits[0], "gaussian:sigma=99")
    assert str(raised.value) == (
        "gaussian:sigma=99: this image has 5 different releases already, near copies included, and "
        "may have at most 5 different releases: ask for one made before, or raise the budget: "
        f"`sfumato ledger budget releases=10 --ledger {ledger.path}`"
    )
    assert raised.value.cause == "over the budget of an image: at most 5 different releases"


# Near copies


COPIES = [
    lambda image: image.flip(-1),
    lambda image: image.index_fill(1, torch.tensor([0]), 9),
    lambda image: images.read(images.encode(image, "JPEG", quality=60)),
    lambda image: image[:, 3:-3, 3:-3].contiguous(),
    lambda image: images.read(images.encode(image), size=48),
]


@pytest.mark.parametrize("copy", COPIES)
def test_near_copies_of_an_image_share_its_budget_or_are_ignored(ledger: Ledger, portraits: Tensor, copy):
    ledger.set_budget(Budget.parse("releases=2"))
    release(ledger, portraits[0])
    release(ledger, copy(portraits[0]))
    for image in (portraits[0], copy(portraits[0])):
        with pytest.raises(BudgetExceededError, match="near copies included"):
            release(ledger, image, "gaussian:sigma=90")
    ledger.set_near_copies("ignore")
    for image in (portraits[0], copy(portraits[0])):
        release(ledger, image, "gaussian:sigma=90")


def test_no_image_has_more_releases_with_its_copies_than_its_budget_in_any_order(
    tmp_path: Path, portraits: Tensor
):
    # An image, a part of it, and a part of that: each is a near copy of the one before it alone.
    whole = torch.nn.functional.interpolate(portraits[:1].float(), size=120, mode="bicubic")
    whole = whole[0].clamp(0, 255).to(torch.uint8)
    part, least = whole[:, 12:108, 12:108].contiguous(), whole[:, 22:98, 22:98].contiguous()
    for number, order in enumerate(permutations((whole, part, least))):
        with Ledger(tmp_path / f"{number}.db") as ledger:
            ledger.set_budget(Budget.parse("releases=2"))
            refused = 0
            for image in order:
                try:
                    release(ledger, image)
                except BudgetExceededError:
                    refused += 1
            assert refused == 1


def test_a_photograph_is_one_picture_at_every_size_and_only_the_user_hears_its_name(
    tmp_path: Path, portraits: Tensor
):
    photos, path = tmp_path / "photos", tmp_path / "ledger.db"
    photos.mkdir()
    images.write(photos / "anna.png", portraits[0])
    with Ledger(path) as ledger:
        ledger.set_budget(Budget.parse("releases=2"))
    protection, engine = parse("dp-pix:cell=1,epsilon=3"), EngineConfig(workers=1)
    for size in (4, 8, 12):
        target = tmp_path / str(size)
        outcome = protect_folder(photos, target, protection, path, FolderConfig(size=size), engine=engine)
        images.write(photos / "ben.png", portraits[1])
        assert outcome.shapes.total() == (2 if size == 8 else 1)
    (words,) = outcome.words.values()
    why = "looks like a copy of anna.png, which was released before (different photographs? "
    assert f"{why}`sfumato ledger near-copies ignore --ledger {path}`)" in words
    assert "anna" not in (tmp_path / "12" / "manifest.json").read_text()


# People


def test_the_releases_of_one_person_add_up_over_their_images(ledger: Ledger):
    world = data.load("faces", identities=40, images_per_identity=1, size=32)
    for number in range(ALLOWED_OF_A_PERSON):
        release(ledger, world.images[number], person="anna")
    with pytest.raises(BudgetExceededError, match=r"the person anna has 30 different releases"):
        release(ledger, world.images[ALLOWED_OF_A_PERSON], person="anna")
    release(ledger, world.images[ALLOWED_OF_A_PERSON], person="ben")
    release(ledger, world.images[ALLOWED_OF_A_PERSON + 1])  # nobody says who that is


def test_near_copies_are_one_draw_of_what_many_releases_of_a_person_prove(ledger: Ledger, portraits: Tensor):
    for number, image in enumerate((portraits[0], portraits[0].flip(-1), portraits[1])):
        printed = fingerprints(image[None])[0]
        ledger.charge([charge(f"{number}", bits=1.0, person="anna", fingerprint=printed)])
    spent = ledger.set_budget(Budget.parse("naming=50%,of=1000,assuming=exchangeable"), person="anna")
    assert spent == pytest.approx(math.log2(2.5 * 2))  # two draws, and a bit more of the first
