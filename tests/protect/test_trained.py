"""What all protections by a trained file have in common: each of the four kinds keeps the same promises."""

import hashlib
import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sfumato import artefacts
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ArtefactError, SpecError
from sfumato.networks.classifiers import CLASSIFIERS
from sfumato.networks.code import make_code_network
from sfumato.networks.weights import initial_weights
from sfumato.protect import answer, code, feature, mask, parse
from sfumato.protect.release import KINDS, TrainedProtection, artefact_of, file_digest_of

SHAPE = (3, 16, 16)
CONFIGS = {
    "mask": {"keep": 0.25, "masker_width": 4, "levels": 2},
    "feature": {"widths": [4] * 7, "cut": "conv4_2", "dimension": 3},
    "code": {"encoder": "conv4", "bits": 6},
}
REST = {"mask": "keep=0.5", "feature": "noise=0.5", "code": "flip=0.1", "answer": ""}


def write(folder: Path, kind: str) -> Path:
    """An artefact that nobody trained."""
    path = folder / f"{kind}.safetensors"
    with initial_weights(0):
        if kind == "answer":
            network = CLASSIFIERS["conv4"](SHAPE, 3)
            answerer = answer.Answerer(network, classes="abc", shape=SHAPE)
            answer.save(path, answerer, network="conv4", card={})
            return path
        card = {"kind": {"feature": feature.KIND}.get(kind, kind), "shape": list(SHAPE)}
        card |= {"config": CONFIGS[kind], "classes": {"light": ["dark", "bright"]}}
        prefix, made = {
            "mask": lambda: ("masker", mask.make_masker(3, width=4, levels=2)),
            "feature": lambda: ("device", feature.make_sides(card)[0]),
            "code": lambda: ("network", make_code_network("conv4", SHAPE, dimension=6, seed=0)),
        }[kind]()
    artefacts.save(path, {f"{prefix}.{name}": each for name, each in made.state_dict().items()}, card)
    return path


@pytest.fixture(params=REST)
def protection(request: pytest.FixtureRequest, tmp_path: Path) -> TrainedProtection:
    rest = f",{REST[request.param]}" if REST[request.param] else ""
    spec = f"{request.param}:artefact={write(tmp_path, request.param)}{rest}"
    made = parse(spec, takes=KINDS)
    assert made.spec == spec
    return made


def pictures(count: int = 5) -> Tensor:
    return torch.randint(0, 256, (count, *SHAPE), generator=torch.Generator().manual_seed(0)).byte()


def test_images_of_another_size_are_refused_with_both_sizes(protection: TrainedProtection):
    with pytest.raises(SpecError, match="was trained on 3x16x16 images, and these are 3x20x16: resize them"):
        protection.release(torch.zeros(1, 3, 20, 16, dtype=torch.uint8), seeded_noise(0))


@pytest.mark.parametrize("kind", REST)
def test_the_release_of_an_image_does_not_depend_on_the_others(kind: str, tmp_path: Path):
    rest = ",noise=0" if kind == "feature" else ""
    protection = parse(f"{kind}:artefact={write(tmp_path, kind)}{rest}", takes=KINDS)
    together = protection.release(pictures(), seeded_noise(0)).array
    for image, row in zip(pictures(), together, strict=True):
        assert (protection.release(image[None], seeded_noise(0)).array[0] == row).all()
    assert len(protection.release(pictures(0), seeded_noise(0)).array) == 0


def test_another_process_gets_the_parameters_and_reads_the_file_itself(protection: TrainedProtection):
    release = protection.release(pictures(), seeded_noise(0))
    sent = pickle.dumps(protection)
    assert len(sent) < 1000
    again = pickle.loads(sent)
    assert (again, hash(again)) == (protection, hash(protection))
    assert (again.release(pictures(), seeded_noise(0)).array == release.array).all()


def test_it_is_read_once_when_first_needed_and_known_by_its_digest(protection: TrainedProtection):
    path = Path(protection.artefact)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert file_digest_of(protection) == artefact_of(protection) == digest
    protection.check()
    path.unlink()
    protection.release(pictures(), seeded_noise(0))
    with pytest.raises(ArtefactError, match="no such file"):
        pickle.loads(pickle.dumps(protection)).check()


@pytest.mark.parametrize("kind", REST)
def test_a_file_of_another_kind_is_refused(kind: str, tmp_path: Path):
    other = write(tmp_path, "code" if kind != "code" else "mask")
    loaders = {"mask": mask.load_masker, "feature": feature.load_extractor, "code": code.load_encoder}
    with pytest.raises(ArtefactError, match="is needed"):
        (loaders | {"answer": answer.load_answerer})[kind](str(other))
