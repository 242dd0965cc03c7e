"""Updates as people have them: recorded around a training loop, returned by a Flower client, and as files."""

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from sfumato.attack.updates import (
    LocalTraining,
    Noise,
    Update,
    client_mod,
    load,
    of_states,
    record,
    record_client,
    save,
)
from sfumato.attack.victim import share
from sfumato.errors import DataError

IMAGES = torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 3))


def fit(model: nn.Module, *, epochs: int = 2, batch: int = 2, **options: float) -> None:
    optimiser = torch.optim.SGD(model.parameters(), **{"lr": 0.1, **options})
    for _ in range(epochs):
        for images, labels in zip(IMAGES.split(batch), LABELS.split(batch), strict=True):
            optimiser.zero_grad()
            functional.cross_entropy(model(images), labels).backward()
            optimiser.step()


class Client:
    """A NumPyClient as its tutorial writes it."""

    def __init__(self) -> None:
        self.model = network()

    def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
        state = dict(zip(self.model.state_dict(), map(torch.tensor, parameters), strict=True))
        self.model.load_state_dict(state)
        fit(self.model)
        return arrays(self.model), len(IMAGES), {}


def arrays(model: nn.Module) -> list[Any]:
    return [tensor.numpy() for tensor in model.state_dict().values()]


def same(first: Any, second: Any) -> None:
    torch.testing.assert_close(dict(first), dict(second))


def test_a_recording_has_the_change_and_how_the_client_trained():
    model, before = network(), network().state_dict()
    with record(model, images=6) as recording:
        fit(model)
    update = recording.update
    assert update.training == LocalTraining(images=6, steps=6, rate=0.1, batch=2)
    for name, after in model.named_parameters():
        torch.testing.assert_close(update.change[name], before[name] - after.detach())


def test_one_step_on_all_images_is_the_gradient_of_the_batch():
    model = network()
    expected = share(model, IMAGES, LABELS)
    with record(model) as recording:
        fit(model, epochs=1, batch=6)
    assert recording.update.training == LocalTraining(images=6, steps=1, rate=0.1)
    _, update = recording.update.fit(network())
    for name in expected:
        torch.testing.assert_close(update.change[name] / 0.1, expected[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("options", [{"momentum": 0.9}, {"weight_decay": 0.1}])
def test_an_optimiser_that_is_more_than_sgd_is_not_taken_for_it(options):
    model = network()
    with record(model, images=6) as recording:
        fit(model, **options)
    assert not recording.update.training.plain


def test_images_that_are_looked_at_in_between_do_not_count_as_a_batch():
    model = network()
    with record(model) as recording:
        model.eval()
        model(IMAGES[:1])
        model.train()
        with torch.no_grad():
            model(IMAGES[:3])
        fit(model, epochs=1, batch=6)
    assert recording.update.training.images == 6


@pytest.mark.filterwarnings("ignore::UserWarning")  # Opacus, of its generator and of hooks
def test_a_noisy_step_of_opacus_is_recorded_with_its_noise():
    from opacus import PrivacyEngine  # two seconds

    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 3))
    data = DataLoader(TensorDataset(IMAGES, LABELS), batch_size=6)
    private, optimiser, data = PrivacyEngine().make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.5), data_loader=data,
        noise_multiplier=1.5, max_grad_norm=2.0, poisson_sampling=False,
    )  # fmt: skip
    with record(model, images=6, optimiser=optimiser) as recording:
        for images, labels in data:
            functional.cross_entropy(private(images), labels).backward()
            optimiser.step()
    assert recording.update.noise == Noise(noise_multiplier=1.5, clipping_norm=2.0)
    assert (recording.update.training.steps, recording.update.training.rate) == (1, 0.5)
    noisy = {name: 0.5 * each.grad for name, each in model.named_parameters()}
    same(noisy, dict(recording.update.change))


@pytest.mark.parametrize(
    ("train", "message"),
    [(lambda _: None, "no optimiser made a step"), (fit, "is unknown after several steps")],
)
def test_a_block_in_which_nothing_trains_or_nobody_knows_on_how_many_images_is_refused(train, message):
    model = network()
    with pytest.raises(DataError, match=message), record(model):
        train(model)


