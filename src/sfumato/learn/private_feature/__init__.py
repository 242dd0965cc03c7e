"""DPFE: features that keep attributes of an image and lose the person.

Source: Osia et al. 2018 (docs/papers.md, "DPFE"), Procedure 1. An attribute network is trained and cut at a
layer; a linear auto-encoder, begun with the principal components of that layer's output, is put in between;
its normalised hidden layer is the private feature. Fine-tuned for the attributes, that is the paper's Simple
model; fine-tuned further by Eq. (7), the DPFE model. The part before the feature runs on the device, the
part after it in the cloud.

Where the paper is silent, we decided: every batch of DPFE fine-tuning has a number of pairs of one identity;
the last epoch is kept, since the most accurate one would be the least private; the convolutions are not
frozen; and in the end every batch norm takes its statistics of the training images.

Beyond the paper, instead of Eq. (7): `variant="log-rank"` trains for the privacy that is measured, which the
paper has as future work; `variant="adversarial"` reverses the gradient of a network that names
identities (Ganin & Lempitsky 2015); `variant="information"` minimises that network's estimate of the mutual
information of feature and identity (Cheng et al. 2020).
"""

from sfumato.learn.private_feature.config import VARIANTS, FeatureConfig
from sfumato.learn.private_feature.losses import (
    information_bound,
    log_rank_loss,
    privacy_loss,
    reverse_gradient,
    silverman,
)
from sfumato.learn.private_feature.model import FeatureModel, evaluate, load, make_untrained
from sfumato.learn.private_feature.stages import embed, pair, settle
from sfumato.learn.private_feature.training import stage_loss, train, trainable

__all__ = [
    "VARIANTS",
    "FeatureConfig",
    "FeatureModel",
    "embed",
    "evaluate",
    "information_bound",
    "load",
    "log_rank_loss",
    "make_untrained",
    "pair",
    "privacy_loss",
    "reverse_gradient",
    "settle",
    "silverman",
    "stage_loss",
    "train",
    "trainable",
]
