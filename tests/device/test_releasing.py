"""The way off a device: the same release for the same image, and nothing at all when a budget says no."""

import hashlib
import sqlite3
from pathlib import Path

import pytest
import torch
from cloud import SIDE, encoder
from torch import Tensor

from sfumato.device.jobs import releasing
from sfumato.device.ledger import Ledger
from sfumato.dp.guarantee import Guarantee
from sfumato.errors import ImageError, SpecError
from sfumato.protect import Release, parse
from sfumato.protect.region import Region
from sfumato.wire import AnyRelease

pytestmark = pytest.mark.usefixtures("unlimited")

NOISY = [
    "dp-pix:cell=4,epsilon=3",
    "dp-pix:cell=4,epsilon=3,variant=published",
    "dp-pix-gaussian:cell=4,rho=1",
    "gaussian:sigma=40",
]
EXACT = ["none", "blur:radius=2", "pixelize:cell=4", "block", "centre-blur:radius=3"]


def released(spec: str, images: Tensor, ledger: Ledger) -> Release:
    return releasing.release(parse(spec), images, ledger)


def stored(ledger: Ledger) -> list[bytes | None]:
    database = sqlite3.connect(ledger.path)
    rows = database.execute("select release from charges order by id").fetchall()
    database.close()
    return [row[0] for row in rows]


@pytest.mark.parametrize("spec", NOISY)
def test_in_a_batch_of_known_and_unknown_images_each_gets_its_own(photos: Tensor, ledger: Ledger, spec: str):
    known = released(spec, photos[[5, 1]], ledger).values
    values = released(spec, photos, ledger).values
    assert torch.equal(values[[5, 1]], known)
    copies = [0, 6, 0, 2, 2, 5]
    again = released(spec, photos[copies], ledger).values
    assert torch.equal(again, values[copies])
    again.fill_(0)  # which does not change what is kept
    assert torch.equal(released(spec, photos.flip(0), ledger).values, values.flip(0))
    assert len({value.numpy().tobytes() for value in values}) == len(photos)
    assert not torch.equal(values[:, 0], values[:, 1])  # channels do not share noise
    assert ledger.summary().releases == len(photos)


def test_another_spec_has_noise_of_its_own_and_is_charged(photos: Tensor, ledger: Ledger):
    first = released("dp-pix:cell=4,epsilon=3", photos, ledger)
    same = released("dp-pix:epsilon=3.0,cell=4,variant=sound,pixels=1", photos, ledger)
    other = released("dp-pix:cell=4,epsilon=3.5", photos, ledger)
    assert torch.equal(first.values, same.values)
    assert not torch.equal(first.values, other.values)
    assert ledger.summary().releases == 2 * len(photos)


@pytest.mark.parametrize("spec", NOISY)
def test_two_images_never_share_noise(ledger: Ledger, spec: str):
    # Grey far from both clamps, but for the last cell, whose pixel makes them different images.
    images = torch.full((40, 1, 24, 24), 128, dtype=torch.uint8)
    images[:, 0, -1, -1] = torch.arange(40)
    noise = released(spec, images, ledger).images()[:, 0, :20, :20].reshape(40, -1)
    assert len({row.numpy().tobytes() for row in noise}) == 40
    # Of shared noise, whole or in part, two rows would be 1 apart from 0. Of 780 pairs of 25 independent
    # cells, that one is correlated above 0.9 has a probability below 1e-6.
    correlation = torch.corrcoef(noise.double()) - torch.eye(40)
    assert correlation.abs().max() < 0.9


@pytest.mark.parametrize(
    ("size", "cell"), [((1, 1), 1), ((1, 9), 1), ((5, 7), 5), ((12, 8), 8), ((29, 23), 8)]
)
def test_the_values_have_a_cell_for_every_b_pixels_begun(ledger: Ledger, size: tuple[int, int], cell: int):
    for channels in (1, 3):
        images = torch.randint(0, 256, (4, channels, *size), generator=torch.Generator().manual_seed(0))
        for _ in range(2):  # drawn, and kept
            release = released(f"dp-pix:cell={cell},epsilon=3", images.to(torch.uint8), ledger)
            assert release.values.shape == (4, channels, -(-size[0] // cell), -(-size[1] // cell))
            assert release.values.dtype == torch.uint8
            assert release.images().shape == images.shape


@pytest.mark.parametrize("spec", EXACT)
def test_a_protection_without_noise_releases_exactly_what_it_does_by_itself(
    photos: Tensor, ledger: Ledger, spec: str
):
    before, batch = photos.clone(), photos[[0, 1, 0, 3]]
    expected = parse(spec).release(batch, None).images()
    for _ in range(2):
        assert torch.equal(released(spec, batch, ledger).images(), expected)
    released(spec, photos, ledger).array.fill(0)
    assert torch.equal(photos, before)  # the originals are left as they were
    assert set(stored(ledger)) == {None}


@pytest.mark.parametrize("spec", ["dp-pix:cell=4,epsilon=3", "blur:radius=2"])
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((0, 3, 8, 8), "there are no images to release: give at least one"),
        ((2, 2, 8, 8), "a batch of images is"),
        ((2, 4, 8, 8), "a batch of images is"),
    ],
)
def test_what_is_no_batch_of_images_charges_nothing(
    ledger: Ledger, spec: str, shape: tuple[int, ...], message: str
):
    with pytest.raises(ImageError, match=message):
        released(spec, torch.zeros(shape, dtype=torch.uint8), ledger)
    assert stored(ledger) == []


