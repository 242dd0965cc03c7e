"""Audits of protections by one to four releases: right ones are acquitted, wrong ones convicted.

The noise is the operating system's. Acquittals hold at 99.99% confidence, their chance to be right by the
theorem; wrong ones are told by so many cells that chance plays no part.
"""

from dataclasses import replace

import pytest
import torch
from channels import promise

from sfumato import protect
from sfumato.dp.audit import OneReleaseConfig, audit_release
from sfumato.dp.audit.one_release import _cells
from sfumato.dp.mechanisms import fresh_noise, seeded_noise
from sfumato.errors import ConfigError
from sfumato.protect.dp_pix import DPPix

SHAPE = (3, 112, 112)


def audited(stated, ran=None, **more):
    """The protection `ran`, a spec or a mechanism, audited by what `stated` states."""
    config = OneReleaseConfig(**{"shape": SHAPE, **more})
    mechanism = ran or stated
    if isinstance(mechanism, str):
        protection = protect.parse(mechanism)

        def mechanism(images):
            return protection.release(images, fresh_noise()).values

    guarantee = protect.parse(stated).guarantee(config.shape, None)
    if guarantee is not None:
        config = replace(config, pixels=guarantee.pixels)
    return audit_release(mechanism, guarantee, config)


# The canaries


@pytest.mark.parametrize(("pixels", "canaries"), [(1, 784), (16, 784), (17, 392), (64, 196)])
def test_a_canary_has_whole_cells_of_its_own(pixels, canaries):
    cells = _cells(OneReleaseConfig(shape=(1, 112, 112), pixels=pixels), torch.Size((28, 28)))
    assert len(cells) == canaries
    assert len(cells.unique()) == cells.numel()
    rows, columns = cells // 112 // 4, cells % 112 // 4
    owners = torch.stack([(rows * 28 + columns)[n].unique() for n in range(canaries)])
    assert len(owners.unique()) == owners.numel()
    at_border = _cells(OneReleaseConfig(shape=(1, 10, 10)), torch.Size((3, 3)))
    assert len(at_border) == 4  # smaller cells are left out


# Right protections


@pytest.mark.parametrize(
    "spec",
    [
        "dp-pix:cell=4,epsilon=0.5",
        "dp-pix:cell=4,epsilon=3",
        "dp-pix:cell=4,epsilon=4,pixels=64",
        "dp-pix:cell=4,epsilon=1,variant=published",
        "dp-pix-gaussian:cell=4,rho=0.1",
        "gaussian:sigma=400",
    ],
)
@pytest.mark.parametrize("releases", [1, 4])
def test_right_protections_are_not_convicted(spec, releases):
    assert not audited(spec, confidence=0.9999, releases=releases).convicted


def test_one_release_proves_much_of_a_right_epsilon():
    result = audited("dp-pix:cell=4,epsilon=3", shape=(3, 224, 224))
    assert 1 < result.lower < 3
    assert (result.runs, result.guesses.canaries) == (1, 56 * 56)


def test_zcdp_is_audited_as_epsilon_and_delta_and_nothing_stated_has_a_bound_and_no_verdict():
    result = audited("dp-pix-gaussian:cell=4,rho=0.1")
    assert (result.definition, result.delta) == ("approximate", 1e-5)
    result = audited("pixelize:cell=4")
    assert not result.convicted
    assert result.lower > 3


# Wrong protections


@pytest.mark.parametrize(
    ("stated", "ran", "more"),
    [
        ("dp-pix:cell=4,epsilon=0.5", "dp-pix:cell=4,epsilon=4", {}),
        ("dp-pix:cell=4,epsilon=2,pixels=64", "dp-pix:cell=4,epsilon=64,pixels=64", {}),
        ("dp-pix-gaussian:cell=4,rho=0.01", "dp-pix-gaussian:cell=4,rho=2", {}),
        ("gaussian:sigma=400", "gaussian:sigma=40", {}),
        # Two of three channels are forgotten.
        ("dp-pix:cell=4,epsilon=1", "dp-pix:cell=4,epsilon=3", {"shape": (3, 224, 224), "releases": 4}),
    ],
)
def test_noise_that_is_too_small_is_convicted_by_one_release_or_four(stated, ran, more):
    assert audited(stated, ran, **more).convicted


def test_one_noise_for_all_cells_is_convicted_by_one_release():
    def mechanism(images):
        protection = protect.parse("pixelize:cell=4")
        values = protection.release(images, fresh_noise()).values.double()
        return (values + 30 * torch.randn(len(values), 1, 1, 1)).clamp(0, 255).to(torch.uint8)

    assert audited("dp-pix:cell=4,epsilon=0.5", mechanism).convicted


@pytest.mark.parametrize("where", ["batch", "calls"])
def test_noise_that_is_used_again_is_convicted_by_one_release(where):
    """The same for all images of a batch, or in every call."""

    def mechanism(images):
        protection = DPPix(4, 0.5)
        if where == "calls":
            return protection.release(images, seeded_noise(1)).values
        seed = int(torch.randint(1 << 30, ()))
        return torch.cat([protection.release(image[None], seeded_noise(seed)).values for image in images])

    assert audited("dp-pix:cell=4,epsilon=0.5", mechanism).convicted


# What cannot be audited


OTHER = replace(promise("pure", 1.0), pixels=4)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda: audited("dp-pix:cell=4,epsilon=1", shape=(3, 12, 12), releases=2),
            "9 canaries in a release and 2 releases: fewer than 20",
        ),
        (
            lambda: audit_release(lambda images: images, OTHER, OneReleaseConfig()),
            "about 4 pixels and the audit about 1",
        ),
        (lambda: OneReleaseConfig(shape=(3, 0, 4)), "shape"),
        (lambda: OneReleaseConfig(pixels=0), "pixels"),
        (lambda: OneReleaseConfig(releases=0), "releases"),
    ],
)
def test_what_cannot_be_audited_is_refused(ask, message):
    with pytest.raises(ConfigError, match=message):
        ask()
