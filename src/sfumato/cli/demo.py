"""`sfumato demo`: the main job end to end, on an embedded world or on the user's own images."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sfumato.cli.options import Encoder
from sfumato.cli.show import AsJson, Check, NoPictures, PrintConfig, Yes, note, print_config, run_study
from sfumato.cli.sources import SplitBy, Strict

if TYPE_CHECKING:
    from torch import Tensor

_SIDE = 32  # of the drawn faces, and of images that episodes learn from
_SIDE_OF_CLASSES = 64
_SEEN = 20_000  # images that a classifier sees in all epochs together, within these bounds
_FEWEST_EPOCHS, _MOST_EPOCHS = 10, 40
_LITE = "efficientnet-lite0"

Learner = Literal["auto", "classifier", "episodes"]


def demo(
    data: Annotated[
        str, typer.Option(help="The images: faces, folder:DIR (a sub-folder per class), or table:FILE.")
    ] = "faces",
    target: Annotated[
        str | None, typer.Option(help="The label to classify (default: headwear, or class).")
    ] = None,
    sensitive: Annotated[
        str | None, typer.Option(help="The label that must stay hidden (default: identity, or the target).")
    ] = None,
    at_most: Annotated[
        float,
        typer.Option(min=0, max=1, help="The highest re-identification rate that you accept, from 0 to 1."),
    ] = 0.1,
    releases: Annotated[
        int,
        typer.Option(help="From how many releases of one person that rate must hold: 1, 3, 10, 30 or 100."),
    ] = 100,
    learner: Annotated[
        Learner,
        typer.Option(help="classifier: test images are of known classes. episodes: of new ones (few-shot)."),
    ] = "auto",
    size: Annotated[
        int | None,
        typer.Option(min=16, help="Side of the images, in pixels (default: 32, or 64 for a classifier)."),
    ] = None,
    encoder: Encoder = None,
    split_by: SplitBy = None,
    folds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many turns people take as test people, so that everybody is looked for; each takes as "
            "long as a run of one split (default: 1, or more if one split has too few test people).",
        ),
    ] = None,
    strict: Strict = False,
    no_pictures: NoPictures = False,
    printing: PrintConfig = False,
    out: Annotated[Path, typer.Option(help="The folder to keep the run in.")] = Path("runs/demo"),
    force: Annotated[bool, typer.Option("--force", help="Replace the run of other data there.")] = False,
    check: Check = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Protect, learn, attack, measure and report: in a few minutes, with one command.

    Compares ways to protect an image: how well a classifier still works on the releases, and how often
    adversaries still name the person. If you stop it, run the same command again to resume.

    Example: sfumato demo --data folder:photos --out runs/mine
    """
    from sfumato.base.engines import EngineConfig
    from sfumato.base.hardware import limit_threads
    from sfumato.study import grid, preflight, run

    # One thread here, and in each process: threads of one step wait for each other, and on a machine with
    # other work they wait most of the time.
    limit_threads(1)
    if data == "faces":
        settings = _settings("demo.yaml")
        settings["data"]["size"] = size or _SIDE
    else:
        own = {"sensitive": sensitive, "split_by": split_by, "encoder": encoder}
        settings = of_own_images(data, target or "class", learner, size, strict=strict, **own)
        encoder = encoder or settings.get("training", {}).get("encoder")
    settings["recommend"] = {"reidentification_at_most": at_most, "releases": releases}
    task = settings["task"]
    if folds is not None:
        task["folds"] = folds
    if target is not None:
        task["target"] = target
    if sensitive is not None and data == "faces":
        task["sensitive"] = sensitive
    if task["sensitive"] in (None, task["target"]):  # no feature can remove it
        kept = [spec for spec in settings["protections"] if not spec.startswith("feature:")]
        settings["protections"] = kept
    if no_pictures:
        settings["pictures"] = 0
    if encoder is not None:
        for part, key in {"training": "encoder", "classifier": "network", "codes": "encoder"}.items():
            settings.setdefault(part, {})[key] = encoder
        # A denoiser would be trained through the encoder, longer than all else together.
        settings["learners"] = [name for name in settings["learners"] if name != "denoised"]
    config = grid.parse(settings, "demo")
    loaded = None
    if data != "faces" and folds is None:
        loaded = run.prepare(config).data[0]
        if (turns := preflight.turns(config, loaded)) is not None:
            note(f"folds: one split tests too few people: they take {turns} turns (--folds 1: one split)")
            config = preflight.in_turns(config, turns)
    if printing:
        print_config(config)
        return
    prepared = run.prepare(config, fit=data != "faces", loaded=loaded)
    options = {"": "--at-most ", "folds": "--folds "}
    run_study(prepared, out, options, EngineConfig(), force=force, check=check, yes=yes, as_json=as_json)


