"""Networks that learn to see a face through a protection, and how many more people they name than a study's adversaries.

    studies/accelerator/run.sh OUT --only student

On the people, the gallery and the probes of studies/lfw-hats.yaml. Two networks learn at once from the photographs of
the study's other people, protected and shifted anew in every step: MobileFaceNet, trained further, and a ResNet-18 from
nothing. Each is to give the embedding that the published MobileFaceNet has of the CLEAN photograph, and to tell people
apart (cosine softmax). Scores, standardised for each probe, are added to each other and to those of PLDA (attack/ensemble.py).

`bits` are those of sfumato.assess.identity; of the records of commit 50577026 the posterior has a temperature alone, and no
uniform share. Intervals are over people.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from math import cos, pi
from pathlib import Path
from typing import Any

import torch
from pool import Options, Task, card, options, run
from torch import Tensor, nn
from torch.nn import functional

from sfumato.assess import identity
from sfumato.attack.ensemble import GALLERY, OTHERS, PROBES, standardise
from sfumato.attack.reidentify import Guesses, Recogniser, reidentify
from sfumato.base.proportions import over_people
from sfumato.dp.mechanisms import seeded_noise
from sfumato.images import to_float
from sfumato.networks import MobileFaceNet
from sfumato.networks.encoders.small import ResNet
from sfumato.networks.faces.alignment import reference_points, similarity
from sfumato.networks.weights import initial_weights
from sfumato.study import grid
from sfumato.study.cells import Cell
from sfumato.study.lab.lab import Lab, Progress
from sfumato.study.measure import attack
from sfumato.study.measure.attack import hits
from sfumato.study.run import prepare

STUDY = Path(__file__).parents[1] / "lfw-hats.yaml"
_DRAWN = ("dp-pix:cell=8,epsilon=3", "dp-pix:cell=8,epsilon=0.5")
SETTINGS = ("pixelize:cell=8", "blur:radius=4", "gaussian:sigma=160", *_DRAWN)
SEED = 0
SECONDS, BATCH = 200.0, 128  # of training; photographs of a step
SMALL = 16  # photographs of a step, and of those learned from, in a trial of three steps
RATES = {"network, further": 5e-4, "network, from nothing": 1e-3}
SIZE = (112, 96)  # of a face
SHIFT, SCALE, LIKE_CLEAN = 2, 16.0, 8.0  # pixels of a photograph; of cosines; weight
DRAWN_AHEAD = 3  # batches, by as many threads
RELEASES = (1, 3, 10)  # of one person, each of another photograph


def tasks() -> list[Task]:
    """A setting each."""
    return [Task(f"{spec}, seed {SEED}", {"protection": spec, "seed": SEED}) for spec in SETTINGS]


@cache
def lab_of(given: Options) -> Lab:
    """The study's data, read once by each process."""
    weights = [
        f"adversary.{name}={given.data}/weights/{file}.safetensors"
        for name, file in (("weights", "mobilefacenet_casia_112x96"), ("detector", "mtcnn"))
    ]
    prepared = prepare(grid.load(STUDY, weights), fit=True)
    return Lab(prepared.config, prepared.data[0], given.out / "student", Progress())


class Face(nn.Module):
    """Cuts faces out where they usually are, and embeds them: (N, 3, H, W) float -> (N, 128) of unit length."""

    def __init__(self, encoder: nn.Module, landmarks: Tensor, side: int) -> None:
        super().__init__()
        self.recogniser = Recogniser(encoder)
        matrix = similarity(landmarks[None], reference_points(SIZE))[0]
        ys, xs = (torch.arange(n, dtype=torch.float64) for n in SIZE)
        places = torch.stack([xs.expand(len(ys), -1), ys[:, None].expand(-1, len(xs))], 2)  # (h, w, 2)
        origins = (places - matrix[:, 2]) @ torch.linalg.inv(matrix[:, :2]).T  # in pixels of the photograph
        self.register_buffer("grid", ((2 * origins + 1) / side - 1).float())
        self.reach = 2 * SHIFT / side

    def forward(self, images: Tensor) -> Tensor:
        """Embed; in training each image is moved by up to SHIFT pixels."""
        grid = self.grid.expand(len(images), -1, -1, -1)
        if self.training:
            grid = grid + self.reach * (2 * torch.rand(len(images), 1, 1, 2, device=grid.device) - 1)
        return self.recogniser(functional.grid_sample(images, grid, align_corners=False))

    @torch.no_grad()
    def embed(self, images: Tensor) -> Tensor:
        """(N, 3, H, W) uint8 -> (N, 128): of each photograph and its mirror image."""
        self.eval()
        parts = [to_float(part.to(self.grid.device)) for part in images.split(256)]
        both = torch.cat([self(part) + self(part.flip(3)) for part in parts])
        return functional.normalize(both, dim=1).cpu()


