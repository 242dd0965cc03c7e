"""Vectors that the page must reproduce: small images, random bits, and what Python makes of them.

`python web/vectors.py FILE` writes a JSON list; each vector has a `kind`, what the page is given, and what it
must answer. Noise comes from recorded bits, so that noisy releases are compared byte for byte as well.
web/vectors.ts answers them.
"""

import base64
import json
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from sfumato import protect, wire
from sfumato.dp.mechanisms import Noise
from sfumato.errors import SpecError
from sfumato.images import digest
from sfumato.protect.code import BitsRelease, words_of
from sfumato.protect.feature import noisy
from sfumato.protect.parameters import BOUNDS
from sfumato.protect.release import Release
from sfumato.protect.vectors import clip_and_noise

Vector = dict[str, Any]

SHAPES = ((1, 28, 28), (3, 21, 17), (3, 7, 30), (1, 12, 5), (3, 32, 32))

# The last cells of most of the shapes are smaller than these.
DETERMINISTIC = (
    *(
        f"blur:radius={radius}"
        for radius in ("0.5", "0.75", "0.9", "1", "1.7", "2", "3", "4.2", "5", "9", "40")
    ),
    *(f"pixelize:cell={cell}" for cell in (2, 3, 4, 5, "1/2", "2/5")),
)
NOISY = (
    *(f"gaussian:sigma={sigma}" for sigma in ("2", "3", "40", "117.3", "200", "5000")),
    *(f"dp-pix:cell={cell},epsilon={epsilon}" for cell in (2, 4, 5) for epsilon in ("0.1", "3", "2000")),
    *(f"dp-pix:cell=1,epsilon={epsilon}" for epsilon in ("0.1", "3", "180")),
    "dp-pix:cell=3,epsilon=0.7,pixels=16",
    "dp-pix:cell=4,epsilon=3,variant=published",
    "dp-pix-gaussian:cell=4,rho=0.5",
    "dp-pix-gaussian:cell=2,rho=0.05,pixels=16",
    "dp-pix-gaussian:cell=2,rho=3000",
    "dp-pix:cell=1/4,epsilon=3",
    "dp-pix:cell=1/4,epsilon=3,variant=published",
    "dp-pix-gaussian:cell=1/4,rho=0.5",
)


class Recorder:
    """Random bits that are kept. State: what was handed out, of each chunk by itself.

    With `likely`, words repeat, so that comparisons with the digits of a probability tie often.
    """

    def __init__(self, seed: int, likely: tuple[int, ...] = ()) -> None:
        self._seed = seed
        self._likely = np.array(likely, np.uint16)
        self._parts: dict[tuple[int, int], bytearray] = {}

    def noise(self) -> Noise:
        """Noise from these bits."""
        return Noise(self._stream)

    def drawn(self) -> str:
        """All bits, in the order in which one thread draws them."""
        return _text(b"".join(self._parts[key] for key in sorted(self._parts)))

    def _stream(self, call: int, chunk: int) -> Callable[[int], bytes]:
        generator = np.random.default_rng((self._seed, call, chunk))
        part = self._parts.setdefault((call, chunk), bytearray())

        def bits(count: int) -> bytes:
            found = generator.bytes(count)
            if self._likely.size and count % 2 == 0:
                words = np.frombuffer(found, np.uint16).copy()
                chosen = generator.random(words.size) < 0.3
                words[chosen] = generator.choice(self._likely, int(chosen.sum()))
                found = words.tobytes()
            part.extend(found)
            return found

        return bits


def vectors() -> Iterator[Vector]:
    """All of them."""
    yield from _protected()
    yield from _noise()
    yield from _features()
    yield from _codes()
    yield from _masks()
    yield from _digits()
    yield from _words()
    yield from _refused()
    yield from _pictures()


def _protected() -> Iterator[Vector]:
    """Random images, and images of few and extreme values, as each protection releases them."""
    for number, spec in enumerate((*DETERMINISTIC, *NOISY)):
        for index, shape in enumerate(SHAPES):
            for kind in range(3):
                image = _image(shape, seed=1000 * number + 10 * index + kind, kind=kind)
                yield _released(spec, image, Recorder(number))
    # The length of the box is computed in float32.
    for radius in np.random.default_rng(0).uniform(0.5, 20, 100).round(4).tolist():
        yield _released(f"blur:radius={radius}", _image((1, 9, 40), seed=0, kind=0), Recorder(0))


