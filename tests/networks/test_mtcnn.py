import numpy as np
import pytest
import torch
from pictures import photographs
from torch.nn import functional

from sfumato.errors import DataError
from sfumato.networks import MTCNN
from sfumato.networks.faces.finding import Faces
from sfumato.networks.faces.mtcnn import _averages, _sums, nms

WEIGHTS = "weights/mtcnn.safetensors"


@pytest.fixture(scope="module")
def detector(shared_data):
    return MTCNN.load(shared_data / WEIGHTS)


@pytest.fixture(scope="module")
def faces(shared_data):
    """24 real faces at 84x84 and their landmarks, which the same weights found on the full photographs."""
    landmarks = torch.from_numpy(np.load(shared_data / "lfw_faces_84.npz")["landmarks"])
    return photographs(shared_data, "lfw_faces_84", range(0, len(landmarks), 350)), landmarks[::350]


def enlarged(images, height, width):
    return functional.interpolate(images.float(), (height, width), mode="bilinear").to(torch.uint8)


def share(one, other):
    """Intersection over union of two boxes, by the definition."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    common = max(0.0, width) * max(0.0, height)
    areas = [(b[2] - b[0]) * (b[3] - b[1]) for b in (one, other)]
    return common / (sum(areas) - common), common / min(areas)


@pytest.mark.parametrize("of_smaller", [False, True])
def test_suppression_is_the_plain_loop(of_smaller):
    generator = torch.Generator().manual_seed(0)
    corners = torch.rand(200, 2, generator=generator) * 60
    boxes = torch.cat([corners, corners + 5 + torch.rand(200, 2, generator=generator) * 30], 1)
    scores = torch.rand(200, generator=generator).mul(20).round() / 20  # with ties
    groups = torch.randint(0, 4, (200,), generator=generator)
    expected = []
    for group in range(4):
        kept = []
        for i in sorted((groups == group).nonzero().flatten().tolist(), key=lambda i: (-scores[i], i)):
            if all(share(boxes[i].tolist(), boxes[j].tolist())[of_smaller] <= 0.4 for j in kept):
                kept.append(i)
        expected += kept
    assert nms(boxes, scores, groups, overlap=0.4, of_smaller=of_smaller).tolist() == expected
    assert 20 < len(expected) < 180


def test_a_window_takes_its_share_of_each_pixel_and_black_outside():
    # Each pixel cut into 10 x 10 equal ones: averages over tenths of a pixel become averages over whole ones.
    images = torch.randint(0, 256, (1, 1, 6, 6)).float()
    fine = functional.pad(images.repeat_interleave(10, 2).repeat_interleave(10, 3), (20, 20, 20, 20))
    box = torch.tensor([[-1.3, 0.7, 4.7, 6.7]])  # 20 pixels of black were added in front
    expected = functional.avg_pool2d(fine[:, :, 20 + 7 : 20 + 67, 20 - 13 : 20 + 47], 15)
    torch.testing.assert_close(_averages(_sums(images), torch.tensor([0]), box, (4, 4)), expected)


def test_every_central_face_is_found_with_its_landmarks(detector, faces):
    # All 8391 crops have a face; the landmarks were found on the photographs before they were reduced.
    images, landmarks = faces
    found = detector.detect(images)
    subjects = [each.central(84, 84) for each in found]
    assert None not in subjects
    placed = torch.stack([each.landmarks[i] for each, i in zip(found, subjects, strict=True)])
    errors = (placed - landmarks).norm(dim=2)
    assert errors.mean() < 1.0
    assert (placed - landmarks).mean((0, 1)).abs().max() < 0.3  # half a pixel would be a mistaken convention
    assert min(each.scores.min() for each in found) >= 0.7


def test_two_faces_side_by_side_are_two_detections(detector, faces):
    images, landmarks = faces
    pair = torch.cat([images[1], images[6]], 2)[None]  # (1, 3, 84, 168)
    (found,) = detector.detect(pair)
    assert found.boxes.shape == (2, 4)
    left, right = found.boxes[:, 0].argsort().tolist()
    torch.testing.assert_close(found.landmarks[left], landmarks[1], atol=3.0, rtol=0)
    torch.testing.assert_close(
        found.landmarks[right], landmarks[6] + torch.tensor([84.0, 0.0]), atol=3.0, rtol=0
    )
    assert found.scores[0] >= found.scores[1]


def test_blank_images_have_no_faces(detector):
    for level in (0, 128, 255):
        (found,) = detector.detect(torch.full((1, 3, 84, 100), level, dtype=torch.uint8))
        assert found.boxes.shape == (0, 4)
        assert found.landmarks.shape == (0, 5, 2)
        assert found.central(84, 100) is None


def test_a_batch_is_detected_as_its_images_alone(detector, faces):
    images = torch.cat([faces[0][:4], torch.zeros(1, 3, 84, 84, dtype=torch.uint8), faces[0][4:6]])
    for together, image in zip(detector.detect(images), images, strict=True):
        (alone,) = detector.detect(image[None])
        torch.testing.assert_close(together.boxes, alone.boxes, atol=1e-3, rtol=1e-4)
        torch.testing.assert_close(together.scores, alone.scores, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(together.landmarks, alone.landmarks, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("size", [(28, 28), (300, 420)])
def test_small_and_large_images_give_places_in_their_own_pixels(detector, faces, size):
    images, landmarks = faces
    scale = torch.tensor([size[1] / 84, size[0] / 84])
    (found,) = detector.detect(enlarged(images[:1], *size))
    subject = found.central(*size)
    expected = (landmarks[0] + 0.5) * scale - 0.5
    assert ((found.landmarks[subject] - expected) / scale).norm(dim=1).mean() < 2  # in pixels of 84


def test_the_subject_is_the_face_nearest_to_the_centre_that_it_covers():
    boxes = torch.tensor([[0.0, 0.0, 60.0, 60.0], [30.0, 30.0, 80.0, 80.0], [60.0, 60.0, 90.0, 90.0]])
    found = Faces(boxes, torch.tensor([0.9, 0.8, 0.7]), torch.zeros(3, 5, 2))
    assert found.central(100, 100) == 1
    assert found.central(200, 200) is None


def test_grey_images_are_refused_with_the_cure(detector):
    with pytest.raises(DataError, match="MTCNN reads colour: repeat the grey channel three times"):
        detector.detect(torch.zeros(1, 1, 84, 84, dtype=torch.uint8))
