"""studies/campaign.py: from reconstructions to a campaign, answers, a trained measure and a table."""

import csv
from collections import Counter
from pathlib import Path

import campaign
import pytest
import torch
from reconstructed import judged
from reconstructed.sources import SIZE
from reconstructed.victims import READ, SEARCHED
from rows import Rows
from safetensors.torch import save_file

from sfumato import images
from sfumato.annotate import Store
from sfumato.annotate.campaign import DIFFERENT, THE_SAME
from sfumato.assess.perceptual import Perceptual
from sfumato.data import LabelledImages
from sfumato.data.labelled import label_of
from sfumato.errors import DataError
from sfumato.learn.semsim.perceptual import PerceptualConfig
from sfumato.networks import SqueezeNet

SETS = ("cats", "dogs")
COUNT = 4  # originals of a set
NOISES = {"v0": 0.0, "v1": 30.0, "v2": 80.0, "v3": 250.0}  # victim -> noise in grey levels


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SqueezeNet 1.0 drawn by lot."""
    path = tmp_path_factory.mktemp("squeezenet") / "squeezenet.safetensors"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_file(SqueezeNet().state_dict(), path)
    return path


@pytest.fixture
def reconstructions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backbone: Path) -> Path:
    """Two data sets, of each two attacks on four victims: the more noise, the farther, in records, too."""
    generator = torch.Generator().manual_seed(0)
    tests, records = {}, Rows(tmp_path / "records.jsonl")
    for name in SETS:
        originals = torch.randint(0, 256, (COUNT, 3, SIZE, SIZE), generator=generator).to(torch.uint8)
        label = label_of([f"{name} {number}" for number in range(COUNT)])
        tests[name] = LabelledImages(name, originals, {"class": label})
        for place, image in enumerate(originals):
            write(tmp_path / "runs" / name / "originals" / f"{place:02d}.png", image)
        records[name] = {"originals": list(range(COUNT))}
        for attack in (READ, SEARCHED):
            for victim, noise in NOISES.items():
                noisy = originals + noise * torch.randn(originals.shape, generator=generator)
                for place, image in enumerate(noisy.clamp(0, 255).to(torch.uint8)):
                    write(
                        judged.folder_of(name, attack, victim, tmp_path / "runs") / f"{place:02d}.png", image
                    )
            record = {victim: {"scores": {"squeezenet": noise}} for victim, noise in NOISES.items()}
            records[f"{name}-{attack}"] = {"victims": record}
    monkeypatch.setattr(judged, "parts", lambda name: (tests[name], tests[name]))
    monkeypatch.setattr(campaign, "perceptual", lambda: Perceptual.of_squeezenet(backbone))
    return tmp_path


def write(path: Path, image: torch.Tensor) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    images.write(path, image)


def prepared(folder: Path, pairs: int = 32) -> Path:
    return campaign.prepare(
        SETS, folder / "out", Rows(folder / "records.jsonl"), folder / "runs", pairs=pairs
    )


def answer(path: Path) -> None:
    """People see what has little noise, and tell every decoy."""
    with Store(path) as store:
        items = store.items()
        for one in store.annotators():
            while questions := store.upcoming(one.id, count=1):
                (question,) = questions
                item = items[number_of(store, question.key)]
                sees = not item.decoy and NOISES[item.pair.model] < 50
                store.answer(one.id, question.key, THE_SAME if sees else DIFFERENT, ticket=question.key)


def number_of(store: Store, key: str) -> int:
    ((number,),) = store._rows("select id from items where key = ?", key)
    return int(number)


def test_pairs_are_of_every_data_set_and_strength_and_an_instruction_lies_beside(reconstructions: Path):
    with Store(prepared(reconstructions)) as store:
        items = store.items().values()
    shown = Counter((item.pair.source, item.pair.model) for item in items if not item.decoy)
    assert shown == {(name, victim): 4 for name in SETS for victim in NOISES}
    assert sum(item.decoy for item in items) == 8  # one item in five
    words = (reconstructions / "out" / "instructions.md").read_text()
    assert "about 32 reconstructions" in words
    assert "sfumato annotate serve" in words


def test_the_same_pairs_are_drawn_again_and_a_campaign_is_not_written_over(reconstructions: Path):
    first = prepared(reconstructions, 10)
    records = Rows(reconstructions / "records.jsonl")
    again = campaign.prepare(SETS, reconstructions / "again", records, reconstructions / "runs", pairs=10)
    with Store(first) as one, Store(again) as other:
        assert one.items() == other.items()
    with pytest.raises(DataError, match="exists already, maybe with answers: name a new file"):
        prepared(reconstructions, 10)


def test_answers_train_the_measure_and_come_into_the_table(reconstructions: Path, backbone: Path):
    path = prepared(reconstructions)
    answer(path)
    tiny = PerceptualConfig(size=32, epochs=2, stages=9)
    found = campaign.tables(path, backbone=backbone, config=tiny)
    assert found["annotators"] == "people"
    assert found["krippendorff_alpha"] == pytest.approx(1)
    assert all(each["wrong"] == 0 for each in found["reliability_on_decoys"])
    for row in found["sources"].values():
        assert row["recognised"] == {victim: float(noise < 50) for victim, noise in NOISES.items()}
        learned = {f"{campaign.LEARNED}, seed {seed}" for seed in campaign.SEEDS}
        assert {"psnr", "ssim", "mse", "squeezenet", *learned} == set(row["measures"])
        # Two victims that are seen and two that are not: of 6 pairs 4 are ordered, 2 tied among people.
        assert row["measures"]["psnr"]["kendall"]["value"] == pytest.approx(4 / (4 * 6) ** 0.5)
    with (path.parent / "people-semsim.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 32
    assert sum(row["recognised"] == "true" for row in rows) == 16


def test_a_campaign_that_nobody_answered_makes_no_table(reconstructions: Path, backbone: Path):
    with pytest.raises(DataError, match="no rows: list at least one judged pair"):
        campaign.tables(prepared(reconstructions), backbone=backbone)
