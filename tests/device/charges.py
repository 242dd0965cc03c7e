"""Charges, and what is proved of them."""

import math
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from sfumato.device.ledger import Charge
from sfumato.dp.guarantee import Guarantee
from sfumato.dp.naming import Information


def guarantee(definition: Any, value: float, *, pixels: int = 1, whole_image: float = 1e9) -> Guarantee:
    return Guarantee(
        definition=definition, value=value, pixels=pixels, whole_image=whole_image, source="a proof"
    )


def proves(definition: str, value: float, whole: float = 1e9) -> Callable[[int | None], Guarantee]:
    """The same guarantee for any number of pixels, and that of the whole image."""
    return lambda pixels: guarantee(definition, value, pixels=pixels or 1, whole_image=whole)


def charge(image: str = "image", spec: str = "code", *, bits: float = math.inf, **fields: Any) -> Charge:
    """A release that draws no noise, and of which nothing but its bits is proved, unless `fields` say so."""
    defaults = {"shape": (3, 8, 8), "guarantee": lambda pixels: None, "release": None}
    known = Information(outputs=bits, leakage=bits)
    return Charge(image=image.encode(), spec=spec, information=known, **defaults | fields)


def edit(path: Path, statement: str) -> None:
    """Change a database past the ledger."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(statement)
