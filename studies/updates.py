"""What updates of federated clients give away: local steps, batches and noise.

    python studies/unpack.py cifar10 ../shared/data runs/data/cifar10     # and lfw
    python studies/updates.py                # 50 minutes on one core; it goes on

A cell is one audit of updates as `sfumato audit update` makes it. Clients train by SGD on all of their images in each local
step; with DP by Opacus, noise multiplier 1 and clipping norm 1. Labels of clients (LFW: gender) are not told to the adversary.
Records of SPEAR and of clients of Flower are of commit 2f64c651.
"""

import time
import warnings
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from rows import RESULTS, Rows
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import sfumato
from sfumato import data, images
from sfumato.attack.updates import Update, record
from sfumato.audits.update import USUAL_SEARCH, Truth, UpdateAuditConfig, audit_update
from sfumato.networks import LeNet

RECORDS = Rows(RESULTS / "updates.jsonl")
SHAPE = (3, 32, 32)
RATE = 0.05
STEPS, BATCHES = (1, 5, 20), (1, 8, 32)
CLIENTS = {1: 2, 8: 1, 32: 1}  # of a batch size
SOURCES = {
    "cifar10": ("table:runs/data/cifar10/table.csv", "class"),
    "lfw": ("table:runs/data/lfw/table.csv", "gender"),
}
SEARCH = 150  # steps
NOISE, NORM = 1.0, 1.0
FEW = 100  # photographs: more than a client has


def network(name: str, classes: int = 10, *, seed: int = 0) -> nn.Module:
    """Untrained, as federated training begins."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if name == "lenet":
            return LeNet(SHAPE, classes)
        return nn.Sequential(nn.Flatten(), nn.Linear(3072, 256), nn.ReLU(), nn.Linear(256, classes))


def photographs(source: str, seed: int) -> tuple[Tensor, Tensor, int]:
    """(N, 3, 32, 32) float test images in random order, (N,) labels, and how many classes there are."""
    where, label = SOURCES[source]
    loaded = data.load(where, size=SHAPE[1])
    rows = loaded.splits["test"]
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))][:FEW]
    named = loaded.label(label)
    return images.to_float(loaded.images[rows]), named.codes[rows], len(named.names)


def trained(model: nn.Module, truth: Truth, *, steps: int, private: bool, seed: int) -> Update:
    """The update of a client, recorded around its training."""
    pictures, labels = truth.images, truth.labels
    optimiser: Any = torch.optim.SGD(model.parameters(), lr=RATE)
    step: nn.Module = model
    if private:
        from opacus import PrivacyEngine

        loader = DataLoader(TensorDataset(pictures, labels), batch_size=len(pictures))
        how = {"noise_multiplier": NOISE, "max_grad_norm": NORM, "poisson_sampling": False}
        made = PrivacyEngine().make_private(module=model, optimizer=optimiser, data_loader=loader, **how)
        step, optimiser, _ = made
    with torch.random.fork_rng(), record(model, images=len(pictures), optimiser=optimiser) as recording:
        torch.manual_seed(seed)  # of the noise: a study may repeat it, a release may not
        for _ in range(steps):
            optimiser.zero_grad()
            functional.cross_entropy(step(pictures), labels).backward()
            optimiser.step()
    return recording.update


def audited(name: str, update: Update, truth: Truth, classes: int) -> dict[str, Any]:
    """One audit. The labels judge it, and are not told: the search takes those that it reads."""
    begun, model = time.time(), network(name, classes)
    config = UpdateAuditConfig(search=replace(USUAL_SEARCH, steps=SEARCH))
    report = audit_update(model, update, SHAPE, truth=truth, config=config)
    said = {finding.name: finding.figures for finding in report.findings}
    return {
        "labels_right": said["labels"]["right"],
        "exact": said["exact"].get("came_back", 0),
        "searched": said["search"].get("came_back", 0),
        "psnr": said["search"].get("psnr", []),
        "ssim": said["search"].get("ssim") or [],
        "cost": said["search"].get("cost"),
        "bound": said["bound"].get("bounds", {}).get("100"),
        "sentence": report.sentence,
        "images": update.training.images,
        "seconds": round(time.time() - begun, 1),
    }


def cell_of(source: str, name: str, batch: int, steps: int, private: bool) -> dict[str, Any]:
    """All clients of one setting."""
    clients = []
    for client in range(CLIENTS[batch]):
        pictures, labels, classes = photographs(source, 100 * batch + client)
        truth, model = Truth(pictures[:batch], labels[:batch]), network(name, classes, seed=client)
        update = trained(model, truth, steps=steps, private=private, seed=client)
        clients.append(audited(name, update, truth, classes))
    about = {"data": source, "network": name, "batch": batch, "steps": steps, "private": private}
    return {**about, "clients": clients}


def main() -> None:
    """Make the cells that have no record yet, the longest last."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=UserWarning)  # Opacus, of its generator and of hooks
    record = RECORDS.get("steps", {"cells": {}})
    record["settings"] = {"rate": RATE, "search_steps": SEARCH, "noise": NOISE, "norm": NORM}
    for source, name in (("cifar10", "mlp"), ("cifar10", "lenet"), ("lfw", "mlp")):
        before = "" if source == "cifar10" else f"{source}-"
        for steps, private, batch in product(STEPS, (False, True), BATCHES):
            cell = f"{before}{name}-{batch}-{steps}-{'dp' if private else 'plain'}"
            if cell not in record["cells"]:
                record["cells"][cell] = cell_of(source, name, batch, steps, private)
                RECORDS["steps"] = record | {"sfumato": sfumato.__version__}
                print(f"steps: {cell}", flush=True)


if __name__ == "__main__":
    main()
