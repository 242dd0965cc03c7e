import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from torch import nn

from sfumato.attack.reidentify import (
    AdversaryConfig,
    reidentify,
    split_gallery,
    train_recogniser,
    wilson,
)
from sfumato.errors import ConfigError, DataError

CODES = torch.arange(30).repeat_interleave(12)


def clusters(spread, *, seed=0):
    """Embeddings of 30 people around 30 directions, split into gallery and probes."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(30, 16, generator=generator)
    vectors = centres[CODES] + spread * torch.randn(len(CODES), 16, generator=generator)
    gallery, probes = split_gallery(CODES, gallery=8, probes=4, seed=0)
    return vectors[gallery], CODES[gallery], vectors[probes], CODES[probes]


def test_people_far_apart_are_all_found():
    found = reidentify(*clusters(0.05))
    assert [score.top1 for score in found.scores] == [1.0, 1.0]
    assert found.identities == 30
    assert found.gallery == 240
    assert found.probes == 120


def test_embeddings_without_identity_stay_at_chance():
    found = reidentify(*clusters(1e4))
    assert found.chance == pytest.approx(1 / 30)
    # 120 guesses that are right 4 in all on average: more than 14 has a probability below 1e-4.
    assert found.strongest.top1 <= 14 / 120


def test_the_strongest_classifier_is_what_counts():
    found = reidentify(*clusters(0.9))
    assert found.strongest.top1 == max(score.top1 for score in found.scores)
    assert {score.classifier for score in found.scores} == {"linear", "1-nn"}


def test_nearest_neighbour_agrees_with_a_plain_loop():
    gallery, names, probes, truth = clusters(0.9)
    hits = 0
    for probe, name in zip(probes, truth, strict=True):
        cosines = [float(probe @ g / probe.norm() / g.norm()) for g in gallery]
        hits += int(names[int(np.argmax(cosines))] == name)
    (nearest,) = [
        score for score in reidentify(gallery, names, probes, truth).scores if score.classifier == "1-nn"
    ]
    assert nearest.top1 == hits / len(truth)


def test_chance_is_that_of_naming_whoever_is_asked_about_most():
    gallery, names, probes, truth = clusters(1.0)
    found = reidentify(gallery, names, torch.cat([probes, probes[:1]]), torch.cat([truth, truth[:1]]))
    assert found.chance == pytest.approx(5 / 121)


@pytest.mark.parametrize(("hits", "trials"), [(0, 50), (3, 50), (50, 50), (81, 400)])
def test_the_interval_is_wilsons(hits, trials):
    exact = binomtest(hits, trials).proportion_ci(method="wilson")
    assert wilson(hits, trials) == pytest.approx((exact.low, exact.high), abs=1e-6)


def test_gallery_and_probes_are_disjoint_and_of_the_sizes_asked_for():
    gallery, probes = split_gallery(CODES, gallery=8, probes=4, seed=1)
    assert not set(gallery.tolist()) & set(probes.tolist())
    assert CODES[gallery].bincount().tolist() == [8] * 30
    assert CODES[probes].bincount().tolist() == [4] * 30


def test_with_few_photographs_each_side_gets_its_share_and_a_single_one_is_left_out():
    codes = torch.tensor([0] * 6 + [1] * 2 + [2])
    gallery, probes = split_gallery(codes, gallery=20, probes=10, seed=0)
    assert codes[gallery].bincount(minlength=3).tolist() == [4, 1, 0]
    assert codes[probes].bincount(minlength=3).tolist() == [2, 1, 0]


def test_one_person_cannot_be_re_identified():
    with pytest.raises(DataError, match="two identities with two photographs each"):
        split_gallery(torch.tensor([0, 0, 0, 1]), gallery=2, probes=1, seed=0)


class Pixels(nn.Module):
    """An encoder of the user's own: one linear layer on the pixels."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(256, 8)

    def forward(self, images):
        return self.layer(images.flatten(1) - 0.5)


def portraits(people, each, *, noise=60):
    """Flat-patterned 16x16 faces of people: sixteen squares of fixed brightness each, with noise."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randint(60, 196, (people, 1, 4, 4), generator=generator)
    codes = torch.arange(people).repeat_interleave(each)
    squares = patterns[codes].repeat_interleave(4, 2).repeat_interleave(4, 3)
    noisy = squares + noise * torch.randn(squares.shape, generator=generator)
    return noisy.clamp(0, 255).to(torch.uint8), codes


def test_training_on_some_people_helps_to_tell_others_apart():
    images, codes = portraits(60, 12, noise=120)
    train, test = codes < 40, codes >= 40
    gallery, probes = split_gallery(codes[test], gallery=8, probes=4, seed=0)

    def nearest(config):
        vectors = train_recogniser(lambda _: images[train], codes[train], config).embed(images[test])
        found = reidentify(vectors[gallery], codes[test][gallery], vectors[probes], codes[test][probes])
        return found.scores[1].top1

    untrained = AdversaryConfig(steps=1, learning_rate=1e-9)
    assert nearest(AdversaryConfig(steps=120, batch=64)) > nearest(untrained) + 0.1


def test_each_pass_over_the_data_is_seen_anew():
    images, codes = portraits(4, 8)
    passes = []

    def seen(number):
        passes.append(number)
        return images

    train_recogniser(seen, codes, AdversaryConfig(steps=4, batch=16), encoder=Pixels())
    assert passes == [0, 1]  # 32 images, 16 a step


def test_a_seed_repeats_and_moves_no_global_state():
    images, codes = portraits(4, 8)
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    one, two = (
        train_recogniser(lambda _: images, codes, AdversaryConfig(steps=2), seed=5).embed(images)
        for _ in range(2)
    )
    assert torch.equal(one, two)
    assert torch.equal(before, torch.random.get_rng_state())


def test_one_identity_is_nothing_to_train_on():
    with pytest.raises(DataError, match="two identities or more"):
        train_recogniser(lambda _: torch.zeros(2, 1, 16, 16), torch.zeros(2), AdversaryConfig())


def test_impossible_strengths_are_refused():
    with pytest.raises(ConfigError, match="copies=0: at least 1"):
        AdversaryConfig(copies=0)
    with pytest.raises(ConfigError, match="learning_rate=0: above 0"):
        AdversaryConfig(learning_rate=0)
