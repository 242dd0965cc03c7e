"""The audit of an update: what its report says of updates that leak, that may, and that are bounded."""

import copy
import math
import re
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import pytest
import torch
from imprinted import imprint_
from torch import Tensor, nn

from sfumato.attack.updates import LocalTraining, Noise, Update, of_states, rounding, significant_bits
from sfumato.attack.victim import share
from sfumato.audits.findings import Finding, Report, as_text
from sfumato.audits.update import USUAL_SEARCH, Truth, UpdateAuditConfig, audit_update
from sfumato.errors import ConfigError, DataError
from sfumato.networks import LeNet

SHAPE = (3, 12, 12)
LABELS = torch.tensor([2, 0, 2])
ALGEBRA = {"search": None, "draws": UpdateAuditConfig().draws}
QUICK = UpdateAuditConfig(search=replace(USUAL_SEARCH, steps=20, total_variation=0.0), draws=4096)


def seeded(network: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if network == "lenet":
            return LeNet(SHAPE, 4)
        return nn.Sequential(nn.Flatten(), nn.Linear(432, 64), nn.ReLU(), nn.Linear(64, 4))


def photographs(count: int = 3) -> Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(1))


def of_gradient(gradient: dict[str, Tensor], *, images: int = 1, **known: Any) -> Update:
    return Update(change=gradient, training=LocalTraining(images=images), **known)


def of_images(network: str | nn.Module = "mlp", count: int = 3, **known: Any) -> Update:
    """The gradient of some images."""
    model = seeded(network) if isinstance(network, str) else network
    return of_gradient(share(model, photographs(count), LABELS[:count]), images=count, **known)


def finding(report: Report, name: str) -> Finding:
    (found,) = [each for each in report.findings if each.name == name]
    return found


def audited(network: str | nn.Module, update: Update, truth: Truth | None = None, **settings: Any) -> Report:
    known = Truth(photographs(update.training.images), LABELS[: update.training.images])
    model = seeded(network) if isinstance(network, str) else network
    return audit_update(model, update, SHAPE, truth=truth or known, config=replace(QUICK, **settings))


def worst(report: Report) -> float:
    """The PSNR of the worst image that is read exactly."""
    return min(finding(report, "exact").figures["psnr"])


def test_a_gradient_behind_a_linear_layer_gives_its_images_and_says_so_first():
    report = audited("mlp", of_images())
    assert report.sentence == (
        "Do not send such an update: 3 of its 3 images come back from it pixel by pixel."
    )
    exact = finding(report, "exact")
    assert exact.verdict == "leaks"
    assert worst(report) > 60
    assert finding(report, "labels").figures["right"] == 3
    assert any("Begin the network with a convolution" in change for change in report.changes)


def test_a_search_is_judged_by_the_truth_and_without_it_shows_pictures_and_claims_nothing():
    longer = replace(USUAL_SEARCH, steps=300, total_variation=0.0)
    report = audited("lenet", of_images("lenet", 1), search=longer)
    search = finding(report, "search")
    assert search.verdict == "leaks"
    assert search.figures["psnr"][0] >= 20
    assert report.sentence.endswith("1 of its 1 images come back from it by a search.")
    assert "the first layer with parameters is Conv2d" in finding(report, "exact").sentence
    report = audited("lenet", of_images("lenet", 1), Truth())
    search = finding(report, "search")
    assert search.verdict == "not shown"
    assert "psnr" not in search.figures
    assert len(search.pictures[0]) == 1
    assert finding(report, "labels").figures["counts"] == {"2": 1}  # exact, for one image


