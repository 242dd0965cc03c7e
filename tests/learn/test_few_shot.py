from copy import deepcopy
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

from sfumato import artefacts
from sfumato.data.labelled import Label
from sfumato.dp.mechanisms import seeded_noise
from sfumato.episodes import Sampler, Shape, seed_of
from sfumato.errors import ArtefactError, DataError
from sfumato.learn import few_shot
from sfumato.learn.few_shot import FewShotConfig
from sfumato.learn.prototypes import Accuracy
from sfumato.protect import parse

JUDGED = {"validation_way": 3, "validation_shot": 2, "validation_queries": 3, "validation_episodes": 10}
SHORT = {"epochs": 3, "episodes_per_epoch": 4, "patience": 9, "denoiser_depth": 3, "denoiser_width": 8}
TINY = FewShotConfig(way=5, shot=2, queries=3, **SHORT, **JUDGED)
BRIEF = replace(TINY, epochs=1)
LONGER = replace(TINY, episodes_per_epoch=20, denoiser_depth=None)


def train(data, spec="gaussian:sigma=40", config=TINY, **more):
    return few_shot.train(
        data.split("train"), parse(spec), config, validation=data.split("validation"), **more
    )


@pytest.fixture(scope="module")
def trained(small_glyphs):
    """Trains as `train` does, each setting once; a test gets its own copy."""
    once = cache(lambda spec, config: train(small_glyphs, spec, config))
    return lambda spec="gaussian:sigma=40", config=BRIEF: deepcopy(once(spec, config))


def evaluate(model, data, *, episodes, way=5, shot=2, queries=3, **more):
    return few_shot.evaluate(
        model, data.split("test"), way=way, shot=shot, queries=queries, episodes=episodes, **more
    )


def weights(model):
    return torch.cat([p.flatten() for p in model.state_dict().values()])


def test_the_papers_settings_are_table_2():
    celeba = few_shot.FS_PIC_CELEBA
    settings = (few_shot.FS_PIC_OMNIGLOT, celeba, few_shot.FS_PIC_MINIIMAGENET)
    table = [(c.way, c.shot, c.queries, c.epochs, c.patience) for c in settings]
    assert table == [(60, 5, 5, 500, 50), (5, 5, 5, 200, 20), (5, 5, 15, 200, 20)]
    assert {c.episodes_per_epoch for c in settings} == {100}
    assert (celeba.learning_rate, celeba.halve_every, celeba.denoiser_depth) == (1e-3, 20, 8)


@pytest.mark.parametrize(("spec", "cell"), [("gaussian:sigma=40", 1), ("pixelize:cell=3", 3)])
def test_the_loss_is_the_mean_nll_of_the_queries_plus_half_the_squared_error_of_an_image_of_its_cells(
    small_glyphs, spec, cell
):
    model = train(small_glyphs, spec, replace(TINY, epochs=1, precision="float32"))
    shape = TINY.episode
    clean = small_glyphs.images[: shape.way * 5]
    released = 255 - clean
    with torch.no_grad():
        loss = few_shot.fs_pic_loss(model, clean, released, shape).item()
        denoised = model.denoiser(means_of_cells(released / 255, cell))
        vectors = model.encoder(denoised).view(5, 5, -1)
    prototypes = vectors[:, :2].mean(1)
    distances = (vectors[:, 2:, None] - prototypes).square().sum(-1)  # (class, query, prototype)
    nll = -torch.stack([(-distances[c]).log_softmax(-1)[:, c] for c in range(5)]).mean()
    half = (denoised - means_of_cells(clean / 255, cell)).square().sum((1, 2, 3)).mean() / 2
    assert loss == pytest.approx(float(nll + half), rel=1e-4)


def test_training_learns(small_glyphs, trained):
    start, end = few_shot.make_untrained(1, LONGER, parse("none")), trained("none", LONGER)
    before, after = (evaluate(m, small_glyphs, queries=5, episodes=200).mean for m in (start, end))
    assert after > before + 0.1
    assert after > 0.8


def test_a_model_trained_on_protected_images_beats_a_clean_trained_one_on_them(small_glyphs, trained):
    how = {"shot": 5, "queries": 5, "episodes": 200, "protection": parse("gaussian:sigma=120")}
    clean, protected = (
        evaluate(trained(spec, LONGER), small_glyphs, **how) for spec in ("none", "gaussian:sigma=120")
    )
    assert protected.mean - protected.half_width > clean.mean + clean.half_width


