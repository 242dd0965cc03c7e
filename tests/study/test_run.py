import csv
import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.study.conftest import few_shot_settings
from torch.nn import functional
from typer.testing import CliRunner

from sfumato import data, protect
from sfumato.cli.app import app
from sfumato.errors import ArtefactError, BudgetExceededError, ConfigError, DataError, SpecError
from sfumato.learn import adversarial_mask, classifier, meta
from sfumato.networks import DlibResNet, align
from sfumato.study import cells as kinds
from sfumato.study import grid, report, run, vocabulary
from sfumato.study.cells import Cell
from sfumato.study.lab.lab import Lab, Progress
from sfumato.study.records import unpack
from sfumato.study.run import description

pytestmark = pytest.mark.usefixtures("quick_adversaries")

EPISODES = {"way": 3, "shot": 2, "queries": 3}
SETTINGS = {
    "data": {"source": "faces", "identities": 24, "images_per_identity": 9, "headwear": 18, "size": 16},
    "task": {"target": "headwear", "sensitive": "identity", **EPISODES, "episodes": 20},
    "protections": ["blur:radius=1", "dp-pix:cell=4,epsilon=3"],
    "training": few_shot_settings(3, 2, 3, epochs=2, validation_episodes=5),
    "adversary": {"steps": 3, "adaptive_steps": 2, "batch": 16, "known": 6, "probes": 3, "copies": 2},
    "attacks": ["reidentify-static", "reidentify-adaptive", "reidentify-values"],
    "student": {"steps": 2, "batch": 4},
}
# 26 characters to train on, which are 8 tasks of 3, and 8 to test on.
GLYPHS = {
    "data": {"source": "glyphs", "classes": 40, "drawers": 6, "size": 16},
    "protections": ["gaussian:sigma=40"],
    "task": {"way": 3, "shot": 1, "queries": 2, "episodes": 10},
    "training": {**SETTINGS["training"], "denoiser_depth": None},
    "learners": ["meta"],
    "meta": {"steps": 3, "tasks": 2, "queries": 2, "network": "strided", "inner_rate": 0.1},
    "pictures": 0,
}
FEW = {**SETTINGS, "attacks": [], "measures": [], "tells": False, "pictures": 0, "learners": ["clean"]}


def cartoons():
    return data.load("faces", **{k: v for k, v in SETTINGS["data"].items() if k != "source"})


def records_of(directory):
    return {path.name: json.loads(path.read_text()) for path in (directory / "records").glob("*.json")}


def results(directory, kind):
    """(protection, learner, attack or view) -> result."""
    found = {}
    for one in records_of(directory).values():
        if one["kind"] == kind:
            which = [value for key, value in one["cell"].items() if key not in ("protection", "seed")]
            found[one["cell"]["protection"], *which] = one["result"]
    return found


def digests_of(config, directory, loaded=None):
    lab = Lab(config, loaded or cartoons(), directory, Progress())
    return {str(cell): kinds.digest(lab, cell) for cell in kinds.cells(config)}


def differ(before, after):
    return {words for words in before if before[words] != after[words]}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("run")
    run.run(grid.parse(SETTINGS), directory)
    return directory


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "another"}, "the run of study 'study' on faces, and this is 'another' on faces: name"),
        ({"data": GLYPHS["data"]}, "this is 'study' on glyphs, other images or labels: name"),
        ({"data": {**SETTINGS["data"], "seed": 1}}, "this is 'study' on faces, other images or labels: name"),
    ],
)
def test_the_run_of_another_study_is_not_replaced_unless_that_is_asked_for(tmp_path, change, message):
    few = {**FEW, "protections": [], "task": {**FEW["task"], "target": "identity"}}
    run.run(grid.parse(few), tmp_path)
    before = (tmp_path / "study.json").read_bytes()
    assert json.loads(before)["task"]["secret_is_task"] is True  # one label determines the other
    glyphs = change.get("data") == GLYPHS["data"]
    task = {**few["task"], "target": "class", "sensitive": None} if glyphs else few["task"]
    other = grid.parse({**few, **change, "task": task})
    with pytest.raises(DataError, match=message):
        run.run(other, tmp_path)
    assert (tmp_path / "study.json").read_bytes() == before
    run.run(other, tmp_path, force=True)
    assert (tmp_path / "study.json").read_bytes() != before


