"""What learns and attacks, against a bare loop of the same work: episodes, meta-steps, masks, inversion."""

import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from timing import Line, in_turn
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from sfumato import data, protect
from sfumato.attack.gradient_inversion import INVERTING_GRADIENTS, invert_all
from sfumato.attack.victim import ThreatModel, share
from sfumato.base import memory
from sfumato.base.hardware import resolve
from sfumato.data.labelled import Label, LabelledImages
from sfumato.data.worlds.glyphs import glyphs
from sfumato.dp.mechanisms import seeded_noise
from sfumato.episodes import Sampler
from sfumato.learn import few_shot, meta
from sfumato.learn.adaptation import Learner, contributions, fastest
from sfumato.learn.meta import MetaConfig, Private
from sfumato.learn.tasks import Inner, Tasks, tasks_of
from sfumato.networks import Convolutional, FullyConnected, LeNet, ResNet, Strided
from sfumato.protect import parse

# Episodes: at most 1.1 of the same networks, forward and backward, on the same tensors, ready made.

SIGMA = 80


def photographs() -> LabelledImages:
    """Smooth colour pictures of 84x84, 20 classes of 20."""
    coarse = torch.rand(400, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    images = (255 * functional.interpolate(coarse, 84, mode="bicubic").clamp(0, 1)).to(torch.uint8)
    names = tuple(f"class {number}" for number in range(20))
    return LabelledImages("pictures", images, {"class": Label(torch.arange(400) % 20, names)})


def whole(images: LabelledImages, spec: str, depth: int | None, way: int) -> tuple[Callable[[], None], ...]:
    """An episode of ours, and the bare passes of its networks."""
    config = replace(few_shot.FS_PIC_OMNIGLOT, way=way, denoiser_depth=depth)
    protection = parse(spec)
    model = few_shot.make_untrained(images.images.shape[1], config, protection)
    _, step = few_shot.make_step(model, config)
    sampler = Sampler(images.label("class"), config.episode)
    order, noise = torch.Generator().manual_seed(0), seeded_noise(0)

    def episode() -> None:
        drawn = images.images[sampler.draw(1, order).flatten()]
        step([(drawn, protection.release(drawn, noise).images(), None)])

    seen = model.prepare(images.images[sampler.draw(1, order).flatten()])

    def bare() -> None:
        denoised, embeddings = model(seen)
        (embeddings.sum() + denoised.sum()).backward()
        model.zero_grad(set_to_none=True)

    return episode, bare


def episodes() -> Iterator[Line]:
    drawn = data.load("glyphs", classes=100)
    with memory.keep_freed():  # as trainings do, for both sides
        for spec, depth, way in (
            (f"gaussian:sigma={SIGMA}", None, 60),
            ("dp-pix:cell=4,epsilon=3", None, 60),
            (f"gaussian:sigma={SIGMA}", 8, 20),
        ):
            networks = "Conv-4" if depth is None else f"DnCNN-{depth} + Conv-4"
            turns = in_turn(*whole(drawn, spec, depth, way), seconds=3)
            yield turns.costs(f"episode, {spec}, {networks}, {way}-way", against="the bare passes", bound=1.1)


def cells() -> Iterator[Line]:
    """A query at the resolution of the release, against the paper's pipeline, which sees enlarged cells."""
    spec, side, queries = "dp-pix:cell=4,epsilon=3", 84, 32
    protection = parse(spec)
    paper = few_shot.make_untrained(3, replace(few_shot.FS_PIC_CELEBA, cell=1), protection)
    ours = few_shot.make_untrained(3, replace(few_shot.FS_PIC_CELEBA, denoiser_depth=8), protection)
    originals = torch.randint(0, 256, (queries, 3, side, side), dtype=torch.uint8)
    released = protection.release(originals, seeded_noise(0)).images()
    name, against = f"{spec}, denoiser and encoder", "the paper's, of pixels"
    few, many = (few_shot.operations(model, originals.shape[1:]) / 1e6 for model in (ours, paper))
    yield Line(
        **{"name": f"{name}, operations", "ours": few, "other": many, "ratio": few / many},
        **{"unit": "million multiply-adds", "against": against, "lower": True, "bound": 0.25},
    )
    turns = in_turn(lambda: ours.encode(released), lambda: paper.encode(released), seconds=3)
    yield turns.costs(name, against=against, unit="ms a query", scale=1e3 / queries)


# Meta-learning: tasks a second, against a plain autograd loop that has all of torch's threads for each task.

TASKS, MANY, RATE = 16, 128, 0.4
AT_LEAST = {"fully-connected": 0.8, "convolutional": 1.5, "strided": 1.2}


def plain_maml(network: nn.Module, tasks: Tasks) -> Tensor:
    """MAML's meta-gradients, one task after the other, as one would write it from the paper."""
    made = []
    for support, labels, queries, asked in zip(
        tasks.support, tasks.support_labels, tasks.queries, tasks.query_labels, strict=True
    ):
        start = {name: each.detach().requires_grad_() for name, each in network.named_parameters()}
        loss = functional.cross_entropy(functional_call(network, start, (support,)), labels)
        gradients = torch.autograd.grad(loss, list(start.values()), create_graph=True)
        learned = {name: each - RATE * g for (name, each), g in zip(start.items(), gradients, strict=True)}
        loss = functional.cross_entropy(functional_call(network, learned, (queries,)), asked)
        made.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(start.values()))]))
    return torch.stack(made)


