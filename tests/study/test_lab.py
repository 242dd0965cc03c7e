"""The lab of a study: releases that are made once, networks that are kept, the device that trains them."""

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.study.test_run import SETTINGS, cartoons
from torch import Tensor, nn

import sfumato.study
from sfumato import artefacts
from sfumato.base import hardware
from sfumato.dp.mechanisms import Noise, seeded_noise
from sfumato.errors import SpecError
from sfumato.learn import few_shot, meta, method
from sfumato.networks.code import make_code_network
from sfumato.protect import Release, parse
from sfumato.protect.answer import AnswerRelease
from sfumato.protect.release import KINDS
from sfumato.protect.vectors import BitsRelease
from sfumato.study import grid
from sfumato.study.cells import Cell
from sfumato.study.lab import lab as labs
from sfumato.study.lab.lab import Lab, Models, Progress, Remembering, keep_recommended, open_protection
from sfumato.study.lab.trained import train_once

TRAINED = "dp-pix:cell=4,epsilon=3"
NOISE = seeded_noise(0)
DRAW = torch.Generator().manual_seed(0)


@dataclass
class Inverted:
    """A stand-in for a trained mask: the colours of an image inverted, of which the upper half is shown."""

    spec: str = "mask:artefact=one.safetensors"
    seen: list[int] = field(default_factory=list)

    draws_noise = False

    def release(self, images: Tensor, noise: Noise) -> Release:
        if images.shape[2] < 4:
            raise SpecError("too small")
        self.seen.append(len(images))
        shown = torch.zeros(len(images), 1, *images.shape[2:], dtype=torch.bool)
        shown[:, :, : images.shape[2] // 2] = True
        return Release((255 - images) * shown, self.spec, (images.shape[2], images.shape[3]), shown=shown)


@dataclass
class Fixed:
    """A stand-in for an encoder: an image of grey level i has the i-th release."""

    made: Any
    seen: list[int] = field(default_factory=list)

    draws_noise = False
    outputs = 4

    def release(self, images: Tensor, noise: Noise) -> Any:
        self.seen.append(len(images))
        return self.made.rows(images[:, 0, 0, 0].tolist())


def pictures(*values: int, side: int = 4) -> Tensor:
    """One flat grey image for each value."""
    return torch.tensor(values, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, side, side).clone()


def test_images_that_were_released_before_are_not_released_again_nor_codes_and_answers():
    once = Inverted()
    remembering = Remembering(once)
    assert len(remembering.release(pictures(), NOISE).values) == 0
    remembering.release(pictures(1, 2, 3), NOISE)
    remembering.release(pictures(3, 4, 1, 4), NOISE)
    assert [seen for seen in once.seen if seen] == [3, 1]
    with pytest.raises(SpecError, match="too small"):
        remembering.release(pictures(1, side=2), NOISE)
    for release in (
        BitsRelease(torch.tensor([[True, False], [False, False], [True, True]]), "code:artefact=a"),
        AnswerRelease(torch.tensor([2, 0, 1]), "answer:artefact=a", ("a", "b", "c")),
    ):
        fixed = Fixed(release)
        remembering = Remembering(fixed)
        remembering.release(pictures(0, 1), NOISE)
        again = remembering.release(pictures(2, 1, 0), NOISE)
        assert torch.equal(again.values, release.values[[2, 1, 0]])
        assert (again.spec, remembering.outputs, fixed.seen) == (release.spec, 4, [2, 1])


def test_the_releases_are_those_of_the_protection_in_the_order_of_the_images():
    remembering = Remembering(Inverted())
    remembering.release(pictures(7, 8), NOISE)
    for images in (pictures(9, 8, 7, 8), pictures(8), pictures(7, side=6)):
        found, wanted = remembering.release(images, NOISE), Inverted().release(images, NOISE)
        assert torch.equal(found.values, wanted.values)
        assert torch.equal(found.shown, wanted.shown)
        assert (found.spec, found.size, found.cell) == (wanted.spec, wanted.size, wanted.cell)


def test_what_a_noisy_code_encodes_is_remembered_and_its_noise_is_drawn_anew(tmp_path):
    network = make_code_network("conv4", (3, 16, 16), dimension=3, seed=0)
    path = tmp_path / "numbers.safetensors"
    card = {"kind": "code", "config": {"encoder": "conv4", "numbers": 3}, "shape": [3, 16, 16]}
    artefacts.save(path, {f"network.{name}": part for name, part in network.state_dict().items()}, card)
    plain: Any = parse(f"code:artefact={path},norm=1,noise=0.1", takes=KINDS)
    remembering = open_protection(plain.spec)
    images = torch.randint(0, 256, (5, 3, 16, 16), dtype=torch.uint8, generator=DRAW)
    for seed, rows in ((0, [0, 1, 2]), (1, [4, 2, 2, 0]), (2, [3])):
        values = remembering.release(images[rows], seeded_noise(seed)).values
        assert torch.equal(values, plain.release(images[rows], seeded_noise(seed)).values)
    again = remembering.release(images[:1].repeat(2, 1, 1, 1), seeded_noise(0)).values
    assert not torch.equal(again[0], again[1])
    path.unlink()  # nothing is read or encoded again
    assert len(remembering.release(images, seeded_noise(3)).values) == 5


def test_what_is_done_to_a_release_stays_there_and_what_does_not_fit_is_released_anew():
    remembering = Remembering(Inverted())
    remembering.release(pictures(7), NOISE).values.fill_(0)
    remembering.release(pictures(7), NOISE).shown.fill_(False)
    found = remembering.release(pictures(7), NOISE)
    assert found.values.max() == 248
    assert found.shown.any()
    once = Inverted()
    one = 3 * 16 + 16  # values and mask of an image, in bytes
    remembering = Remembering(once, room=2 * one)
    for _ in range(2):
        found = remembering.release(pictures(1, 2, 3), NOISE)
        assert torch.equal(found.values, Inverted().release(pictures(1, 2, 3), NOISE).values)
    assert once.seen == [3, 1]


def test_a_protection_without_artefact_is_left_as_it_is():
    for spec in ("none", "blur:radius=2", "dp-pix:cell=2,epsilon=3"):
        assert open_protection(spec) == parse(spec)


# Networks


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Few-shot artefacts; the weight of each is its seed."""
    for name, spec, depth, seed in (
        *(("a", TRAINED, None, 2), ("b", TRAINED, None, 1)),
        *(("c", TRAINED, 8, 0), ("d", "none", None, 0)),
    ):
        card = {"kind": "few-shot", "spec": spec, "config": {"denoiser_depth": depth}, "seed": seed}
        path = tmp_path / "models" / f"few-shot-{name}.safetensors"
        artefacts.save(path, {"seed": torch.tensor(seed)}, card)
    return tmp_path


@pytest.mark.parametrize(("learner", "seed"), [("protected", 1), ("denoised", 0)])
def test_the_model_of_the_recommended_setting_and_the_first_seed_is_kept_and_none_of_an_earlier_one(
    study, learner, seed
):
    for spec, other in ((TRAINED, "clean"), (TRAINED, None), ("blur:radius=3", "protected")):
        kept = keep_recommended(study, TRAINED, learner)
        assert kept == study / "recommended.safetensors"
        tensors, card = artefacts.load(kept, kind="few-shot")
        assert (tensors["seed"], card["spec"]) == (seed, TRAINED)
        assert keep_recommended(study, spec, other) is None
        assert not kept.exists()


def test_the_networks_used_last_stay_in_memory_and_what_is_large_does_not(tmp_path: Path):
    models, read = Models(tmp_path, "data"), []

    def use(number: int, *, keep: bool = True) -> None:
        def load(path: Path) -> int:
            read.append(number)
            return number

        assert models.once("k", {"n": number}, Path.touch, load, keep=keep) == number

    for number in (*range(17), 16, 1):  # what was read right now, and the last that stays
        use(number)
    assert read == list(range(17))
    use(0)  # the one that was used longest ago
    use(99, keep=False)
    use(99, keep=False)
    assert read[17:] == [0, 99, 99]


# The device


def test_every_training_of_a_study_is_told_the_device():
    """Each call of a `train` gets what Lab.how has; those that have no device are listed."""
    told = {}
    for path in Path(sfumato.study.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and re.search(r"\.(pre)?train$", name := ast.unparse(node.func)):
                told[name] = re.search(r"\bhow\b", ast.unparse([*node.args, *node.keywords][-1])) is not None
    assert {name for name in told if told[name]} >= {
        *("method.train", "adversarial_mask.train", "private_feature.train", "code.train", "code.pretrain")
    }
    # Those of textbook classifiers; and a recipe and recognisers, which have it already.
    without = {"of_vectors.train", "trained.train", "self.recognisers.train"}
    assert {name for name in told if not told[name]} == without


def test_models_that_cells_share_are_trained_on_the_device(tmp_path: Path):
    lab, given = Lab(grid.parse(SETTINGS), cartoons(), tmp_path, Progress()), {}

    def train(*args: Any, **how: Any) -> Any:
        given.update(how)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_once(lab, "few-shot", SimpleNamespace(train=train), None, {}, "none", 0)
    assert given["device"] == lab.device
    assert given["checkpoint"].suffix == ".checkpoint"


def test_the_networks_of_adversaries_are_on_the_device_made_or_read_again(tmp_path, monkeypatch):
    device, there = torch.device("cpu"), set()
    move = nn.Module.to
    monkeypatch.setattr(labs, "device_named", lambda name: device)

    def recorded(self: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        if any(each is device for each in (*args, *kwargs.values())):  # by identity: a device of its own
            there.add(type(self).__name__)
        return move(self, *args, **kwargs)

    monkeypatch.setattr(nn.Module, "to", recorded)
    codes = {"start": "random", "way": 3, "shot": 2, "queries": 2, "epochs": 1, "episodes_per_epoch": 2}
    settings = {**SETTINGS, "protections": ["code:numbers=4"], "codes": codes}
    settings["inversion"] = {"steps": 2, "batch": 4}
    for _ in ("made", "read"):
        there.clear()
        lab = Lab(grid.parse(settings), cartoons(), tmp_path, Progress())
        lab.adversaries.static(0)
        lab.adversaries.inverter(Cell("attack", "code:numbers=4", 0))
        assert there >= {"Recogniser", "Inverter"}


def test_the_precision_is_that_of_the_device_which_trains(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)  # a processor without bfloat16
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    card = torch.device("cuda")
    for device, expected in ((None, "float32"), (torch.device("cpu"), "float32"), (card, "bfloat16")):
        assert hardware.resolve("auto", device) == expected
    small, config = meta.MetaConfig(precision="auto"), few_shot.FewShotConfig()
    for device, expected in ((card, "bfloat16"), (None, "float32")):
        assert meta.make_untrained(small, (1, 28, 28), device=device).mixed == (expected == "bfloat16")
        assert method.training_card(cartoons(), config, seed=0, device=device)["precision"] == expected