def trained(images: int, bias: bool, **options: Any) -> tuple[nn.Module, Update]:
    """A client's network before, and its update by an optimiser with some of a client's usual options."""
    steps, batch = options.pop("steps", 1), options.pop("batch", None) or images
    proximal, absolute, clip = (options.pop(name, 0.0) for name in ("proximal", "absolute", "clip"))
    optimiser, some_decay = options.pop("optimiser", torch.optim.SGD), options.pop("biases_decay", True)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(432, 96, bias=bias), nn.ReLU(), nn.Linear(96, 8))
    client, images_, labels = copy.deepcopy(model), photographs(images), torch.tensor([3, 1, 4, 7])[:images]
    before = {name: each.detach().clone() for name, each in client.state_dict().items()}
    groups = [{"params": [p for p in client.parameters() if p.ndim == 2]}]
    groups += [{"params": [p for p in client.parameters() if p.ndim == 1]}]
    groups[1] |= {} if some_decay else {"weight_decay": 0.0}
    stepper = optimiser(groups, **{"lr": 0.05, **options})
    for step in range(steps):
        stepper.zero_grad()
        rows = slice(start := step * batch % images, start + batch)
        loss = nn.functional.cross_entropy(client(images_[rows]), labels[rows])
        for name, each in client.named_parameters():
            loss = loss + proximal / 2 * (each - before[name]).square().sum() + absolute * each.abs().sum()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(client.parameters(), clip)
        stepper.step()
    local = LocalTraining(images=images, steps=steps, rate=0.05, batch=None if batch == images else batch)
    return model, of_states(before, client.state_dict(), local)


USUAL = [
    {},
    {"weight_decay": 1e-4},
    {"weight_decay": 5e-4, "biases_decay": False},
    {"absolute": 1e-4},
    {"absolute": 1e-4, "weight_decay": 1e-3},
    {"clip": 0.1},
    {"steps": 5},
    {"steps": 5, "momentum": 0.9},
    {"steps": 5, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-3},
    {"steps": 5, "proximal": 0.1},
    {"steps": 8, "batch": 1},
    {"steps": 3, "clip": 0.5, "weight_decay": 5e-3},
]


@pytest.mark.parametrize("options", USUAL, ids=str)
@pytest.mark.parametrize(("images", "bias"), [(1, True), (4, True), (1, False)])
def test_the_usual_options_of_a_client_hide_no_image(images: int, bias: bool, options: dict):
    model, update = trained(images, bias, **options)
    report = audited(model, update, Truth(photographs(images)), search=None, draws=20_000)
    assert worst(report) > 30
    decays = bool({"weight_decay", "absolute"} & set(options))
    assert any("A decay of weights was found and subtracted" in limit for limit in report.limits) == decays


@pytest.mark.parametrize("others", [0, 2])
def test_images_of_earlier_rounds_come_back_with_those_of_this_one(others: int):
    """A momentum that a client kept, or a sum over rounds: a mixture of gradients at other weights."""
    model, update = trained(2, True, steps=4)
    everybody = photographs(2 + others)
    earlier = share(model, everybody[-2:], torch.tensor([1, 5]))
    sent = {name: each + 0.05 * 0.9 * earlier[name] for name, each in update.change.items()}
    report = audited(model, of_gradient(sent, images=2), Truth(), search=None)
    assert finding(report, "exact").figures["images"] == 2 + others


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("images", [1, 4])
def test_the_decay_is_found_in_16_bits_and_in_a_share_of_a_sum_of_clients(images: int, kind: torch.dtype):
    model, update = trained(images, True, weight_decay=5e-4)
    sent = {name: (each / 10).to(kind) for name, each in update.change.items()}
    report = audited(model, of_gradient(sent, images=images), Truth(photographs(images)), **ALGEBRA)
    assert worst(report) > 30