def _released(spec: str, image: Tensor, recorder: Recorder) -> Vector:
    (packet,) = protect.parse(spec).release(image[None], recorder.noise()).pack()
    return _of(image, kind="protect", spec=spec, bits=recorder.drawn(), answer=_text(packet))


def _noise() -> Iterator[Vector]:
    """Noise whose words often tie with the first digits of a probability, and more than one chunk of it."""
    for seed, scale in enumerate(
        (Fraction(1, 50), Fraction(1, 3), Fraction(1), Fraction(765, 7), Fraction(10**7))
    ):
        likely = _ties([mpmath.mpf(1) / (1 + mpmath.exp(_real(2**j / scale))) for j in range(30)])
        yield _drawn(
            "laplace", seed, likely, 300, lambda noise, n, s=scale: noise.laplace((n,), scale=s), scale=scale
        )
        yield _drawn(
            "discrete gaussian",
            seed,
            likely,
            300,
            lambda noise, n, s=scale: noise.discrete_gaussian((n,), variance=s),
            variance=scale,
        )
    for seed, sigma in enumerate((0.3, 1.0, 40.0, 117.3, 200.0)):
        likely = _ties([mpmath.ncdf((k + 0.5) / sigma) for k in range(-60, 60)])
        yield _drawn(
            "rounded gaussian",
            seed,
            likely,
            300,
            lambda noise, n, s=sigma: noise.rounded_gaussian((n,), sigma=s, bound=255),
            sigma=sigma,
        )
    long = 40_000
    yield _drawn(
        "rounded gaussian",
        9,
        (),
        long,
        lambda noise, n: noise.rounded_gaussian((n,), sigma=9.0, bound=255),
        sigma=9.0,
    )


def _drawn(
    kind: str, seed: int, likely: tuple[int, ...], count: int, draw: Callable[..., Tensor], **parameter: Any
) -> Vector:
    recorder = Recorder(seed, likely)
    found = draw(recorder.noise(), count)
    given = {key: _exact(value) if isinstance(value, Fraction) else value for key, value in parameter.items()}
    return {"kind": kind, "count": count, "bits": recorder.drawn(), "answer": found.tolist(), **given}


def _features() -> Iterator[Vector]:
    """The noise of private features: independent, where there is one root of the covariance; and clipped."""
    generator = torch.Generator().manual_seed(0)
    for seed, dimension in enumerate((1, 3, 16)):
        features = torch.randn(1, dimension, generator=generator)
        recorder = Recorder(seed)
        found = noisy(features, torch.eye(dimension) / 2, recorder.noise(), ratio=0.5)
        yield {
            "kind": "noisy",
            "feature": features[0].tolist(),
            "covariance": (torch.eye(dimension) / 2).tolist(),
            "ratio": 0.5,
            "bits": recorder.drawn(),
            "answer": found[0].tolist(),
        }
        for norm in (0.5, 100.0):
            recorder = Recorder(seed)
            found = clip_and_noise(features, recorder.noise(), norm=norm, variance=0.3)
            yield {
                "kind": "clipped noisy",
                "feature": features[0].tolist(),
                "norm": norm,
                "variance": 0.3,
                "bits": recorder.drawn(),
                "answer": found[0].tolist(),
            }


