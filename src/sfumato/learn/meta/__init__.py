"""Meta-learning: parameters from which a task is learned in a few steps, with or without a promise to tasks.

Source: Meta-Clip (docs/papers.md), which clips and noises inside MAML, Reptile and Meta-SGD. Here the unit of
privacy is one task of a fixed pool: tasks are Poisson-sampled, each contribution is clipped as one vector
over all layers, one noise is added to the sum, and an accountant stops the run before the step that would
pass the budget. `adaptation` computes a task's contribution, `dp.clipping` clips it.
"""

from sfumato.learn.meta.model import (
    NETWORKS,
    InnerNoise,
    MetaConfig,
    MetaModel,
    Private,
    config_of,
    evaluate,
    load,
    make_untrained,
    promise,
)
from sfumato.learn.meta.training import Promise, Training, train

__all__ = [
    "NETWORKS",
    "InnerNoise",
    "MetaConfig",
    "MetaModel",
    "Private",
    "Promise",
    "Training",
    "config_of",
    "evaluate",
    "load",
    "make_untrained",
    "promise",
    "train",
]
