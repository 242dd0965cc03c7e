"""`sfumato train METHOD`: train a model, save it as an artefact, and test it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from sfumato.base.files import check_new
from sfumato.cli import show
from sfumato.cli.options import Encoder, Force, Size, setting
from sfumato.cli.show import note
from sfumato.cli.sources import SplitBy, Strict
from sfumato.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    from sfumato.data import LabelledImages
    from sfumato.episodes import Settings, Shape

_Config = TypeVar("_Config")

_LICENCE = r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*"  # without its parentheses: nobody needs them
_CANDIDATES = (1_000, 1_000_000)  # people among whom a code is proved to name one rarely
_AGAINST = {"code": 1, "mask": 3}  # the weight of adversaries, with --sensitive and without --set against=


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a model by one of eight methods, save it as an artefact, and test it.

    --set takes the settings of the method: `sfumato train code --settings` lists them. If you stop a
    training, run the same command again to resume.

    A code is for other classes of the same kind, or for the same ones (--known). With same_scenes=1, many
    releases of one drawn person name them less often. A mask with --sensitive is trained against an
    adversary who learns who is shown. Nothing is proved about masks and features.

    With private.epsilon=8, meta promises privacy to each task of a pool, and private.clipping says how much a
    task may move the result. A private artefact that exists is never trained again: that would spend the
    budget twice.

    Example: sfumato train code --data faces --target headwear --set bits=16 --out code.safetensors
    """

    # The options; State: findings about the data.
    context: typer.Context
    method: Annotated[
        str,
        typer.Argument(
            metavar="METHOD",
            is_eager=True,
            callback=lambda context, name: _known(context, name),
            help="classifier, of protected images. code, a few bits that keep a task and rarely name the "
            "person. few-shot, FS-PIC: a denoiser and an encoder. mask, which shows only the pixels that a "
            "task needs. feature, a few numbers that keep labels and lose another. meta, a start for new "
            "tasks by MAML, Reptile or Meta-SGD. semsim, a distance that follows people's judgement. "
            "semsim-perceptual, the same from few judgements, with a probability.",
        ),
    ]
    out: Annotated[Path, typer.Option(help="The artefact to write, a .safetensors file.")]
    data: Annotated[
        str | None, typer.Option(help="The images: faces, celeba:DIR, folder:DIR, table:FILE and others.")
    ] = None
    targets: Annotated[
        list[str] | None,
        typer.Option("--target", help="The label to classify. A feature keeps several: repeat the option."),
    ] = None
    sensitive: Annotated[
        list[str] | None, typer.Option(help="The label to hide, such as identity. A code takes several.")
    ] = None
    spec: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="SPEC",
            help="The protection, such as blur:radius=3, or for few-shot a range, such as "
            "gaussian:sigma=40,80,160.",
        ),
    ] = None
    encoder: Encoder = None
    known: Annotated[
        bool,
        typer.Option(
            "--known",
            help="The code is for the classes of these images: train and test on all of them (default: hold "
            "out whole classes, since a code is for new ones, if there are six or more).",
        ),
    ] = False
    judgements: Annotated[
        list[Path] | None,
        typer.Option(help="For semsim: a CSV that `sfumato annotate export` wrote. Repeat it for more."),
    ] = None
    leave_out: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A data set of the judgements not to train on, but to test on."),
    ] = None
    squeezenet: Annotated[
        Path | None, typer.Option(help="Weights of SqueezeNet 1.0, which a semsim-perceptual holds.")
    ] = None
    overrides: Annotated[list[str] | None, setting("A setting, such as bits=16 or epochs=40.")] = None
    listing: Annotated[
        bool,
        typer.Option(
            "--settings", is_eager=True, help="List the keys of --set with their defaults, and stop."
        ),
    ] = False
    printing: show.PrintConfig = False
    way: Annotated[int, typer.Option(help="Classes in a test episode.")] = 5
    shot: Annotated[int, typer.Option(help="Support images per class in a test episode.")] = 5
    queries: Annotated[int, typer.Option(help="Query images per class in a test episode.")] = 15
    episodes: Annotated[int, typer.Option(min=2, help="How many test episodes.")] = 600
    size: Size = None
    split_by: SplitBy = None
    strict: Strict = False
    device: Annotated[str, typer.Option(help="Where to train: cpu, cuda, or auto.")] = "cpu"
    seed: Annotated[int, typer.Option(help="Seed of weights, order, episodes and noise.")] = 0
    licence: Annotated[
        str | None, typer.Option(help="The licence of the artefact, in SPDX, such as CC-BY-4.0.")
    ] = None
    force: Force = False
    as_json: show.AsJson = False
    shared: list[str] = field(default_factory=list, init=False)
    left_out: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        """Run the command, which typer makes of this class."""
        method = METHODS[self.method]
        needs = method.needs.split()
        takes = [*needs, *method.takes.split(), *(_IMAGES.split() if "--data" in needs else [])]
        for parameter in self.context.command.params:
            option = parameter.opts[0]
            source = self.context.get_parameter_source(parameter.name or "")
            given = source is not None and source.name != "DEFAULT"
            if option in needs and not given:
                raise ConfigError(f"train {self.method} needs {option}: see sfumato train --help")
            if given and option in _OF_SOME and option not in takes:
                raise ConfigError(f"{option}: train {self.method} does not take it: leave it out")
        for option, labels, taker in (
            ("--target", self.targets, "feature"),
            ("--sensitive", self.sensitive, "code"),
        ):
            if len(labels or []) > 1 and self.method != taker:
                raise ConfigError(f"{option}: train {self.method} takes one label: leave out the others")
        if self.licence is not None and not re.fullmatch(_LICENCE, self.licence):
            raise ConfigError(
                f"--licence {self.licence!r}: write an SPDX expression, such as CC-BY-4.0, 'MIT OR "
                "Apache-2.0' or LicenseRef-ours"
            )
        from sfumato.networks.encoders import embedding_cache

        with embedding_cache.store():
            method.train(self)

    @property
    def target(self) -> str:
        """The label to classify."""
        return (self.targets or ["class"])[0]

    @property
    def secret(self) -> str | None:
        """The label of the person, for methods that hide one."""
        return self.sensitive[0] if self.sensitive and self.method != "code" else None

    @property
    def test(self) -> dict[str, Any]:
        """The arguments of a test in episodes."""
        return {"target": self.target, "episodes": self.episodes, "seed": self.seed}

    def config(self, kind: type[_Config], *chosen: str) -> _Config:
        """Return the settings of a training: the chosen ones, then those of --set.

        With --print-config it prints them, and ends the command.
        """
        from sfumato.base.placement import device_named
        from sfumato.base.settings import configure

        against = [f"against={_AGAINST[self.method]}"] if self.sensitive and self.method in _AGAINST else []
        config: _Config = configure(kind, [*against, *chosen, *(self.overrides or [])])
        if self.printing:
            show.print_config(config)
            raise typer.Exit
        if getattr(config, "private", None) is not None and self.out.exists():
            raise ConfigError(
                f"{self.out} already exists, and to train it again would spend its budget once more: name "
                "another file, or delete it to spend anew"
            )
        check_new(self.out, force=self.force, suffix=".safetensors")
        device_named(self.device)  # fails now, not after the images are read
        return config

    def images(
        self, *, episodic: bool = False
    ) -> "tuple[LabelledImages, LabelledImages | None, LabelledImages]":
        """Read training, validation (if there are any) and test images; `episodic`: see data.splitting.

        It says how it made missing splits, and which pictures and people several splits have.
        """
        from sfumato.cli.sources import read
        from sfumato.data.copies import find_shared
        from sfumato.data.splitting import split_for_task

        assert self.data is not None
        source, words = split_for_task(
            read(self.data, size=self.size, strict=self.strict),
            target=self.target,
            sensitive=self.secret,
            episodic=episodic,
            split_by=self.split_by,
        )
        note(words)
        self.left_out.extend(filter(None, [source.describe_left_out(names=False)]))
        for finding in find_shared(source, target=self.target, secret=self.secret):
            note(str(finding))
            self.shared.append(finding.words)
        validation = source.split("validation") if "validation" in source.splits else None
        return source.split("train"), validation, source.split("test")

    def fit_episodes(
        self,
        config: "Settings",
        splits: "tuple[LabelledImages, LabelledImages | None, LabelledImages]",
        shape: "Shape | None" = None,
    ) -> "tuple[Settings, Shape]":
        """Shrink the episodes of a training, and the shape of those of the test, to the classes; says so."""
        training, validation, test = splits
        config = self.fit_part("training", training, config)
        if validation is not None:
            config = self.fit_part("validation", validation, config, "validation_")
        return config, self.fit_part("test", test, shape or _shape(self))

    def fit_part(
        self, subject: str, part: "LabelledImages", config: "Settings", prefix: str = "", *, fixed: str = ""
    ) -> "Settings":
        """Shrink episodes to the classes of a split, unless they are fixed; raise DataError if none fit."""
        from sfumato import episodes

        label = part.label(self.target)
        fitted = config if fixed else episodes.fit_episodes(config, label.codes, prefix=prefix)
        note(episodes.describe_fit(subject, _shape(config, prefix), _shape(fitted, prefix)))
        try:
            episodes.Sampler(label, _shape(fitted, prefix))
        except DataError as error:
            raise DataError(f"{part.name}, {subject} images: {error}{fixed}") from error
        return fitted

    def fit(self, unit: str, train: Callable[..., Any], *data: Any, resumes: bool = True, **more: Any) -> Any:
        """Train, with a progress bar and a checkpoint next to the artefact, and save the model."""
        from sfumato.base.placement import device_named

        checkpoint = self.out.with_suffix(".checkpoint")
        with show.bars(show.stderr()) as progress, show.keeping_work():
            task = progress.add_task(unit)
            more |= {
                "seed": self.seed,
                "progress": lambda n, of: progress.update(task, completed=n, total=of),
            }
            if resumes:  # the others take seconds, on any device
                more |= {"checkpoint": checkpoint, "device": device_named(self.device)}
            model = train(*data, **more)
            model.save(self.out)
        checkpoint.unlink(missing_ok=True)
        return model

    def tell(self, card: Mapping[str, Any], lines: Sequence[str], *, tested: Any = None, **more: Any) -> None:
        """Add licence, test, shared and left-out images to the card, and print the results.

        Args:
            card: of the model.
            lines: in words; with --json it prints the card and the figures instead.
            tested: the Accuracy of the test, if it has one.
            more: figures by name, fit for JSON.
        """
        from sfumato import artefacts

        said: dict[str, Any] = {"licence": self.licence, "shared": self.shared, "left_out": self.left_out}
        if tested is not None:
            more = {"test": asdict(tested), **more}
            low, high, chance = _ends_and_chance(tested)
            over = "images" if hasattr(tested, "images") else "episodes"
            ends = {"mean": tested.mean, "low": low, "high": high, "chance": chance}
            said["test"] = {**ends, "over": over, "number": getattr(tested, over)}
        if said := {key: value for key, value in said.items() if value}:
            artefacts.amend(self.out, **said)
        if self.as_json:
            show.print_json({"artefact": str(self.out), **more, "card": dict(card)})
            return
        for line in [*lines, f"artefact: {self.out}"]:
            print(line)