def test_images_for_the_first_screen_are_recorded_of_the_recommended_setting_alone(tmp_path, monkeypatch):
    config = grid.parse({**FEW, "pictures": 1})
    for recommended in (None, "blur:radius=1"):
        monkeypatch.setattr(
            run, "_find_recommended", lambda config, directory, number, spec=recommended: spec
        )
        run.run(config, tmp_path)
        shown = [r["cell"]["protection"] for r in records_of(tmp_path).values() if r["kind"] == "examples"]
        listed = json.loads((tmp_path / "study.json").read_text())["cells"]
        assert shown == [recommended] * (recommended is not None)
        assert [one["cell"]["protection"] for one in listed if one["kind"] == "examples"] == shown


def test_a_study_that_varies_a_setting_shares_a_folder_and_has_a_result_for_each_value(tmp_path):
    few = {**FEW, "protections": ["blur:radius=1"], "attacks": ["reidentify-values"], "seeds": [0]}
    varied = {**few, "vary": {"adversary.copies": [1, 2], "task.shot": [1, 2]}}
    file, run_folder = tmp_path / "mine.yaml", tmp_path / "run"
    file.write_text(json.dumps(varied))

    def command(*arguments):
        made = CliRunner().invoke(app, ["study", *map(str, arguments)])
        assert made.exit_code == 0, made.output
        return made.stdout

    said = command("run", file, "--out", run_folder)
    assert said.count("no recommendation") == 4
    command("rows", run_folder, tmp_path / "mine.jsonl")
    records = records_of(run_folder)
    # Two values of each key: accuracies do not depend on the adversary, nor attacks on the shots.
    made = Counter(record["kind"] for record in records.values())
    assert (made["accuracy"], made["attack"]) == (2 * 2, 2)
    assert not any("varied" in record for record in records.values())
    for place in (run_folder, tmp_path / "mine.jsonl"):
        loaded = report.load_all(place)
        assert [results.study["varied"] for results in loaded] == [
            {"adversary.copies": copies, "task.shot": shot} for copies in (1, 2) for shot in (1, 2)
        ]
        for results in loaded:
            study = results.study
            assert study["adversary"]["copies"] == study["varied"]["adversary.copies"]
            assert study["task"]["shot"] == study["varied"]["task.shot"]
            assert Counter(record.kind for record in results.records) == Counter(
                cell.kind for cell in kinds.cells(grid.parse(few))
            )
            assert all(record.varied == study["varied"] for record in results.records)
        with pytest.raises(DataError, match=r"this run varies adversary\.copies, task\.shot, and each value"):
            report.load(place)
    pages = [report.page_of(run_folder, number) for number in (1, 2, 3, 4)]
    for number in (1, 4):
        page = pages[number - 1].read_text()
        assert re.findall('<a href="(report.*?)"', page) == [p.name for p in pages if p != pages[number - 1]]
        assert f"mine (adversary.copies: {1 + number // 4}, task.shot: {1 + number // 4})" in page
    for name in ("accuracy", "reidentification", "frontier"):
        lines = list(csv.reader((run_folder / "tables" / f"{name}.csv").read_text().splitlines()))
        assert lines[0][:3] == ["adversary.copies", "task.shot", "protection"]
        assert {tuple(line[:2]) for line in lines[1:]} == {("1", "1"), ("1", "2"), ("2", "1"), ("2", "2")}
    again = tmp_path / "again"
    unpack(tmp_path / "mine.jsonl", again)
    assert records_of(again) == records
    assert command("report", again, "--json") == command("report", run_folder, "--json")


def test_more_known_photographs_than_anybody_has_are_said_and_no_value_of_a_comparison(tmp_path):
    few, notes = {**FEW, "protections": [], "attacks": ["reidentify-static"]}, []
    few["adversary"] = {**few["adversary"], "known": 60}
    words = "adversary.known=60: the adversaries have at most 8 photographs of a person"
    lab = Lab(grid.parse(few), cartoons(), tmp_path, Progress(note=notes.append))
    run.check(lab)
    assert notes == [words]
    assert lab.adversaries.deal(0)[0].numel() == 6 * 8
    with pytest.raises(ConfigError, match=rf"vary: {words}: leave this value out"):
        run.run(grid.parse({**few, "vary": {"adversary.known": [2, 60]}}), tmp_path)


def test_records_carry_the_guarantee_the_bytes_that_travel_and_the_operations_of_a_query(finished):
    found = results(finished, "similarity")
    clear = found["none", "released"]
    assert clear["ssim"] == pytest.approx(1)  # what is not protected is identical
    assert (clear["psnr"], clear["mse"], clear["guarantee"]) == (None, 0, None)
    released = found["dp-pix:cell=4,epsilon=3", "released"]
    assert released["bytes_per_image"] == 3 * 4 * 4
    assert (released["guarantee"]["value"], released["guarantee"]["whole_image"]) == (3, 3 * 16 * 16)
    operations = {key: result["operations"] for key, result in results(finished, "accuracy").items()}
    clean = operations["none", "clean"]
    assert clean > 0
    assert operations["blur:radius=1", "clean"] == operations["blur:radius=1", "protected"] == clean
    # The denoiser: 16x16 places, 3x3 windows, from 3 channels to 4 and back.
    assert operations["blur:radius=1", "denoised"] == clean + 16 * 16 * 9 * (3 * 4 + 4 * 3)


