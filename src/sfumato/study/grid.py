"""A study file: the protections, learners and attacks to compare. YAML in, a checked configuration out."""

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, ValidationError

from sfumato import episodes
from sfumato.attack.invert import InversionConfig
from sfumato.attack.reidentify import AdversaryConfig, StudentConfig
from sfumato.attack.sets import SIZES
from sfumato.base.hardware import device_named
from sfumato.base.settings import check_keys, check_settings, override, read_yaml, yaml_of
from sfumato.data.labelled import LabelledImages
from sfumato.episodes import Shape
from sfumato.errors import ConfigError, did_you_mean, shorten
from sfumato.learn.adversarial_mask import MaskConfig
from sfumato.learn.classifier import ClassifierConfig
from sfumato.learn.code import CodeConfig
from sfumato.learn.few_shot import FewShotConfig
from sfumato.learn.meta import MetaConfig
from sfumato.learn.private_feature import FeatureConfig
from sfumato.protect.spec import MOST_LISTED
from sfumato.study.vocabulary import (
    ATTACKS,
    JUDGED,
    LEARNERS,
    MEASURES,
    META,
    RECONSTRUCTIONS,
    expand,
    in_full,
    split_measure,
)

BOARD = Path(__file__).with_name("board.yaml")
_MOST = 100  # turns, further shapes of episodes of each kind, and combinations of values that vary
_Share = Annotated[float, Field(ge=0, le=1)]
_FIXED = ("name", "title", "protections", "seeds", "board", "vary")  # keys that cannot vary


