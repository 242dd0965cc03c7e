"""SemSim's embedding: reconstructions that people recognise lie near their originals, others far away.

Source: SemSim (docs/papers.md, "SemSim"), Sec. 4.3 and 5, App. B. It is used by `sfumato.assess.semsim`.

Where the paper is silent, we decided:

- An epoch shows each reconstruction once: as the positive or the negative of a triplet whose other side is
  drawn from the same original. If people recognised all reconstructions of an original, the negative is
  one of another original, which does not show this one either. If they recognised none, the positive is
  the original itself, at distance 0: the negative is still pushed away, and nothing is invented that people
  might recognise. Without such originals, the easiest and the hardest to reconstruct would be missing.
- Distances are plain, not squared, and embeddings are normalised, in training as in use.
- The learning rate is constant, images are not augmented, and the last epoch is kept.
"""

from sfumato.learn.semsim.judgements import Judgements, combine, read, sample
from sfumato.learn.semsim.training import SEMSIM, SemSimConfig, SemSimModel, train, triplet_loss, triplets

__all__ = [
    "SEMSIM",
    "Judgements",
    "SemSimConfig",
    "SemSimModel",
    "combine",
    "read",
    "sample",
    "train",
    "triplet_loss",
    "triplets",
]