def test_without_validation_images_classes_are_held_back(small_glyphs):
    model = few_shot.train(
        small_glyphs.split("train"), parse("none"), replace(TINY, epochs=1, denoiser_depth=None)
    )
    assert model.card["data"]["images"] < len(small_glyphs.split("train"))
    assert 0 <= model.card["validation_accuracy"] <= 1


def test_the_interval_narrows_with_the_root_of_the_episodes(small_glyphs, trained):
    widths = [evaluate(trained(), small_glyphs, episodes=n).half_width for n in (100, 1600)]
    assert widths[0] / widths[1] == pytest.approx(4, rel=0.3)


def test_too_few_classes_are_said_before_training(small_glyphs):
    with pytest.raises(DataError, match=r"26 classes have 5 images .* and the way is 60"):
        train(small_glyphs, config=replace(TINY, way=60))


class Watched:
    """No protection, but a note of everything that is to be protected."""

    spec = "none"
    cell = 1

    def __init__(self):
        self.seen = []

    def release(self, images, noise):
        self.seen.append(images)
        return parse("none").release(images, noise)


@pytest.mark.parametrize("flips", [True, False])
def test_flips_mirror_about_half_of_the_training_images_before_they_are_protected(small_glyphs, flips):
    data, watched = small_glyphs.split("train"), Watched()
    few_shot.train(data, watched, replace(TINY, flips=flips), validation=small_glyphs.split("validation"))
    _, *batches = watched.seen  # the first are the validation images
    known = {image.numpy().tobytes() for image in data.images}
    plain = [image.numpy().tobytes() in known for image in torch.cat(batches)]
    turned = [image.flip(2).numpy().tobytes() in known for image in torch.cat(batches)]
    assert all(a or b for a, b in zip(plain, turned, strict=True))
    share = plain.count(False) / len(plain)  # of 300 images: a standard deviation of 0.03
    assert share == pytest.approx(0.5 if flips else 0, abs=0.15)


def test_classes_of_an_episode_may_share_a_label_in_training_and_in_validation(small_glyphs):
    def of_two_halves(part):
        half = Label(part.label("class").codes % 2, ("even", "odd"))
        return replace(part, labels={**part.labels, "half": half})

    data, watched = of_two_halves(small_glyphs.split("train")), Watched()
    validation = of_two_halves(small_glyphs.split("validation"))
    few_shot.train(data, watched, replace(TINY, within="half", validation_way=2), validation=validation)
    _, *batches = watched.seen
    half_of = {
        image.numpy().tobytes(): int(half)
        for image, half in zip(data.images, data.label("half").codes, strict=True)
    }
    halves = [{half_of[image.numpy().tobytes()] for image in batch} for batch in batches]
    assert len(halves) == 12
    assert {len(each) for each in halves} == {1}
    with pytest.raises(DataError, match="hand"):
        few_shot.train(data, watched, replace(TINY, within="hand"), validation=validation)


# The resolution of cells


def photographs(count, height, width, channels=3, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, channels, height, width), generator=generator, dtype=torch.uint8)


def untrained(spec, config=TINY, *, channels=3, **more):
    return few_shot.make_untrained(channels, config, parse(spec), **more)


def means_of_cells(images, cell):
    """(N, C, H, W) -> (N, C, h, w), by a plain loop; cells at the border have the pixels that are left."""
    rows = [
        torch.stack(
            [images[:, :, y : y + cell, x : x + cell].mean((2, 3)) for x in range(0, images.shape[3], cell)],
            2,
        )
        for y in range(0, images.shape[2], cell)
    ]
    return torch.stack(rows, 2)


@pytest.mark.parametrize("size", [(20, 20), (21, 26), (84, 84)])
@pytest.mark.parametrize(
    "spec", ["pixelize:cell=2", "pixelize:cell=10", "dp-pix:cell=3,epsilon=3", "dp-pix-gaussian:cell=5,rho=1"]
)
def test_the_networks_see_exactly_the_values_that_were_released(spec, size):
    released = parse(spec).release(photographs(3, *size), seeded_noise(0))
    seen = untrained(spec).prepare(released.images())
    # A mean of equal numbers is that number, up to rounding in float32.
    torch.testing.assert_close(seen, released.values / 255, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("cell", "seen"), [(None, 1), (1, 1), (4, 4), (20, 20)])
def test_without_cells_in_the_release_every_pixel_is_seen_unless_cells_are_asked_for(cell, seen):
    model = untrained("gaussian:sigma=40", replace(TINY, cell=cell))
    images = photographs(2, 20, 30)
    assert model.cell == seen
    torch.testing.assert_close(model.prepare(images), means_of_cells(images / 255, seen))


