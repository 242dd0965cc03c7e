"""Images that a guard looks at: photographs, and the worst there can be."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from sfumato import images


def photographs(folder: Path, name: str, rows: int | Sequence[int]) -> torch.Tensor:
    """Some rows of a packed data set, or a number of them, from the first to the last."""
    packed = np.load(folder / f"{name}.npz")
    data, offset = packed["blob"].tobytes(), packed["offset"]
    rows = np.linspace(0, len(offset) - 2, rows).astype(int) if isinstance(rows, int) else rows
    return torch.stack([images.read(data[offset[i] : offset[i + 1]], channels=3) for i in rows])


def worst(channels: int = 3, side: int = 24) -> torch.Tensor:
    """Images that a test of noise or of sharpness may stumble over: flat ones, and the sharpest."""
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    drawn = torch.randint(0, 2, (side, side), generator=torch.Generator().manual_seed(0)) * 255
    planes = [torch.full((side, side), level) for level in (0, 1, 127, 128, 254, 255)]
    planes += [(rows + columns) % 2 * 255, columns % 2 * 255, (columns > side // 2) * 255, drawn]
    return torch.stack(planes)[:, None].expand(-1, channels, -1, -1).to(torch.uint8).contiguous()