def test_every_cell_has_one_record_which_the_study_lists_and_a_finished_study_does_nothing(finished):
    listed, records = json.loads((finished / "study.json").read_text())["cells"], records_of(finished)
    cells = kinds.cells(grid.parse(SETTINGS))
    assert [(one["kind"], one["cell"]) for one in listed] == [(cell.kind, cell.coordinates) for cell in cells]
    assert len(listed) == len(records)
    for one in listed:
        record = records[f"{one['digest']}.json"]
        assert one == {key: record[key] for key in ("digest", "kind", "cell")}

    def times():
        return {
            path: path.stat().st_mtime_ns for path in finished.rglob("*") if "study.json" not in path.name
        }

    before = times()
    run.run(grid.parse(SETTINGS), finished)
    assert times() == before


def test_a_stopped_study_ends_with_the_same_results(finished, tmp_path):
    class Stop(Exception):  # noqa: N818
        pass

    def stop(words, done, total):
        if done == 6:
            raise Stop

    config = grid.parse(SETTINGS)
    with pytest.raises(Stop):
        run.run(config, tmp_path, progress=Progress(cell=stop))
    assert len(records_of(tmp_path)) == 6
    run.run(config, tmp_path)

    def kept(directory):
        found = {name: record["result"] for name, record in records_of(directory).items()}
        return {name: {**result, "train_seconds": None} for name, result in found.items()}

    assert kept(tmp_path) == kept(finished)


def test_pictures_and_people_that_splits_share_are_said_and_are_in_the_study_without_names(tmp_path):
    loaded = cartoons()
    loaded.images[loaded.splits["test"][:2]] = loaded.images[loaded.splits["train"][:2]]
    moved = loaded.splits | {"test": torch.cat([loaded.splits["test"], loaded.splits["train"][:1]])}
    prepared = run.prepare(grid.parse(SETTINGS), loaded=replace(loaded, splits=moved))
    images = f"3 of {len(moved['test'])} images of test are the same pictures as in train"
    assert any(note.startswith(f"{images} (such as image") for note in prepared.notes)
    lab = Lab(prepared.config, prepared.data[0], tmp_path, Progress())
    words = description([lab], [])["data"]["shared"]
    assert any(each.startswith(f"{images}: what is measured on test is too high") for each in words)
    assert any("people ('identity') are in more than one split" in each for each in words)
    assert not any("such as" in each for each in words)


def test_a_changed_setting_repeats_what_depends_on_it_and_nothing_else(finished):
    def digests(**changes):
        return digests_of(grid.parse({**SETTINGS, **changes}), finished)

    before = digests()
    stronger = differ(before, digests(adversary={**SETTINGS["adversary"], "steps": 4}))
    assert {words.split()[0] for words in stronger} == {"attack", "many"}
    changed = differ(before, digests(training={**SETTINGS["training"], "epochs": 3}))
    assert "attack reidentify-denoised blur:radius=1" in changed
    assert changed.isdisjoint(
        {"attack reidentify-adaptive blur:radius=1", "similarity released blur:radius=1"}
    )


def test_the_adversary_never_trains_on_the_people_he_looks_for_also_distractors(tmp_path):
    loaded = cartoons()
    rows = loaded.splits["train"]
    strangers = loaded.split("train").classes("identity")[:3]
    of_strangers = torch.isin(loaded.label("identity").codes[rows], strangers)
    # They stay in the training split, too: he must leave them out himself.
    with_distractors = replace(loaded, splits={**loaded.splits, "distractors": rows[of_strangers]})
    lab = Lab(grid.parse(SETTINGS), with_distractors, tmp_path, Progress())
    looked_for = torch.cat([loaded.split("test").classes("identity"), strangers])
    assert not torch.isin(lab.adversaries.others.classes("identity"), looked_for).any()
    found = kinds.measure(lab, Cell("attack", "none", 0, (("attack", "reidentify-static"),)))
    assert found["identities"] == 6 + 3  # of the test, and distractors
    assert (found["gallery"], found["probes"]) == (9 * 6, 9 * 3)
    assert found["chance"] == pytest.approx(1 / 9)


