"""What is evidently not protected is refused; what is, never: real images, and the worst there can be."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cloud import refusing
from pictures import photographs, worst

from sfumato import wire
from sfumato.dp.mechanisms import Noise, seeded_noise
from sfumato.errors import SpecError
from sfumato.protect import Protection, Release, parse
from sfumato.protect.mask import Mask
from sfumato.protect.release import cell_of
from sfumato.protect.spec import portable
from sfumato.protect.vectors import BitsRelease, FeatureRelease
from sfumato.serve.served import Demand, Served
from sfumato.serve.tripwire import NotProtectedError, check, demand_of

NOISY = [
    *("dp-pix:cell=4,epsilon=3", "dp-pix:cell=2,epsilon=1", "dp-pix:cell=4,epsilon=3,variant=published"),
    *("dp-pix:cell=8,epsilon=0.5,pixels=16", "dp-pix-gaussian:cell=4,rho=0.5", "gaussian:sigma=10"),
    *("gaussian:sigma=40", "gaussian:sigma=160", "dp-pix:cell=1/8,epsilon=3"),
]
OTHERS = ["none", "pixelize:cell=4", "pixelize:cell=5", "blur:radius=1", "blur:radius=2", "blur:radius=5"]
OTHERS += ["centre-blur:radius=2", "block", "block:share=0.3", "pixelize:cell=1/8"]


def demand(protection: Protection | str) -> Demand:
    protection = parse(protection) if isinstance(protection, str) else protection
    return Demand(portable(protection.spec), None, protection)


def released(spec: str, clean: torch.Tensor, seed: int = 0) -> Release:
    return parse(spec).release(clean, seeded_noise(seed))


def refused(release: Release, spec: str) -> bool:
    try:
        check(release, demand(spec))
    except NotProtectedError:
        return True
    return False


def served(spec: str, shape: tuple[int, int, int] = (3, 24, 24), made_of: str | None = None) -> Served:
    kind = {"feature": "numbers", "code": "bits"}.get(spec.partition(":")[0], "pixels")
    wanted = Demand(spec, made_of, parse(spec) if kind == "pixels" else None, kind=kind)
    return Served(
        *("m", "few-shot", (wanted,), shape, 4, refusing(1.0)),
        prepare=lambda release, demand: release.values,
        run=lambda values: values,
    )


@pytest.mark.parametrize("spec", NOISY + OTHERS)
def test_releases_of_the_worst_images_pass(spec: str):
    release = released(spec, worst())
    for row in range(len(release.values)):
        check(release.rows([row]), demand(spec))
    check(release, demand(spec))


@pytest.mark.parametrize("spec", NOISY + OTHERS)
def test_releases_of_real_images_pass(spec: str, shared_data: Path):
    for name in ("lfw_faces_84", "caltech101_84", "cifar10_jpeg_subset"):
        release = released(spec, photographs(shared_data, name, 12))
        for row in range(12):
            check(release.rows([row]), demand(spec))
        check(release, demand(spec))


@pytest.mark.parametrize(
    "spec", ["blur:radius=1", "blur:radius=40", "centre-blur:radius=5", "block", "pixelize:cell=42"]
)
def test_protections_without_noise_are_never_refused_on_faces(spec: str, shared_data: Path):
    release = released(spec, photographs(shared_data, "lfw_faces_84", 200))
    for row in range(200):
        check(release.rows([row]), demand(spec))


@pytest.mark.parametrize("radius", [1, 2, 5, 10, 20, 40])
@pytest.mark.parametrize("share", [0.3, 0.6, 1])
def test_a_centre_that_was_blurred_with_all_around_it_is_never_refused(
    radius: int, share: float, shared_data: Path
):
    """Whose slopes go on beyond its edges: photographs, and steps at random places."""
    spec = f"centre-blur:radius={radius},share={share}"
    steps = torch.zeros(100, 1, 32, 32, dtype=torch.uint8)
    places = torch.randint(1, 31, (100, 2), generator=torch.Generator().manual_seed(radius))
    for image, (row, column) in zip(steps, places.tolist(), strict=True):
        image[:, row:, :column] = 255
        image[:, : row // 2, column:] = 255
    for clean in (photographs(shared_data, "cifar10_jpeg_subset", 200), steps):
        for clean_spec in (spec, f"blur:radius={radius}"):
            release = released(clean_spec, clean)
            for row in range(len(clean)):
                check(release.rows([row]), demand(clean_spec))


# The share of single clean images that is caught; measured on 60 of each set.
@pytest.mark.parametrize(
    ("spec", "name", "least"),
    [
        ("gaussian:sigma=40", "cifar10_jpeg_subset", 1.0),
        ("gaussian:sigma=40", "lfw_faces_84", 1.0),
        ("dp-pix:cell=4,epsilon=3", "lfw_faces_84", 0.9),
        ("dp-pix:cell=4,epsilon=3", "caltech101_84", 0.9),
        ("dp-pix:cell=4,epsilon=3,pixels=16", "cifar10_jpeg_subset", 1.0),
        ("dp-pix-gaussian:cell=4,rho=0.5", "lfw_faces_84", 0.9),
    ],
)
def test_clean_images_are_caught(spec: str, name: str, least: float, shared_data: Path):
    clean = photographs(shared_data, name, 12)
    cell = cell_of(parse(spec))
    # The likeliest mistake: cells without their noise.
    sent = released(f"pixelize:cell={cell}", clean) if cell > 1 else released("none", clean)
    caught = [refused(sent.rows([row]), spec) for row in range(12)]
    assert np.mean(caught) >= least
    assert refused(sent, spec)


def test_a_few_small_images_say_together_what_none_says_alone(shared_data: Path):
    spec = "dp-pix:cell=4,epsilon=3"
    sent = released("pixelize:cell=4", photographs(shared_data, "cifar10_jpeg_subset", 20))
    assert np.mean([refused(sent.rows([row]), spec) for row in range(20)]) < 0.9
    assert all(refused(sent.rows(list(range(row, row + 5))), spec) for row in range(0, 20, 5))


def test_drawings_without_gaussian_noise_are_caught():
    drawn = torch.zeros(1, 1, 28, 28, dtype=torch.uint8)
    drawn[:, :, 5:22, 10:13] = 255
    assert refused(released("none", drawn), "gaussian:sigma=40")


def test_half_the_noise_is_caught_where_it_is_much():
    grey = torch.full((1, 3, 84, 84), 128, dtype=torch.uint8)
    assert refused(released("gaussian:sigma=20", grey), "gaussian:sigma=40")
    assert refused(released("dp-pix:cell=2,epsilon=6", grey), "dp-pix:cell=2,epsilon=3")


def test_what_looks_neither_blurred_nor_blackened_passes_since_only_noise_is_checked():
    edge = torch.zeros(1, 1, 20, 20, dtype=torch.uint8)
    edge[:, :, :, 10:] = 255
    for spec in ("blur:radius=2", "centre-blur:radius=2", "block"):
        check(replace(released("none", edge), spec=spec), demand(spec))


@dataclass(frozen=True)
class Halves(Protection):
    """A protection that no module of the library knows: it shows the half of each grey level."""

    name = "halves"

    def release(self, images: torch.Tensor, noise: Noise) -> Release:
        return Release(images // 2, self.spec, (images.shape[2], images.shape[3]))

    def suspicious(self, release: Release, *, false_alarm: float) -> str | None:
        brighter = (release.values > 127).flatten(1).any(1).nonzero()
        return f"image {brighter[0].item() + 1} shows what has no half" if len(brighter) else None


def test_a_protection_is_added_without_a_change_of_the_guard():
    halves = Halves()
    sent = halves.release(worst(), seeded_noise(0))
    check(sent, demand(halves))
    with pytest.raises(NotProtectedError, match="not a release of halves: image 3 shows what has no half; "):
        check(replace(sent, array=worst()[[0, 1, 5]]), demand(halves))
    with pytest.raises(NotProtectedError, match="it is masked"):
        check(masked([25], "halves"), demand(halves))


def masked(counts: list[int], spec: str) -> Release:
    shown = torch.zeros(len(counts), 1, 10, 10, dtype=torch.bool)
    for row, count in enumerate(counts):
        shown[row].view(-1)[:count] = True
    return Release(shown.to(torch.uint8), spec, (10, 10), shown=shown)


def test_pixels_in_place_of_a_mask_or_of_cells_are_refused():
    clear = released("none", worst())
    with pytest.raises(NotProtectedError, match="it has no mask"):
        check(clear, demand(Mask("m.safetensors", keep=0.25)))
    with pytest.raises(NotProtectedError, match="a value for each pixel, not 4x4 pixels"):
        check(clear, demand("pixelize:cell=4"))
    with pytest.raises(NotProtectedError, match="it is masked"):
        check(masked([25], "none"), demand("none"))
    finer = replace(released("pixelize:cell=2", worst()), spec="pixelize:cell=1/4")
    with pytest.raises(NotProtectedError, match="a value for each 2x2 pixels, not "):
        check(finer, demand("pixelize:cell=1/4"))


def header(spec: str, *, size: int = 24, made_of: str | None = None) -> wire.Header:
    values = torch.zeros(1, 3, size, size, dtype=torch.uint8)
    return wire.header(wire.encode(Release(values, spec, (size, size)), made_of=made_of))


def test_a_release_of_another_protection_size_or_artefact_is_refused():
    assert demand_of(served("gaussian:sigma=40"), header("gaussian:sigma=40")).spec == "gaussian:sigma=40"
    with pytest.raises(NotProtectedError, match="takes releases of gaussian:sigma=40: use one of these"):
        demand_of(served("gaussian:sigma=40"), header("gaussian:sigma=20"))
    with pytest.raises(NotProtectedError, match="images of 3x32x32, and the model's are 3x24x24: resize"):
        demand_of(served("none"), header("none", size=32))
    with pytest.raises(NotProtectedError, match="SHA-256 begins with aaaaaaaaaaaaaaaa"):
        demand_of(served("none", made_of="a" * 64), header("none", made_of="b" * 64))
    with pytest.raises(NotProtectedError, match="by another artefact"):
        demand_of(served("none", made_of="a" * 64), header("none"))


def test_a_feature_of_the_artefact_passes_with_any_noise_and_of_another_dimension_not():
    model = served("feature:artefact=f.safetensors", made_of="a" * 64)

    def sent(dimension: int) -> wire.Header:
        release = FeatureRelease(torch.zeros(1, dimension), "feature:artefact=f.safetensors,noise=0.5")
        return wire.header(wire.encode(release, made_of="a" * 64))

    assert demand_of(model, sent(4)).protection is None
    with pytest.raises(NotProtectedError, match="a feature of 5 numbers, and the model's have 4"):
        demand_of(model, sent(5))


def test_a_feature_is_no_image_and_an_image_no_feature():
    release = FeatureRelease(torch.zeros(1, 4), "none")
    with pytest.raises(NotProtectedError, match="takes releases of none, and this is of feature"):
        demand_of(served("none"), wire.header(wire.encode(release)))
    with pytest.raises(NotProtectedError, match=r"takes releases of feature:.* and this is of pixels"):
        demand_of(served("feature:artefact=f.safetensors"), header("feature:artefact=f.safetensors"))


CODE = "code:artefact=c.safetensors"


def code_header(bits: int, spec: str = CODE, made_of: str = "a" * 64) -> wire.Header:
    return wire.header(wire.encode(BitsRelease(torch.ones(1, bits, dtype=torch.bool), spec), made_of=made_of))


@pytest.mark.parametrize("noise", ["", ",bits=4", ",flip=0.1", ",epsilon=2", ",bits=4,flip=0.25"])
def test_a_code_of_the_artefact_passes_with_any_noise(noise: str):
    model = served(CODE, made_of="a" * 64)
    own = code_header(4, f"code:artefact=/another/name.safetensors{noise}")
    assert demand_of(model, own).spec == CODE
    check(BitsRelease(torch.ones(1, 4, dtype=torch.bool), own.spec), model.demands[0])


@pytest.mark.parametrize("bits", [1, 3, 5, 64])
def test_a_code_of_another_count_of_bits_is_refused(bits: int):
    with pytest.raises(
        NotProtectedError, match=f"a code of {bits} bits, and the model's have 4: use the art"
    ):
        demand_of(served(CODE, made_of="a" * 64), code_header(bits))


def test_a_code_of_another_artefact_is_refused():
    with pytest.raises(NotProtectedError, match="SHA-256 begins with aaaaaaaaaaaaaaaa"):
        demand_of(served(CODE, made_of="a" * 64), code_header(4, made_of="b" * 64))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (",flip=0.5", "below 0.5"),
        (",flip=0.1,epsilon=1", "leave one out"),
        (",norm=1,noise=1", "makes bits, which have flip= or epsilon="),
        (",bits=8", "bits=8, and .* makes 4 bits"),
        (",numbers=4", "numbers=4, and .* makes 4 bits"),
        (",flip=0.1,0.2", "names 2 protections"),
        (",shy=1", "no parameter 'shy'"),
    ],
)
def test_a_code_with_noise_that_cannot_be_is_refused(more: str, message: str):
    with pytest.raises(SpecError, match=message):
        demand_of(served(CODE, made_of="a" * 64), code_header(4, CODE + more))


def test_a_word_of_too_many_bits_for_one_response_is_refused():
    model = replace(served(CODE, made_of="a" * 64), dimension=17)
    with pytest.raises(SpecError, match="epsilon=2 on 17 bits"):
        demand_of(model, code_header(17, CODE + ",epsilon=2"))


def test_the_file_that_a_release_names_is_not_opened(tmp_path: Path):
    """Its spec is written by whoever sent it: a path on the server is no way to have it read."""
    (tmp_path / "c.safetensors").mkdir()
    spec = f"code:artefact={tmp_path}/c.safetensors"
    model = served(CODE, made_of="a" * 64)
    head = wire.BitsHeader(kind="bits", spec=spec, made_of="a" * 64, count=1, bits=4)
    assert demand_of(model, head) == model.demands[0]


def test_bits_numbers_and_images_are_not_taken_for_each_other():
    numbers = FeatureRelease(torch.zeros(1, 4), CODE)
    with pytest.raises(NotProtectedError, match=r"takes releases of code:.* and this is of feature"):
        demand_of(served(CODE), wire.header(wire.encode(numbers)))
    with pytest.raises(NotProtectedError, match=r"takes releases of code:.* and this is of pixels"):
        demand_of(served(CODE), header(CODE))
    with pytest.raises(NotProtectedError, match=r"takes releases of feature:.* and this is of bits"):
        demand_of(served("feature:artefact=f"), code_header(4, "feature:artefact=f,noise=1"))
    with pytest.raises(NotProtectedError, match=r"takes releases of code:.*: use one of these"):
        demand_of(served(CODE), code_header(4, "feature:artefact=c.safetensors,noise=1"))