@pytest.mark.parametrize("optimiser", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("steps", [1, 5])
def test_signs_are_no_image(optimiser: type, steps: int):
    model, update = trained(1, True, optimiser=optimiser, steps=steps)
    sentence = finding(audited(model, update, Truth(), **ALGEBRA), "exact").sentence
    assert "these are signs, as of signSGD and of the first steps of Adam" in sentence


@pytest.mark.parametrize("activation", [nn.Sigmoid, nn.GELU])
def test_one_image_comes_back_behind_any_activation_and_from_8_bits(activation: type[nn.Module]):
    model = nn.Sequential(nn.Flatten(), nn.Linear(432, 64), activation(), nn.Linear(64, 4))
    gradient = of_images(model, 1).change
    steps = {name: each.abs().amax() / 127 for name, each in gradient.items()}
    rounded = {name: (each / steps[name]).round() * steps[name] for name, each in gradient.items()}
    for sent, decibels in ((gradient, 100), (rounded, 30)):
        assert worst(audited(model, of_gradient(sent), Truth(photographs(1)), search=None)) > decibels


def test_a_search_says_that_mini_batches_keep_their_order():
    limits = audited(*trained(2, True, steps=4, batch=1), Truth(), search=None).limits
    assert any("mini-batches keep their order" in limit for limit in limits)


@pytest.mark.parametrize(
    ("model", "shape", "message"),
    [
        (seeded("mlp"), (3, 32, 32), "3072 numbers; its first layer takes 432 numbers: give the shape"),
        (seeded("lenet"), (1, 12, 12), "of 1 channels .* its first layer takes 3 channels"),
        (seeded("lenet"), (3, 40, 40), "--shape 3x40x40: the model does not take such images"),
        (nn.Conv2d(3, 4, 3), SHAPE, r"makes \(2, 4, 10, 10\) of two such images: it has to return"),
    ],
)
def test_a_model_that_does_not_take_such_images_is_refused_in_one_sentence(model, shape, message: str):
    update = of_gradient({name: each.detach() for name, each in model.named_parameters()})
    with pytest.raises(ConfigError, match=message):
        audit_update(model, update, shape)


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        (Truth(labels=torch.tensor([0, 9, 1])), "the model has the classes 0 to 3: give one for each image"),
        (Truth(labels=torch.tensor([0, 1])), "the model has the classes 0 to 3: give one for each image"),
        (Truth(photographs(2)), "the truth has 2 images"),
    ],
)
def test_a_truth_of_other_images_or_labels_is_refused(truth: Truth, message: str):
    with pytest.raises(DataError, match=message):
        audited("mlp", of_images(), truth)
    with pytest.raises(ConfigError, match="draws=0: at least 1"):
        UpdateAuditConfig(draws=0)


def test_one_step_of_any_rate_is_a_gradient_and_read_at_the_parameters_that_it_began_with():
    change = {name: 0.3 * each for name, each in of_images().change.items()}
    report = audited("mlp", Update(change=change, training=LocalTraining(images=3, rate=0.3)))
    assert finding(report, "exact").verdict == "leaks"
    model, began = seeded("mlp"), {name: 2 * each for name, each in seeded("mlp").state_dict().items()}
    model.load_state_dict(began)
    assert finding(audited("mlp", of_images(model, before=began)), "exact").verdict == "leaks"


@pytest.mark.parametrize("steps", [1, 16])
def test_noise_bounds_as_theorem_2_of_hayes_et_al_says(steps: int):
    noisy = {name: each + 0.5 * torch.randn(each.shape) for name, each in of_images().change.items()}
    update = Update(
        change=noisy,
        training=LocalTraining(images=3, steps=steps, rate=0.1),
        noise=Noise(noise_multiplier=4.0, clipping_norm=1.0),
    )
    bound = finding(audited("mlp", update), "bound")
    normal = NormalDist()
    for among, most in ((10, 0.1), (1000, 0.001)):
        expected = normal.cdf(normal.inv_cdf(most) + math.sqrt(steps) / 4)
        assert bound.figures["bounds"][str(among)] == pytest.approx(expected, rel=1e-6)
    assert bound.verdict == "bounded"


def test_little_noise_is_not_called_a_bound():
    report = audited("mlp", of_images(noise=Noise(noise_multiplier=0.2, clipping_norm=1.0)))
    assert finding(report, "bound").verdict == "not shown"
    assert any("Add more noise" in change for change in report.changes)


