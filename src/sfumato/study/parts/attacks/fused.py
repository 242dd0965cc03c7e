"""All adversaries of a study together: it fuses the similarities that they find; see attack.fusion."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from sfumato.attack.fusion import fuse
from sfumato.attack.reidentify import Guesses
from sfumato.errors import ConfigError
from sfumato.study.cells import Cell
from sfumato.study.parts.attacks.scores import outcome, score
from sfumato.study.protocol import Attack, attack_of
from sfumato.study.vocabulary import ATTACKS, attacks_of

if TYPE_CHECKING:
    from sfumato.study.lab.lab import Lab

_VERSION = 1  # raised when the same adversaries would find more or less together


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The settings that decide the figures of the attack: those of all that it fuses."""
    return {"fusion": _VERSION, "of": {cell.subject: way.settings(lab, cell) for cell, way in _of(lab, cell)}}


def attack(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Looks for everybody by all attacks together; see attack.Result.

    Raises:
        BusyError: another process is making one of them.
    """
    compared = {
        other.subject: way.compared(lab, other) for other, way in _of(lab, cell) if way.compared is not None
    }
    if not compared:
        raise ConfigError(
            f"{cell.subject}: no other adversary of the study says how alike people are: give their "
            f"protocol.Attack `compared`, or leave {cell.subject} out"
        )
    adversaries = lab.adversaries
    gallery, rows = adversaries.deal(cell.seed)
    codes = adversaries.people.label(adversaries.sensitive).codes
    names, truth = codes[gallery], codes[rows]
    identities = names.unique()
    members = [f"{name}: {way}" for name, made in compared.items() for way in made.classifiers]
    fusion = fuse(torch.cat([made.similarities for made in compared.values()]), identities, truth)
    guesses = Guesses("fusion", identities, fusion.similarities)
    networks = [network for made in compared.values() for network in made.result.get("trained", ())]
    return {
        **outcome([score(guesses, truth)], names, truth, gallery=len(gallery)),
        "trained": [network for number, network in enumerate(networks) if network not in networks[:number]],
        "members": [[members[number] for number in chosen] for chosen in fusion.members],
    }


def _of(lab: "Lab", cell: Cell) -> Iterator[tuple[Cell, Attack]]:
    """The cells of the attacks to fuse, with the attacks."""
    for name in attacks_of(lab.config, cell.protection):
        if not ATTACKS[name].fuses:
            which = {**dict(cell.which), "attack": name}
            yield replace(cell, which=tuple(which.items())), attack_of(name)


ATTACK = Attack(settings, attack)
