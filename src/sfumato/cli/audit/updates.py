"""`sfumato audit update` and `feature`: the images behind the numbers that a client or a device sends."""

import runpy
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.base.files import check_new
from sfumato.cli.audit.family import Html, app, finish, image_shape
from sfumato.cli.options import Force, Size, setting
from sfumato.cli.show import AsJson, bar, note, settings_of
from sfumato.cli.sources import Strict, read
from sfumato.errors import ConfigError, DataError, did_you_mean, require

if TYPE_CHECKING:
    from torch import Tensor, nn

    from sfumato.attack.gradient_inversion import InversionConfig
    from sfumato.audits.findings import Report

Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Write each image that came back, and all in one picture, to a folder."),
]

_GAP = 2  # pixels between images
_ROW = 16  # images in a row


@app.command("update")
def update(
    model: Annotated[
        str,
        typer.Option(
            help="A classifier of sfumato (FILE.safetensors), a network by its name (lenet, with --classes), "
            "or your own function that returns an nn.Module, such as net.py:make. Your file is then run."
        ),
    ],
    update: Annotated[
        Path,
        typer.Option(
            help="The client's update, as .safetensors or .npz: its gradient, or its parameters before "
            "training minus those after. With --before: its parameters after training."
        ),
    ],
    shape: Annotated[str, typer.Option(metavar="CxHxW", help="The shape of an image, such as 3x32x32.")],
    weights: Annotated[
        Path | None, typer.Option(help="Weights of --model before training (default: those in --update).")
    ] = None,
    classes: Annotated[int | None, typer.Option(min=1, help="Classes of a network by its name.")] = None,
    before: Annotated[
        Path | None, typer.Option(help="The parameters before training, if --update has those after.")
    ] = None,
    images: Annotated[
        int | None, typer.Option(min=1, help="The client's images (default: as the file says, or --batch).")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of the client's SGD (default: 1).")] = None,
    rate: Annotated[float | None, typer.Option(help="The learning rate of that SGD (default: 1).")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Images per step of it (default: all).")] = None,
    noise_multiplier: Annotated[float | None, typer.Option(help="The noise multiplier of DP-SGD.")] = None,
    clipping_norm: Annotated[float | None, typer.Option(help="The clipping norm of DP-SGD.")] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="0,3,...", help="The true classes of the images, in their order.")
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(help="The client's images, a file or a folder, to measure how near an attack gets."),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            help="The search for images, as published: dlg, idlg, inverting-gradients, grad-attack, or none "
            "(default: inverting-gradients, in 1000 steps)."
        ),
    ] = None,
    overrides: Annotated[list[str] | None, setting("A setting of the search, such as steps=5000.")] = None,
    listing: Annotated[bool, settings_of("sfumato.attack.gradient_inversion:InversionConfig")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = 0,
    out: Out = None,
    force: Force = False,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Say which labels and images a server reads from an update, what noise proves, and how to change it.

    Images are read exactly if the first layer is linear, and searched for. A search may end far from them:
    without --truth, only the pictures show whether it found them. The exit code is 1 if something is read.

    Example: sfumato audit update --model net.py:make --update u.pt --shape 3x32x32 --out back
    """
    from sfumato.attack.updates import LocalTraining, Noise, load
    from sfumato.audits.update import Truth, UpdateAuditConfig, audit_update

    require("an audit of updates", "study", "scipy")
    config = UpdateAuditConfig(search=_search_of(search, overrides or []), seed=seed)
    _check_out(out, "exact", "search", force=force)
    sizes = image_shape(shape)
    audited = _open_model(model, sizes, weights, classes)
    training = noise = None
    if (count := images or batch) is not None:
        training = LocalTraining(
            images=count,
            steps=steps or 1,
            rate=1.0 if rate is None else rate,
            batch=None if batch == count else batch,
        )
    elif steps is not None or rate is not None:
        raise ConfigError("--steps and --rate need --images, how many images the client has, or --batch")
    if noise_multiplier is not None and clipping_norm is not None:
        noise = Noise(noise_multiplier=noise_multiplier, clipping_norm=clipping_norm)
    elif (noise_multiplier, clipping_norm) != (None, None):
        raise ConfigError("--noise-multiplier and --clipping-norm go together: give both, for DP-SGD")
    sent = load(update, training=training, noise=noise, before=before)
    known = Truth(None if truth is None else _images_of(truth, sizes), _labels_of(labels))
    subject = f"The update {update.name}"
    with bar("searching") as progress:
        report = audit_update(
            audited, sent, sizes, subject=subject, truth=known, config=config, progress=progress
        )
    _write_pictures(report, out)
    finish(report, as_json, html)


def _search_of(name: str | None, overrides: list[str]) -> "InversionConfig | None":
    from sfumato.attack import gradient_inversion as method
    from sfumato.audits.update import USUAL_SEARCH
    from sfumato.base.settings import check_settings, parse_overrides

    searches = {"dlg": method.DLG, "idlg": method.IDLG, "grad-attack": method.GRAD_ATTACK, "none": None}
    searches["inverting-gradients"] = method.INVERTING_GRADIENTS
    if name is not None and name not in searches:
        raise ConfigError(f"--search {name}: {did_you_mean(name, searches)}")
    search = USUAL_SEARCH if name is None else searches[name]
    if search is None:
        if overrides:
            raise ConfigError(f"--set {overrides[0]} is of a search: leave out --search none")
        return None
    settings = {**asdict(search), **parse_overrides(overrides)}
    return check_settings(method.InversionConfig, settings, "the search")


def _open_model(
    name: str, shape: tuple[int, int, int], weights: Path | None, classes: int | None
) -> "nn.Module":
    """Open the model of --model in training mode without dropout, as clients train it.

    It is a file of `sfumato train classifier`; a network of `networks.CLASSIFIERS`, with its `classes`; or
    `FILE.py:FUNCTION` or `MODULE:FUNCTION`, a function of yours without arguments that returns an nn.Module:
    importing it RUNS that file, so read it first. A file of weights cannot run code. Without `weights` these
    are the file's, the function's, or of seed 0. Raises ArtefactError, ConfigError or DataError.
    """
    from torch import nn

    from sfumato.learn.classifier import load
    from sfumato.networks.classifiers import CLASSIFIERS, make_classifier
    from sfumato.networks.weights import initial_weights, load_weights

    if name.endswith(".safetensors"):
        model: nn.Module = load(name).network
    else:
        own = ":" in name
        if not own and name not in CLASSIFIERS:
            raise ConfigError(
                f"no network is called {name!r}: {did_you_mean(name, CLASSIFIERS)}; one of your own is "
                "FILE.py:FUNCTION, and a trained classifier FILE.safetensors"
            )
        if not own and classes is None:
            raise ConfigError(f"{name} needs its number of classes: --classes 10")
        make = _import(name) if own else partial(make_classifier, name, shape, classes or 0)
        if weights is not None:
            model = load_weights(make, weights, source="--weights has the state dict of --model")
        else:
            with initial_weights(0):
                model = make()
    for module in model.train().modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.eval()
    return model


def _import(name: str) -> "Callable[[], nn.Module]":
    """Import the user's own function that makes the network, and say so."""
    from torch import nn

    from sfumato.base.registry import load

    source, _, function = name.rpartition(":")
    if source.endswith(".py") and not Path(source).is_file():
        raise DataError(f"--model {name}: there is no file {source}: write FILE.py:FUNCTION")
    note(f"{name} is your code, and runs now")
    try:
        own = runpy.run_path(source).get(function) if source.endswith(".py") else load(name)
    except Exception as error:
        raise DataError(f"{name}: cannot be imported ({type(error).__name__}: {error})") from error
    if own is None:
        raise DataError(f"{name}: {source} has no {function!r}: name a function that it defines")

    def make() -> nn.Module:
        try:
            network = own()
        except Exception as error:
            raise DataError(f"{name}: failed ({type(error).__name__}: {error})") from error
        if not isinstance(network, nn.Module):
            raise DataError(f"{name}: returned {type(network).__name__}: return an nn.Module")
        return network

    return make


def _labels_of(labels: str | None) -> "Tensor | None":
    import torch

    try:
        return None if labels is None else torch.tensor([int(label) for label in labels.split(",")])
    except ValueError:
        raise ConfigError(f"--labels {labels}: write the numbers of the classes, as 0,3,3") from None


def _images_of(path: Path, shape: tuple[int, int, int]) -> "Tensor":
    """Read the images of a file or a folder, in the order of their names. (N, C, H, W) float."""
    import torch

    from sfumato.images import read, to_float

    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path}: has no image")
    batch = [read(file, channels=shape[0]) for file in files]
    for file, image in zip(files, batch, strict=True):
        if tuple(image.shape) != shape:
            raise DataError(
                f"{file}: is {'x'.join(map(str, image.shape))} and --shape is {'x'.join(map(str, shape))}: "
                "give the images as the model saw them"
            )
    return to_float(torch.stack(batch))