def test_cells_are_trained_on_and_classified(small_glyphs, trained):
    accuracy = evaluate(trained("pixelize:cell=2", LONGER), small_glyphs, queries=5, episodes=100)
    assert accuracy.mean > 0.6  # chance is 0.2


@pytest.mark.parametrize(("cell", "used"), [(None, 2), (1, 1), (4, 4)])
def test_the_cell_survives_the_artefact_and_so_does_what_was_asked_for(
    small_glyphs, tmp_path, trained, cell, used
):
    model = trained("pixelize:cell=2", replace(TINY, epochs=1, cell=cell))
    model.save(tmp_path / "model.safetensors")
    loaded = few_shot.load(tmp_path / "model.safetensors")
    loaded.save(tmp_path / "again.safetensors")
    for read in (loaded, few_shot.load(tmp_path / "again.safetensors")):
        assert (read.cell, read.encoder.pools) == (model.cell, model.encoder.pools)
        assert read.cell == used
        assert read.card["config"]["cell"] == cell
        images = small_glyphs.images[:4]
        assert torch.equal(read.encode(images), model.encode(images))
        assert torch.equal(read.denoise(images), model.denoise(images))


class Own(nn.Module):
    """An encoder of the user's own that notes the shapes it sees."""

    def __init__(self):
        super().__init__()
        self.layer = nn.LazyLinear(8)
        self.shapes = []

    def forward(self, images):
        self.shapes.append(tuple(images.shape[1:]))
        return self.layer(images.flatten(1))


@pytest.mark.parametrize(("cell", "shape"), [(None, (1, 16, 16)), (2, (1, 8, 8))])
def test_an_encoder_of_ones_own_sees_every_pixel_unless_cells_are_asked_for(
    small_glyphs, tmp_path, cell, shape
):
    def own():
        encoder = Own()
        encoder(torch.zeros(1, *shape))  # makes the weights
        return encoder

    encoder = own()
    config = replace(TINY, epochs=1, denoiser_depth=None, cell=cell)
    model = train(small_glyphs, "pixelize:cell=2", config, encoder=encoder)
    assert set(encoder.shapes) == {shape}
    model.save(tmp_path / "own.safetensors")
    with pytest.raises(ArtefactError, match="pass the encoder module"):
        few_shot.load(tmp_path / "own.safetensors")
    loaded = few_shot.load(tmp_path / "own.safetensors", encoder=own())
    assert loaded.cell == model.cell
    assert torch.equal(loaded.encode(small_glyphs.images[:4]), model.encode(small_glyphs.images[:4]))


@pytest.mark.parametrize("spec", ["gaussian:sigma=40", "pixelize:cell=4", "dp-pix:cell=3,epsilon=3"])
def test_denoised_images_have_the_original_size_and_are_constant_within_cells(spec):
    protection = parse(spec)
    released = protection.release(photographs(3, 21, 26), seeded_noise(0)).images()
    model = untrained(spec)
    with torch.no_grad():
        model.denoiser.residual[-1].weight.normal_()  # untrained, it takes nothing away
    denoised = model.denoise(released)
    assert denoised.shape == released.shape
    assert denoised.dtype == torch.uint8
    assert not torch.equal(denoised, released)
    b = protection.cell
    first = denoised[:, :, ::b, ::b].repeat_interleave(b, 2).repeat_interleave(b, 3)[:, :, :21, :26]
    assert torch.equal(denoised, first)
    assert b == 1 or len(denoised.unique()) > 10  # not one constant over all


@pytest.mark.parametrize("encoder", ["conv4", "resnet12"])
@pytest.mark.parametrize("cell", range(2, 11))
def test_the_last_maps_are_about_as_large_as_at_full_resolution(encoder, cell):
    model = untrained(
        f"pixelize:cell={cell}", replace(TINY, encoder=encoder, denoiser_depth=None), channels=1
    )
    seen = model.prepare(photographs(1, 84, 84, 1))
    side = seen.shape[2] // 2**model.encoder.pools
    full = 84 // 2**4
    assert full / 2**0.5 < side < full * 2**0.5
    assert model.encoder(seen).shape == (1, 64 * side**2 if encoder == "conv4" else 512)


def test_half_the_widths_of_resnet12_make_about_a_quarter_of_the_operations():
    config = FewShotConfig(encoder="resnet12", widths=(32, 64, 128, 256), denoiser_depth=None)
    settings = (config, replace(config, widths=None))
    half, full = (few_shot.operations(untrained("none", each), (3, 84, 84)) for each in settings)
    assert 0.24 < half / full < 0.27  # the first convolution's inputs are not halved