def batches(lab: Lab, cell: Cell, count: int, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows of the first of other people's photographs, and these protected anew: drawn ahead by threads."""
    seed = cell.seed
    others, protection = lab.adversaries.others.images, lab.protection(cell)
    draw = torch.Generator().manual_seed(seed)

    def release(rows: Tensor, number: int) -> tuple[Tensor, Tensor]:
        return rows, protection.release(others[rows], seeded_noise(seed, OTHERS, 1_000 + number)).images()

    with ThreadPoolExecutor(DRAWN_AHEAD) as threads:
        ahead, number = [], 0
        while True:
            while len(ahead) <= DRAWN_AHEAD:
                rows = torch.randint(count, (batch,), generator=draw)
                ahead.append(threads.submit(release, rows, number))
                number += 1
            yield ahead.pop(0).result()


def train(lab: Lab, cell: Cell, *, small: bool) -> tuple[dict[str, Face], dict[str, Any]]:
    """Both networks, for SECONDS, at a rate that falls to 0 as they pass."""
    batch = SMALL if small else BATCH
    adversaries, device = lab.adversaries, card()
    _, people = adversaries.others.label("identity").codes.unique(return_inverse=True)
    usual, side = adversaries._finder._usual, adversaries.others.images.shape[3]
    published = MobileFaceNet.load(lab.config.adversary.weights)
    with initial_weights(cell.seed):
        scratch = ResNet((3, *SIZE), 128, depth=18)
        directions = [nn.Parameter(torch.randn(int(people.max()) + 1, 128).to(device)) for _ in RATES]
    teacher = Face(published, usual, side).to(device)
    clean = teacher.embed(adversaries.others.images[: batch if small else None]).to(device)
    further = MobileFaceNet.load(lab.config.adversary.weights)
    encoders = zip(RATES, (further, scratch), strict=True)
    made = {name: Face(encoder, usual, side).to(device).train() for name, encoder in encoders}
    groups = [
        {"params": [*face.parameters(), way], "rate": RATES[name]}
        for (name, face), way in zip(made.items(), directions, strict=True)
    ]
    optimiser = torch.optim.Adam(groups, fused=device.type == "cuda")
    began, step, losses = time.monotonic(), 0, dict.fromkeys(RATES, 0.0)
    torch.manual_seed(cell.seed)  # of shifts, on the card
    for rows, released in batches(lab, cell, len(clean), batch):
        passed = step / 3 if small else (time.monotonic() - began) / SECONDS
        if passed >= 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = group["rate"] * (1 + cos(pi * passed)) / 2
        images, wanted, mirrored = to_float(released.to(device)), people[rows].to(device), step % 2
        total = torch.zeros((), device=device)
        for (name, face), ways in zip(made.items(), directions, strict=True):
            embedded = face(images.flip(3) if mirrored else images)
            alike = 1 - (embedded * clean[rows.to(device)]).sum(1).mean()
            cosines = embedded @ functional.normalize(ways, dim=1).T
            loss = functional.cross_entropy(SCALE * cosines, wanted, label_smoothing=0.1) + LIKE_CLEAN * alike
            losses[name] = 0.99 * losses[name] + 0.01 * loss.detach() if step else loss.detach()
            total = total + loss
        optimiser.zero_grad(set_to_none=True)
        total.backward()
        optimiser.step()
        step += 1
    facts = {"steps": step, "seconds": round(time.monotonic() - began, 1), "batch": batch}
    return made, {**facts, "loss": {name: round(float(each), 3) for name, each in losses.items()}}


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
    lab, config = lab_of(given), grid.load(STUDY).adversary
    which = (("attack", "reidentify-values"),)
    cell = Cell("attack", task.settings["protection"], task.settings["seed"], which)
    faces, trained = train(lab, cell, small=given.scale < 1)
    adversaries = lab.adversaries
    gallery, rows = adversaries.deal(cell.seed)
    people, codes = adversaries.people.images, adversaries.people.label("identity").codes
    copies = config.copies if lab.protection(cell).draws_noise else 1
    known = [lab.release(cell, people[gallery], GALLERY, number).images() for number in range(copies)]
    asked, truth = lab.release(cell, people[rows], PROBES).images(), codes[rows]
    by_values = attack.compare_values(lab, cell)
    places = {name: by_values.classifiers.index(name) for name in ("plda", "plda-rbf")}
    of = {name: by_values.similarities[place].double() for name, place in places.items()}
    classifiers = {}
    for name, face in faces.items():
        theirs = torch.cat([face.embed(each) for each in known])
        guesses: tuple[Guesses, ...] = reidentify(theirs, codes[gallery].repeat(copies), face.embed(asked))
        rates = {g.classifier: g.identities[g.similarities.argmax(1)] == truth for g in guesses}
        classifiers[name] = {each: round(float(right.double().mean()), 4) for each, right in rates.items()}
        of[name] = standardise(guesses[-1].similarities)  # to the mean of each person
    identities = codes[gallery].unique()
    networks = sum(of[name] for name in RATES)
    of |= {"networks": networks, "networks, plda": networks + of["plda"]}
    of["all"] = of["networks, plda"] + of["plda-rbf"]
    others = adversaries.others.label("identity").codes
    counts = codes[gallery].unique(return_counts=True)[1].double()
    known_of_each = {"known": round(float(counts.mean()), 2), "most_known": int(counts.max())}
    learned_from = {"people": len(others.unique()), "photographs": len(others)}
    return {
        "had": {"people": len(identities), **known_of_each, "copies": copies, "others": learned_from},
        "guessing": round(float(truth.bincount().max()) / len(truth), 4),
        "trained": trained,
        "classifiers": classifiers,
        "adversaries": {name: judged(scores, identities, truth) for name, scores in of.items()},
    }


def main() -> int:
    """Do what there is time for."""
    given = options(__doc__)
    return run("student", tasks(), work, given, least=SECONDS if given.scale == 1 else 0)


if __name__ == "__main__":
    raise SystemExit(main())
