"""The audit of a gallery: limits in which everything, or nothing, is identified."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from sfumato.audits.findings import Finding, Report, as_json, as_text
from sfumato.audits.gallery import GalleryAuditConfig, audit_gallery, measure
from sfumato.errors import ConfigError, DataError

QUICK = GalleryAuditConfig(shot=1, photographs=4, known=2, people=12, galleries=24, attacked=6)


def draw(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def photographs(people: int = 15, count: int = 4) -> tuple[Tensor, Tensor]:
    """Pixels of people who differ more than their photographs do, and who is on each."""
    middles = torch.randint(60, 196, (people, 1, 1, 4, 4), generator=draw(0))
    noise = torch.randint(-40, 41, (people, count, 1, 4, 4), generator=draw(1))
    images = (middles + noise).to(torch.uint8).flatten(0, 1)
    return images, torch.arange(people).repeat_interleave(count)


def pixels(images: Tensor) -> Tensor:
    return images.flatten(1).float() / 255


def finding(report: Report, name: str) -> Finding:
    (found,) = [each for each in report.findings if each.name == name]
    return found


def identified(report: Report, question: str, view: str) -> float:
    return finding(report, question).figures[view]["rates"]["0.01"][0]


def risk_of(report: Report, kind: str) -> float:
    (mine,) = (risk for risk in report.risks if risk.kind == kind)
    return mine.rate.value


def test_a_prototype_of_one_shot_is_its_photograph():
    report = audit_gallery(pixels, *photographs(), config=QUICK)
    assert identified(report, "photograph", "stored") == 1
    low, high = as_json(report)["findings"][0]["figures"]["label"]["rates"]["0.01"][1:]
    assert 0 <= low <= high <= 1
    assert finding(report, "photograph").verdict == "leaks"
    assert report.sentence.startswith("Guard the answers of this gallery as you guard its photographs")
    assert "Enrol more photographs of each class" in as_text(report)
    assert risk_of(report, "singling out") > 0.9
    assert risk_of(report, "linkability") > 0.9


def test_an_embedding_that_says_nothing_identifies_nobody():
    report = audit_gallery(lambda images: torch.zeros(len(images), 3), *photographs(), config=QUICK)
    for question in ("photograph", "person"):
        assert finding(report, question).verdict == "not shown"
        for view in ("stored", "full", "rounded", "label"):
            assert finding(report, question).figures[view]["auc"] == pytest.approx(0.5, abs=0.01)
    assert report.sentence.endswith("Nothing is proved.")
    assert not report.changes
    assert risk_of(report, "singling out") == risk_of(report, "linkability") == 0  # all are equally near


def test_releases_with_much_noise_of_their_own_hide_what_was_enrolled():
    noise = draw(2)

    def noisy(images: Tensor) -> Tensor:
        return pixels(images) + 100 * torch.randn(len(images), 16, generator=noise)

    report = audit_gallery(noisy, *photographs(), config=QUICK)
    assert identified(report, "photograph", "stored") < 0.2


def test_more_shots_hide_each_of_them_better():
    images, codes = photographs(count=12)
    one, eight = (
        audit_gallery(pixels, images, codes, config=replace(QUICK, photographs=12, galleries=40, shot=shot))
        for shot in (1, 8)
    )
    assert identified(one, "photograph", "full") > identified(eight, "photograph", "full")


def bits(images: Tensor) -> Tensor:
    """A code: which pixels are bright."""
    return (images.flatten(1) > 127).float() * 2 - 1


def test_a_table_of_answers_is_one_more_view_of_codes():
    report = audit_gallery(bits, *photographs(), table=True, config=QUICK)
    assert all("table" in finding(report, question).figures for question in ("photograph", "person"))


def test_answers_are_of_the_prototypes_that_codes_have_and_the_store_keeps_means():
    images, codes = photographs()
    plain = audit_gallery(pixels, images, codes, config=QUICK)
    report = audit_gallery(pixels, images, codes, estimate=torch.zeros_like, config=QUICK)
    assert finding(report, "photograph").figures["full"]["auc"] == 0.5
    assert finding(report, "photograph").figures["stored"] == finding(plain, "photograph").figures["stored"]


def test_each_gallery_is_of_one_of_the_releases():
    asked = torch.randn(12, 4, 8, generator=draw(3), dtype=torch.float64)
    _, once = measure(asked, asked[None], QUICK, estimate=None, table=False)
    _, twice = measure(asked, asked[None].repeat(2, 1, 1, 1), QUICK, estimate=None, table=False)
    for key, found in once.items():
        assert all(map(torch.equal, twice[key], found))


def test_people_with_too_few_photographs_are_left_out():
    images, codes = photographs(people=5)
    message = "3 of 4 people have 4 photographs, .* lower --photographs, and with it --shot and --known"
    with pytest.raises(DataError, match=message):
        audit_gallery(pixels, images[:-5], codes[:-5], config=QUICK)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"shot": 0}, "shot=0: at least 1"),
        ({"shot": 3}, "shot=3 and known=2 of photographs=4"),
        ({"known": 0}, "known=0: at least 1"),
        ({"people": 3}, "people=3: at least 4"),
        ({"galleries": 9}, "galleries=9: at least 4 more than the 6"),
    ],
)
def test_settings_out_of_range_are_refused(setting, message):
    with pytest.raises(ConfigError, match=message):
        replace(QUICK, **setting)
