"""What a client of federated learning sends, as people have it, in one form that the attacks take.

A gradient (`of_gradient`), two states of a model (`of_states`), what a training loop did (`recorded`), what a
client of Flower returned (`flower.recorded`), and files of these (`save`, `load`).
"""

from sfumato.attack.updates.files import load, read, save
from sfumato.attack.updates.recording import Recording, recorded
from sfumato.attack.updates.update import LocalTraining, Noise, Update, of_gradient, of_states

__all__ = [
    "LocalTraining",
    "Noise",
    "Recording",
    "Update",
    "load",
    "of_gradient",
    "of_states",
    "read",
    "recorded",
    "save",
]
