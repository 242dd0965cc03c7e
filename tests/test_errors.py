import sys

import pytest
import torch

from sfumato.assess import similarity
from sfumato.attack.reidentify import reidentify
from sfumato.errors import MissingExtraError


def test_a_missing_library_is_named_with_the_extra_that_has_it(monkeypatch):
    for name in ("torchmetrics.functional.image", "sklearn.svm"):
        monkeypatch.setitem(sys.modules, name, None)  # what an import then meets is "not installed"
    images = torch.zeros(1, 1, 16, 16)
    with pytest.raises(MissingExtraError, match=r"SSIM needs torchmetrics.*: pip install 'sfumato\[study\]'"):
        similarity.ssim(images, images)
    with pytest.raises(MissingExtraError, match=r"re-identification needs sklearn.*'sfumato\[study\]'"):
        reidentify(torch.zeros(2, 3), torch.arange(2), torch.zeros(2, 3))
