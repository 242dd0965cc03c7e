"""What a folder looks protected by and still tells: kinds at several strengths, metadata, originals."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image
from torch import Tensor

from sfumato import data, images, protect
from sfumato.audits.folder import NamingConfig, audit_folder
from sfumato.audits.folder.findings import compare_with, report_originals, watch
from sfumato.audits.folder.kinds import blur_of, compare, look
from sfumato.audits.folder.metadata import metadata_of, name_clues
from sfumato.audits.folder.pictures import list_files
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import DataError

TINY = NamingConfig(size=32, steps=2, adaptive_steps=1, restoration_steps=1)


@pytest.fixture(scope="module")
def portraits() -> Tensor:
    return data.load("faces", size=96, identities=4, images_per_identity=4).images


def protected(pictures: Tensor, spec: str, quality: int | None = None) -> list[Tensor]:
    released = protect.parse(spec).release(pictures, seeded_noise(0)).images()
    if quality is None:
        return list(released)
    return [images.read(images.encode(each, "JPEG", quality=quality)) for each in released]


@pytest.mark.parametrize("quality", [None, 90])
@pytest.mark.parametrize("cell", [3, 8, 17])
def test_a_mosaic_is_recognised_with_its_cell_also_after_jpeg(portraits, cell, quality):
    seen = [look(each) for each in protected(portraits, f"pixelize:cell={cell}", quality)]
    assert [(each.kind, each.strength) for each in seen].count(("mosaic", cell)) >= 15


@pytest.mark.parametrize("radius", [2, 3, 5])
def test_the_radius_of_a_blur_is_estimated_within_a_quarter(radius):
    draw = np.random.default_rng(0)  # a picture whose power falls as that of photographs
    spectrum = np.fft.fft2(draw.normal(size=(128, 128)))
    y, x = np.meshgrid(np.fft.fftfreq(128), np.fft.fftfreq(128), indexing="ij")
    plain = np.fft.ifft2(spectrum / np.maximum(np.hypot(x, y), 1 / 128) ** 1.1).real
    grey = np.uint8(np.clip(128 + 40 * plain / plain.std(), 0, 255))
    blurred = protected(torch.from_numpy(np.stack([grey] * 3))[None], f"blur:radius={radius}")[0]
    assert blur_of(blurred[0].double().numpy()) == pytest.approx(radius, rel=0.25)
    assert look(blurred).kind == "blur"


@pytest.mark.parametrize("sigma", [30, 60])
def test_noise_is_recognised_with_about_its_deviation(portraits, sigma):
    seen = [look(each) for each in protected(portraits, f"gaussian:sigma={sigma}")]
    assert {each.kind for each in seen} == {"noise"}
    assert np.median([each.strength for each in seen]) == pytest.approx(sigma, rel=0.3)


def test_a_mosaic_on_a_part_and_a_black_box_are_found_where_they_are(portraits):
    draw = torch.Generator().manual_seed(0)
    scene = torch.randint(0, 256, (3, 240, 320), generator=draw).to(torch.uint8)
    scene[:, 40:136, 60:156] = protected(portraits[:1], "pixelize:cell=12")[0]
    found = look(scene)
    assert (found.kind, found.strength) == ("mosaic", 12)
    ((top, bottom, left, right),) = found.parts
    assert [top, bottom, left, right] == pytest.approx([40, 136, 60, 156], abs=12)
    scene[:, 40:136, 60:156] = 0
    assert look(scene).parts == ((40, 136, 60, 156),)
    assert look(scene).kind == "one colour"


def test_a_part_that_only_the_original_gives_away_is_found_by_it(portraits):
    hidden = portraits[0].clone()
    hidden[:, 20:60, 30:70] = protected(portraits[:1], "blur:radius=8")[0][:, 20:60, 30:70]
    found = compare(look(hidden), portraits[0], hidden)
    assert found.kind == "changed"
    assert all(
        top >= 15 and bottom <= 65 and left >= 25 and right <= 75 for top, bottom, left, right in found.parts
    )


def test_metadata_and_a_thumbnail_of_another_picture_are_named(portraits):
    exif = Image.Exif()
    exif[ExifTags.Base.Model] = "Camera 1"
    exif.get_ifd(ExifTags.IFD.GPSInfo)[ExifTags.GPS.GPSLatitude] = (48.0, 8.0, 0.0)
    exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.BodySerialNumber] = "123"
    picture = Image.fromarray(portraits[0].permute(1, 2, 0).numpy())
    written = io.BytesIO()
    picture.save(written, "JPEG", exif=exif, quality=80, comment="by Anna")
    kinds, thumbnail, quality = metadata_of(written.getvalue(), portraits[0])
    assert kinds[:3] == ["a position (GPS)", "the camera's model", "the camera's or the lens's serial number"]
    assert thumbnail is None
    assert quality == 80
    assert metadata_of(images.encode(portraits[0]), portraits[0]) == ([], None, None)


def test_names_of_files_are_searched_for_dates_cameras_and_people():
    found = name_clues(["a/IMG_0012.jpg", "2024-05-01.png", "anna_karenina_3.png"], {"Anna Karenina"})
    assert dict(found) == {
        "a date in the name": 1,
        "the camera's number in the name": 1,
        "the name of a known person in the name": 1,
    }


def test_a_face_that_is_shown_as_on_the_original_is_missed(portraits):
    blurred = protected(portraits[:1], "blur:radius=6")[0]
    pairs = [("a", portraits[0], portraits[0]), ("b", portraits[0], blurred)]
    finding = report_originals(
        [compare_with(*pair, lambda picture: [(20, 70, 20, 70)]) for pair in pairs], detected=True
    )
    assert (finding.figures["faces"], finding.figures["missed"], finding.verdict) == (2, 1, "leaks")
    assert finding.figures["ssim"][0] == pytest.approx(1)


def test_a_folder_is_reported_on_one_page_with_what_to_change(portraits, tmp_path: Path):
    world = data.load("faces", size=96, identities=4, images_per_identity=6)
    label = world.label("identity")
    for row, (image, code) in enumerate(zip(world.images, label.codes.tolist(), strict=True)):
        name = label.names[code]
        if row % 2:
            images.write(tmp_path / "known" / name / f"{row}.png", image)
        else:
            release = protect.parse("pixelize:cell=6").release(image[None], seeded_noise(0)).images()[0]
            images.write(tmp_path / "out" / name / f"{row}.png", release)
    (tmp_path / "out" / "broken.png").write_bytes(b"no image")
    notes: list[str] = []
    report = audit_folder(tmp_path / "out", known=tmp_path / "known", config=TINY, note=notes.append)
    found = {each.name: each for each in report.findings}
    assert "12 of 12 files look like a mosaic, with cells of 6 pixels." in found["protection"].sentence
    assert notes[0].startswith("left out: 1 files, such as ")
    assert {"faces", "metadata", "twins", "restored"} <= set(found)
    assert report.limits


def test_a_video_is_looked_at_and_its_metadata_are_named(portraits, tmp_path: Path):
    av = pytest.importorskip("av")
    with av.open(str(tmp_path / "a.mp4"), "w") as opened:
        opened.metadata["creation_time"] = "2024-05-01T10:00:00"
        stream = opened.add_stream("mpeg4", rate=5)
        stream.width, stream.height, stream.pix_fmt = 96, 96, "yuv420p"
        for image in protected(portraits[:11], "pixelize:cell=16"):
            frame = av.VideoFrame.from_ndarray(image.permute(1, 2, 0).numpy().copy(), format="rgb24")
            opened.mux(stream.encode(frame))
        opened.mux(stream.encode())
    seen: list[int] = []

    def faces(picture: Tensor) -> list:
        seen.append(1)
        return [(0, 9, 0, 9)] if len(seen) == 2 else []

    finding = watch(list_files(tmp_path, suffixes=[".mp4"]), faces)
    assert finding.table is not None
    assert finding.table.rows == (
        ("a.mp4", "like a mosaic", "1 of 3, 1 at a gap", "the time of the recording"),
    )


def test_a_folder_without_a_readable_file_is_refused(tmp_path: Path):
    (tmp_path / "a.png").write_bytes(b"no image")
    with pytest.raises(DataError, match="none of its 1 files can be read"):
        audit_folder(tmp_path)
