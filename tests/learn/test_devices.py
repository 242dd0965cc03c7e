"""Two processes train as one does: real ones, started once, whose work lies in shared_training.py."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import shared_training
import torch
from shared_training import IN_BFLOAT16, TRAININGS
from torch import Tensor

from sfumato import artefacts
from sfumato.errors import ConfigError, MissingExtraError
from sfumato.learn import adversarial_mask, devices, few_shot, private_feature
from sfumato.learn.batch_norm import in_order
from sfumato.learn.devices import Devices, launch
from sfumato.study.cells import changed

# Batch norm of the mask takes means of 15·16·16 numbers: in float32 their sum is off by about as many
# roundings of 2^-24 as the root of their number.
ROUNDING = math.sqrt(15 * 16 * 16) * 2**-24
ROUNDING_OF_BFLOAT16 = 2.0**-8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process and two have left, see shared_training.train_all."""
    folder = tmp_path_factory.mktemp("devices")
    (folder / "1").mkdir()
    shared_training.train_all(None, folder / "1")
    with pytest.raises(ConfigError) as raised:
        launch(shared_training.two, processes=2, accelerator="cpu", folder=folder)
    (folder / "error").write_text(str(raised.value))
    shared_training.go_on(None, folder / "2")
    return folder


def curves(folder: Path, processes: int, name: str = "curves.json") -> dict[str, list[float]]:
    return json.loads((folder / str(processes) / name).read_text())


def checkpoint(folder: Path, processes: int, name: str) -> dict[str, Tensor]:
    kind = {"few-shot": "few-shot checkpoint", "mask": "mask checkpoint"}
    return artefacts.load(
        folder / str(processes) / f"{name}-1", kind=kind.get(name, "private feature checkpoint")
    )[0]


def furthest(some: list[float], others: list[float]) -> float:
    """The largest relative difference of two loss curves."""
    return max(abs(a - b) / abs(a) for a, b in zip(some, others, strict=True))


def relative(found: dict[str, Tensor], wanted: dict[str, Tensor], part: str) -> float:
    """The relative difference, as vectors, of all tensors whose names have this part."""
    names = [name for name in wanted if part in name]
    one, other = (torch.cat([each[name].flatten() for name in names]) for each in (found, wanted))
    return float((one - other).norm() / other.norm())


def test_there_are_as_many_steps_as_one_process_makes(folder: Path):
    steps = {name: len(curve) for name, curve in curves(folder, 2).items()}
    assert steps == dict.fromkeys((*TRAININGS, *IN_BFLOAT16), 6)


def test_the_loss_curve_of_episodes_is_that_of_one_process_which_accumulates(folder: Path):
    one, two = (curves(folder, processes)["few-shot"] for processes in (1, 2))
    assert furthest(one, two) < 1e-5


@pytest.mark.parametrize("name", sorted({*TRAININGS, *IN_BFLOAT16}))
def test_the_loss_curve_is_as_near_to_that_of_one_process_as_rounding_lets_it_be(folder: Path, name: str):
    # Kinks and selections make training more sensitive than a formula could tell: so measure how far it comes
    # from itself where first weights are off by a rounding. One of 3 draws is not the worst, thus 10.
    one = curves(folder, 1)[name]
    size = ROUNDING_OF_BFLOAT16 if name in IN_BFLOAT16 else ROUNDING
    train = (TRAININGS | IN_BFLOAT16)[name]
    sensitivity = max(furthest(one, shared_training.nudged(train, name, size=size, seed=s)) for s in range(3))
    assert furthest(one, curves(folder, 2)[name]) < 10 * sensitivity


@pytest.mark.parametrize("name", TRAININGS)
def test_gradients_are_those_of_one_process(folder: Path, name: str):
    # Adam follows gradients of any size alike, so that losses do not tell: its averages do. A unit on the
    # other side of a kink changes them by some thousandths; a wrong mean, or a share too much, by a half.
    one, two = (checkpoint(folder, processes, name) for processes in (1, 2))
    assert relative(two, one, ".exp_avg") < 0.03


@pytest.mark.parametrize("name", TRAININGS)
def test_running_statistics_are_those_of_one_process(folder: Path, name: str):
    one, two = (checkpoint(folder, processes, name) for processes in (1, 2))
    assert relative(two, one, ".running_") < 1e-4
    tracked = [key for key in one if "num_batches_tracked" in key]
    assert tracked
    assert all(torch.equal(one[key], two[key]) for key in tracked)


@pytest.mark.parametrize("name", TRAININGS)
def test_one_process_goes_on_from_what_two_have_written(folder: Path, name: str):
    # Its first step is that of two processes, whose weights and moments it has.
    gone_on, two = curves(folder, 2, "gone-on.json")[name], curves(folder, 2)[name]
    assert 0 < len(gone_on) < len(two)
    assert gone_on[0] == pytest.approx(two[-len(gone_on)], rel=100 * ROUNDING)
    assert furthest(two[-len(gone_on) :], gone_on) < 0.01


@pytest.mark.parametrize("name", TRAININGS)
def test_two_processes_go_on_from_what_one_has_written(folder: Path, name: str):
    gone_on, one = curves(folder, 1, "gone-on.json")[name], curves(folder, 1)[name]
    assert 0 < len(gone_on) < len(one)
    assert gone_on[0] == pytest.approx(one[-len(gone_on)], rel=100 * ROUNDING)
    assert furthest(one[-len(gone_on) :], gone_on) < 0.01


