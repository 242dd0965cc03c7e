from dataclasses import replace

import pytest
import torch
from torch import nn

from sfumato.errors import ArtefactError, ConfigError, DataError
from sfumato.learn import few_shot
from sfumato.learn.few_shot import FewShotConfig, episode_accuracies, prototype_logits
from sfumato.protect import parse

TINY = FewShotConfig(
    way=5,
    shot=2,
    queries=3,
    epochs=3,
    episodes_per_epoch=4,
    patience=9,
    validation_way=3,
    validation_shot=2,
    validation_queries=3,
    validation_episodes=10,
    denoiser_depth=3,
    denoiser_width=8,
)


def train(data, spec="gaussian:sigma=40", config=TINY, **more):
    return few_shot.train(
        data.split("train"), parse(spec), config, validation=data.split("validation"), **more
    )


def weights(model):
    return torch.cat([p.flatten() for p in model.state_dict().values()])


def test_the_papers_settings_are_table_2():
    omniglot, celeba, imagenet = (
        few_shot.FS_PIC_OMNIGLOT,
        few_shot.FS_PIC_CELEBA,
        few_shot.FS_PIC_MINIIMAGENET,
    )
    table = [(c.way, c.shot, c.queries, c.epochs, c.patience) for c in (omniglot, celeba, imagenet)]
    assert table == [(60, 5, 5, 500, 50), (5, 5, 5, 200, 20), (5, 5, 15, 200, 20)]
    assert {c.episodes_per_epoch for c in (omniglot, celeba, imagenet)} == {100}
    assert (celeba.learning_rate, celeba.halve_every, celeba.denoiser_depth) == (1e-3, 20, 8)


def test_logits_are_minus_the_squared_distances():
    generator = torch.Generator().manual_seed(0)
    queries, prototypes = torch.randn(6, 8, generator=generator), torch.randn(3, 8, generator=generator)
    expected = [[-float((q - p).square().sum()) for p in prototypes] for q in queries]
    torch.testing.assert_close(prototype_logits(queries, prototypes), torch.tensor(expected))


def test_episode_accuracy_agrees_with_a_plain_loop():
    generator = torch.Generator().manual_seed(1)
    embeddings = torch.randn(40, 4, generator=generator)
    places = torch.stack([torch.randperm(40, generator=generator)[:18].view(3, 6) for _ in range(7)])
    expected = []
    for episode in places:
        prototypes = [embeddings[rows[:2]].mean(0) for rows in episode]
        hits = [
            min(range(3), key=lambda c: float((embeddings[row] - prototypes[c]).norm())) == label
            for label, rows in enumerate(episode)
            for row in rows[2:]
        ]
        expected.append(sum(hits) / len(hits))
    assert episode_accuracies(embeddings, places, shot=2).tolist() == pytest.approx(expected)


def test_the_loss_is_the_mean_nll_of_the_queries_plus_half_the_squared_error_of_an_image(small_glyphs):
    model = train(small_glyphs, config=replace(TINY, epochs=1, precision="float32"))
    shape = TINY.episode
    clean = small_glyphs.images[: shape.way * 5]
    released = 255 - clean
    with torch.no_grad():
        loss = few_shot.fs_pic_loss(model, clean, released, shape).item()
        denoised = model.denoiser(released / 255)
        vectors = model.encoder(denoised).view(5, 5, -1)
    prototypes = vectors[:, :2].mean(1)
    distances = (vectors[:, 2:, None] - prototypes).square().sum(-1)  # (class, query, prototype)
    nll = -torch.stack([(-distances[c]).log_softmax(-1)[:, c] for c in range(5)]).mean()
    half = (denoised - clean / 255).square().sum((1, 2, 3)).mean() / 2
    assert loss == pytest.approx(float(nll + half), rel=1e-4)


def test_without_denoiser_the_loss_does_not_look_at_the_clean_images(small_glyphs):
    model = train(small_glyphs, config=replace(TINY, epochs=1, denoiser_depth=None))
    released = small_glyphs.images[:25]
    losses = {
        few_shot.fs_pic_loss(model, clean, released, TINY.episode).item()
        for clean in (released, 255 - released)
    }
    assert len(losses) == 1


def test_training_learns(small_glyphs):
    config = replace(TINY, epochs=3, episodes_per_epoch=20, denoiser_depth=None)
    trained = train(small_glyphs, "none", config)
    untrained = few_shot.untrained(1, config, spec="none")
    test = small_glyphs.split("test")
    scores = [
        few_shot.evaluate(m, test, way=5, shot=2, queries=5, episodes=200) for m in (untrained, trained)
    ]
    assert scores[1].mean > scores[0].mean + 0.1
    assert scores[1].mean > 0.8


def test_a_model_trained_on_protected_images_beats_a_clean_trained_one_on_them(small_glyphs):
    config = replace(TINY, epochs=3, episodes_per_epoch=20, denoiser_depth=None)
    protection = parse("gaussian:sigma=120")
    test = small_glyphs.split("test")
    clean, protected = (
        few_shot.evaluate(
            train(small_glyphs, spec, config),
            test,
            way=5,
            shot=5,
            queries=5,
            episodes=200,
            protection=protection,
        )
        for spec in ("none", "gaussian:sigma=120")
    )
    assert protected.mean - protected.half_width > clean.mean + clean.half_width