def test_a_parameter_that_does_not_fit_charges_nothing(photos: Tensor, ledger: Ledger):
    with pytest.raises(SpecError, match="cell=24 is larger than the 29x23 images"):
        released("dp-pix:cell=24,epsilon=3", photos, ledger)
    assert stored(ledger) == []


@pytest.mark.parametrize("inner", ["blur:radius=3", "gaussian:sigma=160", "dp-pix:cell=2,epsilon=3"])
def test_what_lies_around_a_region_is_looked_at_whatever_noise_lies_within(
    photos: Tensor, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inner: str
):
    height, width = photos.shape[2:]
    (tmp_path / "boxes.csv").write_text(f"left,top,right,bottom\n0,0,{width},{height // 4}\n")
    box = parse(f"{inner}@box:file={tmp_path}/boxes.csv")
    for _ in range(2):  # noise that is kept is judged as well
        with pytest.raises(
            ImageError, match=r"75\.86% of the pixels .* leave as they are, and at most 75% may"
        ):
            releasing.charge_and_release(box, photos, ledger, most_clear=0.75)
        assert releasing.charge_and_release(box, photos, ledger, most_clear=0.76).release.boxes
    monkeypatch.setattr(Region, "find", lambda self, image: [(0, height, 0, width)])
    background = Region(parse(inner), "background", "m")
    monkeypatch.setattr(Region, "digest", lambda self: "0" * 64)
    before = stored(ledger)
    with pytest.raises(
        ImageError, match=r"100\.00% of the pixels of a \d+x\d+ image would leave as they are:"
    ):
        releasing.charge_and_release(background, photos, ledger)
    assert stored(ledger) == before


class Added:
    """A protection that was trained, as far as a ledger can tell: what it adds to an image lies in a file."""

    draws_noise, cell, kind = True, 1, "pixels"

    def __init__(self, artefact: Path) -> None:
        self.artefact = artefact
        self.spec = f"feature:artefact={artefact},noise=0.5"

    def digest(self) -> str:
        return hashlib.sha256(self.artefact.read_bytes()).hexdigest()

    def release(self, images: Tensor, noise) -> Release:
        drawn = torch.randint(0, 256, images.shape, dtype=torch.uint8)
        return Release(drawn, self.spec, (images.shape[2], images.shape[3]))

    def guarantee(self, shape: tuple[int, int, int], pixels: int | None = None) -> Guarantee:
        return Guarantee(definition="pure", value=1.0, pixels=pixels or 1, whole_image=1.0, source="a proof")


def artefact(path: Path, content: bytes = b"weights") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def by(path: Path, images: Tensor, ledger: Ledger) -> Tensor:
    return releasing.release(Added(path), images, ledger).values


def test_an_artefact_counts_by_its_content_and_not_by_its_path(ledger: Ledger, tmp_path: Path):
    images = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
    first = by(artefact(tmp_path / "a" / "trained.safetensors"), images, ledger)
    again = by(artefact(tmp_path / "b" / "renamed.safetensors"), images, ledger)
    assert torch.equal(first, again)
    assert ledger.summary().releases == 2
    other = by(artefact(tmp_path / "a" / "trained.safetensors", b"other weights"), images, ledger)
    assert not torch.equal(first, other)
    assert ledger.summary().releases == 4


@pytest.mark.parametrize(
    ("size", "noise"),
    [({"bits": 12}, "flip=0.45"), ({"bits": 12}, "epsilon=0.1"), ({"numbers": 6}, "norm=1,noise=1")],
)
def test_a_code_with_noise_is_kept_and_given_again_byte_for_byte(
    ledger: Ledger, tmp_path: Path, size: dict[str, int], noise: str
):
    spec = f"code:artefact={encoder(tmp_path / 'c.safetensors', **size)},{noise}"
    images = torch.randint(0, 256, (6, 3, SIDE, SIDE), dtype=torch.uint8)

    def coded(images: Tensor) -> AnyRelease:
        code = parse(spec, takes=["bits", "numbers"])
        return releasing.release(code, images, ledger)

    first = coded(images)
    again = coded(images[[5, *range(6)]])
    assert type(again) is type(first)
    assert again.pack() == [first.pack()[row] for row in [5, *range(6)]]
    assert ledger.summary().releases == 6
    assert len(set(first.pack())) > 1
