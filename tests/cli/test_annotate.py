"""`sfumato annotate`: from a table of pairs to a campaign, its pages, its state and its tables."""

import csv
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from campaigns import say
from commands import Command, check_mistake

from sfumato import images
from sfumato.annotate import Campaign
from sfumato.learn import classifier

NAMES = ("cat", "dog", "emu")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Six pairs of three classes, 16x16, in photos/pairs.csv."""
    path = tmp_path / "photos" / "pairs.csv"
    generator = torch.Generator().manual_seed(0)
    for number in range(6):
        for name in ("original", "rebuilt"):
            image = torch.randint(0, 256, (3, 16, 16), generator=generator).to(torch.uint8)
            images.write(tmp_path / "photos" / f"{name}-{number}.png", image)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["original", "reconstruction", "class", "model", "source"])
        for number in range(6):
            files = (f"original-{number}.png", f"rebuilt-{number}.png")
            out.writerow([*files, NAMES[number % 3], "lenet", "zoo"])
    return path


@pytest.fixture
def campaign(command: Command, table: Path) -> str:
    assert command("annotate", "new", table, "--task", "choose", "--out", "c").code == 0
    return "c"


def answer_all(name: str, answer: str) -> None:
    campaign = Campaign(name)
    say(campaign, {number: [answer] * campaign.config.annotators for number in campaign.items})


def test_a_new_campaign_says_what_it_holds_and_what_to_do_next(command: Command, table: Path):
    said = command("annotate", "new", table, "--task", "same", "--annotators", "3", "--out", "s")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        "campaign: s (8 items, 2 of them decoys; 3 annotators)",
        "next: send each person one of s/annotator-*.html, and put what they save into s/answers",
    ]
    asked = ("annotate", "new", table, "--task", "choose", "--out", "few", "--most")
    said = command(*asked, "4")
    assert said.out.splitlines()[0] == "campaign: few (4 items, 0 of them decoys; 5 annotators)"
    check_mistake(command(*asked, "7"), "7 pairs are to be drawn from 6: ask about fewer")


def test_the_status_counts_answers_agreement_and_what_is_recognised(command: Command, campaign: str):
    assert "agreement: none yet" in command("annotate", "status", campaign).out
    answer_all(campaign, "cat")
    lines = command("annotate", "status", campaign).out.splitlines()
    assert lines[:5] == [f"annotator {number}: 6 of 6 answered" for number in range(1, 6)]
    assert lines[6] == "recognised by people, lenet: 33.3% (9.7 to 70.0; 2 of 6)"


def test_annotators_who_fail_decoys_are_warned_of_where_their_answers_are_used(command, table):
    command("annotate", "new", table, "--task", "same", "--annotators", "1", "--out", "s")
    answer_all("s", "same")
    doubt = "warning: annotator 1 calls 2 of 2 decoys the same, which show something else"
    assert doubt in command("annotate", "status", "s").err
    assert doubt in command("annotate", "export", "s", "t.csv").err


def test_a_table_is_exported(command: Command, campaign: str, tmp_path: Path):
    answer_all(campaign, "dog")
    said = command("annotate", "export", campaign, "out/s.csv", "--table", "semsim")
    assert said.out == "table: out/s.csv (6 rows of semsim, annotators: people)\n"
    with (tmp_path / "out" / "s.csv").open(newline="") as file:
        assert [row["recognised"] for row in csv.DictReader(file)] == ["false", "true", "false"] * 2
    said = command("annotate", "export", campaign, "table.xlsx")
    check_mistake(said, "table.xlsx: a table is written as .csv or .parquet: choose one of these suffixes")
    assert not (tmp_path / "table.xlsx").exists()


def test_proxies_answer_and_are_called_proxies(command: Command, campaign: str, tmp_path: Path):
    config = classifier.ClassifierConfig(network="conv4", precision="float32")
    card = {"config": asdict(config), "shape": [3, 16, 16], "classes": list(NAMES), "shapes": False}
    card |= {"precision": "float32", "spec": "none"}
    models = ["m1.safetensors", "m2.safetensors"]
    for seed, name in enumerate(models, 1):
        classifier.make_untrained(card, config, seed=seed).save(tmp_path / name)
    assert command("annotate", "proxies", campaign, *models).out == "answered by 2 proxies: c\n"
    lines = command("annotate", "status", campaign).out.splitlines()
    assert lines[:2] == ["m1 (proxy): 6 of 6 answered", "m2 (proxy): 6 of 6 answered"]
    assert lines[3].startswith("recognised by proxies, not people, lenet: ")
