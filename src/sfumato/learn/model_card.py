"""Model cards for people: what an artefact is, its training and purpose, its guarantees, and its limits.

Source: Mitchell et al. 2019, "Model Cards for Model Reporting", whose headings these are, as far as an
artefact knows. A card says only what the file says, or what follows from it.
"""

import html
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato import artefacts
from sfumato.base.files import printable
from sfumato.data.readers.catalogue import sources
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
_PROTECT = "sfumato protect PHOTOS RELEASED --with "
_USED = {
    codes.KIND: (_PROTECT + "code:artefact={path}", "sfumato serve {path}"),
    feature.KIND: (_PROTECT + "feature:artefact={path},noise=0.3", "sfumato serve {path}"),
    mask.KIND: (_PROTECT + "mask:artefact={path}",),
    answer.KIND: (_PROTECT + "answer:artefact={path}",),
    **dict.fromkeys(("few-shot", "meta"), ("sfumato serve {path}",)),
    **dict.fromkeys(("semsim", "semsim-perceptual"), ("sfumato assess images A B --semsim {path}",)),
}


@dataclass(frozen=True)
class ModelCard:
    """The statements about an artefact."""

    name: str  # of its file
    sections: Mapping[str, tuple[str, ...]]  # heading -> sentences or commands, in reading order
    card: Mapping[str, Any]  # of the artefact, as it was saved

    def as_text(self) -> str:
        """Text for a terminal."""
        return f"{printable(self.name)}\n" + self._walk(printable, "\n{}\n", "  {}\n", "")

    def as_html(self) -> str:
        """A page that needs nothing else, and loads nothing from other hosts."""
        title = html.escape(self.name)
        parts = self._walk(html.escape, "<h2>{}</h2>\n<ul>\n", "<li>{}</li>\n", "</ul>\n")
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{title}</title>\n<style>{_STYLE}</style>\n<h1>{title}</h1>\n{parts}</html>\n"
        )

    def _walk(self, safe: Callable[[str], str], heading: str, line: str, end: str) -> str:
        return "".join(
            heading.format(safe(title)) + "".join(line.format(safe(words)) for words in lines) + end
            for title, lines in self.sections.items()
        )

    def as_json(self) -> dict[str, Any]:
        """The sections and the card itself, fit for JSON."""
        sections = {heading: list(lines) for heading, lines in self.sections.items()}
        return {"name": self.name, "sections": sections, "card": dict(self.card)}


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem;"
    "overflow-wrap:anywhere;color-scheme:light dark}h1{font-size:1.5rem}"
    "h2{font-size:1.1rem;margin-bottom:.3rem}ul{margin-top:0;padding-left:1.2rem}"
)


def describe(path: str | Path, *, measured: Sequence[str] = ()) -> ModelCard:
    """The model card of an artefact of any kind, with sentences of a study about it. Raises ArtefactError."""
    path = Path(path)
    kind = str(artefacts.read_card(path).get("kind"))
    _, card = artefacts.load(path, kind=kind)
    what = _WHAT.get(kind, f"an artefact of kind {kind!r}")
    version = card.get("version") or "of an unknown version"
    whole = "The file is as it was saved: card and weights have its digest."
    # A spec cannot write every path, such as one with a comma: the protection reads a link.
    with tempfile.TemporaryDirectory() as folder, describing(path, kind):
        link = Path(folder) / "artefact.safetensors"
        link.symlink_to(path.resolve())
        sections = {
            "What it is": (f"{what[0].upper()}{what[1:]}.", f"Saved by sfumato {version}.", whole),
            "What it was trained on and for": tuple(_training(card)) or (_UNSAID,),
            "What is proved": tuple(_guarantees(link, kind, card)),
            "Accuracy": tuple(_accuracy(card)) or (_UNSAID,),
            "Adversaries": tuple(measured) or (_NOT_ATTACKED,),
            "Limits": tuple(_limits(card)),
            "Licence": tuple(_licence(card)),
        }
    if kind in _USED:
        name = path.name if "," in str(path) else path  # of the present folder
        sections["How to use it"] = tuple(line.format(path=name) for line in _USED[kind])
    return ModelCard(path.name, sections, card)


_UNSAID = "The file does not say."
_NOT_ATTACKED = (
    "The file records no attack on its releases. `sfumato demo` and `sfumato study run` try all "
    "adversaries; an artefact in the folder of such a run is shown with what they found."
)


