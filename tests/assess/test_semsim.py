"""SemSim as a measure: what is read is what was learned, and what its distances are of."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from sfumato import artefacts
from sfumato.assess import semsim
from sfumato.assess.semsim import SemSim
from sfumato.errors import ArtefactError, ConfigError
from sfumato.learn.semsim import Judgements, SemSimConfig, SemSimModel, train
from sfumato.networks.encoders.small import Embedding, to_squares


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def learned(*, normalised: bool = True) -> SemSimModel:
    originals = (255 * noise(6, 3, 8, 8)).to(torch.uint8)
    judgements = Judgements(
        originals,
        torch.cat([originals // 2, originals.flip(0)]),
        torch.arange(6).repeat(2),
        torch.arange(12) < 6,
        "noise",
    )
    # ResNet: its running statistics are part of what is saved.
    config = SemSimConfig(network="resnet18", size=8, epochs=1, normalised=normalised, precision="float32")
    return train(judgements, config)


@pytest.fixture(scope="module")
def measure(tmp_path_factory: pytest.TempPathFactory) -> SemSim:
    path = tmp_path_factory.mktemp("semsim") / "s.safetensors"
    learned().save(path)
    return SemSim.load(path)


@pytest.mark.parametrize("normalised", [True, False])
def test_what_is_read_measures_as_what_was_learned_and_says_of_what(tmp_path: Path, normalised: bool):
    model = learned(normalised=normalised)
    model.save(tmp_path / "s.safetensors")
    originals, others = noise(5, 3, 8, 8), noise(5, 3, 8, 8, seed=1)
    with torch.no_grad():
        expected = (model.network(originals) - model.network(others)).norm(dim=1)
    read = SemSim.load(tmp_path / "s.safetensors")
    assert torch.equal(read.distance(originals, others), expected)
    assert read.card["data"] == model.card["data"]
    assert (read.card["data"]["name"], read.card["data"]["reconstructions"]) == ("noise", 12)


def test_equal_images_have_no_distance_others_have_one_up_to_2_and_no_gradient_is_kept(measure: SemSim):
    originals, others = noise(5, 3, 8, 8).requires_grad_(), noise(5, 3, 8, 8, seed=1)
    assert torch.equal(measure.distance(originals, originals), torch.zeros(5))
    distances = measure.distance(originals, others)
    assert not distances.requires_grad
    assert ((distances > 0) & (distances <= 2)).all()


def test_a_distance_is_the_same_both_ways_and_among_other_pairs(measure, monkeypatch):
    monkeypatch.setattr(semsim, "_BATCH", 4)
    originals, others = noise(10, 3, 8, 8), noise(10, 3, 8, 8, seed=1)
    distances = measure.distance(originals, others)
    assert torch.equal(measure.distance(others, originals), distances)
    assert torch.allclose(measure.distance(originals[3:6], others[3:6]), distances[3:6], atol=1e-5)


def test_pairs_of_any_size_and_grey_ones_are_brought_to_what_it_was_trained_for(measure: SemSim):
    originals, others = noise(3, 1, 20, 12), noise(3, 1, 20, 12, seed=1)
    expected = measure.distance(to_squares(originals, 8), to_squares(others, 8))
    assert torch.equal(measure.distance(originals, others), expected)


@pytest.mark.parametrize(
    ("originals", "others", "message"),
    [
        (noise(2, 3, 8, 8), noise(2, 3, 16, 16), r"got \(2, 3, 8, 8\) and \(2, 3, 16, 16\)"),
        (noise(3, 8, 8), noise(3, 8, 8), r"compared are \(N, C, H, W\) pairs of 1 or 3 channels"),
        (noise(2, 4, 8, 8), noise(2, 4, 8, 8), r"pairs of 1 or 3 channels, got \(2, 4, 8, 8\)"),
        (noise(2, 3, 8, 8), noise(2, 3, 8, 8).to(torch.uint8), "got torch.uint8: use images.to_float"),
    ],
)
def test_what_are_no_pairs_of_float_images_is_named(measure, originals, others, message):
    with pytest.raises(ConfigError, match=message):
        measure.distance(originals, others)


def test_a_file_that_is_none_is_refused(tmp_path: Path):
    path = tmp_path / "s.safetensors"
    artefacts.save(path, {"x": torch.zeros(1)}, {"kind": "classifier"})
    with pytest.raises(ArtefactError, match="is a 'classifier', and a 'semsim' is needed"):
        SemSim.load(path)
    weights = Embedding("lenet", size=8, normalised=True).state_dict()
    for card, message in (
        ({}, "config in its card: Field required"),
        ({"config": {"network": "resnet18", "size": 8, "normalised": True}}, "asks for a larger network"),
        ({"config": {"network": "resnet19", "size": 8, "normalised": True}}, "config.network is 'resnet19'"),
    ):
        artefacts.save(path, weights, {"kind": "semsim", **card})
        with pytest.raises(ArtefactError, match=message):
            SemSim.load(path)
