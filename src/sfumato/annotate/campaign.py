"""The items of a campaign, made from originals and their reconstructions, with their answers.

Source: the SemSim paper (docs/papers.md, "SemSim"), Sec. 4.1. For objects, people see a reconstruction and
choose among 20 classes; for faces and fine-grained classes, they see original and reconstruction side by side
and say whether both show the same; some of these pairs, the decoys, do not belong together.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from sfumato.base.files import below
from sfumato.data.readers.listing import read_rows
from sfumato.episodes import seed_of
from sfumato.errors import ConfigError, DataError, did_you_mean

CHOOSE, SAME = TASKS = ("choose", "same")
CANNOT_TELL = "cannot tell"
THE_SAME, DIFFERENT = "same", "different"

COLUMNS = ("original", "reconstruction", "class", "model", "source")

# Each class has a key: the digits, then letters up to the key for undo.
MOST_OPTIONS = len("1234567890abcdefghijklmnopqrst")

_OPTIONS_STREAM, _DECOYS_STREAM, _ORDER_STREAM, _BALANCE_STREAM = range(4)


@dataclass(frozen=True, kw_only=True)
class CampaignConfig:
    """The questions, and the number of annotators, who answer every item.

    Attributes:
        task: "choose", the class of a reconstruction among several, or "same", whether original and
            reconstruction show the same.
        options: for "choose": classes that an item offers, including the true one.
        decoys: for "same": the share of items whose reconstruction is of another original. The paper has
            some, without a number.
    """

    task: str
    annotators: int = 5
    options: int = 20
    decoys: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise ConfigError(f"no task is called {self.task!r}: {did_you_mean(self.task, TASKS)}")
        if self.annotators < 1:
            raise ConfigError(f"annotators={self.annotators}: at least 1 (5 in the paper)")
        if not 2 <= self.options <= MOST_OPTIONS:
            raise ConfigError(
                f"options={self.options}: 2 to {MOST_OPTIONS}, a key for each (20 in the paper)"
            )
        if not 0 <= self.decoys <= 0.5:
            raise ConfigError(f"decoys={self.decoys:g}: a share of all items, 0 to 0.5 (such as 0.2)")
        if self.seed < 0:
            raise ConfigError(f"seed={self.seed}: at least 0")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The files of an original and of its reconstruction by an attack on `model`, or on another group.

    `true_class`: the content of the original, a class or a person. Options and decoys are of one source.
    """

    original: Path
    reconstruction: Path
    true_class: str
    model: str
    source: str


@dataclass(frozen=True)
class Item:
    """One question, with the answers offered in addition to "cannot tell".

    `key` is its name on a page, which tells nothing, and `images` are the files of a campaign that it shows.
    """

    pair: Pair
    options: tuple[str, ...]
    decoy: bool = False
    key: str = ""
    images: tuple[str, ...] = ()

    @property
    def right(self) -> str:
        """The answer of an annotator who recognises everything."""
        if self.options != (THE_SAME, DIFFERENT):  # not classes with these names, which would be sorted
            return self.pair.true_class
        return DIFFERENT if self.decoy else THE_SAME


def read_pairs(path: str | os.PathLike[str]) -> list[Pair]:
    """Read a CSV with a header of COLUMNS; image files are below its folder, see sfumato.base.files.below.

    A row with an empty value, or a file that does not exist, is a DataError that names its line.
    """
    path = Path(path)
    _, rows = read_rows(path, columns=COLUMNS, of="reconstruction")
    pairs = []
    for line, row in rows:
        files = [below(path.parent.absolute(), row[name], line) for name in COLUMNS[:2]]
        for file in files:
            if not file.is_file():
                raise DataError(f"{line}: {file}: no such file: correct or remove the row")
        named = {"true_class": row["class"], "model": row["model"], "source": row["source"]}
        pairs.append(Pair(original=files[0], reconstruction=files[1], **named))
    return pairs