def _classifier(given: Train) -> None:
    from sfumato import protect
    from sfumato.learn import classifier as learner
    from sfumato.learn import method

    encoder = [] if given.encoder is None else [f"network={given.encoder}"]
    config, protection = given.config(learner.ClassifierConfig, *encoder), protect.parse(given.spec or "none")
    training, validation, test = given.images()
    names = learner.trainable(training, given.target, config.network)
    method.codes_of(test, given.target, names, "classifier")  # fails now, not after training
    sides: dict[str, Any] = {"target": given.target, "validation": validation}
    model = given.fit("steps", learner.train, training, protection, config, **sides)
    tested = learner.evaluate(model, test, target=given.target, protection=protection, seed=given.seed)
    proved = _proved(protection, test)
    lines = [f"test: {tested}", _beside_guessing(tested), f"{protection.spec}: {proved}"]
    given.tell(model.card, [*_validated(model.card, given.target), *lines], tested=tested, proved=proved)


def _code(given: Train) -> None:
    from sfumato.data.worlds import same_scenes
    from sfumato.learn import code as learner
    from sfumato.protect.code import Code
    from sfumato.protect.naming import naming_words

    encoder = [] if given.encoder is None else [f"encoder={given.encoder}"]
    config = given.config(learner.CodeConfig, *encoder)
    protection = Code(str(given.out), norm=config.norm, noise=config.noise, flip=config.flip)
    training, validation, test = splits = given.images(episodic=not given.known)
    config = learner.fill_queries(config, len(training.label(given.target).codes.unique()))
    config, shape = given.fit_episodes(config, splits)
    scenes = same_scenes.draw_sets(training) if config.same_scenes else None
    sides: dict[str, Any] = {
        "target": given.target,
        "sensitive": given.sensitive or (),
        "validation": validation,
    }
    model = given.fit("episodes", learner.train, training, config, **sides, same_scenes=scenes)
    tested = learner.evaluate(model, test, shape, **given.test)
    channels, height, width = test.images.shape[1:]
    proved = naming_words(protection, (channels, height, width), among=_CANDIDATES)
    lines = [f"test: {tested}", _beside_guessing(tested), f"proved: {proved}", f"spec: {protection.spec}"]
    given.tell(model.card, lines, tested=tested, proved=proved, spec=protection.spec)


