"""What two processes do in test_devices.py, and one for comparison: a module, since processes import it."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from sfumato import artefacts, data
from sfumato.data.labelled import Label, LabelledImages
from sfumato.learn import adversarial_mask, few_shot, private_feature
from sfumato.learn.adversarial_mask import MaskConfig
from sfumato.learn.batch_norm import in_order, of_whole_batches
from sfumato.learn.devices import Devices
from sfumato.learn.few_shot import FewShotConfig
from sfumato.learn.private_feature import FeatureConfig
from sfumato.protect import expand

FEW_SHOT = FewShotConfig(
    way=3,
    shot=1,
    queries=2,
    epochs=3,
    episodes_per_epoch=6,
    episodes_per_step=3,  # so that two processes have shares of two and of one
    patience=9,
    validation_way=3,
    validation_shot=2,
    validation_queries=3,
    validation_episodes=10,
    denoiser_depth=3,
    denoiser_width=4,
    pretraining_epochs=1,
    flips=True,
    shifts=1,
    precision="float32",
)
# Small steps: rounding hides a pixel that was the last to be shown, and moves what is next to a kink of ReLU
# or max-pool to its other side; the larger the steps, the faster such differences grow.
MASK = MaskConfig(
    epochs=2,
    batch=15,  # shares of eight and of seven
    learning_rate=1e-4,
    masker_width=4,
    levels=1,
    predictor_batches=1,
    flips=True,
    precision="float32",
)
FEATURE = FeatureConfig(
    widths=(8, 8, 16, 16, 16, 16, 16),
    dimension=2,
    attribute_epochs=1,
    simple_epochs=1,
    private_epochs=1,
    batch=23,  # of 45 images: shares of twelve and eleven, or of eleven
    learning_rate=1e-4,
    pairs=4,
    beta=0.3,
    precision="float32",
)


def people(side: int) -> LabelledImages:
    """45 images of nine persons: noise, in one half of it darker or lighter by person and colour.

    Nowhere is it constant: all of a plane would be next to a kink at once.
    """
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (45, 3, side, side), generator=generator)
    persons, light = torch.arange(45) % 9, torch.arange(45) % 2
    half = side // 2
    images[..., half:] += torch.randint(0, 256, (9, 3, 1, 1), generator=generator)[persons]
    images[..., :half, :half] += 255 * light[:, None, None, None]
    labels = {
        "light": Label(light, ("dark", "bright")),
        "identity": Label(persons, tuple("abcdefghi")),
    }
    return LabelledImages("people", (images // 2).to(torch.uint8), labels)


def train_few_shot(config: FewShotConfig = FEW_SHOT, **more) -> few_shot.FewShotModel:
    glyphs = data.load("glyphs", classes=40, drawers=6, size=16)
    return few_shot.train(
        glyphs.split("train"),
        expand("gaussian:sigma=20,60"),
        config,
        validation=glyphs.split("validation"),
        **more,
    )


def train_mask(config: MaskConfig = MASK, **more) -> adversarial_mask.MaskModel:
    return adversarial_mask.train(people(16), config, target="light", validation=people(16), **more)


def train_feature(variant: str, config: FeatureConfig = FEATURE, **more) -> private_feature.FeatureModel:
    return private_feature.train(
        people(32), replace(config, variant=variant), targets=["light"], sensitive="identity", **more
    )


TRAININGS: dict[str, Callable] = {
    "few-shot": train_few_shot,
    # With all three kinds of losses; in bfloat16 it is trained without an adversary.
    "mask": partial(train_mask, replace(MASK, against=1.0), sensitive="identity"),
    **{each: partial(train_feature, each) for each in ("dpfe", "adversarial", "information")},
}

IN_BFLOAT16: dict[str, Callable] = {
    "few-shot in bfloat16": partial(train_few_shot, replace(FEW_SHOT, precision="bfloat16")),
    "mask in bfloat16": partial(train_mask, replace(MASK, precision="bfloat16")),
    "dpfe in bfloat16": partial(train_feature, "dpfe", replace(FEATURE, precision="bfloat16")),
}


def nudged(train: Callable, name: str, *, size: float, seed: int) -> list[float]:
    """The loss curve of one process whose first weights are off by about so much of themselves."""
    methods = {"few-shot": few_shot.training, "mask": adversarial_mask.training}
    method = methods.get(name.split()[0], private_feature.training)
    generator = torch.Generator().manual_seed(seed)

    def untrained(*given, begin=method.untrained, **more) -> nn.Module:
        model = begin(*given, **more)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1 + size * torch.randn(parameter.shape, generator=generator))
        return model

    curve: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(method, "untrained", untrained)
        train(losses=noting(curve))
    return curve


def noting(curve: list[float]) -> Callable[[Tensor], None]:
    return lambda loss: curve.append(loss.item())


def train_all(devices: Devices | None, folder: Path) -> None:
    """The loss curves of all trainings, their artefacts, and their checkpoints after one epoch."""
    curves: dict[str, list[float]] = {}
    for name, train in TRAININGS.items():
        checkpoint, kept = folder / name, folder / f"{name}-1"
        curves[name] = []

        def note(loss: Tensor, curve=curves[name], checkpoint=checkpoint, kept=kept) -> None:
            curve.append(loss.item())
            if checkpoint.exists() and not kept.exists() and (devices is None or devices.first):
                shutil.copy(checkpoint, kept)

        model = train(checkpoint=checkpoint, losses=note, devices=devices)
        if devices is None or devices.first:
            model.save(folder / f"{name}.safetensors")
    for name, train in IN_BFLOAT16.items():
        curves[name] = []
        train(losses=noting(curves[name]), devices=devices)
    write(devices, folder / "curves.json", curves)


def go_on(devices: Devices | None, folder: Path) -> None:
    """The loss curves from the checkpoints of another number of processes after one epoch."""
    curves: dict[str, list[float]] = {}
    for name, train in TRAININGS.items():
        curves[name] = []
        checkpoint = folder / f"{name}-gone-on"
        if devices is None or devices.first:
            shutil.copy(folder / f"{name}-1", checkpoint)
        train(checkpoint=checkpoint, losses=noting(curves[name]), devices=devices)
    write(devices, folder / "gone-on.json", curves)


def write(devices: Devices | None, path: Path, value: object) -> None:
    if devices is None or devices.first:
        path.write_text(json.dumps(value))


def batch() -> Tensor:
    """11 images of 5 channels whose means are far from 0, as those of cancelling sums must not be."""
    rows = torch.randn(11, 5, 4, 3, generator=torch.Generator().manual_seed(1))
    return rows + torch.tensor([0.0, 1, -10, 100, -1000]).view(-1, 1, 1)


def norms() -> dict[str, tuple[nn.Module, Tensor]]:
    """Batch norms of each kind that the networks have, after others have moved their parameters."""
    images = batch()
    kinds: dict[str, tuple[nn.Module, Tensor]] = {
        "of images": (nn.BatchNorm2d(5), images.contiguous(memory_format=torch.channels_last)),
        "of vectors": (nn.BatchNorm1d(5, momentum=0.3), images[..., 0, 0]),
        "without scale": (nn.BatchNorm1d(5, affine=False), images[..., 0, 0]),
    }
    for norm, _ in kinds.values():
        for number, parameter in enumerate(norm.parameters()):
            nn.init.uniform_(parameter, 1, 2, generator=torch.Generator().manual_seed(number))
    return kinds


def normalise(devices: Devices, folder: Path) -> None:
    """Outputs, gradients and statistics of batch norms whose rows are shared, joined again."""
    found: dict[str, Tensor] = {}
    for kind, (norm, rows) in norms().items():
        mine = devices.share(len(rows), what="rows", setting="batch")
        own = rows[mine].clone().requires_grad_()
        with of_whole_batches(norm, devices):
            outputs = norm(own)
        loss = (outputs * weights(outputs, len(rows))[mine]).sum()
        loss.backward()
        devices.add_up(norm.parameters(), loss)
        assert own.grad is not None
        joined = {"outputs": outputs.detach(), "of rows": own.grad}
        found |= {f"{kind}.{k}": devices.gathered(v, mine, len(rows)) for k, v in joined.items()}
        found |= {f"{kind}.{k}": v.grad for k, v in norm.named_parameters() if v.grad is not None}
        found |= {f"{kind}.{k}": v for k, v in norm.named_buffers()}
    if devices.first:
        artefacts.save(folder / "norms", found, {"kind": "norms"})


def weights(outputs: Tensor, rows: int) -> Tensor:
    """What a loss multiplies outputs with: no two alike, so that no gradient is 0."""
    return torch.randn(rows, *outputs.shape[1:], generator=torch.Generator().manual_seed(2))


def see_in_order(devices: Devices, folder: Path) -> None:
    """Running statistics after 2 of 3 batches in the first process, and the last in the other."""
    norm = nn.BatchNorm2d(5, momentum=0.3)
    norm(batch() / 2)  # so that they do not begin at 0 and 1
    with in_order(norm, devices):
        for part in batch().split([3, 4, 4])[devices.share(3, what="batches", setting="batches")]:
            norm(part)
    if devices.first:
        artefacts.save(folder / "in order", norm.state_dict(), {"kind": "in order"})


def two(devices: Devices, folder: Path) -> None:
    """All that two processes do, of which the last is to fail."""
    (folder / "2").mkdir(exist_ok=True)
    train_all(devices, folder / "2")
    go_on(devices, folder / "1")
    normalise(devices, folder)
    see_in_order(devices, folder)
    fail(devices)


def fail(devices: Devices) -> None:
    """Train with fewer episodes a step than there are processes."""
    train_few_shot(replace(FEW_SHOT, episodes_per_step=1), devices=devices)
