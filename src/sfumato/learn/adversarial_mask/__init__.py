"""Learned masks: the pixels that a task needs, so that the others never leave the device.

Source: the mask paper (docs/papers.md, "Mask"), Sec. II. A masker scores every pixel; the highest scores
are shown to one classifier, which must name the class, and the rest is shown to the same classifier,
which must not. Only labels of the task are used, and labels of people only if `against` is set.

Where the paper is silent, we decided: one Adam for both kinds of steps, so the masker weighs the two losses
by the size of their gradients; in the adversarial step the classifier normalises by its running statistics;
and the best epoch is chosen by images under the mask that a device would apply.

Unlike the paper: masks are trained as a device applies them, by a straight-through gradient. As published
(`selection="soft"`) a hidden pixel that reveals the class is darkened, not shown; docs/results.md has both.
Beyond the paper: `anneal_from`; `against`, an adversary who names people by the shown pixels (adversary.py);
and `values="shape"`, masks that are trained for their shape alone.
"""

from sfumato.learn.adversarial_mask.adversary import Adversary, episodes_of_people
from sfumato.learn.adversarial_mask.config import MaskConfig, adversarial_at, keep_at
from sfumato.learn.adversarial_mask.model import MaskModel, evaluate, load, make_untrained
from sfumato.learn.adversarial_mask.training import (
    Training,
    split,
    train,
    trainable,
    uniform_cross_entropy,
)

__all__ = [
    "Adversary",
    "MaskConfig",
    "MaskModel",
    "Training",
    "adversarial_at",
    "episodes_of_people",
    "evaluate",
    "keep_at",
    "load",
    "make_untrained",
    "split",
    "train",
    "trainable",
    "uniform_cross_entropy",
]
