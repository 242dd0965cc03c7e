import pytest
import torch


@pytest.fixture
def photos():
    """Seven colour images whose sides are a multiple of no cell, with areas of all brightness."""
    return torch.randint(0, 256, (7, 3, 29, 23), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
