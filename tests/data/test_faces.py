"""The world of faces: repeatable, hats independent of people, and a true map of what is where."""

from dataclasses import replace

import pytest
import torch
from layouts import assert_independent, by_split, nearest_prototype
from torch import Tensor
from torch.nn.functional import max_pool2d

from sfumato.data.worlds._portraits import AGES, EXPRESSIONS, GENDERS, GLASSES, HAIR_COLORS, PARTS
from sfumato.data.worlds.faces import CARRIERS, draw, faces, people
from sfumato.errors import ConfigError


def part_codes(attribute: str) -> Tensor:
    """Those of the parts that carry an attribute."""
    return torch.tensor([PARTS.index(part) for part in CARRIERS[attribute]], dtype=torch.uint8)


def test_the_same_seed_gives_the_same_bytes():
    settings = {"identities": 6, "images_per_identity": 4, "headwear": 6, "size": 32}
    assert faces(**settings).digest == faces(**settings).digest
    assert faces(**settings).digest != faces(**settings, seed=1).digest


def test_row_i_of_the_images_shows_row_i_of_the_table():
    world = faces(identities=5, images_per_identity=4, headwear=6, size=32)
    table = people(identities=5, images_per_identity=4, headwear=6)
    rows = torch.tensor([3, 17, 8])
    assert torch.equal(draw(table.rows(rows), size=32)[0], world.images[rows])
    for name in ("identity", "headwear", "hair_color", "expression", "glasses", "gender", "age"):
        assert torch.equal(getattr(table, name), world.label(name).codes)


def test_people_and_hats_look_the_same_in_a_larger_world():
    """Only who wears which hat may change with the numbers asked for: that is dealt within splits."""
    small = people(identities=8, images_per_identity=3, headwear=9)
    large = people(identities=60, images_per_identity=3, headwear=50).rows(torch.arange(24))
    for name in ("identity", "hair_color", "expression", "glasses", "gender", "age", "scene"):
        assert torch.equal(getattr(large, name), getattr(small, name))
    dressed_alike = replace(large, headwear=small.headwear)
    assert torch.equal(draw(dressed_alike, size=32)[0], draw(small, size=32)[0])


def test_a_row_is_drawn_the_same_alone_and_among_others():
    world = people(identities=30, images_per_identity=4, headwear=40)
    images, parts = draw(world, size=28)
    for row in range(0, 120, 3):
        image, part = draw(world.rows(torch.tensor([row])), size=28)
        assert torch.equal(image[0], images[row])
        assert torch.equal(part[0], parts[row])


def test_splits_share_neither_people_nor_hats():
    world = faces(identities=40, images_per_identity=6, headwear=20, size=16)
    for label, sizes in {"identity": [24, 6, 10], "headwear": [12, 3, 5]}.items():
        members = by_split(world, label).values()
        assert [len(m) for m in members] == sizes
        assert len(set.union(*members)) == sum(sizes)
    smallest = faces(identities=3, images_per_identity=1, headwear=3, size=16)
    assert [len(smallest.split(s)) for s in ("train", "validation", "test")] == [1, 1, 1]


def test_further_images_are_others_of_the_test_people_and_change_nothing_else():
    settings = {"identities": 8, "images_per_identity": 4, "headwear": 8, "size": 16}
    plain, more = faces(**settings), faces(**settings, further=4)
    assert torch.equal(more.images[: len(plain)], plain.images)
    test, further = more.split("test"), more.split("further")
    assert torch.equal(further.classes("identity"), test.classes("identity"))
    assert len(further) == len(test)
    assert not {image.numpy().tobytes() for image in test.images} & {
        image.numpy().tobytes() for image in further.images
    }


def test_hats_are_dealt_evenly_within_a_split():
    world = people(identities=40, images_per_identity=6, headwear=20)
    counts = world.headwear.bincount(minlength=20)
    # 144 images for 12 hats, 36 for 3, 60 for 5: everybody's turn comes 12 times.
    assert counts.tolist() == [12] * 20


def test_headwear_and_identity_do_not_tell_each_other():
    world = faces(identities=100, images_per_identity=30, headwear=50, size=16)
    for split in map(world.split, ("train", "validation", "test")):
        assert_independent(split.label("identity").codes, split.label("headwear").codes)


def test_a_hat_looks_the_same_whoever_wears_it():
    """Body and trim have their kind's colours on everybody: people differ in how they are lit only."""
    world = people(identities=40, images_per_identity=1, headwear=3)
    one_hat = replace(
        world, headwear=torch.zeros(40, dtype=torch.int64), scene=world.scene[:1].expand(40, -1)
    )
    images, parts = draw(one_hat)
    hat = torch.isin(parts, part_codes("headwear"))
    everywhere = hat.float().mean(0) == 1  # (H, W), where all forty heads show hat
    assert everywhere.sum() > 100
    means = images.permute(0, 2, 3, 1)[:, everywhere].float().mean(1)  # (40, 3)
    # Heads of other widths shift the pattern under the window, by a few levels of 255.
    assert means.std(0).max() < 20


