"""The device of a study: everything that it trains is trained there, the adversaries of it among them."""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from test_run import SETTINGS, cartoons
from torch import nn

import sfumato.study
from sfumato.base import hardware
from sfumato.learn import few_shot, meta
from sfumato.study import grid
from sfumato.study.cells import Cell
from sfumato.study.lab import lab as labs
from sfumato.study.lab.lab import Lab, Progress
from sfumato.study.lab.trained import train_once

HOW = ("**lab.how(", "**how")  # it has the device


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(sfumato.study.__path__, "sfumato.study."):
        yield importlib.import_module(found.name)


def names_in(tree: ast.Module, module: ModuleType) -> dict[str, Any]:
    """What a module imports anywhere, by the names that it gives it."""
    names = dict(vars(module))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("sfumato"):
            for each in node.names:
                whole = importlib.import_module(node.module)
                if not hasattr(whole, each.name):
                    importlib.import_module(f"{node.module}.{each.name}")
                names[each.asname or each.name] = getattr(whole, each.name)
    return names


def calls(module: ModuleType) -> Iterator[tuple[str, ast.Call, Any]]:
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    names = names_in(tree, module)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            text = ast.unparse(node.func)
            first, *rest = text.split(".")
            called = names.get(first)
            for name in rest:
                called = getattr(called, name, None)
            if inspect.isroutine(called) and str(called.__module__).startswith(
                ("sfumato.learn", "sfumato.attack")
            ):
                yield f"{module.__name__}: {text}", node, called


def test_every_training_of_a_study_is_told_the_device():
    found = [
        (where, node)
        for module in modules()
        for where, node, called in calls(module)
        if "device" in inspect.signature(called).parameters
    ]
    told = {  # by name, or by what Lab.how has
        where: any(
            each.arg == "device" or ast.unparse(each).startswith(("**lab.how(", "**how"))
            for each in node.keywords
        )
        for where, node in found
    }
    assert [where for where, is_told in told.items() if not is_told] == []
    assert {where.partition(": ")[2] for where in told} >= {
        *("adversarial_mask.train", "private_feature.train", "code.train", "code.pretrain"),
        *("undo.train_inverter", "undo.train_restorer"),
    }


def test_models_that_cells_share_are_trained_on_the_device(tmp_path: Path):
    lab, given = Lab(grid.parse(SETTINGS), cartoons(), tmp_path, Progress()), {}

    def train(*args: Any, **how: Any) -> Any:
        given.update(how)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_once(lab, "few-shot", SimpleNamespace(train=train), None, {}, "none", 0)
    assert given["device"] == lab.device
    assert given["checkpoint"].suffix == ".checkpoint"


def test_the_networks_of_adversaries_are_on_the_device_made_or_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    device, there = torch.device("cpu"), set()
    move = nn.Module.to
    monkeypatch.setattr(labs, "device_named", lambda name: device)

    def recorded(self: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        if any(each is device for each in (*args, *kwargs.values())):  # by identity: a device of its own
            there.add(type(self).__name__)
        return move(self, *args, **kwargs)

    monkeypatch.setattr(nn.Module, "to", recorded)
    specs = ["blur:radius=1", "code:numbers=4"]
    codes = {"start": "random", "way": 3, "shot": 2, "queries": 2, "epochs": 1, "episodes_per_epoch": 2}
    settings = {**SETTINGS, "protections": specs, "codes": codes, "inversion": {"steps": 2, "batch": 4}}
    for _ in ("made", "read"):
        there.clear()
        lab = Lab(grid.parse(settings), cartoons(), tmp_path, Progress())
        lab.adversaries.static(0)
        for spec in specs:
            lab.adversaries.undoer(Cell("attack", spec, 0))
        assert there >= {"Recogniser", "Restorer", "Inverter"}


def test_the_precision_is_that_of_the_device_which_trains(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)  # a processor without bfloat16
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    card = torch.device("cuda")
    for device, expected in ((None, "float32"), (torch.device("cpu"), "float32"), (card, "bfloat16")):
        assert hardware.resolve("auto", device) == expected
    small = meta.MetaConfig(precision="auto")
    from sfumato.learn.meta import make_untrained
    from sfumato.learn.method import training_card

    assert make_untrained(small, (1, 28, 28), device=card).mixed
    assert not make_untrained(small, (1, 28, 28)).mixed
    config = few_shot.FewShotConfig()
    for device, expected in ((card, "bfloat16"), (None, "float32")):
        made = training_card(cartoons(), config, seed=0, device=device)
        assert made["precision"] == expected
