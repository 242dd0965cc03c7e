"""Networks that learn to see a face through a protection, and how many more people they name than a study's adversaries.

    studies/accelerator/run.sh OUT --only student

On the people, the gallery and the probes of studies/lfw-hats.yaml, and of the demo's drawn faces. Two networks learn from the
photographs of the study's other people by `attack.ensemble.by_student`: the study's recogniser, trained further, and a ResNet-18
from nothing. Scores, standardised for each probe, are added to each other and to those of PLDA. In SECONDS a processor makes too few
steps: the settings without a record wait for an accelerator. Those that have one were trained by the script of commit a3ec18f9.

`bits` are those of sfumato.assess.identity; of the records of commit 50577026 the posterior has a temperature alone, and no
uniform share. Intervals are over people.
"""

from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from pool import Options, Task, card, one_of_each_kind, options, run
from torch import Tensor

from sfumato.assess import identity
from sfumato.attack.ensemble import by_student, by_values, standardise
from sfumato.attack.reidentify import StudentConfig
from sfumato.base.proportions import over_people
from sfumato.networks.encoders.small import ResNet
from sfumato.networks.weights import initial_weights
from sfumato.study import grid
from sfumato.study.cells import Cell
from sfumato.study.lab.lab import Lab, Progress
from sfumato.study.measure.attack import hits, readings
from sfumato.study.run import prepare

LFW = Path(__file__).parents[1] / "lfw-hats.yaml"
DEMO = Path(grid.__file__).parents[1] / "cli/demo.yaml"
_DRAWN = ("dp-pix:cell=8,epsilon=3", "dp-pix:cell=8,epsilon=0.5")
SETTINGS = {
    LFW: ("pixelize:cell=8", "blur:radius=4", "gaussian:sigma=160", *_DRAWN),
    DEMO: ("pixelize:cell=8", "blur:radius=3", *_DRAWN),
}
SEED = 0
SECONDS = 200.0  # of training each network
SMALL, FEW = 256, 8  # photographs learned from, and people to name, in a trial of three steps
RATES = {"network, further": 5e-4, "network, from nothing": 1e-3}
SIZE = (112, 96)  # of a face
RELEASES = (1, 3, 10)  # of one person, each of another photograph


def tasks() -> list[Task]:
    """A setting each."""
    return [
        Task(
            f"{'' if of == LFW else 'drawn faces, '}{spec}, seed {SEED}",
            {"protection": spec, "seed": SEED},
            of.stem,
        )
        for of, specs in SETTINGS.items()
        for spec in specs
    ]


@cache
def lab_of(study: str, given: Options) -> Lab:
    """The study's data, read once by each process."""
    weights = [
        f"adversary.{name}={given.data}/weights/{file}.safetensors"
        for name, file in (("weights", "mobilefacenet_casia_112x96"), ("detector", "mtcnn"))
    ]
    path = {of.stem: of for of in SETTINGS}[study]
    steps = ["adversary.steps=3"] if given.scale < 1 else []
    prepared = prepare(grid.load(path, ["device=auto", *(weights if path == LFW else steps)]), fit=True)
    return Lab(prepared.config, prepared.data[0], given.out / f"student-{study}", Progress())


def bits_of(scores: Tensor, right: Tensor, truth: Tensor) -> dict[str, float]:
    """Bits of identity, with half of their 95% interval over people. (m, N), (m,), (m,)."""
    made = identity.by_person([scores], right, truth)
    mean, low, _ = identity.mean_over_people(made["bits"], truth.unique(return_counts=True)[1].tolist())
    return {"mean": round(mean, 3), "half_width": round(mean - low, 3)}


