"""Many releases of one picture: what a ledger allows of an image, its near copies, and a person."""

import math
from itertools import permutations
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sfumato import data, images
from sfumato.base.engines import EngineConfig
from sfumato.device.jobs import releasing
from sfumato.device.jobs.folder import FolderConfig, protect_folder
from sfumato.device.ledger import Charge, Ledger
from sfumato.device.ledger.budgets import Budget
from sfumato.device.ledger.fingerprints import fingerprints
from sfumato.device.ledger.scopes import EVERY_IMAGE, EVERY_PERSON
from sfumato.device.ledger.tables import DEFAULT_BUDGETS
from sfumato.dp.naming import Information
from sfumato.errors import BudgetExceededError, ConfigError
from sfumato.protect import Release, parse

ALLOWED = int(DEFAULT_BUDGETS[EVERY_IMAGE].amount)
ALLOWED_OF_A_PERSON = int(DEFAULT_BUDGETS[EVERY_PERSON].amount)


@pytest.fixture(scope="module")
def portraits() -> Tensor:
    """Drawn faces of different people, (8, 3, 64, 64)."""
    world = data.load("faces", identities=40, images_per_identity=1, size=64)
    return world.images[:8]


@pytest.fixture
def ledger(tmp_path: Path):
    with Ledger(tmp_path / "ledger.db") as opened:
        yield opened


def release(
    ledger: Ledger,
    image: Tensor,
    spec: str = "dp-pix:cell=8,epsilon=3",
    *,
    person: str | None = None,
) -> Release:
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


def test_the_refusal_names_the_number_the_limit_and_the_cure(ledger: Ledger, portraits: Tensor):
    for sigma in range(40, 40 + ALLOWED):
        release(ledger, portraits[0], f"gaussian:sigma={sigma}")
    with pytest.raises(BudgetExceededError) as raised:
        release(ledger, portraits[0], "gaussian:sigma=99")
    assert str(raised.value) == (
        "gaussian:sigma=99: this image has 5 different releases already, near copies included, and "
        "may have at most 5 different releases: ask for one made before, or raise the budget: "
        f"`sfumato ledger budget releases=10 --ledger {ledger.path}`"
    )
    assert raised.value.cause == "over the budget of an image: at most 5 different releases"


def test_what_was_released_before_is_given_again_at_any_time(ledger: Ledger, portraits: Tensor):
    first = release(ledger, portraits[0], "gaussian:sigma=40")
    for sigma in range(41, 40 + ALLOWED):
        release(ledger, portraits[0], f"gaussian:sigma={sigma}")
    assert torch.equal(release(ledger, portraits[0], "gaussian:sigma=40").values, first.values)


def test_a_number_of_releases_counts_those_of_which_nothing_is_proved(ledger: Ledger, portraits: Tensor):
    ledger.set_budget(Budget.parse("releases=1"))
    release(ledger, portraits[0], "blur:radius=4")
    with pytest.raises(BudgetExceededError, match="1 different releases already"):
        release(ledger, portraits[0], "blur:radius=5")


def test_a_number_of_releases_stands_beside_a_budget_of_what_is_proved(ledger: Ledger, portraits: Tensor):
    ledger.set_budget(Budget.parse("epsilon=100"))
    for step in range(ALLOWED):
        release(ledger, portraits[0], f"dp-pix:cell=8,epsilon={1 + step}")
    with pytest.raises(BudgetExceededError, match="different releases"):
        release(ledger, portraits[0], "dp-pix:cell=8,epsilon=9")
    with pytest.raises(BudgetExceededError, match="eps = 101"):
        release(ledger, portraits[1], "dp-pix:cell=8,epsilon=101")


@pytest.mark.parametrize("words", ["releases=0", "releases=1.5", "releases=-1", "releases=2,pixels=4"])
def test_a_number_of_releases_is_a_whole_number_above_0_of_whole_images(words: str):
    with pytest.raises(ConfigError, match="releases"):
        Budget.parse(words)


# Near copies


def mirrored(image: Tensor) -> Tensor:
    return image.flip(-1)


def recompressed(image: Tensor) -> Tensor:
    return images.read(images.encode(image, "JPEG", quality=60))


def with_another_pixel(image: Tensor) -> Tensor:
    changed = image.clone()
    changed[:, 10, 10] = 255 - changed[:, 10, 10]
    return changed


def cut(image: Tensor) -> Tensor:
    return image[:, 3:-3, 3:-3].contiguous()


