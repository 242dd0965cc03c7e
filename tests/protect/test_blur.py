import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter

from sfumato.dp.mechanisms import seeded_noise
from sfumato.protect import parse

NOISE = seeded_noise(0)


@pytest.mark.parametrize("radius", [0.5, 1, 2, 3, 4, 5, 20])
def test_blur_is_pillows_to_the_byte_in_colour_and_grey(photos, radius):
    for images in (photos, photos[:, :1]):
        ours = parse(f"blur:radius={radius}").release(images, NOISE).images()
        for image, blurred in zip(images, ours, strict=True):
            array = image.permute(1, 2, 0).numpy().squeeze()
            pillow = np.asarray(Image.fromarray(array).filter(ImageFilter.GaussianBlur(radius)))
            assert np.array_equal(blurred.permute(1, 2, 0).numpy().squeeze(), pillow)


def test_a_picture_one_pixel_wide_is_blurred_along_it():
    column = torch.tensor([0, 0, 255, 255], dtype=torch.uint8).view(1, 1, 4, 1)
    (blurred,) = parse("blur:radius=1").release(column, NOISE).images().tolist()
    pillow = Image.fromarray(column[0, 0].numpy()).filter(ImageFilter.GaussianBlur(1))
    assert blurred[0] == np.asarray(pillow).tolist()


def test_centre_blur_blurs_and_block_blackens_the_centre_and_nothing_else(photos):
    blurred = parse("blur:radius=2").release(photos, NOISE).images()
    inside = torch.zeros(29, 23, dtype=torch.bool)
    inside[7:21, 5:17] = True  # round(0.5 * 29) = 14 rows, round(0.5 * 23) = 12 columns
    for spec, expected in (("centre-blur:radius=2", blurred), ("block:", torch.zeros_like(photos))):
        released = parse(f"{spec},share=0.5".replace(":,", ":")).release(photos, NOISE).images()
        assert torch.equal(released[:, :, inside], expected[:, :, inside])
        assert torch.equal(released[:, :, ~inside], photos[:, :, ~inside])
