import json

import pytest
import torch

from sfumato import data
from sfumato.errors import DataError, SpecError
from sfumato.study import grid, run
from sfumato.study.run import Progress

SETTINGS = {
    "data": {"source": "faces", "identities": 24, "images_per_identity": 9, "headwear": 18, "size": 16},
    "task": {
        "target": "headwear",
        "sensitive": "identity",
        "way": 3,
        "shot": 2,
        "queries": 3,
        "episodes": 20,
    },
    "protections": ["blur:radius=1", "dp-pix:cell=4,epsilon=3"],
    "training": {
        "way": 3,
        "shot": 2,
        "queries": 3,
        "epochs": 2,
        "episodes_per_epoch": 2,
        "validation_way": 2,
        "validation_shot": 2,
        "validation_queries": 2,
        "validation_episodes": 5,
        "denoiser_depth": 2,
        "denoiser_width": 4,
    },
    "adversary": {"steps": 3, "adaptive_steps": 2, "batch": 16, "gallery": 6, "probes": 3, "copies": 2},
}


def records_of(directory):
    return {path.name: json.loads(path.read_text()) for path in (directory / "records").glob("*.json")}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("run")
    run.run(grid.parse(SETTINGS), directory)
    return directory


def test_every_cell_has_one_record(finished):
    records = records_of(finished)
    kinds = [record["kind"] for record in records.values()]
    # none: clean; two protections: clean, protected, denoised.
    assert kinds.count("accuracy") == 1 + 2 * 3
    # none: static; two protections: static, adaptive, and static on denoised images.
    assert kinds.count("attack") == 1 + 2 * 3
    assert kinds.count("similarity") == 1 + 2 * 2
    assert kinds.count("embeddings") == 1 + 2 * 2
    assert kinds.count("pictures") == 3
    study = json.loads((finished / "study.json").read_text())
    assert {f"{one['digest']}.json" for one in study["cells"]} == set(records)


def test_the_study_lists_its_cells_in_their_order_as_the_records_carry_them(finished):
    listed = json.loads((finished / "study.json").read_text())["cells"]
    cells = grid.cells(grid.parse(SETTINGS))
    assert [(one["kind"], one["cell"]) for one in listed] == [
        (cell.kind, {"protection": cell.protection, "seed": cell.seed, **dict(cell.which)}) for cell in cells
    ]
    records = records_of(finished)
    for one in listed:
        record = records[f"{one['digest']}.json"]
        assert one == {key: record[key] for key in ("digest", "kind", "cell")}


def test_what_is_not_protected_is_identical(finished):
    (clear,) = [
        r["result"]
        for r in records_of(finished).values()
        if r["kind"] == "similarity" and r["cell"]["protection"] == "none"
    ]
    assert clear["ssim"] == pytest.approx(1)
    assert clear["psnr"] is None
    assert clear["mse"] == 0
    assert clear["guarantee"] is None


def test_records_carry_the_guarantee_and_the_bytes_that_travel(finished):
    (released,) = [
        r["result"]
        for r in records_of(finished).values()
        if r["kind"] == "similarity"
        and r["cell"]["protection"].startswith("dp-pix")
        and r["cell"]["view"] == "released"
    ]
    assert released["bytes_per_image"] == 3 * 4 * 4
    assert released["guarantee"]["value"] == 3
    assert released["guarantee"]["whole_image"] == 3 * 16 * 16


def test_a_finished_study_does_nothing(finished):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*") if "study.json" not in path.name}
    run.run(grid.parse(SETTINGS), finished)
    after = {path: path.stat().st_mtime_ns for path in finished.rglob("*") if "study.json" not in path.name}
    assert before == after


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

    def results(directory):
        kept = {}
        for name, record in records_of(directory).items():
            record["result"].pop("train_seconds", None)
            kept[name] = record["result"]
        return kept

    assert results(tmp_path) == results(finished)


def test_a_changed_setting_repeats_what_depends_on_it_and_nothing_else(finished):
    def digests(**changes):
        config = grid.parse({**SETTINGS, **changes})
        loaded = data.load("faces", **{k: v for k, v in SETTINGS["data"].items() if k != "source"})
        lab = run._Lab(config, loaded, finished, Progress())
        return {str(cell): lab.digest(cell) for cell in grid.cells(config)}

    before = digests()
    stronger = digests(adversary={**SETTINGS["adversary"], "steps": 4})
    assert {words.split()[0] for words in before if before[words] != stronger[words]} == {"attack"}
    longer = digests(training={**SETTINGS["training"], "epochs": 3})
    changed = {words for words in before if before[words] != longer[words]}
    assert "attack reidentify-denoised blur:radius=1" in changed
    assert "attack reidentify-adaptive blur:radius=1" not in changed
    assert "similarity released blur:radius=1" not in changed


def test_the_adversary_never_trains_on_the_people_he_looks_for(finished):
    config = grid.parse(SETTINGS)
    loaded = data.load("faces", **{k: v for k, v in SETTINGS["data"].items() if k != "source"})
    lab = run._Lab(config, loaded, finished, Progress())
    looked_for = loaded.split("test").classes("identity")
    assert not torch.isin(lab._others.classes("identity"), looked_for).any()


def test_where_one_label_determines_the_other_the_study_says_so(tmp_path):
    settings = {**SETTINGS, "task": {**SETTINGS["task"], "target": "identity"}, "protections": []}
    run.run(
        grid.parse({**settings, "learners": ["clean"], "attacks": [], "pictures": 0, "embeddings": False}),
        tmp_path,
    )
    assert json.loads((tmp_path / "study.json").read_text())["task"]["secret_is_task"] is True


def test_what_cannot_work_is_said_before_anything_is_trained(tmp_path):
    with pytest.raises(SpecError, match="cell=17 is larger than the 16x16 images"):
        run.run(grid.parse({**SETTINGS, "protections": ["pixelize:cell=17"]}), tmp_path)
    with pytest.raises(DataError, match=r"test images: .* the way is 40"):
        run.run(grid.parse({**SETTINGS, "task": {**SETTINGS["task"], "way": 40}}), tmp_path)
    with pytest.raises(DataError, match="did you mean 'identity'"):
        run.run(grid.parse({**SETTINGS, "task": {**SETTINGS["task"], "sensitive": "identiy"}}), tmp_path)
    assert not (tmp_path / "models").exists()


def test_an_adversary_who_restores_first_adds_his_cells_and_repeats_no_other(finished):
    before = records_of(finished)
    settings = {
        **SETTINGS,
        "attacks": [*grid.ATTACKS],
        "restoration": {"steps": 2, "batch": 4},
    }
    run.run(grid.parse(settings), finished)
    added = [record for name, record in records_of(finished).items() if name not in before]
    assert sorted((one["kind"], one["cell"]["protection"]) for one in added) == [
        ("attack", "blur:radius=1"),
        ("attack", "dp-pix:cell=4,epsilon=3"),
        ("similarity", "blur:radius=1"),
        ("similarity", "dp-pix:cell=4,epsilon=3"),
    ]
    assert {one["cell"].get("attack", one["cell"].get("view")) for one in added} == {
        "reidentify-restored",
        "restored",
    }
