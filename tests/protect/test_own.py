"""A protection of a package with the documented parts alone serves all callers."""

from dataclasses import dataclass

import pytest
import torch

from sfumato.data.labelled import LabelledImages, label_of
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import DataError
from sfumato.learn import few_shot
from sfumato.protect.naming import naming_words, recognisable
from sfumato.protect.release import Protection, Release, artefact_of, cell_of, kind_of
from sfumato.serve import tripwire
from sfumato.serve.served import Demand


@dataclass(frozen=True)
class Halved(Protection):
    """Half as bright."""

    name = "halved"

    def release(self, images, noise):
        return Release(images // 2, self.spec, tuple(images.shape[2:]))


@dataclass(frozen=True)
class Blocks(Halved):
    """With more than it must have: cells, and noise of a law that it does not tell."""

    cell = 2
    draws_noise = True


IMAGES = torch.randint(0, 256, (16, 3, 16, 16), generator=torch.Generator().manual_seed(0)).byte()


def test_a_protection_of_two_parts_is_described_learned_from_and_accepted_by_a_service():
    own = Halved()
    assert (cell_of(own), kind_of(own), artefact_of(own)) == (1, "pixels", None)
    assert recognisable(own, (3, 16, 16)) == recognisable(Blocks(), (3, 100, 100)) == ""
    assert "nothing is proved" in naming_words(own, (3, 16, 16), among=(10,))
    tripwire.check(own.release(IMAGES[:1], seeded_noise(0)), Demand(own.spec, None, own))
    data = LabelledImages("own", IMAGES, {"class": label_of(list("abcd") * 4)})
    shape = {f"{part}{key}": n for part in ("", "validation_") for key, n in (("way", 2), ("shot", 1))}
    config = few_shot.FewShotConfig(**shape, queries=1, validation_queries=1, epochs=1, episodes_per_epoch=1)
    model = few_shot.train(data, own, config, validation=data)
    assert few_shot.evaluate(model, data, way=2, shot=1, queries=1, episodes=2).episodes == 2


def test_its_releases_are_still_refused_with_other_cells():
    with pytest.raises(tripwire.NotProtectedError, match="not 2"):
        tripwire.check(Halved().release(IMAGES[:1], seeded_noise(0)), Demand("halved", None, Blocks()))


def test_a_release_of_no_image_has_the_bytes_of_its_shape_and_of_a_mask_none_are_known():
    empty = Halved().release(IMAGES[:0], seeded_noise(0))
    assert empty.bytes_per_image == Halved().release(IMAGES, seeded_noise(0)).bytes_per_image
    masked = Release(IMAGES[:0], "mask", (16, 16), shown=torch.zeros(0, 1, 16, 16, dtype=torch.bool))
    with pytest.raises(DataError, match="mask: a release of no image"):
        _ = masked.bytes_per_image
