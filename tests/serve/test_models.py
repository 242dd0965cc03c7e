"""Artefacts as one function: from what was released to embeddings, of each image by itself."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from cloud import encoder, refusing
from devices import write_feature

from sfumato import artefacts, data
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ArtefactError, ConfigError
from sfumato.images import to_float, write
from sfumato.learn import few_shot, meta
from sfumato.learn.few_shot import FewShotConfig
from sfumato.learn.meta import MetaConfig, MetaModel
from sfumato.protect import Release, parse
from sfumato.protect.code import Code
from sfumato.protect.release import artefact_digest
from sfumato.protect.vectors import BitsRelease, FeatureRelease
from sfumato.serve import models, trained
from sfumato.serve.served import Demand, Served

CONFIG = FewShotConfig(denoiser_depth=3, denoiser_width=4, precision="float32")


def save_few_shot(path: Path, protection: str, *, channels: int = 1, **card: object) -> few_shot.FewShotModel:
    known = {
        **{"config": asdict(CONFIG), "spec": protection},
        **{"channels": channels, "precision": "float32", "shape": [channels, 20, 20], **card},
    }
    made = few_shot.make_untrained(channels, CONFIG, parse(protection), card=known)
    made.save(path)
    return made


def save_meta(path: Path, network: str, spec: str = "gaussian:sigma=40") -> MetaModel:
    config = MetaConfig(network=network, width=None if network == "fully-connected" else 8)
    learner = meta.make_untrained(config, (1, 16, 16))
    card = {"config": asdict(config), "image": [1, 16, 16], "spec": spec, "privacy": None}
    made = MetaModel(learner, learner.initial(), config.inner_of_use(None), card)
    made.save(path)
    return made


def pictures(count: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, *shape), generator=generator).to(torch.uint8)


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Forty grey images in two folders, as a source."""
    folder = tmp_path_factory.mktemp("public")
    for number, image in enumerate(pictures(40, 1, 16, 16)):
        write(folder / "ab"[number % 2] / f"{number}.png", image)
    return f"folder:{folder}"


def embeddings(served: Served, images: torch.Tensor) -> torch.Tensor:
    assert served.demand.protection is not None
    released = served.demand.protection.release(images, seeded_noise(0))
    return torch.from_numpy(served.run(served.prepare(released)))


@pytest.mark.parametrize("spec", ["gaussian:sigma=40", "pixelize:cell=4", "dp-pix:cell=4,epsilon=1"])
def test_a_few_shot_model_embeds_as_it_does_by_itself(spec: str, tmp_path: Path):
    path = tmp_path / "m.safetensors"
    alone = save_few_shot(path, spec)
    served = models.load(path)
    expected = alone.encode(parse(spec).release(pictures(3, 1, 20, 20), seeded_noise(0)).images())
    torch.testing.assert_close(embeddings(served, pictures(3, 1, 20, 20)), expected)
    assert served.dimension == expected.shape[1]


@pytest.mark.parametrize("kind", ["few-shot", "fully-connected", "convolutional", "strided"])
def test_an_embedding_does_not_depend_on_who_else_is_in_the_batch(kind: str, tmp_path: Path, public: str):
    path = tmp_path / "m.safetensors"
    if kind == "few-shot":
        save_few_shot(path, "pixelize:cell=2", shape=[1, 16, 16])
    else:
        save_meta(path, kind, spec="pixelize:cell=2")
    served = models.load(path, reference=public)
    together = embeddings(served, pictures(9, 1, 16, 16))
    alone = torch.cat([embeddings(served, image) for image in pictures(9, 1, 16, 16).split(1)])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_a_card_tells_refusal_and_artefact(tmp_path: Path):
    path, spec = tmp_path / "m.safetensors", "dp-pix:cell=4,epsilon=3"
    save_few_shot(path, spec, refusal=refusing(3.0).card(), made_of="a" * 64)
    served = models.load(path, name="vases")
    assert (served.demand.spec, served.demand.made_of) == (spec, "a" * 64)
    assert served.refusal is not None
    assert (served.name, served.kind, served.refusal.threshold) == ("vases", "few-shot", 3.0)


