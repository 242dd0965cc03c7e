"""The backup of docs/deployment.md restores the store that the service had, by the commands of the page."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from blocks import Shell, of

from sfumato.serve.store import Example, Key, Store

PAGE = "docs/deployment.md"
SERVICE = 'systemctl() { echo "$@" >> asked; }\n'  # there is none here; what is asked of it is written down


def block(words: str) -> str:
    """The code block of the page that has some words."""
    (text,) = (each.text for each in of(PAGE) if words in each.text)
    return text


def enrol(store: Store, by: Key, classifier: str, label: str, number: int) -> None:
    vector = np.random.default_rng(number).normal(size=4).astype(np.float32)
    store.enrol("museum", classifier, label, [Example(f"digest {number}", vector, 1.0)], by=by)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folders that the page names, below one that tests may write to."""
    for folder in ("var/lib/sfumato", "var/backups"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_after_a_restore_the_store_has_the_classes_of_the_backup(machine: Path, capfd):
    shell = Shell({})
    file = machine / "var/lib/sfumato/sfumato.db"
    log = [file.with_name(f"sfumato.db-{kind}") for kind in ("wal", "shm")]
    with Store(f"sqlite:///{file}") as store:
        store.create_tenant("museum")
        key, secret = store.create_key("museum", role="write", name="camera")
        hats = store.create_classifier("museum", name="hats", model="fs-pic", by=key)
        enrol(store, key, hats.id, "anna", 1)
        shell.run(block("vacuum into '/var/backups"), capfd.readouterr)  # while the service runs
        assert capfd.readouterr().out == "ok\n"
        kept = store.classes("museum", hats.id)
        enrol(store, key, hats.id, "bert", 2)
        left = [path.read_bytes() for path in log]  # closing would tidy them
    for path, content in zip(log, left, strict=True):
        path.write_bytes(content)
    file.write_bytes(b"damaged")

    (backup,) = (machine / "var/backups").iterdir()
    commands = shell.adapted(block("systemctl stop sfumato"))
    assert commands.count("sfumato-2026-01-31.db") == commands.count("-o sfumato -g sfumato") == 1
    commands = commands.replace("sfumato-2026-01-31.db", backup.name)
    # The user of the service need not exist here.
    commands = commands.replace("-o sfumato -g sfumato", f"-o {os.getuid()} -g {os.getgid()}")
    bash = shutil.which("bash")
    assert bash is not None
    subprocess.run([bash, "-e", "-c", SERVICE + commands], check=True, timeout=60)

    assert (machine / "asked").read_text() == "stop sfumato\nstart sfumato\n"
    assert file.stat().st_mode & 0o777 == 0o600
    with Store(f"sqlite:///{file}") as store:
        assert store.classes("museum", hats.id) == kept
        assert [each.label for each in kept] == ["anna"]
        assert store.key(secret) == key  # clients need no new keys
