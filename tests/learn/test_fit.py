"""The training loop: which epochs there are, which weights are kept, and how a stopped run goes on."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from sfumato import artefacts
from sfumato.episodes import seed_of
from sfumato.errors import ArtefactError
from sfumato.learn.fit import Run, adam, fit

STEPS = 4


class Stop(Exception):  # noqa: N818
    pass


def begun(*, beside: bool = False, identity: dict | None = None, rate: float = 0.05) -> Run:
    """A linear model of two inputs, before its first epoch; a layer beside it names signs."""
    model, head = nn.Linear(2, 1), nn.ModuleDict({"head": nn.Linear(1, 2)})
    for parameter in (*model.parameters(), *head.parameters()):
        nn.init.constant_(parameter, 0.1)
    identity = {"seed": 0} if identity is None else identity
    return Run(model, adam(rate), kind="test", identity=identity, beside=head if beside else None)


def batches(epoch: int) -> Iterator[Tensor]:
    """Points of the plane, drawn anew in each epoch."""
    generator = torch.Generator().manual_seed(seed_of(0, epoch))
    for _ in range(STEPS):
        yield torch.randn(8, 2, generator=generator)


def stepping(run: Run) -> Callable[[Tensor], Tensor]:
    """Steps towards the sum of both inputs; what is beside learns its sign."""

    def step(points: Tensor) -> Tensor:
        wanted = points.sum(1, keepdim=True)
        guesses = run.model(points)
        loss = (guesses - wanted).square().mean()
        if "head" in run._beside._modules:
            named = run._beside.get_submodule("head")(guesses.detach())
            loss = loss + nn.functional.cross_entropy(named, (wanted[:, 0] > 0).long())
        return run.minimise(loss)

    return step


def trained(run: Run | None = None, *, values: list[float] | None = None, **more) -> Run:
    """After six epochs, judged by their numbers in a list."""
    run = run or begun()
    judge = None if values is None else lambda: values[run.epoch]
    fit(run, batches, stepping(run), **{"epochs": 6, "steps": STEPS, "judge": judge} | more)
    return run


def weights(run: Run) -> list[float]:
    return torch.cat([tensor.flatten() for tensor in run.model.state_dict().values()]).tolist()


def after(epochs: int) -> list[float]:
    return weights(trained(epochs=epochs))


def stopped_at(step: int) -> Callable[[int, int], None]:
    def progress(done: int, planned: int) -> None:
        if done == step:
            raise Stop

    return progress


# Epochs


def test_every_batch_of_every_epoch_is_a_step():
    seen: list[Tensor] = []
    run = begun()
    step = stepping(run)
    fit(run, batches, lambda points: step(seen.append(points) or points), epochs=3)
    wanted = [points for epoch in range(3) for points in batches(epoch)]
    assert torch.equal(torch.stack(seen), torch.stack(wanted))


def test_a_step_follows_the_gradient_by_the_optimiser_and_tells_its_loss():
    model = nn.Linear(2, 1)
    model.load_state_dict(begun().model.state_dict())
    plain = torch.optim.Adam(model.parameters(), lr=0.05, fused=True)
    wanted = []
    for points in batches(0):
        loss = (model(points) - points.sum(1, keepdim=True)).square().mean()
        plain.zero_grad()
        loss.backward()
        plain.step()
        wanted.append(loss.item())
    losses: list[Tensor] = []
    run = trained(epochs=1, losses=losses.append)
    assert [loss.item() for loss in losses] == wanted
    assert weights(run) == torch.cat([each.flatten() for each in model.state_dict().values()]).tolist()


def test_networks_are_in_training_mode_within_epochs_and_ready_for_use_after_them():
    run = begun()
    step, modes = stepping(run), []

    def judge() -> float:
        run.model.eval()
        return 0.5

    fit(run, batches, lambda points: step(modes.append(run.model.training) or points), epochs=2, judge=judge)
    assert modes == [True] * 2 * STEPS
    assert not run.model.training


def test_progress_is_told_after_every_step():
    told = []
    trained(epochs=2, progress=lambda *numbers: told.append(numbers))
    assert told == [(step, 2 * STEPS) for step in range(1, 2 * STEPS + 1)]


def test_where_epochs_differ_progress_is_of_epochs_that_are_saved(tmp_path: Path):
    told = []

    def progress(done: int, planned: int) -> None:
        _, card = artefacts.load(tmp_path / "c", kind="test")
        told.append((done, planned, card["epoch"]))

    trained(epochs=3, steps=None, progress=progress, checkpoint=tmp_path / "c")
    assert told == [(1, 3, 1), (2, 3, 2), (3, 3, 3)]


# What is kept


def test_the_weights_of_the_best_epoch_are_kept_the_first_of_equals():
    run = trained(values=[0.1, 0.6, 0.6, 0.2, 0.3, 0.1])
    assert weights(run) == after(2)
    assert run.curve == [0.1, 0.6, 0.6, 0.2, 0.3, 0.1]
    assert run.outcome == {"epochs": 6, "validation_accuracy": 0.6}


def test_without_a_judge_those_of_the_last_epoch_are():
    run = trained()
    assert weights(run) == after(6) != after(5)
    assert run.outcome == {"epochs": 6, "validation_accuracy": None}


def test_training_stops_where_validation_is_flat_counted_from_the_epoch_that_is_asked_for():
    run = trained(values=[0.1, 0.5, 0.5, 0.4, 0.9, 0.9], patience=2)
    assert run.epoch == 4
    assert weights(run) == after(2)
    assert trained(values=[0.5] * 6, patience=2, patient_from=3).epoch == 5


def test_what_is_beside_the_model_is_trained_and_left_out_of_it():
    run = begun(beside=True)
    before = {name: value.clone() for name, value in run._beside.state_dict().items()}
    trained(run)
    assert run.model.state_dict().keys() == {"weight", "bias"}
    assert all(not torch.equal(value, before[name]) for name, value in run._beside.state_dict().items())


# Going on


@pytest.mark.parametrize("values", [None, [0.1, 0.6, 0.5, 0.4, 0.3, 0.2]], ids=["last", "best"])
@pytest.mark.parametrize("step", [STEPS + 1, 3 * STEPS, 5 * STEPS + 2])
def test_a_stopped_run_goes_on_exactly(tmp_path: Path, values, step: int):
    more = {"values": values, "checkpoint": tmp_path / "c"}
    with pytest.raises(Stop):
        trained(begun(beside=True), progress=stopped_at(step), **more)
    told: list[int] = []
    resumed = trained(begun(beside=True), progress=lambda done, _: told.append(done), **more)
    whole = trained(begun(beside=True), values=values)
    assert told[0] == (step - 1) // STEPS * STEPS + 1
    assert weights(resumed) == weights(whole)
    assert resumed.curve == whole.curve
    for ours, theirs in zip(resumed.parameters, whole.parameters, strict=True):
        assert torch.equal(ours, theirs)


def test_a_finished_run_gives_its_model_again(tmp_path: Path):
    values = [0.1, 0.6, 0.5, 0.4, 0.3, 0.2]
    first = trained(values=values, checkpoint=tmp_path / "c")
    again = begun()
    fit(again, batches, lambda _: pytest.fail("nothing is left to do"), epochs=6, checkpoint=tmp_path / "c")
    assert weights(again) == weights(first)


def test_the_checkpoint_of_another_run_is_refused(tmp_path: Path):
    trained(checkpoint=tmp_path / "c")
    with pytest.raises(ArtefactError, match="c: the checkpoint of another run: delete it, or name another"):
        trained(begun(identity={"seed": 1}), checkpoint=tmp_path / "c")


def test_a_damaged_checkpoint_is_refused(tmp_path: Path):
    trained(begun(beside=True), values=[0.6, 0.1], epochs=2, checkpoint=tmp_path / "c")
    tensors, card = artefacts.load(tmp_path / "c", kind="test")
    for lost in ("model.bias", "best.weight", "head.bias"):
        artefacts.save(tmp_path / "c", {k: v for k, v in tensors.items() if k != lost}, card)
        with pytest.raises(ArtefactError, match="c: damaged: start anew, or from an older checkpoint"):
            trained(begun(beside=True), checkpoint=tmp_path / "c")
    for lost in ("epoch", "run"):
        without = {k: v for k, v in card.items() if k not in (lost, "accuracies")}
        artefacts.save(tmp_path / "c", tensors, without)
        with pytest.raises(ArtefactError, match="c: damaged"):
            trained(begun(beside=True), checkpoint=tmp_path / "c")