def test_an_attack_records_each_classifier_the_pairs_and_whom_it_names(finished):
    people = len(cartoons().split("test").label("identity").codes.unique())
    attacks = results(finished, "attack")
    assert {name.endswith("-adaptive") for _, name in attacks} == {True, False}
    of_values = {"svm", "1-nn", "mean", "discriminant", "rbf", "plda", "plda-rbf"}
    for (spec, name), found in attacks.items():
        assert found["people"] == [3] * people  # probes of each
        for score in found["scores"]:
            assert all(0 <= hits <= 3 for hits in score["hits"])
            assert sum(score["hits"]) / found["probes"] == pytest.approx(score["top1"])
            assert 0 <= score["low"] <= score["top1"] <= score["high"] <= 1
            assert score["top1"] <= score["top5"] <= score["top10"] == 1  # of 6 people
        if grid.ATTACKS[name].view == "values":
            assert spec != "none"
            assert {score["classifier"] for score in found["scores"]} == of_values
            assert (found["gallery"], found["probes"], found["identities"]) == (6 * 6, 6 * 3, 6)
            assert found["learned_from"] == 18 * 9  # all images of people whom nobody looks for
            continue
        # Who adapts trains their recogniser further, and keeps the one they had.
        adapted, known = grid.ATTACKS[name].adaptive, ["svm", "1-nn", "mean"]
        further = [f"{each}, trained further" for each in known] if adapted else []
        assert [score["classifier"] for score in found["scores"]] == [*known, *further]
        trained = [network["network"] for network in found["trained"]]
        assert trained == ["recogniser", *(["recogniser, trained further"] if adapted else [])]
        assert 0 <= found["verification_auc"] <= 1
        assert 0 <= found["tar_at_far_1e-3"] <= 1
        assert found["faces_found"] is None


def test_other_shots_test_the_same_models(finished, tmp_path):
    directory = shutil.copytree(finished, tmp_path / "run")
    models = set((directory / "models").iterdir())
    few = {"learners": ["protected"], "attacks": [], "protections": ["blur:radius=1"]}
    few |= {"pictures": 0}

    def tested(**task):
        run.run(grid.parse({**SETTINGS, **few, "task": {**SETTINGS["task"], **task}}), directory)
        listed = json.loads((directory / "study.json").read_text())["cells"]
        records = records_of(directory)
        kept = [records[f"{one['digest']}.json"] for one in listed if one["kind"] == "accuracy"]
        return {one["cell"]["protection"]: one["result"] for one in kept}

    both, one_shot = tested(other_shots=[1], other_ways=[2]), tested(shot=1)
    pairs = tested(way=2)
    assert set(both) == {"none", "blur:radius=1"}
    for spec, result in both.items():
        assert result["accuracy_1_shot"] == one_shot[spec]["accuracy"]
        assert result["half_width_1_shot"] == one_shot[spec]["half_width"]
        assert result["accuracy_2_way_2_shot"] == pairs[spec]["accuracy"]
        assert {"accuracy_2_way_1_shot", "half_width_2_way_1_shot"} <= set(result)
    assert set((directory / "models").iterdir()) == models


def test_classes_of_the_task_are_learned_tested_and_drawn_and_others_are_not(tmp_path):
    some = [f"hat-{number:04}" for number in (2, 3, 5, 7, 0, 1, 4, 6, 11)]  # 4 to train, 2 and 3
    config = grid.parse({**FEW, "task": {**SETTINGS["task"], "classes": some}})
    lab = Lab(config, cartoons(), tmp_path, Progress())
    classes = [each.classes("headwear").tolist() for each in (lab.train, lab.validation, lab.asked)]
    assert classes == [[2, 3, 5, 7], [0, 1], [4, 6, 11]]
    # People are looked for on all of the images.
    assert len(lab.adversaries.training) == len(cartoons().split("train"))


# Meta-learning


def meta_learned(private=None, **changes):
    settings = {**GLYPHS, **changes}
    return grid.parse({**settings, "meta": {**settings["meta"], "private": private}})


PRIVATE = {"epsilon": 8, "delta": 1e-3, "clipping": "fixed", "settings": {"clipping_norm": 1.0}}
PRIVATE |= {"noise_multiplier": 2.0}


def promised(directory):
    return {spec: result for (spec, name), result in results(directory, "accuracy").items() if name == "meta"}


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    directory = tmp_path_factory.mktemp("meta")
    run.run(meta_learned(), directory)
    return directory


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    directory = tmp_path_factory.mktemp("private")
    run.run(meta_learned(PRIVATE), directory)
    return directory