@pytest.mark.parametrize("size", [28, 64])
@pytest.mark.parametrize("attribute", ["headwear", "glasses", "expression"])
def test_changing_one_attribute_changes_only_the_parts_that_carry_it(attribute: str, size: int):
    """To the pixel, with light and sensor noise, which are the scene's and stay the same."""
    world = people(identities=40, images_per_identity=3, headwear=40)
    count = {"headwear": 40, "glasses": len(GLASSES), "expression": len(EXPRESSIONS)}[attribute]
    other = replace(world, **{attribute: (getattr(world, attribute) + 1) % count})
    (images, parts), (changed, changed_parts) = draw(world, size=size), draw(other, size=size)
    codes = part_codes(attribute)
    carried = torch.isin(parts, codes) | torch.isin(changed_parts, codes)
    differs = (images != changed).any(1)
    assert not (differs & ~carried).any()
    # Dark glasses may hide a raised brow, but no attribute may be invisible in most images.
    assert differs.flatten(1).any(1).float().mean() > 0.99


def test_hair_color_changes_hair_and_the_soft_edge_of_what_lies_over_it():
    """That edge is one pixel wide: hair colour stays within a pixel of the parts that carry it."""
    world = people(identities=40, images_per_identity=3, headwear=40)
    other = replace(world, hair_color=(world.hair_color + 2) % len(HAIR_COLORS))
    (images, parts), (changed, _) = draw(world), draw(other)
    differs = (images != changed).any(1)
    carried = torch.isin(parts, part_codes("hair_color"))
    near = max_pool2d(carried.float(), 3, stride=1, padding=1) > 0
    assert (differs & ~near).sum() < 0.03 * differs.sum()  # a lock may be thinner than a pixel


def test_every_image_shows_a_face_a_hat_and_hair_below_it():
    """Hair colour is a task of its own: 1% of the image is 40 pixels of 64x64."""
    parts = draw(people(identities=60, images_per_identity=5, headwear=60), size=64)[1]
    share = {part: (parts == code).float().mean((1, 2)) for code, part in enumerate(PARTS)}
    face = sum(share[part] for part in ("skin", "beard", "nose", "eyes", "mouth", "glasses"))
    assert face.min() > 0.05
    assert share["headwear"].min() > 0.02
    assert share["mouth"].min() > 0.002
    assert share["background"].mean() > 0.2
    assert (share["hair"] > 0.01).float().mean() > 0.98


def test_a_person_keeps_hair_gender_and_age_in_all_images():
    world = people(identities=50, images_per_identity=6, headwear=30)
    for name in ("hair_color", "gender", "age"):
        values = getattr(world, name).view(50, 6)
        assert (values == values[:, :1]).all()
        assert len(values.unique()) > 1
    assert not (world.expression.view(50, 6) == world.expression.view(50, 6)[:, :1]).all()


def test_the_labels_and_their_names():
    world = faces(identities=3, images_per_identity=2, headwear=4, size=16)
    assert {name: label.names for name, label in world.labels.items()} == {
        "identity": ("person-0000", "person-0001", "person-0002"),
        "headwear": ("hat-0000", "hat-0001", "hat-0002", "hat-0003"),
        "hair_color": HAIR_COLORS,
        "expression": EXPRESSIONS,
        "glasses": GLASSES,
        "gender": GENDERS,
        "age": AGES,
    }
    assert set(CARRIERS) == set(world.labels)
    assert all(part in PARTS for parts in CARRIERS.values() for part in parts)


@pytest.mark.parametrize("size", [16, 28, 256])
def test_faces_are_drawn_at_any_size(size: int):
    images, parts = draw(people(identities=3, images_per_identity=2, headwear=3), size=size)
    assert images.shape == (6, 3, size, size)
    assert parts.shape == (6, size, size)
    assert images.dtype == parts.dtype == torch.uint8
    # The same picture at every size: a third of the mean colour's range would be another picture.
    reference, _ = draw(people(identities=3, images_per_identity=2, headwear=3), size=64)
    assert torch.allclose(images.float().mean((2, 3)), reference.float().mean((2, 3)), atol=6)


@pytest.mark.parametrize("label", ["headwear", "identity"])
def test_pixels_tell_some_of_the_label_but_not_most(label: str):
    """Nearest mean of 5 images, 5 ways: chance is 0.20, and light, pose and background hide the rest."""
    world = faces(identities=40, images_per_identity=20, headwear=40, size=16)
    accuracy = nearest_prototype(world.images, world.label(label).codes)
    assert 0.25 < accuracy < 0.65


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"identities": 2}, "identities is at least 3, got 2: train, validation and test share none"),
        ({"headwear": 2}, "headwear is at least 3, got 2: train, validation and test share none"),
        ({"images_per_identity": 0}, "images_per_identity is at least 1, got 0: ask"),
        ({"size": 15}, "size is 16 to 256 pixels, got 15: draw at"),
        ({"size": 257}, "size is 16 to 256 pixels, got 257: draw at"),
        ({"seed": -1}, "seed is at least 0, got -1: a world is named by a whole number"),
    ],
)
def test_numbers_that_cannot_work_are_refused(settings: dict[str, int], message: str):
    with pytest.raises(ConfigError, match=message):
        faces(**settings)
