import sys

import pytest
import torch

from sfumato.attack.reidentify import reidentify
from sfumato.errors import MissingExtraError, require


def test_a_missing_library_is_named_with_the_extra_that_has_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.svm", None)  # what an import then meets is "not installed"
    cure = r"in the clone of sfumato, run pip install -c constraints.txt -e '\.\[study\]'"
    with pytest.raises(MissingExtraError, match=rf"re-identification needs sklearn.*: {cure}"):
        reidentify(torch.zeros(2, 3), torch.arange(2), torch.zeros(2, 3))


def test_what_is_missing_is_told_before_the_work(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match="the report needs matplotlib"):
        require("the report", "study", "json", "matplotlib")