def draw_balanced(pairs: Sequence[Pair], count: int, *, seed: int) -> list[Pair]:
    """Draw pairs, balanced over sources and models, and over many originals.

    Sources take turns, and in each its models, with the pair whose original was drawn least, ties by chance.
    """
    if count < 1:
        raise ConfigError(f"a campaign of {count} pairs: ask about at least 1 (such as 200)")
    if len(pairs) < count:
        raise DataError(f"{count} pairs are to be drawn from {len(pairs)}: ask about fewer")
    order = torch.randperm(len(pairs), generator=_generator(seed, _BALANCE_STREAM))
    left, drawn, times = [pairs[row] for row in order], [], Counter[object]()
    for _ in range(count):
        groups = [[each.source, (each.source, each.model), each.original] for each in left]
        pair = left.pop(min(range(len(left)), key=lambda row: [times[group] for group in groups[row]]))
        times.update([pair.source, (pair.source, pair.model), pair.original])
        drawn.append(pair)
    return drawn


def items(pairs: Sequence[Pair], config: CampaignConfig) -> list[Item]:
    """Make the questions of a campaign; the same seed makes the same ones.

    "choose": one item for each pair. Its options are the true class and others of the same source, drawn for
    the item and sorted; all classes of the source if there are no more than `options`.

    "same": one item for each pair, followed by decoys up to the share `decoys` of all, at least one. A decoy
    shows the reconstruction of another original of the same source AND of another class: whether an annotator
    thinks of "the same picture", "person" or "category", it is not the same.
    """
    if not pairs:
        raise DataError("a campaign has no pairs: list at least one reconstruction")
    classes: dict[str, set[str]] = defaultdict(set)
    for pair in pairs:
        classes[pair.source].add(pair.true_class)
    if config.task == CHOOSE:
        return _choices(pairs, {source: sorted(names) for source, names in classes.items()}, config)
    both = (THE_SAME, DIFFERENT)
    decoys = _decoys(pairs, config) if config.decoys else []
    return [Item(pair, both) for pair in pairs] + [Item(pair, both, decoy=True) for pair in decoys]


def order(count: int, annotator: int, *, seed: int) -> list[int]:
    """Return the random order of all items for one annotator."""
    return torch.randperm(count, generator=_generator(seed, _ORDER_STREAM, annotator)).tolist()


def _choices(pairs: Sequence[Pair], classes: dict[str, list[str]], config: CampaignConfig) -> list[Item]:
    for source, names in classes.items():
        if len(names) < 2:
            raise DataError(
                f"source {source!r} has only one class, {names[0]!r}, so every choice is right: add "
                "pairs of other classes, or ask with the task 'same'"
            )
        if CANNOT_TELL in names:
            raise DataError(f"source {source!r}: a class is called {CANNOT_TELL!r} like an answer: rename it")
    generator = _generator(config.seed, _OPTIONS_STREAM)
    made = []
    for pair in pairs:
        others = [name for name in classes[pair.source] if name != pair.true_class]
        drawn = torch.randperm(len(others), generator=generator)[: config.options - 1]
        made.append(Item(pair, tuple(sorted([pair.true_class, *(others[i] for i in drawn)]))))
    return made


def _decoys(pairs: Sequence[Pair], config: CampaignConfig) -> list[Pair]:
    generator = _generator(config.seed, _DECOYS_STREAM)
    count = max(1, round(len(pairs) * config.decoys / (1 - config.decoys)))
    made = []
    for row in torch.randperm(len(pairs), generator=generator)[:count]:
        mine = pairs[row]
        others = [one for one in pairs if one.source == mine.source and one.true_class != mine.true_class]
        if not others:
            raise DataError(
                f"source {mine.source!r} has only one class, {mine.true_class!r}, so no decoy can be "
                "made: add pairs of other classes, or set decoys=0"
            )
        other = others[int(torch.randint(len(others), (), generator=generator))]
        made.append(replace(mine, reconstruction=other.reconstruction, model=other.model))
    return made


def _generator(*seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(*seed))
