"""dlib's recogniser: it tells people apart, on faces that are cut by our landmarks."""

import numpy as np
import pytest
import torch

from sfumato import images
from sfumato.networks import DlibResNet

pytest.importorskip("dlib")


def test_people_on_real_photographs_are_told_apart(shared_data):
    """studies/second_network.py at 2f64c651 judges all pairs; here eight of one person, and eight of two."""
    packed = dict(np.load(shared_data / "lfw_faces_84.npz"))
    pairs, data, offset = packed["pairs"], packed["blob"].tobytes(), packed["offset"]
    rows = np.concatenate([pairs[pairs[:, 2] == same][::300][:8, :2] for same in (1, 0)]).T.flatten()
    photographs = torch.stack([images.read(data[offset[row] : offset[row + 1]]) for row in rows])
    network = DlibResNet.load()
    embedded = network.embed(network.cut(photographs, torch.from_numpy(packed["landmarks"][rows])))
    assert torch.allclose(embedded.norm(dim=1), torch.ones(32))
    cosines = (embedded[:16] * embedded[16:]).sum(1)
    assert cosines[:8].min() > cosines[8:].max()
