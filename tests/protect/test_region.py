"""Protections on parts of an image: what is protected, what is shown, and what is said of it."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pictures import photographs

from sfumato import images
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ArtefactError, DataError, ImageError, SpecError
from sfumato.networks.faces.finding import WEIGHTS
from sfumato.protect import parse
from sfumato.protect.naming import guarantee_words, naming_words
from sfumato.protect.region import Region, around, disjoint, overlap

DETECTOR = "weights/mtcnn.safetensors"


def boxes(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(["left,top,right,bottom", *rows]))
    return path


@pytest.fixture
def image() -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (1, 3, 40, 60), generator=draw).to(torch.uint8)


@pytest.mark.parametrize("box", ["10,5,30,25", "10.9,5.9,29.1,24.1"])  # part of a pixel is all of it
@pytest.mark.parametrize("spec", ["blur:radius=2", "pixelize:cell=1/4", "dp-pix:cell=5,epsilon=3"])
def test_a_box_is_protected_as_an_image_of_its_own_and_all_else_is_shown(
    tmp_path: Path, image: torch.Tensor, spec: str, box: str
):
    path = boxes(tmp_path / "b.csv", box)
    released = parse(f"{spec}@box:file={path}").release(image, seeded_noise(3)).images()
    part = image[:, :, 5:25, 10:30]
    expected = image.clone()
    expected[:, :, 5:25, 10:30] = parse(spec).release(part, seeded_noise(3)).images()
    assert torch.equal(released, expected)
    assert not torch.equal(released, image)


def test_edges_up_to_1_are_shares_of_the_image(tmp_path: Path, image: torch.Tensor):
    pixels = boxes(tmp_path / "pixels.csv", "15,10,45,30")
    shares = boxes(tmp_path / "shares.csv", "0.25,0.25,0.75,0.75")
    ours, theirs = (
        parse(f"pixelize:cell=4@box:file={path}").release(image, seeded_noise(0)).images()
        for path in (pixels, shares)
    )
    assert torch.equal(ours, theirs)


def test_images_that_a_file_names_have_boxes_of_their_own(tmp_path: Path, image: torch.Tensor):
    images.write(tmp_path / "a.png", image[0])
    images.write(tmp_path / "b.png", image[0].flip(2))
    (tmp_path / "boxes.csv").write_text(
        "file,left,top,right,bottom\na.png,0,0,10,10\na.png,20,20,30,30\nb.png,5,5,9,9\n"
    )
    region = parse(f"blur:radius=2@box:file={tmp_path}/boxes.csv")
    assert region.boxes(image[0]) == [(0, 10, 0, 10), (20, 30, 20, 30)]
    assert region.boxes(image[0].flip(2)) == [(5, 9, 5, 9)]
    with pytest.raises(ImageError, match="no box in the image: it is not released"):
        region.boxes(image[0].flip(1))


BOX = st.builds(
    lambda top, height, left, width: (top, top + height, left, left + width),
    *(st.integers(0, 30), st.integers(1, 12), st.integers(0, 30), st.integers(1, 12)),
)


def test_boxes_that_touch_share_no_pixel():
    middle = (5, 9, 5, 9)
    assert overlap(middle, (8, 12, 8, 12))
    assert not any(
        overlap(middle, other) for other in [(9, 12, 5, 9), (1, 5, 5, 9), (5, 9, 9, 12), (5, 9, 1, 5)]
    )


@given(st.lists(BOX, max_size=8))
def test_boxes_are_made_disjoint_and_cover_as_much(listed: list[tuple[int, int, int, int]]):
    joined = disjoint(listed)
    assert not any(overlap(a, b) for i, a in enumerate(joined) for b in joined[:i])
    for box in listed:
        assert any(around([box, each]) == each for each in joined)


def test_the_background_is_all_but_the_faces(shared_data: Path):
    scene, face = _scene(shared_data)
    file = shared_data / DETECTOR
    on, off = (
        parse(f"blur:radius=6@{place}:file={file}").release(scene[None], seeded_noise(0)).images()[0]
        for place in ("faces", "background")
    )
    top, bottom, left, right = face
    assert torch.equal(off[:, top:bottom, left:right], scene[:, top:bottom, left:right])
    assert (on[:, top:bottom, left:right] != scene[:, top:bottom, left:right]).double().mean() > 0.5
    changed = (on != scene).any(0), (off != scene).any(0)
    assert not (changed[0] & changed[1]).any()
    corner = slice(0, 40), slice(0, 40)
    assert not changed[0][corner].any()
    assert changed[1][corner].any()


def test_faces_of_colour_and_grey_photographs_are_found_without_a_file(shared_data: Path):
    if not WEIGHTS.is_installed():
        pytest.skip("the extra faces is not installed")
    scene, (top, bottom, left, right) = _scene(shared_data)
    region = parse("pixelize:cell=1/4@faces")
    assert region.spec == "pixelize:cell=1/4@faces"
    assert region.digest() == WEIGHTS.sha256
    for image in (scene, scene[:1]):
        (box,) = region.boxes(image)
        assert around([box, (top, bottom, left, right)]) == box


def test_an_image_without_a_face_is_refused_or_protected_wholly(shared_data: Path):
    draw = torch.Generator().manual_seed(0)
    sky = torch.randint(100, 120, (1, 3, 80, 80), generator=draw).to(torch.uint8)
    spec = f"blur:radius=6@faces:file={shared_data / DETECTOR}"
    with pytest.raises(ImageError, match=r"no face was found: it is not released: .* \(faces:missing=all\)"):
        parse(spec).release(sky, seeded_noise(0))
    wholly = parse(f"{spec},missing=all").release(sky, seeded_noise(0)).images()
    assert torch.equal(wholly, parse("blur:radius=6").release(sky, seeded_noise(0)).images())


def _scene(shared_data: Path) -> tuple[torch.Tensor, tuple[int, int, int, int]]:
    """A photograph in a grey scene, and where its eyes, nose and mouth are."""
    photograph = photographs(shared_data, "lfw_faces_84", 1)[0]
    draw = torch.Generator().manual_seed(0)
    scene = torch.randint(90, 130, (3, 200, 260), generator=draw).to(torch.uint8)
    scene[:, 60:144, 100:184] = photograph
    return scene, (60 + 28, 60 + 64, 100 + 26, 100 + 58)


# What is said of it


def test_nothing_is_proved_of_the_image_and_something_of_each_box():
    region = parse("dp-pix:cell=4,epsilon=3@faces:file=m.safetensors")
    assert region.guarantee((3, 40, 40)) is None
    assert guarantee_words(region, (3, 40, 40)) == (
        "within each box around a face: hides any 1 pixel at eps = 3 (pure DP); "
        "all else is shown unchanged, and so is a face that was not found"
    )
    assert naming_words(region, (3, 40, 40)) == "nothing is proved about who it shows"


@pytest.mark.parametrize(
    ("text", "message"),
    {
        "left,top,right\n0,0,1": "no column 'bottom': write left,top,right,bottom",
        "left,top,right,bottom\n0,0,x,1": "line 2: an edge is not a number",
        "left,top,right,bottom\n5,0,5,9": "line 2: left must be below right",
        "left,top,right,bottom\n-1,0,5,9": "none below 0",
        "left,top,right,bottom\nnan,0,5,9": "left must be below right",
        "left,top,right,bottom\n0,0,1,1\n4,4,9,9": "some boxes have edges up to 1, which are shares",
    }.items(),
)
def test_a_file_of_boxes_that_is_wrong_is_refused(
    tmp_path: Path, image: torch.Tensor, text: str, message: str
):
    (tmp_path / "b.csv").write_text(text)
    with pytest.raises(DataError) as error:
        parse(f"blur:radius=2@box:file={tmp_path}/b.csv").boxes(image[0])
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("box", "fits"),
    [
        ("0,0,20,20", True),
        ("40,10,75,20", True),  # over an edge, by less than half
        ("45,0,85,20", False),
        ("30,30,55,58", False),
        ("60,0,80,20", False),
        ("0,900,20,950", False),
        ("5,5,5.5,9", False),  # less than a pixel
        ("0.2,0.2,0.2001,0.9", False),
        ("0.9,0.9,1,1", True),
    ],
)
def test_a_box_that_is_not_one_of_the_picture_stops_it_and_is_named_with_the_size(
    tmp_path: Path, image: torch.Tensor, box: str, fits: bool
):
    (tmp_path / "b.csv").write_text(f"left,top,right,bottom\n{box}\n{box}\n")
    region = parse(f"block@box:file={tmp_path}/b.csv")
    _, height, width = image[0].shape
    if fits:
        assert len(region.find(image[0])) == 1  # a row that repeats counts once
        return
    with pytest.raises(ImageError) as error:
        region.find(image[0])
    message = f"the box {box} (left,top,right,bottom) is not one of a picture of {width}x{height}"
    assert message in str(error.value)
    assert error.value.cause == "a box outside of the picture"


def test_a_file_of_boxes_that_is_not_there_is_refused(tmp_path: Path, image: torch.Tensor):
    with pytest.raises(ArtefactError, match=r"b\.csv: cannot be read \(No such file or directory\)"):
        parse(f"blur:radius=2@box:file={tmp_path}/b.csv").boxes(image[0])


@pytest.mark.parametrize("name", ["a,b.csv", " b.csv", "b@faces"])
def test_a_file_that_no_spec_could_name_is_refused(name: str):
    with pytest.raises(SpecError, match=r"@box: file=.*a path has no commas"):
        Region(parse("block"), "box", file=name)


def test_a_block_hides_the_centre_of_a_box_and_all_of_the_least_box_around_boxes_that_overlap(
    tmp_path: Path, image: torch.Tensor
):
    path = boxes(tmp_path / "b.csv", "0,0,10,10", "30,10,40,20", "35,15,45,25")
    released = parse(f"block:share=0.5@box:file={path}").release(image.clamp(min=1), seeded_noise(0))
    hidden = torch.zeros(40, 60, dtype=torch.bool)
    hidden[2:7, 2:7] = True  # half of ten pixels, in the middle
    hidden[10:25, 30:45] = True
    assert torch.equal((released.images()[0] == 0).all(0), hidden)
