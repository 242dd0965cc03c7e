"""Settings of adversaries that cannot work are refused by name."""

import math
import re
from functools import partial

import pytest
import torch

from sfumato.attack import gradient_inversion, invert
from sfumato.attack.reidentify import AdversaryConfig
from sfumato.attack.updates import LocalTraining, Noise
from sfumato.attack.victim import ThreatModel
from sfumato.errors import ConfigError

FILES = {"weights": "network.safetensors", "detector": "mtcnn.safetensors"}
search = gradient_inversion.InversionConfig
knows, trained = partial(ThreatModel, shape=(3, 8, 8)), partial(LocalTraining, images=2)
face = partial(AdversaryConfig, recogniser="mobile-face-net", **FILES)


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (search, {"objective": "cosin"}, "no objective is called 'cosin': did you mean 'cosine'"),
        (search, {"labels": "inferred "}, "no labels is called 'inferred ': did you mean 'inferred'"),
        (search, {"optimiser": "adams"}, "no optimiser is called 'adams': did you mean 'adam'"),
        (search, {"restarts": 0}, "restarts=0: at least 1"),
        (search, {"statistics": math.nan}, "statistics=nan: at least 0"),
        (search, {"learning_rate": 0}, "learning_rate=0: above 0"),
        (search, {"decay_at": (0.5, 1)}, r"decay_at=\(0.5, 1\): shares of the steps"),
        (knows, {"shape": (8, 8)}, r"shape=\(8, 8\): channels, height and width"),
        (knows, {"shape": (3, 0, 8)}, r"shape=\(3, 0, 8\): channels, height and width"),
        (knows, {"batch": 0}, "batch=0: at least 1"),
        (knows, {"local_batch": 2}, "local_batch=2: a step sees 1 to 1 images"),
        (knows, {"labels": torch.arange(2)}, r"labels of shape \(2,\): one for each of the 1 images"),
        (knows, {"noise": -1.0}, r"noise=-1.0: at least 0"),
        (knows, {"local_rate": 0.0}, r"local_rate=0.0: above 0"),
        (trained, {"images": 0}, "images=0: at least 1"),
        (trained, {"rate": 0.0}, "rate=0.0: above 0"),
        (trained, {"batch": 3}, "batch=3: a step sees 1 to 2 images"),
        (Noise, {"noise_multiplier": 0, "clipping_norm": 1.0}, "noise_multiplier=0: above 0"),
        (invert.InversionConfig, {"learning_rate": math.inf}, "learning_rate=inf: above 0"),
        *(
            (invert.InversionConfig, {each: 0}, f"{each}=0: at least 1")
            for each in ("steps", "batch", "width")
        ),
        (AdversaryConfig, {"recogniser": "mobile-facenet"}, "did you mean 'mobile-face-net'"),
        (AdversaryConfig, {"steps": 0}, "steps=0: at least 1"),
        (AdversaryConfig, {"adaptive_steps": -1}, "adaptive_steps=-1: at least 0"),
        *((AdversaryConfig, {each: 0}, f"{each}=0: at least 1") for each in ("known", "probes", "copies")),
        (AdversaryConfig, {"second": "dlob"}, "no second is called 'dlob': did you mean 'dlib'"),
        (AdversaryConfig, {"second": "dlib"}, "second=dlib: it gets faces that a detector found: add it"),
        *((AdversaryConfig, {each: "f"}, f"conv4: {each}=f: only a face network has one") for each in FILES),
        *((face, {each: None}, f"mobile-face-net: {each}=None: name the file") for each in FILES),
        (face, {"steps": -1}, "steps=-1: at least 0"),
    ],
)
def test_settings_that_cannot_work_are_named(make, settings: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        make(**settings)
    if least := re.fullmatch(r"(\w+)=.*: at least (\d)", message):
        assert make(**{**settings, least[1]: int(least[2])})  # that is enough


def test_a_face_network_may_stay_as_it_was_published_and_any_may_go_without_adapting():
    assert face(steps=0).steps == 0
    assert AdversaryConfig(adaptive_steps=0).adaptive_steps == 0