def _few_shot(given: Train) -> None:
    from sfumato import protect
    from sfumato.learn import few_shot as learner

    encoder = [] if given.encoder is None else [f"encoder={given.encoder}", "denoiser_depth=null"]
    config, protections = given.config(learner.FewShotConfig, *encoder), protect.expand(given.spec or "")
    training, validation, test = splits = given.images(episodic=True)
    config, shape = given.fit_episodes(config, splits)
    sides: dict[str, Any] = {"target": given.target, "validation": validation}
    model = given.fit("episodes", learner.train, training, protections, config, **sides)
    tested = learner.evaluate(model, test, **asdict(shape), **given.test)
    proved = {each.spec: _proved(each, test) for each in protections}
    lines = [str(tested), _beside_guessing(tested), *(f"{spec}: {words}" for spec, words in proved.items())]
    given.tell(model.card, lines, tested=tested, proved=proved)


def _mask(given: Train) -> None:
    from sfumato.learn import adversarial_mask as learner
    from sfumato.learn import method
    from sfumato.protect.mask import Mask

    config = given.config(learner.MaskConfig)
    spec = Mask(str(given.out), values=config.values).spec
    training, validation, test = given.images()
    names = learner.trainable(training, config, given.target)
    method.codes_of(test, given.target, names, "mask")  # fails now, not after training
    sides: dict[str, Any] = {"target": given.target, "sensitive": given.secret, "validation": validation}
    model = given.fit("steps", learner.train, training, config, **sides)
    words = f"{given.target}, {100 * config.keep:g}% of the pixels shown"
    tested = learner.evaluate(model, test)
    lines = [f"test: {100 * tested:.1f}% ({words}, {len(test):,} images)", f"{spec}: nothing is proved"]
    given.tell(model.card, [*_validated(model.card, words), *lines], test=tested, spec=spec)


