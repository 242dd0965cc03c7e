"""A campaign in a folder: one page for each annotator, and the answers that came back.

campaign.json     the questions with their right answers, for the operator of the campaign alone
images/           the pictures of the questions, as pixels only, so that questions cannot change later
annotator-N.html  the page of one annotator: whole in one file, which loads nothing from anywhere
answers/          the files that annotators save and send back belong here; proxies write theirs
"""

import base64
import functools
import hashlib
import html
import json
import os
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sfumato import images
from sfumato.annotate.campaign import CANNOT_TELL, CHOOSE, CampaignConfig, Item, Pair, items, order
from sfumato.base.files import parse_json, read_regular, whole
from sfumato.errors import ArtefactError, DataError, first_problem

PEOPLE = "people"  # the other kind of annotators is "proxy"

_AGAIN = "ask its sender to save it again"
_MOST_BYTES = 50_000_000
_Time = Annotated[float, Field(ge=0, le=253402300799)]  # seconds from 1970 to the year 9999, UTC


class Answer(BaseModel):
    """An answer to the item of this key, and its time in seconds since 1970."""

    model_config = ConfigDict(extra="forbid")
    item: str
    answer: str
    time: _Time


class _Answers(BaseModel):
    """A file of answers. `browser` is drawn by the browser that they were given in."""

    model_config = ConfigDict(extra="forbid")
    campaign: str
    annotator: str
    kind: Literal["people", "proxy"]
    browser: str
    saved: _Time
    answers: list[Answer]


class _Campaign(BaseModel):
    version: Literal["sfumato campaign 1"]
    campaign: str
    config: CampaignConfig
    items: list[Item]


def create(path: str | os.PathLike[str], pairs: Sequence[Pair], config: CampaignConfig) -> None:
    """Write a new campaign with a page for each annotator; the folder appears whole or not at all."""
    path = Path(path)
    if path.exists():
        raise DataError(f"{path}: exists already, maybe with answers: name a new folder")
    made = items(pairs, config)
    with whole(path) as folder:
        folder.mkdir(mode=0o700)  # right answers, and images of people
        for name in ("images", "answers"):
            (folder / name).mkdir()
        shown: dict[str, str] = {}  # for each image its file as text, which every page holds
        keep = functools.cache(lambda file: _keep(file, folder / "images", shown))  # items share originals
        for number, item in enumerate(made):
            # Annotators who choose a class must not see the original.
            files = [item.pair.original, item.pair.reconstruction][config.task == CHOOSE :]
            made[number] = replace(item, key=secrets.token_hex(8), images=tuple(map(keep, files)))
        campaign = _Campaign(
            version="sfumato campaign 1", campaign=secrets.token_hex(16), config=config, items=made
        )
        (folder / "campaign.json").write_text(campaign.model_dump_json(indent=1), encoding="utf-8")
        for number in range(1, config.annotators + 1):
            page = _write_page(campaign, number, shown)
            (folder / f"annotator-{number}.html").write_text(page, encoding="utf-8")


def _keep(file: Path, folder: Path, shown: dict[str, str]) -> str:
    image = images.read(file, channels=None)
    name, png = f"{images.digest(image).hex()[:32]}.png", images.encode(image)
    (folder / name).write_bytes(png)
    shown[name] = f"data:image/png;base64,{_base64(png)}"
    return name


def _write_page(campaign: _Campaign, annotator: int, shown: Mapping[str, str]) -> str:
    """Fill in the page. It tells nothing of right answers, models, sources or other annotators."""
    asked = [campaign.items[row] for row in order(len(campaign.items), annotator, seed=campaign.config.seed)]
    content = {
        "campaign": campaign.campaign,
        "annotator": f"annotator {annotator}",
        "choose": campaign.config.task == CHOOSE,
        "cannotTell": CANNOT_TELL,
        "items": [
            {"item": item.key, "images": [shown[name] for name in item.images], "options": item.options}
            for item in asked
        ],
    }
    files = resources.files("sfumato.annotate") / "page"
    page, style, script = ((files / f"page.{each}").read_text("utf-8") for each in ("html", "css", "js"))
    hashes = [f"'sha256-{_base64(hashlib.sha256(text.encode()).digest())}'" for text in (style, script)]
    policy = f"default-src 'none'; img-src data:; style-src {hashes[0]}; script-src {hashes[1]}"
    parts = {
        "policy": html.escape(f"{policy}; base-uri 'none'; form-action 'none'"),
        "style": style,
        "script": script,
        "campaign": json.dumps(content).replace("<", "\\u003c"),  # names may hold "</script>"
    }
    before, *rest = page.split("{{")
    return before + "".join(parts[name] + text for name, text in (each.split("}}", 1) for each in rest))


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


