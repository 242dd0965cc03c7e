"""A meta-step of 16 tasks against a plain autograd loop: by network, algorithm, way and precision.

    python benchmarks/meta.py

Wanted on two cores: at least twice as fast on the fully connected network, at least 1.2 times on the
convolutional one. The plain loop has all of torch's threads for each task.
"""

from collections.abc import Iterator

import torch
from timing import Line, in_turn, show
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from sfumato.learn.adaptation import Inner, Learner, Tasks, contributions, fastest, tasks_of
from sfumato.networks import Convolutional, FullyConnected, Strided
from sfumato.precision import resolve

TASKS, RATE = 16, 0.4
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


def compare(name: str, network: torch.nn.Module, shot: int, algorithm: str, seconds: float) -> Iterator[Line]:
    """All precisions for one network, each the faster way."""
    tasks = tasks_of(torch.rand(TASKS, 5, shot + 5, 1, 28, 28), shot)
    inner = Inner(algorithm=algorithm, rate=RATE)
    halves = Learner(network).convolutional and resolve("auto") == "bfloat16"
    precisions = ("float32", "bfloat16") if halves else ("float32",)
    learners = [Learner(network, precision=each) for each in precisions]
    turns = in_turn(
        lambda: plain(network, tasks, first_order=algorithm == "fomaml"),
        *(lambda one=each: contributions(one, one.initial(), tasks, inner) for each in learners),
        seconds=seconds,
    )
    for number, (learner, precision) in enumerate(zip(learners, precisions, strict=True), 1):
        way = fastest(learner, inner, torch.device("cpu"))
        yield turns.rates(
            f"{name}, {algorithm}, {way}, {precision}",
            against="a plain loop",
            one=number,
            other=0,
            count=TASKS,
            unit="tasks a second",
            bound=WANTED[name],
        )


def large_step(seconds: float) -> Line:
    """A step of 256 tasks against 16 times one of 16, on the narrow network of private runs."""
    learner = Learner(Strided((1, 28, 28), 5, width=16))
    many = tasks_of(torch.rand(16 * TASKS, 5, 6, 1, 28, 28), 1)
    few, inner = tasks_of(torch.rand(TASKS, 5, 6, 1, 28, 28), 1), Inner(rate=RATE)
    turns = in_turn(
        lambda: contributions(learner, learner.initial(), many, inner),
        lambda: [contributions(learner, learner.initial(), few, inner) for _ in range(16)],
        seconds=seconds,
    )
    return turns.rates(
        "strided, 16 filters, 256 tasks in one step",
        against="16 steps of 16",
        one=0,
        other=1,
        count=16 * TASKS,
        unit="tasks a second",
        bound=0.9,
    )


def lines(short: bool) -> Iterator[Line]:
    networks = {
        "fully-connected": (FullyConnected((1, 28, 28), 5), 1),
        "strided": (Strided((1, 28, 28), 5), 5),
        "convolutional": (Convolutional((1, 28, 28), 5), 5),
    }
    for name, (network, shot) in networks.items():
        for algorithm in ("maml",) if short else ("maml", "fomaml"):
            yield from compare(name, network, shot, algorithm, seconds=4 if short else 15)
    yield large_step(seconds=4 if short else 15)


def main() -> None:
    show(lines(short=False), f"{TASKS} tasks a step, 5-way")


if __name__ == "__main__":
    main()
