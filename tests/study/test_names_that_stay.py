"""Nothing that leaves this machine has a folder's name that nobody chose to send."""

import json
from pathlib import Path
from urllib.parse import unquote

import pytest
import torch
from tests.study.conftest import few_shot_settings

from sfumato import data, images
from sfumato.assess import pairs
from sfumato.base.engines import EngineConfig
from sfumato.device.jobs.folder import FolderConfig, protect_folder
from sfumato.learn import adversarial_mask, classifier, few_shot, meta, private_feature
from sfumato.protect import parse
from sfumato.study import grid, records, report, run

SECRET = "zanzibar"
TINY = {"precision": "float32"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a peculiar name, with photographs of twelve classes and a mask."""
    home = tmp_path_factory.mktemp(SECRET)
    draw = torch.Generator().manual_seed(0)
    for number in range(12 * 6):
        image = torch.randint(0, 256, (3, 16, 16), generator=draw).to(torch.uint8)
        images.write(home / "photos" / f"class-{number % 12}" / f"{number}.png", image)
    config = adversarial_mask.MaskConfig(masker_width=2, levels=1, epochs=1, batch=16, **TINY)
    adversarial_mask.train(source(home), config, target="class").save(home / "m.safetensors")
    return home


def source(home: Path) -> data.LabelledImages:
    return data.load(f"folder:{home}/photos", size=16)


def spec(home: Path) -> str:
    return f"mask:artefact={home}/m.safetensors,keep=0.3"


def assert_nothing_tells(folder: Path, *further: str) -> None:
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    assert found
    for path in found:
        text = path.read_bytes().decode("latin-1")
        for secret in (SECRET, *further):
            assert secret not in text, path
            assert secret not in unquote(text), path


def test_no_artefact_tells(home: Path, tmp_path: Path):
    loaded, mask, called = source(home), parse(spec(home)), "mask:artefact=m.safetensors,keep=0.3"
    assert SECRET in loaded.name
    assert SECRET in mask.spec
    paths = {name: tmp_path / f"{name}.safetensors" for name in ("few-shot", "classifier", "meta", "feature")}
    adversarial_mask.load(home / "m.safetensors").save(tmp_path / "mask.safetensors")
    episodes = few_shot_settings(2, 1, 1, episodes_per_epoch=1, validation_episodes=2, denoiser_depth=None)
    few_shot.train(loaded, mask, few_shot.FewShotConfig(**episodes, **TINY)).save(paths["few-shot"])
    classified = classifier.ClassifierConfig(network="lenet", epochs=1, **TINY)
    classifier.train(loaded, mask, classified, target="class").save(paths["classifier"])
    learned = meta.MetaConfig(network="strided", width=2, steps=1, tasks=1, way=2, queries=1)
    meta.train(loaded, mask, learned).save(paths["meta"])
    epochs = {"attribute_epochs": 1, "simple_epochs": 1, "private_epochs": 1}
    feature = private_feature.FeatureConfig(
        **epochs, widths=(2, 2, 8, 8, 8, 4, 4), dimension=2, batch=16, pairs=2, **TINY
    )
    classes = loaded.labels["class"]
    labels = {**loaded.labels, "identity": data.Label(classes.codes.roll(1), classes.names)}
    both = data.LabelledImages(loaded.name, loaded.images, labels)
    made = private_feature.train(both, feature, targets=["class"], sensitive="identity")
    made.save(paths["feature"])
    assert_nothing_tells(tmp_path)
    # And each is read again, where the mask is not.
    assert few_shot.load(paths["few-shot"]).protection.spec == meta.load(paths["meta"]).card["spec"] == called
    assert classifier.load(paths["classifier"]).card["made_of"] == mask.digest()


@pytest.mark.parametrize(
    "protection", ["outside:index={}/index.csv", "gaussian:sigma=99@box:file={}/boxes.csv"]
)
def test_no_release_tells_the_files_of_its_protection(home: Path, tmp_path: Path, protection: str):
    (home / "boxes.csv").write_text("left,top,right,bottom\n0,0,1,1\n")
    digests = {
        each: images.digest(images.read(home / f"photos/class-1/{each}.png")).hex() for each in (1, 13)
    }
    rows = [f"photos/class-1/{14 - each}.png,{digests[each]}\n" for each in (1, 13)]
    (home / "index.csv").write_text("".join(["file,digest\n", *rows]))
    (tmp_path / "in").mkdir()
    for each in (1, 13):
        (tmp_path / "in" / f"{each}.png").write_bytes((home / f"photos/class-1/{each}.png").read_bytes())
    made = parse(protection.format(home))
    for form in ("PNG", "RELEASE"):
        config, engine = FolderConfig(format_name=form), EngineConfig(workers=1)
        out = tmp_path / form
        outcome = protect_folder(tmp_path / "in", out, made, tmp_path / "ledger.db", config, engine=engine)
        assert outcome.shapes.total() == 2
        assert_nothing_tells(out, made.digest())  # type: ignore[attr-defined]


@pytest.mark.parametrize("rename", [False, True])
def test_no_release_tells(home: Path, tmp_path: Path, rename: bool):
    config, engine = FolderConfig(rename=rename), EngineConfig(workers=1)
    out, made = tmp_path / "out", parse(spec(home))
    protect_folder(home / "photos", out, made, tmp_path / "ledger.db", config, engine=engine)
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["spec"] == "mask:artefact=m.safetensors,keep=0.3"
    assert len(manifest["made_of"]) == 64
    assert_nothing_tells(out)


def test_no_export_and_no_table_of_pairs_tells(home: Path, tmp_path: Path):
    found = pairs.find(home / "photos", home / "photos")
    pairs.write_table(tmp_path / "pairs.csv", pairs.measure(found, [pairs.PIXELS[0]]))
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    pytest.importorskip("onnxscript", reason="the exporter of ONNX is not installed")
    from sfumato.export.export import export

    export(home / "m.safetensors", tmp_path / "m.onnx", check=source(home).images[:2])
    assert_nothing_tells(tmp_path)


def test_no_report_tells(home: Path, tmp_path: Path):
    pytest.importorskip("jinja2", reason="the extra study is not installed")
    (home / "other").mkdir()
    (home / "other" / "m.safetensors").write_bytes((home / "m.safetensors").read_bytes())
    settings = {
        "name": "tiny",
        "data": {"source": f"folder:{home}/photos", "size": 16},
        "task": {"way": 2, "shot": 1, "queries": 1, "episodes": 2, "sensitive": None},
        "protections": ["pixelize:cell=2", spec(home), spec(home / "other")],
        **{"learners": ["clean"], "attacks": []},
        "training": few_shot_settings(2, 1, 1, episodes_per_epoch=1, validation_episodes=2, **TINY),
    }
    directory = run.run(grid.parse(settings), tmp_path / "study")
    page = report.write(directory)
    for called in ("m.safetensors", "m.safetensors (2)"):
        assert f"mask:artefact={called},keep=0.3" in page.read_text()
    assert SECRET not in unquote(page.read_text())
    for folder in ("tables", "models"):
        assert_nothing_tells(directory / folder)
    records.pack(directory, tmp_path / "rows" / "mine.jsonl")
    assert_nothing_tells(tmp_path / "rows")
    rows = (tmp_path / "rows" / "mine.jsonl").read_text()
    assert '"mask:artefact=m.safetensors (2),keep=0.3"' in rows
