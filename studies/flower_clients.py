"""A federation of Flower: a server process and four client processes over gRPC, whose updates are recorded.

    pip install -e '.[flower,study]'     # in an environment of its own: Flower pins older releases of what we pin
    python studies/flower_clients.py run mlp table:runs/data/cifar10/table.csv class runs/updates/cifar10-mlp

The client is as Flower's documentation writes one; the two lines that record it are marked. Client k has other
photographs than the others and trains as SETTINGS[k] says. Updates are FOLDER/client-k/update-1.safetensors, and
what they were made of is FOLDER/client-k/truth.safetensors, which no server has. studies/updates.py audits them.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from sfumato import data, images
from sfumato.attack.updates import record_client  # the first of two lines
from sfumato.networks import LeNet

ADDRESS = "127.0.0.1:18431"
SETTINGS = ((1, 1, 1), (8, 8, 1), (1, 1, 5), (8, 2, 4))  # images of a client, of a step, and local steps
RATE = 0.05
SHAPE = (3, 32, 32)
Arrays = list[Any]


def network(name: str, classes: int) -> nn.Module:
    """As everybody draws it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if name == "lenet":
            return LeNet(SHAPE, classes)
        return nn.Sequential(nn.Flatten(), nn.Linear(3072, 256), nn.ReLU(), nn.Linear(256, classes))


def photographs(source: str, label: str, client: int) -> tuple[Tensor, Tensor, int]:
    """Images of a client, their labels, and how many classes there are."""
    loaded = data.load(source, size=SHAPE[1])
    codes = loaded.label(label)
    order = torch.randperm(len(loaded.images), generator=torch.Generator().manual_seed(0))
    begin = sum(count for count, _, _ in SETTINGS[:client])
    rows = order[begin : begin + SETTINGS[client][0]]
    return images.to_float(loaded.images[rows]), codes.codes[rows], len(codes.names)


def serve() -> None:
    """One round of FedAvg, for four clients."""
    from flwr.server import ServerConfig, start_server
    from flwr.server.strategy import FedAvg

    everybody = len(SETTINGS)
    strategy = FedAvg(fraction_evaluate=0.0, min_fit_clients=everybody, min_available_clients=everybody)
    start_server(server_address=ADDRESS, config=ServerConfig(num_rounds=1), strategy=strategy)


def take_part(name: str, source: str, label: str, folder: Path, number: int) -> None:
    """A client, from its first to its last word with the server."""
    from flwr.client import NumPyClient
    from flwr.compat.client.app import start_client

    pictures, labels, classes = photographs(source, label, number)
    _, batch, steps = SETTINGS[number]
    model = network(name, classes)

    class Client(NumPyClient):
        """As in Flower's documentation."""

        def get_parameters(self, config: dict[str, Any]) -> Arrays:
            return [tensor.cpu().numpy() for tensor in model.state_dict().values()]

        def fit(self, parameters: Arrays, config: dict[str, Any]) -> tuple[Arrays, int, dict[str, Any]]:
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

    own = folder / f"client-{number}"
    client = record_client(Client(), own)  # the second
    start_client(server_address=ADDRESS, client=client.to_client(), insecure=True)
    save_file({"images": pictures, "labels": labels}, own / "truth.safetensors")


def run(name: str, source: str, label: str, folder: Path) -> None:
    """A server process and four client processes."""
    this = [sys.executable, __file__]
    server = subprocess.Popen([*this, "serve"])
    clients = [
        subprocess.Popen([*this, "client", name, source, label, str(folder), str(number)])
        for number in range(len(SETTINGS))
    ]
    codes = [process.wait(timeout=300) for process in (*clients, server)]
    if any(codes):
        raise SystemExit(f"a process of the federation failed: {codes}")


def main() -> None:
    """Run a federation, or be one of its processes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("role", choices=["run", "serve", "client"])
    parser.add_argument("words", nargs="*", help="NETWORK SOURCE LABEL FOLDER, and the number of a client")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.role == "serve":
        serve()
        return
    name, source, label, folder, *number = options.words
    if options.role == "run":
        run(name, source, label, Path(folder))
    else:
        take_part(name, source, label, Path(folder), int(number[0]))


if __name__ == "__main__":
    main()
