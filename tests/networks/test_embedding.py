"""Embeddings: images of any size, brought to that of a network."""

import pytest
import torch

from sfumato.networks.encoders.small import NETWORKS, Embedding, to_squares


def noise(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("name", "dimension"), [("resnet50", 2048), ("resnet18", 512), ("lenet", 48)])
def test_images_of_any_size_and_colour_have_vectors_of_one_length(name: str, dimension: int):
    embedding = Embedding(name, size=8, normalised=True).eval()
    for shape in ((2, 3, 8, 8), (2, 1, 11, 20)):
        vectors = embedding(noise(*shape))
        assert vectors.shape == (2, dimension)
        assert torch.allclose(vectors.norm(dim=1), torch.ones(2))


def test_every_network_of_the_paper_is_there():
    assert set(NETWORKS) == {"resnet50", "resnet18", "resnet152", "lenet"}


def test_normalised_vectors_are_the_others_scaled():
    plain, scaled = (Embedding("lenet", size=8, normalised=each) for each in (False, True))
    scaled.load_state_dict(plain.state_dict())
    vectors = plain(noise(3, 3, 8, 8))
    expected = vectors / vectors.norm(dim=1, keepdim=True)
    assert torch.allclose(scaled(noise(3, 3, 8, 8)), expected, atol=1e-6)


def test_images_of_the_networks_size_stay_as_they_are():
    images = noise(2, 3, 8, 8)
    assert torch.equal(to_squares(images, 8), images)


def test_grey_is_the_same_in_all_channels():
    images = noise(2, 1, 8, 8)
    assert torch.equal(to_squares(images, 8), torch.cat([images] * 3, dim=1))


def test_what_is_smaller_than_a_pixel_is_averaged_and_not_skipped():
    checks = (torch.arange(64)[:, None] + torch.arange(64)).remainder(2).float().expand(1, 3, 64, 64)
    assert torch.allclose(to_squares(checks, 8), torch.full((1, 3, 8, 8), 0.5), atol=0.02)


def test_a_wide_image_is_squeezed_whole():
    halves = torch.zeros(1, 3, 8, 32)
    halves[..., 16:] = 1
    squeezed = to_squares(halves, 8)
    assert torch.equal(squeezed[..., :3], torch.zeros(1, 3, 8, 3))
    assert torch.equal(squeezed[..., 5:], torch.ones(1, 3, 8, 3))
