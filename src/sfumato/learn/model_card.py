"""Model cards for people: what an artefact is, its training and purpose, its guarantees, and its limits.

Source: Mitchell et al. 2019, "Model Cards for Model Reporting", whose headings these are, as far as an
artefact knows. A card says only what the file says, or what follows from it.
"""

import html
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato import artefacts
from sfumato.base.files import printable
from sfumato.data.readers.catalogue import SOURCES
from sfumato.errors import ArtefactError
from sfumato.learn import meta
from sfumato.learn.method import describing
from sfumato.learn.refusal import Refusal
from sfumato.networks.encoders.pretrained import is_pretrained
from sfumato.protect import answer, feature, mask, parse
from sfumato.protect import code as codes
from sfumato.protect.naming import guarantee_words, naming_words

_WHAT = {
    codes.KIND: "the encoder of a code: a device sends its bits or numbers instead of an image",
    feature.KIND: "a private feature: a device sends its numbers instead of an image",
    mask.KIND: "a mask: a device shows the pixels that the task needs, and no others",
    answer.KIND: "a classifier for devices, which send the name of a class instead of an image",
    "few-shot": "a few-shot classifier of releases, which learns new classes from a few examples",
    "classifier": "a classifier of releases",
    "meta": "a start from which new classes are learned in a few steps",
    "semsim": "a measure of how alike two images are to people",
    "semsim-perceptual": "a measure of how alike two images are to people, and how likely they see the same",
    "start": "an encoder with which trainings begin",
}
_USED = {
    codes.KIND: ("sfumato protect PHOTOS RELEASED --with code:artefact={path}", "sfumato serve {path}"),
    feature.KIND: (
        "sfumato protect PHOTOS RELEASED --with feature:artefact={path},noise=0.3",
        "sfumato serve {path}",
    ),
    mask.KIND: ("sfumato protect PHOTOS RELEASED --with mask:artefact={path}",),
    answer.KIND: ("sfumato protect PHOTOS RELEASED --with answer:artefact={path}",),
    "few-shot": ("sfumato serve {path}",),
    "meta": ("sfumato serve {path}",),
    "semsim": ("sfumato assess ORIGINALS OTHERS --semsim {path}",),
    "semsim-perceptual": ("sfumato assess ORIGINALS OTHERS --semsim {path}",),
}


@dataclass(frozen=True)
class Section:
    """A heading, and its sentences or commands."""

    heading: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class ModelCard:
    """The statements about an artefact."""

    name: str  # of its file
    sections: tuple[Section, ...]  # in reading order
    card: Mapping[str, Any]  # of the artefact, as it was saved

    def as_text(self) -> str:
        """Text for a terminal."""
        parts = [
            f"{each.heading}\n" + "".join(f"  {printable(line)}\n" for line in each.lines)
            for each in self.sections
        ]
        return "\n".join([f"{printable(self.name)}\n", *parts])

    def as_markdown(self) -> str:
        """Markdown for a code host or a site."""
        parts = [
            f"## {each.heading}\n\n" + "".join(f"- {line}\n" for line in each.lines) for each in self.sections
        ]
        return "\n".join([f"# {self.name}\n", *parts])

    def as_html(self) -> str:
        """A page that needs nothing else, and loads nothing from other hosts."""
        parts = [
            f"<h2>{html.escape(each.heading)}</h2>\n<ul>\n"
            + "".join(f"<li>{html.escape(line)}</li>\n" for line in each.lines)
            + "</ul>\n"
            for each in self.sections
        ]
        title = html.escape(self.name)
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{title}</title>\n<style>{_STYLE}</style>\n<h1>{title}</h1>\n{''.join(parts)}</html>\n"
        )

    def as_json(self) -> dict[str, Any]:
        """The sections and the card itself, fit for JSON."""
        sections = {each.heading: list(each.lines) for each in self.sections}
        return {"name": self.name, "sections": sections, "card": dict(self.card)}


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem;"
    "overflow-wrap:anywhere;color-scheme:light dark}h1{font-size:1.5rem}"
    "h2{font-size:1.1rem;margin-bottom:.3rem}"
    "ul{margin-top:0;padding-left:1.2rem}"
)


