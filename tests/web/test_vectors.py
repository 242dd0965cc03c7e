"""The page's protections, noise and words against Python's, by the vectors of web/vectors.py under node."""

import base64
import math
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from devices import write_code

from sfumato import protect, wire
from sfumato.protect.code import Code

Ask = Callable[[list[dict[str, Any]]], list[Any]]

VECTORS = Path(__file__).parents[2] / "web" / "vectors.py"


@pytest.fixture(scope="module")
def answered(ask: Ask) -> list[tuple[dict[str, Any], Any]]:
    vectors = list(runpy.run_path(str(VECTORS))["vectors"]())
    return list(zip(vectors, ask(vectors), strict=True))


@pytest.mark.parametrize(
    ("kind", "name", "least"),
    [
        # A release is that of Python, byte for byte from the same random bits.
        ("protect", "blur:", 265),
        ("protect", "pixelize:", 60),
        ("protect", "gaussian:", 90),
        ("protect", "dp-pix:", 210),
        ("protect", "dp-pix-gaussian:", 45),
        ("clipped noisy", "", 6),
        ("code", "", 39),
        ("flips", "", 2),
        ("other words", "", 2),
        # So is noise whose comparisons tie often; digits of a probability are those of mpmath.
        *((kind, "", 5) for kind in ("laplace", "discrete gaussian", "rounded gaussian")),
        *((kind, "", 18) for kind in ("exp", "logistic", "upper tail")),
        # Specs, guarantees and refusals are in the words and numbers of Python.
        ("spec", "", 45),
        ("bounds", "", 1),
        ("refused", "", 30),
        ("guarantee", "", 135),
        # A picture is cut as Pillow does it, has the digest of Python, and travels in its bytes.
        *((kind, "", 5) for kind in ("fit", "grey", "digest", "packed")),
        ("code on the wire", "", 6),
    ],
)
def test_the_page_answers_what_python_does(answered, kind: str, name: str, least: int):
    of_kind = [
        (vector, answer)
        for vector, answer in answered
        if vector["kind"] == kind and vector.get("spec", "").startswith(name)
    ]
    assert len(of_kind) >= least
    assert [(vector, answer) for vector, answer in of_kind if answer != vector["answer"]] == []


def test_a_noisy_feature_is_that_of_python_up_to_float32(answered):
    pairs = [(vector["answer"], answer) for vector, answer in answered if vector["kind"] == "noisy"]
    assert len(pairs) == 3
    for expected, answer in pairs:
        assert answer == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_fresh_lies_have_the_probability_of_randomised_response(ask: Ask):
    outputs, count = 8, 40_000
    (told,) = ask([{"kind": "fresh words", "count": count, "word": 3, "outputs": 8, "epsilon": ["2", "1"]}])
    expected = np.full(outputs, count / (math.exp(2) + outputs - 1))
    expected[3] *= math.exp(2)
    found = np.bincount(told, minlength=outputs)
    # Chi-square with 7 degrees of freedom is above 60 in one of 10^10 runs.
    assert ((found - expected) ** 2 / expected).sum() < 60


def test_the_guarantee_of_a_code_is_that_of_python(ask: Ask, tmp_path: Path):
    bits = [("bits", 16, {}), *(("bits", 16, {"flip": flip}) for flip in (0.01, 0.1, 0.45))]
    numbers = [("numbers", 6, {}), *(("numbers", 6, {"norm": norm, "noise": 0.06}) for norm in (0.5, 3))]
    expected, asked = [], []
    for unit, count, noise in [*bits, ("bits", 12, {"epsilon": 2.5}), *numbers]:
        path = write_code(tmp_path / "c.safetensors", shape=(1, 16, 16), **{unit: count})
        proved = Code(str(path), **noise).guarantee((1, 16, 16))
        expected.append(str(proved or "nothing is proved about its pixels"))
        words = ",".join(f"{key}={value}" for key, value in noise.items())
        asked.append({"kind": "code guarantee", "unit": unit, "count": count, "noise": words})
    assert ask(asked) == expected


def test_noise_that_a_code_cannot_have_is_refused(ask: Ask):
    table = [
        ("bits", "flip=0.5", "code: flip=0.5: a bit is flipped with a probability above 0 and below 0.5"),
        ("bits", "flip=0", "code: flip=0: above 0, and at most 1000000000"),
        ("bits", "flip=0.1,epsilon=2", "code: flip and epsilon: leave one out"),
        ("bits", "norm=1,noise=1", "code: this file makes bits, which have flip= or epsilon=, not norm="),
        ("numbers", "flip=0.1", "code: this file makes numbers, which have norm= or noise=, not flip="),
        ("numbers", "norm=1", "code: norm and noise belong together: write both"),
        ("bits", "bits=8", "code: bits=8, and this file makes 24 bits"),
        ("numbers", "bits=24", "code: bits=24, and this file makes 24 numbers"),
        ("bits", "epsilon=2", "code: epsilon=2: for at most 16 bits; of 24, write flip="),
    ]
    asked = [{"kind": "code refused", "unit": unit, "count": 24, "noise": noise} for unit, noise, _ in table]
    assert ask(asked) == [message for _, _, message in table]


