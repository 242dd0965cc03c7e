"""`sfumato audit gallery`: what prototypes, answers and a table tell of enrolled photographs."""

import json
from pathlib import Path

from cloud import encoder, photograph
from commands import Command


def test_of_a_code_of_bits_the_answer_table_is_audited(command: Command, tmp_path: Path):
    for person in range(6):
        for number in range(4):
            photograph(tmp_path / "photos" / str(person) / f"{number}.png", 4 * person + number)
    photos, small = f"folder:{tmp_path / 'photos'}", ("--shot", "1", "--known", "1", "--split", "all")
    more = ("--photographs", "4", "--galleries", "12", "--attacked", "2", "--label", "class")
    path = encoder(tmp_path / "hats.safetensors", bits=8)
    said = command("audit", "gallery", path, photos, *small, *more, "--json")
    assert said.err.startswith(f"released by code:artefact={path}\n")
    assert all("table" in each["figures"] for each in json.loads(said.out)["findings"])