def test_a_network_of_other_widths_is_read_as_it_was_written(small_glyphs, tmp_path):
    config = replace(TINY, encoder="resnet12", widths=(2, 3, 4, 5), denoiser_depth=None, epochs=1)
    model = train(small_glyphs, "none", config)
    model.save(tmp_path / "m.safetensors")
    again = few_shot.load(tmp_path / "m.safetensors")
    images = small_glyphs.images[:3]
    assert model.encode(images).shape == (3, 5)
    assert torch.equal(again.encode(images), model.encode(images))


def test_the_card_has_the_validation_curve_of_which_the_best_epoch_is_kept(trained):
    card = trained(config=TINY).card
    assert len(card["curve"]) == card["epochs"]
    assert max(card["curve"]) == card["validation_accuracy"]


def test_operations_are_those_of_a_count_by_hand():
    # A 3x3 convolution from i to o filters makes 9 * i * o of each of the places it is applied to.
    def convolution(side, inputs, outputs):
        return side * side * 9 * inputs * outputs

    conv4 = convolution(28, 3, 64) + sum(convolution(side, 64, 64) for side in (14, 7, 3))
    dncnn = convolution(28, 3, 8) + convolution(28, 8, 8) + convolution(28, 8, 3)
    bare = replace(TINY, denoiser_depth=None)
    assert few_shot.operations(untrained("none", bare), (3, 28, 28)) == conv4
    assert few_shot.operations(untrained("none"), (3, 28, 28)) == conv4 + dncnn
    # Cells of 2: 14 places a side, and only the last three blocks pool.
    cells = convolution(14, 3, 64) + sum(convolution(side, 64, 64) for side in (14, 7, 3))
    assert few_shot.operations(untrained("pixelize:cell=2", bare), (3, 28, 28)) == cells


@pytest.mark.parametrize("cell", [4, 6, 8, 10])
def test_cells_of_4_and_more_need_at_most_a_quarter_of_the_operations(cell):
    paper = few_shot.FS_PIC_CELEBA  # with the denoiser of 8 layers of 64 filters
    spec = f"dp-pix:cell={cell},epsilon=3"
    cells = few_shot.operations(untrained(spec, paper), (3, 84, 84))
    pixels = few_shot.operations(untrained(spec, replace(paper, cell=1)), (3, 84, 84))
    assert cells <= pixels / 4


def test_halves_are_the_hits_of_every_second_image_and_of_the_others():
    """Two episodes of two classes, two queries each: images of even number are right in 3 of 4 cases."""
    hits = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[1.0, 1.0], [0.0, 0.0]]])  # (E, N, Q)
    images = torch.tensor([[[0, 1], [2, 3]], [[4, 5], [6, 7]]])
    accuracy = Accuracy.of_answers((hits.numpy(), None), images, Shape(way=2, shot=1, queries=2), "none")
    assert accuracy.mean == 0.5
    assert accuracy.halves is not None
    (even, width), (odd, _) = accuracy.halves
    assert (even, odd) == (0.75, 0.25)
    assert width == pytest.approx(1.96 * torch.tensor([1.0, 0.5]).std().item() / 2**0.5)
    images[0] = 2 * images[0]  # an episode of one half counts for that half alone
    alone = Accuracy.of_answers((hits.numpy(), None), images, Shape(way=2, shot=1, queries=2), "none")
    assert alone.halves is not None
    assert [mean for mean, _ in alone.halves] == [0.5, 0.5]


def test_a_step_of_two_episodes_follows_their_mean_gradient(small_glyphs):
    config = replace(TINY, episodes_per_step=2, precision="float32")
    protection = parse("gaussian:sigma=40")
    model = few_shot.make_untrained(1, config, protection).train()
    begun = {name: each.clone() for name, each in model.state_dict().items()}
    rows = Sampler(small_glyphs.label("class"), config.episode).draw(2, torch.Generator().manual_seed(0))
    clean = small_glyphs.images[rows.flatten(1)]  # (2, 25, 1, 16, 16)
    losses = [few_shot.fs_pic_loss(model, each, 255 - each, config.episode) for each in clean]
    loss = torch.stack(losses).mean()
    wanted = torch.autograd.grad(loss, list(model.parameters()))
    moments = torch.cat([0.1 * each.flatten() for each in wanted])  # Adam's, after a step: (1 - β1)·g
    model.load_state_dict(begun)
    run, step = few_shot.make_step(model, config)
    said = step([(each, 255 - each, None) for each in clean])
    found = torch.cat([run._optimiser.state[each]["exp_avg"].flatten() for each in model.parameters()])
    assert said.item() == pytest.approx(loss.item(), rel=1e-6)
    torch.testing.assert_close(found, moments, rtol=1e-4, atol=1e-6 * moments.abs().max().item())