def test_noise_that_excludes_or_needs_other_noise_moves_it(ask: Ask):
    table = [
        ("", "flip", 0.1, ",flip=0.1"),
        (",epsilon=2", "flip", 0.1, ",flip=0.1"),
        (",flip=0.1", "epsilon", 2, ",epsilon=2"),
        (",flip=0.1", "epsilon", None, ",flip=0.1"),
        ("", "noise", 0.5, ",norm=1,noise=0.5"),
        (",norm=1,noise=0.5", "norm", 2, ",norm=2,noise=0.5"),
        (",norm=2,noise=0.5", "noise", None, ""),
    ]
    spec = "code:artefact=c"
    asked = [{"kind": "slid", "spec": spec + was, "key": key, "value": value} for was, key, value, _ in table]
    assert ask(asked) == [spec + expected for *_, expected in table]


def test_the_noise_of_a_feature_has_the_covariance_that_is_asked_for(ask: Ask):
    root = np.array([[1.0, 0, 0], [0.8, 0.5, 0], [0.2, -0.4, 0]])  # of rank 2
    covariance = root @ root.T
    words = {"kind": "fresh noisy", "feature": [5.0, 0, -5], "covariance": covariance.tolist(), "ratio": 0.5}
    (rows,) = ask([{**words, "count": 20_000}])
    # The standard error of an entry is at most 0.5 sqrt(2 / 20,000), half a hundredth.
    assert np.cov(np.array(rows).T) == pytest.approx(0.5 * covariance, abs=0.03)
    assert np.mean(rows, axis=0) == pytest.approx([5, 0, -5], abs=0.03)


def test_fresh_laplace_noise_has_its_distribution(ask: Ask):
    scale, count = 2.5, 50_000
    (drawn,) = ask([{"kind": "fresh laplace", "count": count, "scale": ["5", "2"]}])
    q = math.exp(-1 / scale)
    edge = 15  # beyond it 50 draws are expected on either side, taken as one cell
    inner = (1 - q) / (1 + q) * q ** np.abs(np.arange(-edge, edge + 1))
    tail = (1 - inner.sum()) / 2
    expected = count * np.array([tail, *inner, tail])
    clipped = np.clip(np.array(drawn), -edge - 1, edge + 1).astype(int)
    found = np.bincount(clipped + edge + 1, minlength=len(expected))
    # Chi-square with 32 degrees of freedom is above 111 in one of 10^10 runs.
    assert ((found - expected) ** 2 / expected).sum() < 111


@pytest.mark.parametrize("spec", ["pixelize:cell=4", "dp-pix:cell=4,epsilon=3", "gaussian:sigma=40"])
def test_python_decodes_what_the_page_encodes(ask: Ask, spec: str):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (3, 3, 10, 13), generator=generator).to(torch.uint8)
    given = [
        {"shape": [3, 10, 13], "values": base64.b64encode(image.numpy().tobytes()).decode()}
        for image in images
    ]
    (answer,) = ask([{"kind": "wire", "spec": spec, "images": given}])
    sent = wire.decode(base64.b64decode(answer), most_images=3, most_pixels=10_000)
    protection = protect.parse(spec)
    assert (sent.spec, sent.size, sent.cell, sent.shown) == (spec, (10, 13), protection.cell, None)
    if not protection.draws_noise:
        assert torch.equal(sent.images(), protection.release(images, noise=None).images())


def test_what_the_page_encodes_is_the_bytes_that_python_encodes(ask: Ask):
    image = torch.arange(3 * 9 * 7).remainder(256).to(torch.uint8).view(1, 3, 9, 7)
    given = [{"shape": [3, 9, 7], "values": base64.b64encode(image.numpy().tobytes()).decode()}]
    (answer,) = ask([{"kind": "wire", "spec": "blur:radius=2", "images": given}])
    assert base64.b64decode(answer) == wire.encode(protect.parse("blur:radius=2").release(image, noise=None))


def test_what_cannot_be_done_is_said(ask: Ask):
    table = {
        "swirl:turns=3": "this page does not protect by swirl",
        "dp-pix:cell=4": "dp-pix: epsilon is missing: write dp-pix:epsilon=...",
        "dp-pix:cell=2.5,epsilon=1": "dp-pix: cell=2.5 is neither a whole number of pixels nor a fraction",
        "blur:radius=wide": "blur: radius=wide is not a number",
        "blur:radius=0": "blur: radius=0 is not above 0: the paper uses 1 to 5",
        "blur:radius=1,width=3": "blur: no parameter width",
        "blur:radius": "blur: write blur:key=value,key=value, not radius",
        "dp-pix:cell=4,epsilon=1,variant=fast": "variant=fast is unknown: choose sound or published",
        "pixelize:cell=8": "cell=8 is larger than the 5x5 images: choose a cell of at most 5",
        "dp-pix:cell=2,epsilon=1e-11": "choose a larger epsilon",
        "gaussian:sigma=1e308": "is too large: choose at most 1000000000",
    }
    image = {"shape": [1, 5, 5], "values": base64.b64encode(bytes(25)).decode(), "bits": ""}
    answers = ask([{"kind": "protect", "spec": spec, **image} for spec in table])
    for answer, message in zip(answers, table.values(), strict=True):
        assert message in answer["error"]