def test_a_flower_client_returns_what_it_did_and_its_updates_lie_in_a_folder(tmp_path):
    given = arrays(network())
    expected, images, _ = Client().fit(copy.deepcopy(given), {})
    client = record_client(Client(), tmp_path / "updates")
    for _ in range(2):
        returned, count, _ = client.fit(copy.deepcopy(given), {})
        assert count == images
        assert all(map(np.array_equal, returned, expected))
    first, second = (load(tmp_path / "updates" / f"update-{number}.safetensors") for number in (1, 2))
    assert first.training == LocalTraining(images=6, steps=6, rate=0.1, batch=2)
    same(first.change, second.change)
    fitted, update = first.fit(nn.Sequential(*network()))
    assert list(update.change) == [name for name, _ in network().named_parameters()]
    same(fitted.state_dict(), network().state_dict())
    trained = dict(zip(network().state_dict(), map(torch.tensor, expected), strict=True))
    for name, change in update.change.items():
        torch.testing.assert_close(network().state_dict()[name] - change, trained[name])


def test_a_mod_records_a_message_with_arrays_and_lets_others_pass(tmp_path):
    def message(model: nn.Module | None, **metrics: int) -> Any:
        own = [] if model is None else arrays(model)
        record = {str(n): SimpleNamespace(numpy=lambda each=each: each) for n, each in enumerate(own)}
        content = SimpleNamespace(array_records={"arrays": record}, metric_records={"metrics": metrics})
        return SimpleNamespace(content=content, has_content=lambda: True)

    trained = network()

    def train(asked: Any, _: Any) -> Any:
        fit(trained)
        return message(trained, **{"num-examples": 6})

    mod = client_mod(tmp_path)
    mod(message(network()), None, lambda asked, _: message(None))
    assert not list(tmp_path.iterdir())
    mod(message(network()), None, train)
    update = load(tmp_path / "update-1.safetensors")
    assert update.training.images == 6
    _, fitted = update.fit(network())
    assert len(fitted.change) == len(list(network().parameters()))


def test_a_file_gives_back_what_was_saved(tmp_path):
    update = Update(
        change=share(network(), IMAGES, LABELS),
        training=LocalTraining(images=6, steps=4, rate=0.2, batch=3, plain=False),
        noise=Noise(noise_multiplier=0.5, clipping_norm=1.0),
        before=network().state_dict(),
    )
    found = load(save(update, tmp_path / "update.safetensors"))
    assert (found.training, found.noise) == (update.training, update.noise)
    same(found.change, update.change)
    same(found.before, update.before)


def test_arrays_without_names_keep_their_order_beyond_ten(tmp_path):
    model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(6)])
    state: dict[str, Tensor] = model.state_dict()
    np.savez(tmp_path / "update.npz", *[tensor.numpy() for tensor in state.values()])
    found = load(tmp_path / "update.npz", training=LocalTraining(images=1))
    _, fitted = found.fit(model)
    same(fitted.change, state)


def test_two_states_make_an_update(tmp_path):
    before, model = network().state_dict(), network()
    fit(model)
    save_file(before, tmp_path / "before.safetensors")
    np.savez(tmp_path / "after.npz", **{name: each.numpy() for name, each in model.state_dict().items()})
    training = LocalTraining(images=6, steps=6, rate=0.1, batch=2)
    found = load(tmp_path / "after.npz", training=training, before=tmp_path / "before.safetensors")
    same(found.change, of_states(before, model.state_dict(), training).change)


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("update.pt", lambda path: torch.save({}, path), "a pickle could run code"),
        ("pickled.npz", lambda path: np.savez(path, np.array([object()])), "damaged, or not plain numbers"),
        ("broken.safetensors", lambda path: path.write_bytes(b"no"), "damaged, or not plain numbers"),
        ("none.npz", lambda path: None, "no such file"),
        ("bare.npz", lambda path: np.savez(path, np.zeros(2)), "does not say how the client trained"),
    ],
)
def test_a_file_that_could_run_code_is_damaged_or_says_nothing_is_refused(tmp_path, name, write, message):
    write(tmp_path / name)
    with pytest.raises(DataError, match=message):
        load(tmp_path / name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head.weight": torch.zeros(2)}, "has head.weight, which the model does not have"),
        ({"0.bias": torch.zeros(5)}, r"has 0.bias of shape \(5,\) where the model has \(4,\)"),
        ({"0.bias": torch.full((4,), torch.nan)}, "numbers in 0.bias that are not finite"),
        ({"0.bias": torch.zeros(4)}, r"lacks 0.weight \(5 in all\)"),
        ({"arr_0": torch.zeros(4)}, "has 1 arrays without names, and the model 9 tensors"),
    ],
)
def test_an_update_of_another_model_is_refused(change, message: str):
    with pytest.raises(DataError, match=message):
        Update(change=change, training=LocalTraining(images=1)).fit(network())
