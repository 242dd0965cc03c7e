"""Against the libraries that people use for the same work, side by side in one run.

- easyfsl: an epoch of prototypical networks from the same files, with the same network and episodes, reading
  included. Its package imports torchvision and pandas, which the classes that train do not need: these are
  imported alone. Its sampler was written for a PyTorch before 2.13.
- learn2learn: a MAML step of 8 tasks, Adam's step included. It does not build on Python 3.11, so its loop is
  written anew from its source: `clone_module`, `maml_update`, and one backward pass a task.
- opacus: a DP-SGD step of LeNet on 64 images of 32x32, noise included. Ours simulates it, with seeded noise,
  as audits and studies of gradients do.

breaching's loop is the bare search of learning.py, and torchmetrics and scikit-image are in devices.py.
"""

import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import torch
from learning import photographs
from PIL import Image
from timing import Line, in_turn
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from sfumato import data
from sfumato.base import memory
from sfumato.data.labelled import LabelledImages
from sfumato.dp.clipping import Fixed
from sfumato.episodes import Sampler
from sfumato.learn import few_shot
from sfumato.learn.adaptation import Learner, contributions
from sfumato.learn.tasks import Inner, Tasks, tasks_of
from sfumato.networks import Conv4, Convolutional, LeNet
from sfumato.protect import parse

EPISODES = 10
TASKS, INNER_RATE, OUTER_RATE = 8, 0.4, 1e-3
BATCH, NORM, NOISE = 64, 1.0, 1.0


def missing(name: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"No module named {name!r}", name=name)


# easyfsl


def its_classes() -> tuple[Any, Any, Any]:
    """PrototypicalNetworks, TaskSampler and FewShotDataset, without what the rest of the package imports."""
    found = find_spec("easyfsl")
    if found is None or not found.submodule_search_locations:
        raise missing("easyfsl")
    root = Path(found.submodule_search_locations[0])
    for name in ("easyfsl", "easyfsl.methods", "easyfsl.datasets", "easyfsl.samplers"):
        package = ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    data_set = import_module("easyfsl.datasets.few_shot_dataset").FewShotDataset
    sys.modules["easyfsl.datasets"].FewShotDataset = data_set  # type: ignore[attr-defined]
    method = import_module("easyfsl.methods.prototypical_networks").PrototypicalNetworks
    return method, import_module("easyfsl.samplers.task_sampler").TaskSampler, data_set


def written(images: LabelledImages, root: Path) -> None:
    """JPEGs, a folder a class."""
    for number, (image, code) in enumerate(zip(images.images, images.label("class").codes, strict=True)):
        path = root / "train" / f"{int(code)}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(path, quality=95)


def their_epoch(root: Path, side: int, config: few_shot.FewShotConfig) -> Callable[[], None]:
    """Of the loop in its tutorials: classical few-shot training by episodes."""
    method, task_sampler, data_set = its_classes()
    files = sorted((root / "train").rglob("*.jpg"))

    class Files(data_set):  # type: ignore[misc, valid-type]
        def __getitem__(self, item: int) -> tuple[Tensor, int]:
            with Image.open(files[item]) as opened:
                pixels = np.asarray(opened.convert("RGB").resize((side, side)), np.float32)
            return torch.from_numpy(pixels / 255).permute(2, 0, 1), int(files[item].parent.name)

        def __len__(self) -> int:
            return len(files)

        def get_labels(self) -> list[int]:
            return [int(path.parent.name) for path in files]

    def epoch() -> None:
        images = Files()
        # Its sampler names a data source to PyTorch's, which takes none any more.
        with mock.patch.object(torch.utils.data.Sampler, "__init__", return_value=None):
            sampler = task_sampler(images, config.way, config.shot, config.queries, EPISODES)
        loader = torch.utils.data.DataLoader(
            images, batch_sampler=sampler, collate_fn=sampler.episodic_collate_fn
        )
        learner = method(Conv4(3)).train()
        optimiser = torch.optim.Adam(learner.parameters(), lr=config.learning_rate)
        for support, support_labels, queries, labels, _ in loader:
            optimiser.zero_grad()
            learner.process_support_set(support, support_labels)
            functional.cross_entropy(learner(queries), labels).backward()
            optimiser.step()

    return epoch


def our_epoch(root: Path, side: int, config: few_shot.FewShotConfig) -> Callable[[], None]:
    protection = parse("none")

    def epoch() -> None:
        images = data.load(f"folder:{root}", size=side).split("train")
        _, step = few_shot.make_step(few_shot.make_untrained(3, config, protection), config)
        sampler = Sampler(images.label("class"), config.episode)
        with memory.keep_freed():
            for rows in sampler.draw(EPISODES, torch.Generator().manual_seed(0)):
                drawn = images.images[rows.flatten()]
                step([(drawn, drawn, None)])

    return epoch


