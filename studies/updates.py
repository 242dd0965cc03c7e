"""What updates of federated clients give away: local steps, batches and noise; SPEAR; and clients of Flower.

    python studies/unpack.py cifar10 ../shared/data runs/data/cifar10     # and lfw
    python studies/updates.py                # some 50 minutes on one core; stopped, it goes on
    python studies/updates.py spear steps    # these parts alone
    python studies/updates.py flower         # audits what studies/flower_clients.py left under runs/updates

A cell of `steps` is one audit of updates as `sfumato audit update` makes it. Clients train by SGD on all of their
images in each local step; with DP by Opacus, noise multiplier 1 and clipping norm 1. Images are of CIFAR-10, and of
LFW for the linear network; labels of clients (LFW: gender) are not told to the adversary. Nothing is chosen by these figures: settings are the defaults of
the audit, but for the number of search steps.

Records are studies/results/updates.jsonl; a cell that is there is not made again.
"""

import argparse
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from opacus import PrivacyEngine
from rows import RESULTS, Rows
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import sfumato
from sfumato import data, images
from sfumato.assess import similarity
from sfumato.assess.matching import match
from sfumato.attack.exact import recover_batch
from sfumato.attack.gradient_inversion import INVERTING_GRADIENTS, invert
from sfumato.attack.updates import Update, load, record
from sfumato.attack.victim import ThreatModel, share
from sfumato.audits.findings import Report
from sfumato.audits.update import USUAL_SEARCH, Truth, UpdateAuditConfig, audit_update
from sfumato.networks import LeNet

RECORDS = Rows(RESULTS / "updates.jsonl")
FEDERATIONS = Path("runs/updates")
SHAPE = (3, 32, 32)
RATE = 0.05
STEPS, BATCHES = (1, 5, 20), (1, 8, 32)
CLIENTS = {1: 2, 8: 1, 32: 1}  # of a batch size
SOURCES = {
    "cifar10": ("table:runs/data/cifar10/table.csv", "class"),
    "lfw": ("table:runs/data/lfw/table.csv", "gender"),
}
SEARCH = {"steps": 150, "flower": 300}  # steps
NOISE, NORM = 1.0, 1.0
TRIES = 5  # batches of SPEAR


