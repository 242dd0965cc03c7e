"""What the README says of the demo and of the main study is what their records say."""

import re
from pathlib import Path
from statistics import fmean

import pytest
from results_page import accelerator, engine

from sfumato.study.choose.frontier import Setting

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
WORDS = " ".join(README.split())
PIXELS = ("blur", "pixelize", "gaussian", "dp-pix")


@pytest.fixture(scope="module")
def demo() -> engine.Study:
    study = engine.study("demo")
    assert study is not None
    return study


@pytest.fixture(scope="module")
def hats() -> engine.Study:
    study = engine.study("lfw-hats")
    assert study is not None
    return study


def setting(study: engine.Study, spec: str) -> Setting:
    (found,) = [each for each in study.settings if each.protection == spec]
    return found


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def test_the_output_of_the_demo_is_what_its_records_give(demo):
    printed = re.search(r"```text\n(recommended: .*?)```", README, re.DOTALL)
    assert printed is not None
    lines = demo.recommendation.lines
    shown = printed[1].splitlines()[:6]
    assert shown[0] == lines[0]
    for line in shown[1:]:
        start = line.removesuffix(" ...")
        assert any(each.startswith(start) for each in lines), line


def test_ten_ways_are_compared(demo):
    assert len(demo.specs) == 10
    assert "compares ten ways to protect an image" in WORDS


def test_what_guessing_names_is_said(demo):
    assert f"Guessing names {percent(setting(demo, 'code:bits=16').risk.chance)}%." in WORDS


def test_what_pixels_give_away_on_real_people_is_said(hats):
    specs = [spec for spec in hats.specs if spec.startswith(PIXELS)]
    one = sorted(setting(hats, spec).risk.top1.value for spec in specs)
    assert f"name {100 * one[0]:.0f} to {100 * one[-1]:.0f}% of people" in WORDS


def test_what_a_code_keeps_and_gives_away_on_real_people_is_said(hats):
    code = setting(hats, "code:bits=16")
    assert f"keeps {percent(code.accuracy.value)}% of the answers right" in WORDS
    assert f"name {percent(code.risk.top1.value)}% from one." in WORDS


def test_what_a_hundred_releases_give_away_is_said():
    many = accelerator.values()["many_releases"]
    plain, best = (percent(fmean(sent.named(100))) for sent in (many.plain, many.best))
    first = many.best.seeds[0]
    assert (
        f"adversaries name {plain}% of {first.panel} drawn people; guessing names {percent(first.guessing)}%"
        in WORDS
    )
    assert f"leaves [{best}%]" in WORDS
