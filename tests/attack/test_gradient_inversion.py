"""Gradient inversion: what is shared, when a guess is right, how guesses are followed, what is refused."""

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.optimizer import register_optimizer_step_pre_hook

from sfumato.assess.similarity import psnr
from sfumato.attack import gradient_inversion
from sfumato.attack.gradient_inversion import (
    DLG,
    GRAD_ATTACK,
    IDLG,
    INVERTING_GRADIENTS,
    InversionConfig,
    invert,
    invert_all,
    problem_of,
    total_variation,
)
from sfumato.attack.victim import ThreatModel, Victim, share
from sfumato.errors import ConfigError, DataError
from sfumato.networks import ConvNet8, LeNet, ResNet

SHAPE = (3, 8, 8)
ONE = torch.tensor([2])
TWO = torch.tensor([0, 2])
KNOWS = ThreatModel(shape=SHAPE, labels=ONE)
FEW = InversionConfig(labels="known", optimiser="adam", steps=6)


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()


def lenet(seed: int = 0, shape: tuple[int, int, int] = SHAPE) -> nn.Module:
    return seeded(lambda: LeNet(shape, 4), seed)


def normed(*, training: bool = False) -> nn.Module:
    def make() -> nn.Module:
        first = (nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.AvgPool2d(2))
        second = (nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        return nn.Sequential(*first, *second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))

    model = seeded(make)
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    for module in norms:
        module.momentum = 1.0
    with torch.no_grad():
        model(photographs(16, 50))  # running statistics of images
    for module in norms:
        module.momentum = 0.1
    return model.train(training)


VICTIMS = {
    "lenet": lenet,
    "normed": normed,
    "resnet": lambda: seeded(lambda: ResNet(SHAPE, 4, depth=20, width=2)),
    "convnet8": lambda: seeded(lambda: ConvNet8((3, 9, 9), 4, width=2)).eval(),
}


def photographs(count: int = 1, seed: int = 0, shape: tuple[int, int, int] = SHAPE) -> Tensor:
    """Noise: harder than any photograph, since nothing is known of it beforehand."""
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(100 + seed))


def left(model: nn.Module) -> dict[str, Tensor]:
    """The gradients that a training loop left on a model."""
    trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
    return {name: each.grad.clone() for name, each in trained.items()}


def first_guess(count: int = 1, seed: int = 0) -> Tensor:
    """Where a guess of this seed begins; where it is the truth, `history[0]` is the cost of the truth."""
    return 0.5 + 0.25 * torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(seed))


def cost_of_the_truth(model: nn.Module, shared: dict[str, Tensor], knows=KNOWS, config=FEW) -> float:
    return invert(model, shared, knows, replace(config, steps=1)).history[0].item()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", VICTIMS)
def test_what_is_shared_is_what_a_training_loop_leaves(name: str, training: bool):
    model = VICTIMS[name]().train(training)
    images, labels = photographs(2, shape=(3, 9, 9)) if name == "convnet8" else photographs(2), TWO
    shared = share(model, images, labels)
    functional.cross_entropy(model(images), labels).backward()
    torch.testing.assert_close(shared, left(model))
    assert list(shared) == list(left(model))


def test_labels_may_be_shares_of_classes():
    model, mixed = lenet(), torch.tensor([[0.25, 0.75, 0, 0]])
    one, other = (share(model, photographs(), torch.tensor([label])) for label in (0, 1))
    for name, each in share(model, photographs(), mixed).items():
        torch.testing.assert_close(each, 0.25 * one[name] + 0.75 * other[name])


