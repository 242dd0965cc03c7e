"""Codes of which none is rare: nobody can be surer of anybody than many people's codes allow."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from test_code import QUICK, trained

from sfumato import artefacts, data
from sfumato.dp.mechanisms import seeded_noise
from sfumato.dp.naming.period import bound_posterior
from sfumato.errors import ArtefactError, ConfigError, SpecError
from sfumato.export.export import export
from sfumato.learn import code
from sfumato.learn.code import CodeConfig
from sfumato.networks.code import CodeNetwork, make_code_network
from sfumato.protect.code import Code, signs, words_of
from sfumato.protect.naming import bound_naming, naming_words
from sfumato.wire.tables import codes_of

SHAPE = (3, 16, 16)
CONFIG = CodeConfig(**QUICK, bits=5, common=0.05)


@pytest.fixture(scope="module")
def people() -> data.LabelledImages:
    return data.load("faces", identities=24, images_per_identity=9, headwear=18, size=16)


@pytest.fixture(scope="module")
def reference() -> torch.Tensor:
    return data.load("faces", identities=300, images_per_identity=1, headwear=18, size=16, seed=1).images


def some_network(directions: int | None) -> CodeNetwork:
    """An encoder whose rule sends each code as another one of three."""
    network = make_code_network("conv4", SHAPE, dimension=4, seed=0, directions=directions, common=True)
    if network.codebook is not None:
        network.codebook.tables[0].data = torch.randn(
            16, directions, generator=torch.Generator().manual_seed(1)
        )
    network.common = torch.from_numpy(2 * codes_of(4)[np.array([3, 12, 9])[np.arange(16) % 3]] - 1)
    return network.eval()


@pytest.mark.parametrize("directions", [None, 3])
def test_what_a_network_gives_is_by_its_signs_the_code_of_the_rule(directions: int | None):
    network, draw = some_network(directions), torch.Generator().manual_seed(2)
    vectors = torch.randn(200, directions or 4, generator=draw)
    meant = vectors if network.codebook is None else network.codebook.margins(vectors)
    assert len(words_of(signs(meant)).unique()) > 8
    given = network.numbers(vectors)
    words = words_of(signs(given))
    assert torch.equal(words, torch.tensor([3, 12, 9])[words_of(signs(meant)) % 3])
    torch.testing.assert_close(
        given.abs(), meant.abs().amin(1, keepdim=True).expand_as(given).clamp(min=1e-6)
    )
    # Neither a number of 0 nor none at all lets the first code out.
    empty = torch.stack([torch.zeros(directions or 4), torch.full((directions or 4,), torch.nan)])
    assert set(words_of(signs(network.numbers(empty))).tolist()) <= {3, 9, 12}


@pytest.mark.parametrize("codebook", ["signs", "means"])
def test_nobody_is_named_with_more_certainty_than_is_proved(
    people: data.LabelledImages, reference: torch.Tensor, tmp_path: Path, codebook: str
):
    """Exactly, by all images of 60 other people, whose laws the adversary knows."""
    config = replace(CONFIG, codebook=codebook, directions=6)
    model = trained(people, config, reference=reference, validation=people.split("validation"))
    path = tmp_path / "code.safetensors"
    model.save(path)
    code_of = Code(str(path))
    common = code_of.common
    assert common is not None
    assert (common.people, common.delta) == (300, 0.01)
    assert code_of.outputs == common.codes < 32
    others = data.load("faces", identities=60, images_per_identity=30, headwear=30, size=16, seed=2)
    words = words_of(torch.from_numpy(code_of.release(others.images, seeded_noise(0)).array)).numpy()
    table = np.zeros((60, 32))
    np.add.at(table, (others.label("identity").codes.numpy(), words), 1 / 30)
    sent = table.sum(0) > 0
    assert sent.sum() <= common.codes
    largest = (table.max(0)[sent] / table.sum(0)[sent]).max()
    assert largest <= bound_posterior(60, table.mean(0)[sent].min()) + 1e-12
    assert common.share <= table.mean(0)[sent].min() * 1.5  # 60 people are a sample, too
    assert 1 / 60 < largest <= bound_posterior(60, common.share)
    # So in a browser: the table is in the graph.
    exported = export(path, tmp_path / "code.onnx", check=others.images[:20])
    assert exported.difference.bits == 0
    session = onnxruntime.InferenceSession(str(tmp_path / "code.onnx"))
    for image, word in zip(others.images[:20].numpy(), words, strict=False):
        (given,) = session.run(["numbers"], {"images": image[None]})
        assert words_of(signs(torch.from_numpy(given))).item() == word
    # Without the rule somebody is known for sure.
    model.network.common = None
    free = words_of(signs(model.infer(model.numbers, others.images))).numpy()
    assert len(np.unique(free)) > common.codes
    # The counting bound counts what leaves, and the sentence states both.
    assert bound_naming(code_of, SHAPE, candidates=1_000).chance == pytest.approx(common.codes / 1_000)
    sentence = naming_words(code_of, SHAPE, among=(1_000,))
    assert (
        f"each of the {common.codes:,} codes that leave is that of β = {common.share:.2%} of people"
        in sentence
    )
    assert "assumed: the reference of 300 people is a random sample of these N" in sentence
    assert "β" not in naming_words(code_of, SHAPE, releases=2, among=(1_000,))


def test_a_class_enrolled_by_one_word_has_none_that_is_rare(people, reference, monkeypatch):
    config = replace(CONFIG, codebook="means", directions=6)
    model = trained(people, config, reference=reference)
    allowed, seen = set(words_of(model.network.common > 0).tolist()), []
    kept = code._answers
    monkeypatch.setattr(
        code,
        "_answers",
        lambda model, codes, *more, **how: (seen.append(codes), kept(model, codes, *more, **how))[1],
    )
    shape = code.Shape(way=3, shot=2, queries=2)
    code.evaluate(model, people.split("test"), shape, target="headwear", episodes=5, one_word=True)
    assert set(words_of(seen[0] > 0).tolist()) <= allowed


def test_noise_would_send_rare_codes_and_is_refused(people, reference, tmp_path: Path):
    path = tmp_path / "code.safetensors"
    trained(people, CONFIG, reference=reference).save(path)
    for noise in ({"flip": 0.1}, {"epsilon": 2.0}):
        with pytest.raises(SpecError, match="noise would send rare codes, which its encoder never does"):
            Code(str(path), **noise).check()
    tensors, card = artefacts.load(path, kind="code")
    for broken in ({"common": None}, {"common": card["common"] | {"codes": 0}}):
        artefacts.save(path, tensors, card | broken)
        with pytest.raises(ArtefactError, match="common"):
            Code(str(path)).check()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bits": 20}, r"common=0\.05: 20 bits, and words are numbered by 1 to 16"),
        ({"numbers": 4}, r"common=0\.05: no bits, and words are numbered by 1 to 16"),
        ({"bits": 4, "flip": 0.1}, r"common=0\.05: flip=0\.1 turns bits one by one"),
        (
            {"bits": 4, "common": 0.0},
            r"common=0: above 0 and at most 1: it is a share of people, such as 0\.01",
        ),
    ],
)
def test_codes_that_cannot_be_common_are_refused(settings: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        CodeConfig(**{"common": 0.05, **settings})


def test_common_codes_need_a_reference_and_a_code_that_is_frequent(people, reference):
    for config, given in ((CONFIG, None), (replace(CONFIG, common=None), reference)):
        with pytest.raises(ConfigError, match="give both, or neither"):
            trained(people, config, reference=given)
    with pytest.raises(
        ConfigError, match=r"common=1: the most frequent code has 0\.\d+ of the reference: ask"
    ):
        trained(people, replace(CONFIG, common=1.0), reference=reference)
