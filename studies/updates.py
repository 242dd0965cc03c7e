"""What updates of federated clients give away: local steps, batches and noise; and clients of Flower.

    python studies/unpack.py cifar10 ../shared/data runs/data/cifar10     # and lfw
    python studies/updates.py                # or `steps` alone: 50 minutes on one core; it goes on
    python studies/updates.py federate mlp cifar10    # where sfumato[flower,study] is installed: it pins older releases of what we pin
    python studies/updates.py flower         # audits what that left under runs/updates

A cell of `steps` is one audit of updates as `sfumato audit update` makes it. Clients train by SGD on all of their images in each local
step; with DP by Opacus, noise multiplier 1 and clipping norm 1. Labels of clients (LFW: gender) are not told to the adversary.
`federate` runs a server process and four client processes of Flower over gRPC; the two lines that record a client are marked. Records
of SPEAR are of commit 2f64c651.
"""

import argparse
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rows import RESULTS, Rows
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import sfumato
from sfumato import data, images
from sfumato.attack.updates import (
    Update,
    load,
    record,
    record_client,  # the first of two lines
)
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
FEW = 100  # photographs: more than a client has
ADDRESS = "127.0.0.1:18431"
OF_FLOWER = ((1, 1, 1), (8, 8, 1), (1, 1, 5), (8, 2, 4))  # images of a client, of a step, and local steps


def network(name: str, classes: int = 10, *, seed: int = 0) -> nn.Module:
    """Untrained, as federated training begins."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if name == "lenet":
            return LeNet(SHAPE, classes)
        return nn.Sequential(nn.Flatten(), nn.Linear(3072, 256), nn.ReLU(), nn.Linear(256, classes))


def photographs(source: str, split: str | None, seed: int) -> tuple[Tensor, Tensor, int]:
    """(N, 3, 32, 32) float images of a split in random order, (N,) labels, and how many classes there are."""
    where, label = SOURCES[source]
    loaded = data.load(where, size=SHAPE[1])
    rows = torch.arange(len(loaded.images)) if split is None else loaded.splits[split]
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


def audited(name: str, update: Update, truth: Truth, classes: int, *, search: int) -> dict[str, Any]:
    """One audit. The labels judge it, and are not told: the search takes those that it reads."""
    begun, model = time.time(), network(name, classes)
    config = UpdateAuditConfig(search=replace(USUAL_SEARCH, steps=search))
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


def steps_cells() -> Iterator[tuple[str, Any]]:
    """Name of a cell, and how it is made. The longest last."""
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
        pictures, labels, classes = photographs(source, "test", 100 * batch + client)
        truth, model = Truth(pictures[:batch], labels[:batch]), network(name, classes, seed=client)
        update = trained(model, truth, steps=steps, private=private, seed=client)
        clients.append(audited(name, update, truth, classes, search=SEARCH["steps"]))
    about = {"data": source, "network": name, "batch": batch, "steps": steps, "private": private}
    return {**about, "clients": clients}


def flower_cells() -> Iterator[tuple[str, Any]]:
    """Clients of federations that ran."""
    for folder in sorted(FEDERATIONS.glob("*/client-*")):
        yield f"{folder.parent.name}-{folder.name}", folder


def flower_cell(folder: Path) -> dict[str, Any]:
    """The update of one client, as it came."""
    source, name = folder.parent.name.split("-")
    truth, update = load_file(folder / "truth.safetensors"), load(folder / "update-1.safetensors")
    classes, of = list(update.change.values())[-1].shape[0], update.training
    result = audited(name, update, Truth(truth["images"], truth["labels"]), classes, search=SEARCH["flower"])
    training = {"images": of.images, "batch": of.together, "steps": of.steps}
    return {"data": source, "network": name, "training": training, **result}


def serve() -> None:
    """One round of FedAvg, for all clients."""
    from flwr.server import ServerConfig, start_server
    from flwr.server.strategy import FedAvg

    everybody = len(OF_FLOWER)
    strategy = FedAvg(fraction_evaluate=0.0, min_fit_clients=everybody, min_available_clients=everybody)
    start_server(server_address=ADDRESS, config=ServerConfig(num_rounds=1), strategy=strategy)


def take_part(name: str, source: str, number: int) -> None:
    """A client, from its first to its last word with the server."""
    from flwr.client import NumPyClient
    from flwr.compat.client.app import start_client

    pictures, labels, classes = photographs(source, None, 0)
    count, batch, steps = OF_FLOWER[number]
    before = sum(count for count, _, _ in OF_FLOWER[:number])
    pictures, labels = pictures[before : before + count], labels[before : before + count]
    model = network(name, classes)

    class Client(NumPyClient):
        """As in Flower's documentation."""

        def get_parameters(self, config: dict[str, Any]) -> list[Any]:
            return [tensor.cpu().numpy() for tensor in model.state_dict().values()]

        def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
            state = zip(model.state_dict(), map(torch.tensor, parameters), strict=True)
            model.load_state_dict(dict(state))
            optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
            parts = list(zip(pictures.split(batch), labels.split(batch), strict=True))
            for step in range(steps):
                seen, named = parts[step % len(parts)]
                optimiser.zero_grad()
                functional.cross_entropy(model(seen), named).backward()
                optimiser.step()
            return self.get_parameters(config), len(pictures), {}

    own = FEDERATIONS / f"{source}-{name}" / f"client-{number}"
    client = record_client(Client(), own)  # the second
    start_client(server_address=ADDRESS, client=client.to_client(), insecure=True)
    save_file({"images": pictures, "labels": labels}, own / "truth.safetensors")


def federate(name: str, source: str, *role: str) -> None:
    """A server process and client processes; or, with a role, one of them."""
    if role:
        serve() if role[0] == "server" else take_part(name, source, int(role[0]))
        return
    roles = ["server", *map(str, range(len(OF_FLOWER)))]
    this = [sys.executable, __file__, "federate", name, source]
    processes = [subprocess.Popen([*this, each]) for each in roles]
    codes = [process.wait(timeout=300) for process in processes]
    if any(codes):
        raise SystemExit(f"a process of the federation failed: {codes}")


PARTS = {"steps": (steps_cells, steps_cell), "flower": (flower_cells, flower_cell)}


def make(part: str) -> None:
    """The cells of a part that have no record yet."""
    record = RECORDS.get(part, {"cells": {}})
    cells, measure = PARTS[part]
    for name, settings in cells():
        if name in record["cells"]:
            continue
        record["cells"][name] = measure(settings)
        record["settings"] = {"rate": RATE, "search_steps": SEARCH[part], "noise": NOISE, "norm": NORM}
        record["sfumato"] = sfumato.__version__
        RECORDS[part] = record
        print(f"{part}: {name}", flush=True)


def main() -> None:
    """Make what is missing."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=UserWarning)  # Opacus, of its generator and of hooks
    if sys.argv[1:2] == ["federate"]:
        federate(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all; or federate NETWORK DATA")
    for part in parser.parse_args().parts or PARTS:
        make(part)


if __name__ == "__main__":
    main()