def judged(scores: Tensor, identities: Tensor, truth: Tensor) -> dict[str, Any]:
    """Who is named from each number of releases: their scores are added. (m, N), (N,), (m,)."""
    found = {}
    for count in RELEASES:
        rows = [(truth == who).nonzero().flatten() for who in truth.unique()]
        sets = [part for own in rows for part in own.split(count) if len(part) == count]
        if len(sets) < 2:
            continue
        of = torch.stack([scores[part].sum(0) for part in sets])
        who = truth[torch.stack([part[0] for part in sets])]
        right = torch.searchsorted(identities, who)
        named, asked = hits(of.argmax(1) == right, who), who.unique(return_counts=True)[1].tolist()
        low, high = over_people(named, asked)
        share = {"named": round(sum(named) / len(who), 4), "low": round(low, 4), "high": round(high, 4)}
        found[str(count)] = {**share, "sets": len(who), "people": len(asked), "bits": bits_of(of, right, who)}
    return found


def work(task: Task, given: Options) -> dict[str, Any]:
    """Train both networks, and name people by them and by the study's adversaries."""
    card()
    lab, trial = lab_of(task.kind, given), given.scale < 1
    cell = Cell(
        "attack", task.settings["protection"], task.settings["seed"], (("attack", "reidentify-student"),)
    )
    adversaries, copies = lab.adversaries, lab.config.adversary.copies
    gallery, truth = adversaries.gallery(cell)
    recognisers, teacher = adversaries.recognisers, adversaries.static(cell.seed)
    if trial:
        few = gallery.names.unique()[:FEW]
        known, asked = (torch.isin(who, few) for who in (gallery.names, truth))
        seen = {"known": gallery.known[known], "names": gallery.names[known], "asked": gallery.asked[asked]}
        others = {"others": gallery.others[:SMALL], "of_others": gallery.of_others[:SMALL]}
        gallery, truth = replace(gallery, **seen, **others), truth[asked]
        recognisers = replace(recognisers, photographs=gallery.others, people=gallery.of_others)
    values = by_values(gallery, readings, copies=copies)
    of = {each.classifier: each.similarities.double() for each in values.guesses if "plda" in each.classifier}
    classifiers, trained, wide = {}, {}, teacher.embed(recognisers.photographs[:1]).shape[1]
    for name, rate in RATES.items():
        with initial_weights(cell.seed):
            shape = SIZE if recognisers.config.weights else tuple(gallery.others.shape[2:])
            scratch = None if "further" in name else ResNet((3, *shape), wide, depth=18)
        steps = 3 if trial else 1_000_000
        config = StudentConfig(
            minutes=SECONDS / 60, steps=steps, learning_rate=rate, batch=16 if trial else 128
        )
        made = by_student(gallery, recognisers, teacher, config, encoder=scratch)
        named = {
            each.classifier: each.identities[each.similarities.argmax(1)] == truth for each in made.guesses
        }
        classifiers[name] = {each: round(float(right.double().mean()), 4) for each, right in named.items()}
        trained[name] = asdict(made.trained["student"])
        of[name] = standardise(made.guesses[-1].similarities)  # to the mean of each person
    identities = gallery.names.unique()
    networks = of["network, further"] + of["network, from nothing"]
    of |= {"networks": networks, "networks, plda": networks + of["plda"]}
    of["all"] = of["networks, plda"] + of["plda-rbf"]
    counts = gallery.names.unique(return_counts=True)[1].double()
    known_of_each = {"known": round(float(counts.mean()), 2), "most_known": int(counts.max())}
    learned_from = {"people": len(gallery.of_others.unique()), "photographs": len(gallery.others)}
    copies = copies if gallery.noisy else 1
    return {
        "had": {"people": len(identities), **known_of_each, "copies": copies, "others": learned_from},
        "guessing": round(float(truth.bincount().max()) / len(truth), 4),
        "trained": trained,
        "classifiers": classifiers,
        "adversaries": {name: judged(scores, identities, truth) for name, scores in of.items()},
    }


def main() -> int:
    """Do what there is time for."""
    given, todo = options(__doc__), tasks()
    if given.scale < 1:
        todo = one_of_each_kind(todo)
    return run("student", todo, work, given, least=2 * SECONDS if given.scale == 1 else 0)


if __name__ == "__main__":
    raise SystemExit(main())
