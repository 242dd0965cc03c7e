"""Updates of federated learning clients, from their usual forms to the one that the attacks take.

A gradient (`of_gradient`), two states of a model (`of_states`), a training loop (`record`), a
client of Flower (`flower.record`), and files of these (`save`, `load`).
"""

from sfumato.attack.updates.files import load, read, save
from sfumato.attack.updates.undo import undo_decay
from sfumato.attack.updates.update import (
    LocalTraining,
    Noise,
    Recording,
    Update,
    of_gradient,
    of_states,
    record,
)

__all__ = [
    "LocalTraining",
    "Noise",
    "Recording",
    "Update",
    "load",
    "of_gradient",
    "of_states",
    "read",
    "record",
    "save",
    "undo_decay",
]