def smaller(image: Tensor) -> Tensor:
    return images.read(images.encode(image), size=48)


COPIES = [mirrored, recompressed, with_another_pixel, cut, smaller]


@pytest.mark.parametrize("copy", COPIES)
def test_near_copies_of_an_image_share_its_budget(ledger: Ledger, portraits: Tensor, copy):
    for number in range(ALLOWED - 1):
        release(ledger, portraits[0], f"gaussian:sigma={40 + number}")
    release(ledger, copy(portraits[0]), "gaussian:sigma=80")
    for image in (portraits[0], copy(portraits[0])):
        with pytest.raises(BudgetExceededError, match="near copies included"):
            release(ledger, image, "gaussian:sigma=90")


def test_different_people_do_not_share_a_budget(ledger: Ledger, portraits: Tensor):
    for portrait in portraits:
        for number in range(ALLOWED):
            release(ledger, portrait, f"gaussian:sigma={40 + number}")
    assert ledger.summary().pictures == len(portraits)


@pytest.mark.parametrize("copy", COPIES)
def test_near_copies_are_refused_where_that_is_asked_for(ledger: Ledger, portraits: Tensor, copy):
    ledger.set_near_copies("refuse")
    release(ledger, portraits[0])
    with pytest.raises(BudgetExceededError, match="looks like a copy of another image, which was"):
        release(ledger, copy(portraits[0]))
    release(ledger, portraits[0], "gaussian:sigma=40")  # the image itself is no copy
    release(ledger, portraits[1])


def test_near_copies_have_budgets_of_their_own_where_they_are_ignored(ledger: Ledger, portraits: Tensor):
    ledger.set_near_copies("ignore")
    ledger.set_budget(Budget.parse("releases=1"))
    release(ledger, portraits[0])
    release(ledger, mirrored(portraits[0]))


def test_a_refusal_names_the_image_that_is_resembled_and_the_whole_cure(ledger: Ledger, portraits: Tensor):
    ledger.set_budget(Budget.parse("releases=1"))
    for names, image in (["anna.png"], portraits[0]), (["ben.png"], portraits[1]):
        releasing.charge_and_release(parse("gaussian:sigma=40"), image[None], ledger, names=names)
    with pytest.raises(BudgetExceededError) as raised:
        release(ledger, mirrored(portraits[0]))
    assert "looks like a copy of anna.png, which was released before (different photographs? " in str(
        raised.value
    )
    assert f"`sfumato ledger near-copies ignore --ledger {ledger.path}`" in str(raised.value)
    assert "anna" not in raised.value.cause
    ledger.set_near_copies("ignore")
    release(ledger, mirrored(portraits[0]))


def test_what_was_taken_for_a_copy_has_a_budget_of_its_own_once_copies_are_ignored(
    ledger: Ledger, portraits: Tensor
):
    ledger.set_budget(Budget.parse("releases=2"))
    release(ledger, portraits[0])
    release(ledger, mirrored(portraits[0]))
    ledger.set_near_copies("ignore")
    release(ledger, portraits[0], "gaussian:sigma=40")
    release(ledger, mirrored(portraits[0]), "gaussian:sigma=40")


