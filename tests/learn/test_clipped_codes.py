"""What a receiver computes with are the numbers that a device sends: clipped where it clips."""

import pytest
import torch

from sfumato import data
from sfumato.learn import code
from sfumato.learn.code import CodeConfig


def test_codes_are_clipped_to_the_norm_of_the_settings_and_keep_their_direction():
    faces = data.load("faces", identities=4, images_per_identity=4, headwear=4, size=16)
    settings = {"target": "headwear", "sensitive": (), "validation": None, "seed": 0}
    model = code.make_untrained(faces, CodeConfig(numbers=6, norm=1e-3, noise=0.1), **settings)
    with torch.no_grad():
        numbers = model.eval().numbers(faces.images)
    codes = model.codes(faces.images)
    assert (numbers.norm(dim=1) > 1e-3).all()  # all of them are to be cut
    assert codes.norm(dim=1).tolist() == pytest.approx([1e-3] * len(faces), rel=1e-4)
    assert torch.cosine_similarity(codes, numbers).min() > 1 - 1e-5
    loose = code.make_untrained(faces, CodeConfig(numbers=6, norm=1e3, noise=0.1), **settings)
    torch.testing.assert_close(loose.codes(faces.images), numbers)  # within the norm nothing changes
