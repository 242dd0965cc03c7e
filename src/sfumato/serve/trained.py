"""Few-shot and meta models, read by PyTorch for a server to run or export."""

import math
import os
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from sfumato import data
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ArtefactError, ConfigError
from sfumato.images import to_float
from sfumato.learn import few_shot, meta
from sfumato.learn.few_shot import FewShotModel
from sfumato.learn.refusal import Refusal
from sfumato.networks import Convolutional, FullyConnected, Linear, Strided
from sfumato.networks.weights import initial_weights
from sfumato.protect import parse
from sfumato.protect.spec import portable
from sfumato.serve.served import Demand, Served, as_it_came, example, input_maker

MOST_REFERENCE = 512  # reference images for the statistics


class _Embedding(nn.Module):
    """Denoiser and encoder of a few-shot model, from (N, C, h, w) as the networks see an image."""

    def __init__(self, model: FewShotModel) -> None:
        super().__init__()
        self.encoder, self.denoiser = model.encoder, model.denoiser

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.as_tensor(self.encoder(inputs if self.denoiser is None else self.denoiser(inputs)))


def of_few_shot(path: str | os.PathLike[str], name: str) -> Served:
    """See models.load, also for the errors."""
    model = few_shot.load(path)
    card = model.card
    if not card.get("shape"):
        raise ArtefactError(f"{path}: its card lacks the size of its images: train it again")
    channels, height, width = card["shape"]
    demand = Demand(portable(model.protection.spec), card.get("made_of"), model.protection)
    refusal = Refusal.of_card(card.get("refusal"))
    shape, prepare = (channels, height, width), input_maker(model.cell)
    served = Served(name, "few-shot", demand, shape, 0, refusal, prepare, as_it_came, cell=model.cell)
    return _measure(_Embedding(model), path, served)


def of_meta(path: str | os.PathLike[str], name: str, reference: str | None) -> Served:
    """See models.load, also for the errors."""
    model = meta.load(path)
    if reference is None:
        raise ConfigError(
            f"{path}: a meta model normalises a batch of images together: name public images for its "
            "statistics, by --reference"
        )
    channels, height, width = model.card["image"]
    # Other sources have fixed channels.
    own = {"channels": channels} if reference.partition(":")[0] in ("folder", "table") else {}
    images = data.load(reference, size=height, **own).images
    if tuple(images.shape[1:]) != (channels, height, width):
        size = "x".join(map(str, images.shape[1:]))
        raise ConfigError(
            f"{reference}: images of {size} for a model of {channels}x{height}x{width}: name others"
        )
    if len(images) < 2:
        raise ConfigError(f"{reference}: {len(images)} images have no statistics: name a few hundred")
    protection = parse(model.card["spec"])
    # Equally spaced, since images are sorted by class; seeded noise, so that all servers agree.
    chosen = torch.linspace(0, len(images) - 1, min(len(images), MOST_REFERENCE)).long()
    released = protection.release(images[chosen], seeded_noise(0)).images()
    demand = Demand(portable(protection.spec), model.card.get("made_of"), protection)
    network, shape = freeze(model, to_float(released)), (channels, height, width)
    served = Served(name, "meta", demand, shape, 0, None, input_maker(1), as_it_came)
    return _measure(network, path, served)


@torch.no_grad()
def freeze(model: meta.MetaModel, reference: Tensor) -> nn.Module:
    """Freeze the network of a meta model up to its last layer, with the statistics of reference images.

    Source: Raghu et al. 2020 (ANIL), Sec. 4: the layers before the last hardly change when a task is learned.
    There the last layer is learned from the support. Here prototypes replace it: they need no fixed number of
    classes, and name more queries correctly (5-way, Omniglot, 150 tasks of 75 queries: 96.1% against 45.9%
    with the learning steps of the model, 5-shot, strided; 92.8% against 89.2%, 1-shot, fully connected.
    Transductive, which a server must not be: 98.6% and 88.5%).

    `reference`: (n, C, H, W) float released images.
    """
    config = meta.config_of(model.card["config"])
    width = {} if config.width is None else {"width": config.width}
    with initial_weights():
        network = meta.NETWORKS[config.network](tuple(model.card["image"]), config.way, **width)
    nn.utils.vector_to_parameters(model.start[: model.learner.size], network.parameters())
    for module in list(network.modules()):
        for name, norm in list(module.named_children()):
            if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
                # A momentum of 1 stores the statistics of one batch, the reference.
                kept = type(norm)(norm.num_features, eps=norm.eps, momentum=1.0)
                kept.load_state_dict(norm.state_dict(), strict=False)
                setattr(module, name, kept)
    if isinstance(network, FullyConnected | Linear):
        network[-1] = nn.Identity()
    elif isinstance(network, Convolutional | Strided):
        network.head = nn.Identity()
    network.train()(reference)
    return network.eval().requires_grad_(False)


def _measure(network: nn.Module, path: str | os.PathLike[str], served: Served) -> Served:
    """Let PyTorch run a network for a served model, and measure its dimension."""
    network.eval()

    @torch.inference_mode()
    def run(inputs: np.ndarray) -> np.ndarray:
        given = torch.from_numpy(inputs)
        if given.ndim == 4:
            given = given.contiguous(memory_format=torch.channels_last)
        found: np.ndarray = network(given).numpy()
        return found

    try:
        embedding = run(example(served)[:1])
    except (RuntimeError, ValueError) as error:
        size = "x".join(map(str, served.shape))
        raise ArtefactError(f"{path}: its networks do not accept images of {size}: train it again") from error
    return replace(served, run=run, network=network, dimension=math.prod(embedding.shape[1:]))