@pytest.mark.parametrize("spec", ["gaussian:sigma=40", "dp-pix:cell=2,epsilon=3"])
def test_a_stopped_run_goes_on_exactly(small_glyphs, tmp_path, spec):
    checkpoint = tmp_path / "run.checkpoint"

    class Stop(Exception):  # noqa: N818
        pass

    def stop_in_the_third_epoch(done, planned):
        if done == 2 * TINY.episodes_per_epoch + 2:
            raise Stop

    with pytest.raises(Stop):
        train(small_glyphs, spec, checkpoint=checkpoint, progress=stop_in_the_third_epoch)
    assert checkpoint.exists()
    first = []
    resumed = train(small_glyphs, spec, checkpoint=checkpoint, progress=lambda done, _: first.append(done))
    whole = train(small_glyphs, spec)
    assert first[0] == 2 * TINY.episodes_per_epoch + 1
    assert torch.equal(weights(resumed), weights(whole))
    assert resumed.card == whole.card


def test_the_checkpoint_of_another_run_is_refused(small_glyphs, tmp_path):
    checkpoint = tmp_path / "run.checkpoint"
    train(small_glyphs, config=replace(TINY, epochs=1), checkpoint=checkpoint)
    with pytest.raises(ArtefactError, match="another run"):
        train(small_glyphs, "blur:radius=1", config=replace(TINY, epochs=1), checkpoint=checkpoint)


def test_training_stops_after_patience_and_keeps_the_best_epoch(small_glyphs, monkeypatch):
    accuracies = iter([0.5, 0.7, 0.6, 0.65, 0.9])
    seen = []

    def accuracy(self, model):
        seen.append(weights(model).clone())
        return next(accuracies)

    monkeypatch.setattr(few_shot._Validation, "accuracy", accuracy)
    model = train(small_glyphs, config=replace(TINY, epochs=50, patience=2))
    assert model.card["epochs"] == 4
    assert model.card["validation_accuracy"] == 0.7
    assert torch.equal(weights(model), seen[1])


def test_an_artefact_gives_the_same_model_back(small_glyphs, tmp_path):
    model = train(small_glyphs, config=replace(TINY, epochs=1))
    model.save(tmp_path / "model.safetensors")
    loaded = few_shot.load(tmp_path / "model.safetensors")
    images = small_glyphs.images[:10]
    assert torch.equal(loaded.embed(images), model.embed(images))
    assert torch.equal(loaded.denoise(images), model.denoise(images))
    assert loaded.spec == "gaussian:sigma=40"
    assert loaded.card["data"]["digest"] == small_glyphs.split("train").digest
    assert loaded.card["privacy_spent"] is None


class Mean(nn.Module):
    """An encoder of the user's own."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, images):
        return self.layer(images.mean((1, 2)))


def test_any_module_can_be_the_encoder(small_glyphs, tmp_path):
    config = replace(TINY, epochs=1)
    model = train(small_glyphs, config=config, encoder=Mean())
    model.save(tmp_path / "own.safetensors")
    with pytest.raises(ArtefactError, match="pass the encoder module"):
        few_shot.load(tmp_path / "own.safetensors")
    loaded = few_shot.load(tmp_path / "own.safetensors", encoder=Mean())
    assert torch.equal(loaded.embed(small_glyphs.images[:4]), model.embed(small_glyphs.images[:4]))


def test_without_validation_images_classes_are_held_back(small_glyphs):
    model = few_shot.train(
        small_glyphs.split("train"), parse("none"), replace(TINY, epochs=1, denoiser_depth=None)
    )
    assert model.card["data"]["images"] < len(small_glyphs.split("train"))
    assert 0 <= model.card["validation_accuracy"] <= 1


def test_training_moves_no_global_random_state(small_glyphs):
    before = torch.random.get_rng_state()
    train(small_glyphs, config=replace(TINY, epochs=1))
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_interval_narrows_with_the_root_of_the_episodes(small_glyphs):
    model = train(small_glyphs, config=replace(TINY, epochs=1))
    test = small_glyphs.split("test")
    widths = [
        few_shot.evaluate(model, test, way=5, shot=2, queries=3, episodes=n).half_width for n in (100, 1600)
    ]
    assert widths[0] / widths[1] == pytest.approx(4, rel=0.3)


def test_accuracy_reads_as_a_sentence(small_glyphs):
    model = train(small_glyphs, config=replace(TINY, epochs=1))
    text = str(few_shot.evaluate(model, small_glyphs.split("test"), way=5, shot=2, queries=3, episodes=20))
    assert text.endswith("(5-way 2-shot, 20 episodes, gaussian:sigma=40)")


def test_too_few_classes_are_said_before_training(small_glyphs):
    with pytest.raises(DataError, match=r"26 classes have 5 images .* and the way is 60"):
        train(small_glyphs, config=replace(TINY, way=60))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"encoder": "conv5"}, "did you mean 'conv4'"),
        ({"precision": "half"}, "choose auto, float32, bfloat16"),
        ({"denoiser_depth": 1}, "at least 2 layers"),
        ({"epochs": 0}, "epochs=0: at least 1"),
        ({"learning_rate": -1.0}, "learning_rate=-1: above 0"),
    ],
)
def test_impossible_settings_are_refused(setting, message):
    with pytest.raises(ConfigError, match=message):
        FewShotConfig(**setting)


class Watched:
    """No protection, but a note of everything that is to be protected."""

    spec = "none"

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