def _codes() -> Iterator[Vector]:
    """Bits as they leave, as they are and with lies, which often tie; and the bytes that they travel in."""
    generator = torch.Generator().manual_seed(0)
    for seed, count in enumerate((1, 5, 8, 12, 16, 64)):
        flags = torch.rand(1, count, generator=generator) < 0.5
        plain = {"kind": "code", "bits": count, "flags": flags[0].int().tolist()}
        release = BitsRelease(flags, "code:artefact=c")
        yield {**plain, "noise": "", "drawn": "", "answer": _text(release.pack()[0])}
        yield {**plain, "kind": "code on the wire", "answer": _text(wire.encode(release, made_of="a" * 64))}
        for flip in ("0.1", "0.25", "0.49"):
            probability = Fraction(flip)
            recorder = Recorder(seed, (int(probability * 65536),))
            turned = flags ^ torch.from_numpy(recorder.noise().flips((1, count), probability=probability))
            packet = BitsRelease(turned, "").pack()[0]
            yield {**plain, "noise": f"flip={flip}", "drawn": recorder.drawn(), "answer": _text(packet)}
        if count > 16:
            continue
        for epsilon in ("0.3", "2", "9"):
            lie = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)) / (2**count - 1))
            recorder = Recorder(seed, _ties([lie]))
            given = words_of(flags).numpy()
            words = recorder.noise().other_words(given, outputs=2**count, epsilon=Fraction(epsilon))
            bits = torch.from_numpy(words)[:, None] >> torch.arange(count - 1, -1, -1) & 1
            packet = BitsRelease(bits.bool(), "").pack()[0]
            yield {**plain, "noise": f"epsilon={epsilon}", "drawn": recorder.drawn(), "answer": _text(packet)}
    for seed, count in enumerate((300, 40_000)):  # the second in more than one chunk
        recorder = Recorder(seed, (6553,))
        found = recorder.noise().flips((count,), probability=Fraction("0.1"))
        given = {"probability": ["1", "10"], "count": count, "bits": recorder.drawn()}
        yield {"kind": "flips", **given, "answer": found.astype(int).tolist()}
        words = torch.randint(0, 1000, (count,), generator=generator)
        recorder = Recorder(seed, _ties([1 / (1 + mpmath.exp(5) / 999)]))
        told = recorder.noise().other_words(words.numpy(), outputs=1000, epsilon=Fraction(5))
        given = {"words": words.tolist(), "outputs": 1000, "epsilon": ["5", "1"], "bits": recorder.drawn()}
        yield {"kind": "other words", **given, "answer": told.tolist()}


def _masks() -> Iterator[Vector]:
    """What travels of masked images."""
    for seed, shape in enumerate(SHAPES):
        image = _image(shape, seed=seed, kind=0)
        shown = torch.rand(1, 1, *shape[1:], generator=torch.Generator().manual_seed(seed)) < 0.3
        (packet,) = Release(image[None] * shown, "mask:artefact=m", shape[1:], shown=shown).pack()
        given = {
            "shown": _text(shown.numpy().tobytes()),
            "values": _text((image * shown[0]).numpy().tobytes()),
        }
        yield {"kind": "packed", **given, "answer": _text(packet)}


def _digits() -> Iterator[Vector]:
    """Binary digits of probabilities, by another library with far more precision."""
    context = mpmath.MPContext()
    context.prec = 2000
    functions = {
        "exp": lambda x: context.exp(-x),
        "logistic": lambda x: 1 / (1 + context.exp(x)),
        "upper tail": lambda x: context.ncdf(-x),
    }
    for kind, function in functions.items():
        for x in (
            Fraction(1, 10**6),
            Fraction(1, 7),
            Fraction(1),
            Fraction(31, 10),
            Fraction(17),
            Fraction(300),
        ):
            for length in (16, 80, 500):
                value = function(context.mpf(x.numerator) / x.denominator)
                digits = str(int(context.floor(value * context.mpf(2) ** length)))
                yield {"kind": kind, "x": _exact(x), "length": length, "answer": digits}


def _words() -> Iterator[Vector]:
    """Canonical specs, and what is said about them."""
    specs = (
        *DETERMINISTIC,
        *NOISY,
        "dp-pix: epsilon=0.00001 , cell=4",
        "blur:radius=2.0",
        "dp-pix-gaussian:cell=2,rho=1e-7",
        "gaussian:sigma=1e3",
        "dp-pix:cell=2,epsilon=12345678,pixels=3",
        "dp-pix:cell=4,epsilon=0.333,pixels=2,variant=published",
        "dp-pix:cell=3,epsilon=1e12",
        "pixelize:cell=2/16",
        "dp-pix:cell=3/21,epsilon=3",
    )
    for spec in specs:
        protection = protect.parse(spec)
        yield {"kind": "spec", "spec": spec, "answer": protection.spec}
        for shape in ((1, 28, 28), (3, 84, 84), (3, 21, 17)):
            words = str(protection.guarantee(shape) or "nothing is proved about its pixels")
            yield {"kind": "guarantee", "spec": spec, "shape": shape, "answer": words}