def _feature(given: Train) -> None:
    from sfumato.learn import method
    from sfumato.learn import private_feature as learner
    from sfumato.protect.feature import Feature

    config, spec = given.config(learner.FeatureConfig), Feature(str(given.out), noise=0.0).spec
    targets, sensitive = given.targets or [], given.secret or ""
    training, validation, test = given.images()
    for target, names in learner.trainable(training, config, targets, sensitive).items():
        method.codes_of(test, target, tuple(names), "private feature")  # fails now, not after training
    sides: dict[str, Any] = {"targets": targets, "sensitive": sensitive, "validation": validation}
    model = given.fit("epochs", learner.train, training, config, **sides)
    figures = {"validation": model.card["accuracies"] or {}, "test": dict(learner.evaluate(model, test))}
    lines = [
        f"{name}: {100 * accuracy:.1f}% ({target}, without noise)"
        for name, accuracies in figures.items()
        for target, accuracy in accuracies.items()
    ]
    if not model.is_network:
        lines.append(f"{spec}: {config.dimension} numbers an image; nothing is proved")
    given.tell(model.card, lines, **figures)


def _meta(given: Train) -> None:
    from sfumato import protect
    from sfumato.learn import meta as learner

    private = any(each.startswith("private.") for each in given.overrides or [])
    config = given.config(learner.MetaConfig, *(["private.delta=1e-5"] if private else []))
    protection = protect.parse(given.spec or "none")
    training, _, test = given.images(episodic=True)
    shape = replace(config.shape, queries=given.queries)
    if config.private is None:
        config, shape = given.fit_episodes(config, (training, None, test), shape)
        # A meta-learned model is tested as it was trained.
        config = replace(config, way=min(config.way, shape.way), shot=min(config.shot, shape.shot))
    else:  # its settings are public, and so are not chosen by the data
        keys, why = "--set way=, shot= and queries=", "a private training is not fitted to its data"
        given.fit_part("training", training, config, fixed=f" ({keys}; {why})")
        given.fit_part("test", test, shape, fixed=f" (--queries, and --set way= and shot=; {why})")
    norms: list[float] = []
    sides: dict[str, Any] = {"target": given.target, "note": note}
    sides["observe"] = lambda _, norm: None if norm is None else norms.append(norm)
    model = given.fit("meta-steps", learner.train, training, protection, config, **sides)
    tested = learner.evaluate(model, test, queries=shape.queries, **given.test)
    promise, shown = learner.promise(model.card), norms[:: -(-len(norms) // 50)] if norms else []
    computed = f"computed: {model.card['computed']}, {model.card['precision']}"
    lines = [str(tested), _beside_guessing(tested), promise, computed]
    if norms:
        lines.append(f"clipping norm: {norms[0]:.3g} {_curve(shown)} {norms[-1]:.3g}, step by step")
    given.tell(model.card, lines, tested=tested, promise=promise, norms=shown)


def _semsim(given: Train) -> None:
    from sfumato.learn import semsim as learner
    from sfumato.learn.semsim import perceptual

    by_stages = given.method == "semsim-perceptual"
    config: Any = given.config(perceptual.PerceptualConfig if by_stages else learner.SemSimConfig)
    sets = [each for path in given.judgements or [] for each in learner.read(path, size=config.size).values()]
    kept = [each for each in sets if given.leave_out not in (each.source, each.source.partition(" (")[0])]
    if given.leave_out is not None and len(kept) == len(sets):
        known = [each.source.partition(" (")[0] for each in sets]
        raise DataError(f"no data set is called {given.leave_out!r}: {did_you_mean(given.leave_out, known)}")
    judgements = learner.combine(kept, size=config.size)
    if by_stages:
        sides: dict[str, Any] = {"backbone": given.squeezenet}
        model = given.fit("epochs", perceptual.train, judgements, config, **sides, resumes=False)
    else:
        model = given.fit("steps", learner.train, judgements, config)
    data, lines = model.card["data"], []
    if by_stages:
        held = model.card["held_out"]
        lines.append(
            f"on {held['originals']:,} originals held out from training: Brier score {held['brier']:.3f} "
            f"(0 is best; {held['brier_of_share']:.3f} says the same of every image)"
        )
    words = f"{data['reconstructions']:,} reconstructions of {data['originals']:,} originals"
    given.tell(model.card, [f"{data['name']}: {words}, {data['recognised']:,} recognised", *lines])


def _shape(settings: Any, prefix: str = "") -> "Shape":
    """Return the shape that settings have: the fields way, shot and queries after a prefix."""
    from sfumato.episodes import Shape

    return Shape(**{name: getattr(settings, f"{prefix}{name}") for name in ("way", "shot", "queries")})


def _proved(protection: Any, test: "LabelledImages") -> str:
    return str(protection.guarantee(tuple(test.images.shape[1:])) or "nothing is proved")


def _validated(card: Mapping[str, Any], words: str) -> list[str]:
    share = card["validation_accuracy"]
    return [] if share is None else [f"validation: {100 * share:.1f}% ({words})"]


def _beside_guessing(tested: Any) -> str:
    """State the accuracy of guessing in the same test, and whether the test beats it."""
    low, _, chance = _ends_and_chance(tested)
    nothing = (
        ", which the interval of the test is not above: nothing was learned that more images like these "
        "would show for sure. Add images, or train for longer"
    )
    return f"guessing: {100 * chance:.1f}%{'' if low > chance else nothing}"


def _ends_and_chance(tested: Any) -> tuple[float, float, float]:
    """Return the 95% interval of an Accuracy, of images or of episodes, and the accuracy of guessing."""
    if hasattr(tested, "images"):
        return tested.low, tested.high, tested.chance
    return tested.mean - tested.half_width, tested.mean + tested.half_width, 1 / tested.shape.way


def _curve(norms: list[float]) -> str:
    """Draw a character for each norm, as high as its logarithm."""
    from math import log

    low, high = log(min(norms)), log(max(norms))
    return "".join("▁▂▃▄▅▆▇█"[round(7 * (log(norm) - low) / max(high - low, 1e-9))] for norm in norms)


class _Method(NamedTuple):
    """A method: the options that it needs, or takes as well.

    Attributes:
        config: whose keys --set takes, as "module:Class" of sfumato.learn.
    """

    config: str
    train: Callable[[Train], None]
    needs: str
    takes: str = ""


_IMAGES, _SHAPE = "--size --split-by --strict --device", "--way --shot --queries --episodes"
METHODS = {
    "classifier": _Method("classifier:ClassifierConfig", _classifier, "--data --target", "--with --encoder"),
    "code": _Method("code:CodeConfig", _code, "--data --target", f"--sensitive --encoder --known {_SHAPE}"),
    "few-shot": _Method("few_shot:FewShotConfig", _few_shot, "--data --with", f"--target --encoder {_SHAPE}"),
    "mask": _Method("adversarial_mask:MaskConfig", _mask, "--data --target", "--sensitive"),
    "feature": _Method("private_feature:FeatureConfig", _feature, "--data --target --sensitive"),
    "meta": _Method("meta:MetaConfig", _meta, "--data", "--with --target --queries --episodes"),
    "semsim": _Method("semsim:SemSimConfig", _semsim, "--judgements", "--leave-out --device"),
    "semsim-perceptual": _Method(
        "semsim.perceptual:PerceptualConfig", _semsim, "--judgements --squeezenet", "--leave-out"
    ),
}
_OF_SOME = {option for each in METHODS.values() for option in f"{each.needs} {each.takes} {_IMAGES}".split()}


def _known(context: typer.Context, name: str) -> str:
    """Return the name of a method, or raise ConfigError; with --settings it lists its settings, and stops."""
    if name not in METHODS:
        raise ConfigError(f"no method is called {name!r}: {did_you_mean(name, METHODS)}")
    if context.params.get("listing"):
        show.print_settings(f"sfumato.learn.{METHODS[name].config}")
    return name