@pytest.mark.parametrize("name", TRAININGS)
def test_artefacts_have_the_same_cards_but_for_what_was_measured(folder: Path, name: str):
    one, two = (artefacts.read_card(folder / str(n) / f"{name}.safetensors") for n in (1, 2))
    measured = {"validation_accuracy", "accuracies", "weights", "refusal"}
    assert {k: v for k, v in one.items() if k not in measured} == {
        k: v for k, v in two.items() if k not in measured
    }
    load = {"few-shot": few_shot.load, "mask": adversarial_mask.load}.get(name, private_feature.load)
    assert load(folder / "2" / f"{name}.safetensors").card == {
        k: v for k, v in two.items() if not (name == "few-shot" and k == "cell")
    }


@pytest.mark.parametrize("kind", ["of images", "of vectors", "without scale"])
def test_batch_norm_of_shared_rows_is_that_of_the_joined_batch(folder: Path, kind: str):
    found, _ = artefacts.load(folder / "norms", kind="norms")
    norm, rows = shared_training.norms()[kind]
    norm, rows = norm.double(), rows.double().requires_grad_()
    outputs = norm(rows)
    (outputs * shared_training.weights(outputs, len(rows))).sum().backward()
    wanted = {"outputs": outputs, "of rows": rows.grad, **dict(norm.named_buffers())}
    wanted |= {name: each.grad for name, each in norm.named_parameters()}
    assert {name for name in found if name.startswith(kind)} == {f"{kind}.{name}" for name in wanted}
    for name, each in wanted.items():
        # Of -1000 and a variance of 1, float32 has a variance to 1e-4 at best: 1000·2^-24 to a deviation.
        torch.testing.assert_close(found[f"{kind}.{name}"].double(), each.double(), rtol=1e-3, atol=1e-3)


def test_running_statistics_of_batches_are_those_of_one_process_that_sees_them_in_order(folder: Path):
    found, _ = artefacts.load(folder / "in order", kind="in order")
    norm = torch.nn.BatchNorm2d(5, momentum=0.3)
    for part in (shared_training.batch() / 2, *shared_training.batch().split([3, 4, 4])):
        norm(part)
    for name, each in norm.state_dict().items():
        torch.testing.assert_close(found[name], each, rtol=1e-5, atol=0)


def test_an_error_in_a_process_is_raised_where_it_was_started(folder: Path):
    assert (folder / "error").read_text() == (
        "2 processes are to share a step of 1 episodes: use at most 1, or a larger episodes_per_step"
    )


def test_shares_are_even_and_in_order():
    for items in range(5, 20):
        shares = [Devices(5, rank).share(items, what="images", setting="batch") for rank in range(5)]
        sizes = [len(range(items)[share]) for share in shares]
        assert [i for share in shares for i in range(items)[share]] == list(range(items))
        assert max(sizes) - min(sizes) <= 1


def test_a_batch_of_fewer_images_than_processes_is_refused():
    with pytest.raises(ConfigError, match=r"3 processes are to share a step of 2 images: .* a larger batch"):
        Devices(3).share(2, what="images", setting="batch")


def test_steps_of_several_episodes_divide_an_epoch():
    with pytest.raises(ConfigError, match=r"episodes_per_step=7: at least 1, and a divisor of .*=100"):
        few_shot.FewShotConfig(episodes_per_step=7)


def test_one_episode_a_step_leaves_the_digests_of_studies():
    assert changed(few_shot.FewShotConfig(start="random")) == {}


def test_a_mean_over_all_batches_is_refused_where_episodes_are_shared():
    norm = torch.nn.BatchNorm1d(2, momentum=None)
    with pytest.raises(ConfigError, match="momentum=None, and several processes"), in_order(norm, Devices(2)):
        pass


def test_an_accelerator_that_nobody_knows_is_refused():
    with pytest.raises(ConfigError, match="accelerator=tpu: choose auto, cpu, gpu"):
        launch(shared_training.fail, processes=2, accelerator="tpu")


def test_more_gpus_than_there_are_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for accelerator in ("auto", "gpu"):
        with pytest.raises(ConfigError, match="and 1 can be used here: use at most 1 processes, or acc"):
            launch(shared_training.fail, processes=2, accelerator=accelerator)


def test_a_gpu_where_there_is_none_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="and 0 can be used here: install a PyTorch with CUDA, or acc"):
        launch(shared_training.fail, processes=1, accelerator="gpu")


def test_no_process_is_none():
    with pytest.raises(ConfigError, match="0 processes: at least 1"):
        launch(shared_training.fail, processes=0)


def test_torchrun_decides_how_many_processes_there_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(devices.distributed, "is_torchelastic_launched", lambda: True)
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ConfigError, match="2 processes, and torchrun started 4: ask for as many"):
        launch(shared_training.fail, processes=2)


def test_without_lightning_fabric_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    with pytest.raises(
        MissingExtraError,
        match=r"several devices needs lightning_fabric: .*pip install -c constraints.txt -e '\.\[fabric\]",
    ):
        launch(shared_training.fail, processes=2, accelerator="cpu")


def test_one_process_imports_no_fabric():
    code = "import sys; from sfumato.learn import few_shot; assert 'lightning_fabric' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