def far_apart(image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """An image, a part of it, and a part of that: each is a near copy of the one before it alone."""
    first = torch.nn.functional.interpolate(image[None].float(), size=120, mode="bicubic")
    first = first[0].clamp(0, 255).to(torch.uint8)
    return first, first[:, 12:108, 12:108].contiguous(), first[:, 22:98, 22:98].contiguous()


def test_a_copy_of_a_copy_does_not_make_strangers_one_picture(ledger: Ledger, portraits: Tensor):
    ledger.set_budget(Budget.parse("releases=2"))
    whole, part, least = far_apart(portraits[0])
    release(ledger, whole)
    release(ledger, least)  # no copy of the whole
    with pytest.raises(BudgetExceededError):
        release(ledger, part)  # a copy of both
    release(ledger, whole, "gaussian:sigma=40")
    release(ledger, least, "gaussian:sigma=40")


def test_no_image_has_more_releases_with_its_copies_than_its_budget_in_any_order(
    tmp_path: Path, portraits: Tensor
):
    whole, part, least = far_apart(portraits[0])
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
    photos = tmp_path / "photos"
    photos.mkdir()
    images.write(photos / "anna.png", portraits[0])
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.set_budget(Budget.parse("releases=2"))
    for size, released in ((4, 1), (8, 1), (12, 1)):
        if size == 12:
            images.write(photos / "ben.png", portraits[1])
        outcome = protect_folder(
            photos,
            tmp_path / str(size),
            parse("dp-pix:cell=1,epsilon=3"),
            tmp_path / "ledger.db",
            FolderConfig(size=size),
            engine=EngineConfig(workers=1),
        )
        assert outcome.shapes.total() == released
    (words,) = outcome.words.values()
    assert "looks like a copy of anna.png, which was released before" in words
    assert "anna" not in (tmp_path / "12" / "manifest.json").read_text()


def test_an_unknown_way_with_near_copies_is_refused(ledger: Ledger):
    with pytest.raises(ConfigError, match="'forgive': choose charge, refuse or ignore"):
        ledger.set_near_copies("forgive")  # type: ignore[arg-type]
    assert ledger.near_copies == "charge"


# People


def test_the_releases_of_one_person_add_up_over_their_images(ledger: Ledger):
    world = data.load("faces", identities=40, images_per_identity=1, size=32)
    for number in range(ALLOWED_OF_A_PERSON):
        release(ledger, world.images[number], person="anna")
    with pytest.raises(BudgetExceededError, match=r"the person anna has 30 different releases"):
        release(ledger, world.images[ALLOWED_OF_A_PERSON], person="anna")
    release(ledger, world.images[ALLOWED_OF_A_PERSON], person="ben")
    release(ledger, world.images[ALLOWED_OF_A_PERSON + 1])  # nobody says who that is


def test_an_image_counts_for_its_person_also_where_nobody_names_them(ledger: Ledger, portraits: Tensor):
    ledger.set_budget(Budget.parse("releases=2"), person="anna")
    release(ledger, portraits[0], person="anna")
    release(ledger, portraits[0], "gaussian:sigma=40")
    with pytest.raises(BudgetExceededError, match="the person anna"):
        release(ledger, mirrored(portraits[0]), "gaussian:sigma=40")


def test_the_budget_of_a_person_takes_the_place_of_that_of_every_person(ledger: Ledger, portraits: Tensor):
    ledger.set_budget(Budget.parse("releases=1"), person="")
    ledger.set_budget(Budget.parse("releases=2"), person="anna")
    ledger.set_budget(None, person="ben")
    for person, portrait, allowed in (
        ("anna", portraits[0], 2),
        ("ben", portraits[1], 4),
        ("carl", portraits[2], 1),
    ):
        for number in range(allowed):
            release(ledger, portrait, f"gaussian:sigma={40 + number}", person=person)
        if person != "ben":
            with pytest.raises(BudgetExceededError, match=f"the person {person}"):
                release(ledger, portrait, "gaussian:sigma=80", person=person)


def test_in_a_folder_of_people_each_sub_folder_has_one_budget(tmp_path: Path, portraits: Tensor):
    for number, portrait in enumerate(portraits):
        images.write(tmp_path / "photos" / ("anna" if number < 5 else "ben") / f"{number}.png", portrait)
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.set_budget(Budget.parse("releases=3"), person="")
    outcome = protect_folder(
        tmp_path / "photos",
        tmp_path / "released",
        parse("dp-pix:cell=8,epsilon=3"),
        tmp_path / "ledger.db",
        FolderConfig(people=True),
        engine=EngineConfig(workers=1),
    )
    assert {cause: count for cause, (count, _) in outcome.failures.items()} == {
        "over the budget of a person: at most 3 different releases": 2
    }
    assert outcome.shapes.total() == 6


def test_near_copies_are_one_draw_of_what_many_releases_of_a_person_prove(ledger: Ledger, portraits: Tensor):
    one_bit = Information(outputs=1.0, leakage=1.0)
    for number, image in enumerate((portraits[0], portraits[0].flip(-1), portraits[1])):
        charge = Charge(
            image=bytes([number]),
            spec="answer",
            shape=(3, 64, 64),
            guarantee=lambda pixels: None,
            release=None,
            person="anna",
            fingerprint=fingerprints(image[None])[0],
            information=one_bit,
        )
        ledger.charge([charge])
    spent = ledger.set_budget(Budget.parse("naming=50%,of=1000,assuming=exchangeable"), person="anna")
    assert spent == pytest.approx(math.log2(2.5 * 2))  # two draws, and a bit more of the first