def network(name: str, classes: int = 10, *, seed: int = 0) -> nn.Module:
    """Untrained, as federated training begins; the same as in studies/flower_clients.py for seed 0."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if name == "lenet":
            return LeNet(SHAPE, classes)
        return nn.Sequential(nn.Flatten(), nn.Linear(3072, 256), nn.ReLU(), nn.Linear(256, classes))


def photographs(count: int, seed: int, source: str = "cifar10") -> tuple[Tensor, Tensor, int]:
    """(N, 3, 32, 32) float images of the test split, (N,) labels, and how many classes there are."""
    where, label = SOURCES[source]
    loaded = data.load(where, size=32)
    rows = loaded.splits["test"]
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:count]]
    named = loaded.label(label)
    return images.to_float(loaded.images[rows]), named.codes[rows], len(named.names)


def trained(
    model: nn.Module, pictures: Tensor, labels: Tensor, *, steps: int, private: bool, seed: int
) -> Update:
    """The update of a client, recorded around its training."""
    optimiser: Any = torch.optim.SGD(model.parameters(), lr=RATE)
    step: nn.Module = model
    if private:
        step, optimiser, _ = PrivacyEngine().make_private(
            module=model,
            optimizer=optimiser,
            data_loader=DataLoader(TensorDataset(pictures, labels), batch_size=len(pictures)),
            noise_multiplier=NOISE,
            max_grad_norm=NORM,
            poisson_sampling=False,
        )
    with torch.random.fork_rng(), record(model, images=len(pictures), optimiser=optimiser) as recording:
        torch.manual_seed(seed)  # of the noise: a study may repeat it, a release may not
        for _ in range(steps):
            optimiser.zero_grad()
            functional.cross_entropy(step(pictures), labels).backward()
            optimiser.step()
    return recording.update


def figures(report: Report) -> dict[str, Any]:
    """What a record keeps of a report."""
    said = {finding.name: finding for finding in report.findings}
    exact, search = said["exact"].figures, said["search"].figures
    return {
        "labels_right": said["labels"].figures["right"],
        "exact": exact.get("came_back", 0),
        "searched": search.get("came_back", 0),
        "psnr": search.get("psnr", []),
        "ssim": search.get("ssim") or [],
        "cost": search.get("cost"),
        "bound": said["bound"].figures.get("bounds", {}).get("100"),
        "sentence": report.sentence,
    }


def audited(name: str, update: Update, truth: Truth, classes: int, *, search: int) -> dict[str, Any]:
    """One audit. The labels judge it, and are not told: the search takes those that it reads."""
    begun = time.time()
    model = network(name, classes)
    config = UpdateAuditConfig(search=replace(USUAL_SEARCH, steps=search) if search else None)
    report = audit_update(model, update, SHAPE, truth=truth, config=config)
    return {
        **figures(report),
        "images": update.training.images,
        "seconds": round(time.time() - begun, 1),
    }


def steps_cells() -> Iterator[tuple[str, Any]]:
    """Name of a cell, and how it is made."""
    # The longest last.
    for source, names in (("cifar10", ("mlp", "lenet")), ("lfw", ("mlp",))):
        before = "" if source == "cifar10" else f"{source}-"
        for steps, private, batch, name in product(STEPS, (False, True), BATCHES, names):
            cell = f"{before}{name}-{batch}-{steps}-{'dp' if private else 'plain'}"
            yield cell, (source, name, batch, steps, private)


def steps_cell(settings: tuple[str, str, int, int, bool]) -> dict[str, Any]:
    """All clients of one setting."""
    source, name, batch, steps, private = settings
    clients = []
    for client in range(CLIENTS[batch]):
        pictures, labels, classes = photographs(batch, 100 * batch + client, source)
        model = network(name, classes, seed=client)
        update = trained(model, pictures, labels, steps=steps, private=private, seed=client)
        clients.append(audited(name, update, Truth(pictures, labels), classes, search=SEARCH["steps"]))
    about = {"data": source, "network": name, "batch": batch, "steps": steps, "private": private}
    return {**about, "clients": clients}


def spear_cells() -> Iterator[tuple[str, Any]]:
    """Batches, on a network of realistic width."""
    for batch in (2, 4, 8):
        for attempt in range(TRIES):
            yield f"{batch}-{attempt}", (batch, attempt)


def spear_cell(settings: tuple[int, int]) -> dict[str, Any]:
    """SPEAR in single and double precision, and Inverting Gradients with the labels given, on the same batch."""
    batch, attempt = settings
    pictures, labels, _ = photographs(batch, seed=1000 + attempt)
    with torch.random.fork_rng():
        torch.manual_seed(attempt)
        layers = [nn.Linear(3072, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)]
        model = nn.Sequential(nn.Flatten(), *layers)
    result: dict[str, Any] = {"batch": batch, "attempt": attempt}
    for precision, dtype in (("double", torch.float64), ("single", torch.float32)):
        own = nn.Sequential(*model).to(dtype)
        shared = share(own, pictures.to(dtype), labels)
        begun = time.time()
        found = recover_batch(own, shared, SHAPE, generator=torch.Generator().manual_seed(attempt))
        seconds = time.time() - begun
        ordered = found.images[match(pictures, found.images)]
        psnr = similarity.psnr(pictures, ordered.clamp(0, 1)).clamp(max=200)
        result[precision] = {
            "least_psnr": psnr.min().item(),
            "match": found.match,
            "drawn": found.drawn,
            "seconds": round(seconds, 2),
        }
    model = model.float()
    knows = ThreatModel(shape=SHAPE, batch=batch, labels=labels)
    config = replace(INVERTING_GRADIENTS, labels="known", total_variation=1e-2, steps=1000)
    begun = time.time()
    rebuilt = invert(model, share(model, pictures, labels), knows, config, seed=attempt)
    psnr = similarity.psnr(pictures, rebuilt.images[match(pictures, rebuilt.images)])
    result["search"] = {"psnr": psnr.tolist(), "seconds": round(time.time() - begun, 2)}
    return result


def flower_cells() -> Iterator[tuple[str, Any]]:
    """Clients of federations that ran."""
    for folder in sorted(FEDERATIONS.glob("*/client-*")):
        yield f"{folder.parent.name}-{folder.name}", folder


def flower_cell(folder: Path) -> dict[str, Any]:
    """The update of one client, as it came."""
    source, name = folder.parent.name.split("-")
    truth = load_file(folder / "truth.safetensors")
    update = load(folder / "update-1.safetensors")
    classes = list(update.change.values())[-1].shape[0]
    known = Truth(truth["images"], truth["labels"])
    result = audited(name, update, known, classes, search=SEARCH["flower"])
    training = {
        "images": update.training.images,
        "batch": update.training.together,
        "steps": update.training.steps,
    }
    return {"data": source, "network": name, "training": training, **result}


PARTS = {
    "spear": (spear_cells, spear_cell),
    "steps": (steps_cells, steps_cell),
    "flower": (flower_cells, flower_cell),
}


def make(part: str) -> None:
    """The cells of a part that have no record yet."""
    record = RECORDS.get(part, {"cells": {}})
    cells, measure = PARTS[part]
    for name, settings in cells():
        if name in record["cells"]:
            continue
        record["cells"][name] = measure(settings)
        search = SEARCH.get(part, 0)
        record["settings"] = {"rate": RATE, "search_steps": search, "noise": NOISE, "norm": NORM}
        record["sfumato"] = sfumato.__version__
        RECORDS[part] = record
        print(f"{part}: {name}", flush=True)


def main() -> None:
    """Make what is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=UserWarning)  # Opacus, of its generator and of hooks
    for part in options.parts or PARTS:
        make(part)


if __name__ == "__main__":
    main()