def private_training(tasks: int, pool: int) -> meta.Training:
    """A private run on drawn characters: of a pool of tasks about `tasks` are in a step."""
    private = Private(
        epsilon=1e3,
        delta=1e-5,
        clipping="fixed",
        settings={"clipping_norm": 1.0},
        noise_multiplier=1.0,
        pool_tasks=pool,
    )
    config = MetaConfig(network="strided", width=16, steps=10**4, tasks=tasks, private=private)
    drawn = glyphs(classes=100, drawers=6, size=28, seed=0)
    return meta.Training(drawn, protect.parse("none"), config, "class", 0)


def peak(tasks: int) -> float:
    """The most memory that this process held after three private steps, in MiB."""
    run = private_training(tasks, MANY)
    for _ in range(3):
        run.step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def meta_steps() -> Iterator[Line]:
    shape = (1, 28, 28)
    networks = {
        "fully-connected": (FullyConnected(shape, 5), 1),
        "strided": (Strided(shape, 5), 5),
        "convolutional": (Convolutional(shape, 5), 5),
    }
    for name, (network, shot) in networks.items():
        tasks = tasks_of(torch.rand(TASKS, 5, shot + 5, *shape), shot)
        inner = Inner(algorithm="maml", rate=RATE)
        halves = Learner(network).convolutional and resolve("auto") == "bfloat16"
        learners = [Learner(network, precision=each) for each in ("float32", "bfloat16")[: 1 + halves]]
        ours = [partial(contributions, one, one.initial(), tasks, inner) for one in learners]
        turns = in_turn(partial(plain_maml, network, tasks), *ours, seconds=4)
        for number, learner in enumerate(learners, 1):
            way = fastest(learner, torch.device("cpu"))
            yield turns.rates(
                f"{name}, maml, {way}, {('float32', 'bfloat16')[number - 1]}",
                against="a plain loop",
                one=number,
                other=0,
                count=TASKS,
                unit="tasks a second",
                bound=AT_LEAST[name],
            )
    large, small = private_training(MANY, MANY), private_training(TASKS, MANY)
    turns = in_turn(large.step, lambda: [small.step() for _ in range(MANY // TASKS)], seconds=4)
    yield turns.rates(
        f"strided, 16 filters, {MANY} tasks in one private step",
        against=f"{MANY // TASKS} steps of {TASKS}",
        count=MANY,
        unit="tasks a second",
        bound=0.9,
    )
    words = "import sys, learning; print(learning.peak(int(sys.argv[1])))"
    ours, other = (  # 32 are computed at once
        float(subprocess.check_output([sys.executable, "-c", words, str(tasks)], cwd=Path(__file__).parent))
        for tasks in (MANY, 32)
    )
    yield Line(
        **{"name": f"strided, private steps of {MANY} tasks, memory", "ours": ours, "other": other},
        **{"unit": "MiB", "against": "of 32", "ratio": ours / other, "lower": True, "bound": 1.1},
    )


# Gradient inversion: the bare search is a plain loop of the same step, with torch.optim's Adam on its sign.

IMAGE, LABELS, RESTARTS = (3, 32, 32), torch.tensor([3]), 16


def bare_search(model: nn.Module, shared: dict[str, Tensor], steps: int) -> None:
    parameters, target = list(model.parameters()), list(shared.values())
    guess = torch.rand(1, *IMAGE).requires_grad_()
    optimiser = torch.optim.Adam([guess], lr=0.1)
    for _ in range(steps):
        loss = functional.cross_entropy(model(guess), LABELS)
        ours = torch.autograd.grad(loss, parameters, create_graph=True)
        product = sum((one * other).sum() for one, other in zip(ours, target, strict=True))
        first, second = (sum(each.square().sum() for each in side).sqrt() for side in (ours, target))
        rough = guess.diff(dim=-1).abs().mean() + guess.diff(dim=-2).abs().mean()
        (slope,) = torch.autograd.grad(1 - product / (first * second) + 0.1 * rough, [guess])
        guess.grad = slope.sign()
        optimiser.step()
        with torch.no_grad():
            guess.clamp_(0, 1)


def inversion() -> Iterator[Line]:
    def attack(model: nn.Module, shared: dict[str, Tensor], steps: int, restarts: int, at_once: int) -> None:
        config = replace(
            INVERTING_GRADIENTS, total_variation=0.1, labels="known", steps=steps, restarts=restarts
        )
        invert_all(model, [shared], [ThreatModel(shape=IMAGE, labels=LABELS)], config, at_once=at_once)

    victims = {"LeNet": (LeNet(IMAGE, 10), 100), "ResNet-20": (ResNet(IMAGE, 10, depth=20).eval(), 12)}
    for name, (model, steps) in victims.items():
        shared = share(model, torch.rand(1, *IMAGE), LABELS)
        searches = (
            partial(attack, model, shared, steps, 1, 1),
            partial(bare_search, model, shared, steps),
        )
        yield in_turn(*searches, seconds=3).costs(
            f"inversion of {name}", against="a bare loop", unit="ms a step", scale=1e3 / steps, bound=1.15
        )
    model, few = victims["LeNet"][0], 20
    shared = share(model, torch.rand(1, *IMAGE), LABELS)
    turns = in_turn(*(partial(attack, model, shared, few, RESTARTS, way) for way in (RESTARTS, 1)), seconds=5)
    yield turns.rates(
        f"inversion of LeNet, {RESTARTS} at once",
        against="one by one",
        bound=4,
        count=RESTARTS * few,
        unit="steps a second",
    )
