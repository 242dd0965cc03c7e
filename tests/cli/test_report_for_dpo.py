"""`--for dpo`, the evidence report of a study and of an audit; and `sfumato audit gallery`."""

import hashlib
import json
import shlex
from pathlib import Path

import pytest
from cloud import encoder, photograph
from commands import check_mistake

from sfumato.cli.audit.family import _bare

RESULTS = Path(__file__).parents[2] / "studies" / "results"


def test_its_command_makes_the_same_page_again(command):
    Path("run.jsonl").write_bytes((RESULTS / "lfw-smile-answer.jsonl").read_bytes())
    said = command("study", "report", "run.jsonl", "--for", "dpo", "--threshold", "0.2", "--json")
    first = Path("run/evidence.html").read_bytes()
    (repeat,) = [each for each in json.loads(said.out)["findings"] if each["name"] == "how-to-repeat-it"]
    rows = dict(map(tuple, repeat["table"]["rows"]))
    assert rows["run.jsonl"] == hashlib.sha256(Path("run.jsonl").read_bytes()).hexdigest()
    assert command(*shlex.split(rows["command"])[1:]).out.startswith("The threshold is 20%, for averages ")
    assert Path("run/evidence.html").read_bytes() == first


def test_a_setting_a_threshold_or_a_risk_that_is_missing_is_named(command):
    study = str(RESULTS / "lfw-smile-answer.jsonl")
    for options, words in (
        ("--for dpo --protection blur", "--protection blur: the study has none, code:bits=1, answer"),
        ("--for dpo --threshold 1", "--threshold 1: between 0 and 1, such as 0.09"),
        ("--threshold 0.2", "--protection and --threshold belong to --for dpo"),
    ):
        check_mistake(command("study", "report", study, *options.split()), words)


def test_the_proofs_of_a_protection_are_evidence_without_an_adversary(command):
    options = ("--shape", "1x64x64", "--trials", "10000", "--for", "dpo")
    said = command("audit", "protection", "dp-pix:cell=8,epsilon=0.0005", *options)
    assert "Proved below it, on average over people: singling out from 1 release: at most " in said.out
    assert "Not measured: singling out from 10 releases, from 100 releases; linkability from 1" in said.out
    nothing = command("audit", "protection", "blur:radius=1", *options)
    assert nothing.code == 1
    assert "measured no risk to report: leave the option out" in nothing.err


@pytest.mark.parametrize(
    ("word", "travels"),
    [
        ("folder:/home/anna/photos", "folder:photos"),
        ("code:artefact=/home/anna/a b/code.safetensors,bits=8", "code:artefact=code.safetensors,bits=8"),
        ("blur:radius=8@faces:file=/home/anna/m.safetensors", "blur:radius=8@faces:file=m.safetensors"),
        ("--html=/home/anna/r.html", "--html=r.html"),
        ("--known=C:\\Users\\anna\\photos", "--known=photos"),
        ("\\\\server\\anna\\photos", "photos"),
        ("file:///home/anna/photos/", "file:photos"),
        ("https://anna:secret@host/table?key=1", "https:table"),
        ("../../anna/photos", "photos"),
        ("/home/a,b=c/x.csv", "x.csv"),
        ("~anna", ""),
        ("pixelize:cell=1/8", "pixelize:cell=1/8"),
        ("a~b.png", "a~b.png"),
    ],
)
def test_of_a_command_options_and_names_travel_and_no_folder(word, travels):
    assert _bare(word) == travels


def test_of_a_code_of_bits_the_answer_table_is_audited(command, tmp_path):
    for person in range(6):
        for number in range(4):
            photograph(tmp_path / "photos" / str(person) / f"{number}.png", 4 * person + number)
    photos, small = f"folder:{tmp_path / 'photos'}", ("--shot", "1", "--known", "1", "--split", "all")
    more = ("--photographs", "4", "--galleries", "12", "--attacked", "2", "--label", "class")
    path = encoder(tmp_path / "hats.safetensors", bits=8)
    said = command("audit", "gallery", path, photos, *small, *more, "--json")
    assert said.err.startswith(f"released by code:artefact={path}\n")
    assert all("table" in each["figures"] for each in json.loads(said.out)["findings"])