def describe(path: str | Path, *, measured: Sequence[str] = ()) -> ModelCard:
    """The model card of an artefact of any kind, with sentences of a study about it. Raises ArtefactError."""
    path = Path(path)
    kind = str(artefacts.read_card(path).get("kind"))
    _, card = artefacts.load(path, kind=kind)
    what = _WHAT.get(kind, f"an artefact of kind {kind!r}")
    # A spec cannot write every path, such as one with a comma: the protection reads a link.
    with tempfile.TemporaryDirectory() as folder, describing(path, kind):
        link = Path(folder) / "artefact.safetensors"
        link.symlink_to(path.resolve())
        sections = [
            Section("What it is", (f"{what[0].upper()}{what[1:]}.", *_origin(path, card))),
            Section("What it was trained on and for", _training(card)),
            Section("What is proved", _guarantees(link, kind, card)),
            Section("Accuracy", _accuracy(card)),
            Section("Adversaries", tuple(measured) or (_NOT_ATTACKED,)),
            Section("Limits", _limits(card)),
            Section("Licence", _licence(card)),
        ]
    if kind in _USED:
        name = path.name if "," in str(path) else path  # of the present folder
        sections.append(Section("How to use it", tuple(line.format(path=name) for line in _USED[kind])))
    return ModelCard(path.name, tuple(sections), card)


_NOT_ATTACKED = (
    "The file records no attack on its releases. `sfumato demo` and `sfumato study run` try all "
    "adversaries; an artefact in the folder of such a run is shown with what they found."
)


def _origin(path: Path, card: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"Saved by sfumato {card.get('version') or 'of an unknown version'}.",
        "The file is as it was saved: card and weights have its digest.",
    )


def _training(card: Mapping[str, Any]) -> tuple[str, ...]:
    lines = []
    if isinstance(data := card.get("data"), Mapping) and "images" in data:
        lines.append(f"Trained on {data['images']:,} images of the source {data['name']!r}.")
    if target := card.get("target"):
        lines.append(f"Trained to recognise {target!r}.")
    if classes := card.get("classes"):
        lines.append(_classes(classes))
    if sensitive := card.get("sensitive"):
        names = sensitive if isinstance(sensitive, str) else ", ".join(sensitive)
        lines.append(f"Trained to hide: {names}.")
    shape = card.get("shape") or card.get("image")
    if shape:
        channels, height, width = shape
        colour = "colour" if channels == 3 else "grey" if channels == 1 else f"{channels} channels"
        lines.append(f"It takes images of {width}x{height} pixels, in {colour}.")
    if spec := card.get("spec"):
        lines.append(f"It takes releases of: {spec}.")
    return tuple(lines) or ("The file does not say.",)


def _classes(classes: Any) -> str:
    if isinstance(classes, Mapping):
        return "; ".join(f"Classes of {label}: {', '.join(names)}" for label, names in classes.items()) + "."
    if isinstance(classes, int):
        return f"There were {classes} training classes. It is for other classes of the same kind."
    shown = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
    return f"{len(classes)} classes: {shown}."


