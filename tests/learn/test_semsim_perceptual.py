"""semsim-perceptual: which terms are learned, what its probability says, and what is read back."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy import optimize, special
from torch import Tensor
from torch.nn import functional

from sfumato import artefacts
from sfumato.assess import semsim as measures
from sfumato.assess.perceptual import Perceptual
from sfumato.assess.semsim import PerceptualSemSim
from sfumato.errors import ArtefactError, ConfigError, DataError
from sfumato.images import to_float
from sfumato.learn.semsim import Judgements, SemSimModel, perceptual
from sfumato.learn.semsim.perceptual import Looked, PerceptualConfig, learn, logistic, train
from sfumato.networks import SqueezeNet
from sfumato.networks.stage_distance import StageDistance

TINY = PerceptualConfig(size=32, epochs=5, stages=9)
TOLD = 3  # the term that people go by in a world of numbers


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SqueezeNet 1.0 drawn by lot."""
    path = tmp_path_factory.mktemp("squeezenet") / "squeezenet.safetensors"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_file(SqueezeNet().state_dict(), path)
    return path


@pytest.fixture(scope="module")
def judgements() -> Judgements:
    """People recognise copies that are nearly the same, and not negatives."""
    known = originals(6)
    others = torch.cat([known | 3, 255 - known])
    return Judgements(known, others, torch.arange(6).repeat(2), torch.arange(12) < 6, "patterns")


@pytest.fixture(scope="module")
def model(judgements: Judgements, backbone: Path) -> SemSimModel:
    return train(judgements, TINY, backbone=backbone)


