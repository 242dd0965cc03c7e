import io

import numpy as np
import pytest
import torch
from PIL import Image

from sfumato.attack.faces import FaceFinder
from sfumato.errors import DataError
from sfumato.networks import MTCNN
from sfumato.networks.faces.finding import Faces


def faces(*boxes):
    """Faces of 10x10 whose boxes have these corners; all five landmarks of one lie at its middle."""
    corners = torch.tensor(boxes, dtype=torch.float32).reshape(-1, 2)
    landmarks = (corners + 5)[:, None].expand(-1, 5, 2)
    return Faces(torch.cat([corners, corners + 10], 1), torch.full((len(corners),), 0.9), landmarks)


class Listed:
    """A detector that knows photographs by their brightness."""

    def __init__(self, **found):
        self._found = {int(level.removeprefix("at_")): each for level, each in found.items()}

    def detect(self, photographs):
        return [self._found[int(photograph[0, 0, 0])] for photograph in photographs]


def photographs(*levels):
    return torch.tensor(levels, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 24, 20)


def test_the_face_in_the_middle_is_taken_and_no_other():
    # The middle of 24x20 is (10, 12): in the second face only, then near to that of the first.
    detector = Listed(at_1=faces((0, 0), (5, 7)), at_2=faces((4, 6), (9, 11)), at_3=faces((0, 0)))
    found = FaceFinder(detector, photographs(1)).find(photographs(1, 2, 3))
    assert found.landmarks[0].tolist() == [[10, 12]] * 5
    assert found.landmarks[1].tolist() == [[9, 11]] * 5
    assert found.seen.tolist() == [True, True, False]


def test_where_no_face_is_seen_it_is_where_most_of_the_adversarys_own_are():
    detector = Listed(
        at_0=faces(), at_1=faces((1, 3)), at_2=faces((6, 4)), at_3=faces((7, 9)), at_4=faces((0, 0))
    )
    finder = FaceFinder(detector, photographs(1, 0, 2, 3, 4))  # of 0 and 4 the middle has no face
    finder.find(photographs(1, 1, 1, 1))  # teaches it nothing
    found = finder.find(photographs(0, 3, 4))
    # The medians of 1, 6, 7 and of 3, 4, 9, but in the second.
    assert found.landmarks.tolist() == [[place] * 5 for place in ([11, 9], [12, 14], [11, 9])]
    assert found.seen.tolist() == [False, True, False]
    assert found.rate == pytest.approx(1 / 3)


@pytest.mark.parametrize("levels", [(0, 0), (4,)])
def test_photographs_without_a_face_in_the_middle_are_refused_with_the_cure(levels):
    detector = Listed(at_0=faces(), at_4=faces((0, 0)))
    message = rf"no face was found on any of {len(levels)} clean photographs: .* use recogniser: conv4"
    with pytest.raises(DataError, match=message):
        FaceFinder(detector, photographs(*levels))


@pytest.fixture(scope="module")
def portraits(shared_data):
    """Eight faces of LFW at 84x84, and the landmarks that were found on the full photographs."""
    packed = dict(np.load(shared_data / "lfw_faces_84.npz"))
    rows = np.arange(0, len(packed["person"]), 1100)
    files = [packed["blob"][packed["offset"][i] : packed["offset"][i + 1]].tobytes() for i in rows]
    pixels = np.stack([np.array(Image.open(io.BytesIO(file)).convert("RGB")) for file in files])
    return torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy()), torch.from_numpy(packed["landmarks"][rows])


def test_faces_of_real_photographs_are_found_and_a_black_one_has_the_usual_place(shared_data, portraits):
    images, landmarks = portraits
    finder = FaceFinder(MTCNN.load(shared_data / "weights/mtcnn.safetensors"), images[:5])
    found = finder.find(torch.cat([images, torch.zeros_like(images[:2])]))
    assert found.seen.tolist() == [True] * len(images) + [False] * 2
    assert found.rate == pytest.approx(len(images) / (len(images) + 2))
    assert (found.landmarks[:-2] - landmarks).norm(dim=2).mean() < 1.0  # pixels
    usual = found.landmarks[:5].median(0).values
    assert torch.equal(found.landmarks[-2:], usual.expand(2, 5, 2))
    # All are framed alike: the usual place is within a few pixels of anybody's.
    assert (usual - landmarks).norm(dim=2).max() < 10
