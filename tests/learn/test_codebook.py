"""Words: what a code of a codebook means, on the device and where it is received."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_code import QUICK, trained

from sfumato import artefacts, data
from sfumato.dp.mechanisms import seeded_noise
from sfumato.episodes import Shape
from sfumato.errors import ArtefactError, ConfigError, DataError
from sfumato.learn import code, code_prototypes, codebook
from sfumato.learn.code import CodeConfig, mix_classes
from sfumato.learn.code_prototypes import CodePrototypes
from sfumato.networks.code import Codebook, make_code_network
from sfumato.protect.code import Code, signs, words_of
from sfumato.wire.tables import codes_of


@pytest.fixture(scope="module")
def people() -> data.LabelledImages:
    return data.load("faces", identities=24, images_per_identity=9, headwear=18, size=16)


def some_codebook(bits: int) -> Codebook:
    made, draw = Codebook(bits, 3), torch.Generator().manual_seed(bits)
    for table in made.tables:
        table.data = torch.randn(table.shape, generator=draw)
    return made


def all_words(made: Codebook) -> torch.Tensor:
    """(2^b, d), the first table's row first in the number of a word."""
    return torch.stack([torch.stack(rows).sum(0) for rows in product(*made.tables)]).detach()


@pytest.mark.parametrize(("bits", "tables"), [(1, [2]), (5, [32]), (8, [256]), (9, [32, 16]), (12, [64, 64])])
def test_the_signs_of_margins_are_the_number_of_the_nearest_word(bits: int, tables: list[int]):
    made, vectors = some_codebook(bits), torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    assert [len(table) for table in made.tables] == tables
    away = torch.cdist(vectors, all_words(made))
    margins = made.margins(vectors)
    assert margins.shape == (200, bits)
    assert torch.equal(words_of(signs(margins)), away.argmin(1))
    torch.testing.assert_close(made.nearest(vectors).detach(), all_words(made)[away.argmin(1)])
    # A margin is a difference of squared distances: of the nearest words without the bit, and with it.
    first = torch.from_numpy(codes_of(bits)[:, 0])
    squared = away.square()
    expected = squared[:, ~first].amin(1) - squared[:, first].amin(1)
    torch.testing.assert_close(margins[:, 0], expected, atol=1e-4, rtol=1e-4)


def test_k_means_finds_clusters_that_are_far_apart_and_no_word_twice():
    draw = torch.Generator().manual_seed(1)
    centres = 10 * torch.randn(8, 4, generator=draw)
    rows = centres.repeat(50, 1) + 0.01 * torch.randn(400, 4, generator=draw)
    words = codebook.k_means(rows, 8, draw)
    assert torch.cdist(centres, words).amin(1).max() < 0.02
    many = codebook.k_means(rows, 64, draw)
    assert len(many.unique(dim=0)) == 64


def test_directions_are_those_in_which_classes_differ_and_not_those_of_most_variance():
    draw = torch.Generator().manual_seed(2)
    network = make_code_network("conv4", (1, 16, 16), dimension=4, directions=2, seed=0)
    classes = torch.arange(12).repeat(40)
    places = torch.randn(12, 2, generator=draw)
    outputs = torch.randn(480, 64, generator=draw) * torch.tensor([0.1] * 2 + [20.0] * 62)
    outputs[:, :2] += places[classes]
    codebook.fit_codebook(network, outputs, classes, seed=0)
    assert outputs.var(0)[2:].min() > 50 * outputs.var(0)[:2].max()
    between = (network.project.weight.detach() * outputs.std(0)).square()  # what each output adds
    assert between[:, :2].sum() > 5 * between[:, 2:].sum()
    again = make_code_network("conv4", (1, 16, 16), dimension=4, directions=2, seed=0)
    codebook.fit_codebook(again, outputs, classes, seed=0)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("bits", [3, 10])
