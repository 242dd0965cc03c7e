"""Whether measures of reconstructions agree with those who look at them: networks here, not people (paper: SemSim).

    python studies/unpack.py DATA ../shared/data runs/data/DATA    # cifar10, caltech101, lfw, fer, omniglot
    python studies/reconstruction.py              # everything, in order: 20 minutes of one idle core; it resumes
    python studies/reconstruction.py lfw          # one data set: judges, victims, attacks, measures that are not learned
    python studies/reconstruction.py learned      # SemSim as published, each data set left out in turn, and other margins
    python studies/reconstruction.py agreement    # correlations with the judges (Table 1)
    python studies/reconstruction.py --small      # settings too small to mean anything

Judges are recognisers that are trained on a data set, each of another network than any victim's and any measure's: the first two that are
right on 85% of clean test images or more (Sec. 4.4). A data set without two is left out, as Caltech-101 is. A reconstruction is recognised if
more than half of the judges name it rightly. Victims leak from nothing to everything, and are linear layers whose images are read in closed
form. SemSim sees the judgements of the other data sets alone.

Records are studies/results/reconstruction-100.jsonl. Those of reconstruction.jsonl, 16 originals a victim, are of commit 2f64c651, which
searched for images, too (Table 2), and had other losses and backbones.
"""

import argparse
import itertools
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from rows import RESULTS, Rows, make
from torch import Tensor, nn
from torch.nn import functional

from sfumato import data, images, protect
from sfumato.assess import agreement, similarity
from sfumato.assess.frechet import frechet_distance
from sfumato.assess.perceptual import Perceptual
from sfumato.assess.semsim import SemSim
from sfumato.attack.exact import nearest
from sfumato.attack.victim import share
from sfumato.base.proportions import wilson
from sfumato.data import LabelledImages
from sfumato.data.labelled import label_of
from sfumato.errors import DataError
from sfumato.learn import classifier, semsim
from sfumato.learn.augmentation import apply
from sfumato.learn.classifier import ClassifierConfig, ClassifierModel
from sfumato.learn.semsim import SemSimConfig
from sfumato.study.records import write_json

RECORDS, RUNS = Rows(RESULTS / "reconstruction-100.jsonl"), Path("runs/reconstruction")
SQUEEZENET = Path("../shared/data/weights/squeezenet1_0_imagenet_deepcomp.npz")
IMAGES, FEW = 100, 4  # originals of each victim, and to try it out
SIZE, SEED, SEEDS = 32, 0, (0, 1, 2)
CLASSES = 20  # those with most images
PROXY = "proxy annotators"


# What a client does to its gradients, by the name of a parameter (Zhu, Liu & Han 2019, Sec. 5): it proves nothing


def prune(gradients: Mapping[str, Tensor], *, share: float) -> dict[str, Tensor]:
    """Set the entries of least magnitude of each tensor to 0: exactly floor(share · n), the first of equal ones."""
    exact = Fraction(str(share))  # as written: 0.29 · 100 is 28.999... in floating point
    pruned = {}
    for name, gradient in gradients.items():
        values = gradient.flatten().clone()
        values[values.abs().argsort(stable=True)[: math.floor(exact * values.numel())]] = 0
        pruned[name] = values.reshape(gradient.shape)
    return pruned


def add_gaussian(
    gradients: Mapping[str, Tensor], *, scale: float, generator: torch.Generator
) -> dict[str, Tensor]:
    """Add noise of a standard deviation; the numbers of the paper, 10^-4 to 10^-1, are VARIANCES."""
    noise = {n: torch.randn(g.shape, generator=generator, dtype=torch.float64) for n, g in gradients.items()}
    return {name: gradient + scale * noise[name].to(gradient) for name, gradient in gradients.items()}


# Data sets: what victims learn, and what is attacked


@dataclass(frozen=True)
class Source:
    """Where images come from."""

    label: str = "class"  # what a victim classifies
    classes: tuple[str, ...] = ()  # that are told apart; none for the CLASSES with most images
    parts: tuple[str, str] | None = None  # trained on and tested on; None: a quarter of each class is tested
    same: bool = False  # whether judges are asked if two images show the same, in place of what one shows
    flips: bool = True  # whether a mirrored image is of the same class


