"""The audit of an update: what its report says of updates that leak, that may, and that are bounded."""

import math
from dataclasses import replace
from statistics import NormalDist

import pytest
import torch
from torch import Tensor, nn

from sfumato.attack.gradient_inversion import share
from sfumato.attack.imprint import imprint_
from sfumato.attack.updates import LocalTraining, Noise, Update, of_gradient
from sfumato.audits.findings import Finding, Report, as_text
from sfumato.audits.update import Truth, UpdateAuditConfig, audit_update
from sfumato.errors import ConfigError, DataError
from sfumato.networks import LeNet

SHAPE = (3, 12, 12)
LABELS = torch.tensor([2, 0, 2])
QUICK = UpdateAuditConfig(search_steps=20, draws=4096, total_variation=0.0)


def seeded(network: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if network == "lenet":
            return LeNet(SHAPE, 4)
        return nn.Sequential(nn.Flatten(), nn.Linear(432, 64), nn.ReLU(), nn.Linear(64, 4))


def photographs(count: int = 3) -> Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(1))


def finding(report: Report, name: str) -> Finding:
    (found,) = [each for each in report.findings if each.name == name]
    return found


def audited(network: str, update: Update, truth: Truth | None = None, **settings: int) -> Report:
    known = Truth(photographs(update.training.images), LABELS[: update.training.images])
    return audit_update(
        seeded(network), update, SHAPE, truth=truth or known, config=replace(QUICK, **settings)
    )


def test_a_gradient_behind_a_linear_layer_gives_its_images_and_says_so_first():
    report = audited("mlp", of_gradient(share(seeded("mlp"), photographs(), LABELS), images=3))
    assert report.sentence == (
        "Do not send such an update: 3 of its 3 images come back from it pixel by pixel."
    )
    exact = finding(report, "exact")
    assert exact.verdict == "leaks"
    assert min(exact.figures["psnr"]) > 60
    assert finding(report, "labels").figures["right"] == 3
    assert any("Begin the network with a convolution" in change for change in report.changes)


def test_a_search_is_judged_by_the_truth():
    gradient = share(seeded("lenet"), photographs(1), LABELS[:1])
    report = audited("lenet", of_gradient(gradient, images=1), search_steps=300)
    search = finding(report, "search")
    assert search.verdict == "leaks"
    assert search.figures["psnr"][0] >= 20
    assert report.sentence.endswith("1 of its 1 images come back from it by a search.")
    assert "the first layer with parameters is Conv2d" in finding(report, "exact").sentence


def test_without_the_truth_a_search_shows_pictures_and_claims_nothing():
    gradient = share(seeded("lenet"), photographs(1), LABELS[:1])
    report = audited("lenet", of_gradient(gradient, images=1), Truth())
    search = finding(report, "search")
    assert search.verdict == "not shown"
    assert "psnr" not in search.figures
    assert len(search.pictures[0]) == 1
    assert finding(report, "labels").figures["counts"] == {"2": 1}  # exact, for one image


def test_local_steps_end_the_exact_reading_and_the_reason_is_said():
    trained = {"local_steps": 4, "local_rate": 0.05, "local_batch": 1}
    change = share(seeded("mlp"), photographs(2), LABELS[:2], **trained)
    training = LocalTraining(images=2, steps=4, rate=0.05, batch=1)
    report = audited("mlp", Update(change=change, training=training))
    assert "one step of plain SGD, and this update is of 4" in finding(report, "exact").sentence
    assert any("mini-batches keep their order" in limit for limit in report.limits)


def test_one_step_of_any_rate_is_a_gradient():
    change = {name: 0.3 * each for name, each in share(seeded("mlp"), photographs(), LABELS).items()}
    report = audited("mlp", Update(change=change, training=LocalTraining(images=3, rate=0.3)))
    assert finding(report, "exact").verdict == "leaks"


def test_the_update_is_read_at_the_parameters_that_it_began_with():
    began = {name: 2 * each for name, each in seeded("mlp").state_dict().items()}
    model = seeded("mlp")
    model.load_state_dict(began)
    update = of_gradient(share(model, photographs(), LABELS), images=3)
    assert finding(audited("mlp", replace(update, before=began)), "exact").verdict == "leaks"


@pytest.mark.parametrize("steps", [1, 16])
def test_noise_bounds_as_theorem_2_of_hayes_et_al_says(steps: int):
    change = share(seeded("mlp"), photographs(), LABELS)
    noisy = {name: each + 0.5 * torch.randn(each.shape) for name, each in change.items()}
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
    update = replace(
        of_gradient(share(seeded("mlp"), photographs(), LABELS), images=3),
        noise=Noise(noise_multiplier=0.2, clipping_norm=1.0),
    )
    report = audited("mlp", update)
    assert finding(report, "bound").verdict == "not shown"
    assert any("Add more noise" in change for change in report.changes)


def test_a_model_that_is_made_to_read_images_is_named_first():
    model = seeded("mlp")
    imprint_(model[1], model[3], photographs(100).flatten(1).mean(1))
    update = of_gradient(share(model, photographs(), LABELS), images=3)
    report = audit_update(model, update, SHAPE, config=replace(QUICK, search_steps=0))
    assert report.sentence.startswith("Do not train this model")
    assert "100% of the rows of 1" in finding(report, "imprint").sentence


def test_the_report_is_text_and_the_model_is_left_as_it_is():
    model = seeded("mlp")
    before = {name: each.clone() for name, each in model.state_dict().items()}
    report = audit_update(
        model, of_gradient(share(model, photographs(), LABELS), images=3), SHAPE, config=QUICK
    )
    assert as_text(report).startswith(report.sentence)
    assert all(torch.equal(each, model.state_dict()[name]) for name, each in before.items())


def test_a_truth_of_other_images_and_settings_of_nothing_are_refused():
    update = of_gradient(share(seeded("mlp"), photographs(), LABELS), images=3)
    with pytest.raises(DataError, match="the truth has 2 images"):
        audited("mlp", update, Truth(photographs(2)))
    with pytest.raises(ConfigError, match="search_steps=-1: at least 0"):
        UpdateAuditConfig(search_steps=-1)