@app.command("feature")
def feature(
    protection: Annotated[
        str,
        typer.Option(
            metavar="SPEC",
            help="The protection that devices use, such as feature:artefact=feature.safetensors,noise=0.3.",
        ),
    ],
    data: Annotated[
        str,
        typer.Option(help="Images of the kind that it was trained for, such as folder:DIR."),
    ],
    released: Annotated[
        Path | None,
        typer.Option(
            help="Numbers that a device released: a .safetensors or .npz file with `features`, a row per "
            "image (default: those of images that the decoder never saw)."
        ),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Without --released: how many images to rebuild.")] = 16,
    size: Size = None,
    overrides: Annotated[list[str] | None, setting("A setting of the decoder, such as steps=500.")] = None,
    listing: Annotated[bool, settings_of("sfumato.attack.invert:InversionConfig")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the choice of images, and of the decoder.")] = 0,
    strict: Strict = False,
    out: Out = None,
    force: Force = False,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Rebuild images from released private features, with a decoder.

    It learns from releases of images that the adversary has. The exit code is 1 if an image comes back.

    Example: sfumato audit feature --protection feature:artefact=f.safetensors --data faces --out back
    """
    import torch

    from sfumato import protect
    from sfumato.attack import invert as method
    from sfumato.attack.updates import read as read_tensors
    from sfumato.audits.findings import Report
    from sfumato.audits.update import report_images
    from sfumato.base.settings import configure
    from sfumato.dp.mechanisms import fresh_noise
    from sfumato.images import to_float
    from sfumato.protect.spec import portable

    config = configure(method.InversionConfig, overrides or [])
    _check_out(out, "feature", force=force)
    parsed = protect.parse(protection, takes=("numbers",))
    images = read(data, size=size, strict=strict).images
    images = images[torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))]
    held = 0 if released is not None else count
    if len(images) < held + 2:
        raise DataError(
            f"{data}: {len(images)} images, and {held} of them are to be drawn: give at least {held + 2}, or "
            "lower --count"
        )

    def release(batch: torch.Tensor) -> torch.Tensor:
        numbers: torch.Tensor = parsed.release(batch, fresh_noise()).vectors()
        return numbers

    tensors = {"features": release(images[:held])} if released is None else read_tensors(released)[0]
    if "features" not in tensors:
        raise DataError(f"{released}: has no `features`: give the numbers this name, a row per image")
    numbers, others = tensors["features"], images[held:]
    with bar("training") as progress:
        decoder = method.train_inverter(release(others), others, config, seed=seed, progress=progress)
    found, truth = to_float(decoder.restore(numbers)), to_float(images[:held]) if held else None
    sentence = (
        f"{len(found)} images are drawn from {numbers.shape[1]} numbers each, by a decoder that learned from "
        f"{len(others):,} others."
    )
    title = "Images that a decoder draws"
    finding = report_images("feature", title, sentence, found, truth, leaks=False, in_order=True)
    advice = "Look at the images that a decoder drew before you release such numbers."
    if (back := finding.figures.get("came_back")) is not None:
        leak = f"Do not release such numbers: {back} of {len(found)} images come back from them."
        advice = leak if back else "No image came back, which proves nothing."
    report = Report(
        audit="feature",
        subject=portable(parsed.spec),
        sentence=advice,
        findings=(finding,),
        limits=("A decoder that learns longer, or from more images, may draw them better.",),
    )
    _write_pictures(report, out)
    finish(report, as_json, html)


def _check_out(out: Path | None, *names: str, force: bool) -> None:
    """Raise before the audit if its pictures would replace others."""
    if out is not None:
        for name in names:
            check_new(out / f"{name}.png", force=force)


def _write_pictures(report: "Report", out: Path | None) -> None:
    """Write each image that came back, and a picture of all below their originals, for each finding."""
    from sfumato import images

    if out is None:
        return
    for finding in report.findings:
        if rows := [[picture.image for picture in row] for row in finding.pictures]:
            for number, image in enumerate(rows[-1]):
                images.write(out / f"{finding.name}-{number:03d}.png", image)
            images.write(out / f"{finding.name}.png", sheet(rows))
            above = "originals above, " if len(rows) > 1 else ""
            note(f"{above}images that came back: {out}/{finding.name}.png")


def sheet(rows: "list[list[Tensor]]") -> "Tensor":
    """Draw rows of images, (C, H, W) uint8 of one shape, as one, a line below the other; long ones wrap.

    -> (C, height, width) uint8, white between images.
    """
    import torch

    count = len(rows[0])
    white = torch.nn.ConstantPad2d((0, _GAP, 0, _GAP), 255)
    lines = [row[start : start + _ROW] for start in range(0, count, _ROW) for row in rows]
    blank = [torch.full_like(rows[0][0], 255)] * min(count, _ROW)
    page = torch.cat(
        [torch.cat([white(each) for each in [*line, *blank][: len(blank)]], 2) for line in lines], 1
    )
    return page[:, :-_GAP, :-_GAP]
