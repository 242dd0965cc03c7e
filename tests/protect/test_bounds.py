"""The bounds of parameters: what protects nothing is refused, and so is what cannot be computed."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pictures import photographs

from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import SfumatoError, SpecError
from sfumato.protect import expand, parse
from sfumato.protect.dp_pix import DPPix, DPPixGaussian
from sfumato.protect.feature import Feature
from sfumato.protect.parameters import BOUNDS, LEAST_DIFFERENCE
from sfumato.protect.pixels import Blur, CentreBlur, Gaussian, Pixelize, blur
from sfumato.protect.release import IMAGES, KINDS

CLEAR = ", or write none to send images in clear"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("pixelize:cell=1", "cell=1 leaves the image as it is: choose a cell of at least 2" + CLEAR),
        ("blur:radius=0.01", "radius=0.01 leaves the image nearly as it is: choose a radius of at least 0.5"),
        ("blur:radius=0.49", "radius=0.49 leaves the image nearly as it is"),
        ("centre-blur:radius=0.4", "radius=0.4 leaves the image nearly as it is"),
        ("centre-blur:radius=4,share=0.05", "choose a share of at least 0.1" + CLEAR),
        ("block:share=1e-9", "share=1e-09 leaves the image nearly as it is: choose a share of at least 0.1"),
        ("gaussian:sigma=0.001", "choose a sigma of at least 2" + CLEAR),
        ("gaussian:sigma=1.999", "sigma=1.999 leaves the image nearly as it is"),
        ("gaussian:sigma=1e-320", "sigma=1e-320 leaves the image nearly as it is"),
        (
            "dp-pix:cell=1,epsilon=1000000",
            "cell=1 with epsilon=1000000 leaves the image nearly as it is: choose a cell of at least 2, or "
            "epsilon of at most 180" + CLEAR,
        ),
        ("dp-pix:cell=1,epsilon=181", "epsilon of at most 180"),
        ("dp-pix:cell=1,epsilon=1000,pixels=5", "epsilon of at most 901"),
        ("dp-pix:cell=1,epsilon=181,variant=published", "epsilon of at most 180"),
        ("dp-pix-gaussian:cell=1,rho=8129", "rho of at most 8128"),
        ("mask:artefact=m,keep=0.999", "keep=0.999 leaves the image nearly as it is: choose at most 0.99"),
    ],
)
def test_a_parameter_that_protects_nothing_is_refused_with_what_to_choose(spec: str, message: str):
    with pytest.raises(SpecError) as caught:
        parse(spec)
    assert message in str(caught.value)


MADE = [(Pixelize, 1), (Blur, 0.3), (CentreBlur, 3, 0.01), (Gaussian, 1.0), (DPPix, 1, 1e6)]


@pytest.mark.parametrize("made", [*MADE, (DPPixGaussian, 1, 1e6)])
def test_it_is_the_protection_itself_that_refuses(made):
    with pytest.raises(SpecError, match="as it is: choose"):
        made[0](*made[1:])


@pytest.mark.parametrize(
    "spec",
    [
        "pixelize:cell=2",
        "pixelize:cell=1/8",
        "blur:radius=0.5",
        "centre-blur:radius=0.5,share=0.1",
        "block:share=0.1",
        "gaussian:sigma=2",
        "dp-pix:cell=1,epsilon=180",
        "dp-pix:cell=1,epsilon=900,pixels=5",
        "dp-pix:cell=2,epsilon=1000000",
        "dp-pix-gaussian:cell=1,rho=8128",
        "dp-pix-gaussian:cell=2,rho=1000000",
        "dp-pix-gaussian:cell=10,rho=1e-07",
        "dp-pix-gaussian:cell=1,rho=3,pixels=7056",
        "mask:artefact=m,keep=0.99",
        "mask:artefact=/a folder/with=signs/m.safetensors,keep=0.3",
        "mask:artefact=../ä.safetensors,keep=0.001,values=soft",
        "feature:artefact=a b,noise=1,norm=3.5",
        "answer:artefact=a",
        "outside:index=a folder/i.csv",
        "dp-pix:cell=1/8,epsilon=3@faces:file=m,margin=0.5,missing=all",
    ],
)
def test_a_spec_up_to_its_bounds_is_its_own_canonical_form(spec: str):
    protection = parse(spec, takes=KINDS)
    assert protection.spec == spec
    assert parse(spec, takes=KINDS) == protection


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        (" dp-pix-gaussian: rho=5e-1 , cell=4, pixels=16 ", "dp-pix-gaussian:cell=4,rho=0.5,pixels=16"),
        ("dp-pix-gaussian:rho=0.50,pixels=16,cell=4", "dp-pix-gaussian:cell=4,rho=0.5,pixels=16"),
        ("dp-pix:cell=2/16,epsilon=3", "dp-pix:cell=1/8,epsilon=3"),
        ("feature:noise=0.50,artefact=f.safetensors", "feature:artefact=f.safetensors,noise=0.5"),
    ],
)
def test_one_protection_has_one_canonical_spec(written: str, canonical: str):
    assert parse(written, takes=KINDS).spec == canonical


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("pixelize:cell=1/8,1/4,6", ["pixelize:cell=1/8", "pixelize:cell=1/4", "pixelize:cell=6"]),
        ("blur:radius=2,4@box:file=b", ["blur:radius=2@box:file=b", "blur:radius=4@box:file=b"]),
    ],
)
def test_a_list_names_a_protection_for_each_of_its_values(spec: str, named: list[str]):
    assert [each.spec for each in expand(spec)] == named


@pytest.mark.parametrize("spec", ["dp-pix:cell=1,epsilon=180", "dp-pix-gaussian:cell=1,rho=8128"])
def test_at_the_bound_the_noise_of_single_pixels_is_that_of_the_gaussian(spec: str):
    grey = torch.full((1, 1, 500, 500), 128, dtype=torch.uint8)
    noise = parse(spec).release(grey, seeded_noise(0)).images().double() - 128
    # The variance of the discrete Laplace distribution is 1/6 less; 250,000 values.
    assert noise.std().item() == pytest.approx(LEAST_DIFFERENCE, rel=0.03)


def test_noise_that_was_for_more_pixels_than_an_image_has_is_judged_by_the_image():
    protection = parse("dp-pix-gaussian:cell=1,rho=1000000,pixels=10000")
    large = torch.zeros(1, 1, 100, 100, dtype=torch.uint8)
    assert protection.release(large, seeded_noise(0)).values.shape == large.shape
    with pytest.raises(SpecError, match="cell=1 with rho=1000000 leaves the image nearly as it is"):
        protection.release(large[:, :, :8, :8].contiguous(), seeded_noise(0))


def test_the_least_radius_is_where_a_blur_begins_to_be_seen(shared_data):
    """The median of faces of LFW passes the bound between 0.4 and 0.5."""
    faces = photographs(shared_data, "lfw_faces_84", range(0, 8000, 100)).numpy()
    medians = [
        np.median(np.sqrt(((blur(faces, radius=radius).astype(float) - faces) ** 2).mean((1, 2, 3))))
        for radius in (0.4, BOUNDS["blur"]["radius"][0])
    ]
    assert medians[0] < LEAST_DIFFERENCE < medians[1]


# What cannot be computed.

EXTREMES = [0.0, -0.0, 5e-324, 1e-320, 1e-300, 1e-12, 0.5, 1.0, 2.0, 40.0, 1e12, 1e18, 1e300, 1.7e308]
NUMBERS = st.sampled_from(EXTREMES) | st.floats(allow_nan=False, allow_infinity=False)
COUNTS = st.sampled_from([0, 1, 2, 3, 255, 65_535, 65_536, 2**31, 2**63, 10**30, 10**400]) | st.integers()
SPECS = (
    st.builds("blur:radius={}".format, NUMBERS)
    | st.builds("pixelize:cell={}".format, COUNTS)
    | st.builds("gaussian:sigma={}".format, NUMBERS)
    | st.builds(
        "dp-pix:cell={},epsilon={},pixels={},variant={}".format,
        *(COUNTS, NUMBERS, COUNTS, st.sampled_from(["sound", "published"])),
    )
    | st.builds("dp-pix-gaussian:cell={},rho={},pixels={}".format, COUNTS, NUMBERS, COUNTS)
    | st.builds("block:share={}".format, NUMBERS)
    | st.builds("centre-blur:radius={},share={}".format, NUMBERS, NUMBERS)
)
SHAPES = st.sampled_from([(1, 1, 1), (3, 4, 7), (1, 9, 9), (3, 8, 8)])


@settings(max_examples=1000, deadline=None)
@given(spec=SPECS, shape=SHAPES, asked=st.none() | st.sampled_from([1, 2, 10**9, 10**30]))
@example(spec="gaussian:sigma=1e-320", shape=(3, 4, 7), asked=None)
@example(spec="gaussian:sigma=1e308", shape=(3, 4, 7), asked=None)
@example(spec="blur:radius=1e308", shape=(3, 4, 7), asked=None)
@example(spec="blur:radius=1e-320", shape=(3, 4, 7), asked=None)
@example(spec="dp-pix:cell=2,epsilon=1e-320", shape=(3, 4, 7), asked=None)
@example(spec="dp-pix:cell=2,epsilon=1e308,variant=published", shape=(3, 4, 7), asked=None)
@example(spec=f"dp-pix:cell=2,epsilon=3,pixels={10**30}", shape=(3, 4, 7), asked=None)
@example(spec="dp-pix:cell=2,epsilon=1e-12,pixels=1000000000", shape=(3, 4, 7), asked=None)
@example(spec="dp-pix-gaussian:cell=65535,rho=1e-12,pixels=1000000000", shape=(3, 4, 7), asked=None)
@example(spec="dp-pix-gaussian:cell=2,rho=5e-324", shape=(3, 4, 7), asked=None)
@example(spec="dp-pix-gaussian:cell=2,rho=1e308", shape=(3, 4, 7), asked=None)
@example(spec=f"pixelize:cell={10**30}", shape=(3, 4, 7), asked=None)
def test_any_number_is_refused_or_protects_with_a_finite_guarantee(spec: str, shape, asked: int | None):
    batch = torch.full((2, *shape), 77, dtype=torch.uint8)
    try:
        protection = parse(spec)
        released = protection.release(batch, seeded_noise(0))
    except SpecError:
        return
    assert released.images().shape == batch.shape
    guarantee = protection.guarantee(shape, asked)
    if guarantee is None:
        return
    assert guarantee.value > 0
    # An epsilon may be 0, where delta is more than images can be told apart by.
    for stated in (guarantee, guarantee.to("concentrated"), guarantee.to("approximate", delta=1e-6)):
        assert 0 <= stated.value <= stated.whole_image * (1 + 1e-12)
        assert math.isfinite(stated.whole_image)


@settings(max_examples=500, deadline=None)
@given(noise=NUMBERS, norm=NUMBERS)
@example(noise=1e-320, norm=3.0)
@example(noise=0.5, norm=1e-320)
@example(noise=1e308, norm=1e-6)
def test_a_private_feature_is_refused_or_has_a_finite_guarantee(noise: float, norm: float):
    try:
        guarantee = parse(f"feature:artefact=f,noise={noise},norm={norm}", takes=["numbers"]).guarantee(
            (3, 8, 8)
        )
    except SpecError:
        return
    assert guarantee is None if noise == 0 else 0 < guarantee.value < math.inf


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gaussian:sigma=1e308", r"\.\.\. \(309 characters\) is too large: choose at most 1000000000"),
        ("blur:radius=10001", "radius=10001 is too large: choose at most 10000"),
        ("pixelize:cell=65536", "cell=65536 is too large: choose at most 65535"),
        ("dp-pix:cell=2,epsilon=1e-13", "epsilon=1e-13 is too small to compute with: choose at least 1e-12"),
        ("dp-pix:cell=2,epsilon=1e13", "epsilon=10000000000000 is too large: choose at most 1000"),
        ("dp-pix:cell=2,epsilon=1e-9,pixels=1000000", "beyond 64 bits: choose fewer pixels, or a lar"),
        ("dp-pix-gaussian:cell=9999,rho=1e-12,pixels=1000000000", "needs noise beyond 64 bits"),
        ("block:share=1.5", "share=1.5 is too large: choose at most 1"),
        ("pixelize:cell=1/0", "cell=1/0 is not a whole number or a share of the image"),
        ("pixelize:cell=-1/8", "cell=-1/8 is not a whole number or a share of the image"),
        ("pixelize:cell=1/8/2", "is not a whole number or a share of the image, such as 1/8"),
        ("pixelize:cell=0/8", "cell=0 is a share of the shorter side of an image: choose one above 0"),
        ("pixelize:cell=3/4", "cell=3/4 is a share of the shorter side of an image: choose .* at most 1/2"),
        ("dp-pix:cell=8/8,epsilon=1", "dp-pix: cell=1 is a share of the shorter side"),
        ("pixelize:cell=0.125", "cell=0.125 is not a whole number"),
        ("blur:radius=1/8", "radius=1/8 is not a number"),
        ("dp-pix-gaussian:cell=4", r"rho is missing: write dp-pix-gaussian:rho=\.\.\."),
        ("dp-pix-gaussian:rho=1", r"cell is missing: write dp-pix-gaussian:cell=\.\.\."),
        ("dp-pix-gaussian:cell=4,rho=0", "rho=0 is not above 0: smaller hides more"),
        ("dp-pix-gaussian:cell=4,rho=-0.5", r"rho=-0\.5 is not above 0: smaller hides more"),
        ("dp-pix-gaussian:cell=0,rho=1", "cell=0 is not above 0: the paper uses 2 to 10"),
        ("dp-pix-gaussian:cell=4,rho=1,pixels=0", "pixels=0 is not above 0: 1 or more"),
        ("dp-pix-gaussian:cell=4,rho=nan", "rho=nan is not a number"),
        ("dp-pix-gaussian:cell=4,rho=inf", "rho=inf is not a number"),
        ("dp-pix-gaussian:cell=2.5,rho=1", r"cell=2\.5 is not a whole number"),
        ("dp-pix-gaussian:cell=4,epsilon=1", "no parameter 'epsilon': .*Known: cell, pixels, rho"),
        ("dp-pix-gaussian:cell=4,rho=1,pixel=3", "did you mean 'pixels'"),
        ("dp-pix-gausian:cell=4,rho=1", "did you mean 'dp-pix-gaussian'"),
        ("dp-pix-gaussian:cell=4,rho=1,2", "names 2 protections: give one value for each key"),
        ("mask", "mask: artefact is missing: write mask:artefact=..."),
        ("mask:artefact=m,keep=0", "keep=0 is not a share of the pixels: choose above 0 and below 1"),
        ("mask:artefact=m,keep=1", "keep=1 is not a share of the pixels"),
        ("mask:artefact=m,keep=-0.5", "keep=-0.5 is not a share"),
        ("mask:artefact=m,keep=many", "keep=many is not a number"),
        ("mask:artefact=m,values=half", "values=half is unknown: choose one of hard, soft, shape"),
        ("mask:artefact=m,kept=1", "no parameter 'kept': did you mean 'keep'"),
        ("feature:artefact=f", "noise is missing"),
        ("feature:artefact=f,nois=1", "did you mean 'noise'"),
        ("feature:artefact=f,noise=-0.1", "noise=-0.1: at least 0"),
        ("feature:artefact=f,noise=1,norm=0", "norm=0 is not above 0"),
        ("code:artefact=f,flip=0.5", "flip=0.5: a bit is flipped with a probability above 0 and below 0.5"),
        ("code:artefact=f,flip=0", "flip=0: a bit is flipped"),
        ("code:artefact=f,norm=1", "norm and noise belong together"),
        ("code:artefact=f,flip=0.1,epsilon=1", "leave one out"),
        ("code:artefact=f,epsilon=0", "epsilon=0 is not above 0"),
        ("code:flip=0.1", "artefact is missing"),
        ("code:artefact=f,bit=3", "did you mean 'bits'"),
        ("none@faces:file=m", "none: cannot be applied to a part of an image"),
        ("code:artefact=c@faces:file=m", "cannot be applied to a part of an image: choose blur"),
        ("blur:radius=2@box", "@box: file is missing: write @box:file=..."),
        ("blur:radius=2@faces:weights=m", "@faces: no parameter 'weights'"),
        ("blur:radius=2@faces:file=m,margin=4", "margin=4: from 0 to 3 times the side of a face"),
        (
            "blur:radius=2@faces:file=m,missing=show",
            "missing=show: stop, to release nothing of such an image",
        ),
    ],
)
def test_a_spec_that_cannot_be_meant_names_the_value_and_the_cure(spec: str, message: str):
    with pytest.raises(SpecError, match=message):
        parse(spec, takes=KINDS)


@pytest.mark.parametrize("path", ["a,b", ""])
def test_a_path_that_a_spec_cannot_hold_is_refused(path: str):
    with pytest.raises(SpecError, match="a path has no commas"):
        Feature(path, noise=1.0)


def test_a_protection_of_another_kind_is_refused_where_it_cannot_be_used():
    with pytest.raises(SpecError, match="its releases are answers, and only pixels or the shape of a mask"):
        parse("answer:artefact=a")
    with pytest.raises(SpecError, match="its releases are pixels, and only numbers can be used here"):
        parse("blur:radius=3", takes=["numbers"])


# What a stranger may write.


@pytest.mark.parametrize(
    "spec",
    [
        "x" * 10**6,
        "blur:radius=" + "1" * 10**6,
        "blur:" + "x" * 10**6 + "=1",
        "blur:" + "x" * 10**6,
        "mask:artefact=" + "m" * 10**6,
        "feature:artefact=" + "m" * 10**6,
        "dp-pix:cell=2,epsilon=3,variant=" + "y" * 10**6,
        "dp-pix:cell=" + ",".join(["2"] * 600) + ",epsilon=" + ",".join(["3"] * 600) + ",pixels=1,2,3",
    ],
)
def test_a_spec_of_any_length_is_refused_in_a_short_message(spec: str):
    for takes in (IMAGES, KINDS):
        with pytest.raises(SfumatoError) as caught:
            parse(spec, takes=takes)
        assert len(str(caught.value)) < 700


def test_lists_of_thousands_are_for_studies_alone():
    listed = "pixelize:cell=" + ",".join(map(str, range(2, 1002)))
    assert len(expand(listed)) == 1000
    with pytest.raises(SpecError, match="names 1,000 protections: give one value for each key"):
        parse(listed)
    with pytest.raises(SpecError, match="names 1,001 protections: name at most 1,000"):
        expand(f"{listed},1002")
    with pytest.raises(SpecError, match="a spec of 7909 characters: write at most 5000"):
        parse(listed + ",200" * 1000)