@pytest.mark.parametrize(("size", "epochs"), [(5, 3), (2, 2)])  # of 5; of 2, 2 and 1
def test_local_steps_share_what_sgd_changed_epoch_after_epoch(size: int, epochs: int):
    model, images, labels = lenet(), photographs(5), torch.tensor([0, 2, 1, 3, 0])
    worker, steps = copy.deepcopy(model), epochs * -(-5 // size)
    optimiser = torch.optim.SGD(worker.parameters(), lr=0.1)
    for _ in range(epochs):
        for seen, named in zip(images.split(size), labels.split(size), strict=True):
            optimiser.zero_grad()
            functional.cross_entropy(worker(seen), named).backward()
            optimiser.step()
    after = dict(worker.named_parameters())
    shared = share(model, images, labels, local_steps=steps, local_rate=0.1, local_batch=size)
    for name, before in model.named_parameters():
        torch.testing.assert_close(shared[name], (before - after[name]).detach(), rtol=1e-4, atol=1e-6)


def test_simulating_mini_batches_rebuilds_what_one_large_batch_does_not():
    trained = {"local_steps": 4, "local_rate": 0.5, "local_batch": 1}
    shared = share(lenet(), photographs(2), TWO, **trained)
    config = replace(INVERTING_GRADIENTS, steps=150, total_variation=0.0, labels="known")
    right = ThreatModel(shape=SHAPE, batch=2, labels=TWO, **trained)
    simulated = invert(lenet(), shared, right, config)
    assert psnr(photographs(2), simulated.images).min() > 20
    ignored = invert(lenet(), shared, replace(right, local_steps=1, local_batch=None), config)
    assert simulated.cost < ignored.cost / 10


def test_a_batch_norm_that_was_frozen_keeps_to_its_running_statistics_in_training():
    model = normed(training=True)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    frozen, all_of_it = share(model, photographs(2), TWO), share(model.eval(), photographs(2), TWO)
    for name in frozen:
        torch.testing.assert_close(frozen[name], all_of_it[name])


@pytest.mark.parametrize("training", [False, True])
def test_a_model_is_left_as_it_was(training: bool):
    model = normed(training=training)
    functional.cross_entropy(model(photographs(2, 1)), TWO).backward()
    before, gradients = copy.deepcopy(model.state_dict()), left(model)
    config = replace(GRAD_ATTACK, steps=2, labels="inferred")
    invert(model, share(model, photographs(2), TWO), ThreatModel(shape=SHAPE, batch=2), config)
    assert model.training == training
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert all(torch.equal(each, gradients[name]) for name, each in left(model).items())
    assert [type(each) for each in model.modules()] == [type(each) for each in normed().modules()]


def test_gradients_are_shared_of_what_is_trained():
    model = lenet()
    model.body.requires_grad_(False)
    assert list(share(model, photographs(), ONE)) == ["head.weight", "head.bias"]
    with pytest.raises(ConfigError, match="is trained: there is no gradient to share"):
        share(model.requires_grad_(False), photographs(), ONE)


@pytest.mark.parametrize("objective", ["squared", "cosine"])
@pytest.mark.parametrize("make", [lenet, normed, lambda: normed(training=True)])
def test_the_cost_of_the_true_batch_is_0_also_where_batch_norm_sees_the_batch(make, objective: str):
    model, config = make(), replace(FEW, objective=objective)
    true, other = (share(model, images, TWO) for images in (first_guess(2), photographs(2)))
    knows = ThreatModel(shape=SHAPE, batch=2, labels=TWO)
    assert cost_of_the_truth(model, true, knows, config) == pytest.approx(0, abs=1e-5)
    assert cost_of_the_truth(model, other, knows, config) > 1e-3


@pytest.mark.parametrize("certain", [0, 20])
def test_the_distance_is_what_its_formula_says_also_for_a_model_that_is_sure_of_its_label(certain: float):
    model = lenet()
    with torch.no_grad():
        model.head.bias[2] += certain
    mine, theirs = share(model, first_guess(), ONE), share(model, photographs(), ONE)
    a, b = (torch.cat([each.flatten() for each in one.values()]).double() for one in (mine, theirs))
    squared, cosine = (
        cost_of_the_truth(model, theirs, config=replace(FEW, objective=each))
        for each in ("squared", "cosine")
    )
    assert (a.norm() * b.norm() < 1e-15) == (certain > 0)
    assert squared == pytest.approx((a - b).square().sum().item(), rel=1e-4)
    assert cosine == pytest.approx(1 - functional.cosine_similarity(a, b, dim=0).item(), rel=1e-3)


def test_the_cost_is_that_of_the_images_returned():
    model, shared = lenet(), share(lenet(), photographs(), ONE)
    for box in (True, False):
        config = replace(FEW, objective="squared", learning_rate=1.0, total_variation=0.1, box=box)
        found = invert(model, shared, KNOWS, config)
        again = share(model, found.images, found.labels)
        distance = sum((again[name] - shared[name]).square().sum() for name in shared)
        assert 0 <= found.images.min() <= found.images.max() <= 1
        assert found.images.eq(1).any()  # it would have left the box
        assert found.cost == pytest.approx(distance.item(), rel=1e-4)


def pruned(shared: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without the smaller half of each tensor."""
    return {name: each * (each.abs() > each.abs().median()) for name, each in shared.items()}


@pytest.mark.parametrize("objective", ["squared", "cosine"])
@pytest.mark.parametrize("defence", ["pruned", "noise"])
def test_who_knows_of_a_defence_does_not_count_what_it_took_from_the_true_image(objective, defence: str):
    model, config = lenet(), replace(FEW, objective=objective)
    shared = share(model, first_guess(), ONE)
    if defence == "pruned":
        shared, knows = pruned(shared), replace(KNOWS, pruned=True)
    else:  # a tensor is noise alone
        shared["body.0.weight"] = torch.full_like(shared["body.0.weight"], 1e-2)
        knows = replace(KNOWS, noise=2e-2)
    known, unknown = (cost_of_the_truth(model, shared, each, config) for each in (knows, KNOWS))
    assert known == pytest.approx(0, abs=1e-5)
    assert unknown > max(1e-5, 10 * known)


def test_total_variation_is_that_of_a_loop_and_makes_guesses_smooth():
    (image,) = photographs(shape=(2, 4, 5))
    across = [abs(image[c, y, x + 1] - image[c, y, x]) for c in range(2) for y in range(4) for x in range(4)]
    down = [abs(image[c, y + 1, x] - image[c, y, x]) for c in range(2) for y in range(3) for x in range(5)]
    assert total_variation(image).item() == pytest.approx(sum(across) / 32 + sum(down) / 30)
    problem = lenet(), share(lenet(), photographs(), ONE), KNOWS
    configs = [replace(FEW, steps=20, total_variation=weight) for weight in (0.0, 10.0)]
    rough, smooth = (total_variation(invert(*problem, config).images) for config in configs)
    assert smooth < rough / 2


def inputs_of_batch_norms(model: nn.Module, images: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    seen = {}
    handles = [
        module.register_forward_pre_hook(lambda _, inputs, name=name: seen.update({name: inputs[0]}))
        for name, module in model.named_modules()
        if isinstance(module, nn.BatchNorm2d)
    ]
    with torch.no_grad():
        model(images)
    for handle in handles:
        handle.remove()
    return {name: (x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)) for name, x in seen.items()}


@pytest.mark.parametrize("known", [True, False])
def test_the_statistics_of_the_true_batch_cost_nothing_and_the_models_own_are_taken_else(known: bool):
    model, batch = normed(), photographs(2)
    exact = inputs_of_batch_norms(model, batch)
    knows = ThreatModel(shape=SHAPE, batch=2, labels=TWO, statistics=exact if known else None)
    config = replace(FEW, statistics=1.0)
    victim = Victim(model, functional.cross_entropy, knows, statistics=True)
    problem = problem_of(victim, share(model, batch, TWO), knows, config, seed=0)
    total, cost = gradient_inversion.Objective(victim, config, [problem])(4 * (batch[None] - 0.5), None)
    norms = {name: model.get_submodule(name) for name in exact}
    apart = sum(
        (mean - norms[name].running_mean).norm() + (variance - norms[name].running_var).norm()
        for name, (mean, variance) in exact.items()
    )
    assert (total - cost).item() == pytest.approx(0 if known else apart.item(), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(
    ("config", "least"),
    [
        (replace(DLG, steps=100), 30),
        (replace(IDLG, steps=100), 30),
        (replace(INVERTING_GRADIENTS, steps=200, total_variation=0.0), 30),
        (replace(GRAD_ATTACK, steps=400, learning_rate=0.2, total_variation=0.0, statistics=0.0), 30),
    ],
)
def test_published_attacks_recover_an_image_of_a_small_lenet(config: InversionConfig, least: float):
    found = invert(lenet(), share(lenet(), photographs(), ONE), KNOWS, config)
    assert psnr(photographs(), found.images).item() > least
    assert found.labels.tolist() == [2]
    assert found.cost < 1e-4


def test_labels_are_found_along_with_images_by_adam_too():
    config = replace(FEW, labels="optimised", steps=150)
    found = invert(lenet(), share(lenet(), photographs(), ONE), ThreatModel(shape=SHAPE), config)
    assert found.labels.tolist() == [2]


def test_a_batch_is_recovered_in_the_order_of_its_labels():
    originals = photographs(2)
    config = replace(INVERTING_GRADIENTS, steps=200, total_variation=0.0, objective="squared")
    shared = share(lenet(), originals, torch.tensor([3, 1]))
    found = invert(lenet(), shared, ThreatModel(shape=SHAPE, batch=2), config)
    assert found.labels.tolist() == [1, 3]
    assert psnr(originals.flip(0), found.images).min() > 25


@pytest.mark.parametrize(("labels", "rate"), [([2], 0.1), ([0, 0, 3], 0.01)])
def test_what_local_steps_changed_is_inverted_and_its_labels_are_counted(labels: list[int], rate: float):
    trained = {"local_steps": 2, "local_rate": rate}
    shared = share(lenet(), photographs(len(labels)), torch.tensor(labels), **trained)
    config = replace(INVERTING_GRADIENTS, steps=200 if len(labels) == 1 else 6, total_variation=0.0)
    found = invert(lenet(), shared, ThreatModel(shape=SHAPE, batch=len(labels), **trained), config)
    assert found.labels.tolist() == labels
    assert len(labels) > 1 or psnr(photographs(), found.images).item() > 30


@pytest.mark.parametrize("make", [lenet, normed])
@pytest.mark.parametrize("labels", ["known", "optimised"])
def test_guesses_as_one_batch_go_where_each_goes_alone(make, labels: str):
    # Seven as 3, 3 and 1: also a batch of one.
    config = replace(FEW, restarts=7, labels=labels, total_variation=0.1)
    problem = [share(make(), photographs(), ONE)], [KNOWS], config
    together, alone = (invert_all(make(), *problem, at_once=many)[0] for many in (3, 1))
    torch.testing.assert_close(together.costs, alone.costs, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(together.images, alone.images, rtol=0, atol=1e-3)
    # Also with statistics, local steps and pruned gradients.
    trained, exact = {"local_steps": 2, "local_rate": 0.1}, inputs_of_batch_norms(make(), photographs(2))
    knows = ThreatModel(shape=SHAPE, batch=2, labels=TWO, statistics=exact, pruned=True, **trained)
    config = replace(config, restarts=2, statistics=0.1 if exact else 0)
    problem = [pruned(share(make(), photographs(2), TWO, **trained))], [knows], config
    together, alone = (invert_all(make(), *problem, at_once=many)[0] for many in (2, 1))
    torch.testing.assert_close(together.costs, alone.costs, rtol=1e-3, atol=1e-5)


def test_each_problem_of_a_call_is_solved_by_itself():
    others = [ONE, torch.tensor([1])]
    shared = [share(lenet(), photographs(1, seed), label) for seed, label in enumerate(others)]
    knows = [replace(KNOWS, labels=label) for label in others]
    both = invert_all(lenet(), shared, knows, FEW, seed=5)
    for number, one in enumerate(both):
        alone = invert(lenet(), shared[number], knows[number], FEW, seed=5 + 1000 * number)
        torch.testing.assert_close(one.images, alone.images, rtol=0, atol=1e-3)
        assert torch.equal(one.labels, alone.labels)


def test_the_restart_of_the_least_cost_counts():
    found = invert(lenet(), share(lenet(), photographs(), ONE), KNOWS, replace(FEW, restarts=5))
    assert found.costs.shape == found.costs.unique().shape == (5,)
    assert found.cost == pytest.approx(found.costs.min().item())


@pytest.mark.parametrize("config", [FEW, replace(DLG, steps=20)])
def test_a_seed_decides_all_and_no_state_moves(config: InversionConfig):
    shared, before = share(lenet(), photographs(), ONE), torch.random.get_rng_state()
    one, same, other = (invert(lenet(), shared, KNOWS, config, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(one.images, same.images)
    assert torch.equal(one.history, same.history)
    assert not torch.equal(one.images, other.images)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_rate_falls_to_a_tenth_at_three_five_and_seven_eighths_and_slopes_are_signs():
    rates, slopes = [], []

    def watched(optimiser: torch.optim.Optimizer, *_: object) -> None:
        (group,) = optimiser.param_groups
        rates.append(group["lr"])
        slopes.append(group["params"][0].grad.flatten())

    handle = register_optimizer_step_pre_hook(watched)
    invert(lenet(), share(lenet(), photographs(), ONE), KNOWS, replace(INVERTING_GRADIENTS, steps=16))
    handle.remove()
    assert rates == pytest.approx([0.1] * 6 + [0.01] * 4 + [0.001] * 4 + [0.0001] * 2)
    assert {abs(value) for value in torch.cat(slopes).unique().tolist()} <= {0, 1}


def test_the_history_has_each_step_of_adam_and_each_20_of_lbfgs():
    shared = share(lenet(), photographs(), ONE)
    assert invert(lenet(), shared, KNOWS, FEW).history.shape == (6,)
    falling = invert(lenet(), shared, KNOWS, replace(IDLG, steps=60)).history
    assert falling.shape == (3,)
    assert (falling.diff() < 0).all()


def test_a_search_that_runs_off_begins_elsewhere():
    calls = []

    def loss(*given):
        calls.append(given)
        return functional.cross_entropy(*given) * (torch.nan if 1 < len(calls) < 6 else 1)

    found = invert(lenet(), share(lenet(), photographs(), ONE), KNOWS, replace(IDLG, steps=60), loss=loss)
    assert psnr(photographs(), found.images).item() > 30


@pytest.mark.parametrize(("config", "step"), [(replace(FEW, steps=40), 1), (replace(IDLG, steps=40), 20)])
def test_progress_counts_steps(config: InversionConfig, step: int):
    heard, shared = [], [share(lenet(), photographs(), ONE)]
    config = replace(config, restarts=2)
    invert_all(lenet(), shared, [KNOWS], config, at_once=1, progress=lambda *told: heard.append(told))
    assert heard == [(done, 80) for done in range(step, 81, step)]


def test_a_model_in_double_precision_is_attacked_in_it():
    model = lenet().double()
    shared = share(model, photographs().double(), ONE)
    found = invert(model, shared, ThreatModel(shape=SHAPE), replace(IDLG, steps=100))
    assert psnr(photographs(), found.images).item() > 60
    assert found.images.dtype == torch.float32


def test_presets_are_those_of_the_papers():
    presets = (DLG, IDLG, INVERTING_GRADIENTS, GRAD_ATTACK)
    assert [(each.objective, each.optimiser, each.labels) for each in presets] == [
        ("squared", "lbfgs", "optimised"),
        ("squared", "lbfgs", "inferred"),
        ("cosine", "signed-adam", "inferred"),
        ("cosine", "adam", "known"),
    ]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"head.bias": None}, r"lacks head.bias \(1 lacking, 0 unknown\)"),
        ({"tail": torch.ones(1)}, r"has unknown tail \(0 lacking, 1 unknown\)"),
        ({"head.bias": torch.ones(7)}, r"of head.bias is \(7,\) where the parameter is \(4,\)"),
        ({"head.bias": torch.full((4,), torch.nan)}, "of head.bias has numbers that are not finite"),
        ({name: 0 * each for name, each in share(lenet(), photographs(), ONE).items()}, "is zero everywhere"),
    ],
)
def test_a_gradient_that_does_not_fit_is_refused(changed: dict, message: str):
    given = share(lenet(), photographs(), ONE) | changed
    with pytest.raises(DataError, match=message):
        invert(lenet(), {name: each for name, each in given.items() if each is not None}, KNOWS, FEW)


@pytest.mark.parametrize(
    ("knows", "config", "message"),
    [
        (ThreatModel(shape=SHAPE), FEW, "labels='known', but the threat model has none: give them"),
        (KNOWS, replace(FEW, statistics=0.1), r"statistics=0.1: no batch norm .* set it to 0"),
        (replace(KNOWS, noise=1e6), FEW, r"counts with noise=1e\+06: nothing can be matched"),
    ],
)
def test_what_cannot_be_asked_of_a_model_is_refused(knows: ThreatModel, config, message: str):
    with pytest.raises(ConfigError, match=message):
        invert(lenet(), share(lenet(), photographs(), ONE), knows, config)


def test_statistics_of_some_layers_alone_are_refused():
    model, config = normed(), replace(FEW, statistics=0.1)
    some = dict(list(inputs_of_batch_norms(model, photographs()).items())[1:])
    with pytest.raises(DataError, match="lack 1: give those of all"):
        invert(model, share(model, photographs(), ONE), replace(KNOWS, statistics=some), config)


@pytest.mark.parametrize("config", [FEW, replace(FEW, total_variation=0.1), replace(DLG, steps=20)])
def test_a_model_whose_gradient_says_nothing_of_the_image_is_refused(config: InversionConfig):
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.ReLU(), nn.Linear(8, 4))
    nn.init.constant_(model[1].bias, -100.0)  # no unit passes anything on
    shared = share(model, photographs(), ONE)
    with pytest.raises(ConfigError, match="the gradient of this model does not change with the image"):
        invert(model, shared, KNOWS, config)


def test_a_search_that_runs_off_everywhere_says_so():
    shared = share(lenet(), photographs(), ONE)
    with pytest.raises(DataError, match="problem 0: no start led to finite numbers: use more restarts"):
        invert(lenet(), shared, KNOWS, FEW, loss=lambda *given: functional.cross_entropy(*given) * torch.nan)


def test_problems_of_one_call_differ_in_labels_and_statistics_alone():
    shared = share(lenet(), photographs(), ONE)
    with pytest.raises(ConfigError, match="may differ in labels and statistics only: call once for each"):
        invert_all(lenet(), [shared] * 2, [KNOWS, replace(KNOWS, pruned=True)], FEW)
    for pair in ([], []), ([shared], [KNOWS] * 2):
        with pytest.raises(DataError, match="one of each, at least 1"):
            invert_all(lenet(), *pair, FEW)