def test_a_meta_learner_is_tested_as_meta_evaluate_does(learned):
    glyphs = data.load("glyphs", classes=40, drawers=6, size=16).split("test")
    models = [meta.load(path) for path in (learned / "models").glob("meta-*.safetensors")]
    assert {model.card["spec"] for model in models} == {"none", "gaussian:sigma=40"}
    for model in models:
        result = promised(learned)[model.card["spec"]]
        alone = meta.evaluate(model, glyphs, queries=2, episodes=10)
        assert (result["accuracy"], result["half_width"]) == (alone.mean, alone.half_width)
        assert (result["episodes"], result["trained_steps"], result["precision"]) == (10, 3, "float32")
        nothing = "nothing is promised to the images that it was trained on"
        assert result["privacy"] == {"promise": nothing}
    assert not list((learned / "models").glob("*.checkpoint"))


def test_a_private_meta_learner_records_its_promise_in_words_and_by_three_accountants(kept):
    for path in (kept / "models").glob("meta-*.safetensors"):
        model = meta.load(path)
        privacy = promised(kept)[model.card["spec"]]["privacy"]
        expected = {"promise": meta.promise(model.card), **model.card["privacy"]}
        expected.pop("classes", None)  # of the pool: a record need not carry them
        assert privacy == expected
        assert 0 < privacy["epsilon"] <= 8
        assert privacy["epsilon"] < privacy["rdp"]
        assert privacy["gdp_approximation"] > 0
        assert (privacy["delta"], privacy["clipping"], privacy["accountant"]) == (1e-3, "fixed", "PLD")
    assert not list((kept / "models").glob("*.checkpoint"))


def test_settings_of_meta_learning_decide_meta_learned_cells_and_no_others(tmp_path):
    glyphs = data.load("glyphs", classes=40, drawers=6, size=16)

    def digests(learners=("meta", "protected"), **changes):
        return digests_of(grid.parse({**GLYPHS, "learners": [*learners], **changes}), tmp_path, glyphs)

    def changed(**changes):
        return differ(before, digests(**changes))

    before = digests()
    of_meta = {"accuracy meta none", "accuracy meta gaussian:sigma=40"}
    assert digests(learners=["protected"]).items() <= before.items()
    assert changed(meta={**GLYPHS["meta"], "steps": 4}) == of_meta
    assert changed(meta={**GLYPHS["meta"], "private": PRIVATE}) == of_meta
    assert of_meta.isdisjoint(changed(training={**GLYPHS["training"], "epochs": 3}))
    # It is for one shot: others are not tested, and repeat nothing.
    assert of_meta.isdisjoint(changed(task={**GLYPHS["task"], "other_shots": [2]}))
    assert of_meta <= changed(task={**GLYPHS["task"], "episodes": 11})


