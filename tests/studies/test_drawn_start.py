"""The maker of the weights that trainings begin with."""

from pathlib import Path

import drawn_start
import pytest
import torch
from drawn_start import scenes

from sfumato import artefacts
from sfumato.data import LabelledImages
from sfumato.episodes import Sampler, Shape
from sfumato.errors import ConfigError
from sfumato.images import to_float
from sfumato.learn.prototypes import episode_accuracies
from sfumato.learn.start import begin
from sfumato.networks import Conv4
from sfumato.networks.encoders import drawn
from sfumato.networks.encoders.drawn import DrawnEncoder

SMALL = drawn_start.StartConfig(things=40, people=40, characters=40, epochs=2, steps=3, batch=8)


@pytest.fixture(scope="module")
def trained() -> drawn_start.Start:
    """A start of six steps."""
    return drawn_start.train(SMALL)


def test_the_shipped_start_was_made_by_the_defaults():
    card = artefacts.read_card(drawn.SHIPPED)
    assert {**card["config"], "precision": "auto"} == vars(drawn_start.StartConfig())
    assert card["epochs"] == drawn_start.StartConfig().epochs


def test_what_is_saved_gives_what_was_trained(trained: drawn_start.Start, tmp_path: Path):
    trained.save(tmp_path / "mine.safetensors")
    network = DrawnEncoder.load(tmp_path / "mine.safetensors").network
    images = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(network(images), trained.eval().encoder(images), atol=0.02, rtol=0.01)


def test_a_stopped_training_goes_on_as_if_it_had_not_stopped(trained: drawn_start.Start, tmp_path: Path):
    class StoppedError(Exception):
        pass

    def stop(done: int, planned: int) -> None:
        if done == 5:
            raise StoppedError

    checkpoint = tmp_path / "a.checkpoint"
    with pytest.raises(StoppedError):
        drawn_start.train(SMALL, checkpoint=checkpoint, progress=stop)
    again = drawn_start.train(SMALL, checkpoint=checkpoint)
    torch.testing.assert_close(again.state_dict(), trained.state_dict(), atol=0, rtol=0)
    assert again.card == trained.card


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"things": 39}, "things=39: at least 40"),
        ({"people": 0}, "people=0: at least 40"),
        ({"epochs": 0}, "epochs=0: at least 1"),
        ({"protected": 1.5}, "protected=1.5: a share"),
        ({"learning_rate": 0.0}, "learning_rate=0: above 0"),
        ({"precision": "half"}, "precision=half: choose"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, float], message: str):
    with pytest.raises(ConfigError, match=message):
        drawn_start.StartConfig(**settings)


def test_things_of_another_world_are_told_apart_before_anything_is_trained():
    world = scenes(things=30, images_per_thing=10, size=48, seed=5)
    shipped = Conv4(3)
    begin(shipped, "drawn")
    assert accuracy(shipped.eval(), world) > accuracy(Conv4(3).train(), world) + 0.25


@torch.no_grad()
def accuracy(network: Conv4, images: LabelledImages) -> float:
    episodes = Sampler(images.label("class"), Shape(way=5, shot=5, queries=5))
    rows = episodes.draw(200, torch.Generator().manual_seed(0))
    embeddings = torch.cat([network(to_float(part)) for part in images.images.split(256)])
    return episode_accuracies(torch.nn.functional.normalize(embeddings), rows, shot=5).mean().item()
