"""A study of everything that leaves a device: pixels, shapes, numbers and answers side by side."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.protect.test_code import encoder
from tests.study.test_run import SETTINGS, cartoons
from torch import Tensor

from sfumato import artefacts, protect
from sfumato.attack import reidentify
from sfumato.attack.ensemble import GALLERY, PROBES
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ConfigError, DataError, SpecError
from sfumato.images import digest
from sfumato.protect import Protection, release
from sfumato.study import cells as kinds
from sfumato.study import grid, records, report, run, vocabulary
from sfumato.study.cells import Cell
from sfumato.study.choose.figures import mandatory_attacks, percent
from sfumato.study.choose.results import describe_measurements
from sfumato.study.lab.lab import Lab, Progress
from sfumato.study.measure import looks

Registering = Callable[[str, str, Any], None]

pytestmark = pytest.mark.usefixtures("quick_adversaries")

PROTECTIONS = [
    "pixelize:cell=4",
    "mask:keep=0.1,values=hard,shape",
    "feature:dimension=4,noise=0,0.3",
    "feature:dimension=4,noise=1,norm=2",
    "code:bits=3",
    "code:bits=3,flip=0.1",
    "code:numbers=4,norm=1,noise=0.1",
    "code:bits=3,codebook=means",
    "answer",
]
SPECS = [
    "none",
    "pixelize:cell=4",
    "mask:keep=0.1",
    "mask:keep=0.1,values=shape",
    "feature:noise=0,dimension=4",
    "feature:noise=0.3,dimension=4",
    "feature:noise=1,dimension=4,norm=2",
    "code:bits=3",
    "code:bits=3,flip=0.1",
    "code:numbers=4,norm=1,noise=0.1",
    "code:bits=3,codebook=means",
    "answer",
]
CODES = SPECS[7:10]
EPOCHS = {"attribute_epochs": 1, "simple_epochs": 1, "private_epochs": 1}
EPISODES = {"way": 3, "shot": 2, "queries": 2}
QUICK = {
    "masks": {"epochs": 1, "masker_width": 4, "levels": 2, "batch": 32},
    "features": {"widths": [2, 2, 4, 4, 4, 4, 8], **EPOCHS, "pairs": 4, "batch": 32},
    "codes": {**EPISODES, "pretraining_epochs": 1, "epochs": 2, "episodes_per_epoch": 2, "validation_way": 2},
    "inversion": {"steps": 2, "width": 2},
    "student": {"steps": 2, "batch": 4},
}
EPISODIC: dict[str, Any] = {
    **SETTINGS,
    **QUICK,
    "task": {**SETTINGS["task"], "episodes": 4},
    "protections": PROTECTIONS,
    "attacks": [f"reidentify-{name}" for name in ("static", "adaptive", "student", "values")],
    "reconstructions": ["invert-feature"],
    "tells": False,  # what releases tell is in a study of its own
    "pictures": 1,
}
KNOWN: dict[str, Any] = {
    **EPISODIC,
    "task": {"target": "expression", "sensitive": "identity"},  # of too few classes for words
    "protections": [spec for spec in PROTECTIONS if "means" not in spec],
    "learners": ["classifier-clean", "classifier-protected"],
    "classifier": {"epochs": 1},
}
ALONE: dict[str, Any] = {"attacks": [], "reconstructions": []}  # nobody attacks: the other study has them


def results_of(directory: Path) -> dict[tuple[Any, ...], Any]:
    """(kind, protection, which...) -> typed result."""
    loaded = [
        records.parse(json.loads(path.read_text(encoding="utf-8")))
        for path in (directory / "records").glob("*.json")
    ]
    return {(record.kind, record.cell.protection, *record.cell.which): record.result for record in loaded}


@pytest.fixture(scope="module")
def episodic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run.run(grid.parse(EPISODIC), tmp_path_factory.mktemp("episodic"))


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run.run(grid.parse({**KNOWN, **ALONE}), tmp_path_factory.mktemp("known"))


# What is studied of which kind


def test_every_release_has_the_kind_that_the_vocabulary_says(episodic):
    assert grid.parse(EPISODIC).specs == SPECS  # those that are yet to be trained in the study's own words
    assert vocabulary.RELEASES == release.KINDS
    kinds_of_trained = {spec: proof.release for spec, proof in report.load(episodic).proofs.items()}
    assert kinds_of_trained == {spec: vocabulary.release_kind(spec) for spec in SPECS}


@pytest.mark.parametrize(("size", "kind"), [({"bits": 12}, "bits"), ({"numbers": 6}, "numbers")])
def test_a_code_of_a_file_has_the_kind_that_the_file_makes_wherever_its_spec_is_read(tmp_path, size, kind):
    path = encoder(tmp_path / "own.safetensors", **size)
    (_, spec) = grid.parse({**KNOWN, "protections": [f"code:artefact={path}"]}).specs
    assert spec == f"code:artefact={path}{',numbers=6' if kind == 'numbers' else ''}"
    assert vocabulary.release_kind(spec) == kind
    # Also where the report is read, without the file: who must be tried depends on it.
    assert vocabulary.release_kind(spec.replace(str(path), "own.safetensors")) == kind
    assert "reidentify-values" in mandatory_attacks(spec)


def test_a_registered_protection_whose_kind_is_a_property_is_asked(registering: Registering):
    @dataclass(frozen=True)
    class Own(Protection):
        name = "own"

        @property
        def kind(self) -> str:
            return "numbers"

    registering("protections", "own", Own)
    assert vocabulary.release_kind("own") == "numbers"


def test_each_kind_is_learned_and_attacked_by_those_who_take_it(episodic: Path):
    results = results_of(episodic)
    learners, attacks = (
        {spec: {key[2] for key in results if key[:2] == (kind, spec)} for spec in SPECS}
        for kind in ("accuracy", "attack")
    )
    assert learners["mask:keep=0.1"] == {"clean", "protected", "denoised"}
    assert learners["feature:noise=0,dimension=4"] == learners[CODES[0]] == {"protected"}
    assert learners["answer"] == {"answer"}
    assert attacks["pixelize:cell=4"] >= {*EPISODIC["attacks"]}
    for spec in ("feature:noise=0.3,dimension=4", "answer", CODES[0]):
        assert attacks[spec] == {"reidentify-adaptive", "reidentify-values"}
    assert {key[1] for key in results if key[0] == "similarity" and key[2] == "released"} == set(SPECS[:4])
    assert {key[1] for key in results if key[0] == "reconstruction"} == {*SPECS[4:7], CODES[2]}


def test_everything_that_leaves_a_device_is_attacked_by_its_values(episodic: Path):
    results = results_of(episodic)
    for spec in SPECS[1:]:
        scores = results["attack", spec, "reidentify-values"].scores
        classifiers = {score.classifier.partition(",")[0] for score in scores}
        assert classifiers >= {"svm", "1-nn", "mean", "rbf"}, spec
        # A network of two steps may give the same numbers for all, from which nothing is learned.
        assert "plda" in classifiers or vocabulary.release_kind(spec) not in vocabulary.IMAGES, spec


def test_the_exact_table_is_that_of_few_outputs_alone(episodic: Path):
    results = results_of(episodic)
    for spec in (*CODES[:2], "answer"):
        attack = results["attack", spec, "reidentify-values"]
        (table,) = [score for score in attack.scores if score.classifier == "table"]
        assert 0 <= table.low <= table.top1 <= table.high <= 1
        assert table.top1 <= table.in_sample + 0.1  # of probes, and of the gallery that it was made of
        # Counting bounds what a table names, but for the chance of 18 probes.
        assert table.low <= results["proved", spec].outputs / attack.identities


def test_the_exact_table_counts_each_release_of_a_photograph_once(tmp_path: Path):
    """Eight of each, of which others have two: a release that counts twice is no new one."""
    drawn: dict[int, list[int]] = {GALLERY: [], PROBES: []}

    class Counted(Lab):
        def release(self, cell: Cell, clean: Tensor, stream: int = 0, number: int = 0) -> Any:
            drawn.setdefault(stream, []).append(number)
            return super().release(cell, clean, stream, number)

    spec = f"code:artefact={encoder(tmp_path / 'code.safetensors', bits=2)},flip=0.1"
    lab = Counted(grid.parse({**KNOWN, "protections": [spec]}), cartoons(), tmp_path, Progress())
    cell = Cell("attack", spec, 0, (("attack", "reidentify-values"),))
    (table,) = (score for score in kinds.measure(lab, cell)["scores"] if score["classifier"] == "table")
    assert 0 < table["in_sample"] <= 1
    assert sorted(drawn[GALLERY]) == sorted(drawn[PROBES]) == list(range(8))


def test_distractors_are_no_people_of_a_proof(tmp_path: Path):
    """A probe shows somebody of the test images: the chance that is proved is among them alone."""
    spec, loaded = f"code:artefact={encoder(tmp_path / 'code.safetensors', bits=2)},flip=0.1", cartoons()
    rows, train = loaded.splits["train"], loaded.split("train")
    strangers = torch.isin(train.label("identity").codes, train.classes("identity")[:3])
    with_distractors = replace(loaded, splits={**loaded.splits, "distractors": rows[strangers]})
    lab = Lab(grid.parse({**KNOWN, "protections": [spec]}), with_distractors, tmp_path, Progress())
    result = kinds.measure(lab, Cell("proved", spec, 0))
    assert result["people"] == len(loaded.split("test").classes("identity")) == 6
    assert min(naming["candidates"] for naming in result["naming"]) == 6


def test_what_is_left_out_is_said_in_a_sentence(episodic: Path):
    study = json.loads((episodic / "study.json").read_text(encoding="utf-8"))
    without = ", ".join(SPECS[4:])
    assert (
        "The attack 'reidentify-static' takes pixels and shapes, and is left out where others are released: "
        f"for {without}." in study["left_out"]
    )
    assert not any("pixelize" in text for text in study["left_out"] if text.startswith("The attack"))
    assert study["left_out"] == kinds.list_omissions(grid.parse(EPISODIC))


def test_numbers_are_classified_by_whoever_takes_numbers_where_all_classes_are_known(known: Path):
    results = results_of(known)
    for spec in SPECS[4:10]:
        (result,) = [value for key, value in results.items() if key[:2] == ("accuracy", spec)]
        assert 0 <= result.low <= result.accuracy <= result.high <= 1
        assert result.images == len(cartoons().split("test"))


# Protections that the study trains


def test_one_artefact_serves_all_settings_that_differ_in_the_release_alone(episodic: Path):
    made = Counter(path.name.partition("-")[0] for path in (episodic / "models").glob("*-*.safetensors"))
    assert (made["mask"], made["feature"], made["answer"]) == (1, 1, 1)
    assert (made["code"], made["pretraining"]) == (4, 1)  # trained through their noise; all begin from one


@pytest.mark.parametrize("spec", ["mask:artefact={}", "feature:artefact={},noise=0.3", "answer:artefact={}"])
def test_an_artefact_of_a_study_is_one_that_protect_reads(known: Path, spec: str):
    (path,) = (known / "models").glob(f"{spec.partition(':')[0]}-*.safetensors")
    protection = protect.parse(spec.format(path), takes=release.KINDS)
    clean = cartoons().split("test").images[:3]
    assert len(protection.release(clean, seeded_noise(0)).values) == 3


def test_two_studies_with_one_folder_of_artefacts_train_a_protection_once(tmp_path: Path):
    shared = tmp_path / "shared"
    settings = {**KNOWN, **ALONE, "protections": ["mask:keep=0.1"], "artefacts": str(shared)}
    run.run(grid.parse({**settings, "name": "first"}), tmp_path / "first")
    (mask,) = shared.glob("mask-*.safetensors")
    before = mask.stat().st_mtime_ns
    run.run(grid.parse({**settings, "name": "second", "measures": ["mse"]}), tmp_path / "second")
    assert [*shared.glob("mask-*.safetensors")] == [mask]
    assert mask.stat().st_mtime_ns == before


def test_a_protection_goes_on_being_trained_where_the_study_was_stopped(tmp_path: Path):
    masks, models = {**QUICK["masks"], "epochs": 3}, tmp_path / "stopped/models"
    config = grid.parse({**KNOWN, **ALONE, "protections": ["mask:keep=0.1"], "masks": masks})

    def train(folder: str, **listeners: Any) -> bytes:
        lab = Lab(config, cartoons(), tmp_path / folder, Progress(**listeners))
        return lab.artefact_of("mask:keep=0.1", 0).read_bytes()

    def stop(done: int, planned: int) -> None:
        if [*models.glob("mask-*.checkpoint")]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train("stopped", within=stop)
    assert not [*models.glob("mask-*.safetensors")]
    steps: list[int] = []
    assert train("stopped", within=lambda done, planned: steps.append(done)) == train("whole")
    assert steps[0] > 1  # the first epoch was not trained again
    assert not [*models.glob("mask-*.checkpoint")]


def test_settings_of_masks_decide_cells_of_masks_and_no_others(tmp_path: Path):
    def digests(**changes: Any) -> dict[str, str]:
        config = grid.parse({**KNOWN, "tells": True, **changes})
        lab = Lab(config, cartoons(), tmp_path, Progress())
        return {str(cell): kinds.digest(lab, cell) for cell in kinds.cells(config)}

    before, after = digests(), digests(masks={**QUICK["masks"], "epochs": 2})
    assert {name.split()[-1] for name in before if before[name] != after[name]} == {*SPECS[2:4]}
    # Which are all of these masks' cells.
    assert all(before[name] != after[name] for name in before if name.split()[-1] in SPECS[2:4])


def test_a_study_trains_codes_with_the_same_scenes_of_drawn_people_alone(tmp_path: Path):
    codes = {**QUICK["codes"], "epochs": 2, "same_scenes": 1}
    config = grid.parse({**EPISODIC, **ALONE, "protections": ["code:bits=3"], "codes": codes})
    (drawn,) = run.prepare(config).data
    path = Lab(config, drawn, tmp_path, Progress()).artefact_of("code:bits=3", 0)
    assert path is not None
    assert artefacts.load(path, kind="code")[1]["config"]["same_scenes"] == 1
    photographs = replace(drawn, name="folder:photos")
    with pytest.raises(DataError, match="folder:photos: the same scenes are drawn"):
        run.check(Lab(config, photographs, tmp_path, Progress()))


def test_a_mistake_in_a_protection_to_train_is_named_when_the_study_is_read():
    for spec, message in {
        "mask:keep=2": "keep=2 is not a share of the pixels",
        "feature:dimension=3": "feature: noise is missing",
        "answer:keep=3": "answer: no parameter 'keep'",
    }.items():
        with pytest.raises(SpecError, match=message):
            grid.parse({**KNOWN, "protections": [spec]})
    coarse = {**EPISODIC, "protections": ["answer"], "training": {**SETTINGS["training"], "cell": 2}}
    with pytest.raises(ConfigError, match="=2: a device that answers sees every pixel"):
        run.run(grid.parse(coarse), Path("unused"))
    with pytest.raises(SpecError, match="a feature removes a label: name one as"):
        run.run(grid.parse({**KNOWN, **ALONE, "task": {"target": "expression"}}), Path("unused"))


# What decides the artefact of a mask


def settings_of(spec: str = "mask:keep=0.1", *, sensitive: str | None = "identity", **masks: Any) -> Any:
    changed = {"masks": {**QUICK["masks"], **masks}, "task": {"target": "expression", "sensitive": sensitive}}
    config = grid.parse({**KNOWN, **ALONE, **changed, "protections": PROTECTIONS[:1]})
    return [recipe.settings(config) for recipe in vocabulary.expand(spec)]


def test_without_a_weight_the_sensitive_label_decides_nothing_and_with_one_it_does():
    wanted = {"masks": {**QUICK["masks"], "keep": 0.1}, "target": "expression", "classes": None}
    assert settings_of() == settings_of(sensitive=None) == [wanted]
    (found,) = settings_of(against=3.0)
    assert (found["masks"]["against"], found["sensitive"]) == (3.0, "identity")
    with pytest.raises(SpecError, match=r"mask:keep=0.1: against=3 is against telling a label: name one"):
        settings_of(sensitive=None, against=3.0)


def test_a_spec_has_settings_of_its_own_training():
    with_step, without = settings_of("mask:keep=0.1,adversarial=yes,no,selection=soft,against=3")
    both = {**QUICK["masks"], "keep": 0.1, "selection": "soft", "against": 3.0}
    assert (with_step["masks"], without["masks"]) == (both, {**both, "adversarial": False})
    with pytest.raises(SpecError, match="mask: adversarial=False: write yes or no"):
        vocabulary.expand("mask:keep=0.1,adversarial=False")


def test_the_mask_is_trained_against_people_whom_nobody_looks_for(tmp_path: Path):
    masks = {**QUICK["masks"], "against": 3.0}
    made = Lab(grid.parse({**KNOWN, "masks": masks}), cartoons(), tmp_path, Progress())
    _, card = artefacts.load(made.artefact_of("mask:keep=0.1", 0), kind="mask")
    assert (card["sensitive"], card["people"]) == ("identity", made.adversaries.training.digest)


# The answer


def test_the_answer_is_as_accurate_as_the_classifier_that_gives_it_and_proves_what_their_number_does(known):
    results, data = results_of(known), cartoons()
    found = results["accuracy", "answer", "answer"].accuracy
    assert found == pytest.approx(results["accuracy", "none", "classifier-clean"].accuracy, abs=0.02)
    result, expressions = results["proved", "answer"], len(data.label("expression").names)
    assert (result.release, result.outputs, result.bytes_per_image) == ("answer", expressions, 1)
    people = len(data.split("test").classes("identity"))
    assert {naming.candidates: naming.at_most for naming in result.naming} == {
        count: pytest.approx(expressions / count) for count in (people, 100, 1_000, 10_000, 1_000_000)
    }


def test_three_bits_prove_by_counting_lies_and_clipped_noisy_numbers_prove_more_and_pixels_nothing(known):
    results = results_of(known)
    plain, lies = ([naming.at_most for naming in results["proved", spec].naming[-4:]] for spec in CODES[:2])
    assert plain == pytest.approx([8 / 100, 8 / 1_000, 8 / 10_000, 8 / 1_000_000])
    assert all(less < more for less, more in zip(lies, plain, strict=True))
    assert results["proved", CODES[0]].bytes_per_image == 1
    assert results["proved", "pixelize:cell=4"].naming == ()
    at_most = [naming.at_most for naming in results["proved", SPECS[6]].naming]
    assert at_most == sorted(at_most, reverse=True)
    assert at_most[-1] < 1


# What else it tells


def test_every_label_is_told_beside_guessing(known: Path, tmp_path: Path):
    specs = ["pixelize:cell=4", "code:bits=3", "answer"]  # of each kind what travels: values, bits, a class
    settings = {**KNOWN, **ALONE, "protections": specs, "learners": ["classifier-clean"], "tells": True}
    run.run(grid.parse({**settings, "artefacts": str(known / "models")}), tmp_path)
    for spec in ("none", *specs):
        labels = results_of(tmp_path)["tells", spec].labels
        assert set(labels) == set(cartoons().labels)
        for label in labels.values():  # person by person, whose images are told together
            assert sum(label.probes) == label.images
            assert label.counted.share == pytest.approx(label.accuracy)
            assert (label.low, label.high) == label.counted.interval
            assert 0 <= label.low <= label.accuracy <= label.high <= 1
            assert 0 < label.guessing <= 1


def test_clear_images_tell_the_colour_of_hair_and_a_black_block_tells_less(tmp_path: Path):
    data = {**SETTINGS["data"], "identities": 110}
    settings = {**KNOWN, "data": data, "protections": ["block:share=0.9"], "attacks": [], "tells": True}
    run.run(grid.parse(settings), tmp_path)
    results = results_of(tmp_path)
    clear, block = (results["tells", spec].labels["hair_color"] for spec in ("none", "block:share=0.9"))
    assert clear.low > clear.guessing
    assert block.accuracy < clear.accuracy


# Adding to it


def _nothing(lab: Lab, cell: Cell) -> dict[str, Any]:
    return {}


def _named_first(lab: Lab, cell: Cell) -> dict[str, Any]:
    people = lab.adversaries.people
    share = 1 / len(people.classes("identity"))
    score = {"classifier": "guess", "top1": share, "low": 0.0, "high": 1.0}
    return {"scores": [score], "chance": share, "identities": len(people.classes("identity"))}


def _of_the_commonest(lab: Lab, cell: Cell) -> dict[str, Any]:
    codes = lab.asked.label("expression").codes
    share = int(codes.bincount().max()) / len(codes)
    return {"accuracy": share, "low": 0.0, "high": 1.0, "images": len(codes), "chance": share}


def _largest(first: Tensor, second: Tensor) -> Tensor:
    return (first - second).abs().flatten(1).amax(1)


def test_an_attack_a_learner_and_a_measure_are_registered_with_their_words(tmp_path, registering):
    first, commonest = kinds.Method(_nothing, _named_first), kinds.Method(_nothing, _of_the_commonest)
    of_learner = {"method": commonest, "knows_classes": True}
    for group, words in {
        "adversaries": vocabulary.AttackWords("always-first", "released", True, "Names the first.", first),
        "learners": vocabulary.LearnerWords("commonest", "who names it", "Names it.", **of_learner),
        "measures": vocabulary.MeasureWords("largest", "largest", "{:.2f}", "Of all.", _largest),
    }.items():
        registering(group, words.name, words)
    settings = {**KNOWN, "protections": PROTECTIONS[:1], "attacks": ["always-first"], "reconstructions": []}
    settings |= {"learners": ["classifier-clean", "commonest"], "measures": ["largest"]}
    run.run(grid.parse(settings), tmp_path)
    results = results_of(tmp_path)
    attack, learner = results["attack", SPECS[1], "always-first"], results["accuracy", SPECS[1], "commonest"]
    assert attack.scores[0].top1 == attack.chance
    assert learner.accuracy == learner.chance
    assert results["similarity", "none", "released"].measures == {"largest": 0}
    assert 0 < results["similarity", SPECS[1], "released"].measures["largest"] <= 1


def test_a_label_that_people_share_names_them_by_their_share():
    """The table of an answer of two classes, one of two people and one of three."""
    people = torch.arange(5).repeat_interleave(8)
    answers = torch.eye(2)[(people < 2).long()]
    made = reidentify.by_numbers(answers[::2], people[::2], answers[1::2])
    (table,) = (guesses for guesses in made if guesses.classifier == "table")
    assert table.similarities.amax(1).equal(torch.ones(20))
    assert (table.similarities == 1).sum(1).tolist() == [2] * 8 + [3] * 12


# What a card says of an artefact that a study left


def test_the_card_of_a_trained_code_has_what_the_study_found(episodic: Path):
    bits = results_of(episodic)["proved", "code:bits=3"].artefact
    said = " ".join(describe_measurements(episodic / "models" / bits))
    settings = {each["protection"]: each for each in report.as_json(report.load(episodic))["settings"]}
    found = settings["code:bits=3"]["reidentification"]["value"]
    assert f"{percent(found)} of releases are named by the strongest adversary" in said
    right = settings["code:bits=3"]["accuracy"]["value"]
    assert said.startswith(f"{percent(right)} of images are classified correctly (study ")
    assert "pixelize" not in said  # another protection of the same study
    assert describe_measurements(episodic / bits) == []  # it does not lie among the models of a run


def test_examples_of_a_short_code_show_releases_that_differ_if_any_do():
    data = cartoons()
    bits = torch.zeros(len(data), 1, dtype=torch.bool)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
    bits[order[20]] = True  # one image among many
    digests = [digest(image) for image in data.images]

    def release_images(cell, images):
        rows = [digests.index(digest(image)) for image in images]
        return SimpleNamespace(kind="bits", values=bits[rows])

    config = SimpleNamespace(task=SimpleNamespace(sensitive=None))
    lab = SimpleNamespace(test=data, release=release_images, shuffle=lambda count, seed: order, config=config)
    made = looks.EXAMPLES.measure(lab, Cell("examples", "code:bits=1", 0))["examples"]
    assert [example["words"] for example in made] == ["0", "1", "0", "0", "0", "0"]
