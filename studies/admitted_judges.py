"""Judges: proxies from public weights, and the rule for admitting a proxy.

A judge who cannot name a clean photograph cannot say whether a reconstruction still shows it. In the SemSim
paper (docs/papers.md, "SemSim", Sec. 4.4) most of the agreement with people is lost between a stand-in of 82%
and one of 65%. So a judge must be right on at least LEAST_RIGHT of clean test images. A data set without
enough such judges is left out and named, rather than judged by weaker ones.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from mini_xception import EMOTIONS, MiniXception
from torch import Tensor
from torch.nn import functional

from sfumato.annotate.proxies import PairProxy, Proxy
from sfumato.base.proportions import wilson
from sfumato.errors import ConfigError, DataError
from sfumato.images import to_float
from sfumato.networks import MobileFaceNet, align
from sfumato.networks.encoders.pretrained import open_pretrained, parse_pretrained

LEAST_RIGHT: Final = 0.85
LEAST_JUDGES: Final = 2  # for a data set: a single one agrees with itself

_BATCH = 128


@dataclass(frozen=True)
class Ability:
    """A proxy's success on clean images outside of its training; "cannot tell" counts as wrong.

    Attributes:
        name: of the proxy.
        right, trials: numbers of answers.
    """

    name: str
    right: int
    trials: int

    @property
    def share(self) -> float:
        """The share of right answers."""
        return self.right / self.trials

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95% interval (Wilson)."""
        return wilson(self.right, self.trials)

    @property
    def able(self) -> bool:
        """Whether it may judge: LEAST_RIGHT or more."""
        return self.share >= LEAST_RIGHT


def ability(proxy: Proxy, images: Tensor, classes: Sequence[str]) -> Ability:
    """Test a choosing proxy on (N, C, H, W) uint8 clean images of known classes."""
    _check_asked(len(images), len(classes))
    said = [answer for part in images.split(_BATCH) for answer in proxy.classify(part)]
    right = sum(answer == truth for answer, truth in zip(said, classes, strict=True))
    return Ability(proxy.name, right, len(said))


def ability_on_pairs(proxy: PairProxy, first: Tensor, second: Tensor, same: Tensor) -> Ability:
    """Test a comparing proxy on clean pairs, (N, C, H, W) uint8 each; `same`: (N,) bool, the truth."""
    _check_asked(len(first), len(same))
    parts = zip(first.split(_BATCH), second.split(_BATCH), strict=True)
    said = [answer for part in parts for answer in proxy.compare(*part)]
    right = sum(
        answer is not None and answer == truth for answer, truth in zip(said, same.tolist(), strict=True)
    )
    return Ability(proxy.name, right, len(said))


def _check_asked(images: int, truths: int) -> None:
    if images != truths or not images:
        raise DataError(
            f"{images} images with {truths} truths: test a judge on one image or more, with a truth each"
        )


@dataclass(frozen=True)
class Admitted:
    """The judges of data sets.

    Attributes:
        judges: maps each data set with enough judges to their names.
        left_out: a sentence for each other data set: its name, and the shortfall of its judges.
    """

    judges: dict[str, tuple[str, ...]]
    left_out: tuple[str, ...]


def admit(tests: Mapping[str, Sequence[Ability]], *, least: int = LEAST_JUDGES) -> Admitted:
    """Admit the proxies that are right often enough; data sets with fewer than `least` are left out.

    Args:
        tests: maps a data set to the test results of its proxies.
        least: the least number of judges of a data set.
    """
    if least < 1:
        raise ConfigError(f"least={least}: a data set needs one judge or more")
    judges, left_out = {}, []
    for name, proxies in tests.items():
        able = tuple(each.name for each in proxies if each.able)
        if len(able) >= least:
            judges[name] = able
            continue
        figures = ", ".join(f"{each.name} {100 * each.share:.0f}%" for each in proxies) or "nobody"
        left_out.append(
            f"{name} is left out: {len(able)} of its {len(proxies)} judges are right on "
            f"{100 * LEAST_RIGHT:.0f}% of clean test images or more, and {least} are needed ({figures})"
        )
    return Admitted(judges, tuple(left_out))