def test_a_model_that_is_made_to_read_images_is_named_first():
    model = seeded("mlp")
    imprint_(model[1], model[3], photographs(100).flatten(1).mean(1))
    report = audited(model, of_images(model), Truth(), search=None)
    assert report.sentence.startswith("Do not train this model")
    assert "100% of the rows of 1" in finding(report, "imprint").sentence


def test_the_report_is_text_and_the_model_is_left_as_it_is():
    model = seeded("mlp")
    before = {name: each.clone() for name, each in model.state_dict().items()}
    report = audited(model, of_images(model), Truth())
    assert as_text(report).startswith(report.sentence)
    assert all(torch.equal(each, model.state_dict()[name]) for name, each in before.items())


@pytest.mark.parametrize(("kind", "decibels"), [(torch.float16, 60), (torch.bfloat16, 45)])
@pytest.mark.parametrize("images", [1, 3])
def test_images_come_back_from_numbers_of_16_bits(kind: torch.dtype, decibels: float, images: int):
    gradient = of_images("mlp", images).change
    for kept in (kind, torch.float32):  # as a file of 16 bits, and in one of 32 that holds such numbers
        halved = {name: each.to(kind).to(kept) for name, each in gradient.items()}
        report = audited("mlp", of_gradient(halved, images=images), search=None)
        assert worst(report) > decibels
        assert any("significant bits (half precision" in limit for limit in report.limits)
    limits = audited("mlp", of_gradient(gradient, images=images), search=None).limits
    assert not any("half precision" in limit for limit in limits)


def test_images_come_back_from_a_difference_of_two_states_of_16_bits():
    model = seeded("mlp")
    gradient = of_images(model, 1).change
    before = {name: each.half() for name, each in model.state_dict().items()}
    after = {name: each - (0.1 * gradient[name]).half() for name, each in before.items()}
    report = audited("mlp", of_states(before, after, LocalTraining(images=1, rate=0.1)), search=None)
    assert worst(report) > 40


