"""Proxy annotators: recognisers that stand in for people.

Source: the SemSim paper (docs/papers.md, "SemSim"), Sec. 4.4: ranking models by the recognition of
classifiers with 82% and 65% accuracy agrees with people by a Kendall correlation of 0.70 and 0.50. Proxies
are not people: campaign, page and tables say which of the two answered, and no campaign has both.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from sfumato import images
from sfumato.annotate.campaign import CANNOT_TELL, CHOOSE, DIFFERENT, SAME, THE_SAME
from sfumato.annotate.store import Store
from sfumato.errors import ConfigError, DataError

_BATCH = 256


@dataclass(frozen=True)
class Proxy:
    """Answers "choose".

    Attributes:
        name: the name of its answers.
        classify: (N, C, H, W) uint8 -> N class names, None if it cannot tell. A class that an item does
            not offer counts as "cannot tell" there, as for people who miss their class in the list.
    """

    name: str
    classify: Callable[[Tensor], Sequence[str | None]]


@dataclass(frozen=True)
class PairProxy:
    """Answers "same".

    Attributes:
        name: the name of its answers.
        compare: (N, C, H, W) uint8 originals and as many reconstructions -> N bools, None if it cannot
            tell.
    """

    name: str
    compare: Callable[[Tensor, Tensor], Sequence[bool | None]]


def by_classifier(path: Path, *, threshold: float) -> Proxy:
    """Make a proxy from an artefact of `sfumato.learn.classifier`, named like the file.

    Args:
        path: the artefact.
        threshold: it cannot tell if the softmax of its best class is below this, 0 to 1.

    Raises:
        ConfigError: the threshold is out of range.
        ArtefactError: damaged, foreign, or not a classifier.
    """
    from sfumato.learn import classifier

    if not 0 <= threshold <= 1:
        raise ConfigError(f"threshold={threshold:g}: a probability, 0 to 1 (such as 0.5)")
    model = classifier.load(path).eval()
    wanted = tuple(model.card["shape"])

    @torch.no_grad()
    def classify(shown: Tensor) -> list[str | None]:
        if tuple(shown.shape[1:]) != wanted:
            found, needed = ("x".join(map(str, each)) for each in (shown.shape[1:], wanted))
            raise DataError(
                f"{path}: trained on images of {needed}, and the campaign shows {found}: name a classifier "
                "of that size"
            )
        confidence, best = model(shown).softmax(1).max(1)
        return [
            model.classes[code] if sure >= threshold else None
            for sure, code in zip(confidence.tolist(), best.tolist(), strict=True)
        ]

    return Proxy(path.stem, classify)


def by_embedding(name: str, embed: Callable[[Tensor], Tensor], *, threshold: float) -> PairProxy:
    """Make a proxy that calls two images the same if the cosine of their embeddings is high enough.

    Args:
        name: of the proxy.
        embed: (N, C, H, W) uint8 -> (N, D) float, of any norm.
        threshold: the least cosine, -1 to 1. This proxy always decides.

    Raises:
        ConfigError: the threshold is out of range.
    """
    if not -1 <= threshold <= 1:
        raise ConfigError(f"threshold={threshold:g}: a cosine, -1 to 1 (such as 0.5)")

    def compare(originals: Tensor, reconstructions: Tensor) -> list[bool | None]:
        cosines = functional.cosine_similarity(embed(originals), embed(reconstructions))
        return [cosine >= threshold for cosine in cosines.tolist()]

    return PairProxy(name, compare)


def by_encoder(path: Path, *, threshold: float) -> PairProxy:
    """Make a proxy from an artefact of `sfumato.learn.few_shot`, named like the file; see `by_embedding`.

    Raises:
        ArtefactError: damaged, foreign, or of another kind.
    """
    from sfumato.learn import few_shot

    model = few_shot.load(path)

    def embed(shown: Tensor) -> Tensor:
        if shown.shape[1] != model.card["channels"]:
            raise DataError(
                f"{path}: trained on images of {model.card['channels']} channels, and the campaign shows "
                f"{shown.shape[1]}: name an encoder of these"
            )
        return model.embed(shown)

    return by_embedding(path.stem, embed, threshold=threshold)


def fill(store: Store, proxies: Sequence[Proxy] | Sequence[PairProxy]) -> None:
    """Let proxies answer every item of a campaign, all of them or none.

    Raises:
        ConfigError: no proxies, two with one name, or one for the other task.
        DataError: people or one of these proxies answered before; or a proxy needs images of another size.
    """
    kind = Proxy if store.config.task == CHOOSE else PairProxy
    if not proxies:
        raise ConfigError("no proxies: name at least one recogniser (the paper asks 5 people)")
    names = [one.name for one in proxies]
    if len(set(names)) < len(names):
        raise ConfigError(f"proxies need names that differ, got {', '.join(names)}: rename one")
    for one in proxies:
        if not isinstance(one, kind):
            raise ConfigError(
                f"{one.name}: a {type(one).__name__} cannot answer {store.config.task!r}: "
                f"a classifier answers {CHOOSE!r}, an encoder {SAME!r}"
            )
    answers: dict[str, dict[int, str]] = {name: {} for name in names}
    asked = store.items()
    numbers = list(asked)
    for start in range(0, len(numbers), _BATCH):
        # Images of one shape make a batch.
        alike: dict[tuple[torch.Size, ...], list[tuple[int, list[Tensor]]]] = defaultdict(list)
        for number in numbers[start : start + _BATCH]:
            shown = [images.read(png, channels=None) for png in store.read_pngs(number)]
            alike[tuple(image.shape for image in shown)].append((number, shown))
        for group in alike.values():
            batches = [torch.stack(each) for each in zip(*(shown for _, shown in group), strict=True)]
            for one in proxies:
                said = _answers(one, batches)
                for (number, _), answer in zip(group, said, strict=True):
                    offered = answer in asked[number].options
                    answers[one.name][number] = str(answer) if offered else CANNOT_TELL
    store.add_proxies(answers)


def _answers(proxy: Proxy | PairProxy, batches: list[Tensor]) -> Sequence[str | None]:
    if isinstance(proxy, Proxy):
        return proxy.classify(*batches)
    said = proxy.compare(*batches)
    return [None if one is None else (DIFFERENT, THE_SAME)[one] for one in said]
