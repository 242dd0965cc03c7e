"""`sfumato show`: the card of an artefact in words, as a page, and as JSON."""

import json
from pathlib import Path

from cloud import encoder
from commands import Command, check_mistake


def test_the_card_is_printed(command: Command, tmp_path: Path):
    said = command("show", encoder(tmp_path / "c.safetensors", bits=5))
    assert said.code == 0
    assert said.out.startswith("c.safetensors\n\nWhat it is\n  The encoder of a code")
    assert "of 1,000 equally likely people more than 3.2%" in said.out  # 2^5 of 1,000


def test_it_is_written_as_a_page_once(command: Command, tmp_path: Path):
    words = ("show", encoder(tmp_path / "c.safetensors", bits=5), "--html", "c.html")
    assert command(*words).out == "card: c.html\n"
    assert Path("c.html").read_text().startswith("<!DOCTYPE html>")
    check_mistake(command(*words), "c.html: already exists: name another file, or replace it with --force")
    assert command(*words, "--force").code == 0


def test_as_json_it_has_the_card_itself(command: Command, tmp_path: Path):
    said = json.loads(command("show", encoder(tmp_path / "c.safetensors", bits=5), "--json").out)
    assert said["card"]["config"]["bits"] == 5
    assert "What is proved" in said["sections"]


def test_what_is_no_artefact_is_refused(command: Command, tmp_path: Path):
    (tmp_path / "x.safetensors").write_bytes(b"nothing")
    check_mistake(command("show", tmp_path / "x.safetensors"), "damaged or not a .safetensors file")
    check_mistake(command("show", tmp_path / "gone.safetensors"), "no such file")