def test_what_a_device_releases_is_what_the_cloud_decodes(
    people: data.LabelledImages, tmp_path: Path, bits: int
):
    config = CodeConfig(**QUICK, bits=bits, codebook="means", directions=6)
    path, test = tmp_path / "code.safetensors", people.split("test")
    model = trained(people, config, validation=people.split("validation"))
    model.save(path)
    release = Code(str(path)).release(test.images[:20], seeded_noise(0))
    assert release.array.shape == (20, bits)
    assert torch.equal(release.vectors(), model.codes(test.images[:20]))
    assert {len(packet) for packet in release.pack()} == {-(-bits // 8)}  # the same wire as for signs
    assert Code(str(path)).outputs == 2**bits
    made, _ = code_prototypes.read(path)
    assert made.words is not None
    assert made.words.shape == (2**bits, 6)
    np.testing.assert_allclose(np.square(made.words).sum(1), 1, rtol=1e-5)
    vectors = model.infer(lambda part: model.network.vectors(model.encode(part)), test.images[:20])
    words = torch.nn.functional.normalize(model.network.codebook.nearest(vectors)).detach()
    np.testing.assert_allclose(made.unbias(release.numbers(), Code("c")), words, atol=1e-5)


def test_a_class_that_a_device_enrols_by_one_word_is_its_only_example(people: data.LabelledImages):
    """Of one example the word is that of its release; of several one of 2^b, and a little worse."""
    test = people.split("test")
    config = CodeConfig(**QUICK, bits=6, codebook="means", directions=6)
    model = trained(people, config, validation=people.split("validation"))
    how: dict[str, Any] = {"target": "headwear", "episodes": 100}
    one = Shape(way=3, shot=1, queries=3)
    assert code.evaluate(model, test, one, **how, one_word=True) == code.evaluate(model, test, one, **how)
    several = Shape(way=3, shot=4, queries=3)
    words = code.evaluate(model, test, several, **how, one_word=True)
    assert 1 / 3 < words.mean <= code.evaluate(model, test, several, **how).mean + 0.1


@pytest.mark.parametrize("noise", [{}, {"flip": 0.2}, {"epsilon": 1.5}])
def test_words_under_noise_are_on_average_the_word_that_was_meant(noise: dict[str, float]):
    """Exactly, over all words that a release may be."""
    words = np.random.default_rng(0).normal(size=(16, 5))
    words /= np.sqrt(np.square(words).sum(1, keepdims=True))
    made, sent = CodePrototypes(4, 4, words=words), Code("c", **noise)
    every = 2.0 * codes_of(4) - 1
    received = made.unbias(every, sent)
    laws = np.eye(16)
    if "flip" in noise:
        apart = (every[:, None] != every).sum(2)
        laws = noise["flip"] ** apart * (1 - noise["flip"]) ** (4 - apart)
    if "epsilon" in noise:
        laws = np.where(np.eye(16) > 0, np.exp(noise["epsilon"]), 1.0)
        laws /= laws.sum(1, keepdims=True)
    np.testing.assert_allclose(laws @ received, words, atol=1e-12)
    spread = (laws @ np.square(received).sum(1)).mean() - 1
    assert made.weight(sent) == pytest.approx(1 / (1 + spread))


def test_auto_gives_words_to_few_bits_of_an_encoder_that_is_frozen(people: data.LabelledImages):
    frozen = CodeConfig(**QUICK | {"epochs": 1}, bits=4, codebook="auto", encoder="drawn")
    assert trained(people, frozen).config.codebook == "means"
    for other in (
        replace(frozen, bits=17),
        replace(frozen, bits=None, numbers=4),
        replace(frozen, flip=0.1),
        replace(frozen, encoder="conv4"),
    ):
        assert trained(people, other).config.codebook == "signs"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bits": 17}, r"codebook=means: 17 bits, and words are numbered by 1 to 16: write codebook=signs"),
        ({"numbers": 4}, r"codebook=means: no bits, and words are numbered by 1 to 16"),
        ({"bits": 4, "flip": 0.1}, r"codebook=means: flip=0\.1 turns bits one by one, and a word needs all"),
        ({"bits": 4, "codebook": "mean"}, r"no codebook is called 'mean': did you mean 'means'"),
        ({"bits": 4, "directions": 0}, r"directions=0: at least 1"),
    ],
)
def test_codes_that_cannot_have_words_are_refused(settings: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        CodeConfig(**{"codebook": "means", **settings})


def test_words_need_classes_to_tell_apart(people: data.LabelledImages):
    few = people.split("train")
    few = few.rows(torch.isin(few.label("headwear").codes, few.classes("headwear")[:4]))
    with pytest.raises(DataError, match="words need 5 classes, 'headwear' has 4: take codebook=signs"):
        code.train(few, CodeConfig(**QUICK, bits=4, codebook="means"), target="headwear")
    auto = CodeConfig(**QUICK | {"epochs": 1}, bits=4, codebook="auto", encoder="drawn")
    assert code.train(few, auto, target="headwear").config.codebook == "signs"


def test_directions_of_probabilities_are_those_of_most_variance_and_keep_its_scale(
    people: data.LabelledImages, monkeypatch: pytest.MonkeyPatch
):
    """A singular value decomposition of the whole is the oracle; classes play no part."""
    config = CodeConfig(**QUICK | {"epochs": 1}, bits=3, codebook="means", directions=4, encoder="drawn")
    train, draw = people.split("train"), torch.Generator().manual_seed(0)
    model = code.make_untrained(train, config, target="headwear")
    monkeypatch.setattr(model.network.encoder, "of_classes", True)
    outputs = torch.randn(len(train), model.network.project.in_features, generator=draw)
    outputs[:, :4] *= torch.tensor([40.0, 30.0, 20.0, 10.0])
    for seed in (0, 1):  # of the labels of classes
        classes = torch.randint(6, (len(train),), generator=torch.Generator().manual_seed(seed))
        codebook.fit_codebook(model.network, outputs, classes, seed=0)
        weights = model.network.project.weight.detach()
        torch.testing.assert_close(weights @ weights.T, torch.eye(4), atol=1e-4, rtol=0)
        about = outputs - outputs.mean(0)
        values = torch.linalg.svdvals(about)[:4]
        torch.testing.assert_close((about @ weights.T).norm(dim=0), values, rtol=1e-4, atol=0)


def test_classes_are_mixed_each_as_a_whole():
    outputs = torch.arange(4).float().repeat_interleave(6)[:, None] * 100 + torch.arange(6).repeat(4)[:, None]
    beside = torch.full((3, 1), 7.0)
    shape = Shape(way=4, shot=2, queries=4)
    mixed = mix_classes(torch.cat([outputs, beside]), 24, shape, torch.Generator().manual_seed(0))
    assert torch.equal(mixed[24:], beside)
    shares = (mixed[:24].view(4, 6) - outputs.view(4, 6)) / (
        outputs.view(4, 6).roll(1, 0) - outputs.view(4, 6)
    )
    torch.testing.assert_close(shares, shares[:, :1].expand(4, 6))
    assert (shares >= 0).all()
    assert (shares <= 0.5).all()
    assert shares.max() > 0


def test_words_that_do_not_fit_their_card_are_refused(people: data.LabelledImages, tmp_path: Path):
    path = tmp_path / "code.safetensors"
    config = CodeConfig(**QUICK, bits=4, codebook="means")
    trained(people, config).save(path)
    tensors, card = artefacts.load(path, kind="code")
    name = "network.codebook.tables.0"
    for change in ({name: tensors[name][:8]}, {name: tensors[name][:, :2]}):
        artefacts.save(path, tensors | change, card)
        with pytest.raises(ArtefactError, match="its weights do not fit codes of length 4"):
            code_prototypes.read(path)
    artefacts.save(path, {k: each for k, each in tensors.items() if k != name}, card)
    with pytest.raises(ArtefactError, match="its weights do not fit codes of length 4"):
        code_prototypes.read(path)
    artefacts.save(path, tensors, card | {"config": card["config"] | {"bits": 20}})
    with pytest.raises(ArtefactError, match="of at most 16 bits"):
        code_prototypes.read(path)