@dataclass(frozen=True, kw_only=True)
class Task:
    """The label to classify, the labels that must stay hidden, and the test of the classifier.

    Attributes:
        target: the label to classify.
        sensitive: the label that says who is on an image, whom adversaries look for; None for no attacks.
            If it is the target, the accuracy itself is a lower bound of the adaptive risk, and nothing is
            recommended.
        attributes: further labels that must stay hidden, whose classes all people share, as gender:
            adversaries infer them. In a study file `sensitive: [identity, gender]` names both.
        groups: labels of people, as gender, between whose values accuracy and naming are compared.
        way, shot, queries, episodes: the test. Classifiers are tested on every test image instead.
        other_shots, other_ways: further numbers of support images, and of classes with each of these numbers,
            to test the same models with.
        classes: names of the target's classes that count, for labels that not all images have; None for all.
        split_by: a label whose values are each in one split only, for data without named splits; None for
            the choice that suits the task, see data.splitting.
        folds: how many turns people take as test people, for data without named splits: adversaries look for
            everybody once, after a training without them. The seeds are then the numbers of the folds.
    """

    target: str = "class"
    sensitive: str | None = None
    attributes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    way: int = 5
    shot: int = 5
    queries: int = 15
    episodes: Annotated[int, Field(ge=2)] = 600  # at least two, for an interval
    other_shots: Annotated[list[int], Field(max_length=_MOST)] = field(default_factory=list)
    classes: list[str] | None = None
    split_by: str | None = None
    other_ways: Annotated[tuple[int, ...], Field(max_length=_MOST)] = ()
    folds: Annotated[int, Field(ge=1, le=_MOST)] = 1

    def __post_init__(self) -> None:
        if self.folds > 1 and self.split_by not in (None, self.sensitive):
            raise ConfigError(
                f"folds={self.folds}, split_by={self.split_by}: people take turns by {self.sensitive}: leave "
                "out split_by, or folds"
            )
        self.shape  # noqa: B018 - checks way, shot and queries
        self.other_shapes  # noqa: B018 - checks them
        for name in ("other_shots", "other_ways"):
            values = [getattr(self, name.removeprefix("other_").removesuffix("s")), *getattr(self, name)]
            if len(set(values)) < len(values):
                raise ConfigError(
                    f"{name}={values[1:]}: name each once, and not {values[0]}, of the task itself"
                )
        if self.target in self.attributes:
            raise ConfigError(
                f"sensitive: {self.target} is the target: what is classified cannot stay hidden"
            )
        for label in filter({self.target, self.sensitive}.__contains__, self.groups):
            raise ConfigError(f"groups: {label} is the target or the secret: name another label of people")
        if len(set(self.secrets)) < len(self.secrets):
            raise ConfigError(f"sensitive: {', '.join(self.secrets)}: name each label once")

    @property
    def shape(self) -> Shape:
        """The shape of a test episode."""
        return Shape(way=self.way, shot=self.shot, queries=self.queries)

    @property
    def other_shapes(self) -> dict[str, Shape]:
        """The shapes of further test episodes, by their name in records: "1_shot", "20_way_5_shot"."""
        shapes = {f"{shot}_shot": replace(self.shape, shot=shot) for shot in self.other_shots}
        for way in self.other_ways:
            for shot in (self.shot, *self.other_shots):
                shapes[f"{way}_way_{shot}_shot"] = replace(self.shape, way=way, shot=shot)
        return shapes

    @property
    def secrets(self) -> tuple[str, ...]:
        """All labels that must stay hidden."""
        return (*([] if self.sensitive is None else [self.sensitive]), *self.attributes)

    def rows(self, data: LabelledImages, name: str) -> torch.Tensor:
        """Rows of the images whose class counts: for the target, those of the task's classes; else all."""
        label = data.label(name)
        if name != self.target or self.classes is None:
            return torch.arange(len(data))
        for each in self.classes:
            if each not in label.names:
                raise ConfigError(f"task.classes: no {name} {each!r}: {did_you_mean(each, label.names)}")
        wanted = torch.tensor([label.names.index(each) for each in self.classes])
        return torch.isin(label.codes, wanted).nonzero().flatten()


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The bounds that a recommended setting must keep.

    Attributes:
        reidentification_at_most: top-1 accuracy of the strongest adversary, from 0 to 1.
        inference_at_most: attribute -> how often the strongest adversary infers it, from 0 to 1: above the
            share of the commonest class.
        releases: of one person, with which that bound holds too; one of attack.sets.SIZES.
    """

    reidentification_at_most: _Share = 0.1
    releases: int = 100
    inference_at_most: dict[str, _Share] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.releases not in SIZES:
            sizes = ", ".join(map(str, SIZES))
            raise ConfigError(f"releases={self.releases}: naming is measured from {sizes}: choose one")


@dataclass(frozen=True, kw_only=True)
class StudyConfig:
    """One study. Lists of values in a protection stand for one protection each.

    Attributes:
        name, title: of the study.
        data: a source for `sfumato.data.load`, or a mapping of `source` and its settings.
        protections: specs; "none" is always added in front. "mask:keep=0.1", "feature:dimension=10,noise=0.3"
            and "answer", which name no artefact, are trained by the study, see vocabulary.RECIPES.
        learners: of "clean", "protected", "denoised", and those that a study must name: "meta", "meta-open";
            and ordinary classifiers, whose classes are those of the training images: "classifier-clean",
            trained on clean images and tested on released ones, "classifier-protected", trained on releases,
            and "classifier-shape", which sees of a mask which pixels it shows.
        attacks: of ATTACKS. "reidentify-denoised" is always among them with the static adversary and the
            denoised learner: the service has the denoiser, which undoes part of the protection.
        measures: of "ssim", "psnr", "mse"; and, if named, "face-similarity", by the adversary's recogniser,
            and "semsim:FILE", an artefact of learn.semsim, or "semsim", which the study trains.
        training: how the classifiers are trained; a denoiser only stands in front of "denoised".
        meta: how "meta" is meta-learned, for the way and shot of the task; it is tested with no other shots.
        student: how "reidentify-student" trains; a study that names no attacks has it on an accelerator.
        inversion: how "invert-feature" draws images from numbers.
        masks, features, codes: how the study trains these, for the target; `against` is against the sensitive
            label, by the adversaries' training people. What a spec says, as `keep`, goes before.
        artefacts: a folder for trained protections, so that studies share them; null for `models` of the run.
        tells: whether to measure how well releases tell every label of the data set.
        log_rank: whether to measure that of numbers and bits by a kernel density, too.
        reconstructions: the methods that rebuild images, of "invert-feature".
        seeds: each repeats the whole study; of a study with folds they are the numbers of these.
        device: of the trainings: "cpu", "cuda", or "auto", CUDA if it can be used. Records name the GPU.
        pictures: images of the picture grid; 0 for none.
        board: whether to check that adversaries can have worked on each release; see study.board.
        vary: dotted key -> its values: a study of each combination, in one folder; see variants.
    """

    name: str = "study"
    title: str = ""
    data: dict[str, Any]
    task: Task = field(default_factory=Task)
    protections: list[str]
    learners: list[str] = field(default_factory=lambda: _defaults(LEARNERS))
    attacks: list[str] = field(default_factory=lambda: _defaults(ATTACKS))
    measures: list[str] = field(default_factory=lambda: _defaults(MEASURES))
    training: FewShotConfig = field(default_factory=FewShotConfig)
    meta: MetaConfig = field(default_factory=MetaConfig)
    classifier: ClassifierConfig = field(default_factory=ClassifierConfig)
    adversary: AdversaryConfig = field(default_factory=AdversaryConfig)
    student: StudentConfig = field(default_factory=StudentConfig)
    inversion: InversionConfig = field(default_factory=InversionConfig)
    masks: MaskConfig = field(default_factory=MaskConfig)
    features: FeatureConfig = field(default_factory=FeatureConfig)
    codes: CodeConfig = field(default_factory=lambda: CodeConfig(bits=16))
    artefacts: str | None = None
    tells: bool = True
    log_rank: bool = False
    reconstructions: list[str] = field(default_factory=list)
    recommend: Bounds = field(default_factory=Bounds)
    seeds: list[int] = field(default_factory=lambda: [0])
    device: str = "cpu"
    pictures: Annotated[int, Field(ge=0)] = 3
    board: bool = False
    vary: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Not the learner for answers, which a protection brings with it.
        learners = [name for name, learner in LEARNERS.items() if learner.releases != ("answer",)]
        known = {"learners": learners, "attacks": ATTACKS, "measures": MEASURES}
        for name, words in {**known, "reconstructions": RECONSTRUCTIONS}.items():
            for word in getattr(self, name):
                if (split_measure(word)[0] if name == "measures" else word) not in words:
                    raise ConfigError(f"{name}: no {word!r}: {did_you_mean(word, words)}")
        for word in self.attacks:
            if ATTACKS[word].method is None:
                raise ConfigError(f"attacks: {word} left: use reidentify-student")
        if not self.name or self.name.startswith(".") or "/" in self.name:
            raise ConfigError(f"name={self.name!r}: it names a folder: use letters, digits, - and _")
        for name in ("way", "shot") if self.meta_learns else ():
            own, asked = getattr(self.meta, name), getattr(self.task, name)
            if own != asked:
                raise ConfigError(
                    f"meta: {name}={own}: the task has {name}={asked}, and a meta-learned model is "
                    f"tested as it was trained: leave {name} out of meta, or change that of the task"
                )
        public = self.adversary.weights is not None and not self.adversary.steps
        judged = sorted(JUDGED.intersection(self.measures))
        if judged and self.task.sensitive is None and not (public and judged == ["face-similarity"]):
            raise ConfigError(
                f"measures: {judged[0]} needs task.sensitive, the label that says who is on an image, "
                "or a public face network: adversary: {recogniser: mobile-face-net, weights: ..., steps: 0}"
            )
        if self.log_rank and (self.task.sensitive is None or self.adversary.known < 2):
            raise ConfigError(
                f"log_rank: sensitive={self.task.sensitive}, known={self.adversary.known}: name the "
                "label that says who is on an image, and give adversaries at least 2 photographs of each"
            )
        bounds, attributes = self.recommend.inference_at_most, self.task.attributes
        for label in filter(lambda label: label not in bounds, attributes):
            raise ConfigError(
                f"sensitive: {label}: say how often it may be inferred, as recommend: "
                f"{{inference_at_most: {{{label}: 0.7}}}}, above the share of its commonest class"
            )
        for label in filter(lambda label: label not in attributes, bounds):
            raise ConfigError(
                f"inference_at_most: {label} is not an attribute of the study: write "
                f"sensitive: [identity, {label}], with the label first that says who is on an image"
            )
        device_named(self.device)
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"seeds={self.seeds}: give one or more, each once")
        if self.task.folds > 1 and self.seeds != list(range(self.task.folds)):
            raise ConfigError(
                f"seeds={self.seeds}: with folds={self.task.folds} each fold is a seed: leave it out"
            )

    @property
    def specs(self) -> list[str]:
        """Canonical specs in the order of the file, each once, "none" first."""
        return list(self.named)

    @cached_property
    def named(self) -> dict[str, Any]:
        """The protections of `specs`, and those to train."""
        named = {named.spec: named for named in expand("none")}
        for spec in self.protections:
            for each in map(in_full, expand(spec)):
                named.setdefault(each.spec, each)
            if len(named) > MOST_LISTED:
                raise ConfigError(f"protections: more than {MOST_LISTED:,}: name fewer")
        return named

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def meta_learns(self) -> bool:
        """Whether a learner is meta-learned."""
        return any(LEARNERS[name].method == META for name in self.learners)

    @property
    def episodic(self) -> bool:
        """Whether there are episodes: not if all learners are ordinary classifiers."""
        return not self.learners or not all(LEARNERS[name].knows_classes for name in self.learners)


def _defaults(table: Mapping[str, Any], *, costly: bool = False) -> list[str]:
    return [name for name, entry in table.items() if entry.default or (costly and entry.costly)]


def load(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> StudyConfig:
    """Read a study file.

    A file with `like: OTHER.yaml` has the settings of that file, which it changes: lists are replaced,
    and of mappings the keys that it names; data of another source are all its own.

    `path` "board" or "board.yaml" is the one of sfumato, if there is no such file. `overrides`, as
    "dotted.key=value" with the value in YAML, are applied after the file. Raises ConfigError for no such
    file, no YAML, no such key (the nearest is named), or a value of the wrong type or out of range.
    """
    path = Path(path)
    if str(path) in ("board", BOARD.name) and not path.is_file():
        path = BOARD
    settings = _read(path)
    for text in overrides:
        override(settings, text)
    return parse({"name": path.stem, **settings}, str(path))


def _read(path: Path, of: tuple[Path, ...] = ()) -> dict[str, Any]:
    settings = read_yaml(path)
    if not isinstance(settings, dict):
        got = shorten(repr(settings))
        raise ConfigError(f"{path}: a study file is a mapping with data and protections, got {got}")
    if (other := settings.pop("like", None)) is None:
        return settings
    if not isinstance(other, str):
        raise ConfigError(f"{path}: like={shorten(repr(other))}: name the study file that this one changes")
    if (base := path.parent / other) in (*of, path):
        raise ConfigError(f"{path}: like={other}: that file is like this one: write the settings of one out")
    before = _read(base, (*of, path))
    before.pop("name", None)
    if "source" in settings.get("data", {}):
        before.pop("data", None)  # the settings of one source are not those of another
    both = [key for key in settings if isinstance(settings[key], dict) and isinstance(before.get(key), dict)]
    return before | settings | {key: before[key] | settings[key] for key in both}


def parse(settings: Mapping[str, Any], where: str = "study") -> StudyConfig:
    """Check settings as `load` does, and make the configuration."""
    settings = dict(settings)
    if isinstance(settings.get("data"), str):
        settings["data"] = {"source": settings["data"]}
    check_keys(StudyConfig, settings, where)
    task = settings.get("task", {})
    if isinstance(task, Mapping) and isinstance(task.get("sensitive"), list):
        if not task["sensitive"]:
            raise ConfigError(f"{where}: task: sensitive=[]: name a label, or write null for no attacks")
        first, *further = task["sensitive"]
        task = settings["task"] = {**task, "sensitive": first, "attributes": further}
    if isinstance(folds := task.get("folds"), int) and 1 < folds <= _MOST:
        settings.setdefault("seeds", list(range(folds)))
    shape = {"way": task.get("way", Task.way), "shot": task.get("shot", Task.shot)}
    settings["meta"] = {**shape, **settings.get("meta", {})}
    # The spec of a code says how large it is; the settings need some size.
    settings["codes"] = {"bits": 16, **settings.get("codes", {})}
    try:
        config = check_settings(StudyConfig, settings, where)
    except ConfigError as error:
        raise ConfigError(f"{error}{_say_how_to_vary(error.__cause__)}") from error
    if "attacks" not in settings and device_named(config.device).type != "cpu":
        config = replace(config, attacks=_defaults(ATTACKS, costly=True))
    if not isinstance(config.data.get("source"), str):
        raise ConfigError(f"{where}: data: no source: write data: faces, or data: {{source: folder:photos}}")
    config.specs  # noqa: B018 - every spec is checked now, not after an hour
    variants(config, where)
    return config


def _say_how_to_vary(problem: Any) -> str:
    """The end of an error: what to write if a setting has a list of values, or `vary` a single one."""
    if not isinstance(problem, ValidationError):
        return ""
    first = problem.errors()[0]
    key, value, kind = ".".join(map(str, first["loc"])), first["input"], first["type"]
    if key.startswith("vary.") and kind == "list_type":
        return f": write vary: {{{key.removeprefix('vary.')}: [{yaml_of(value)}]}}"
    if isinstance(value, list) and value and kind != "dict_type" and key.partition(".")[0] not in _FIXED:
        return f": to compare several values write vary: {{{key}: {yaml_of(value)}}}"
    return ""


def variants(config: StudyConfig, where: str = "study") -> list[tuple[dict[str, Any], StudyConfig]]:
    """Each combination of the values of `vary`, the last key fastest, and the study with it.

    Raises ConfigError for a key or value that is wrong, or a key that cannot vary.
    """
    for key, values in config.vary.items():
        if config.board or key.partition(".")[0] in _FIXED:
            cure = "a spec lists values itself, as blur:radius=1,2, and seeds are a list; write another file"
            raise ConfigError(f"{where}: vary: {shorten(key)} cannot vary: {cure}")
        if not values or len(set(map(yaml_of, values))) < len(values):
            raise ConfigError(f"{where}: vary: {key}={shorten(yaml_of(values))}: give values, each once")
    if (count := math.prod(map(len, config.vary.values()))) > _MOST:
        raise ConfigError(f"{where}: vary: {count:,} combinations of values: at most {_MOST}")
    if not config.vary:
        return [({}, config)]
    made = []
    for combination in itertools.product(*config.vary.values()):
        varied = dict(zip(config.vary, combination, strict=True))
        words = yaml_of(varied)[1:-1]
        title = f"{config.title or config.name} ({words})"
        settings = asdict(replace(config, title=title, vary={}))
        if config.task.folds == 1 and config.seeds == [0]:
            del settings["seeds"]  # so that folds can vary, and
        del settings["meta"]["way"], settings["meta"]["shot"]  # so can episodes: `parse` adds all of these
        for key, value in varied.items():
            override(settings, f"{key}={yaml_of(value)}")
        made.append((varied, parse(settings, f"{where}: vary: {words}")))
    return made


def fit_to_data(config: StudyConfig, data: LabelledImages) -> StudyConfig:
    """The study with episodes that fit the classes of `data`; larger ones are made smaller.

    A meta-learned task has a way and shot that the training images allow, too.
    """
    if not config.episodic:
        return config
    task, training, meta = config.task, config.training, config.meta
    train, test = (_codes(data.split(name), task) for name in ("train", "test"))
    task = episodes.fit_episodes(task, test)
    if config.meta_learns:
        meta = episodes.fit_episodes(replace(meta, way=task.way, shot=task.shot), train)
        task = replace(task, way=meta.way, shot=meta.shot)
    if task != config.task:
        task = replace(
            task,
            other_shots=[shot for shot in task.other_shots if shot < task.shot],
            other_ways=tuple(way for way in task.other_ways if way < task.way),
        )
    training = episodes.fit_episodes(training, train)
    validation = _codes(data.split("validation"), task) if "validation" in data.splits else train
    training = episodes.fit_episodes(training, validation, prefix="validation_")
    return replace(config, task=task, training=training, meta=meta)


def fitting(before: StudyConfig, after: StudyConfig) -> list[str]:
    """The changes of `fit_to_data`: a sentence for the episodes of each split that are smaller."""
    old, new = before.training, after.training
    words = (
        episodes.describe_fit("training", old.episode, new.episode),
        episodes.describe_fit("validation", old.validation_episode, new.validation_episode),
        episodes.describe_fit("test", before.task.shape, after.task.shape),
    )
    return list(filter(None, words))


def _codes(data: LabelledImages, task: Task) -> torch.Tensor:
    return data.label(task.target).codes[task.rows(data, task.target)]