# Weak, or beyond what can be computed: refused in the same words, or taken.
EXTREME = (
    *("pixelize:cell=1", "pixelize:cell=0", "pixelize:cell=65535", "pixelize:cell=65536"),
    *("pixelize:cell=1/2", "pixelize:cell=3/5", "pixelize:cell=0/3", "dp-pix:cell=4/4,epsilon=3"),
    *(f"blur:radius={radius}" for radius in ("0", "1e-7", "0.01", "0.49", "0.5", "10000", "10001")),
    *(f"gaussian:sigma={sigma}" for sigma in ("1e-320", "0.001", "1.999", "2", "1000000000", "2e9")),
    *(f"dp-pix:cell=1,epsilon={epsilon}" for epsilon in ("1e-13", "180", "181", "1000000", "1e13")),
    "dp-pix:cell=1,epsilon=901,pixels=5",
    "dp-pix:cell=1,epsilon=902,pixels=5",
    "dp-pix:cell=1,epsilon=181,variant=published",
    "dp-pix:cell=2,epsilon=1000000",
    "dp-pix:cell=2,epsilon=3,pixels=2000000000",
    *(f"dp-pix-gaussian:cell=1,rho={rho}" for rho in ("8128", "8129", "1e13")),
    "dp-pix-gaussian:cell=1,rho=10000,pixels=2",
)


def _refused() -> Iterator[Vector]:
    """What either end of the parameters gives; and the bounds themselves."""
    page = ("blur", "pixelize", "gaussian", "dp-pix", "dp-pix-gaussian")
    bounds = {name: {key: list(ends) for key, ends in BOUNDS[name].items()} for name in page}
    yield {"kind": "bounds", "answer": bounds}
    for spec in EXTREME:
        try:
            answer = protect.parse(spec).spec
        except SpecError as error:
            answer = str(error)
        yield {"kind": "refused", "spec": spec, "answer": answer}


def _pictures() -> Iterator[Vector]:
    """Photographs' shapes to a model's: centre, Lanczos, grey; and the digest of an image."""
    sizes = (
        ((60, 97), (28, 28)),
        ((97, 60), (28, 28)),
        ((33, 33), (32, 32)),
        ((20, 31), (40, 40)),
        ((50, 80), (24, 31)),
    )
    for seed, (found, wanted) in enumerate(sizes):
        image = _image((3, *found), seed=seed, kind=seed % 2)
        picture = Image.fromarray(image.permute(1, 2, 0).numpy())
        resized = ImageOps.fit(picture, wanted[::-1], Image.Resampling.LANCZOS)
        answer = np.asarray(resized).transpose(2, 0, 1).tobytes()
        yield _of(image, kind="fit", size=wanted, answer=_text(answer))
        yield _of(image, kind="grey", answer=_text(np.asarray(picture.convert("L")).tobytes()))
        yield _of(image, kind="digest", answer=digest(image).hex())


def _image(shape: tuple[int, ...], *, seed: int, kind: int) -> Tensor:
    """Random bytes (0), a smooth picture (1), or black and white alone (2)."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 256, shape, generator=generator)
    if kind == 1:
        values = (values.double().cumsum(1).cumsum(2) / 60).remainder(256)
    if kind == 2:
        values = (values > 127) * 255
    return values.to(torch.uint8)


def _of(image: Tensor, **words: Any) -> Vector:
    return {"shape": list(image.shape), "values": _text(image.numpy().tobytes()), **words}


def _ties(probabilities: list[Any]) -> tuple[int, ...]:
    """The first 16 binary digits of each."""
    return tuple(min(int(each * 65536), 65535) for each in probabilities)


def _real(value: Fraction) -> Any:
    return mpmath.mpf(value.numerator) / value.denominator


def _exact(value: Fraction) -> list[str]:
    return [str(value.numerator), str(value.denominator)]


def _text(data: bytes | bytearray) -> str:
    return base64.b64encode(bytes(data)).decode()


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(list(vectors())))
