"""The audits of a folder of released images: who is on them, and all else that they tell."""

import os
from collections.abc import Callable
from pathlib import Path

import torch

from sfumato import protect
from sfumato.audits.findings import Report
from sfumato.audits.folder.naming import NamingConfig, name_people, report_names
from sfumato.audits.folder.pictures import Release, list_files, read_pictures
from sfumato.dp.mechanisms import seeded_noise
from sfumato.protect.release import KINDS

_COPIES = 4  # of each known photograph, if a protection draws noise


def audit_names(
    released: str | os.PathLike[str],
    known: str | os.PathLike[str],
    *,
    people: Path | None = None,
    spec: str = "none",
    config: NamingConfig | None = None,
    note: Callable[[str], None] = lambda words: None,
    progress: Callable[[str, int, int], None] = lambda words, done, total: None,
) -> Report:
    """Report how often the people on released images are named from known photographs.

    Args:
        released, people: see `list_files`.
        known: see `list_files`; photographs of people by name.
        spec: the protection, if it is known; "none" for adversaries who do not know it.
        config: see NamingConfig.
        note: called with a sentence on files that were left out.
        progress: see name_people.

    Raises:
        DataError: see `list_files`, `read_pictures` and `name_people`.
        SpecError: see protect.parse.
    """
    config = config or NamingConfig()
    asked = read_pictures(list_files(released, people), _root(released), size=config.size)
    photographs = read_pictures(list_files(known), _root(known), size=config.size, release=_release(spec))
    for pictures in (asked, photographs):
        if pictures.skipped:
            note(f"left out: {len(pictures.skipped)} files, such as {pictures.skipped[0]}")
    named = name_people(photographs, asked, spec=spec, config=config, progress=progress)
    found, risks = report_names(named, photographs, asked, spec=spec, config=config)
    return Report(
        audit="re-identification",
        subject=f"{len(asked.files):,} releases, {len(set(photographs.people)):,} known people",
        sentence=found[0].sentence,
        findings=found,
        limits=_LIMITS + (() if spec != "none" else (_UNKNOWN,)),
        risks=risks,
    )


_LIMITS = (
    "Adversaries with more photographs, larger networks or more time name more.",
    "Every person on a release is taken for one of the known people; among more people fewer are named.",
)
_UNKNOWN = (
    "No protection was given, so no adversary protected their photographs in the same way. Those who know "
    "the protection, or guess it, name more: give it as --protection."
)


def _root(source: str | os.PathLike[str]) -> Path:
    return Path(source).parent if Path(source).is_file() else Path(source)


def _release(spec: str) -> Release | None:
    """Make releases of one picture in its own size; None for no copies, and for networks of a fixed size."""
    if spec == "none":
        return None
    protection = protect.parse(spec, takes=KINDS)
    if hasattr(protection, "artefact"):
        return None

    def release(picture: torch.Tensor) -> list[torch.Tensor]:
        return [
            protection.release(picture[None], seeded_noise(0, number)).images()[0]
            for number in range(_COPIES if protection.draws_noise else 1)
        ]

    return release
