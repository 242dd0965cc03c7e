"""What a release hides, with its number, its unit and its source: never more than is proved."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A differential-privacy guarantee for ONE release of ONE image.

    Neighbours are two images of the same shape that differ in at most `pixels` pixels, each in all of its
    channels. The shape of an image is public. Releasing the same image again spends again.

    Attributes:
        definition: "pure" (ε-DP) or "gaussian" (μ-GDP, Dong, Roth & Su 2022).
        value: ε or μ between neighbours.
        pixels: m, how many pixels may differ.
        whole_image: ε or μ between ANY two images of that shape.
        source: where the proof is.
    """

    definition: Literal["pure", "gaussian"]
    value: float
    pixels: int
    whole_image: float
    source: str

    def __str__(self) -> str:
        symbol = {"pure": "eps", "gaussian": "mu"}[self.definition]
        kind = {"pure": "pure DP", "gaussian": "Gaussian DP"}[self.definition]
        unit = "any 1 pixel" if self.pixels == 1 else f"any {self.pixels} pixels"
        return (
            f"hides {unit} at {symbol} = {_rounded_up(self.value)} ({kind}); "
            f"the whole image only at {symbol} = {_rounded_up(self.whole_image)}"
        )


def _rounded_up(value: float) -> str:
    """Three significant digits, never below the value: a guarantee may be understated, not overstated."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 2)
    # The 1e-9 keeps 3.0000000000000004 at 3, far below any digit shown.
    return f"{math.ceil(value / unit - 1e-9) * unit:.10g}"
