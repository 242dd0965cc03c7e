import sys

import pytest
import torch

from sfumato.attack.reidentify import reidentify
from sfumato.errors import MissingExtraError


def test_a_missing_library_is_named_with_the_extra_that_has_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.svm", None)  # what an import then meets is "not installed"
    with pytest.raises(MissingExtraError, match=r"re-identification needs sklearn.*sfumato\[study\]'"):
        reidentify(torch.zeros(2, 3), torch.arange(2), torch.zeros(2, 3))