class Campaign:
    """An existing campaign: its questions `config`, and its `items` by their numbers, from 1."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open a campaign; ArtefactError for another folder, or a damaged file."""
        self.path = Path(path)
        file = self.path / "campaign.json"
        if not file.is_file():
            raise ArtefactError(f"{path}: not a campaign: name a folder of `sfumato annotate new`")
        try:
            found = _Campaign.model_validate_json(file.read_bytes())
        except ValidationError as error:
            reason = first_problem(error, "file")
            raise ArtefactError(f"{file}: damaged, or of another version ({reason}): restore it") from error
        self._name = found.campaign
        self.config = found.config
        self.items = dict(enumerate(found.items, 1))
        self._numbers = {item.key: number for number, item in self.items.items()}

    def read_pngs(self, item: int) -> list[bytes]:
        """Read the PNG files of an item: the reconstruction, after the original for "same"."""
        return [(self.path / "images" / name).read_bytes() for name in self.items[item].images]

    @property
    def kind(self) -> str:
        """The kind of annotators: "people" or "proxy", never both."""
        return next((file.kind for file in self._files), PEOPLE)

    def answers(self) -> dict[str, dict[int, Answer]]:
        """Map annotator and item to their answer. People are listed before they answer, proxies after.

        Raises:
            DataError: a file that is not one of this campaign's answers, of two that hold different people's,
                or of both people and proxies: named, with the cure.
        """
        names = [f"annotator {number}" for number in range(1, self.config.annotators + 1)]
        found: dict[str, dict[int, Answer]] = {name: {} for name in names if self.kind == PEOPLE}
        for file in self._files:
            found[file.annotator] = {self._numbers[one.item]: one for one in file.answers}
        return found

    def add_proxies(self, answers: Mapping[str, Mapping[int, str]]) -> None:
        """Write the answers of recognisers, by name and item; DataError if people, or they, answered."""
        if self._files and self.kind == PEOPLE:
            raise DataError(
                f"{self.path}: people have answered here ({len(self._files)} files), and proxies never share "
                "a campaign with people: create another with `sfumato annotate new`"
            )
        for name in answers:
            if any(name == file.annotator for file in self._files):
                raise DataError(f"{self.path}: a proxy called {name!r} has answered: give another name")
        for name, mine in answers.items():
            given = [
                Answer(item=self.items[number].key, answer=said, time=0) for number, said in mine.items()
            ]
            file = _Answers(
                campaign=self._name, annotator=name, kind="proxy", browser="", saved=0, answers=given
            )
            with whole(self.path / "answers" / f"{name}.json") as temporary:
                temporary.write_text(file.model_dump_json(), encoding="utf-8")
        del self._files

    @functools.cached_property
    def _files(self) -> list[_Answers]:
        """The files of answers in the order in which they were saved: the last of an annotator counts."""
        folder, browsers = self.path / "answers", dict[str, tuple[Path, str]]()
        found = []
        for path in sorted(folder.iterdir()):
            if path.name.startswith("."):
                continue
            file = self._read(path)
            before, browser = browsers.setdefault(file.annotator, (path, file.browser))
            if browser != file.browser:
                raise DataError(
                    f"{before} and {path}: {file.annotator} in two browsers, as if two people had been given "
                    "one page: move one of the files out"
                )
            found.append(file)
        if len({file.kind for file in found}) > 1:
            raise DataError(f"{folder}: people and proxies never share a campaign: move one kind out")
        return sorted(found, key=lambda file: file.saved)

    def _read(self, path: Path) -> _Answers:
        try:
            file = _Answers.model_validate(parse_json(read_regular(path, _MOST_BYTES)), strict=True)
        except (OSError, ValueError) as error:
            reason = first_problem(error, "file") if isinstance(error, ValidationError) else error
            raise DataError(
                f"{path}: not a file of answers as a page saves it ({reason}): {_AGAIN}, or move it out"
            ) from error
        if file.campaign != self._name:
            raise DataError(f"{path}: answers of another campaign: move it into that one's folder")
        number = file.annotator.removeprefix("annotator ")
        if file.kind == PEOPLE and number not in map(str, range(1, self.config.annotators + 1)):
            raise DataError(f"{path}: {file.annotator!r} is not of this campaign: {_AGAIN}")
        for key, count in Counter(one.item for one in file.answers).items():
            if key not in self._numbers or count > 1:
                wrong = "there twice" if count > 1 else "unknown"
                raise DataError(f"{path}: item {key!r} is {wrong}: {_AGAIN}")
        for one in file.answers:
            offered = [*self.items[self._numbers[one.item]].options, CANNOT_TELL]
            if one.answer not in offered:
                raise DataError(f"{path}: {one.answer!r} is not among {', '.join(offered)}: {_AGAIN}")
        return file
