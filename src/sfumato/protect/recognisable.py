"""People remain recognisable if cells are small against the image, whatever else is proved."""

import math
from typing import Any

from sfumato.errors import SpecError
from sfumato.protect.parameters import cell_in_pixels
from sfumato.protect.release import cell_of

# Faces of LFW that fill 84x84 pixels (docs/results/protections.md, "Re-identification on LFW by seven
# adversaries"): an adversary with clean photographs and a public recogniser names, among 341 people,
#   98.7% in clear; 24.9% by 21 means of 4x4 pixels along a side, and finds a face on 99 of 100;
#   0.5%, as chance has, by 10.5 means of 8x8 pixels, and finds a face on 39 of 100.
# Nothing was measured in between, so the line is drawn near the coarser of both. An adversary who trains on
# releases names 42.6% of them there: coarser cells give no anonymity.
MOST_CELLS = 12  # cells along the shorter side; with more, faces that fill the image are recognised

# With 21 noisy means (dp-pix:cell=4,epsilon=3) they name 1.3%: averaged to 12 cells a side, that noise has a
# standard deviation of 13 grey levels.
_NOISE = 10.0


def recognisable(protection: Any, shape: tuple[int, int, int]) -> str:
    """Says that people remain recognisable on (C, H, W) images by the size of cells; "" if that is not known.

    Noise counts as far as it is left when cells are averaged to MOST_CELLS along the shorter side.

    Args:
        protection: any; "" for those without cells.
        shape: of the images, which a face is assumed to fill: a smaller one has fewer cells.
    """
    _, height, width = shape
    shorter = min(height, width)
    if cell_of(protection) == 1 or (protection.draws_noise and not hasattr(protection, "law")):
        return ""
    try:
        cell = cell_in_pixels(protection, height, width)
    except SpecError:
        return ""  # so small an image is not released
    if shorter <= MOST_CELLS * cell:
        return ""
    if protection.draws_noise:
        law = protection.law(shape)
        deviation = law.scale * (math.sqrt(2) if law.kind == "laplace" else 1.0)
        if deviation * MOST_CELLS * cell / shorter > _NOISE:
            return ""
    return (
        f"people remain recognisable if a face fills the image: a cell of {cell}x{cell} "
        f"pixels is 1/{shorter / cell:.0f} of the shorter side, and faces are recognised at cells of less "
        f"than 1/{MOST_CELLS} of it: choose a share of the image, such as cell=1/8"
    )
