"""Proxy annotators: recognisers that stand in for people.

Source: the SemSim paper (docs/papers.md, "SemSim"), Sec. 4.4: ranking models by the recognition of
classifiers with 82% and 65% accuracy agrees with people by a Kendall correlation of 0.70 and 0.50. Proxies
are not people: campaign and tables say which of the two answered, and no campaign has both.
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
from sfumato.annotate.folder import Campaign
from sfumato.errors import ConfigError, DataError

_BATCH = 256


@dataclass(frozen=True)
class Proxy:
    """A recogniser that answers questions of one task.

    Attributes:
        name: the name of its answers.
        task: "choose" or "same".
        answer: (N, C, H, W) uint8 reconstructions, after as many originals for "same" -> N answers. One that
            an item does not offer counts as "cannot tell" there, as for people who miss their class.
    """

    name: str
    task: str
    answer: Callable[..., Sequence[str]]


def by_classifier(path: Path, *, threshold: float) -> Proxy:
    """Make a proxy for "choose" from an artefact of `sfumato.learn.classifier`, named like the file.

    It cannot tell if the softmax of its best class is below the threshold, 0 to 1.
    """
    from sfumato.learn import classifier

    if not 0 <= threshold <= 1:
        raise ConfigError(f"threshold={threshold:g}: a probability, 0 to 1 (such as 0.5)")
    model = classifier.load(path).eval()
    wanted = tuple(model.card["shape"])

    @torch.no_grad()
    def classify(shown: Tensor) -> list[str]:
        if tuple(shown.shape[1:]) != wanted:
            given, needed = ("x".join(map(str, each)) for each in (shown.shape[1:], wanted))
            raise DataError(
                f"{path}: trained on images of {needed}, and the campaign shows {given}: name a classifier "
                "of that size"
            )
        confidence, best = model(shown).softmax(1).max(1)
        return [
            model.classes[code] if sure >= threshold else CANNOT_TELL
            for sure, code in zip(confidence.tolist(), best.tolist(), strict=True)
        ]

    return Proxy(path.stem, CHOOSE, classify)


def by_encoder(path: Path, *, threshold: float) -> Proxy:
    """Make a proxy for "same" from an artefact of `sfumato.learn.few_shot`, named like the file.

    Two images are the same if the cosine of their embeddings is at least the threshold, -1 to 1.
    """
    from sfumato.learn import few_shot

    if not -1 <= threshold <= 1:
        raise ConfigError(f"threshold={threshold:g}: a cosine, -1 to 1 (such as 0.5)")
    model = few_shot.load(path)

    def compare(originals: Tensor, reconstructions: Tensor) -> list[str]:
        if originals.shape[1] != model.card["channels"]:
            raise DataError(
                f"{path}: trained on images of {model.card['channels']} channels, and the campaign shows "
                f"{originals.shape[1]}: name an encoder of these"
            )
        cosines = functional.cosine_similarity(model.encode(originals), model.encode(reconstructions))
        return [THE_SAME if cosine >= threshold else DIFFERENT for cosine in cosines.tolist()]

    return Proxy(path.stem, SAME, compare)


def fill(campaign: Campaign, proxies: Sequence[Proxy]) -> None:
    """Let proxies answer every item of a campaign, all of them or none.

    DataError if people or one of these proxies answered before, or one needs images of another size.
    """
    if not proxies:
        raise ConfigError("no proxies: name at least one recogniser (the paper asks 5 people)")
    answers: dict[str, dict[int, str]] = {one.name: {} for one in proxies}
    if len(answers) < len(proxies):
        names = ", ".join(one.name for one in proxies)
        raise ConfigError(f"proxies need names that differ, got {names}: rename one")
    for one in proxies:
        if one.task != campaign.config.task:
            raise ConfigError(
                f"{one.name}: answers {one.task!r}, and the campaign asks {campaign.config.task!r}: "
                f"a classifier answers {CHOOSE!r}, an encoder {SAME!r}"
            )
    numbers = list(campaign.items)
    for start in range(0, len(numbers), _BATCH):
        # Images of one shape make a batch.
        alike: dict[tuple[torch.Size, ...], list[tuple[int, list[Tensor]]]] = defaultdict(list)
        for number in numbers[start : start + _BATCH]:
            shown = [images.read(png, channels=None) for png in campaign.read_pngs(number)]
            alike[tuple(image.shape for image in shown)].append((number, shown))
        for group in alike.values():
            batches = [torch.stack(each) for each in zip(*(shown for _, shown in group), strict=True)]
            for one in proxies:
                for (number, _), answer in zip(group, one.answer(*batches), strict=True):
                    offered = answer in campaign.items[number].options
                    answers[one.name][number] = answer if offered else CANNOT_TELL
    campaign.add_proxies(answers)