def easyfsl() -> Iterator[Line]:
    side, config = 84, few_shot.FewShotConfig(way=5, shot=5, queries=5, denoiser_depth=None, encoder="conv4")
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        written(photographs(), root)
        turns = in_turn(our_epoch(root, side, config), their_epoch(root, side, config), seconds=6)
    yield turns.rates(
        f"prototypical networks from files, {EPISODES} episodes",
        against="easyfsl",
        count=EPISODES,
        unit="episodes a second",
    )


# learn2learn


def cloned(module: nn.Module) -> nn.Module:
    """learn2learn.clone_module, for modules without buffers: its weights are clones, with gradients."""
    copy = module.__new__(type(module))
    copy.__dict__ = module.__dict__.copy()
    copy._parameters = {
        name: None if each is None else each.clone() for name, each in module._parameters.items()
    }
    copy._modules = {name: None if each is None else cloned(each) for name, each in module._modules.items()}
    return copy


def updated(module: nn.Module, gradients: Iterator[Tensor]) -> None:
    """learn2learn.maml_update: each weight less its rate times its gradient."""
    for name, each in module._parameters.items():
        if each is not None:
            module._parameters[name] = each - INNER_RATE * next(gradients)  # type: ignore[assignment]
    for part in module.children():
        updated(part, gradients)


def weights(module: nn.Module) -> list[Tensor]:
    """In the order of `updated`."""
    own = [each for each in module._parameters.values() if each is not None]
    return [*own, *(each for part in module.children() for each in weights(part))]


def their_step(network: nn.Module, tasks: Tasks) -> Callable[[], None]:
    optimiser = torch.optim.Adam(network.parameters(), lr=OUTER_RATE)

    def step() -> None:
        optimiser.zero_grad()
        for support, labels, queries, asked in zip(*tasks.parts, strict=True):
            learner = cloned(network)
            loss = functional.cross_entropy(learner(support), labels)
            updated(learner, iter(torch.autograd.grad(loss, weights(learner), create_graph=True)))
            functional.cross_entropy(learner(queries), asked).backward()
        for each in network.parameters():
            each.grad.mul_(1 / TASKS)
        optimiser.step()

    return step


def our_step(network: nn.Module, tasks: Tasks) -> Callable[[], None]:
    learner, inner = Learner(network), Inner(algorithm="maml", rate=INNER_RATE)
    start = nn.Parameter(learner.initial())
    optimiser = torch.optim.Adam([start], lr=OUTER_RATE)

    def step() -> None:
        start.grad = contributions(learner, start.detach(), tasks, inner).mean(0)
        optimiser.step()

    return step


def learn2learn() -> Iterator[Line]:
    tasks = tasks_of(torch.rand(TASKS, 5, 10, 1, 28, 28), 5)
    turns = in_turn(
        our_step(Convolutional((1, 28, 28), 5), tasks),
        their_step(Convolutional((1, 28, 28), 5), tasks),
        seconds=6,
    )
    yield turns.rates(
        f"MAML step of {TASKS} tasks, Conv-4, float32",
        against="learn2learn's loop, written anew",
        count=TASKS,
        unit="tasks a second",
        bound=1.5,
    )


# opacus


def our_private_step(images: Tensor, labels: Tensor) -> Callable[[], None]:
    model = LeNet(tuple(images.shape[1:]), 10)
    parameters = {name: each.detach() for name, each in model.named_parameters()}
    draws = torch.Generator().manual_seed(0)

    def loss(values: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(model, values, (image[None],)), label[None])

    of_each = vmap(grad(loss), in_dims=(None, 0, 0))

    def step() -> None:
        rows = torch.cat([each.flatten(1) for each in of_each(parameters, images, labels).values()], 1)
        update = (
            Fixed(NORM)
            .step(
                rows,
                noise_multiplier=NOISE,
                public_count=len(rows),
                draw=lambda shape, std: std * torch.randn(shape, generator=draws),
            )
            .update
        )
        parts = update.split([each.numel() for each in parameters.values()])
        for each, part in zip(parameters.values(), parts, strict=True):
            each.sub_(part.reshape(each.shape), alpha=0.1)

    return step


def their_private_step(images: Tensor, labels: Tensor) -> Callable[[], None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of opacus, of hooks and of its generator
        from opacus import PrivacyEngine

        model = LeNet(tuple(images.shape[1:]), 10)
        rows = torch.utils.data.TensorDataset(images, labels)
        private, optimiser, _ = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=torch.utils.data.DataLoader(rows, batch_size=BATCH),
            noise_multiplier=NOISE,
            max_grad_norm=NORM,
            poisson_sampling=False,
        )

    def step() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimiser.zero_grad()
            functional.cross_entropy(private(images), labels).backward()
            optimiser.step()

    return step


def opacus() -> Iterator[Line]:
    if find_spec("opacus") is None:
        raise missing("opacus")
    images, labels = torch.rand(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
    turns = in_turn(our_private_step(images, labels), their_private_step(images, labels), seconds=3)
    yield turns.rates(
        f"DP-SGD step of LeNet, {BATCH} images", against="opacus", count=BATCH, unit="images a second"
    )