@pytest.fixture(scope="module")
def file(model: SemSimModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("semsim") / "p.safetensors"
    model.save(path)
    return path


def blank() -> StageDistance:
    """With 18 terms, to learn from numbers."""
    return StageDistance(size=32, kinds=("relative", "placed"), stages=9, others=0)


def originals(count: int, seed: int = 5) -> Tensor:
    """Coarse patterns, (count, 3, 32, 32) uint8."""
    coarse = torch.rand(count, 3, 4, 4, generator=seeded(seed))
    return (255 * functional.interpolate(coarse, (32, 32))).to(torch.uint8)


def world(originals: int = 40, each: int = 6, seed: int = 0) -> Looked:
    """Terms of which one alone decides what is recognised."""
    count = originals * each
    terms = torch.rand(count, 18, generator=seeded(seed))
    of = torch.arange(count) % originals
    return Looked(terms, of, (terms[:, TOLD] < 0.5).float(), range(originals), "world")


# What is learned


def test_placed_terms_of_equal_weight_are_the_distance_of_squeezenet(backbone: Path):
    distance = perceptual.blank(backbone, replace(TINY, terms="placed"), originals(2))
    first, second = torch.rand(2, 3, 3, 32, 32, generator=seeded())
    with torch.no_grad():
        found = distance(first, second)
    assert torch.allclose(found, Perceptual.of_squeezenet(backbone).distance(first, second), rtol=1e-4)


def test_relative_terms_are_distances_of_averages_in_units_of_those_to_other_images(backbone: Path):
    others = originals(4)
    distance = perceptual.blank(backbone, TINY, others)
    first, second = torch.rand(2, 3, 3, 32, 32, generator=seeded())
    terms = distance.terms(first, second)
    network = SqueezeNet.load(backbone)

    def averages(images: Tensor, stage: int) -> Tensor:
        with torch.no_grad():
            return functional.normalize(network.features(images)[stage].mean((2, 3)), dim=1)

    for stage in (0, 1):  # deeper ones of a network drawn by lot are the same for all images, up to rounding
        a, b, known = (averages(each, stage) for each in (first, second, to_float(others)))
        for row in range(3):
            away = torch.stack([(b[row] - other).square().sum() for other in known]).mean()
            assert terms[row, stage].item() == pytest.approx(
                ((a[row] - b[row]).square().sum() / away).item(), rel=1e-3
            )


def test_what_is_equal_is_at_0_and_what_is_another_image_at_about_1(backbone: Path):
    others = originals(12)
    distance = perceptual.blank(backbone, TINY, others)
    images = to_float(others)
    assert torch.equal(distance.terms(images, images), torch.zeros(12, 9))
    # Its own original is none of the others: of those, each is on average as far as any.
    assert distance.terms(images, images.roll(1, 0)).mean(0).tolist() == pytest.approx([1] * 9, abs=0.4)


def test_relative_terms_do_not_see_where_things_are_and_placed_ones_do(backbone: Path):
    distance = perceptual.blank(backbone, replace(TINY, terms="both"), originals(4))
    # Of a pattern that repeats, a shift moves what a stage sees, and leaves its average.
    tiled = torch.rand(1, 3, 8, 8, generator=seeded()).repeat(1, 1, 4, 4)
    relative, placed = distance.terms(tiled, tiled.roll((2, 2), (2, 3)))[0].split(9)
    assert relative[0] < 0.05 * placed[0]


def test_the_last_stages_alone_count_where_that_is_asked(backbone: Path):
    first, second = torch.rand(2, 2, 3, 32, 32, generator=seeded())
    whole = perceptual.blank(backbone, replace(TINY, terms="both"), originals(4)).terms(first, second)
    last = perceptual.blank(backbone, replace(TINY, terms="both", stages=2), originals(4)).terms(
        first, second
    )
    assert torch.equal(last, whole[:, [7, 8, 16, 17]])


def test_without_epochs_weights_stay_equal_and_the_probability_is_learned():
    distance = blank()
    learn(distance, world(), PerceptualConfig(epochs=0), seed=0)
    assert torch.equal(distance.weights, torch.ones(18))
    assert distance.calibration[1] > 0
    assert not torch.equal(distance.calibration, torch.tensor([0.0, 1.0]))


def test_the_term_that_people_go_by_gets_the_weight():
    distance = blank()
    learn(distance, world(), PerceptualConfig(epochs=60), seed=0)
    assert distance.weights.argmax() == TOLD
    test = world(seed=1)
    values = (test.terms @ distance.weights).detach()
    right = (values[test.shares == 1][:, None] < values[test.shares == 0]).float().mean()
    equal = test.terms.sum(1)
    before = (equal[test.shares == 1][:, None] < equal[test.shares == 0]).float().mean()
    assert right > 0.97 > 0.75 > before


def test_no_weight_falls_below_0():
    distance = blank()
    looked = world()
    # The nearer by this term, the less it is recognised: a weight that may be negative would be.
    against = torch.cat([looked.terms[:, :5], 1 - looked.terms[:, [TOLD]], looked.terms[:, 6:]], dim=1)
    learn(distance, replace(looked, terms=against), PerceptualConfig(epochs=60), seed=0)
    assert distance.weights.min() == distance.weights[5] == 0


def test_shares_of_people_are_learned_from_as_their_answers_would_be():
    looked = world()
    shares = torch.where(looked.shares == 1, 0.7, 0.3)
    distance = blank()
    learn(distance, replace(looked, shares=shares), PerceptualConfig(epochs=60), seed=0)
    assert distance.weights.argmax() == TOLD
    recognised = distance.probability(looked.terms @ distance.weights)
    # A smooth curve goes through this step, and stays a little inside it.
    assert recognised[shares == 0.7].mean().item() == pytest.approx(0.7, abs=0.12)
    assert recognised[shares == 0.3].mean().item() == pytest.approx(0.3, abs=0.12)


def test_no_weight_is_learned_from_originals_that_are_held_out():
    looked = world(originals=10)
    learned = []
    for original in range(10):
        other = torch.where((looked.of == original)[:, None], 1 - looked.terms, looked.terms)
        distance = blank()
        learn(distance, replace(looked, terms=other), PerceptualConfig(epochs=2, calibrated_on=0.2), seed=0)
        learned.append(distance.weights.detach().clone())
    distance = blank()
    learn(distance, looked, PerceptualConfig(epochs=2, calibrated_on=0.2), seed=0)
    assert sum(torch.equal(each, distance.weights) for each in learned) == 2  # a fifth of ten


def test_a_seed_repeats_a_training_and_another_does_not(judgements: Judgements, backbone: Path):
    first, again, other = (
        train(judgements, TINY, backbone=backbone, seed=seed).network.state_dict() for seed in (0, 0, 1)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["calibration"], other["calibration"])


# The probability


def test_the_curve_is_the_logistic_regression_of_platt():
    distances = torch.rand(50, generator=seeded(), dtype=torch.float64)
    shares = (torch.rand(50, generator=seeded(1)) < 1 - distances).double()
    wrong = (1 - shares).sum()
    targets = np.where(shares == 1, (shares.sum() + 1) / (shares.sum() + 2), 1 / (wrong + 2))

    def unlikely(line: np.ndarray) -> float:
        chances = special.expit(line[0] - line[1] * distances.numpy())
        return -float((special.xlogy(targets, chances) + special.xlogy(1 - targets, 1 - chances)).sum())

    best = optimize.minimize(unlikely, [0.0, 0.0], tol=1e-10).x
    assert logistic(distances, shares).tolist() == pytest.approx(best.tolist(), rel=1e-3)


def test_the_curve_of_a_known_world_is_found():
    distances = torch.rand(2000, generator=seeded()) * 3
    assert logistic(distances, torch.sigmoid(2 - 3 * distances)).tolist() == pytest.approx([2, 3], rel=0.02)


def test_the_farther_the_less_likely_and_level_where_the_recognised_are_not_nearer():
    distances = torch.arange(10.0)
    intercept, slope = logistic(distances, (distances > 4).float())
    assert slope == 0
    assert torch.sigmoid(intercept).item() == pytest.approx(0.5)
    distance = blank()
    distance.calibration.copy_(logistic(distances, (distances < 5).float()))
    assert (distance.probability(distances).diff() < 0).all()


def test_the_card_says_how_well_it_foretells_held_out_originals():
    distance = blank()
    foretold = learn(distance, world(originals=20), PerceptualConfig(epochs=60), seed=0)
    assert (foretold.originals, foretold.reconstructions) == (4, 24)
    assert foretold.brier < 0.12 < 0.24 < foretold.brier_of_share <= 0.25
    even = perceptual.Foretold.of(torch.full((4,), 0.5), torch.tensor([1.0, 0.0, 1.0, 0.5]), originals=2)
    assert (even.recognised, even.brier) == (0.625, 0.25)


# What is read


def test_what_is_read_measures_as_what_was_learned(model: SemSimModel, file: Path, judgements: Judgements):
    measure = measures.load(file)
    assert isinstance(measure, PerceptualSemSim)
    known, others = to_float(judgements.originals), to_float(judgements.reconstructions[:6])
    with torch.no_grad():
        distances = model.network(known, others)
        assert torch.equal(measure.distance(known, others), distances)
        assert torch.equal(measure.probability(known, others), model.network.probability(distances))
    assert measure.card["data"]["name"] == "patterns"


def test_equal_images_are_recognised_most(file: Path, judgements: Judgements):
    measure = PerceptualSemSim.load(file)
    known = to_float(judgements.originals)
    assert torch.equal(measure.distance(known, known), torch.zeros(6))
    assert (measure.probability(known, known.flip(0)) < measure.probability(known, known)).all()


def test_grey_pairs_of_any_size_are_measured(file: Path):
    measure = PerceptualSemSim.load(file)
    first, second = torch.rand(2, 2, 1, 9, 50, generator=seeded())
    assert measure.distance(first, second).shape == (2,)
    with pytest.raises(ConfigError, match=r"compared are \(N, C, H, W\) pairs of 1 or 3 channels"):
        measure.probability(first, second[:, :, :8])


def test_a_file_by_which_farther_would_be_more_alike_is_refused(file: Path, tmp_path: Path):
    tensors, card = artefacts.load(file, kind=perceptual.KIND)
    for name, place in (("weights", 2), ("calibration", 1)):
        wrong: dict[str, Tensor] = {**tensors, name: tensors[name].clone()}
        wrong[name][place] = -1
        artefacts.save(tmp_path / "w.safetensors", wrong, card)
        with pytest.raises(ArtefactError, match="is below 0, so that farther would be more alike: train"):
            measures.load(tmp_path / "w.safetensors")


def test_one_original_is_too_few_to_hold_any_out():
    with pytest.raises(DataError, match="world: reconstructions of 1 original: give those of 2 or more"):
        learn(blank(), world(originals=1), TINY, seed=0)
