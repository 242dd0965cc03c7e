"""Served = studied: what comes back over HTTP is what a study measures, of every kind of release and store.

The same images, the same episodes: a device with a ledger protects, charges and enrols them, a service
answers from its store. Many of their releases are equal. studies/served.py at 2f64c651 did so with trained
models.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cloud import SIDE, Wire, encoder, untrained
from devices import write_feature, write_mask
from encoders import Small, write_onnx
from torch import Tensor

from sfumato import artefacts
from sfumato.device.client import Client, ServiceError, look_up
from sfumato.device.jobs.releasing import charge_and_release
from sfumato.device.ledger import Ledger
from sfumato.dp.mechanisms import seeded_noise
from sfumato.learn import few_shot
from sfumato.learn.few_shot import FewShotConfig
from sfumato.learn.gallery import answers_of_episodes, measure_prototypes, measure_refusal
from sfumato.networks.encoders.pretrained import on_card
from sfumato.protect import parse
from sfumato.protect.code import Code
from sfumato.serve import models
from sfumato.serve.answer_tables import has_answers
from sfumato.serve.http.app import create
from sfumato.serve.served import Served
from sfumato.serve.store import Store
from sfumato.study.measure.accuracy import serve_vectors

CLASSES, IMAGES, WAY, SHOT, QUERIES = 12, 12, 4, 5, 4


def photographs() -> tuple[Tensor, np.ndarray]:
    """Images of squares, whose colours are of a class but for some noise; and the class of each."""
    draw = np.random.default_rng(0)
    middles = draw.integers(0, 256, (CLASSES, 1, 3, 4, 4))
    squares = middles + draw.normal(0, 20, (CLASSES, IMAGES, 3, 4, 4))
    side = SIDE // 4
    pixels = squares.clip(0, 255).astype(np.uint8).repeat(side, 3).repeat(side, 4).reshape(-1, 3, SIDE, SIDE)
    return torch.from_numpy(pixels), np.repeat(np.arange(CLASSES), IMAGES)


def code(
    folder: Path, images: Tensor, classes: np.ndarray, flip: float | None = None, **size: int
) -> tuple[Any, Served]:
    """A code of an encoder that was never trained, with what training would have measured on its card."""
    path = encoder(folder / "model.safetensors", **size)
    made = Code(str(path), flip=flip, **size)
    clean, noisy = (
        torch.from_numpy(each.release(images, seeded_noise(0)).numbers())
        for each in (replace(made, flip=None), made)
    )
    known = measure_prototypes(clean, noisy, torch.from_numpy(classes), way=WAY, shot=SHOT, code=made)
    tensors, card = artefacts.load(path, kind="code")
    artefacts.save(path, tensors, card | {"prototypes": known})
    return Code(str(path), flip=flip), models.load(path)


def seen(folder: Path, images: Tensor, classes: np.ndarray, spec: str) -> tuple[Any, Served]:
    """Pixels, for a network that was never trained, with a refusal that is measured."""
    if spec.startswith("mask"):
        spec = spec.format(write_mask(folder / "mask.safetensors", shape=(3, SIDE, SIDE)))
    made = parse(spec, takes=("pixels", "shape"))
    first = untrained(folder, "first", made.spec)
    embedded = first.run(first.prepare(made.release(images, seeded_noise(0))))
    refusal, _ = measure_refusal(embedded, classes, way=WAY, shot=SHOT)
    return made, untrained(folder, "model", made.spec, refusal=refusal and refusal.card())


def own_encoder(folder: Path, images: Tensor, classes: np.ndarray) -> tuple[Any, Served]:
    """Pixels, for an encoder that its user brought as an ONNX file."""
    made = parse("pixelize:cell=8")
    config = FewShotConfig(encoder=write_onnx(folder / "own.onnx", Small()), denoiser_depth=None)
    card = {"config": {**asdict(config), "encoder": on_card(config.encoder)}, "spec": made.spec}
    card |= {"channels": 3, "precision": "float32", "shape": [3, SIDE, SIDE]}
    few_shot.make_untrained(3, config, made, card=card).save(folder / "model.safetensors")
    return made, models.load(folder / "model.safetensors")


def feature(folder: Path, images: Tensor, classes: np.ndarray) -> tuple[Any, Served]:
    """A private feature of an extractor that was never trained, without noise."""
    path = write_feature(folder / "model.safetensors", shape=(3, SIDE, SIDE))
    return parse(f"feature:artefact={path},noise=0", takes=("numbers",)), models.load(path)


KINDS: dict[str, Callable[..., tuple[Any, Served]]] = {
    "pixels": lambda *given: seen(*given, "pixelize:cell=8"),
    "mask": lambda *given: seen(*given, "mask:artefact={},keep=0.25"),
    "shape": lambda *given: seen(*given, "mask:artefact={},keep=0.25,values=shape"),
    "own encoder": own_encoder,
    "feature": feature,
    "numbers": lambda *given: code(*given, numbers=8),
    "20 bits": lambda *given: code(*given, bits=20),
    "16 bits": lambda *given: code(*given, bits=16),
    "16 noisy bits": lambda *given: code(*given, bits=16, flip=0.1),
    "4 bits": lambda *given: code(*given, bits=4),
    "1 bit": lambda *given: code(*given, bits=1),
}
NEVER_REFUSING = ("own encoder", "feature", "4 bits", "1 bit")


# A store holds vectors or codes, whatever they are of: one kind with each is enough for the second database.
@pytest.mark.parametrize(
    ("url", "kind"),
    [*(("sqlite", kind) for kind in KINDS), ("postgresql", "pixels"), ("postgresql", "16 noisy bits")],
    indirect=["url"],
)
def test_what_is_answered_over_http_is_what_a_study_measures(store: Store, tmp_path: Path, kind: str):
    images, classes = photographs()
    protection, served = KINDS[kind](tmp_path, images, classes)
    draw = np.random.default_rng(1)
    chosen = np.stack([draw.permutation(CLASSES)[: WAY + 1] for _ in range(3)])  # one more than is enrolled
    places = np.stack(
        [[c * IMAGES + draw.permutation(IMAGES)[: SHOT + QUERIES] for c in own] for own in chosen]
    )
    answers = answered(store, served, protection, images, places, tmp_path)
    with Ledger(tmp_path / "ledger.db") as ledger:  # what left, with its noise, and what would leave
        release = charge_and_release(protection, images, ledger).release
    if served.kind == "few-shot":
        vectors, weights = served.run(served.prepare(release)), np.ones(len(images))
        codes, refusal = None, served.refusal
    else:
        vectors, weights, codes, refusal = serve_vectors(release)
        if "bit" in kind and "noisy" not in kind:  # several photographs have one code
            assert len(np.unique(vectors, axis=0)) < len(vectors)
    hits, accepted = answers_of_episodes(
        *(vectors, places[:, :WAY]), shot=SHOT, weights=weights, codes=codes, refusal=refusal
    )
    labels = np.array([[[guesses[-1].label for guesses in row] for row in each] for each in answers])
    none = np.array([[[guesses[0].label is None for guesses in row] for row in each] for each in answers])
    assert np.array_equal(labels[:, :WAY] == np.arange(WAY).astype(str)[:, None], hits)
    assert hits.mean() > 1.3 / WAY
    assert (refusal is None) == (kind in NEVER_REFUSING)
    if refusal is None:
        assert not none.any()
        return
    assert accepted is not None
    assert np.array_equal(~none[:, :WAY], accepted)
    # Of 48 queries of enrolled classes, and of 12 of others.
    stated = refusal
    assert accepted.mean() > stated.accepted.low - 0.05
    assert stated.refused.low - 0.3 < none[:, WAY].mean() < stated.refused.high + 0.3


def answered(
    store: Store, served: Served, protection: Any, images: Tensor, places: np.ndarray, folder: Path
) -> list[list[list[Any]]]:
    """What a client is told of the queries of each class of each episode."""
    key = store.create_key("museum", role="write", name="device")[1]
    app = create(store, [served])
    with Ledger(folder / "ledger.db") as ledger:  # images of a class are near copies
        ledger.set_near_copies("ignore")
    how = {"protection": protection, "ledger": folder / "ledger.db", "transport": Wire(app)}
    told = []
    with Client("http://127.0.0.1:9", key=key, **how) as device:
        for number, rows in enumerate(places):
            name = f"episode {number}"
            device.create(name, served.name)
            given = {str(row): list(images[rows[row, :SHOT]]) for row in range(WAY)}
            enrolled = device.enrol_many(given, classifier=name)
            assert {each.total for each in enrolled.values()} == {SHOT}
            asked = list(images[rows[:, SHOT:].ravel()])
            guesses = device.classify_many(asked, top=1, classifier=name)
            if not has_answers(served):
                with pytest.raises(ServiceError, match=r"has no table.*classify by queries"):
                    device.answer_table(classifier=name)
            elif not protection.draws_noise:
                # A device that sends nothing has the same answers.
                by_table = look_up(device.answer_table(classifier=name), protection, asked)
                assert [[one.label for one in row] for row in by_table] == [
                    [one.label for one in row] for row in guesses
                ]
            told.append([guesses[start : start + QUERIES] for start in range(0, len(guesses), QUERIES)])
    app.state.service.engine.close()
    return told
