import math

import numpy as np
import pytest
import torch

from sfumato.errors import DataError
from sfumato.networks.faces.alignment import align, reference_points, similarity


def points(seed, *shape):
    return torch.rand(*shape, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 80


def moved(where, matrix):
    return where @ matrix[:, :2].T + matrix[:, 2]


def test_the_fit_is_the_least_squares_solution():
    # As a linear problem in (a, b, tx, ty), solved by NumPy: x' = a x - b y + tx, y' = b x + a y + ty.
    for seed in range(10):
        where, targets = points(seed, 5), points(100 + seed, 5)
        x, y, one, zero = *where.T, torch.ones(5), torch.zeros(5)
        system = torch.cat([torch.stack([x, -y, one, zero], 1), torch.stack([y, x, zero, one], 1)])
        a, b, tx, ty = np.linalg.lstsq(system.numpy(), targets.T.flatten().numpy(), rcond=None)[0]
        expected = torch.tensor([[a, -b, tx], [b, a, ty]], dtype=torch.float64)
        torch.testing.assert_close(similarity(where[None], targets)[0], expected)


def test_a_mirrored_face_is_not_mirrored_back():
    where = points(1, 5)
    mirrored = where * torch.tensor([-1.0, 1.0])
    matrix = similarity(where[None], mirrored)[0]
    assert torch.linalg.det(matrix[:, :2]) > 0
    assert (moved(where, matrix) - mirrored).norm(dim=1).max() > 1


def test_square_faces_of_112_have_the_points_of_arcface():
    # Deng et al. 2019, as published with their code: the points of 112x96, 8 pixels further right.
    assert reference_points((112, 112))[0].tolist() == pytest.approx([38.2946, 51.6963], abs=1e-4)
    assert reference_points((112, 112))[4].tolist() == pytest.approx([70.7299, 92.2041], abs=1e-4)


def test_a_face_in_its_place_is_left_as_it_is():
    images = torch.randint(0, 256, (2, 3, 112, 96), dtype=torch.uint8)
    aligned = align(images, reference_points().expand(2, -1, -1))
    assert (aligned.int() - images.int()).abs().max() <= 1  # the fit is the identity up to rounding


def test_landmarks_come_to_the_reference_points():
    # A white dot at each landmark of a turned and enlarged face is a white dot at each reference point.
    turn = torch.tensor([[0.0, -1.5], [1.5, 0.0]])  # a quarter, and 1.5 times as large
    landmarks = (reference_points() - 48) @ turn.T + 100
    image = torch.zeros(1, 1, 200, 200)
    y, x = torch.meshgrid(torch.arange(200), torch.arange(200), indexing="ij")
    for px, py in landmarks.tolist():
        image += 255 * torch.exp(-((x - px) ** 2 + (y - py) ** 2) / 18)
    aligned = align(image.to(torch.uint8), landmarks[None]).double()[0, 0]
    y, x = torch.meshgrid(torch.arange(112), torch.arange(96), indexing="ij")
    for px, py in reference_points().tolist():
        near = aligned * (((x - px) ** 2 + (y - py) ** 2) < 36)
        assert ((near * x).sum() / near.sum()).item() == pytest.approx(px, abs=0.25)
        assert ((near * y).sum() / near.sum()).item() == pytest.approx(py, abs=0.25)


def test_fine_texture_of_a_large_face_is_averaged():
    # Single-pixel stripes, 8 times too large: samples alone would give noise from 0 to 255.
    stripes = torch.zeros(1, 1, 896, 768, dtype=torch.uint8)
    stripes[..., ::2] = 255
    aligned = align(stripes, (reference_points() * 8 + 3.3)[None])[:, :, 2:-2, 2:-2]
    assert (aligned.float() - 127.5).abs().max() < 3


def test_outside_the_image_is_black():
    white = torch.full((1, 3, 40, 40), 255, dtype=torch.uint8)
    aligned = align(white, reference_points()[None])
    assert aligned[:, :, 41:].max() == 0
    assert aligned[:, :, :39, :39].min() == 255


def test_a_batch_is_aligned_as_its_images_alone():
    images = torch.randint(0, 256, (3, 3, 90, 80), dtype=torch.uint8)
    landmarks = torch.stack([reference_points() * scale for scale in (0.3, 0.7, 3.0)])
    together = align(images, landmarks, (56, 48))
    assert together.shape == (3, 3, 56, 48)
    for i in range(3):
        assert torch.equal(together[i], align(images[i : i + 1], landmarks[i : i + 1], (56, 48))[0])


@pytest.mark.parametrize(
    ("landmarks", "message"),
    [
        *((torch.full((2, 5, 2), each), "or all equal: leave that face out") for each in (12, math.nan)),
        (torch.rand(1, 5, 2), r"landmarks of 2 faces are \(N, 5, 2\), got \(1, 5, 2\)"),
    ],
)
def test_landmarks_of_no_use_are_refused(landmarks, message):
    with pytest.raises(DataError, match=message):
        align(torch.zeros(2, 3, 84, 84, dtype=torch.uint8), landmarks)
