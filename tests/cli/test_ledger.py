"""`sfumato ledger`: budgets in bits, and what is proved of naming people, in words."""

import json
from pathlib import Path

import pytest
import torch
from cloud import SIDE, encoder
from commands import Command, check_mistake

from sfumato import images
from sfumato.device.jobs import releasing
from sfumato.device.ledger import Ledger
from sfumato.protect import parse

NOBODY = "nobody, whatever they know, names the right one of"
AVERAGE = (
    "(nothing is assumed of the images; on average over people and noise, so that a rare release may name "
    "its own person"
)
LEAKAGE = "maximal leakage, added up: Issa, Wagner & Kamath 2020)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger by which two codes of 4 bits of Anna left, and one and a blurred image of Ben."""
    path = tmp_path / "ledger.db"
    code = parse(f"code:artefact={encoder(tmp_path / 'c.safetensors', bits=4)}", takes=["bits"])
    pixels = torch.randint(0, 256, (4, 3, SIDE, SIDE), dtype=torch.uint8)
    with Ledger(path) as ledger:
        people = ["anna", "anna", "ben"]
        releasing.release(code, pixels[:3], ledger, people=people)
        releasing.release(parse("blur:radius=2"), pixels[3:], ledger, people=["ben"])
    return path


def test_a_budget_in_bits_is_set_shown_and_lifted(command: Command, path: Path):
    said = command("ledger", "budget", "bits=64", "--person", "anna", "--ledger", path)
    assert said.out == "budget of the person anna: at most 64 bits; 8 of 64 bits are spent\n"
    assert said.out in command("ledger", "show", "--ledger", path).out
    said = command("ledger", "budget", "bits=16", "--ledger", path)
    assert said.out == "budget of every image: at most 16 bits\n"
    said = command("ledger", "budget", "none", "--person", "anna", "--ledger", path)
    assert said.out == "no budget for the person anna\n"


def test_of_what_is_not_counted_a_budget_in_bits_holds_nothing_more_and_says_why(
    command: Command, path: Path
):
    said = command("ledger", "budget", "bits=64", "--person", "ben", "--ledger", path)
    assert said.out == (
        "budget of the person ben: at most 64 bits. Nothing more can be released there, since "
        "nobody counts the outputs of a release made there, such as a blur. A number of releases "
        "(releases=5) limits it\n"
    )
    assert (
        "budget of the person ben: at most 64 bits; nothing is left, since nobody counts the "
        "outputs of a release made there\n"
    ) in command("ledger", "show", "--ledger", path).out


def test_what_all_releases_of_each_person_prove_of_naming_them_is_said(command: Command, path: Path):
    said = command("ledger", "show", "--person", "", "--ledger", path)
    assert said.code == 0
    anna, ben = said.out.splitlines()
    people = f"after 2 releases {NOBODY} 1,000 equally likely people more than"
    assert anna.startswith(
        f"the person anna: {people} 25.6% of the time, or of 1,000,000 more than 0.026% {AVERAGE}, "
        "though nobody can be 10% sure of them "
        f"except with a chance of 0.26% among 1,000,000; {LEAKAGE}; "
    )
    # 136 histograms, and a Shtarkov sum of 16 + 60: 60 pairs of different codes in order.
    assert f"; {people} 13.6% of the time, or of 1,000,000 more than 0.014% (assumed: they leave as" in anna
    assert f"; {people} 7.6% of the time, or of 1,000,000 more than 0.0076% (assumed: given the" in anna
    assert ben == "the person ben: nothing is proved about who they show"
    assert command("ledger", "show", "--ledger", path).out.endswith(said.out)


def test_a_budget_of_naming_is_written_in_one_word_or_in_several(command: Command, path: Path):
    for words in (["naming=1%,of=100000,per=year"], ["naming=1%", "of=100000", "per=year"]):
        said = command("ledger", "budget", *words, "--person", "anna", "--ledger", path)
        assert said.out == (
            "budget of the person anna: at most 1% named among 100,000 people, by the releases of any year "
            "(nothing is assumed of the images); 8 of 9.966 bits are spent, which name them in at most "
            "0.256% of cases\n"
        )