def test_a_model_whose_card_tells_no_size_or_one_too_small_is_not_served(tmp_path: Path):
    path = tmp_path / "m.safetensors"
    save_few_shot(path, "pixelize:cell=4", channels=3)
    tensors, card = artefacts.load(path, kind="few-shot")
    artefacts.save(path, tensors, {**card, "shape": [3, 2, 2]})
    with pytest.raises(ArtefactError, match="its networks do not accept images of 3x2x2: train it again"):
        models.load(path)
    del card["shape"]
    artefacts.save(path, tensors, card)
    with pytest.raises(ArtefactError, match="lacks the size of its images: train it again"):
        models.load(path)


def test_a_feature_is_its_own_embedding(tmp_path: Path):
    path = write_feature(tmp_path / "f.safetensors", dimension=5, shape=(3, 32, 32))
    served = models.load(path)
    assert (served.kind, served.dimension, served.shape) == ("private feature", 5, (3, 32, 32))
    demand = served.demand
    assert (demand.spec, demand.made_of) == ("feature:artefact=f.safetensors", artefact_digest(str(path)))
    release = FeatureRelease(torch.randn(2, 5, generator=torch.Generator().manual_seed(0)), demand.spec)
    assert np.array_equal(served.run(served.prepare(release)), release.array)


def code(values: torch.Tensor, spec: str) -> BitsRelease | FeatureRelease:
    return (BitsRelease if values.dtype == torch.bool else FeatureRelease)(values, spec)


def embedded(served: Served, values: torch.Tensor, noise: str = "") -> torch.Tensor:
    demand = served.demand
    return torch.from_numpy(served.run(served.prepare(code(values, demand.spec + noise))))


def test_a_code_is_its_own_embedding_bits_as_1_and_minus_1_and_numbers_as_they_are(tmp_path: Path):
    path = encoder(tmp_path / "c.safetensors", bits=3)
    served = models.load(path)
    assert (served.kind, served.dimension, served.shape) == ("code", 3, (3, 16, 16))
    assert served.refusal is None  # no threshold was measured
    demand = served.demand
    assert (demand.spec, demand.kind) == ("code:artefact=c.safetensors", "bits")
    assert demand.made_of == artefact_digest(str(path))
    values = torch.tensor([[True, False, True], [False, False, True]])
    assert embedded(served, values).tolist() == [[1, -1, 1], [-1, -1, 1]]
    served = models.load(encoder(tmp_path / "n.safetensors", numbers=3))
    assert (served.dimension, served.demand.kind) == (3, "numbers")
    values = torch.tensor([[1.5, -2, 0]])
    assert torch.equal(embedded(served, values, ",norm=1,noise=0.5"), values)
    served = models.load(encoder(tmp_path / "s.safetensors", bits=16))
    for strongest in (",epsilon=0.000000000001", ",flip=0.49999999999999994"):
        assert embedded(served, torch.ones(1, 16, dtype=torch.bool), strongest).square().sum().isfinite()


@pytest.mark.parametrize("noise", ["flip=0.3", "epsilon=2"])
def test_the_mean_of_noisy_codes_is_the_code_without_noise(noise: str, tmp_path: Path):
    path = encoder(tmp_path / "c.safetensors", bits=4)
    served = models.load(path)
    image = pictures(1, 3, 16, 16)
    clean = embedded(served, Code(str(path)).release(image, seeded_noise(0)).values)
    key, value = noise.split("=")
    lying = Code(str(path), **{key: float(value)})
    released = lying.release(image.expand(1000, -1, -1, -1), seeded_noise(0)).values
    # A bit that is 1 or -1 times 2.5 or 3.5 has a mean over 1,000 whose deviation is at most 0.11.
    torch.testing.assert_close(
        embedded(served, released, f",{noise}").mean(0), clean[0], rtol=0, atol=5 * 0.11
    )