def test_without_pretraining_training_is_a_plain_loop_over_episodes(small_glyphs):
    """The loop of Algorithm 1, with another implementation of Adam's steps, and no judge."""
    config = replace(TINY, start="random", epochs=1, denoiser_depth=None, precision="float32")
    data, protection = small_glyphs.split("train"), parse("gaussian:sigma=40")
    sampler = Sampler(data.label("class"), Shape(way=5, shot=2, queries=3))
    model = few_shot.make_untrained(1, config, protection)
    order = torch.Generator().manual_seed(seed_of(0, 0))
    noise = seeded_noise(0, 0)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, fused=False)
    for rows in sampler.draw(4, order):
        released = protection.release(data.images[rows.flatten()], noise).images()
        vectors = model.encoder(released / 255).view(5, 5, -1)
        distances = (vectors[:, 2:, None] - vectors[:, :2].mean(1)).square().sum(-1)
        loss = -torch.stack([(-distances[c]).log_softmax(-1)[:, c] for c in range(5)]).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    away = (weights(train(small_glyphs, config=config)) - weights(model)).abs()
    # Adam's step is the learning rate times a sign: of a gradient near 0, rounding decides it.
    assert away.max() < 2 * 4 * 1e-3
    assert (away > 1e-4).double().mean() < 0.01


def test_pretraining_learns_to_classify_and_to_tell_new_classes_apart_without_an_episode(
    small_glyphs, tmp_path
):
    config = replace(TINY, epochs=3, pretraining_epochs=3, episodes_per_epoch=30, denoiser_depth=None)
    checkpoint = tmp_path / "run.checkpoint"
    model = train(small_glyphs, "none", config, checkpoint=checkpoint)
    assert "classifier" not in model.state_dict()
    data = small_glyphs.split("train")
    tensors, _ = artefacts.load(checkpoint, kind="few-shot checkpoint")
    _, codes = data.label("class").codes.unique(return_inverse=True)
    last = few_shot.make_untrained(1, config, parse("none"), card=dict(model.card))
    last.load_state_dict({k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")})
    named = (last.encode(data.images) @ tensors["classifier"].T).argmax(1)
    assert (named == codes).double().mean() > 0.5  # of 26 classes
    start = few_shot.make_untrained(1, config, parse("none"))
    before, after = (evaluate(m, small_glyphs, queries=5, episodes=100).mean for m in (start, model))
    assert after > before + 0.05


def test_pretraining_trains_the_denoiser_as_well(small_glyphs):
    config = replace(TINY, start="random", epochs=2, pretraining_epochs=2, episodes_per_epoch=30)
    model = train(small_glyphs, "gaussian:sigma=80", config)
    clean = small_glyphs.split("test").images
    released = parse("gaussian:sigma=80").release(clean, seeded_noise(1)).images()
    before, after = (
        (shown / 255 - clean / 255).square().mean() for shown in (released, model.denoise(released))
    )
    assert after < before / 2


def test_patience_does_not_end_pretraining_nor_what_comes_after_at_once(small_glyphs, monkeypatch):
    monkeypatch.setattr(few_shot, "episode_accuracies", lambda *_, shot: torch.tensor([0.5]))
    config = replace(TINY, epochs=50, patience=2, pretraining_epochs=5, episodes_per_epoch=1)
    assert train(small_glyphs, config=config).card["epochs"] == 5 + 2


def test_the_card_tells_a_server_the_size_of_images_and_when_to_refuse(tmp_path, trained):
    model = trained("pixelize:cell=2")
    model.save(tmp_path / "m.safetensors")
    card = few_shot.load(tmp_path / "m.safetensors").card
    assert card["shape"] == [1, 16, 16]
    assert card["made_of"] is None
    assert (card["refusal"] is None) == bool(card["no_refusal"])  # why a model of one epoch has none


def test_a_test_releases_each_image_once_and_draws_the_same_episodes_for_any_protection(small_glyphs):
    watched = Watched()
    model, images = untrained("none", channels=1), small_glyphs.split("test").images
    # 400 episodes, which draw every one of the 96 images, many times.
    evaluate(model, small_glyphs, episodes=400, protection=watched)
    (released,) = watched.seen
    assert torch.equal(released, images)