# Classes of objects are those that a linear layer on SqueezeNet tells apart on TRAINING images of this size.
_OBJECTS = ("Faces", "accordion", "brain", "buddha", "camera", "car_side", "ceiling_fan", "cellphone")
SOURCES = {
    "cifar10": Source(classes=("automobile", "frog", "horse", "ship"), parts=("train", "test")),
    "caltech101": Source(classes=_OBJECTS),
    "lfw": Source(label="identity", same=True),
    "fer": Source(label="emotion", parts=("train", "test")),
    "omniglot": Source(flips=False),
}


@cache
def parts(name: str) -> tuple[LabelledImages, LabelledImages]:
    """Training and test images of the classes that are told apart, with the label "class"."""
    source = SOURCES[name]
    if name == "omniglot":
        loaded = data.load("omniglot:runs/data/omniglot", size=SIZE, rotations=False)
    else:
        loaded = data.load(f"table:runs/data/{name}/table.csv", size=SIZE)
    label = loaded.label(source.label)
    if source.classes:
        chosen = torch.tensor([label.names.index(each) for each in source.classes])
    else:
        counts = label.codes.bincount(minlength=len(label.names))
        chosen = counts.argsort(descending=True, stable=True)[:CLASSES]
    order = torch.randperm(len(loaded), generator=torch.Generator().manual_seed(SEED))
    if source.parts is None:
        mine = [order[label.codes[order] == code] for code in chosen]
        rows = [torch.cat([each[len(each) // 4 :] for each in mine])]
        rows.append(torch.cat([each[: len(each) // 4] for each in mine]))
    else:
        usable = order[torch.isin(label.codes[order], chosen)]
        rows = [usable[torch.isin(usable, loaded.splits[part])] for part in source.parts]
    names = [[label.names[code] for code in label.codes[each]] for each in rows]
    train, test = (
        LabelledImages(name, loaded.images[each], {"class": label_of(named)})
        for each, named in zip(rows, names, strict=True)
    )
    return train, test


# Judges

# Networks: none is a victim's, since what matches its gradient may deceive its like, nor is a measure of its features.
JUDGES = ("conv4", "predictor", "resnet20")
LEAST_RIGHT, LEAST_JUDGES = 0.85, 2
STEPS, BATCH = 1000, 32


def recogniser(name: str, judge: str, runs: Path) -> ClassifierModel:
    """A judge, trained if it was not."""
    path = runs / name / "models" / f"proxy-{judge}.safetensors"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        train, _ = parts(name)
        epochs = max(1, round(STEPS / math.ceil(len(train) / BATCH)))
        config = ClassifierConfig(
            network=judge, epochs=epochs, batch=BATCH, flips=SOURCES[name].flips, shifts=2
        )
        classifier.train(train, protect.parse("none"), config, target="class", seed=SEED + 1).save(path)
    return classifier.load(path).eval()


@cache
def panel(name: str, runs: Path) -> dict[str, ClassifierModel]:
    """The first judges that name clean test images rightly often enough; fewer than LEAST_JUDGES if no more do."""
    _, test = parts(name)
    able, shares = {}, {}
    for judge in JUDGES:
        model = recogniser(name, judge, runs)
        shares[judge] = _names_rightly(model, test).double().mean().item()
        if shares[judge] >= LEAST_RIGHT:
            able[judge] = model
        if len(able) == LEAST_JUDGES:
            return able
    print(f"{name} is left out: of its judges {shares} only {len(able)} are right often enough", flush=True)
    return able


def _names_rightly(model: ClassifierModel, shown: LabelledImages) -> Tensor:
    said, label = model.classify(shown.images).tolist(), shown.label("class")
    pairs = zip(said, label.codes, strict=True)
    return torch.tensor([model.classes[code] == label.names[truth] for code, truth in pairs])


def answers(name: str, originals: LabelledImages, others: Tensor, runs: Path) -> Tensor:
    """(judges, N) bool: who recognises which of (N, C, H, W) uint8 reconstructions."""
    judges, shown = panel(name, runs).values(), replace(originals, images=others)
    if not SOURCES[name].same:
        return torch.stack([_names_rightly(model, shown) for model in judges])
    with torch.no_grad():  # the probability that both are of one class
        both = [model(originals.images).softmax(1) * model(others).softmax(1) for model in judges]
    return torch.stack([each.sum(1) >= 0.5 for each in both])


# Victims that leak differently

READ = "closed-form"
HIDDEN = 256  # units of the plain network of linear layers


@dataclass(frozen=True, kw_only=True)
class Victim:
    """Whose gradients are attacked, and by whom."""

    policy: str = "none"  # of images that are trained on and shared
    noise: float = 0.0  # Gaussian, in units of the root mean square of what is shared
    pruned: float = 0.0  # share of the entries of each tensor that are not shared
    levels: int = 0  # steps of each sign to which entries are rounded, of each tensor's largest; 0 for none
    batch: int = 1  # images behind one gradient
    pooled: int = 1  # side in pixels of cells whose mean is all that the first layer sees

    @property
    def name(self) -> str:
        """As "linear-noise-0.5"."""
        words = ["linear"]
        for word, value, plain in (
            ("", self.policy, "none"), ("noise", self.noise, 0), ("pruned", self.pruned, 0),
            ("levels", self.levels, 0), ("of", self.batch, 1), ("pooled", self.pooled, 1),
        ):  # fmt: skip
            if value != plain:
                words += [word, f"{value:g}" if isinstance(value, float | int) else value]
        return "-".join(filter(None, words))


_TRANSFORMED = "ats-43-18-18"
VICTIMS = tuple(
    Victim(**settings)  # type: ignore[arg-type]
    for settings in (
        *({"noise": noise} for noise in (0.5, 1.0, 1.5, 2.0, 4.0)),
        *({"pruned": pruned} for pruned in (0.8, 0.95, 0.99)),
        *({"levels": levels} for levels in (1, 3)),
        *({"batch": batch} for batch in (2, 4, 8)),
        *({"pooled": cell} for cell in (2, 4, 8)),
        *({"policy": policy} for policy in ("crop-flip", "ats-3-1-7", _TRANSFORMED)),
        {"batch": 2, "noise": 1.0},
        {"pooled": 2, "noise": 1.0},
        {"pooled": 2, "batch": 2},
    )
)


def network_of(name: str, victim: Victim) -> nn.Module:
    """The linear layers of a victim, untrained."""
    train, _ = parts(name)
    seen = math.prod(_pooled(tuple(train.images.shape[1:]), victim))
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        layers = [nn.Linear(seen, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, len(train.label("class").names))]
    return nn.Sequential(nn.AvgPool2d(victim.pooled), nn.Flatten(), *layers).eval()


def _pooled(shape: tuple[int, ...], victim: Victim) -> tuple[int, int, int]:
    channels, height, width = shape
    return channels, height // victim.pooled, width // victim.pooled


def shared_of(network: nn.Module, victim: Victim, originals: LabelledImages) -> list[dict[str, Tensor]]:
    """What the client shares, of each batch of originals in turn. With a policy it shows TRANSFORMED images."""
    generator = torch.Generator().manual_seed(SEED)
    label = originals.label("class")
    shown = images.to_float(apply(originals.images, victim.policy, generator))
    batches = zip(shown.split(victim.batch), label.codes.split(victim.batch), strict=True)
    shared = [share(network, *each) for each in batches]
    if victim.pruned:
        shared = [prune(each, share=victim.pruned) for each in shared]
    if victim.levels:
        shared = [rounded(each, victim.levels) for each in shared]
    if victim.noise:
        shared = [add_gaussian(each, scale=victim.noise * size(each), generator=generator) for each in shared]
    return shared


def rounded(gradient: dict[str, Tensor], levels: int) -> dict[str, Tensor]:
    """Each tensor's entries as whole multiples of its largest magnitude over `levels`: a client that compresses."""
    steps = {name: each.abs().max().clamp(min=1e-30) / levels for name, each in gradient.items()}
    return {name: (each / steps[name]).round() * steps[name] for name, each in gradient.items()}


def size(gradient: dict[str, Tensor]) -> float:
    """The root mean square of the entries of a gradient."""
    total = sum(each.square().sum().item() for each in gradient.values())
    return math.sqrt(total / sum(each.numel() for each in gradient.values()))


def rebuild(name: str, victim: Victim, originals: LabelledImages) -> tuple[Tensor, int]:
    """Attack one victim. -> (N, C, H, W) uint8, and how many of them are grey, since nothing was found."""
    network = network_of(name, victim)
    seen = _pooled(tuple(originals.images.shape[1:]), victim)
    found, failed = [], 0
    for gradient in shared_of(network, victim, originals):
        try:
            found.append(nearest(network, gradient, seen)[0])
        except DataError:
            found.append(torch.full((1, *seen), 0.5))
            failed += 1
    each = torch.cat(found).repeat_interleave(victim.batch, 0)[: len(originals)]
    return images.to_uint8(functional.interpolate(each, scale_factor=victim.pooled).clamp(0, 1)), failed


# One data set: what is recognised of each victim, and what measures say that are not learned

SIGNS = {"psnr": 1, "mse": -1, "ssim": 1, "squeezenet": -1, "frechet": -1}  # 1: it rises as more leaks


def run(name: str, count: int, records: Rows, runs: Path) -> None:
    """The records of a data set that are missing: of so many originals a victim. None if it has too few judges."""
    if len(panel(name, runs)) < LEAST_JUDGES:
        return
    make(records, name, partial(_prepare, name, count, runs))
    originals = parts(name)[1].rows(torch.tensor(records[name]["originals"]))
    for place, image in enumerate(originals.images):
        images.write(_made(runs / name / "originals") / f"{place:02d}.png", image)
    make(records, f"{name}-{READ}", partial(_attack, name, originals, runs))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _prepare(name: str, count: int, runs: Path) -> dict[str, Any]:
    train, test = parts(name)
    right = answers(name, test, test.images, runs)
    if SOURCES[name].same:  # who compares sees an image beside itself
        right = torch.ones_like(right)
    recognised = right.double().mean(0) > 0.5
    return {
        "annotators": PROXY,
        "data": {"training": len(train), "test": len(test), "digests": [train.digest, test.digest]},
        "judges": dict(zip(panel(name, runs), right.double().mean(1).tolist(), strict=True)),
        "originals": choose(test, recognised, count),
        "recognised_before": recognised.double().mean().item(),
    }


def choose(test: LabelledImages, recognised: Tensor, count: int) -> list[int]:
    """Rows of test images, a class in turn, that most judges recognise; where these run out, others.

    No class has more than twice its share: judges may recognise one alone.
    """
    codes, classes = test.label("class").codes, len(test.label("class").names)
    most = 2 * math.ceil(count / classes)
    places = torch.zeros(len(codes), dtype=torch.int64)  # how many of the class come before
    order = torch.cat([recognised.nonzero().flatten(), (~recognised).nonzero().flatten()])
    for code in codes.unique():
        mine = order[codes[order] == code]
        places[mine] = torch.arange(len(mine))
    last = ~recognised | (places >= most)
    keys = (last * len(codes) + places) * classes + codes
    return [int(row) for row in keys.argsort(stable=True)[:count]]


def _attack(name: str, originals: LabelledImages, runs: Path) -> dict[str, Any]:
    victims, said = {}, []
    for victim in VICTIMS:
        facts = _rebuilt(name, victim, originals, runs)
        shown = read_pairs(name, victim.name, len(originals), runs)
        by_judge = answers(name, originals, images.to_uint8(shown[1]), runs)
        who = (by_judge.double().mean(0) > 0.5).tolist()
        low, high = wilson(sum(who), len(who))
        about = {"recognised": sum(who), "items": len(who), "low": low, "high": high, "who": who}
        victims[victim.name] = {**facts, **_measure(*shown), **about, "by_judge": by_judge.sum(1).tolist()}
        said += by_judge.T.tolist()
    alpha = agreement.krippendorff_alpha(said)
    return {"annotators": PROXY, "attack": READ, "krippendorff_alpha": alpha, "victims": victims}


def _rebuilt(name: str, victim: Victim, originals: LabelledImages, runs: Path) -> dict[str, Any]:
    """Attack one victim; its reconstructions become files, and what is known of them a small one beside."""
    folder = _made(runs / name / READ / victim.name)
    done, started = folder / "facts.json", time.process_time()
    if not done.exists():
        pictures, failed = rebuild(name, victim, originals)
        for place, picture in enumerate(pictures):
            images.write(folder / f"{place:02d}.png", picture)
        seconds = round(time.process_time() - started, 1)
        write_json(done, {"failed": failed, "seconds_of_attack": seconds})
    return dict(json.loads(done.read_text()))


def _measure(originals: Tensor, others: Tensor) -> dict[str, Any]:
    """The mean of every measure that is not learned; of sets the Fréchet distance."""
    compared = Perceptual.of_squeezenet(SQUEEZENET).compare(originals, others)
    measures = (similarity.mse, similarity.ssim)
    each = {measure.__name__: measure(originals, others) for measure in measures}
    # At most 100 dB, which stands for images that are equal.
    each |= {"psnr": similarity.psnr(originals, others).clamp(max=100), "squeezenet": compared.distances}
    scores = {name: values.mean().item() for name, values in each.items()}
    try:
        apart: float | None = frechet_distance(compared.originals, compared.others).distance
    except DataError:
        apart = None
    return {"scores": scores | {"frechet": apart}}


def read_pairs(name: str, victim: str, count: int, runs: Path) -> tuple[Tensor, Tensor]:
    """Originals and reconstructions of a victim, (N, C, H, W) float."""
    originals, others = (
        torch.stack([images.read(folder / f"{place:02d}.png", channels=None) for place in range(count)])
        for folder in (runs / name / "originals", runs / name / READ / victim)
    )
    return images.to_float(originals), images.to_float(others)


# SemSim as published, on data sets that it was not trained on

PUBLISHED = SemSimConfig(network="lenet", learning_rate=0.05, momentum=0.9)
# Beside 1 (App. B). Embeddings of length 1 are at most 2 apart, so that 3 trains as all above 2.
MARGINS = (0.1, 0.3, 3.0)
LEARNED = 1100  # steps: 100 epochs, as in the published code, of 64 originals and their 22 reconstructions


def judgements(names: Sequence[str], records: Mapping[str, Any], runs: Path) -> semsim.Judgements:
    """What judges recognised of data sets."""
    sets = []
    for name in names:
        judged = records[f"{name}-{READ}"]["victims"]
        victims = {each.name: judged[each.name] for each in VICTIMS}  # in the order of the draws
        pairs = [read_pairs(name, victim, each["items"], runs) for victim, each in victims.items()]
        both = pairs[0][0], torch.cat([others for _, others in pairs])
        originals, rebuilt = map(images.to_uint8, both)
        of = torch.arange(len(originals)).repeat(len(pairs))
        who = torch.tensor([each["who"] for each in victims.values()]).flatten()
        sets.append(semsim.Judgements(originals, rebuilt, of, who, f"{name} ({PROXY})"))
    return semsim.combine(sets, size=SIZE)


def learn(
    name: str, names: Sequence[str], seed: int, records: Rows, runs: Path, margin: float = PUBLISHED.margin
) -> dict[str, Any]:
    """Train SemSim on the judgements of the other data sets, and measure the victims of this one."""
    known = judgements([other for other in names if other != name], records, runs)
    epochs = max(1, round(LEARNED / math.ceil(len(known.of) / PUBLISHED.batch)))
    trained = semsim.train(known, replace(PUBLISHED, epochs=epochs, margin=margin), seed=seed)
    model, scores = SemSim(trained.network, card=trained.card), {}
    for victim, each in records[f"{name}-{READ}"]["victims"].items():
        apart = model.distance(*read_pairs(name, victim, each["items"], runs))
        scores[victim] = round(apart.mean().item(), 4)
    return {"annotators": PROXY, "data": name, "seed": seed, "card": trained.card, "distances": scores}


# Correlations of every measure with judges, beside the judges' own reliability

SEMSIM = "semsim"
# Measure -> by seed, once where none is drawn -> of each victim, turned.
Columns = dict[str, list[list[float]]]


def draws() -> torch.Generator:
    """Of a bootstrap."""
    return torch.Generator().manual_seed(SEED)


def columns(name: str, records: Rows) -> Columns:
    """Every measure of the victims, turned so that it rises with what leaks."""
    victims = records[f"{name}-{READ}"]["victims"].values()
    found: Columns = {}
    for measure, sign in SIGNS.items():
        values = [each["scores"][measure] for each in victims]
        if None not in values:
            found[measure] = [[sign * value for value in values]]
    learned = {SEMSIM: [f"{SEMSIM}-{name}-{seed}" for seed in SEEDS]}
    learned |= {f"{SEMSIM}, margin {each:g}": [f"margin-{each:g}-{name}-{SEED}"] for each in MARGINS}
    for measure, made in learned.items():
        if set(made) <= set(records):
            found[measure] = [[-apart for apart in records[each]["distances"].values()] for each in made]
    return found


def correlation(values: list[float], shares: list[float]) -> dict[str, Any] | None:
    """With what judges recognise; None where all are tied."""
    try:
        found = agreement.rank_correlations(values, shares, generator=draws())
    except DataError:
        return None
    return {"kendall": asdict(found.kendall), "spearman": asdict(found.spearman)}


def correlations(names: Sequence[str], records: Rows) -> dict[str, Any]:
    """A table whose rows are data sets, and what stands beside it."""
    found = {name: columns(name, records) for name in names}
    shares, reliability = {}, {}
    for name in names:
        victims = records[f"{name}-{READ}"]["victims"].values()
        shares[name] = [each["recognised"] / each["items"] for each in victims]
        who = [torch.tensor(each["who"]).double() for each in victims]
        reliability[name] = asdict(agreement.split_half_reliability(torch.stack(who), generator=draws()))
    measures = [each for each in found[names[0]] if all(each in found[name] for name in names)]
    rows = {
        name: {each: [correlation(values, shares[name]) for values in found[name][each]] for each in measures}
        for name in names
    }
    return {"annotators": PROXY, "tables": {READ: {"rows": rows, "reliability": reliability}}}


def main() -> None:
    """Do the parts that are asked for."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("parts", nargs="*", choices=[[], *SOURCES, "learned", "agreement"], help="all")
    asked.add_argument("--small", action="store_true", help="settings too small to mean anything")
    options = asked.parse_args()
    records, runs, sets = RECORDS, RUNS, tuple(SOURCES)
    if options.small:
        runs = RUNS / "small"
        records, sets = Rows(runs / "records.jsonl"), ("cifar10", "fer")
    parts = options.parts or [*sets, "learned", "agreement"]
    for part in (each for each in parts if each in SOURCES):
        run(part, FEW if options.small else IMAGES, records, runs)
    sets = tuple(name for name in sets if f"{name}-{READ}" in records)
    if "learned" in parts:
        for name, seed in itertools.product(sets, SEEDS):
            make(records, f"{SEMSIM}-{name}-{seed}", partial(learn, name, sets, seed, records, runs))
        for margin, name in itertools.product(MARGINS, sets):
            made = partial(learn, name, sets, SEED, records, runs, margin)
            make(records, f"margin-{margin:g}-{name}-{SEED}", made)
    if "agreement" in parts:
        records.pop("agreement", None)
        make(records, "agreement", partial(correlations, sets, records))


if __name__ == "__main__":
    main()
