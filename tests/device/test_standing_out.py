"""Classes that are not enrolled because one of their codes names them."""

from pathlib import Path

import pytest
import torch
from cloud import SIDE, encoder

from sfumato.device.client.outgoing import Image, find_standing_out
from sfumato.errors import ConfigError
from sfumato.protect import parse
from sfumato.protect.code import Code, words_of

SHAPE = (3, SIDE, SIDE)


@pytest.fixture(scope="module")
def by_word(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[int, torch.Tensor]]:
    """The spec of a code of 4 bits, and an image of each of its words that turned up."""
    path = encoder(tmp_path_factory.mktemp("codes") / "c.safetensors", bits=4)
    images = torch.randint(
        0, 256, (60, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    images = images // torch.randint(1, 9, (60, 3, 1, 1), generator=torch.Generator().manual_seed(1)).byte()
    words = words_of(Code(str(path)).encode(images) > 0)
    return f"code:artefact={path}", {int(word): image for word, image in zip(words, images, strict=True)}


def left_out(by_word, classes: str, *, at_most: float, noise: str = "", average: bool = False):
    """Of classes of words such as "aab", each letter one."""
    spec, images = by_word
    letters = dict(zip("abcd", images.values(), strict=False))
    pairs = [each.split(":") for each in classes.split()]
    given = {name: [Image(letters[letter]) for letter in word] for name, word in pairs}
    protection = parse(spec + noise, takes=("bits",))
    return find_standing_out(protection, given, SHAPE, at_most=at_most, average=average)


def test_a_class_with_a_code_of_its_own_is_left_out_and_those_that_share_one_stay(by_word):
    assert left_out(by_word, "anna:a ben:aa carla:b", at_most=0.5) == {"carla": 1.0}
    assert left_out(by_word, "anna:a ben:a carla:a", at_most=0.34) == {}


def test_classes_are_left_out_until_none_stands_out_among_those_that_stay(by_word):
    """Without Dora, who is named from c alone, Carla is named from b alone."""
    left = left_out(by_word, "anna:a ben:a carla:bbc dora:c", at_most=0.5)
    assert set(left) == {"carla", "dora"}


def test_noise_lets_a_class_stay(by_word):
    classes = "anna:a ben:a carla:a dora:b"
    assert set(left_out(by_word, classes, at_most=0.4)) == {"dora"}
    assert left_out(by_word, classes, at_most=0.4, noise=",epsilon=0.1") == {}


def test_of_an_average_the_one_code_counts(by_word):
    spec, images = by_word
    first, second = list(images.values())[:2]
    code = parse(spec, takes=("bits",))
    alike = torch.equal(
        code.encode(torch.stack([first, second])).mean(0) > 0, code.encode(first[None])[0] > 0
    )
    left = left_out(by_word, "anna:a ben:a carla:ab", at_most=0.5, average=True)
    assert left == ({} if alike else {"carla": 1.0})
    assert left_out(by_word, "anna:aa ben:a", at_most=0.5, average=True) == {}


def test_fewer_classes_than_guessing_allows_are_refused(by_word):
    with pytest.raises(
        ConfigError, match=r"a guess among 3 classes already names each in 33.3%: for at most 20.0% "
    ):
        left_out(by_word, "anna:a ben:a carla:a", at_most=0.2)


def test_images_that_cannot_be_read_are_left_to_the_enrolment(by_word, tmp_path: Path):
    spec, images = by_word
    shared = next(iter(images.values()))
    given = {"anna": [Image(shared), Image(tmp_path / "none.png")], "ben": [Image(shared)], "carla": []}
    protection = parse(spec, takes=("bits",))
    assert find_standing_out(protection, given, SHAPE, at_most=0.5, average=False) == {}


def test_other_protections_say_that_it_is_for_codes_of_few_bits(by_word, tmp_path: Path):
    image = next(iter(by_word[1].values()))
    long = f"code:artefact={encoder(tmp_path / 'c.safetensors', bits=16)}"
    for spec, words in (("blur:radius=2", "codes of few bits show"), (long, "codes of at most 12 bits")):
        protection = parse(spec, takes=("pixels", "bits"))
        with pytest.raises(ConfigError, match=words):
            find_standing_out(protection, {"anna": [Image(image)]}, SHAPE, at_most=1.0, average=False)
