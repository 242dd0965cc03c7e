"""`sfumato share`: a quarter of a drawn person's answers, by the ledger and a service of its own."""

import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cloud import encoder
from commands import SCRIPT, Command, check_mistake

from sfumato import data, images
from sfumato.base.server import listen, running
from sfumato.device.ledger import Ledger
from sfumato.serve import models
from sfumato.serve.http.app import create
from sfumato.serve.store import Store

SIDE = 16
SECONDS = 300  # on a machine with other work


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Folders of two kinds of hats for enrolment, and a quarter of another drawn person's photographs."""
    world = data.load("faces", size=SIDE, identities=3, images_per_identity=24, headwear=4, seed=1)
    folder = tmp_path / "photos"
    hats, people = world.labels["headwear"], world.labels["identity"]
    for place, (image, hat, who) in enumerate(zip(world.images, hats.codes, people.codes, strict=True)):
        below = "quarter" if int(who) == 2 else f"enrolled/hat {int(hat) % 2}"
        (folder / below).mkdir(parents=True, exist_ok=True)
        images.write(folder / below / f"{place}.png", image)
    return folder


class Service:
    """A service on one port, in this process: tests/cli/test_serve.py has a process."""

    def __init__(self, folder: Path) -> None:
        self.artefact = encoder(folder / "hats.safetensors", bits=6)
        self.store_url = f"sqlite:///{folder}/s.db"
        with Store(self.store_url) as store:
            store.create_tenant("museum")
            self.keys = {
                role: store.create_key("museum", role=role, name=role)[1] for role in ("write", "admin")
            }
        with listen("127.0.0.1", 0) as free:
            self.port = int(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Iterator[None]:
        with Store(self.store_url) as store, running(create(store, [models.load(self.artefact)]), self.port):
            yield

    def kept(self) -> list[tuple[str, list[int]]]:
        with Store(self.store_url) as store:
            (made,) = store.classifiers("museum")
            return [(each.id, each.counts) for each in store.shares("museum", made.id)]


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    made = Service(tmp_path)
    monkeypatch.setenv("SFUMATO_KEY", made.keys["write"])
    return made


def gathered(command: Command, service: Service, photos: Path) -> Path:
    """The answer table, after a quarter of photographs was looked up in it and gathered."""
    table, code = photos.parent / "hats.table", ("--with", f"code:artefact={service.artefact}")
    assert command("ledger", "near-copies", "ignore").code == 0
    assert command("ledger", "budget", "none").code == 0
    assert command("enrol", service.url, "hats", photos / "enrolled", *code).code == 0
    quarter = sorted((photos / "quarter").glob("*.png"))
    for half in (quarter[:12], quarter[8:]):  # some are looked up twice, and count once
        said = command("classify", service.url, "hats", *half, *code, "--table", table, "--gather")
        assert (said.code, len(said.out.splitlines())) == (0, len(half))
    return table


def test_a_quarter_of_a_persons_answers_leaves_as_one_histogram_and_a_second_one_is_refused(
    command: Command, service: Service, photos: Path, home: Path
):
    with service.running():
        table = gathered(command, service, photos)
        ask = ("share", service.url, "hats", "--table", table, "--person", "anna")
        charged = command("ledger", "show").out
        said = command(*ask)
        assert said.code == 0, said.err
        sent, proof = said.out.splitlines()
        assert re.fullmatch(r"sent of 24 answers, whose number stays here: hat 0 \d+%, hat 1 \d+%", sent)
        assert proof.startswith("proved: 6 outputs a quarter, whatever the images: after 1 release nobody, ")
        for words in (
            "more than 0.6% of the time, or of 1,000,000 more than 0.0006% (nothing is assumed of the",
            "that it leaves, and when, must not depend on them; ",
            "in a year, after 4 releases nobody, whatever they know, names the right one of 1,000,000",
        ):
            assert words in proof
        ((_, counts),) = service.kept()
        assert sent.endswith(f"hat 0 {counts[0] / 5:.0%}, hat 1 {counts[1] / 5:.0%}")
        assert "releases of" in charged
        shown = command("ledger", "show").out
        assert "rounded:values=2,parts=5,per=quarter: 1" in shown
        assert "the person anna: after 1 release nobody" in shown
        check_mistake(command(*ask), "hats: one a quarter: the next may leave from 20")
        assert command(*ask[:-2], "--alarm", "hat 1", "--per", "week").code == 0
        check_mistake(command(*ask[:-2], "--alarm", "hat 9"), "--alarm hat 9: did you mean 'hat ")
    assert [counts for _, counts in service.kept()][1:] == [[1]]
    with Ledger(home / "ledger.db") as ledger:
        assert ledger.check() == ledger.summary().releases


def test_killed_between_charge_and_arrival_the_same_bytes_are_sent_once(
    command: Command, service: Service, photos: Path, home: Path
):
    with service.running():
        table = gathered(command, service, photos)
    words = ["share", service.url, "hats", "--table", str(table)]
    with socket.create_server(("127.0.0.1", service.port)) as nobody:  # takes the request, and never answers
        nobody.settimeout(SECONDS)
        with subprocess.Popen([SCRIPT, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            reached, _ = nobody.accept()
            with reached:
                assert reached.recv(9).startswith(b"POST /v1/")
                process.kill()
        assert process.returncode == -signal.SIGKILL
    with Ledger(home / "ledger.db") as ledger:
        ((waiting,),) = ledger._read("select release from charges where id = (select max(id) from charges)")
        assert ledger._read("select count(*) from gathered") == [(0,)]
    with service.running():
        said = command(*words)
        assert said.code == 0, said.err
        assert said.out.startswith("sent once more: hat 0 ")
        check_mistake(command(*words), "hats: one a quarter")
    ((_, counts),) = service.kept()
    assert f'"histogram":{counts[0]}}}'.encode() in waiting
    assert sum(counts) == 5


def test_gathering_needs_a_table_and_a_table_its_classifier(command: Command, service: Service, photos: Path):
    photo = next((photos / "quarter").glob("*.png"))
    asked = ("classify", service.url, "hats", photo)
    check_mistake(command(*asked, "--gather"), "name their table with --table")
    left = command(*asked, "--batch", "shuffled")
    assert "`classify --batch` is `sfumato classify --table FILE`" in left.err
    check_mistake(command("share", service.url, "hats", "--table", "none.table"), "No such file")
