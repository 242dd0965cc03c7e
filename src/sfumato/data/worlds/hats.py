"""Hats on photographs: the drawn hats of `faces` on the faces of any table or folder of photographs.

Real people, and a task of hundreds of classes independent of who they are: `headwear`. The photographs are
crops in which faces lie alike, as in LFW and CelebA: the crop positions the hat.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from sfumato.data.copies import in_two_splits
from sfumato.data.labelled import Label, LabelledImages, split_by_class
from sfumato.data.readers.folder import DEFAULT_SIZE, Root, Skip, folder
from sfumato.data.readers.listing import read_rows
from sfumato.data.readers.stored import memory
from sfumato.data.readers.table import table
from sfumato.data.splitting import SHARES
from sfumato.data.worlds import _hats
from sfumato.data.worlds._portraits import SCENE, spread
from sfumato.data.worlds.drawing import check_world, permutation, sensor_noise, uniforms
from sfumato.errors import ConfigError, DataError

# In shares of the image, measured on LFW's crops of 84 pixels, whose eyes are 22 apart at row 38.
EDGE = 24 / 84
WIDTH = 27 / 84
JITTER = 3 / 84  # of the position, up and down and to the sides

_SPLITS = ("train", "validation", "test")
_CHUNK_PIXELS = 48 * 64 * 64  # drawn at a time: they fit a core's cache


def hats(
    path: Root,
    *,
    size: int = DEFAULT_SIZE,
    headwear: int = 300,
    per_photo: int = 3,
    per_test_photo: int = 1,
    further: int = 0,
    identity: str | None = None,
    edge: float = EDGE,
    width: float = WIDTH,
    seed: int = 0,
    skip_unreadable: Skip = None,
) -> LabelledImages:
    """Photographs of faces, each in one or more drawn hats. Splits share neither people nor hats.

    People have the splits of the table, or are dealt to splits if it has none; photographs in no split, for
    adversaries to learn from, wear one training hat each. Inside a split hats are dealt as in `faces`, and
    those of one photograph all differ. Distractors wear hats of the test split, so that no adversary
    distinguishes them by their hats.

    Args:
        path: a CSV as for `table`, or a folder as for `folder`.
        size, skip_unreadable: see `folder`.
        headwear: how many kinds of hat, over all splits; each split gets two or more.
        per_photo: how many hats each training photograph gets, one an image.
        per_test_photo: the same for all other photographs. Above 1 an adversary who knows one image of a
            person has to name another of the same photograph.
        further: hats more on each test photograph, as further pictures of these people.
        identity: the label of the person; None takes `identity`, or else the first label.
        edge: the row of a hat's lower edge in the middle of the image, from 0 (top) to 1, give or take 3/84.
        width: half the width of a head, as a share of the image; hats fit it, give or take a tenth.

    Returns:
        images by photograph, in the order of the source, with the labels of the source and `headwear`; then
        those in no split and the further ones. If photographs have several hats, `original` names the
        photograph of an image.
    """
    numbers = {"headwear": headwear, "per_photo": per_photo, "per_test_photo": per_test_photo}
    check_world("hats", size=size, most=512, usual=84, seed=seed, **numbers)
    for key, value in {"edge": edge, "width": width}.items():
        if not 0.1 <= value <= 0.9:
            raise ConfigError(
                f"hats: {key} is a share of the image, 0.1 to 0.9, got {value:g}: measure it on photographs"
            )
    source, who = _photographs(Path(path), size, identity, skip_unreadable)
    name = f"hats:{path}"
    _check_people(name, source, who)
    if source.are_grey:
        raise DataError(
            f"{name}: the photographs are grey, and on grey a hat is found by having a colour: "
            "take photographs in colour"
        )
    if "headwear" in source.labels:
        raise DataError(f"{name}: has a label 'headwear' already: rename that column")

    each = {split: per_photo if split == "train" else per_test_photo for split in source.splits}
    dealt = _deal(name, each, headwear, seed)
    copies = torch.zeros(len(source), dtype=torch.int64)  # of each photograph
    for split, rows in source.splits.items():
        copies[rows] = each[split]
    spare, test = (copies == 0).nonzero().flatten(), source.splits.get("test", copies[:0])
    count = int(copies.sum()) + len(spare) + further * len(test)
    if count * math.prod(source.images.shape[1:]) > memory():
        raise ConfigError(
            f"{name}: {count} images of {size}x{size} are more than the {memory()} bytes of SFUMATO_MEMORY: "
            "ask for fewer hats a photograph or smaller images, or raise it"
        )
    photograph = torch.arange(len(source)).repeat_interleave(copies)
    kinds, splits = torch.empty(len(photograph), dtype=torch.int64), {}
    for split, rows in source.splits.items():
        splits[split] = torch.isin(photograph, rows).nonzero().flatten()
        kinds[splits[split]] = _hands(dealt[split], len(rows), each[split], seed, split).flatten()
    for split, rows, more in (("train", spare, 1), ("test", test, further)):
        if more and len(rows):
            splits |= {"further": torch.arange(len(kinds), count)} if split == "test" else {}
            kinds = torch.cat([kinds, _hands(dealt[split], len(rows), more, seed, f"more {split}").flatten()])
            photograph = torch.cat([photograph, rows.repeat_interleave(more)])

    scene = uniforms(seed, "hats on photographs", count, len(SCENE))
    images = torch.empty(count, *source.images.shape[1:], dtype=torch.uint8)
    worn = _hats.kinds(headwear, seed=seed).rows(kinds)
    step = max(1, _CHUNK_PIXELS // size**2)
    # Hats of one family share their code: they are drawn together.
    for family in worn.family.unique():
        for part in torch.split((worn.family == family).nonzero().flatten(), step):
            behind = source.images[photograph[part]]
            images[part], _ = put_on(behind, worn.rows(part), scene[part], edge=edge, width=width)
    labels = {key: Label(label.codes[photograph], label.names) for key, label in source.labels.items()}
    labels["headwear"] = Label(kinds, tuple(f"hat-{i:04d}" for i in range(headwear)))
    if max(per_photo, per_test_photo, further) > 1 and "original" not in labels:
        labels["original"] = Label(photograph, tuple(f"photograph-{i:06d}" for i in range(len(source))))
    return LabelledImages(name, images, labels, splits)


def put_on(
    photographs: Tensor, worn: _hats.Hats, scene: Tensor, *, edge: float = EDGE, width: float = WIDTH
) -> tuple[Tensor, Tensor]:
    """Draws one hat on each photograph. All other pixels keep their bytes.

    (B, 3, H, W) uint8 photographs, B hats of ONE family, and (B, len(SCENE)) numbers in [0, 1) for position,
    size, tilt and light of each -> (B, 3, H, W) uint8 images, and (B, H, W) how much of each pixel is hat.
    """
    height, wide = photographs.shape[-2:]
    s = spread(scene, SCENE)
    unit = wide * width * s["size"] / _middle("size")  # pixels, (B, 1, 1)
    sideways = (s["x"] / SCENE["x"][1]) * JITTER * wide
    down = (s["y"] - _middle("y")) / (SCENE["y"][1] - _middle("y")) * JITTER
    lower = ((edge + down) * height).round()  # the first row below the hat
    x = (torch.arange(wide) + 0.5 - wide / 2 - sideways) / unit  # (B, 1, W)

    def draw(columns: slice, above: Tensor) -> _hats.Worn:
        """Hats in some columns, and in rows at a given height, in pixels, above the rim."""
        across, up = torch.broadcast_tensors(x[:, :, columns], above / unit)
        return _hats.wear(worn, across, up, 1 / unit, tilt=s["tilt"], fade=s["fade"], phase=s["yaw"] * 4)

    # The height of the rim for which the lowest pixel in the middle of the image is above `lower`: brims and
    # peaks reach below it, headbands do not reach down to it.
    rows = torch.arange(-height, height)[None, :, None] + 0.5
    middle = draw(slice(wide // 2 - 1, wide // 2 + 1), rows)
    touched = ((middle.body > 0) | (middle.trim > 0)).any(2)  # (B, 2H), from below to above the rim
    lowest = rows[0, touched.long().argmax(1)][:, :, None]  # (B, 1, 1)
    row = torch.arange(height)[None, :, None]
    hat = draw(slice(None), lower - row - 1 + lowest)

    slope = s["light_x"] * (torch.arange(wide) * (2 / wide) - 1) + s["light_y"] * (row * (2 / height) - 1)
    tint = torch.stack([s[colour] for colour in ("red", "green", "blue")], 1) * s["gain"][:, None]
    light = tint * ((1 + slope) * hat.shade)[:, None] * 255  # (B, 3, H, W)
    noise = sensor_noise(s["noise"].flatten(), photographs[0].numel()).view(photographs.shape)
    grain = noise * s["grain"][:, None]
    image = photographs.float()
    for colour, cover in ((hat.cloth, hat.body), (hat.ribbon, hat.trim)):
        # Not a step from one to the other: its rounding would depend on the pixels under the hat.
        image = image * (1 - cover[:, None]) + (colour * light + grain) * cover[:, None]
    whole = 1 - (1 - hat.body) * (1 - hat.trim)
    return image.round_().clamp_(0, 255).to(torch.uint8), whole


def _middle(name: str) -> float:
    return sum(SCENE[name]) / 2


def _photographs(
    path: Path, size: int, identity: str | None, skip_unreadable: Skip
) -> tuple[LabelledImages, str]:
    if path.is_dir():
        source = folder(path, size=size, skip_unreadable=skip_unreadable)
        who = identity or "class"
    elif path.is_file():
        header, _ = read_rows(path, columns=("file",), of="photograph")
        who = identity or ("identity" if "identity" in header else "")
        source = table(path, size=size, split_by=who or None, skip_unreadable=skip_unreadable)
        who = who or next(iter(source.labels))
    else:
        raise DataError(
            f"hats:{path}: no such table or folder: hats are put on photographs of faces: name a CSV with a "
            "column 'file' and one that says who, or a folder with a sub-folder per person"
        )
    source.label(who)
    return source, who


def _check_people(name: str, source: LabelledImages, who: str) -> None:
    """Raises DataError for photographs in no split, a split without any, or somebody in two splits."""
    if not source.splits:
        raise DataError(f"{name}: no photograph is in a split: fill in the column 'split', or remove it")
    for split, rows in source.splits.items():
        if not len(rows):
            raise DataError(
                f"{name}: no photographs are left for {split}: {len(source.classes(who))} values of {who!r} "
                "are dealt to three splits: take 6 or more, or add a column 'split'"
            )
    if both := in_two_splits(source.label(who), source.splits):
        raise DataError(
            f"{name}: {who} {both[0]!r} is in more than one split: remove the split column, and people are "
            "dealt to splits, or say by identity= which label says who"
        )


def _deal(name: str, each: Mapping[str, int], headwear: int, seed: int) -> dict[str, Tensor]:
    """The hats of each split: no two share hats, but distractors wear those of the test split.

    Raises ConfigError if there are too few, or fewer than the hats of each photograph of a split.
    """
    wearing = {"test" if split == "distractors" else split for split in each}
    shares = [share * (split in wearing) for split, share in zip(_SPLITS, SHARES, strict=True)]
    least = 2 * len(wearing)
    if headwear < least:
        raise ConfigError(
            f"{name}: headwear={headwear}: {len(wearing)} splits share no hats and a task needs two in each: "
            f"ask for at least {least}"
        )
    first, middle, last = (share / sum(shares) for share in shares)
    dealt = split_by_class(torch.arange(headwear), shares=(first, middle, last), seed=seed)
    dealt["distractors"] = dealt["test"]
    for split, asked in each.items():
        if asked > len(dealt[split]):
            raise ConfigError(
                f"{name}: {asked} hats a photograph, and {split} has {len(dealt[split])}: "
                "ask for fewer a photograph, or for more headwear"
            )
    return dealt


def _hands(kinds: Tensor, photographs: int, each: int, seed: int, split: str) -> Tensor:
    """(photographs, each) hats: all different on one photograph, and all kinds equally often.

    It shuffles decks of all kinds, and deals hands from each as long as it lasts.
    """
    hands = len(kinds) // each  # of one deck
    decks = math.ceil(photographs / hands)
    shuffled = uniforms(seed, f"decks of hats of {split}", decks, len(kinds)).argsort(dim=1, stable=True)
    dealt = kinds[shuffled[:, : hands * each]].reshape(-1, each)[:photographs]
    # Those of one person are consecutive: one deck would give them no hat twice.
    return dealt[permutation(seed, f"hands of {split}", photographs)]
