"""`sfumato enrol` and `sfumato classify`: a folder to a service and back, by a key that no argument holds."""

import json
import os
import pty
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from cloud import SIDE, answer_table, encoder, photograph, refusing, running, untrained
from commands import SCRIPT, Command, Said, check_mistake

from sfumato.cli.enrol import _classes
from sfumato.device.client.demands import SIGNER
from sfumato.device.ledger import Ledger, default_path
from sfumato.protect import parse
from sfumato.serve import models
from sfumato.serve.served import Served
from sfumato.serve.store import Store

SPEC = "dp-pix:cell=4,epsilon=3"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> list[Served]:
    folder = tmp_path_factory.mktemp("models")
    refusal = refusing(1e-6).card()
    return [untrained(folder, "noisy", SPEC, refusal=refusal), untrained(folder, "cells", "pixelize:cell=8")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path}/store.db") as opened:
        opened.create_tenant("museum")
        yield opened


@pytest.fixture
def url(store: Store, served: list[Served]) -> Iterator[str]:
    with running(store, served) as address:
        yield address


@pytest.fixture
def key(store: Store, monkeypatch: pytest.MonkeyPatch) -> str:
    secret = store.create_key("museum", role="write", name="device")[1]
    monkeypatch.setenv("SFUMATO_KEY", secret)
    return secret


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two images of Anna, one of Ben, and what is none of theirs."""
    folder = tmp_path / "photos"
    for number, name in enumerate(("anna/1.png", "anna/2.jpg", "ben/1.png")):
        photograph(folder / name, number)
    (folder / "ben" / "notes.txt").write_text("of no interest")
    (folder / "empty").mkdir()
    photograph(folder / ".hidden" / "1.png", 3)
    return folder


LEFT_OUT = (
    "left out: 1 (hidden)\nleft out: 1 (no images by their first bytes)\n"
    "left out: 1 (sub-folders without an image)\n"
)


@pytest.fixture
def enrol(command: Command, url: str, key: str, photos: Path) -> Callable[..., Said]:
    def run(*more: str) -> Said:
        return command("enrol", url, "people", photos, "--with", SPEC, *more)

    return run


def test_each_sub_folder_becomes_a_class_and_a_file_that_cannot_be_read_is_named(
    enrol: Callable[..., Said], photos: Path, store: Store
):
    said = enrol()
    assert (said.code, said.err) == (0, LEFT_OUT)
    assert said.out.splitlines() == [
        "anna: 2 files: 2 enrolled now, 0 before, 0 failed; the class has 2 examples",
        "ben: 1 file: 1 enrolled now, 0 before, 0 failed; the class has 1 example",
        "in all: 3 files: 3 enrolled now, 0 before, 0 failed",
    ]
    (made,) = store.classifiers("museum")
    assert (made.name, made.model) == ("people", "noisy")
    assert [each.label for each in store.classes("museum", made.id)] == ["anna", "ben"]
    (photos / "anna" / "0.png").write_bytes(b"no image")
    again = enrol()
    assert again.code == 1
    assert again.out.endswith("in all: 4 files: 0 enrolled now, 3 before, 1 failed\n")
    assert re.fullmatch(r"failed: \S+/anna/0.png: .+\n", again.err.removeprefix(LEFT_OUT))


def test_a_query_that_the_ledger_refuses_is_named_and_the_others_are_asked(
    enrol: Callable[..., Said], command: Command, url: str, photos: Path, tmp_path: Path
):
    enrol("--ledger", str(tmp_path / "other.db"))
    images = sorted(photos.glob("[ab]*/*.png"))
    command("protect", images[1], tmp_path / "out.png", "--with", "pixelize:cell=16")
    command("ledger", "budget", "releases=1")
    said = command("classify", url, "people", *images, "--with", SPEC)
    answered = [line.partition(": ")[0] for line in said.out.splitlines()]
    assert (said.code, answered) == (1, [str(path) for path in images if path != images[1]])
    refused, *_, counted = said.err.splitlines()
    assert refused.startswith(f"failed: {images[1]}: {SPEC}: ")
    assert "this image has 1 different releases already" in refused
    assert counted == f"in all: {len(images)} files: 1 failed"


def test_away_from_a_terminal_nothing_is_agreed_to_and_of_several_models_one_is_named(
    command: Command, url: str, key: str, photos: Path, store: Store
):
    check_mistake(command("enrol", url, "people", photos), "2 models take releases of any protection")
    said = command("enrol", url, "people", photos, "--model", "cells")
    check_mistake(said, "Nobody on this device agreed, and nothing was sent: choose it with")
    assert "(--with pixelize:cell=8)" in said.err
    (made,) = store.classifiers("museum")
    assert (made.model, store.classes("museum", made.id)) == ("cells", [])
    assert command("enrol", url, "people", photos, "--model", "cells", "--with", "pixelize:cell=8").code == 0


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("", 1)])
def test_at_a_terminal_the_demand_is_shown_with_its_guarantee_and_asked_about(
    command: Command, url: str, key: str, photos: Path, answer: str, code: int
):
    words = ("enrol", url, "people", photos, "--model", "noisy")
    finished, said = at_a_terminal(*words, answer=answer)
    guarantee = str(parse(SPEC).guarantee((3, SIDE, SIDE)))
    assert f"{url} wants images of 3x16x16 for 'people', protected by {SPEC}: {guarantee}" in said
    assert "Send images to it this way from now on? [y/N]" in said
    assert finished == code
    assert ("It was not accepted, and nothing was sent" in said) == (code == 1)
    # What was accepted is not asked again, also away from a terminal.
    assert command(*words).code == code


def at_a_terminal(*words: str | Path, answer: str) -> tuple[int, str]:
    """The exit code of a command, and what a person sees who answers so."""
    person, terminal = pty.openpty()
    running = subprocess.Popen([SCRIPT, *words], stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    seen, asked = b"", False
    with suppress(OSError):  # how a terminal ends that nobody has open any more
        while part := os.read(person, 65536):
            seen += part
            if not asked and (asked := b"[y/N]" in seen):
                os.write(person, f"{answer}\n".encode())
    os.close(person)
    return running.wait(), " ".join(seen.decode().split())


def test_images_are_classified_one_a_line(
    command: Command, enrol: Callable[..., Said], url: str, photos: Path
):
    enrol()
    known, other = photos / "ben" / "1.png", photograph(photos.parent / "new.png", 9)
    said = command("classify", url, "people", known, other, "--with", SPEC)
    assert said.code == 0
    first, second = said.out.splitlines()
    assert re.fullmatch(rf"{known}: ben \d+\.\d%", first)
    assert re.fullmatch(rf"{other}: none of these, (anna|ben) \d+\.\d%", second)
    assert said.err.splitlines()[-1] == f'"none of these": {refusing(1e-6)}'
    assert "none of these" not in command("classify", url, "people", known, "--with", SPEC).err
    found = json.loads(command("classify", url, "people", known, "--json", "--top", "2", "--with", SPEC).out)
    assert found["file"] == str(known)
    assert [each["label"] for each in found["guesses"]] == ["ben", "anna"]
    assert set(found["guesses"][0]) == {"label", "probability", "distance"}


NAMING = (
    "after 1 release nobody, whatever they know, names the right one of 1,000,000 equally likely people more "
    "than 6.6% of the time (nothing is assumed of the images; on average over people and noise, so that a "
    "rare release may name its own person, though nobody can be 10% sure of them except with a chance of "
    "65.6% among 1,000,000; counting of outputs: Smith 2009, Thm. 1); among 1,000 people "
    "nothing is proved"
)


def test_codes_are_enrolled_and_classified_and_it_is_said_once_what_they_prove_of_naming(
    command: Command, store: Store, key: str, photos: Path
):
    path = encoder(photos.parent / "hats.safetensors", bits=16)
    spec = f"code:artefact={path}"
    with running(store, [models.load(path)]) as url:
        said = command("enrol", url, "people", photos, "--with", spec)
        assert (said.code, said.err) == (0, f"{LEFT_OUT}{spec}: {NAMING}\n")
        assert said.out.endswith("in all: 3 files: 3 enrolled now, 0 before, 0 failed\n")
        query = photos / "ben" / "1.png"
        said = command("classify", url, "people", query, "--with", spec)
        assert (said.code, said.err) == (0, "")
        assert re.fullmatch(r"\S+/1.png: (anna|ben) \d+\.\d%\n", said.out)
        check_mistake(command("enrol", url, "people", photos, "--with", "code:artefact=gone"), "no such file")


def test_a_table_is_kept_in_a_file_by_which_images_are_classified_without_service_or_key(
    command: Command, store: Store, key: str, photos: Path, home: Path, monkeypatch: pytest.MonkeyPatch
):
    path, table = encoder(photos.parent / "hats.safetensors", bits=16), home / "people.table"
    more = ("--with", f"code:artefact={path}", "--table", table)
    query = photos / "ben" / "1.png"
    with running(store, [models.load(path)]) as url:
        assert command("enrol", url, "people", photos, *more[:2]).code == 0
        said = command("classify", url, "people", query, *more)
        assert (said.code, said.out) == (0, f"{query}: ben\n")
        words = "the answers of people to all 65,536 codes, of 2 classes (version 1): nothing of an image is"
        assert said.err == f"{table}: {words} sent\n"
        command("enrol", url, "people", photos, *more[:2], "--ledger", home / "another.db")
        newer = command("classify", url, "people", query, *more, "--refresh")
        assert "(version 2)" in newer.err
    monkeypatch.delenv("SFUMATO_KEY")
    charged = command("ledger", "show", "--json").out
    assert command("classify", url, "people", query, *more) == newer
    assert command("ledger", "show", "--json").out == charged
    check_mistake(command("classify", url, "hats", query, *more), "a table of the classifier 'people'")
    check_mistake(command("classify", url, "people", query, *more[2:]), "--with code:artefact=FILE")
    check_mistake(command("classify", url, "people", query, *more[:2], "--refresh"), "is about a table")
    table.write_bytes(table.read_bytes()[:-1])
    check_mistake(command("classify", url, "people", query, *more), "another signature than its own")


def test_a_table_says_none_of_these_and_the_service_is_not_asked(command: Command, photos: Path, home: Path):
    path, table = encoder(photos.parent / "hats.safetensors", bits=4), home / "people.table"
    nobody = answer_table(path, np.zeros(16, int), np.ones(16, bool), ("anna", "ben"))
    home.mkdir(parents=True, exist_ok=True)
    table.write_bytes(nobody.content)
    query = photos / "ben" / "1.png"
    with_code = ("--with", f"code:artefact={path}", "--table", table)
    unknown = command("classify", "http://127.0.0.1:9", "people", query, *with_code)
    check_mistake(unknown, "anybody can sign a table: ask the service once, with --refresh")
    with Ledger(default_path()) as ledger:
        ledger.set_pin("http://127.0.0.1:9", SIGNER, nobody.header.signer)
    said = command("classify", "HTTP://127.1:9//", "people", query, *with_code)
    assert (said.code, said.out) == (0, f"{query}: none of these, anna\n")
    assert len(said.err.splitlines()) == 1


def test_links_out_of_the_folder_are_left_out_and_counted(photos: Path, tmp_path: Path):
    (tmp_path / "diary.png").write_bytes((photos / "ben" / "1.png").read_bytes())
    (photos / "ben" / "9.png").symlink_to(tmp_path / "diary.png")
    (photos / "zoe").symlink_to(tmp_path)
    (photos / "ben" / "8.png").symlink_to("1.png")
    photograph(photos / "ben" / "odd.png", 1).rename(photos / "ben" / "odd.part")  # an image by its bytes
    before, left_out = _classes(photos)
    assert left_out["links out of the folder"] == 2
    assert left_out["folders in a sub-folder"] == 1
    assert "zoe" not in before
    assert [path.name for path in before["ben"]][-2:] == ["8.png", "odd.part"]


def test_mistakes_are_one_line_and_a_key_may_lie_in_a_file(
    command: Command, url: str, key: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "bare").mkdir()
    (tmp_path / "key").write_text(key + "\n")
    check_mistake(command("enrol", url, "people", tmp_path / "bare"), "has no sub-folder with images")
    check_mistake(command("enrol", url, "people", tmp_path / "missing"), "missing: is not a folder: name one")
    check_mistake(command("enrol", url, "people", f"folder:{photos}"), f"is not a folder: write {photos}")
    check_mistake(command("classify", url, "people", photos / "ben" / "1.png"), "no classifier is called")
    check_mistake(command("enrol", "http://cloud.example", "people", photos), "in clear: use https")
    check_mistake(command("enrol", url, "people", photos, "--key-file", "nothing"), "No such file")
    check_mistake(command("enrol", url, "people", photos, "--with", "pixelize:cell=2"), "0 models take")
    monkeypatch.setenv("SFUMATO_KEY", "guessed")
    said = command("enrol", url, "people", photos, "--with", SPEC)
    check_mistake(said, "401: no valid key")
    assert "guessed" not in said.err
    monkeypatch.delenv("SFUMATO_KEY")
    check_mistake(command("enrol", url, "people", photos), "there is no key: name its file with --key-file")
    more = ("--with", SPEC, "--key-file", tmp_path / "key", "--ledger", tmp_path / "elsewhere.db")
    assert command("enrol", url, "people", photos, *more).code == 0
    assert (tmp_path / "elsewhere.db").is_file()