def _training(card: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(data := card.get("data"), Mapping) and "images" in data:
        yield f"Trained on {data['images']:,} images of the source {data['name']!r}."
    if target := card.get("target"):
        yield f"Trained to recognise {target!r}."
    if classes := card.get("classes"):
        yield _classes(classes)
    if sensitive := card.get("sensitive"):
        yield f"Trained to hide: {sensitive if isinstance(sensitive, str) else ', '.join(sensitive)}."
    if shape := card.get("shape") or card.get("image"):
        channels, height, width = shape
        colour = {1: "grey", 3: "colour"}.get(channels, f"{channels} channels")
        yield f"It takes images of {width}x{height} pixels, in {colour}."
    if spec := card.get("spec"):
        yield f"It takes releases of: {spec}."


def _classes(classes: Any) -> str:
    if isinstance(classes, Mapping):
        return "; ".join(f"Classes of {label}: {', '.join(names)}" for label, names in classes.items()) + "."
    if isinstance(classes, int):
        return f"There were {classes} training classes. It is for other classes of the same kind."
    shown = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
    return f"{len(classes)} classes: {shown}."


# What devices apply: the protection of a file, by the settings of its training.
_RELEASED: dict[str, Callable[[str, Mapping[str, Any]], Any]] = {
    codes.KIND: lambda path, of: codes.Code(path, **{k: of.get(k) for k in ("norm", "noise", "flip")}),
    feature.KIND: lambda path, of: feature.Feature(path, noise=0.0),
    mask.KIND: lambda path, of: mask.Mask(path),
    answer.KIND: lambda path, of: answer.Answer(path),
}


def _guarantees(path: Path, kind: str, card: Mapping[str, Any]) -> Iterator[str]:
    shape = tuple(card.get("shape") or card.get("image") or ())
    if shape and kind in _RELEASED:
        protection = _RELEASED[kind](str(path), card.get("config", {}))
        yield f"About the person on a release: {naming_words(protection, shape)}."
        if protection.guarantee(shape) is not None:
            yield f"About its pixels: {guarantee_words(protection, shape)}."
    elif shape and (spec := card.get("spec")):
        try:
            proved = guarantee_words(parse(spec), shape)
        except ArtefactError:  # a protection whose own artefact is missing
            proved = "the guarantee of its own artefact, which is another file"
        yield f"About {spec}, which it takes: {proved}."
    trained = meta.promise(dict(card)) if kind == "meta" else "nothing is promised to them"
    yield f"About the images that it was trained on: {trained}."


def _accuracy(card: Mapping[str, Any]) -> Iterator[str]:
    test = card["test"] if isinstance(card.get("test"), Mapping) else {}
    mean, low, high, number = (test.get(name) for name in ("mean", "low", "high", "number"))
    if all(isinstance(value, int | float) for value in (mean, low, high, number)):
        interval, chance = f"with a 95% interval from {low:.1%} to {high:.1%}", test.get("chance")
        guessing = f"; guessing has {chance:.1%}" if isinstance(chance, int | float) else ""
        yield f"{mean:.1%} in the test, {interval}, over {number:,} test {test.get('over')}{guessing}."
    for key in ("shared", "left_out"):
        yield from (f"Of its data, {line}." for line in card.get(key) or [] if isinstance(card[key], list))
    shares = {f", of {label}": value for label, value in (card.get("accuracies") or {}).items()}
    if isinstance(share := card.get("validation_accuracy"), int | float):
        shares = {"": share, **shares}
    yield from (f"{value:.1%} of validation images{of}." for of, value in shares.items())
    if shares:
        yield "Validation images also chose the best epoch, so new images may be classified a little worse."


def _limits(card: Mapping[str, Any]) -> Iterator[str]:
    yield "It is for images like those it was trained on; on others it may be wrong without any sign."
    made = card.get("prototypes") or card
    if isinstance(refusal := made.get("refusal"), Mapping):
        refuses = f'It answers "none of these" of images of unknown classes: {Refusal.of_card(refusal)}.'
        yield f"{refuses} Among more classes it refuses fewer."
    elif made.get("no_refusal"):
        yield f'It never answers "none of these": {made["no_refusal"]}.'
    yield "Several releases of one person reveal more than one. The ledger of the device counts them."


def _licence(card: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(licence := card.get("licence"), str):
        yield f"{licence}, as the person who trained it states."
    else:
        yield "No licence is stated: whoever trained it decides, as far as its data and encoder allow."
    name = card["data"].get("name") if isinstance(card.get("data"), Mapping) else None
    if isinstance(name, str) and name in sources():
        yield f"Data: {sources()[name].terms}."
    elif name is not None:
        yield "Data: of the person who trained it."
    settings = card["config"] if isinstance(card.get("config"), Mapping) else {}
    encoder = settings.get("encoder") or settings.get("network")
    if isinstance(encoder, str) and is_pretrained(encoder):
        yield f"It holds the weights of the encoder {encoder}, whose licence holds for this file."
