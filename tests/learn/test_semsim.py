"""SemSim's training: what triplets are made of, what is learned from them, and how judgements are read."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from sfumato import images
from sfumato.errors import ConfigError, DataError
from sfumato.images import to_float
from sfumato.learn.semsim import (
    SEMSIM,
    Judgements,
    SemSimConfig,
    SemSimModel,
    combine,
    read,
    train,
    triplet_loss,
    triplets,
)

TINY = SemSimConfig(network="lenet", size=16, epochs=2, batch=32, precision="float32")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def world(count: int = 24, seed: int = 0, channels: int = 3, side: int = 16) -> Judgements:
    """Coarse patterns. People recognise pale copies, far off in each pixel, and do not recognise averages."""
    generator = seeded(seed)
    coarse = torch.randint(0, 2, (count, channels, 4, 4), generator=generator).float()
    originals = 255 * functional.interpolate(coarse, (side, side))
    of = torch.arange(count).repeat_interleave(4)
    recognised = torch.arange(4 * count) % 2 == 0
    pale, grey = 0.3 * originals[of], originals[of].mean((2, 3), keepdim=True)
    seen = torch.where(recognised[:, None, None, None], pale, grey)
    seen = seen + 10 * torch.randn(seen.shape, generator=generator)
    return Judgements(
        originals.to(torch.uint8), seen.clamp(0, 255).to(torch.uint8), of, recognised, f"world {seed}"
    )


def judged(of: list[int], recognised: list[bool], originals: int = 3) -> Judgements:
    """Judgements of black images, of which only the numbers matter."""
    black = torch.zeros(max(originals, len(of)), 3, 16, 16, dtype=torch.uint8)
    return Judgements(
        black[:originals],
        black[: len(of)],
        torch.tensor(of, dtype=torch.int64),
        torch.tensor(recognised, dtype=torch.bool),
        "black",
    )


def distances(model: SemSimModel, judgements: Judgements) -> Tensor:
    with torch.no_grad():
        originals = model.network(to_float(judgements.originals))[judgements.of]
        return (originals - model.network(to_float(judgements.reconstructions))).norm(dim=1)


def ordered_rightly(values: Tensor, recognised: Tensor) -> float:
    """How often a recognised reconstruction is nearer than one that is not."""
    return (values[recognised][:, None] < values[~recognised]).double().mean().item()


# What it learns


def test_it_learns_what_people_recognise_where_pixels_tell_nothing_of_it():
    model = train(world(), replace(TINY, epochs=20))
    test = world(seed=1)
    pixels = to_float(test.originals)[test.of] - to_float(test.reconstructions)
    assert ordered_rightly(distances(model, test), test.recognised) > 0.9
    assert ordered_rightly(pixels.square().mean((1, 2, 3)), test.recognised) < 0.6


def test_the_papers_settings_are_the_defaults():
    assert (SEMSIM.network, SEMSIM.margin) == ("resnet50", 1)
    assert (SEMSIM.learning_rate, SEMSIM.batch, SEMSIM.epochs, SEMSIM.size) == (0.1, 128, 200, 32)


def test_the_triplet_loss_is_pytorchs():
    anchors, positives, negatives = torch.randn(3, 20, 5, generator=seeded())
    expected = functional.triplet_margin_loss(anchors, positives, negatives, margin=0.7, eps=0)
    assert triplet_loss(anchors, positives, negatives, margin=0.7).item() == pytest.approx(expected.item())


def test_an_anchor_that_is_its_own_positive_gives_a_finite_gradient():
    anchors = torch.randn(4, 3, generator=seeded()).requires_grad_()
    triplet_loss(anchors, anchors * 1, torch.randn(4, 3, generator=seeded(1)), margin=1).backward()
    assert anchors.grad is not None
    assert anchors.grad.isfinite().all()


# Triplets


def test_each_reconstruction_is_once_the_positive_or_negative_beside_one_of_the_other_kind():
    judgements = world()
    anchors, positives, negatives = triplets(judgements, seeded()).unbind(1)
    assert torch.equal(anchors, judgements.of)
    assert torch.equal(torch.where(judgements.recognised, positives, negatives), torch.arange(96) + 24)
    assert judgements.recognised[positives - 24].all()
    assert not judgements.recognised[negatives - 24].any()
    for others in (positives, negatives):
        assert torch.equal(judgements.of[others - 24], anchors)


def test_partners_are_drawn_anew_and_evenly():
    judgements = judged([0] * 4, [True, False, False, False])
    drawn = torch.stack([triplets(judgements, seeded(seed))[0, 2] for seed in range(300)])
    assert torch.bincount(drawn - 3, minlength=4).tolist() == pytest.approx([0, 100, 100, 100], abs=33)


def test_where_all_were_recognised_the_negative_is_of_another_and_where_none_the_positive_is_the_original():
    drawn = triplets(judged([0, 0, 1, 1], [True, True, True, False]), seeded())
    assert drawn.tolist()[:2] == [[0, 3, 6], [0, 4, 6]]
    drawn = triplets(judged([0, 2, 1, 1], [False, False, True, False]), seeded())
    assert drawn.tolist()[:2] == [[0, 0, 3], [2, 2, 4]]


@pytest.mark.parametrize(("recognised", "word", "cure"), [(True, "all", "harder"), (False, "none", "easier")])
def test_judgements_of_one_kind_alone_are_refused(recognised: bool, word: str, cure: str):
    message = f"black: people recognised {word} of the 2 reconstructions, .* that are {cure} to recognise"
    with pytest.raises(DataError, match=message):
        train(judged([0, 1], [recognised] * 2), TINY)


# Judgements


def test_sets_of_other_sizes_and_colours_are_combined():
    grey, coloured = world(count=2, channels=1, side=20), world(count=3, seed=1)
    both = combine([grey, coloured], size=16)
    assert both.originals.shape == (5, 3, 16, 16)
    assert torch.equal(both.originals[2:], coloured.originals)
    assert torch.equal(both.reconstructions[8:], coloured.reconstructions)
    assert torch.equal(both.of, torch.cat([grey.of, coloured.of + 2]))
    assert torch.equal(both.recognised, torch.cat([grey.recognised, coloured.recognised]))
    assert both.source == "world 0 + world 1"


def test_the_digest_is_of_pixels_and_judgements():
    judgements = world()
    other = replace(judgements, recognised=~judgements.recognised)
    assert len({judgements.digest, other.digest, world(seed=1).digest}) == 3
    assert judgements.digest == world().digest


def test_a_combination_of_nothing_is_refused():
    with pytest.raises(DataError, match="no judgements to combine"):
        combine([], size=16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"of": torch.full((96,), 24)}, "reconstructions of originals 24 to 24, and there are 24"),
        ({"of": torch.arange(3)}, r"96 reconstructions, .* are \(3,\) torch.int64 and \(96,\) torch.bool"),
        ({"recognised": torch.ones(96)}, "torch.float32: give an int64 and a bool for each"),
        (
            {"originals": torch.zeros(24, 3, 8, 8, dtype=torch.uint8)},
            r"originals of \(3, 8, 8\) and reconstructions of \(3, 16, 16\): bring them to one size",
        ),
        ({"originals": torch.zeros(24, 3, 16, 16)}, "a batch of images is .* uint8"),
    ],
)
def test_judgements_that_do_not_fit_together_are_named(change: dict, message: str):
    with pytest.raises(DataError, match=message):
        replace(world(), **change)


# Reading


def exported(
    folder: Path, rows: list[str], header: str = "original,reconstruction,recognised,source"
) -> Path:
    """A CSV beside three images."""
    for name, level in (("a", 10), ("b", 100), ("c", 200)):
        images.write(folder / f"{name}.png", torch.full((3, 12, 12), level, dtype=torch.uint8))
    path = folder / "judgements.csv"
    path.write_text("\n".join([header, *rows]))
    return path


def test_a_table_is_read_as_judgements_of_each_source(tmp_path: Path):
    rows = ["a.png,b.png,true,faces", "a.png,c.png,False,faces", "c.png,b.png,1,dogs"]
    found = read(exported(tmp_path, rows), size=8)
    assert list(found) == ["faces", "dogs"]
    faces = found["faces"]
    assert faces.source == "faces"
    assert faces.originals.shape == (1, 3, 8, 8)
    assert faces.originals.unique().tolist() == [10]
    assert faces.reconstructions[:, 0, 0, 0].tolist() == [100, 200]
    assert (faces.of.tolist(), faces.recognised.tolist()) == ([0, 0], [True, False])
    assert found["dogs"].recognised.tolist() == [True]


def test_proxies_are_not_taken_for_people(tmp_path: Path):
    rows = ["a.png,b.png,true,faces,people", "a.png,c.png,false,faces,proxy"]
    found = read(exported(tmp_path, rows, "original,reconstruction,recognised,source,annotators"), size=8)
    assert [each.source for each in found.values()] == ["faces", "faces (proxy annotators)"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a.png,b.png,true,x", "a.png,b.png,maybe,x"], "line 3: recognised='maybe': write one of true, 1"),
        (["a.png,b.png,,x"], "line 2: no value for 'recognised': fill it in or remove the row"),
        (["a.png,none.png,true,x"], "line 2: .*none.png: cannot be read"),
        (["a.png,judgements.csv,true,x"], "line 2: .*judgements.csv: "),
        ([], "no rows: list at least one judgement"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(tmp_path: Path, rows: list[str], message: str):
    with pytest.raises(DataError, match=message):
        read(exported(tmp_path, rows), size=8)


# Training


def test_training_that_diverges_stops():
    config = replace(TINY, network="resnet18", size=8, batch=4, learning_rate=1e30, normalised=False)
    with pytest.raises(ConfigError, match="training diverges in epoch 1: lower learning_rate=1e"):
        train(world(count=8), config)