def test_among_how_many_people_may_be_said(command: Command, path: Path):
    said = command("ledger", "show", "--person", "anna", "--among", "369", "--among", "50", "--ledger", path)
    assert said.out.startswith(
        f"the person anna: after 2 releases {NOBODY} 369 equally likely people more than 69.4% of "
        f"the time {AVERAGE}; {LEAKAGE}; among 50 people nothing is proved; after 2 releases"
    )


@pytest.mark.parametrize(("words", "name"), [(("show",), "carla"), (("show",), "ana")])
def test_a_name_that_nobody_has_is_refused_with_the_nearest(
    command: Command, path: Path, words: tuple[str, ...], name: str
):
    said = command("ledger", *words, "--person", name, "--ledger", path)
    check_mistake(said, f"knows nobody called {name!r}: ")
    assert ("did you mean 'anna'?" in said.err) == (name == "ana")


def test_a_budget_may_be_of_a_person_before_their_first_release(command: Command, path: Path):
    for name in ("carla", "ben2", "an\u200bna"):  # the last looks like anna, and is anna
        said = command("ledger", "budget", "bits=64", "--person", name, "--ledger", path)
        assert said.out.startswith(f"budget of the person {name.replace(chr(0x200B), '')}: at most 64 bits")


def test_after_a_blur_reason_and_cure_are_told_of_one_image_and_of_a_folder(command: Command, path: Path):
    photos = path.parent / "photos"
    photos.mkdir()
    images.write(photos / "1.png", torch.arange(3 * 16 * 16).reshape(3, 16, 16).remainder(256).byte())
    protect = ["--ledger", path, "--workers", "1"]
    assert command("protect", photos, "blurred", "--with", "blur:radius=2", *protect).code == 0
    command("ledger", "budget", "epsilon=10", "--ledger", path)
    one = command("protect", photos / "1.png", "1.png", "--with", "dp-pix:cell=4,epsilon=3", *protect)
    reason = "nothing is proved of a release made before"
    assert f"nothing is left for this image (epsilon=10 for any 1 pixel), since {reason}, such as" in one.err
    assert f"lift the budget with `sfumato ledger budget none --ledger {path}`" in one.err
    folder = command("protect", photos, "noisy", "--with", "dp-pix:cell=4,epsilon=3", *protect)
    over = "over the budget of an image: epsilon=10 for any 1 pixel, and"
    assert f"failed: 1 ({over} {reason}), such as 1.png" in folder.out
    assert f"lift the budget with `sfumato ledger budget none --ledger {path}`" in folder.out


def test_a_ledger_and_what_it_proves_are_said_in_json(command: Command, path: Path):
    command("ledger", "budget", "bits=64", "--person", "anna", "--ledger", path)
    command("ledger", "budget", "bits=64", "--person", "ben", "--ledger", path)
    told = json.loads(command("ledger", "show", "--json", "--ledger", path).out)
    assert (told["releases"], told["specs"]["blur:radius=2"]) == (4, 1)
    spent = {each["scope"]: (each["spent"], each["exhausted"]) for each in told["budgets"]}
    assert spent["the person anna"] == (8, False)
    assert spent["the person ben"] == (None, True)  # JSON has no infinity
    subjects = {each["subject"]: each["namings"][0]["chance"] for each in told["proved"]}
    assert subjects["the person anna"] < subjects["the person ben"] == 1


def test_a_whole_ledger_is_checked_and_damage_is_said(command: Command, path: Path):
    assert command("ledger", "check", "--ledger", path).out == f"{path}: 4 releases, each as it was charged\n"
    path.write_bytes(path.read_bytes().replace(b"blur:radius=2", b"blur:radius=3"))
    said = command("ledger", "check", "--ledger", path)
    check_mistake(said, "damaged (charge 4 is missing, or was changed)")
