"""The networks of a study: which of them is kept for use."""

from pathlib import Path

import pytest
import torch

from sfumato import artefacts
from sfumato.study.lab.lab import Models, keep_recommended

SPEC = "dp-pix:cell=4,epsilon=3"


def model(folder: Path, name: str, *, spec: str, denoises: bool, seed: int) -> None:
    """A few-shot artefact of such a card; its weight is its seed."""
    card = {
        "kind": "few-shot",
        "spec": spec,
        "config": {"denoiser_depth": 8 if denoises else None},
        "seed": seed,
    }
    artefacts.save(folder / "models" / f"few-shot-{name}.safetensors", {"seed": torch.tensor(seed)}, card)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    model(tmp_path, "a", spec=SPEC, denoises=False, seed=2)
    model(tmp_path, "b", spec=SPEC, denoises=False, seed=1)
    model(tmp_path, "c", spec=SPEC, denoises=True, seed=0)
    model(tmp_path, "d", spec="none", denoises=False, seed=0)
    return tmp_path


@pytest.mark.parametrize(("learner", "seed"), [("protected", 1), ("denoised", 0)])
def test_the_model_of_the_recommended_setting_and_the_first_seed_is_kept(
    study: Path, learner: str, seed: int
):
    kept = keep_recommended(study, SPEC, learner)
    assert kept == study / "recommended.safetensors"
    tensors, card = artefacts.load(kept, kind="few-shot")
    assert (tensors["seed"], card["spec"]) == (seed, SPEC)


@pytest.mark.parametrize(("spec", "learner"), [(SPEC, "clean"), (SPEC, None), ("blur:radius=3", "protected")])
def test_where_none_was_trained_for_a_setting_an_earlier_one_does_not_stay(
    study: Path, spec: str, learner: str | None
):
    keep_recommended(study, SPEC, "protected")
    assert keep_recommended(study, spec, learner) is None
    assert not (study / "recommended.safetensors").exists()


def test_the_networks_used_last_stay_in_memory_and_what_is_large_does_not(tmp_path: Path):
    models, read = Models(tmp_path, "data"), []

    def use(number: int, *, keep: bool = True) -> None:
        assert (
            models.once(
                *("k", {"n": number}, Path.touch), lambda path: read.append(number) or number, keep=keep
            )
            == number
        )

    for number in range(17):
        use(number)
    use(16)  # it was read right now
    use(1)
    assert read == list(range(17))
    use(0)  # the one that was used longest ago
    assert read[17:] == [0]
    use(99, keep=False)
    use(99, keep=False)
    assert read[18:] == [99, 99]