def face_embedding(path: Path, *, landmarks: Tensor) -> Callable[[Tensor], Tensor]:
    """Return MobileFaceNet on faces of one frame, for `proxies.by_embedding`: whether two show one person.

    No detector is used: it would fail on a reconstruction, which does not answer who it is.

    Args:
        path: the weights, see networks.MobileFaceNet.
        landmarks: (5, 2) x and y of eyes, nose and corners of the mouth, as shares of width and height, the
            same for every image of the data set, as in aligned photographs.

    Returns:
        (N, 1 or 3, H, W) uint8 -> (N, 128) float32.

    Raises:
        ArtefactError: the file is missing, or is not the right one.
    """
    network = MobileFaceNet.load(path)

    def embed(shown: Tensor) -> Tensor:
        sides = torch.tensor([shown.shape[3], shown.shape[2]])
        placed = (landmarks * sides).expand(len(shown), -1, -1)
        return network.embed(align(shown.expand(-1, 3, -1, -1), placed))

    return embed


def by_emotion(path: Path, *, threshold: float, names: Callable[[str], str | None] = str) -> Proxy:
    """Make a proxy that names the emotion of a face by mini-Xception; named like the file.

    Args:
        path: the weights, see networks.mini_xception.
        threshold: it cannot tell if the probability of its best answer is below this, 0 to 1.
        names: maps an emotion to its name in the campaign, such as "happy" to "smile"; probabilities of
            emotions with one name are added. None for emotions that are not offered.

    Raises:
        ConfigError: the threshold is out of range.
        ArtefactError: the file is missing, or is not the right one.
    """
    _check_probability(threshold)
    network = MiniXception.load(path)
    called = [names(emotion) for emotion in EMOTIONS]
    offered = sorted({name for name in called if name is not None})
    of = torch.tensor([[float(name == each) for each in called] for name in offered])  # (names, 7)

    def classify(shown: Tensor) -> list[str | None]:
        sure, best = (network.classify(shown) @ of.T).max(1)
        return [
            offered[place] if certain >= threshold else None
            for certain, place in zip(sure.tolist(), best.tolist(), strict=True)
        ]

    return Proxy(path.stem, classify)


def by_centroids(
    path: Path, images: Tensor, classes: Sequence[str], *, size: int, margin: float = 0.0
) -> Proxy:
    """Make a proxy that names the class with the nearest mean of SqueezeNet features.

    Features are the last stage, averaged over positions, minus their mean over the training images (Mensink
    et al. 2013, nearest class mean; centred as in SimpleShot, Wang et al. 2019), and compared by their
    cosine.

    Args:
        path: the weights of SqueezeNet 1.0; the proxy is named like the file.
        images: (N, C, H, W) uint8 training images, not those to judge.
        classes: the class of each.
        size: side of SqueezeNet's input in pixels.
        margin: it cannot tell if the cosine of the best class exceeds that of the next by less than this, at
            least 0.

    Raises:
        ConfigError: a margin below 0, or fewer than two classes.
        ArtefactError: the file is missing, or is not the right one.
    """
    known = sorted(set(classes))
    if margin < 0 or len(known) < 2:
        raise ConfigError(
            f"margin={margin:g} and {len(known)} classes: the margin must be at least 0, with two classes or "
            "more"
        )
    encoder = open_pretrained(parse_pretrained(f"squeeze-net:{path},size={size}"))

    @torch.no_grad()
    def features(shown: Tensor) -> Tensor:
        return torch.cat([encoder.raw(to_float(part)) for part in shown.split(_BATCH)])

    seen = features(images)
    middle = seen.mean(0)
    codes = torch.tensor([known.index(name) for name in classes])
    towards = functional.normalize(seen - middle)
    centroids = functional.normalize(
        torch.stack([towards[codes == code].mean(0) for code in range(len(known))])
    )

    def classify(shown: Tensor) -> list[str | None]:
        cosines = functional.normalize(features(shown) - middle) @ centroids.T  # (N, classes)
        (first, second), (best, _) = (each.unbind(1) for each in cosines.topk(2))
        return [
            known[place] if ahead >= margin else None
            for ahead, place in zip((first - second).tolist(), best.tolist(), strict=True)
        ]

    return Proxy(path.stem, classify)


def _check_probability(threshold: float) -> None:
    if not 0 <= threshold <= 1:
        raise ConfigError(f"threshold={threshold:g}: a probability, 0 to 1 (such as 0.5)")
