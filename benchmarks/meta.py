"""A meta-step of 16 tasks against a plain autograd loop, and a private one of 256 against 16 of 16.

    python benchmarks/meta.py

Wanted on two cores: at least twice as fast on the fully connected network, at least 1.5 times on the
convolutional one, 1.2 times on the strided one. The plain loop has all of torch's threads for each task. Of
the private step: a time of at most 1.1 of the 16 steps, and memory that does not grow.
"""

import resource
import subprocess
import sys
from collections.abc import Iterator

import torch
from timing import Line, in_turn, show
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from sfumato import protect
from sfumato.base.hardware import resolve
from sfumato.data.worlds.glyphs import glyphs
from sfumato.learn import meta
from sfumato.learn.adaptation import Learner, contributions, fastest
from sfumato.learn.meta import MetaConfig, Private
from sfumato.learn.tasks import Inner, Tasks, tasks_of
from sfumato.networks import Convolutional, FullyConnected, Strided

TASKS, MANY, RATE = 16, 256, 0.4
IN_SHORT = 128  # tasks of a private step
WANTED = {"fully-connected": 2.0, "convolutional": 1.5, "strided": 1.2}


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


def noised(seconds: float) -> Line:
    """Noise on the steps of a connected network by one more product, against a noised copy for each task."""
    inner, learner = (
        Inner(rate=RATE, clipping_norm=1.0, noise_multiplier=1.0),
        Learner(FullyConnected((1, 28, 28), 5)),
    )
    tasks = tasks_of(torch.rand(TASKS, 5, 6, 1, 28, 28), 1)
    noise, start = torch.randn(TASKS, inner.steps, learner.size), learner.initial()
    turns = in_turn(
        *(
            lambda way=way: contributions(learner, start, tasks, inner, noise=noise, way=way)
            for way in ("factored", "vectorised")
        ),
        seconds=seconds,
    )
    return turns.rates(
        "fully-connected, maml, noised steps, factored",
        against="a noised copy a task",
        count=TASKS,
        unit="tasks a second",
    )


def training(network: str, tasks: int, pool: int) -> meta.Training:
    """A private run on drawn characters of 28x28: of a pool of tasks about `tasks` are in a step."""
    settings = {"width": 16} if network == "strided" else {}
    private = Private(
        epsilon=1e3,
        delta=1e-5,
        clipping="fixed",
        settings={"clipping_norm": 1.0},
        noise_multiplier=1.0,
        pool_tasks=pool,
    )
    config = MetaConfig(network=network, steps=10**4, tasks=tasks, private=private, **settings)
    data = glyphs(classes=100, drawers=6, size=28, seed=0)
    return meta.Training(data, protect.parse("none"), config, "class", 0, tuple(data.images.shape[1:]))


def large_step(seconds: float, many: int) -> Line:
    """A private step of many tasks, drawn, learned, clipped and noised, against as many by 16 a step."""
    large, small = training("strided", many, many), training("strided", TASKS, many)
    turns = in_turn(large.step, lambda: [small.step() for _ in range(many // TASKS)], seconds=seconds)
    return turns.rates(
        f"strided, 16 filters, {many} tasks in one private step",
        against=f"{many // TASKS} steps of {TASKS}",
        one=0,
        other=1,
        count=many,
        unit="tasks a second",
        bound=0.9,
    )


def memory(network: str, many: int) -> Line:
    """What private steps of many tasks hold at most, against 32, as many as are computed at once."""
    held = [
        float(subprocess.check_output([sys.executable, __file__, "--peak", network, str(tasks), str(many)]))
        for tasks in (many, 2 * TASKS)  # processes of their own
    ]
    return Line(
        name=f"{network}, private steps of {many} tasks, memory",
        ours=held[0],
        other=held[1],
        unit="MiB",
        against="of 32",
        ratio=held[0] / held[1],
        lower=True,
        bound=1.1,
    )


def peak(network: str, tasks: int, pool: int) -> float:
    """The most memory that this process held after three steps, in MiB."""
    run = training(network, tasks, pool)
    for _ in range(3):
        run.step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def lines(short: bool) -> Iterator[Line]:
    networks = {
        "fully-connected": (FullyConnected((1, 28, 28), 5), 1),
        "strided": (Strided((1, 28, 28), 5), 5),
        "convolutional": (Convolutional((1, 28, 28), 5), 5),
    }
    for name, (network, shot) in networks.items():
        for algorithm in ("maml",) if short else ("maml", "fomaml"):
            yield from compare(name, network, shot, algorithm, seconds=4 if short else 15)
    yield noised(2 if short else 8)
    many = IN_SHORT if short else MANY
    yield large_step(4 if short else 15, many)
    for name in ("strided",) if short else ("strided", "fully-connected"):
        yield memory(name, many)


def main() -> None:
    if sys.argv[1:2] == ["--peak"]:
        print(peak(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
        return
    show(lines(short=False), f"{TASKS} tasks a step, 5-way")


if __name__ == "__main__":
    main()
