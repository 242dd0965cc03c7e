"""A picture in place of an image: it tells what a code or an answer tells, and no more."""

import numpy as np
import pytest
import torch

from sfumato.data.worlds._portraits import EXPRESSIONS, GLASSES
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ArtefactError, SpecError
from sfumato.learn.code import CodeConfig
from sfumato.learn.code import train as train_code
from sfumato.protect import answer, avatar, parse
from sfumato.protect.code import words_of

NOISE = seeded_noise(0)
SHAPE = (3, 40, 32)


def mean_shows(images: torch.Tensor) -> torch.Tensor:
    """(N, 4) logits: four answers by the brightness of an image."""
    return -(images.flatten(1).mean(1, keepdim=True) - torch.tensor([0.1, 0.4, 0.6, 0.9])).abs()


class Bright(torch.nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return mean_shows(images)


def images_of(*levels: int) -> torch.Tensor:
    return torch.stack([torch.full(SHAPE, level, dtype=torch.uint8) for level in levels])


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> avatar.Avatar:
    """An avatar of a classifier of brightness, whose classes are expressions."""
    answerer = answer.Answerer(Bright(), classes=EXPRESSIONS, shape=SHAPE)
    made = answer.Answer("bright.safetensors")
    monkeypatch.setitem(made.__dict__, "_trained", answerer)
    picture = avatar.Avatar("bright.safetensors")
    picture.__dict__["_trained"] = made
    return picture


@pytest.mark.parametrize("shape", [(3, 64, 64), (1, 28, 28), (3, 30, 47)])
def test_a_picture_has_the_shape_that_was_asked_for_and_equal_numbers_have_equal_bytes(shape):
    painted = avatar.paint([3, 200, 3, 77], shape)
    assert (painted.shape, painted.dtype) == ((4, *shape), np.uint8)
    assert painted[0].tobytes() == painted[2].tobytes() == avatar.paint([3], shape)[0].tobytes()
    assert len({each.tobytes() for each in painted}) == 3


def test_every_code_of_eight_bits_has_a_picture_of_its_own():
    assert len({each.tobytes() for each in avatar.paint(range(256), (3, 32, 32))}) == 256


def test_each_picture_is_painted_once(answering: avatar.Avatar, monkeypatch: pytest.MonkeyPatch):
    asked, paint = [], avatar.paint
    monkeypatch.setattr(avatar, "_MOST_KEPT", 2)
    monkeypatch.setattr(
        avatar, "paint", lambda words, *of, **more: asked.append(words) or paint(words, *of, **more)
    )
    first = answering.release(images_of(250, 0, 250), NOISE).array
    again = answering.release(images_of(0, 150, 250), NOISE).array
    assert asked == [[0, 3], [2]]
    assert np.array_equal(again[[2, 0, 2]], first)
    answering.release(images_of(150), NOISE)  # two are kept, and no more
    assert asked[2:] == [[2]]


def test_nothing_is_painted_of_no_image(answering: avatar.Avatar):
    assert answering.release(images_of(1)[:0], NOISE).array.shape == (0, *SHAPE)
    assert avatar.paint([], SHAPE).shape == (0, *SHAPE)


@pytest.mark.parametrize("names", [EXPRESSIONS, GLASSES, ("hat-0003", "hat-0011")])
def test_an_answer_is_painted_as_what_it_names_whatever_its_number(names: tuple[str, ...]):
    forwards, backwards = (avatar.paint(range(len(names)), SHAPE, names=n) for n in (names, names[::-1]))
    assert np.array_equal(forwards, backwards[::-1])
    assert len({each.tobytes() for each in forwards}) == len(names)


def test_other_answers_have_pictures_by_their_numbers():
    plain = avatar.paint(range(5), SHAPE)
    assert np.array_equal(avatar.paint(range(5), SHAPE, names=("a", "b", "c", "d", "e")), plain)


def test_a_release_depends_on_the_answer_alone_and_proves_what_the_answer_proves(answering: avatar.Avatar):
    release = answering.release(images_of(20, 30, 100, 230), NOISE)
    assert (answering.kind, release.size) == ("pixels", SHAPE[1:])
    first, second, third, fourth = (each.tobytes() for each in release.array)
    assert first == second
    assert len({first, third, fourth}) == 3
    expected = avatar.paint([0, 1, 3], SHAPE, names=EXPRESSIONS)
    assert np.array_equal(release.array[[0, 2, 3]], expected)
    assert answering.outputs == 4
    assert [bound.chance for bound in answering.bounds(1 / 1000)] == pytest.approx([4 / 1000])
    assert not answering.draws_noise


def test_images_of_another_size_are_refused(answering: avatar.Avatar):
    with pytest.raises(SpecError, match="trained on 3x40x32 images, and these are 3x20x20"):
        answering.release(torch.zeros(1, 3, 20, 20, dtype=torch.uint8), NOISE)


@pytest.fixture(scope="module")
def codes(small_glyphs, tmp_path_factory):
    """Files of a code of 5 bits and of one of 24."""
    folder = tmp_path_factory.mktemp("codes")
    shape = {"encoder": "conv4", "way": 3, "shot": 1, "queries": 2, "epochs": 1, "episodes_per_epoch": 2}
    for bits in (5, 24):
        config = CodeConfig(bits=bits, pretraining_epochs=0, validation_episodes=2, **shape)
        train_code(small_glyphs, config, target="class", seed=0).save(folder / f"{bits}.safetensors")
    return folder


def test_a_spec_names_the_file_of_a_code_and_the_picture_is_that_of_its_number(codes, small_glyphs):
    path = codes / "5.safetensors"
    painting, code = parse(f"avatar:artefact={path}"), parse(f"code:artefact={path}", takes=["bits"])
    some = small_glyphs.images[:12]
    words = words_of(code.release(some, NOISE).values).tolist()
    expected = avatar.paint(words, tuple(some.shape[1:]))
    assert np.array_equal(painting.release(some, NOISE).array, expected)
    assert painting.outputs == code.outputs == 32
    assert painting.bounds(1e-4, 3) == code.bounds(1e-4, 3)


def test_a_code_that_no_picture_can_show_is_refused_with_the_cure(codes):
    with pytest.raises(ArtefactError, match="shows answers, or a code of at most 16 bits: train one"):
        parse(f"avatar:artefact={codes / '24.safetensors'}").check()