@pytest.mark.parametrize(
    ("private", "changes", "message"),
    [
        ({"clipping": "fixd"}, {}, "no clipping policy is called 'fixd': did you mean 'fixed'"),
        ({"delta": 0.5}, {}, "delta=0.5 with a pool of 8 tasks"),
        ({}, {"tasks": 9}, "tasks=9: the pool has 8 tasks, and a step can have no more"),
        ({"epsilon": 0.01}, {}, "costs eps = .*, and the budget is 0.01: nothing was spent"),
        ({}, {"queries": 60}, r"training images: .* the way is 3"),
    ],
)
def test_a_promise_that_cannot_be_kept_is_refused_before_anything_is_trained(
    private, changes, message, tmp_path
):
    with pytest.raises((ConfigError, BudgetExceededError, DataError), match=message):
        run.run(meta_learned({**PRIVATE, **private}, meta={**GLYPHS["meta"], **changes}), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_private_meta_learner_is_not_tested_on_classes_that_it_was_trained_on(tmp_path):
    glyphs = data.load("glyphs", classes=40, drawers=6, size=16)
    both = {name: torch.arange(len(glyphs)) for name in ("train", "validation", "test")}
    mixed = replace(glyphs, splits=both)
    with pytest.raises(ConfigError, match=r"is in the training and in the test split, .*: split the data by"):
        run.check(Lab(meta_learned(PRIVATE), mixed, tmp_path, Progress()))
    run.check(Lab(meta_learned(), mixed, tmp_path, Progress()))  # without a promise there is none to break


# Ordinary classifiers, and masks

CLASSIFIERS = [name for name, each in vocabulary.LEARNERS.items() if each.knows_classes]
MASKED = {
    "data": {**SETTINGS["data"]},
    "task": {"target": "hair_color", "sensitive": "identity"},
    "learners": CLASSIFIERS,
    "classifier": {"epochs": 2, "batch": 32, "precision": "float32"},
    "attacks": ["reidentify-shape"],
    "measures": ["face-similarity"],
    "adversary": SETTINGS["adversary"],
    "pictures": 1,
}


def write_mask(path, seed=0):
    config = adversarial_mask.MaskConfig(keep=0.25, epochs=1, masker_width=4, levels=1, precision="float32")
    adversarial_mask.train(cartoons().split("train"), config, target="hair_color", seed=seed).save(path)


@pytest.fixture(scope="module")
def mask(tmp_path_factory):
    path = tmp_path_factory.mktemp("mask") / "m.safetensors"
    write_mask(path)
    return f"mask:artefact={path}"


def masked(mask, **changes):
    return grid.parse({**MASKED, "protections": ["gaussian:sigma=40", mask], **changes})


@pytest.fixture(scope="module")
def judged(mask, tmp_path_factory):
    directory = tmp_path_factory.mktemp("masked")
    run.run(masked(mask), directory)
    return directory


def test_a_classifier_is_tested_on_every_test_image_as_classifier_evaluate_does(judged, mask):
    found = results(judged, "accuracy")
    assert set(found) == {
        ("none", "classifier-clean"),
        *((spec, name) for spec in ("gaussian:sigma=40", mask) for name in CLASSIFIERS[:2]),
        (mask, "classifier-shape"),
    }
    test = cartoons().split("test")
    models = [classifier.load(path) for path in (judged / "models").glob("classifier-*.safetensors")]
    assert len(models) == 1 + 2 + 1  # the clean one serves all
    for model in models:
        clean, shapes = model.card["spec"] == "none", model.card["shapes"]
        for (spec, learner), result in found.items():
            if clean != (learner == "classifier-clean") or shapes != (learner == "classifier-shape"):
                continue
            if clean or spec == model.card["spec"]:
                alone = classifier.evaluate(model, test, target="hair_color", protection=protect.parse(spec))
                assert (result["accuracy"], result["low"]) == (alone.mean, alone.low)
                assert (result["images"], result["chance"]) == (len(test), alone.chance)
                assert result["trained_epochs"] == model.card["epochs"]
    assert not list((judged / "models").glob("*.checkpoint"))


def test_faces_are_as_alike_as_they_are_and_no_more(judged, mask):
    found = {key: result["face-similarity"] for key, result in results(judged, "similarity").items()}
    assert found.pop(("none", "released")) == pytest.approx(1)
    assert set(found) == {("gaussian:sigma=40", "released"), (mask, "released")}
    # Of two people it does not depend on the protection.
    assert len({each["face-similarity_of_two"] for each in results(judged, "similarity").values()}) == 1
    assert all(-1 <= value < 0.999 for value in found.values())


def test_a_mask_that_was_trained_again_at_the_same_path_is_another(tmp_path):
    path = tmp_path / "m.safetensors"
    spec = f"mask:artefact={path}"
    write_mask(path)
    before = digests_of(masked(spec), tmp_path / "run")
    assert digests_of(masked(spec), tmp_path / "run") == before
    write_mask(path, seed=1)
    changed = differ(before, digests_of(masked(spec), tmp_path / "run"))
    assert changed == {words for words in before if words.endswith(spec)}


def test_settings_of_classifiers_decide_their_cells_and_no_others(tmp_path, mask):
    def changed(**changes):
        return differ(before, digests_of(masked(mask, **changes), tmp_path))

    before = digests_of(masked(mask), tmp_path)
    accuracies = {words for words in before if words.startswith("accuracy")}
    assert changed(classifier={**MASKED["classifier"], "epochs": 3}) == accuracies
    assert changed(task={**MASKED["task"], "way": 2, "shot": 1, "episodes": 7}) == set()
    assert accuracies.isdisjoint(changed(adversary={**SETTINGS["adversary"], "steps": 4}))
    assert changed(training={"epochs": 3}) == {words for words in before if words.startswith("pictures")}


# Face networks

FACE_NETWORK = ("weights/mobilefacenet_casia_112x96.safetensors", "weights/mtcnn.safetensors")


def face_network(folder, **settings):
    weights, detector = (str(folder / name) for name in FACE_NETWORK)
    return {"recogniser": "mobile-face-net", "weights": weights, "detector": detector, **settings}


@pytest.fixture(scope="module")
def photographs(shared_data, tmp_path_factory):
    """A folder of faces from LFW: 4 people to train on, 3 to validate, 6 to look for, 5 photographs each."""
    for name in FACE_NETWORK:
        if not (shared_data / name).exists():
            pytest.skip(f"no {name} among the real data")
    packed = dict(np.load(shared_data / "lfw_faces_84.npz"))
    root = tmp_path_factory.mktemp("photographs")
    people, counts = np.unique(packed["person"], return_counts=True)
    splits = ["train"] * 4 + ["validation"] * 3 + ["test"] * 6
    for split, person in zip(splits, people[counts >= 5], strict=False):
        folder = root / split / f"person-{person}"
        folder.mkdir(parents=True)
        for row in np.flatnonzero(packed["person"] == person)[:5]:
            start, end = packed["offset"][row : row + 2]
            (folder / f"{row}.jpg").write_bytes(packed["blob"][start:end].tobytes())
    return root


class Pixels:
    """A second network for tests, quick and weak: the pixels of faces."""

    def cut(self, images, landmarks):
        return align(images, landmarks, (16, 16))

    def embed(self, faces):
        return functional.normalize(faces.flatten(1).float(), dim=1)


def test_face_networks_find_faces_and_name_people_without_training(
    photographs, shared_data, tmp_path, monkeypatch
):
    monkeypatch.setattr(DlibResNet, "load", Pixels)  # tests/networks/test_dlib_resnet.py has the network
    training = few_shot_settings(2, 1, 1, episodes_per_epoch=1, validation_episodes=2, denoiser_depth=None)
    adversary = {"steps": 0, "adaptive_steps": 0, "known": 3, "probes": 2, "copies": 1, "second": "dlib"}
    config = grid.parse(
        {
            "data": f"folder:{photographs}",
            "task": {"way": 2, "shot": 1, "queries": 1, "sensitive": "class", "episodes": 2},
            "protections": ["blur:radius=9"],
            "learners": ["clean"],
            "training": training,
            "attacks": ["reidentify-static", "reidentify-adaptive"],
            "adversary": face_network(shared_data, **adversary),
            "measures": ["face-similarity"],
            "pictures": 0,
        }
    )
    run.run(config, tmp_path)
    found = results(tmp_path, "attack")
    blurred = ("blur:radius=9", "reidentify-static"), ("blur:radius=9", "reidentify-adaptive")
    assert set(found) == {("none", "reidentify-static"), *blurred}
    clear = found["none", "reidentify-static"]
    assert (clear["identities"], clear["gallery"], clear["probes"]) == (6, 18, 12)
    top1 = {score["classifier"]: score["top1"] for score in clear["scores"]}
    by = ("", ", by dlib", ", by both networks")
    assert list(top1) == [f"{classifier}{words}" for words in by for classifier in ("svm", "1-nn", "mean")]
    assert top1["mean"] >= 0.75 > top1["mean, by dlib"]  # by chance 1 of 6
    assert clear["verification_auc"] > 0.9
    assert clear["faces_found"] > 0.9
    alike = {key: result["face-similarity"] for key, result in results(tmp_path, "similarity").items()}
    assert alike["none", "released"] == pytest.approx(1)
    assert alike["blur:radius=9", "released"] < 0.7
    for result in results(tmp_path, "similarity").values():
        assert result["face-similarity_of_two"] < 0.3
    # Both look at the same probes; a detector that has never seen such a blur finds few faces on them.
    assert found[blurred[0]]["faces_found"] == found[blurred[1]]["faces_found"] < clear["faces_found"]


GREY = {**GLYPHS["data"], "drawers": 12}
FACES = {**SETTINGS["adversary"], **face_network(Path("gone"))}
REFUSED = [
    ({"protections": ["pixelize:cell=17"]}, {}, "cell=17 is larger than the 16x16 images"),
    ({}, {"way": 40}, r"test images: .* the way is 40"),
    ({}, {"sensitive": "identiy"}, "did you mean 'identity'"),
    (
        {},
        {"classes": ["hat-0002", "hat-002"]},
        r"task\.classes: no headwear 'hat-002': did you mean 'hat-0012'",
    ),
    ({"protections": ["mask:artefact=gone.safetensors"]}, {}, r"gone\.safetensors: no such file"),
    ({"measures": ["semsim:gone.safetensors"]}, {}, r"gone\.safetensors"),
    (
        {"learners": CLASSIFIERS, "protections": []},
        {"target": "headwear"},
        r"classes of 'headwear', .* are in no training image: a classifier is tested on new images",
    ),
    (
        {"data": GREY, "protections": [], "adversary": FACES},
        {"target": "class", "sensitive": "class"},
        "grey images, and mobile-face-net reads colour: load them with chan",
    ),
    ({"adversary": FACES}, {}, r"mobilefacenet.*: the weights cannot be read \(No such file"),
]


@pytest.mark.parametrize(("changes", "task", "message"), REFUSED)
def test_what_cannot_work_is_said_before_anything_is_trained(tmp_path, changes, task, message):
    with pytest.raises((ArtefactError, ConfigError, DataError, SpecError), match=message):
        run.run(grid.parse({**SETTINGS, **changes, "task": {**SETTINGS["task"], **task}}), tmp_path)
    assert not (tmp_path / "models").exists()


EVERYBODY = {**SETTINGS, "attacks": [name for name in grid.ATTACKS if grid.ATTACKS[name].method]}


@pytest.fixture(scope="module")
def everybody(finished, tmp_path_factory):
    """The finished run with all adversaries."""
    directory = shutil.copytree(finished, tmp_path_factory.mktemp("everybody") / "run")
    return run.run(grid.parse(EVERYBODY), directory)


def test_who_trains_or_adapts_to_the_denoiser_adds_their_cells_and_repeats_no_other(finished, everybody):
    before = records_of(finished)
    added = [record for name, record in records_of(everybody).items() if name not in before]
    new = [f"reidentify-{name}" for name in ("denoised-adaptive", "fused", "sorted", "student")]
    for spec in ("blur:radius=1", "dp-pix:cell=4,epsilon=3"):
        mine = [one for one in added if one["cell"]["protection"] == spec]
        assert sorted(one["cell"]["attack"] for one in mine if one["kind"] == "attack") == new
        (taught,) = [one["result"] for one in mine if one["cell"]["attack"] == "reidentify-student"]
        assert [each["network"] for each in taught["trained"]] == ["student"]
        assert [score["classifier"] for score in taught["scores"]] == ["svm", "1-nn", "mean"]
    assert len(added) == len(new) * 2


@pytest.mark.parametrize(
    ("study", "words"),
    [
        ("everybody", ['id="risk-title"', 'id="pictures-title"']),
        ("kept", ["Each row speaks of one model alone"]),
        ("learned", ["without a budget"]),
        ("judged", ["face similarity"]),
    ],
)
def test_the_report_reads_every_record_of_a_run(study, words, request, tmp_path):
    directory = shutil.copytree(request.getfixturevalue(study), tmp_path / "run")
    results = report.load(directory)
    assert len(results.records) == len(results.study["cells"])
    assert results.missing == []
    page = report.write(directory).read_text(encoding="utf-8")
    assert "not in this report" not in page
    assert all(each in page for each in words)


def test_with_folds_everybody_is_looked_for_once_on_what_was_trained_without_them(tmp_path, monkeypatch):
    unsplit = replace(cartoons(), splits={}, split_by="identity")
    monkeypatch.setattr(run.data, "load", lambda source, **settings: unsplit)
    settings = {
        **{**FEW, "protections": ["pixelize:cell=4"], "attacks": ["reidentify-values"]},
        **{"learners": ["classifier-clean"], "classifier": {"network": "conv4", "epochs": 1}},
        "task": {"target": "gender", "sensitive": "identity", "folds": 2},
    }
    settings.pop("training")
    prepared = run.prepare(grid.parse(settings))
    loaded = report.load(run.run(prepared, tmp_path))
    study, records = loaded.study, loaded.records
    assert study["seeds"] == [0, 1]
    # Each fold is listed: its splits and its digest; every image is tested in one of them.
    folds = study["data"]["folds"]
    assert [fold["digest"] for fold in folds] == [part.digest for part in prepared.data]
    assert [fold["splits"]["test"] for fold in folds] == [len(part.split("test")) for part in prepared.data]
    assert study["data"]["splits"] == {"test": len(unsplit)}
    trained = sorted((tmp_path / "models").glob("classifier-*.safetensors"))
    assert len(trained) == 2  # by the people of each fold
    (risk,) = [each for (spec, _), each in loaded.risks.items() if spec != "none"]
    results = [record.result for record in records if record.kind == "attack"]
    hits = risk.named[risk.classifier]
    assert len(hits.probes) == 24
    assert risk.identities == 12
    assert risk.chance == pytest.approx(1 / 12)
    scores = [score for each in results for score in each.scores if score.classifier == risk.classifier]
    assert risk.top1.value == pytest.approx(sum(sum(score.hits) for score in scores) / (24 * 3))
    accuracy = loaded.accuracies["none", "classifier-clean"]
    clear = [record for record in records if record.cell.protection == "none"]
    named = [record.result for record in clear if record.kind == "accuracy"]
    assert sum(each.images for each in named) == len(unsplit)
    assert accuracy.value == pytest.approx(sum(each.accuracy * each.images for each in named) / len(unsplit))
    assert accuracy.seeds == 1  # an interval over images, and no range of seeds
