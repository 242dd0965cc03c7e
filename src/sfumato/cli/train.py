"""`sfumato train METHOD`: train a model, save it as an artefact, and test it."""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from sfumato.base.files import check_new
from sfumato.cli import show
from sfumato.cli.options import Encoder, Force, Size, setting
from sfumato.cli.show import note
from sfumato.cli.sources import SplitBy, Strict
from sfumato.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor

    from sfumato.data import LabelledImages
    from sfumato.episodes import Settings, Shape

_LICENCE = r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*"  # without its parentheses: nobody needs them
_CANDIDATES = (1_000, 1_000_000)  # people among whom a code is proved to name one rarely
_NOTHING = (
    ", which the interval of the test is not above: nothing was learned that more images like these would "
    "show for sure. Add images, or train for longer"
)
_SEVERAL = (("feature", "--target"), ("code", "--sensitive"))  # the methods that take more than one label
_AGAINST = {"code": 1, "mask": 3}  # the weight of adversaries, with --sensitive and without --set against=


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a model by one of eight methods, save it as an artefact, and test it.

    --set takes the settings of the method: `sfumato train code --settings` lists them. If you stop a
    training, run the same command again to resume.

    A mask with --sensitive is trained against an adversary who learns who is shown. Nothing is proved about
    masks and features. With private.epsilon=8, meta promises privacy to each task of a pool; its artefact is
    never trained again, which would spend the budget twice.

    Example: sfumato train code --data faces --target headwear --set bits=16 --out code.safetensors
    """

    # The options; State: findings about the data.
    context: typer.Context
    method: Annotated[
        str,
        typer.Argument(
            metavar="METHOD",
            is_eager=True,
            callback=lambda context, name: _check_method(context, name),
            help="classifier, of protected images. code, a few bits that keep a task and rarely name the "
            "person. few-shot, FS-PIC: a denoiser and an encoder. mask, which shows only the pixels that a "
            "task needs. feature, a few numbers that keep labels and lose another. meta, a start for new "
            "tasks by MAML, Reptile or Meta-SGD. semsim, a distance that follows people's judgement. "
            "semsim-perceptual, the same from few judgements, with a probability.",
        ),
    ]
    out: Annotated[Path, typer.Option(help="The artefact to write, a .safetensors file.")]
    data: Annotated[str | None, typer.Option(help="The images: faces, folder:DIR or table:FILE.")] = None
    targets: Annotated[
        list[str] | None, typer.Option("--target", help="The label to classify. A feature takes several.")
    ] = None
    sensitive: Annotated[
        list[str] | None, typer.Option(help="The label to hide, such as identity. A code takes several.")
    ] = None
    spec: Annotated[
        str | None,
        typer.Option("--with", metavar="SPEC", help="The protection, as blur:radius=3."),
    ] = None
    encoder: Encoder = None
    known: Annotated[
        bool, typer.Option("--known", help="A code for the classes of these images, not for new classes.")
    ] = False
    reference: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="For a code with common=: images of other people.")
    ] = None
    judgements: Annotated[
        list[Path] | None, typer.Option(help="For semsim: a CSV of `sfumato annotate export`, or several.")
    ] = None
    leave_out: Annotated[
        str | None, typer.Option(metavar="NAME", help="A data set of the judgements not to train on.")
    ] = None
    squeezenet: Annotated[
        Path | None, typer.Option(help="Weights of SqueezeNet 1.0, which a semsim-perceptual holds.")
    ] = None
    overrides: Annotated[list[str] | None, setting("A setting, such as bits=16 or epochs=40.")] = None
    listing: Annotated[
        bool, typer.Option("--settings", is_eager=True, help="List the keys of --set, and stop.")
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
    licence: Annotated[str | None, typer.Option(help="The artefact's, in SPDX, such as CC-BY-4.0.")] = None
    force: Force = False
    as_json: show.AsJson = False
    found: dict[str, list[str]] = field(default_factory=dict, init=False)

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
        for option, labels in (("--target", self.targets), ("--sensitive", self.sensitive)):
            if len(labels or []) > 1 and (self.method, option) not in _SEVERAL:
                raise ConfigError(f"{option}: train {self.method} takes one label: leave out the others")
        if self.licence is not None and not re.fullmatch(_LICENCE, self.licence):
            cure = "write an SPDX expression, such as CC-BY-4.0, 'MIT OR Apache-2.0' or LicenseRef-ours"
            raise ConfigError(f"--licence {self.licence!r}: {cure}")
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

    def config(self, kind: Any, *chosen: str) -> Any:
        """Return the settings of a training; with --print-config it prints them, and ends the command."""
        from sfumato.base.hardware import device_named
        from sfumato.base.settings import configure

        against = [f"against={_AGAINST[self.method]}"] if self.sensitive and self.method in _AGAINST else []
        config: Any = configure(kind, [*against, *chosen, *(self.overrides or [])])
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

    def images(self, *, episodic: bool = False) -> "tuple[LabelledImages, dict[str, Any], LabelledImages]":
        """Read training images, arguments of a training, and test images; say what splits have in common."""
        from sfumato.cli.sources import read
        from sfumato.data.copies import find_shared
        from sfumato.data.splitting import split_for_task

        assert self.data is not None
        data = read(self.data, size=self.size, strict=self.strict)
        how: dict[str, Any] = {"sensitive": self.secret, "episodic": episodic, "split_by": self.split_by}
        source, words = split_for_task(data, target=self.target, **how)
        note(words)
        shared = list(find_shared(source, target=self.target, secret=self.secret))
        note("\n".join(map(str, shared)))
        self.found["shared"] = [each.words for each in shared]
        self.found["left_out"] = list(filter(None, [source.describe_left_out(names=False)]))
        validation = source.split("validation") if "validation" in source.splits else None
        return source.split("train"), {"target": self.target, "validation": validation}, source.split("test")

    def fit_episodes(
        self, subject: str, part: "LabelledImages | None", settings: "Settings", fixed: str = ""
    ) -> "Settings":
        """Shrink episodes to the classes of a split, unless they are fixed; raise DataError if none fit."""
        from sfumato import episodes

        if part is None:
            return settings
        label, prefix = part.label(self.target), "validation_" if subject == "validation" else ""
        fitted = settings if fixed else episodes.fit_episodes(settings, label.codes, prefix=prefix)
        shape = _shape(fitted, prefix)
        note(episodes.describe_fit(subject, _shape(settings, prefix), shape))
        try:
            episodes.Sampler(label, shape)
        except DataError as error:
            raise DataError(f"{part.name}, {subject} images: {error}{fixed}") from error
        return fitted

    def fit(self, unit: str, train: Callable[..., Any], *data: Any, resumes: bool = True, **more: Any) -> Any:
        """Train, with a progress bar and a checkpoint next to the artefact, and save the model."""
        from sfumato.base.hardware import device_named

        checkpoint = self.out.with_suffix(".checkpoint")
        if resumes:  # the others take seconds, on any device
            more |= {"checkpoint": checkpoint, "device": device_named(self.device)}
        with show.bar(unit) as progress, show.keeping_work():
            model = train(*data, seed=self.seed, progress=progress, **more)
            model.save(self.out)
        checkpoint.unlink(missing_ok=True)
        return model

    def tell(self, model: Any, *lines: str, tested: Any = None, **more: Any) -> None:
        """Complete the card, and print the results; `tested` is an Accuracy, `more` are for --json."""
        from sfumato import artefacts

        said: dict[str, Any] = {"licence": self.licence, **self.found}
        if tested is not None:
            over = "images" if hasattr(tested, "images") else "episodes"
            said["test"] = {name: getattr(tested, name) for name in ("mean", "low", "high", "chance")}
            said["test"] |= {"over": over, "number": getattr(tested, over)}
            nothing = "" if tested.low > tested.chance else _NOTHING
            lines = (f"test: {tested}", f"guessing: {tested.chance:.1%}{nothing}", *lines)
            counted = {key: part for key, part in asdict(tested).items() if key != "right"}  # of each image
            more = {"test": counted, **more}
        if said := {key: value for key, value in said.items() if value}:
            artefacts.amend(self.out, **said)
        if self.as_json:
            show.print_json({"artefact": str(self.out), **more, "card": dict(model.card)})
            return
        if self.method in ("classifier", "mask") and (share := model.card["validation_accuracy"]) is not None:
            lines = (f"validation: {share:.1%} ({self.target})", *lines)
        for line in [*lines, f"artefact: {self.out}"]:
            print(line)


def _classifier(given: Train) -> None:
    from sfumato import protect
    from sfumato.learn import classifier as learner

    encoder = [] if given.encoder is None else [f"network={given.encoder}"]
    config, protection = given.config(learner.ClassifierConfig, *encoder), protect.parse(given.spec or "none")
    training, sides, test = given.images()
    learner.trainable(training, given.target, config.network, test)  # fails now, not after training
    model = given.fit("steps", learner.train, training, protection, config, **sides)
    tested = learner.evaluate(model, test, target=given.target, protection=protection, seed=given.seed)
    proved = _guarantee(protection, test)
    given.tell(model, f"{protection.spec}: {proved}", tested=tested, proved=proved)


def _code(given: Train) -> None:
    from sfumato.data.worlds import same_scenes
    from sfumato.learn import code as learner
    from sfumato.protect.code import MEANS, Code
    from sfumato.protect.naming import naming_words

    encoder = [] if given.encoder is None else [f"encoder={given.encoder}"]
    config = given.config(learner.CodeConfig, *encoder)
    protection = Code(str(given.out), norm=config.norm, noise=config.noise, flip=config.flip)
    training, sides, test = given.images(episodic=not given.known)
    config = learner.fill_queries(config, len(training.label(given.target).codes.unique()))
    config = given.fit_episodes("training", training, config)
    config = given.fit_episodes("validation", sides["validation"], config)
    shape = given.fit_episodes("test", test, _shape(given))
    sides |= {"reference": _one_of_each(given, training)} if given.reference else {}
    sides["same_scenes"] = same_scenes.draw_sets(training) if config.same_scenes else None
    sides["sensitive"] = given.sensitive or ()
    model = given.fit("episodes", learner.train, training, config, **sides)
    tested, spec = learner.evaluate(model, test, shape, **given.test), protection.spec
    proved = naming_words(protection, protection.shape, among=_CANDIDATES)
    lines = [f"proved: {proved}", f"spec: {spec}"]
    if model.config.codebook == MEANS:
        enrolled = learner.evaluate(model, test, shape, **given.test, one_word=True)
        lines.insert(0, f"test, if a device enrols a class by one word, not by examples: {enrolled}")
    given.tell(model, *lines, tested=tested, proved=proved, spec=spec)


def _one_of_each(given: Train, training: "LabelledImages") -> "Tensor":
    """An image of each person of the reference, by the seed. DataError if the training has one of them."""
    import torch

    from sfumato.cli.sources import of_shape
    from sfumato.images import as_array, digest

    source = of_shape(str(given.reference), (*training.images.shape[1:],), strict=given.strict)
    codes = source.label("identity" if "identity" in source.labels else "class").codes
    order = torch.randperm(len(source), generator=torch.Generator().manual_seed(given.seed))
    chosen = source.images[[int(order[(codes[order] == each).nonzero()[0]]) for each in codes.unique()]]
    if not {*map(digest, as_array(training.images))}.isdisjoint(map(digest, as_array(chosen))):
        raise DataError(f"{given.reference}: has images of the training: name those of other people")
    return chosen


def _few_shot(given: Train) -> None:
    from sfumato import protect
    from sfumato.learn import few_shot as learner

    encoder = [] if given.encoder is None else [f"encoder={given.encoder}", "denoiser_depth=null"]
    config, protection = given.config(learner.FewShotConfig, *encoder), protect.parse(given.spec or "none")
    training, sides, test = given.images(episodic=True)
    config = given.fit_episodes("training", training, config)
    config = given.fit_episodes("validation", sides["validation"], config)
    shape = given.fit_episodes("test", test, _shape(given))
    model = given.fit("episodes", learner.train, training, protection, config, **sides)
    tested = learner.evaluate(model, test, **asdict(shape), **given.test)
    proved = _guarantee(protection, test)
    given.tell(model, f"{protection.spec}: {proved}", tested=tested, proved=proved)


def _mask(given: Train) -> None:
    from sfumato.learn import adversarial_mask as learner
    from sfumato.protect.mask import Mask

    config = given.config(learner.MaskConfig)
    spec = Mask(str(given.out), values=config.values).spec
    training, sides, test = given.images()
    learner.trainable(training, config, given.target, test)  # fails now, not after training
    model = given.fit("steps", learner.train, training, config, sensitive=given.secret, **sides)
    tested = learner.evaluate(model, test)
    words = f"{tested:.1%} ({given.target}, {100 * config.keep:g}% of the pixels shown, {len(test):,} images)"
    given.tell(model, f"test: {words}", f"{spec}: nothing is proved", test=tested, spec=spec)


def _feature(given: Train) -> None:
    from sfumato.learn import private_feature as learner
    from sfumato.protect.feature import Feature

    config, spec = given.config(learner.FeatureConfig), Feature(str(given.out), noise=0.0).spec
    training, sides, test = given.images()
    sides = {"targets": given.targets, "sensitive": given.secret, "validation": sides["validation"]}
    learner.trainable(training, config, sides["targets"], sides["sensitive"], test)
    model = given.fit("epochs", learner.train, training, config, **sides)
    figures = {"validation": model.card["accuracies"] or {}, "test": dict(learner.evaluate(model, test))}
    told = [(split, *each) for split, accuracies in figures.items() for each in accuracies.items()]
    lines = [f"{split}: {accuracy:.1%} ({target}, without noise)" for split, target, accuracy in told]
    if not model.is_network:
        lines.append(f"{spec}: {config.dimension} numbers an image; nothing is proved")
    given.tell(model, *lines, **figures)


def _meta(given: Train) -> None:
    from sfumato import protect
    from sfumato.learn import meta as learner

    private = any(each.startswith("private") for each in given.overrides or [])
    config = given.config(learner.MetaConfig, *(["private.delta=1e-5"] if private else []))
    protection = protect.parse(given.spec or "none")
    training, sides, test = given.images(episodic=True)
    del sides["validation"]  # it has no part in a meta-training
    # The settings of a private training are public, and so are not chosen by the data.
    fixed = " ({}; a private training is not fitted to its data)" if private else ""
    keys = ("--set way=, shot= and queries=", "--queries, and --set way= and shot=")
    config = given.fit_episodes("training", training, config, fixed=fixed.format(keys[0]))
    shape = replace(config.shape, queries=given.queries)
    shape = given.fit_episodes("test", test, shape, fixed=fixed.format(keys[1]))
    # A meta-learned model is tested as it was trained.
    config = replace(config, way=min(config.way, shape.way), shot=min(config.shot, shape.shot))
    sides |= {"note": note}
    model = given.fit("meta-steps", learner.train, training, protection, config, **sides)
    norms = model.norms
    tested = learner.evaluate(model, test, queries=shape.queries, **given.test)
    promise, shown = learner.promise(model.card), norms[:: -(-len(norms) // 50) or 1]
    lines = [promise, f"computed: {model.card['computed']}, {model.card['precision']}"]
    if norms:
        lines.append(f"clipping norm: {norms[0]:.3g} in the first step, {norms[-1]:.3g} in the last")
    given.tell(model, *lines, tested=tested, promise=promise, norms=shown)


def _semsim(given: Train) -> None:
    from sfumato.learn import semsim as learner
    from sfumato.learn.semsim import perceptual

    by_stages = given.method == "semsim-perceptual"
    config = given.config(perceptual.PerceptualConfig if by_stages else learner.SemSimConfig)
    sets = [each for path in given.judgements or [] for each in learner.read(path, size=config.size).values()]
    names = [each.source.partition(" (")[0] for each in sets]
    kept = [
        each for name, each in zip(names, sets, strict=True) if given.leave_out not in (name, each.source)
    ]
    if given.leave_out is not None and len(kept) == len(sets):
        raise DataError(f"no data set is called {given.leave_out!r}: {did_you_mean(given.leave_out, names)}")
    judgements = learner.combine(kept, size=config.size)
    lines = []
    if by_stages:
        backbone = given.squeezenet
        model = given.fit("epochs", perceptual.train, judgements, config, backbone=backbone, resumes=False)
        held = model.card["held_out"]
        brier = f"{held['brier']:.3f} (0 is best; {held['brier_of_share']:.3f} says the same of every image)"
        lines.append(f"on {held['originals']:,} originals held out from training: Brier score {brier}")
    else:
        model = given.fit("steps", learner.train, judgements, config)
    data = model.card["data"]
    words = f"{data['reconstructions']:,} reconstructions of {data['originals']:,} originals"
    given.tell(model, f"{data['name']}: {words}, {data['recognised']:,} recognised", *lines)


def _shape(settings: Any, prefix: str = "") -> "Shape":
    """Return the shape that settings have: the fields way, shot and queries after a prefix."""
    from sfumato.episodes import Shape

    return Shape(**{name: getattr(settings, f"{prefix}{name}") for name in ("way", "shot", "queries")})


def _guarantee(protection: Any, test: "LabelledImages") -> str:
    return str(protection.guarantee(tuple(test.images.shape[1:])) or "nothing is proved")


class _Method(NamedTuple):
    """A method of training."""

    config: str  # whose keys --set takes, as "module:Class" of sfumato.learn
    train: Callable[[Train], None]
    needs: str  # options
    takes: str = ""  # more options


_IMAGES, _SHAPE = "--size --split-by --strict --device", "--way --shot --queries --episodes"
_OF_CODES = "--sensitive --encoder --known --reference"  # what only a code takes
METHODS = {
    "classifier": _Method("classifier:ClassifierConfig", _classifier, "--data --target", "--with --encoder"),
    "code": _Method("code:CodeConfig", _code, "--data --target", f"{_OF_CODES} {_SHAPE}"),
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


def _check_method(context: typer.Context, name: str) -> str:
    """Return the name of a method, or raise ConfigError; with --settings it lists its settings, and stops."""
    if name not in METHODS:
        raise ConfigError(f"no method is called {name!r}: {did_you_mean(name, METHODS)}")
    if context.params.get("listing"):
        show.print_settings(f"sfumato.learn.{METHODS[name].config}")
    return name
