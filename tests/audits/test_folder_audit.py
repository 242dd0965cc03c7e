"""What a folder looks protected by and still tells: kinds at several strengths, metadata, faces."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image
from PIL.PngImagePlugin import PngInfo
from torch import Tensor

from sfumato import data, images, protect
from sfumato.audits.folder import NamingConfig, audit_folder
from sfumato.audits.folder.audit import metadata_of, see
from sfumato.audits.folder.look import Look, look
from sfumato.audits.folder.pictures import Listed, list_files, read_all
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import DataError

TINY = NamingConfig(size=32, steps=2, adaptive_steps=1, student_steps=1)


@pytest.fixture(scope="module")
def portraits() -> Tensor:
    return data.load("faces", size=96, identities=4, images_per_identity=4).images


def protected(pictures: Tensor, spec: str, quality: int | None = None) -> list[Tensor]:
    released = protect.parse(spec).release(pictures, seeded_noise(0)).images()
    if quality is None:
        return list(released)
    return [images.read(images.encode(each, "JPEG", quality=quality)) for each in released]


def pillow(picture: Tensor) -> Image.Image:
    return Image.fromarray(picture.permute(1, 2, 0).numpy())


def mosaic_of(picture: Image.Image, cells: int) -> Image.Image:
    """As programs make it, which shrink and enlarge."""
    return picture.resize((cells, cells), Image.Resampling.BOX).resize(picture.size, Image.Resampling.NEAREST)


@pytest.mark.parametrize("quality", [None, 90])
@pytest.mark.parametrize("cell", [3, 8, 17])
def test_a_mosaic_is_recognised_with_its_cell_also_after_jpeg(portraits, cell, quality):
    seen = [look(each) for each in protected(portraits, f"pixelize:cell={cell}", quality)]
    assert [(each.kind, each.strength) for each in seen].count(("mosaic", cell)) >= 15


@pytest.mark.parametrize("radius", [2, 3, 5])
@pytest.mark.parametrize("quality", [None, 75])
def test_a_blur_is_recognised_and_no_plain_photograph_is_called_blurred(radius, quality):
    draw = np.random.default_rng(0)  # a picture whose power falls as that of photographs
    spectrum = np.fft.fft2(draw.normal(size=(128, 128)))
    y, x = np.meshgrid(np.fft.fftfreq(128), np.fft.fftfreq(128), indexing="ij")
    plain = np.fft.ifft2(spectrum / np.maximum(np.hypot(x, y), 1 / 128) ** 1.1).real
    grey = torch.from_numpy(np.uint8(np.clip(128 + 40 * plain / plain.std(), 0, 255))).expand(1, 3, -1, -1)
    assert look(protected(grey, f"blur:radius={radius}", quality)[0]).kind == "blur"
    assert look(protected(grey, "none", quality)[0]).kind != "blur"


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


def written(picture: Tensor, kind: str, **options) -> bytes:
    out = io.BytesIO()
    pillow(picture).save(out, kind, **options)
    return out.getvalue()


def test_metadata_that_tell_of_people_are_named_and_a_clean_file_of_each_format_has_none(portraits):
    exif = Image.Exif()
    exif[ExifTags.Base.Model] = "Camera 1"
    exif.get_ifd(ExifTags.IFD.GPSInfo)[ExifTags.GPS.GPSLatitude] = (48.0, 8.0, 0.0)
    exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.BodySerialNumber] = "123"
    told = ["a position (GPS)", "the camera's model", "a serial number"]
    assert metadata_of(written(portraits[0], "JPEG", exif=exif, comment="by Anna")) == [*told, "a text"]
    assert metadata_of(written(portraits[0], "PNG", exif=exif)) == told
    text = PngInfo()
    text.add_itxt("XML:com.adobe.xmp", '<x:xmpmeta exif:GPSLatitude="10,20.5N"/>')
    text.add_text("Author", "Anna")
    found = metadata_of(written(portraits[0], "PNG", pnginfo=text))
    assert found == ["XMP, which programs write their history to", "a position (GPS)", "a text"]
    for kind in ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "AVIF"):
        assert metadata_of(written(portraits[0], kind)) == [], kind
    exif = Image.Exif()  # a turn, sizes and an encoder's own name say nothing of people
    exif[ExifTags.Base.Orientation] = 6
    exif[ExifTags.Base.Software] = "Lavc60.31.102 mjpeg"
    assert metadata_of(written(portraits[0], "JPEG", exif=exif, dpi=(72, 72))) == []


def test_a_folder_is_reported_on_one_page_with_what_to_change(tmp_path: Path):
    world = data.load("faces", size=96, identities=4, images_per_identity=6)
    label = world.label("identity")
    for row, (image, code) in enumerate(zip(world.images, label.codes.tolist(), strict=True)):
        name = label.names[code]
        if row % 2:
            images.write(tmp_path / "known" / name / f"{row}.png", image)
        else:
            images.write(tmp_path / "out" / name / f"{row}.png", *protected(image[None], "pixelize:cell=6"))
    (tmp_path / "out" / label.names[0] / "broken.png").write_bytes(b"no image")
    report = audit_folder(tmp_path / "out", known=tmp_path / "known", config=TINY)
    found = {each.name: each for each in report.findings}
    assert "12 of 12 pictures look like a mosaic, with cells of 6 pixels." in found["protection"].sentence
    assert "1 were not looked at: 1 file that cannot be read (not an image" in report.sentence
    assert {"faces", "metadata", "naming", "left-out"} <= set(found)
    # Sub-folders are the truth that the auditor gives, and no finding.
    assert found["metadata"].verdict == "not shown"
    assert "pass the files on without these names" in found["metadata"].sentence
    assert report.limits


def test_every_tenth_frame_of_a_video_is_looked_at(portraits, tmp_path: Path):
    av = pytest.importorskip("av")
    with av.open(str(tmp_path / "a.mp4"), "w") as opened:
        stream = opened.add_stream("mpeg4", rate=5)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = 96, 96, "yuv420p", 8_000_000
        hidden = protected(portraits[:16], "pixelize:cell=16")
        for image in [*hidden, *hidden[:4], *portraits[:4]]:
            frame = av.VideoFrame.from_ndarray(image.permute(1, 2, 0).numpy().copy(), format="rgb24")
            opened.mux(stream.encode(frame))
        opened.mux(stream.encode())
    (video,) = list_files(tmp_path, every=True).files
    assert [look(frame).kind for frame in read_all(video, tmp_path)] == ["mosaic", "mosaic", "none"]
    report = audit_folder(tmp_path, config=TINY)
    assert "1 further pictures look unprotected, behind a protected first one" in report.findings[0].sentence
    assert "the sound and metadata of a video" in str(report.limits)


def test_a_folder_without_a_readable_file_is_refused(tmp_path: Path):
    (tmp_path / "a.png").write_bytes(b"no image")
    with pytest.raises(DataError, match="none of its files can be read: 1 were not looked at"):
        audit_folder(tmp_path)


@pytest.mark.parametrize("size", [84, 250])
@pytest.mark.parametrize("cells", [3, 11, 17, 27])
def test_a_cell_of_no_whole_number_is_measured_within_a_seventh(portraits, size, cells):
    for row in range(4):
        shown = mosaic_of(pillow(portraits[row]).resize((size, size)), cells)
        found = look(torch.from_numpy(np.asarray(shown).transpose(2, 0, 1).copy()))
        assert (found.kind, found.strength) == ("mosaic", pytest.approx(size / cells, rel=0.15))


def test_what_shows_nothing_is_not_called_unprotected(portraits):
    for colour in ((0, 0, 0), (255, 255, 255), (90, 120, 60)):
        flat = torch.tensor(colour, dtype=torch.uint8)[:, None, None].expand(3, 84, 84)
        assert look(flat) == Look("one colour")
    boxed = portraits[0].clone()
    boxed[:, 5:96, 8:90] = 0  # a box that reaches the border, as on a portrait that fills the frame
    assert look(boxed).kind == "one colour"


def test_a_folder_says_what_was_not_looked_at_in_its_first_sentence(portraits, tmp_path: Path):
    mosaic = protected(portraits[:1], "pixelize:cell=8")[0]
    folder = tmp_path / "supplied"
    images.write(folder / "a.png", mosaic)
    (folder / "clear.jfif").write_bytes(images.encode(portraits[1], "JPEG"))  # a picture by its first bytes
    for name in ("plan.pdf", "old.zip", "clip.mts", ".hidden"):
        (folder / name).write_bytes(b"something")
    (folder / "cut.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    (folder / "b.mov").write_bytes(b"")
    (folder / "out.png").symlink_to(tmp_path / "elsewhere.png")
    (folder / "a.png.json").write_text('{"geoData": {"latitude": 10.3}, "people": [{"name": "Jane"}]}')
    (folder / "manifest.json").write_text('{"spec": "", "made_of": "", "outputs": []}')  # our own
    report = audit_folder(folder, config=TINY)
    assert report.subject == "supplied: 2 files, 8 not looked at"
    assert "; 8 were not looked at: " in report.sentence
    found = {each.name: each for each in report.findings}
    others = (
        f"file of another kind ({kind})" for kind in (".pdf", ".zip", ".mts", ".json", "without a suffix")
    )
    assert found["left-out"].figures == {
        **dict.fromkeys((*others, "link out of its folder"), 1),
        "file that cannot be read (no video)": 2,
    }
    assert str(tmp_path) not in str(report)


@pytest.mark.parametrize("suffix", ["gif", "png", "webp", "tif", "jpg"])
def test_a_further_picture_that_is_clear_is_a_leak(portraits, tmp_path: Path, suffix):
    hidden, clear = mosaic_of(pillow(portraits[0]), 12), pillow(portraits[1])
    settings = {"jpg": {"format": "MPO"}, "webp": {"lossless": True}}.get(suffix, {})
    (tmp_path / "in").mkdir()
    hidden.save(tmp_path / "in" / f"a.{suffix}", save_all=True, append_images=[clear], **settings)
    report = audit_folder(tmp_path / "in", config=TINY)
    protection = report.findings[0]
    assert report.subject == "in: 1 files with 2 pictures"
    assert protection.verdict == "leaks"
    assert "1 further pictures look unprotected" in protection.sentence


def test_a_box_of_one_colour_that_a_detector_takes_for_a_face_is_none(portraits, tmp_path: Path):
    covered = portraits[0].clone()
    covered[:, 20:80, 20:80] = 0
    listed = Listed(tmp_path / "a.release", "a.release")
    for picture, faces in ((covered, []), (portraits[0], [(15, 85, 15, 85)])):
        assert see(listed, 0, picture, lambda each: [(15, 85, 15, 85)], 6).faces == faces
