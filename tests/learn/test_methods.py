"""What every method of training promises: its seed, its checkpoints, its artefacts, and its settings."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from sfumato import artefacts, data
from sfumato.errors import ArtefactError, ConfigError
from sfumato.learn import adversarial_mask, classifier, code, few_shot, private_feature, semsim
from sfumato.learn.adversarial_mask import MaskConfig
from sfumato.learn.classifier import ClassifierConfig
from sfumato.learn.code import CodeConfig
from sfumato.learn.few_shot import FewShotConfig
from sfumato.learn.private_feature import FeatureConfig
from sfumato.learn.semsim import Judgements, SemSimConfig, SemSimModel
from sfumato.learn.semsim.perceptual import PerceptualConfig
from sfumato.protect import parse

EPISODES: dict[str, Any] = {
    **{"way": 3, "shot": 2, "queries": 1, "epochs": 4, "episodes_per_epoch": 3},
    **{"validation_way": 3, "validation_shot": 2, "validation_queries": 1, "validation_episodes": 5},
}
PRECISE = {"precision": "float32"}
SMALL: dict[str, dict[str, Any]] = {
    "code": {**EPISODES, "bits": 4},
    "few-shot": {**EPISODES, **PRECISE, "denoiser_depth": 2, "denoiser_width": 4},
    "classifier": {**PRECISE, "epochs": 4, "batch": 24},
    "mask": {**PRECISE, "epochs": 4, "batch": 24, "masker_width": 4, "levels": 2},
    "private feature": {
        **PRECISE,
        **{"widths": (4, 4, 8, 8, 8, 8, 8), "dimension": 4, "batch": 16, "pairs": 4},
        **{"attribute_epochs": 2, "simple_epochs": 1, "private_epochs": 2},
    },
    "semsim": {**PRECISE, "network": "lenet", "size": 16, "epochs": 4, "batch": 16},
}


@cache
def world() -> data.LabelledImages:
    return data.load("faces", identities=12, images_per_identity=6, headwear=6, size=16)


@cache
def judgements() -> Judgements:
    pale = (world().images // 3 + 100)[:48]
    return Judgements(
        world().images[:24], pale, torch.arange(48) % 24, torch.arange(48) < 24, "every second is recognised"
    )


def train(method: str, settings: dict[str, Any] | None = None, **more: Any) -> Any:
    """A model of a method, with these settings beside the small ones."""
    given = SMALL[method] | (settings or {})
    people = {"sensitive": ["identity"] if method == "code" else "identity"} if given.get("against") else {}
    match method:
        case "code":
            return code.train(world(), CodeConfig(**given), target="headwear", **people, **more)
        case "few-shot":
            sides = {"target": "headwear", "validation": world()}
            return few_shot.train(
                world(), parse("gaussian:sigma=40"), FewShotConfig(**given), **sides, **more
            )
        case "classifier":
            protection = parse("gaussian:sigma=20" if given.get("policy") else "none")
            return classifier.train(
                world(), protection, ClassifierConfig(**given), target="expression", **more
            )
        case "mask":
            return adversarial_mask.train(world(), MaskConfig(**given), target="expression", **people, **more)
        case "private feature":
            sides = {"targets": ["expression"], "sensitive": "identity"}
            return private_feature.train(world(), FeatureConfig(**given), **sides, **more)
    return semsim.train(judgements(), SemSimConfig(**given), **more)


@cache
def of_seed(method: str, seed: int = 0) -> Any:
    return train(method, seed=seed)


def weights(model: Any) -> dict[str, torch.Tensor]:
    network = model.network if isinstance(model, SemSimModel) else model
    return {name: each.clone() for name, each in network.state_dict().items()}


def same(one: Any, other: Any) -> bool:
    ours, theirs = weights(one), weights(other)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("method", SMALL)
def test_a_seed_decides_all_weights_and_no_global_generator_moves(method: str):
    before = torch.random.get_rng_state()
    model = train(method)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert same(model, of_seed(method))
    assert not same(model, of_seed(method, 1))


CONFIGS = (CodeConfig, FewShotConfig, ClassifierConfig, MaskConfig, FeatureConfig, SemSimConfig)
COMMON = {"learning_rate", "epochs", "start"}  # settings of several methods
VARIED = {"flips": True, "policy": "ats"}


@pytest.mark.parametrize(
    ("method", "settings", "stop"),
    [
        ("code", {}, 8),
        ("code", {"pretraining_epochs": 2, "against": 0.5}, 8),
        ("code", {"pretraining_epochs": 1, "codebook": "means"}, 8),  # the first epoch of words has no step
        ("few-shot", {}, 8),
        ("few-shot", {"pretraining_epochs": 2}, 8),  # in the first epoch of episodes
        ("few-shot", {"pretraining_epochs": 3}, 5),  # before there is any
        ("classifier", VARIED, 8),
        ("classifier", {"optimiser": "sgd", **VARIED}, 8),
        ("mask", {}, 8),
        ("mask", {"selection": "soft", "precision": "bfloat16"}, 8),
        ("mask", {"anneal_from": 0.5, "flips": True, "against": 1.0}, 8),
        *(("private feature", {"variant": variant}, 2) for variant in private_feature.VARIANTS[1:]),
        *(("private feature", {"variant": "dpfe"}, stop) for stop in (1, 3)),
        ("semsim", {}, 8),
        ("semsim", {"momentum": 0.9}, 8),
    ],
)
def test_a_stopped_training_goes_on_as_if_it_had_not(
    tmp_path: Path, method: str, settings: dict[str, Any], stop: int
):
    class Stop(Exception):  # noqa: N818
        pass

    def progress(done: int, planned: int) -> None:
        if done == stop:
            raise Stop

    more: dict[str, Any] = {} if method in ("few-shot", "semsim") else {"validation": world()}
    with pytest.raises(Stop):
        train(method, settings, checkpoint=tmp_path / "c", progress=progress, **more)
    resumed = train(method, settings, checkpoint=tmp_path / "c", **more)
    whole = train(method, settings, **more)
    assert same(resumed, whole)
    assert resumed.card == whole.card


@pytest.mark.parametrize("method", SMALL)
def test_the_checkpoint_of_another_run_is_refused(tmp_path: Path, method: str):
    train(method, checkpoint=tmp_path / "run.checkpoint")
    for more in ({"seed": 1}, {"settings": {"learning_rate": 0.5}}):
        with pytest.raises(ArtefactError, match="another run: delete it, or name another file"):
            train(method, checkpoint=tmp_path / "run.checkpoint", **more)


LOADED: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    # The loader, and settings whose networks do not have these weights.
    "few-shot": (few_shot.load, {"denoiser_width": 5}),
    "classifier": (classifier.load, {"network": "conv4"}),
    "mask": (adversarial_mask.load, {"masker_width": 5}),
    "private feature": (private_feature.load, {"dimension": 5}),
}


@pytest.mark.parametrize("method", LOADED)
def test_an_artefact_gives_the_same_model_back_and_others_are_refused(tmp_path: Path, method: str):
    model, (load, others) = of_seed(method), LOADED[method]
    model.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert same(loaded, model)
    assert loaded.card["data"]["digest"] == world().digest
    assert loaded.card["privacy_spent"] is None
    tensors, card = artefacts.load(tmp_path / "model.safetensors", kind=method)
    artefacts.save(tmp_path / "other", tensors, card | {"config": card["config"] | others})
    artefacts.save(tmp_path / "bare", tensors, {"kind": method})
    for name, message in {"other": ": the weights do not fit", "bare": ", or of another version"}.items():
        with pytest.raises(ArtefactError, match=f"{name}: damaged{message}"):
            load(tmp_path / name)


@pytest.mark.parametrize("method", ["classifier", "mask"])
def test_the_best_epoch_by_validation_is_kept(method: str):
    """Its accuracy is on the card, and it is that of the weights that are returned."""
    shown = world().rows(torch.arange(0, 72, 3))
    model = train(method, {"learning_rate": 0.02, "epochs": 6}, validation=shown)
    if method == "mask":
        accuracy = adversarial_mask.evaluate(model, shown)
    else:
        accuracy = classifier.evaluate(model, shown, target="expression").mean
    assert model.card["validation_accuracy"] == accuracy
    assert of_seed(method).card["validation_accuracy"] is None


# Settings


@pytest.mark.parametrize(
    ("config", "settings", "message"),
    [
        (CodeConfig, {}, "of bits or of numbers"),
        (CodeConfig, {"bits": 4, "numbers": 4}, "of bits or of numbers"),
        (CodeConfig, {"bits": 0}, "bits=0: from 1 to 64"),
        (CodeConfig, {"bits": 4, "norm": 1, "noise": 1}, "norm and noise are for numbers"),
        (CodeConfig, {"numbers": 4, "flip": 0.1}, "flip is for bits"),
        (CodeConfig, {"bits": 4, "way": 1}, "way"),
        (CodeConfig, {"bits": 4, "epochs": 3, "pretraining_epochs": 3}, "pretraining_epochs=3: from 0 to 2"),
        (CodeConfig, {"bits": 4, "against": -1}, "against=-1: at least 0"),
        (CodeConfig, {"bits": 4, "encoder": "conv5"}, "did you mean 'conv4'"),
        (FewShotConfig, {"denoiser_depth": 1}, "denoiser_depth=1: at least 2"),
        (FewShotConfig, {"warps": 0.5}, "warps=0.5: from 0, which changes nothing, to below 0.5"),
        (FewShotConfig, {"cell": 0}, "cell=0: at least 1"),
        (FewShotConfig, {"pretraining_epochs": -1}, "pretraining_epochs=-1: from 0 to epochs=200"),
        (FewShotConfig, {"widths": (32, 64, 128, 256)}, "only resnet12 has widths, and the encoder is conv4"),
        (FewShotConfig, {"encoder": "resnet12", "widths": (32, 64)}, "four numbers of at least 1, such as"),
        (FewShotConfig, {"episodes_per_step": 3}, "episodes_per_step=3: a divisor of episodes_per_epoch=100"),
        (ClassifierConfig, {"network": "predicter"}, "no network is called 'predicter': did you mean 'predi"),
        (ClassifierConfig, {"optimiser": "sdg"}, "no optimiser is called 'sdg': did you mean 'sgd'"),
        (ClassifierConfig, {"policy": "crop"}, "no policy is called 'crop': did you mean 'crop-flip'"),
        (ClassifierConfig, {"shifts": -1}, "shifts=-1: at least 0"),
        (ClassifierConfig, {"learning_rate": float("nan")}, "learning_rate=nan: above 0"),
        (MaskConfig, {"keep": 0.0}, "keep=0: a share of the pixels, above 0 and below 1"),
        (MaskConfig, {"keep": float("nan")}, "keep=nan: a share"),
        (MaskConfig, {"anneal_from": 0.1}, "anneal_from=0.1: from keep=0.25 to 1, or null to begin with"),
        (MaskConfig, {"selection": "hard"}, "selection=hard: choose straight-through or soft"),
        (MaskConfig, {"against": float("inf")}, "against=inf: at least 0"),
        (MaskConfig, {"values": "none"}, "values=none: choose hard or soft or shape"),
        (MaskConfig, {"values": "soft"}, "the networks were never shown soft values: set selection=soft"),
        (MaskConfig, {"values": "shape"}, "set adversarial=false and selection=straight-through"),
        (FeatureConfig, {"widths": (4, 4)}, "seven numbers of at least 1"),
        (FeatureConfig, {"variant": "dpef"}, "variant=dpef: choose network, simple, dpfe, log-rank"),
        (FeatureConfig, {"beta": float("nan")}, "beta=nan: at least 0"),
        (FeatureConfig, {"pairs": 4, "batch": 7}, "batch=7: at least 8, for pairs=4"),
        (SemSimConfig, {"network": "resnet5"}, "no network is called 'resnet5': did you mean 'resnet50'"),
        (SemSimConfig, {"margin": 0.0}, "margin=0: above 0, and finite"),
        (SemSimConfig, {"momentum": 1.0}, "momentum=1: from 0 to below 1"),
        (PerceptualConfig, {"stages": 10}, "stages=10: at most the 9 of SqueezeNet"),
        (PerceptualConfig, {"terms": "place"}, "no kind of terms is called 'place': did you mean 'placed'"),
        (PerceptualConfig, {"size": 31}, "size=31: at least 32"),
        (PerceptualConfig, {"margin": 0.0}, "margin=0: above 0, and finite"),
        (PerceptualConfig, {"calibrated_on": 1.0}, "calibrated_on=1: a share of originals, above 0 and"),
        *((each, {"learning_rate": 0.0}, "learning_rate=0: above 0") for each in CONFIGS),
        *((each, {"precision": "half"}, "choose auto, float32, bfloat16") for each in CONFIGS[1:]),
        *((each, {"epochs": 0}, "epochs=0: at least 1") for each in CONFIGS if each is not FeatureConfig),
        *(
            (each, {"start": "drwan"}, r"'drawn'.* own are an encoder, such as encoder=")
            for each in CONFIGS[:3]
        ),
    ],
)
def test_a_setting_that_cannot_work_is_named(config: Any, settings: dict[str, Any], message: str):
    given = {"bits": 4} if config is CodeConfig and set() < settings.keys() <= COMMON else {}
    with pytest.raises(ConfigError, match=message):
        config(**given | settings)
