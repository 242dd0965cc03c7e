"""Records without their images: neither original ones nor derived ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sfumato.study.records import Record

# Kind of a record -> its result without pictures.
_BARE: dict[str, dict[str, Any]] = {
    "examples": {"examples": ()},
    "pictures": {"original": [], "released": [], "denoised": None, "restored": None},
    "reconstruction": {"originals": (), "pictures": ()},
}


def without_pictures(records: Sequence[Record]) -> list[Record]:
    """The same records, with every number and no image."""
    return [
        record.model_copy(update={"result": record.result.model_copy(update=_BARE[record.kind])})
        if record.kind in _BARE
        else record
        for record in records
    ]


def holding_pictures(directory: Path) -> int:
    """How many record files in the directory of a run hold images, also those of an earlier study."""
    paths = (directory / "records").glob("*.json")
    return sum('"data:image/' in path.read_text(encoding="utf-8") for path in paths)
