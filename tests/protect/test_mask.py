"""Masks: exactly K pixels, nothing of the others, and no claim that anything is proved."""

import math
import operator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from sfumato import artefacts, images
from sfumato.base.engines import EngineConfig
from sfumato.device.jobs.folder import FolderConfig, protect_folder, protect_image
from sfumato.device.ledger import Ledger
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ConfigError, DataError, SpecError
from sfumato.protect import mask as masks
from sfumato.protect import parse, unpack
from sfumato.protect.mask import Mask, Masker, pixels_shown, top_pixels
from sfumato.protect.release import Release

NOISE = seeded_noise(0)
SIZE = (20, 18)


def write_artefact(path: Path, *, channels: int = 3, size: tuple[int, int] = SIZE, keep: float = 0.25) -> str:
    """A masker that nobody trained."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        masker = masks.make_masker(channels, width=4, levels=2)
    card = {"kind": "mask", "shape": [channels, *size]}
    card["config"] = {"keep": keep, "masker_width": 4, "levels": 2}
    artefacts.save(path, {f"masker.{k}": v for k, v in masker.state_dict().items()}, card)
    return str(path)


@pytest.fixture
def artefact(tmp_path: Path) -> str:
    return write_artefact(tmp_path / "mask.safetensors")


def pictures(count: int = 6, channels: int = 3, size: tuple[int, int] = SIZE, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, 256, (count, channels, *size), generator=generator).to(torch.uint8)


# Exactly K


@pytest.mark.parametrize("count", [1, 7, 89, 359, 360])
@pytest.mark.parametrize(
    "scores",
    [
        torch.rand(5, 1, *SIZE, generator=torch.Generator().manual_seed(0)),
        torch.full((5, 1, *SIZE), 0.5),
        torch.ones(5, 1, *SIZE),
        torch.randint(0, 3, (5, 1, *SIZE), generator=torch.Generator().manual_seed(0)).float(),
        torch.full((5, 1, *SIZE), math.nan),
    ],
    ids=["distinct", "constant", "saturated", "many ties", "no numbers"],
)
def test_exactly_k_pixels_are_chosen_in_every_image_whatever_the_scores(scores: Tensor, count: int):
    top = top_pixels(scores, count=count)
    assert top.dtype == torch.bool
    assert top.sum((1, 2, 3)).tolist() == [count] * 5


def test_the_highest_scores_are_chosen_and_of_equal_ones_the_earlier_pixel():
    scores = torch.randint(0, 6, (20, 1, 9, 11), generator=torch.Generator().manual_seed(0)).float()
    for count in (1, 13, 50, 98):
        top = top_pixels(scores, count=count)
        for row, chosen in zip(scores.flatten(1).tolist(), top.flatten(1).tolist(), strict=True):
            order = sorted(range(99), key=lambda i: (-row[i], i))
            assert {i for i, each in enumerate(chosen) if each} == set(order[:count])


@pytest.mark.parametrize(
    ("keep", "size", "count"),
    [
        *[(0.25, (64, 64), 1024), (0.3, (64, 64), 1228), (1e-3, (64, 64), 4)],
        *[(0.29, (10, 10), 29), (0.1, (3, 3), 0)],
    ],
)
def test_k_is_the_share_of_the_pixels_rounded_down_as_it_is_written(keep: float, size, count: int):
    assert pixels_shown(keep, size) == count  # 0.29 * 100 is 28.999999999999996 in binary


# What is released


def test_shown_pixels_are_the_originals_and_the_others_are_0(artefact: str):
    originals = pictures()
    before = originals.clone()
    release = parse(f"mask:artefact={artefact}").release(originals, NOISE)
    shown = release.shown.expand_as(originals)
    assert torch.equal(release.images()[shown], originals[shown])
    assert (release.images()[~shown] == 0).all()
    assert release.shown.shape == (6, 1, *SIZE)
    assert release.shown.sum((1, 2, 3)).tolist() == [90] * 6
    assert torch.equal(originals, before)


def test_the_pixels_are_those_that_the_masker_scores_highest(artefact: str):
    originals = pictures()
    network = masks.load_masker(artefact).network
    with torch.no_grad():
        scores = network(originals / 255).flatten(1)
    shown = Mask(artefact, keep=0.1).release(originals, NOISE).shown.flatten(1)
    for row, chosen in zip(scores, shown, strict=True):
        assert row[chosen].min() >= row[~chosen].max() - 1e-5  # this batch was rounded otherwise


def test_soft_values_are_the_products_with_the_scores_rounded(artefact: str):
    originals = pictures()
    release = parse(f"mask:artefact={artefact},values=soft").release(originals, NOISE)
    hard = parse(f"mask:artefact={artefact}").release(originals, NOISE)
    scores = masks.pixel_scores(masks.load_masker(artefact).network, originals)
    expected = (scores.double() * release.shown * originals).numpy()
    assert torch.equal(release.shown, hard.shown)
    assert np.abs(release.images().numpy() - expected).max() <= 0.5 + 1e-4
    assert not torch.equal(release.values, hard.values)


def test_a_release_of_the_shape_alone_says_which_pixels_and_nothing_of_what_is_in_them(artefact: str):
    protection, hard = parse(f"mask:artefact={artefact},values=shape"), Mask(artefact)
    release = protection.release(pictures(), NOISE)
    assert torch.equal(release.images(), hard.release(pictures(), NOISE).shapes())
    assert release.images().shape == pictures().shape
    for packet in release.pack():
        assert set(packet[45:]) == {255}  # 45 bytes of mask bits


def test_keep_is_what_the_masker_was_trained_with_unless_it_is_given(tmp_path: Path):
    artefact = write_artefact(tmp_path / "m.safetensors", keep=0.4)
    for protection, count in ((Mask(artefact), 144), (Mask(artefact, keep=0.05), 18)):
        assert protection.release(pictures(), NOISE).shown.sum((1, 2, 3)).tolist() == [count] * 6


def test_fewer_pixels_are_some_of_the_more(artefact: str):
    few, many = (Mask(artefact, keep=keep).release(pictures(), NOISE).shown for keep in (0.1, 0.3))
    assert (few & ~many).sum() == 0


# What travels


class Stub(nn.Module):
    """A masker that looks at the left half alone: the scores are its red values, and 0 on the right."""

    def forward(self, image: Tensor) -> Tensor:
        scores = image[:, :1].clone()
        scores[..., SIZE[1] // 2 :] = -1
        return scores


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Mask:
    loaded = Masker(Stub(), (3, *SIZE), 0.25)
    monkeypatch.setattr(Mask, "_load", staticmethod(lambda path: loaded))
    return Mask("stub")


def test_of_hidden_pixels_nothing_travels(stub: Mask):
    originals = pictures()
    others = originals.clone()
    others[..., SIZE[1] // 2 :] = 255 - others[..., SIZE[1] // 2 :]  # which leaves the mask unchanged
    one, other = (stub.release(each, NOISE) for each in (originals, others))
    assert not torch.equal(originals, others)
    assert torch.equal(one.shown, other.shown)
    assert one.pack() == other.pack()


def test_a_change_of_a_shown_pixel_travels(stub: Mask):
    originals = pictures()
    others = originals.clone()
    others[:, 2] ^= 1  # blue, which the scores do not look at
    one, other = (stub.release(each, NOISE).pack() for each in (originals, others))
    assert all(map(operator.ne, one, other))


@pytest.mark.parametrize("size", [(20, 18), (17, 19), (16, 16)])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("values", ["hard", "soft"])
def test_unpacking_gives_the_release_back(tmp_path: Path, size, channels: int, values: str):
    artefact = write_artefact(tmp_path / "m.safetensors", channels=channels, size=size)
    release = Mask(artefact, keep=0.3, values=values).release(pictures(4, channels, size), NOISE)
    packets = release.pack()
    again = unpack(packets, spec=release.spec, shape=(channels, *size))
    assert torch.equal(again.values, release.values)
    assert torch.equal(again.shown, release.shown)
    assert (again.spec, again.size, again.cell) == (release.spec, release.size, 1)
    bits = math.prod(size)
    length = math.ceil(bits / 8) + channels * math.floor(0.3 * bits)
    assert {len(packet) for packet in packets} == {length}
    assert release.bytes_per_image == length


def test_a_packet_is_the_bits_of_the_mask_and_then_the_values():
    values = torch.tensor([[[[0, 7, 0], [8, 0, 0]], [[0, 1, 0], [2, 0, 0]], [[0, 3, 0], [4, 0, 0]]]])
    shown = torch.tensor([[[[False, True, False], [True, False, False]]]])
    release = Release(values.to(torch.uint8), "mask", (2, 3), shown=shown)
    assert release.pack() == [bytes([0b01010000, 7, 8, 1, 2, 3, 4])]
    assert release.bytes_per_image == 7
    numbers = [0, 7, 0, 8, 0, 0, 0, 1, 0, 2, 0, 0, 0, 3, 0, 4, 0, 0]
    assert (release.vectors() * 255).round().tolist() == [[*numbers, 0, 255, 0, 255, 0, 0]]


@pytest.mark.parametrize("damage", [lambda p: p[:-1], lambda p: p + b"\0", lambda p: p[:10], lambda p: b""])
def test_a_packet_of_another_length_is_refused(artefact: str, damage):
    (packet,) = Mask(artefact).release(pictures(1), NOISE).pack()
    with pytest.raises(DataError, match="does not hold a masked 3x20x18 image: pass the shape"):
        unpack([damage(packet)], spec="mask", shape=(3, *SIZE))


def test_a_share_below_one_pixel_is_refused(artefact: str):
    with pytest.raises(SpecError, match=r"keep=0.002 of 20x18 pixels is less than one: choose at least 0.0"):
        Mask(artefact, keep=0.002).release(pictures(), NOISE)


# The way off a device


def test_a_shape_is_white_where_a_pixel_is_shown_and_black_elsewhere(artefact: str):
    released = Mask(artefact).release(pictures(), NOISE)
    shapes = released.shapes()
    assert (shapes.dtype, shapes.shape) == (torch.uint8, pictures().shape)
    assert torch.equal(shapes == 255, released.shown.expand_as(shapes))
    assert torch.equal(shapes == 0, ~released.shown.expand_as(shapes))
    with pytest.raises(DataError, match="block shows all pixels: its releases have no shape"):
        parse("block").release(pictures(), NOISE).shapes()


def write_folder(root: Path, channels: int = 3) -> Tensor:
    originals = pictures(3, channels)
    for i, image in enumerate(originals):
        images.write(root / "photos" / f"{i}.png", image)
    return originals


@pytest.mark.parametrize(
    ("channels", "format_name", "workers"),  # processes are slow to start: once is enough
    [(1, "PNG", 1), (1, "WEBP", 1), (3, "PNG", 1), (3, "WEBP", 1), (3, "PNG", 2)],
)
def test_in_files_hidden_pixels_are_transparent_and_black(
    tmp_path: Path, channels: int, format_name: str, workers: int
):
    artefact = write_artefact(tmp_path / "m.safetensors", channels=channels)
    originals = write_folder(tmp_path, channels)
    config, engine = FolderConfig(format_name=format_name), EngineConfig(workers=workers)
    folders = tmp_path / "photos", tmp_path / "out"
    outcome = protect_folder(*folders, Mask(artefact), tmp_path / "ledger.db", config, engine=engine)
    assert outcome.failures == {}
    expected = Mask(artefact).release(originals, NOISE)
    for i in range(3):
        (path,) = (tmp_path / "out").glob(f"{i}.*")
        with Image.open(path) as opened:
            assert opened.mode == ("LA" if (channels, format_name) == (1, "PNG") else "RGBA")
            pixels = np.asarray(opened.convert("RGBA"))
        assert np.array_equal(pixels[..., 3], expected.shown[i, 0].numpy() * np.uint8(255))
        colours = expected.images()[i].expand(3, -1, -1).permute(1, 2, 0).numpy()
        assert np.array_equal(pixels[..., :3], colours)


@pytest.mark.parametrize("format_name", ["JPEG", "BMP"])
def test_a_format_without_transparency_is_refused_before_anything_is_written(
    artefact: str, tmp_path: Path, format_name: str
):
    write_folder(tmp_path)
    config, ledger = FolderConfig(format_name=format_name), tmp_path / "ledger.db"
    message = f"{format_name} cannot say which pixels are hidden: write a mask as PNG or WEBP"
    with pytest.raises(ConfigError, match=message):
        protect_folder(tmp_path / "photos", tmp_path / "out", Mask(artefact), ledger, config)
    assert not (tmp_path / "out").exists()
    assert not ledger.exists()
    with Ledger(ledger) as opened:
        with pytest.raises(ConfigError, match=message):
            protect_image(tmp_path / "photos" / "0.png", Mask(artefact), opened, config)
        assert opened.summary().releases == 0


def test_a_file_of_a_mask_reads_as_white_where_it_is_hidden(artefact: str):
    release = Mask(artefact).release(pictures(1), NOISE)
    read = images.read(images.encode(release.values[0], shown=release.shown[0]))
    assert (read[:, ~release.shown[0, 0]] == 255).all()
