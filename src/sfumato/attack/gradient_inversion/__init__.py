"""Gradient inversion: rebuild the images behind a shared gradient, as in federated learning.

The adversary knows the model and the gradient, and moves a guess until its gradient is the same. One loop of
small parts implements all published attacks, which are settings of it:

- `DLG`, Zhu et al. 2019, Algorithm 1: squared distance, L-BFGS, labels found along with the images;
- `IDLG`, Zhao et al. 2020, Sec. 3: the same, the label read from the gradient beforehand;
- `INVERTING_GRADIENTS`, Geiping et al. 2020, Sec. 4: cosine distance, total variation, Adam on the sign;
- `GRAD_ATTACK`, Huang et al. 2021, Sec. 4: the same with statistics of batch norm, as a stronger adversary.
"""

from sfumato.attack.gradient_inversion.config import (
    DLG,
    GRAD_ATTACK,
    IDLG,
    INVERTING_GRADIENTS,
    LABELS,
    OBJECTIVES,
    OPTIMISERS,
    InversionConfig,
)
from sfumato.attack.gradient_inversion.inversion import Inversion, invert, invert_all
from sfumato.attack.gradient_inversion.optimise import total_variation
from sfumato.attack.gradient_inversion.threat import ThreatModel
from sfumato.attack.gradient_inversion.victim import Gradients, Loss, capture, share

__all__ = [
    "DLG",
    "GRAD_ATTACK",
    "IDLG",
    "INVERTING_GRADIENTS",
    "LABELS",
    "OBJECTIVES",
    "OPTIMISERS",
    "Gradients",
    "Inversion",
    "InversionConfig",
    "Loss",
    "ThreatModel",
    "capture",
    "invert",
    "invert_all",
    "share",
    "total_variation",
]
