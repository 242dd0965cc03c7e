"""Updates of federated learning clients, from their usual forms to the one that the attacks take."""

from sfumato.attack.updates.files import client_mod, load, read, record_client, save
from sfumato.attack.updates.update import LocalTraining, Noise, Update, of_states, record, undo_decay

__all__ = [
    "LocalTraining",
    "Noise",
    "Update",
    "client_mod",
    "load",
    "of_states",
    "read",
    "record",
    "record_client",
    "save",
    "undo_decay",
]