def test_rounding_is_measured_by_the_numbers_and_whatever_they_are_kept_in():
    numbers = torch.randn(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kinds = {torch.bfloat16: 8, torch.float16: 11, torch.float32: 24, torch.float64: 53}
    for kind, bits in kinds.items():
        assert significant_bits(numbers.to(kind)) == bits
        assert significant_bits(numbers.to(kind).double() / 65536) == bits  # the scale of a loss
        error = (numbers.to(kind).double() - numbers).square().mean().sqrt()
        assert error <= rounding(numbers.to(kind)[None], torch.zeros(1, 1000))
    # A difference of two states is known to no more than these are.
    before, step = numbers.float(), 1e-4 * numbers.float().flip(0)
    change = before - (before - step)
    error = (change.double() - step.double()).square().mean().sqrt()
    assert error <= rounding(change[None], before[None]) < 10 * error


@pytest.mark.parametrize("silent", ["", "3"])  # all of it, or the last layer alone
def test_where_nothing_was_sent_no_label_is_read(silent: str):
    gradient = of_images("mlp", 1).change
    sent = {name: 0 * each if name.startswith(silent) else each for name, each in gradient.items()}
    report = audited("mlp", of_gradient(sent), Truth())
    labels = finding(report, "labels")
    assert labels.verdict == "not shown"
    assert labels.sentence == "No label was read: the gradient of 3 is 0 everywhere and tells no class."
    assert (report.sentence == "The update is 0 everywhere: no image and no label is in it.") == (not silent)
    assert (finding(report, "exact").verdict == "leaks") == bool(silent)


@pytest.mark.parametrize("wrapper", ["_module.", "module.", "_orig_mod.", "module._orig_mod."])
def test_names_that_wrappers_give_are_those_of_the_model(wrapper: str):
    gradient = of_images("mlp", 1).change
    named = {wrapper + name: each for name, each in gradient.items()}
    assert finding(audited("mlp", of_gradient(named), search=None), "exact").verdict == "leaks"
    # On either side, and around a part of it.
    wrapped = nn.Module()
    wrapped.add_module("module", seeded("mlp"))
    _, fitted = of_gradient(gradient).fit(wrapped)
    assert set(fitted.change) == {f"module.{name}" for name in gradient}
    parts = {name.replace("1.", "1._checkpoint_wrapped_module."): each for name, each in gradient.items()}
    assert set(of_gradient(parts).fit(seeded("mlp"))[1].change) == set(gradient)


@pytest.mark.parametrize("other", ["module.9.weight", "module.1.weight"])
def test_names_that_fit_twice_or_not_at_all_are_refused(other: str):
    update = of_images("mlp", 1)
    twice = {**update.change, other: update.change["1.weight"]}
    with pytest.raises(DataError, match=f"the update has {re.escape(other)}, which the model does not have"):
        of_gradient(twice).fit(seeded("mlp"))


def test_a_model_in_16_bits_is_read_in_32():
    gradient = of_images("mlp", 1).change
    model, fitted = of_gradient(gradient).fit(seeded("mlp").half())
    assert {each.dtype for each in (*model.parameters(), *fitted.change.values())} == {torch.float32}
    assert torch.equal(fitted.change["1.weight"], gradient["1.weight"])


def test_a_sum_over_the_batch_is_read_as_its_mean_and_a_scaled_loss_is_refused():
    images, labels = photographs(8), torch.tensor([0, 1, 2, 2, 2, 3, 3, 2])
    gradient = share(seeded("mlp"), images, labels)
    counts = {}
    for factor in (1, 8):
        sent = of_gradient({name: factor * each for name, each in gradient.items()}, images=8)
        report = audited("mlp", sent, Truth(images, labels), search=None, draws=1)
        counts[factor] = finding(report, "labels").figures
    assert counts[1] == counts[8]
    assert counts[1]["right"] >= 7
    scaled = of_gradient({name: 1024 * each for name, each in gradient.items()}, images=8)
    sentence = finding(audited("mlp", scaled, Truth(images, labels), search=None, draws=1), "labels").sentence
    assert "larger than cross-entropy of 8 images can make it" in sentence
    assert "undo the scaling of the loss first" in sentence


def test_a_label_that_the_loss_does_not_single_out_is_not_called_certain():
    model, images = seeded("mlp"), photographs(1)
    smoothed = nn.functional.cross_entropy(model(images), LABELS[:1], label_smoothing=1.0)
    parts = torch.autograd.grad(smoothed, list(model.parameters()))
    gradient = dict(zip(dict(model.named_parameters()), parts, strict=True))
    labels = finding(audited("mlp", of_gradient(gradient), Truth(), search=None), "labels")
    assert labels.verdict == "not shown"
    assert labels.sentence == "The classes of the 1 images are estimated from the last layer."


def test_labels_are_not_read_from_a_layer_that_does_not_give_the_logits():
    class Disordered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(16, 4)
            self.body = nn.Linear(432, 16)

        def forward(self, images: Tensor) -> Tensor:
            return self.head(self.body(images.flatten(1)).relu())

    def labels(model: nn.Module) -> Finding:
        return finding(audited(model, of_images(model, 1), Truth(), search=None), "labels")

    words = "body, the last layer in the order of the model's parts, does not give its logits"
    assert words in labels(Disordered()).sentence
    # Log-probabilities are as good: they have the same gradient.
    assert labels(nn.Sequential(*seeded("mlp"), nn.LogSoftmax(1))).verdict == "leaks"


def test_more_images_than_were_stated_are_said():
    update = of_gradient(of_images().change, images=1)
    sentence = finding(audited("mlp", update, Truth(), search=None), "exact").sentence
    assert "3 images are read" in sentence
    assert "1 were stated: the client trained on others as well" in sentence