def test_a_card_tells_when_a_code_is_of_none_of_these_for_the_noise_that_it_was_measured_with(tmp_path: Path):
    path = encoder(tmp_path / "c.safetensors", bits=4)
    tensors, card = artefacts.load(path, kind="code")
    known = {
        "spread": {"within": 0.25, "between": 0.75},
        "refusal": refusing(9.5).card(),
        **{"no_refusal": "", "flip": 0.1, "norm": None, "noise": None},
    }
    artefacts.save(path, tensors, card | {"prototypes": known})
    served = models.load(path)
    demand = served.demand
    values = torch.ones(1, 4, dtype=torch.bool)
    lying, honest, worse = (code(values, demand.spec + noise) for noise in (",flip=0.1", "", ",flip=0.2"))
    assert served.refusal == served.refusal_of(lying) == refusing(9.5)
    assert served.refusal_of(honest) is served.refusal_of(worse) is None
    assert served.weight(honest) == 1
    assert served.weight(lying) == pytest.approx(0.64)
    assert served.weight(worse) == pytest.approx(0.36)


@pytest.mark.parametrize("network", ["fully-connected", "strided"])
def test_on_its_reference_images_a_frozen_network_computes_what_it_does_in_a_batch(
    network: str, tmp_path: Path
):
    made = save_meta(tmp_path / "m.safetensors", network)
    images = to_float(pictures(500, 1, 16, 16))
    frozen = trained.freeze(made, images)
    features = []
    free = made.learner._network
    torch.nn.utils.vector_to_parameters(made.start, free.parameters())
    last = free[-1] if network == "fully-connected" else free.head
    last.register_forward_pre_hook(lambda module, inputs: features.append(inputs[0]))
    free(images)
    # Running variances are unbiased, those of a batch are not: 500 / 499.
    torch.testing.assert_close(frozen(images), features[0], rtol=0.02, atol=0.02)


def test_a_meta_model_needs_reference_images_of_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    small_faces = data.load("faces", identities=10, images_per_identity=2, headwear=10, size=16)
    path = tmp_path / "m.safetensors"
    save_meta(path, "strided")
    with pytest.raises(ConfigError, match="name public images for its statistics, by --reference"):
        models.load(path)
    write(tmp_path / "one" / "a" / "0.png", pictures(1, 1, 16, 16)[0])
    with pytest.raises(ConfigError, match="1 images have no statistics: name a few hundred"):
        models.load(path, reference=f"folder:{tmp_path}/one")
    monkeypatch.setattr(data, "load", lambda source, size: small_faces)
    with pytest.raises(ConfigError, match="images of 3x16x16 for a model of 1x16x16: name others"):
        models.load(path, reference="faces")


def test_servers_of_one_meta_model_have_the_same_statistics(tmp_path: Path, public: str):
    path = tmp_path / "m.safetensors"
    save_meta(path, "strided")
    first, second = (models.load(path, reference=public) for _ in range(2))
    images = Release(pictures(2, 1, 16, 16), "none", (16, 16))
    found = [each.run(each.prepare(images)) for each in (first, second)]
    assert np.array_equal(*found)


def test_other_artefacts_and_names_that_no_address_holds_are_refused(tmp_path: Path):
    path = tmp_path / "m.safetensors"
    artefacts.save(path, {"x": torch.zeros(1)}, {"kind": "mask"})
    with pytest.raises(
        ArtefactError, match="is a 'mask'; a server runs 'few-shot', 'meta', 'private feature' and 'code'"
    ):
        models.load(path)
    for name in ("", "a/b", "a b", "-a", "x" * 65, "é"):
        with pytest.raises(ConfigError, match="is not a name for a model: at most 64 letters"):
            models.load(path, name=name)


def test_a_spec_is_known_by_the_file_of_its_artefact_which_may_lie_beside_the_model(tmp_path: Path):
    """Not by its folder; and the file beside the model counts if it is the right one."""
    path, mask = tmp_path / "m.safetensors", tmp_path / "k.safetensors"
    mask.write_bytes(b"a mask")
    spec, told = "mask:artefact=/elsewhere/k.safetensors,keep=0.3", "mask:artefact=k.safetensors,keep=0.3"
    for digest, artefact in (
        (artefact_digest(str(mask)), mask),
        ("a" * 64, "k.safetensors"),
        (None, mask.name),
    ):
        save_few_shot(path, "none", spec=spec, made_of=digest)
        assert models.load(path).demand == Demand(told, digest, parse(f"mask:artefact={artefact},keep=0.3"))
