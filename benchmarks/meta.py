"""A meta-step of 16 tasks against a plain autograd loop: by network, algorithm, way and precision.

    python benchmarks/meta.py

Wanted on two cores: at least twice as fast on the fully connected network, at least 1.2 times on the
convolutional one. The plain loop has all of torch's threads for each task.
"""

import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from sfumato.learn.adaptation import Inner, Learner, Tasks, contributions, fastest, tasks_of
from sfumato.networks import Convolutional, FullyConnected, Strided
from sfumato.precision import resolve

TASKS, RATE, ROUNDS = 16, 0.4, 7
WANTED = {"fully-connected": 2.0, "convolutional": 1.2, "strided": 1.2}


def plain(network: torch.nn.Module, tasks: Tasks, *, first_order: bool) -> Tensor:
    """MAML's meta-gradients, one task after the other, as one would write it from the paper."""
    found = []
    for support, labels, queries, asked in zip(
        tasks.support, tasks.support_labels, tasks.queries, tasks.query_labels, strict=True
    ):
        start = {name: each.detach().requires_grad_() for name, each in network.named_parameters()}
        loss = functional.cross_entropy(functional_call(network, start, (support,)), labels)
        gradients = torch.autograd.grad(loss, list(start.values()), create_graph=not first_order)
        learned = {name: each - RATE * g for (name, each), g in zip(start.items(), gradients, strict=True)}
        loss = functional.cross_entropy(functional_call(network, learned, (queries,)), asked)
        found.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(start.values()))]))
    return torch.stack(found)


def seconds(functions: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The median of each over rounds in which they take turns."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: median(each[1:]) for name, each in times.items()}


def compare(name: str, network: torch.nn.Module, shot: int, queries: int) -> None:
    """All ways for one network."""
    tasks = tasks_of(torch.rand(TASKS, 5, shot + queries, 1, 28, 28), shot)
    for algorithm in ("maml", "fomaml"):
        inner = Inner(algorithm=algorithm, rate=RATE)
        ways: dict[str, Callable[[], object]] = {
            "plain loop": lambda first=algorithm == "fomaml": plain(network, tasks, first_order=first)
        }
        halves = Learner(network).convolutional and resolve("auto") == "bfloat16"
        for precision in ("float32", "bfloat16") if halves else ("float32",):
            learner = Learner(network, precision=precision)
            way = fastest(learner, inner, torch.device("cpu"))
            ways[f"{way}, {precision}"] = lambda learner=learner, inner=inner: contributions(
                learner, learner.initial(), tasks, inner
            )
        found = seconds(ways)
        base = found["plain loop"]
        print(
            f"{name:16s} {algorithm:7s} "
            + "  ".join(f"{way} {1e3 * took:7.1f} ms: {base / took:4.2f}x" for way, took in found.items())
            + f"  (at least {WANTED[name]}x)"
        )


def main() -> None:
    print(f"{TASKS} tasks a step, 5-way; {torch.get_num_threads()} threads")
    compare("fully-connected", FullyConnected((1, 28, 28), 5), 1, 5)
    compare("convolutional", Convolutional((1, 28, 28), 5), 5, 5)
    compare("strided", Strided((1, 28, 28), 5), 5, 5)


if __name__ == "__main__":
    main()
