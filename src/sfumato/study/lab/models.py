"""Networks that several cells of a study need: each is made once, and kept with the records."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sfumato import artefacts
from sfumato.base.files import claim, whole
from sfumato.protect.spec import portable
from sfumato.study.cells import digest_of

# Raised when the same settings would give other results, so that older records are not taken for new ones.
RESULTS = 2
_MOST_KEPT = 16  # networks in memory: more than the cells of one setting use

_Network = TypeVar("_Network")


class Saved(Protocol):
    """The result of a training."""

    def save(self, path: Path) -> None:
        """Writes it as an artefact."""


def with_checkpoint(train: Callable[[Path], Saved]) -> Callable[[Path], None]:
    """The `make` of `Models.once`, for a training that resumes from a checkpoint next to the network.

    The checkpoint is removed when the network is written: it may hold unpublishable content.
    """

    def make(path: Path) -> None:
        checkpoint = path.with_suffix(".checkpoint")
        train(checkpoint).save(path)
        checkpoint.unlink(missing_ok=True)

    return make


def keep_recommended(
    directory: Path, protection: str, learner: str | None, *, recommended: bool = True
) -> Path | None:
    """Copies the few-shot model that a study recommends, of its first seed, to recommended.safetensors.

    Without a recommendation it is called not-recommended.safetensors. None, and no such file, if the study
    trained none for this protection, as with the learner "clean".
    """
    names = {True: "recommended.safetensors", False: "not-recommended.safetensors"}
    for name in names.values():
        (directory / name).unlink(missing_ok=True)
    kept = directory / names[recommended]
    fitting = {}
    for path in (directory / "models").glob("few-shot-*.safetensors"):
        card = artefacts.read_card(path)
        denoises = card["config"]["denoiser_depth"] is not None
        wanted = learner == ("denoised" if denoises else "protected")
        if wanted and portable(card["spec"]) == portable(protection):
            fitting[card["seed"]] = path
    if not fitting:
        return None
    with whole(kept) as temporary:
        shutil.copyfile(fitting[min(fitting)], temporary)
    return kept


class Models:
    """The networks of one study on one data set. State: folders of artefacts, and those used last."""

    def __init__(self, directory: Path, data: str, *, shared: Path | None = None) -> None:
        """Keeps networks in `directory`, protections' artefacts in `shared`, for data of that digest."""
        self._directory = directory
        self._shared = shared or directory
        self._data = data
        self._read: dict[str, Any] = {}

    def once(
        self,
        kind: str,
        settings: dict[str, Any],
        make: Callable[[Path], None],
        read: Callable[[Path], _Network],
        *,
        keep: bool = True,
    ) -> _Network:
        """The network of these settings.

        Args:
            kind: its kind, for the name of its file.
            settings: all that decides it, besides the data.
            make: writes it to a path; called unless an earlier cell or run has written it.
            read: reads it from there.
            keep: in memory, among the last that were used; False for what is large and read once.

        Raises:
            BusyError: another process is making it.
        """
        path = self._make(self._directory, kind, settings, make)
        network: _Network = self._read.pop(path.name) if path.name in self._read else read(path)
        if keep:
            self._read[path.name] = network
        for oldest in list(self._read)[:-_MOST_KEPT]:
            del self._read[oldest]
        return network

    def artefact(self, kind: str, settings: dict[str, Any], make: Callable[[Path], None]) -> Path:
        """The file of a protection that was trained with these settings; see `once`."""
        return self._make(self._shared, kind, settings, make)

    def _make(
        self, directory: Path, kind: str, settings: dict[str, Any], make: Callable[[Path], None]
    ) -> Path:
        digest = digest_of({"results": RESULTS, "kind": kind, "data": self._data, **settings})
        path = directory / f"{kind}-{digest}.safetensors"
        if path.name not in self._read and not path.exists():
            with claim(path):
                if not path.exists():
                    make(path)
        return path