def of_own_images(
    source: str,
    target: str,
    learner: Learner,
    size: int | None,
    *,
    sensitive: str | None = None,
    split_by: str | None = None,
    strict: bool = False,
    encoder: str | None = None,
) -> dict[str, Any]:
    """Choose settings for a user's own images; says which learner it chose, and why."""
    from sfumato import data
    from sfumato.data.splitting import split_for_task
    from sfumato.study import preflight

    loaded = data.load(source, size=size or _SIDE_OF_CLASSES, strict=strict)  # the run names skipped files
    why, on = ", as asked for", "" if encoder is None else " on your encoder"
    if learner == "auto" and preflight.are_few_of_each(loaded, target):
        learner, why = "episodes", f": there are many classes of {target!r}, with few images each"
    about: dict[str, Any] = {"target": target, "sensitive": sensitive, "split_by": split_by}
    loaded, _ = split_for_task(loaded, episodic=learner == "episodes", **about)
    if learner == "auto":
        known = preflight.are_known(loaded, target)
        learner = "classifier" if known else "episodes"
        same = "the same" if known else "not the same"
        why = f": training and test images have {same} classes of {target!r}"
    if learner == "classifier":
        settings = _settings("demo_classes.yaml")
        epochs = _SEEN // max(1, len(loaded.split("train")))  # few images are seen more often
        settings["classifier"]["epochs"] = min(_MOST_EPOCHS, max(_FEWEST_EPOCHS, epochs))
        side = size or _SIDE_OF_CLASSES
        words = "an ordinary classifier"
    else:
        settings = _settings("demo.yaml")
        if encoder is None and preflight.are_few_of_each(loaded, target):
            encoder, on = _frozen(loaded.images)
            settings["training"]["encoder"] = encoder
        side = size or (_SIDE if encoder is None else _SIDE_OF_CLASSES)
        words = "a few-shot classifier, tested in episodes"
    note(f"learner: {words}{on}, on images of {side}x{side}{why}")
    secret: str | None = target if sensitive is None else sensitive
    if sensitive is not None and not preflight.can_be_looked_for(loaded, sensitive):
        secret = None
        swapped = len(loaded.classes(sensitive)) < len(loaded.classes(target))
        cure = "Add photographs of the same people"
        if swapped:
            cure = f"{target} has more values: is it the secret? --target {sensitive} --sensitive {target}"
        note(
            f"{sensitive}: fewer than two of its values have two test photographs, so that adversaries have "
            f"nobody to look for: they are left out, and nothing is recommended. {cure}"
        )
    task = settings.get("task", {}) | {"target": target, "sensitive": secret}
    if split_by is not None:
        task["split_by"] = split_by
    own = {"source": source, "size": side} | ({"strict": True} if strict else {})
    hidden = "" if secret in (None, target) else f", not {secret}"
    title = f"{Path(source.partition(':')[2]).name}: {target}{hidden}"
    return settings | {"title": title, "data": own, "task": task}


def _frozen(images: "Tensor") -> tuple[str, str]:
    """Choose the encoder for images with few per class, as studies/encoders.py at 2f64c651 did."""
    from sfumato.networks.encoders.efficient_net import LITES
    from sfumato.networks.encoders.pretrained import are_photographs

    if are_photographs(images) and LITES[_LITE][2].is_installed():
        return _LITE, f" on {_LITE}, which is installed (--encoder drawn for the one that the library ships)"
    return "drawn", " on the encoder that the library ships"


def _settings(name: str) -> dict[str, Any]:
    from sfumato.base.settings import read_yaml

    settings: dict[str, Any] = read_yaml(Path(__file__).with_name(name))
    return settings