def _guarantees(path: Path, kind: str, card: Mapping[str, Any]) -> tuple[str, ...]:
    lines = []
    shape = card.get("shape") or card.get("image")
    if shape and kind in (codes.KIND, feature.KIND, mask.KIND, answer.KIND):
        settings = card.get("config", {})
        protection: Any
        if kind == codes.KIND:
            given = {name: settings.get(name) for name in ("norm", "noise", "flip")}
            protection = codes.Code(str(path), **given)
        elif kind == feature.KIND:
            protection = feature.Feature(str(path), noise=0.0)
        elif kind == mask.KIND:
            protection = mask.Mask(str(path))
        else:
            protection = answer.Answer(str(path))
        lines.append(f"About the person on a release: {naming_words(protection, tuple(shape))}.")
        if protection.guarantee(tuple(shape)) is not None:
            lines.append(f"About its pixels: {guarantee_words(protection, tuple(shape))}.")
    elif shape and (spec := card.get("spec")):
        lines.append(f"About {spec}, which it takes: {_of_spec(spec, tuple(shape))}.")
    trained = meta.promise(dict(card)) if kind == "meta" else "nothing is promised to them"
    lines.append(f"About the images that it was trained on: {trained}.")
    return tuple(lines)


def _of_spec(spec: str, shape: tuple[int, int, int]) -> str:
    try:
        return guarantee_words(parse(spec), shape)
    except ArtefactError:  # a protection whose own artefact is missing
        return "the guarantee of its own artefact, which is another file"


def _accuracy(card: Mapping[str, Any]) -> tuple[str, ...]:
    lines = []
    said = [words for key in ("shared", "left_out") if isinstance(words := card.get(key), list)]
    tested = (
        *_test_sentences(card.get("test")),
        *(f"Of its data, {line}." for lines in said for line in lines),
    )
    if isinstance(share := card.get("validation_accuracy"), int | float):
        lines.append(f"{share:.1%} of validation images.")
    for label, value in (
        (card.get("accuracies") or {}).items() if isinstance(card.get("accuracies"), Mapping) else ()
    ):
        lines.append(f"{value:.1%} of validation images, of {label}.")
    if not lines:
        return tested or ("The file does not say.",)
    return (
        *tested,
        *lines,
        "Validation images also chose the best epoch, so new images may be classified a little worse.",
    )


def _test_sentences(test: Any) -> tuple[str, ...]:
    """The sentences of a card about the test after the training."""
    if not isinstance(test, Mapping):
        return ()
    mean, low, high, number = (test.get(name) for name in ("mean", "low", "high", "number"))
    if not all(isinstance(value, int | float) for value in (mean, low, high, number)):
        return ()
    over = f"{number:,} test {test.get('over')}"
    chance = test.get("chance")
    beside = f"; guessing has {chance:.1%}" if isinstance(chance, int | float) else ""
    return (
        f"{mean:.1%} in the test, with a 95% interval from {low:.1%} to {high:.1%}, over {over}{beside}.",
    )


def _limits(card: Mapping[str, Any]) -> tuple[str, ...]:
    lines = ["It is for images like those it was trained on; on others it may be wrong without any sign."]
    made = card.get("prototypes") or card
    if isinstance(refusal := made.get("refusal"), Mapping):
        lines.append(
            f'It answers "none of these" of images of unknown classes: {Refusal.of_card(refusal)}. Among '
            "more classes it refuses fewer."
        )
    elif made.get("no_refusal"):
        lines.append(f'It never answers "none of these": {made["no_refusal"]}.')
    lines.append("Several releases of one person reveal more than one. The ledger of the device counts them.")
    return tuple(lines)


def _licence(card: Mapping[str, Any]) -> tuple[str, ...]:
    licence = card.get("licence")
    lines = [
        f"{licence}, as the person who trained it states."
        if isinstance(licence, str)
        else "No licence is stated: whoever trained it decides, as far as its data and encoder allow."
    ]
    name = card["data"].get("name") if isinstance(card.get("data"), Mapping) else None
    if isinstance(name, str) and name in SOURCES:
        lines.append(f"Data: {SOURCES[name].terms}.")
    elif name is not None:
        lines.append("Data: of the person who trained it.")
    settings = card.get("config")
    encoder = settings.get("encoder") or settings.get("network") if isinstance(settings, Mapping) else None
    if isinstance(encoder, str) and is_pretrained(encoder):
        lines.append(
            f"It holds the weights of another network, {encoder}, whose licence holds for this file."
        )
    return tuple(lines)
