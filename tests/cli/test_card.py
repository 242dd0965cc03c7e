"""`sfumato show`: the card of an artefact in words, as a page, and as JSON."""

import json
from pathlib import Path

from cloud import encoder
from commands import Command, check_mistake


def test_the_card_is_printed_and_said_to_programs_and_written_once(command: Command, tmp_path: Path):
    card = encoder(tmp_path / "c.safetensors", bits=5)
    said = command("show", card)
    assert said.code == 0
    assert said.out.startswith("c.safetensors\n\nWhat it is\n  The encoder of a code")
    assert "of 1,000 equally likely people more than 3.2%" in said.out  # 2^5 of 1,000
    told = json.loads(command("show", card, "--json").out)
    assert told["card"]["config"]["bits"] == 5
    assert "What is proved" in told["sections"]
    words = ("show", card, "--html", "c.html")
    assert command(*words).out == "card: c.html\n"
    assert Path("c.html").read_text().startswith("<!DOCTYPE html>")
    check_mistake(command(*words), "c.html: already exists: name another file, or replace it with --force")
    assert command(*words, "--force").code == 0


def test_what_is_no_artefact_is_refused(command: Command, tmp_path: Path):
    (tmp_path / "x.safetensors").write_bytes(b"nothing")
    check_mistake(command("show", tmp_path / "x.safetensors"), "damaged or not a .safetensors file")
    check_mistake(command("show", tmp_path / "gone.safetensors"), "no such file")
