"""Export the device side of codes for browsers; `sfumato serve` hands the files out."""

from collections.abc import Iterable, Iterator
from pathlib import Path

_CHECKED = 8  # images of noise
_MOST = 32 << 20  # bytes of an artefact: a larger one is too slow to fetch


def export_codes(artefacts: Iterable[Path]) -> Iterator[str]:
    """Export the device side of each code next to its artefact; yields the reason if it fails.

    A code exported before is skipped.

    Args:
        artefacts: of codes; missing and large ones are skipped.
    """
    from sfumato.errors import MissingExtraError, SfumatoError

    for artefact in artefacts:
        destination = artefact.with_suffix(".onnx")
        if not artefact.exists() or artefact.stat().st_size > _MOST or _is_of(destination, artefact):
            continue
        try:
            _export(artefact, destination)
        except MissingExtraError:
            yield (f"for the web page, install the extra edge, and run `sfumato export {artefact}`")
            return
        except SfumatoError as error:
            destination.unlink(missing_ok=True)  # of an earlier code
            yield (f"{artefact}: no .onnx file for the web page ({error})")


def _is_of(exported: Path, artefact: Path) -> bool:
    """Whether a file has the digest of an artefact: times say little of copies and restored backups."""
    from sfumato.protect.parameters import artefact_digest

    return exported.exists() and artefact_digest(str(artefact)).encode() in exported.read_bytes()


def _export(artefact: Path, destination: Path) -> None:
    import torch

    from sfumato.artefacts import read_card
    from sfumato.export.export import export

    draw = torch.Generator().manual_seed(0)
    shape = read_card(artefact)["shape"]
    check = torch.randint(0, 256, (_CHECKED, *shape), generator=draw).to(torch.uint8)
    export(artefact, destination, check=check)
