"""A study file: what it may say, what is said about mistakes in it, and the cells it stands for."""

import itertools
import pickle
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sfumato import protect
from sfumato.data import LabelledImages
from sfumato.data.labelled import label_of
from sfumato.episodes import Sampler, Shape
from sfumato.errors import ConfigError, DataError, SpecError
from sfumato.learn.classifier import ClassifierConfig
from sfumato.learn.few_shot import FewShotConfig
from sfumato.learn.meta import MetaConfig, Private
from sfumato.protect import expand
from sfumato.study import cells as kinds
from sfumato.study import grid

MINIMAL = "data: faces\nprotections: ['blur:radius=1,3']\n"
STUDIES = Path(__file__).parents[2] / "studies"
RUN = [name for name, attack in grid.ATTACKS.items() if attack.method is not None]  # the others left


# Reading a file


def test_the_smallest_study_is_data_and_protections(tmp_path: Path):
    config = grid.load(study_file(tmp_path, MINIMAL, "my faces.yaml"))
    assert (config.name, config.data, config.seeds) == ("my faces", {"source": "faces"}, [0])
    assert config.specs == ["none", "blur:radius=1", "blur:radius=3"]
    assert (config.task, config.training) == (grid.Task(), FewShotConfig())


def test_every_part_can_be_set(tmp_path: Path):
    text = """
        name: other
        data: {source: glyphs, classes: 30}
        task: {target: class, sensitive: drawer, way: 3, shot: 2, queries: 4, episodes: 10}
        protections: [block]
        learners: [denoised, clean, meta]
        attacks: [reidentify-adaptive]
        measures: [mse]
        training: {way: 4, denoiser_depth: null, learning_rate: 0.01}
        classifier: {network: conv4, epochs: 3}
        meta:
          steps: 2000
          private: {epsilon: 9, delta: 1e-5, clipping: fixed, settings: {clipping_norm: 1.0}}
        adversary: {steps: 7, known: 3}
        recommend: {reidentification_at_most: 0.25}
        seeds: [3, 1]
        pictures: 0
        """
    path = study_file(tmp_path, text)
    config = grid.load(path)
    assert (config.name, config.data) == ("other", {"source": "glyphs", "classes": 30})
    assert config.task == grid.Task(sensitive="drawer", way=3, shot=2, queries=4, episodes=10)
    chosen = (config.learners, config.attacks, config.measures)
    assert chosen == (["denoised", "clean", "meta"], ["reidentify-adaptive"], ["mse"])
    assert config.training == FewShotConfig(way=4, denoiser_depth=None, learning_rate=0.01)
    assert config.classifier == ClassifierConfig(network="conv4", epochs=3)
    private = Private(epsilon=9, delta=1e-5, clipping="fixed", settings={"clipping_norm": 1.0})
    assert config.meta == MetaConfig(way=3, shot=2, steps=2000, private=private)
    assert (config.adversary.steps, config.adversary.known) == (7, 3)
    assert config.recommend.reidentification_at_most == 0.25
    assert (config.seeds, config.pictures) == ([3, 1], 0)
    assert grid.load(path, ["meta.private=null"]).meta.private is None
    assert grid.load(path, ["meta.private.epsilon=2"]).meta.private == replace(private, epsilon=2)


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_studies_of_this_repository_are_valid(path: Path):
    assert grid.load(path).name == path.stem


# Mistakes

MISTAKES = {
    "protection: [block]": "study.yaml: no key 'protection': did you mean 'protections'",
    "task: {sensitve: identity}": "study.yaml: task: no key 'sensitve': did you mean 'sensitive'",
    "recommend: {reidentification: 1}": "recommend: no key 'reidentification': did you mean 'reid.*at_most'",
    "task: 5-way": "study.yaml: task: a mapping is needed, got '5-way'",
    "task: {way: five}": "study.yaml: task.way='five': .*integer",
    "protections: block": "study.yaml: protections='block': .*list",
    "seeds: 3": "study.yaml: seeds=3: .*list",
    "tells: maybe": "study.yaml: tells='maybe': .*boolean",
    "data: 3": "study.yaml: data=3: .*dictionary",
    "data: {size: 3}": "study.yaml: data: no source: write data: faces",
    "meta: {algoritm: maml}": "study.yaml: meta: no key 'algoritm': did you mean 'algorithm'",
    "meta: {algorithm: mamle}": "meta: no algorithm is called 'mamle': did you mean 'maml'",
    "meta: {private: {epsilom: 9}}": "study.yaml: meta: private: no key 'epsilom': did you mean 'epsilon'",
    "meta: {private: {epsilon: 9}}": "study.yaml: meta.private.delta is missing",
    "learners: [deniosed]": "learners: no 'deniosed': did you mean 'denoised'",
    "attacks: [reidentify]": "attacks: no 'reidentify': did you mean 'reidentify-",
    "measures: [simm]": "measures: no 'simm': did you mean 'ssim'",
    "seeds: []": r"seeds=\[\]: give one or more, each once",
    "seeds: [1, 2, 1]": "seeds=.*: give one or more, each once",
    "training: {encoder: conv5}": "no encoder is called 'conv5': did you mean 'conv4'",
    "training: {learning_rate: 0}": "learning_rate=0: above 0",
    "recommend: {reidentification_at_most: 1.5}": "reidentification_at_most=1.5: .*less than or equal to 1",
    "recommend: {reidentification_at_most: .nan}": "reidentification_at_most=nan: .*equal to",
    "protections: ['dp-pix:cell=4,epsilon=0']": "dp-pix: epsilon=0 is not above 0: smaller hides more",
    "protections: ['pixelise:cell=4']": "no protection is called 'pixelise': did you mean 'pixelize'",
    "protections: ['pixelize:cell=2.5']": "pixelize: cell=2.5 is not a whole number",
    "task: {way: 1}": "way=1: an episode needs a way of at least 2",
    "task: {episodes: 1}": "episodes=1",  # has no interval
    "training: {way: 1}": "way=1: an episode needs a way of at least 2",
    "task: {other_shots: [1, 0]}": "shot=0: an episode needs a shot of at least 1",
    "task: {other_ways: [1]}": "way=1: an episode needs a way of at least 2",
    "task: {other_ways: [20, 5]}": r"other_ways=\[20, 5\]: name each once, and not 5, of the task itself",
    "adversary: {recogniser: mobile-facenet}": "no recogniser is called 'mobile-facenet': did you mean 'mob",
    "classifier: {network: conv}": "no network is called 'conv': did you mean 'conv4'",
    "measures: [face-similarity]": "measures: face-similarity needs task.sensitive, the label that says who",
    "like: gone.yaml": r"gone.yaml: cannot be read \(No such file",
    "like: study.yaml": "study.yaml: like=study.yaml: that file is like this one",
    "like: [a]": r"like=\['a'\]: name the study file",
    "pictures: -1": "pictures=-1",
    "device: gpu": "study.yaml: device=gpu: did you mean|device=gpu",
    "vary: {adversary.steps: []}": r"vary: adversary.steps=\[\]: give values, each once",
    "vary: {adversary.steps: [1, 1]}": r"vary: adversary.steps=\[1, 1\]: give values, each once",
    "vary: {adversary.step: [1]}": "vary: adversary.step: 1: adversary: no key 'step': did you mean 'steps'",
    "vary: {adversary.steps: [1, many]}": "vary: adversary.steps: many: adversary.steps='many'",
    "vary: {protections: [[none]]}": "vary: protections cannot vary: a spec lists values itself",
    "vary: {seeds: [[0], [1]]}": "vary: seeds cannot vary",
    "vary: {vary.task.shot: [[1]]}": "vary: vary.task.shot cannot vary",
    f"vary: {{task.shot: {list(range(1, 12))}, task.way: {list(range(2, 13))}}}": "121 combinations",
    "vary: [task.shot]": r"vary=\['task.shot'\]",
    "vary: {task.shot: 1}": r"vary.task.shot=1: .*list: write vary: \{task.shot: \[1\]\}",
    "vary: {known: [2]}": "vary: known: 2: no key 'known': did you mean 'adversary.known'",
    "vary: {knwon: [2]}": "no key 'knwon': did you mean 'adversary.known'",
    "known: 2": "study.yaml: no key 'known': did you mean 'adversary.known'",
    "adversary: {known: [2, 8]}": r"known=.*: .*values write vary: \{adversary.known: \[2, 8\]\}",
    "device: [cpu, cuda]": r"device=.*: to compare several values write vary: \{device: \[cpu, cuda\]\}",
    "title: [a, b]": r"title=\['a', 'b'\]: Input should be a valid string$",
    "attacks: [shape]": "attacks: no 'shape': did you mean 'reidentify-shape'",
    "name: ../elsewhere": "name=.../elsewhere.: it names a folder",
    "protections: ['block:share=2']": "share=2 is too large: choose at most 1",
}


@pytest.mark.parametrize(("line", "message"), MISTAKES.items(), ids=list(MISTAKES))
def test_a_mistake_is_named_when_the_file_is_read(tmp_path: Path, line: str, message: str):
    key = line.split(":")[0]
    others = [other for other in MINIMAL.splitlines() if not other.startswith(f"{key}:")]
    with pytest.raises(ConfigError, match=message):
        grid.load(study_file(tmp_path, "\n".join([*others, line])))


def test_a_study_that_is_like_another_has_its_settings_and_changes_some(tmp_path: Path):
    study_file(tmp_path, MINIMAL + "\nname: first\ntask: {way: 3, shot: 2}\nseeds: [0, 1]\n")
    (tmp_path / "second.yaml").write_text("like: study.yaml\ntask: {shot: 1}\nprotections: []\n")
    first, second = grid.load(tmp_path / "study.yaml"), grid.load(tmp_path / "second.yaml")
    assert (second.name, second.task.way, second.task.shot) == ("second", 3, 1)
    assert (second.data, second.seeds, second.specs) == (first.data, first.seeds, ["none"])


def test_a_study_that_varies_settings_is_one_study_for_each_combination():
    vary = {"adversary.copies": [1, 5], "task.shot": [1, 2], "task.folds": [1, 2]}
    config = grid.parse({"data": "faces", "protections": ["blur:radius=1"], "title": "T", "vary": vary})
    made = grid.variants(config)
    assert [tuple(varied.values()) for varied, _ in made] == list(itertools.product(*vary.values()))
    for varied, own in made:
        assert (own.adversary.copies, own.task.shot, own.task.folds) == tuple(varied.values())
        assert own.meta.shot == own.task.shot
        assert own.seeds == list(range(own.task.folds))
    varied, own = made[-1]
    assert own.title == "T (adversary.copies: 5, task.shot: 2, task.folds: 2)"
    unvaried = grid.parse({"data": "faces", "protections": ["blur:radius=1"]})
    assert grid.variants(unvaried) == [({}, unvaried)]


NOT_YAML = {
    **dict.fromkeys(["data: [faces", "a: b: c", "\tdata: faces", "data: \0", "on: 2024-99-99"], "not YAML"),
    **dict.fromkeys(["data: !!python/object/apply:os.getcwd []", b"title: \xc4\n"], "not YAML"),
    **dict.fromkeys(["", "[]", "faces", "# nothing"], "a study file is a mapping with data and protections"),
    **{"protections: []": "data is missing", "data: faces": "protections is missing"},
}


@pytest.mark.parametrize(("text", "message"), NOT_YAML.items(), ids=map(repr, NOT_YAML))
def test_a_file_without_the_parts_of_a_study_is_refused_in_one_line(tmp_path: Path, text: Any, message: str):
    path = tmp_path / "study.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=rf"study\.yaml: {message}") as raised:
        grid.load(path)
    assert "\n" not in str(raised.value)
    for name, reason in (
        ("/dev/zero", "not a regular file"),
        ("gone", "No such file"),
        (".", "Is a directory"),
    ):
        with pytest.raises(ConfigError, match=rf"cannot be read \({reason}"):
            grid.load(tmp_path / name)


ALIASES = "&a [x, x]\nb: *a"
STRANGE = {
    "a name for a value": (f"data: {ALIASES}", r"a value with a name \(&, \*\): write the value out"),
    "a value that holds itself": ("data: &x [*x]", r"a value with a name"),
    "an empty alias": ("a: *b", r"a value with a name"),
    "brackets": ("data: " + "[" * 20_000, "lists and mappings in each other, more than 20 deep"),
    "mappings": ("data: " + "{a: " * 30, "more than 20 deep"),
    "many values": (f"data: [{'x,' * 20_000}]", "more than 10,000 values"),
    "long": ("#" * 100_001, "100,001 bytes, more than the 100,000 allowed"),
    "a key twice": ("data: faces\ndata: glyphs", "a key occurs twice"),
    "a long word": ("data: faces\nprotections: 3" + "0" * 4000, "more than 4300 digits|protections=3000"),
    "lists of lists": (
        f"protections: ['dp-pix:cell={'2,' * 99}2,epsilon={'1,' * 99}1']",
        "names 10,000 prot",
    ),
    "protections": (
        f"protections: {[f'pixelize:cell={cell}' for cell in range(2, 1003)]}",
        ": more than 1,000",
    ),
    "turns": ("task: {folds: 1000000000000}", "folds=1000000000000: .*less than or equal to 100"),
    "shots": (f"task: {{other_shots: {[*range(6, 1000)]}}}", "other_shots=.* at most 100 items"),
}


@pytest.mark.parametrize(("text", "message"), STRANGE.values(), ids=STRANGE)
def test_a_file_from_a_stranger_is_refused_soon_and_in_a_short_message(tmp_path, text, message):
    whole = text if "data" in text or text.startswith("#") else f"{MINIMAL.splitlines()[0]}\n{text}"
    with pytest.raises(ConfigError, match=message) as raised:
        grid.load(study_file(tmp_path, whole))
    assert len(str(raised.value)) < 2100


def test_no_message_is_longer_than_a_page_whatever_it_repeats():
    error = ConfigError(f"a value {'x' * 10**6}: write a number")
    assert len(str(error)) < 2100
    assert str(error).startswith("a value xxx")
    assert str(error).endswith("xxx: write a number")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


# Overrides


@pytest.mark.parametrize(
    ("overrides", "place", "value"),
    [
        (["title=a=b"], "title", "a=b"),
        (["task.shot=1"], "task.shot", 1),
        (["task.shot=1"], "task.queries", 4),  # its neighbour stays
        (["task.way=3", "task.way=4"], "task.way", 4),
        (["task.sensitive=null"], "task.sensitive", None),
        (["training.learning_rate=0.5"], "training.learning_rate", 0.5),
        (["seeds=[4, 5]"], "seeds", [4, 5]),
        (["data=glyphs"], "data.source", "glyphs"),
        (["data.size=32"], "data", {"source": "faces", "size": 32}),
        (["task={way: 3}"], "task.queries", 15),
        (["protections=[block]"], "specs", ["none", "block"]),
        ([" task.way =3"], "task.way", 3),
    ],
)
def test_an_override_replaces_one_setting(tmp_path: Path, overrides: list[str], place: str, value: Any):
    config = grid.load(study_file(tmp_path, MINIMAL + "task: {queries: 4}\n"), overrides)
    settings: Any = {**asdict(config), "specs": config.specs}
    for key in place.split("."):
        settings = settings[key]
    assert settings == value


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("task.shot", "'task.shot' is not key=value: write for example task.episodes=100"),
        ("task.shoot=1", "task: no key 'shoot': did you mean 'shot'"),
        ("title.shot=1", "title has no keys"),
        ("task.shot.one=1", "shot has no keys"),
        ("seeds=[1", r"'seeds=\[1': the value is not YAML"),
        ("=1", "no key ''"),
        ("protections=['dp-pix:cell=4,epsilon=0']", "epsilon=0 is not above 0"),
    ],
)
def test_a_mistaken_override_is_named(tmp_path: Path, override: str, message: str):
    with pytest.raises(ConfigError, match=message):
        grid.load(study_file(tmp_path, MINIMAL + "title: T\nseeds: [0]\ntask: {shot: 5}\n"), [override])


# Meta-learning


@pytest.mark.parametrize(("name", "own"), [("way", 3), ("shot", 1)])
def test_a_meta_learner_has_the_way_and_shot_of_the_task_and_no_others(name: str, own: int):
    config = study("block", learners=["meta"], task={name: own}, meta={"steps": 5})
    assert (getattr(config.meta, name), config.meta.steps) == (own, 5)
    message = rf"meta: {name}={own}: the task has {name}=5, .*: leave {name} out of meta, or change that"
    with pytest.raises(ConfigError, match=message):
        study("block", learners=["meta"], meta={name: own})


@pytest.mark.parametrize(
    ("learners", "cells"),
    [
        (["meta"], [("none", "meta"), ("block", "meta")]),
        (
            ["classifier-protected", "classifier-clean"],
            [("none", "classifier-clean"), ("block", "classifier-protected"), ("block", "classifier-clean")],
        ),
    ],
)
def test_a_learner_that_is_named_has_cells_of_accuracy_and_changes_no_other(learners, cells):
    settings: dict[str, Any] = {"seeds": [4, 2], "task": {"sensitive": "identity"}}
    plain = study("block", **settings)
    assert plain.learners == ["clean", "protected", "denoised"]
    both = kinds.cells(study("block", learners=[*plain.learners, *learners], **settings))
    before = kinds.cells(plain)
    assert [cell for cell in both if cell in before] == before
    added = [cell for cell in both if cell not in before]
    assert [(cell.kind, cell.seed, cell.protection, cell.which[0][1]) for cell in added] == [
        ("accuracy", seed, *each) for seed in (4, 2) for each in cells
    ]


# Ordinary classifiers, and shapes

MASK = "mask:artefact=m.safetensors"


def cells_of(config: grid.StudyConfig, kind: str) -> list[tuple[str, str]]:
    return [(cell.protection, cell.which[0][1]) for cell in kinds.cells(config) if cell.kind == kind]


def test_where_all_learners_are_classifiers_there_are_no_episodes():
    config = study("block", learners=["classifier-protected"], pictures=0, tells=False)
    assert cells_of(config, "accuracy") == [("none", "classifier-clean"), ("block", "classifier-protected")]
    assert {cell.kind for cell in kinds.cells(config)} == {"accuracy", "similarity", "proved"}  # no secret
    assert not config.episodic
    for learners in (["classifier-protected", "clean"], ["meta"], study("block").learners):
        assert study("block", learners=learners).episodic


def test_a_shape_is_learned_and_attacked_of_masks_alone():
    learners, attacks = (
        ["classifier-protected", "classifier-shape"],
        ["reidentify-static", "reidentify-shape"],
    )
    config = study("block", MASK, learners=learners, attacks=attacks, task={"sensitive": "identity"})
    assert cells_of(config, "accuracy") == [
        *(("none", "classifier-clean"), ("block", "classifier-protected")),
        *((MASK, "classifier-protected"), (MASK, "classifier-shape")),
    ]
    of_static = [(spec, "reidentify-static") for spec in ("none", "block", MASK)]
    assert cells_of(config, "attack") == [*of_static, (MASK, "reidentify-shape")]


# Protections and cells


def test_protections_are_in_the_order_of_the_file_each_once_and_none_is_first():
    """The last key of a spec is the fastest."""
    twice = ["blur:radius=1.0", "dp-pix:epsilon=3,cell=4", "dp-pix:cell=4,epsilon=3.0,pixels=1"]
    assert study("blur:radius=3,1", *twice, "none", "dp-pix:cell=4,2,epsilon=3,1").specs == [
        *("none", "blur:radius=3", "blur:radius=1", "dp-pix:cell=4,epsilon=3", "dp-pix:cell=4,epsilon=1"),
        *("dp-pix:cell=2,epsilon=3", "dp-pix:cell=2,epsilon=1"),
    ]
    assert study().specs == ["none"]


def test_the_cells_of_a_whole_study_are_as_many_as_its_parts():
    """For each of 3 seeds: the clear image, and 2 protections."""
    config = study("blur:radius=1,3", seeds=[0, 1, 2], task={"sensitive": "identity"})
    counts = Counter((cell.kind, cell.protection == "none") for cell in kinds.cells(config))
    assert counts == {
        ("accuracy", True): 3 * 1,  # the clean learner
        ("accuracy", False): 3 * 2 * 3,  # clean, protected, denoised
        ("attack", True): 3 * 1,  # static
        # Static, adaptive, on values, static behind the denoiser, and all fused.
        ("attack", False): 3 * 2 * 5,
        ("many", False): 3 * 2,
        ("similarity", True): 3 * 1,
        ("similarity", False): 3 * 2 * 2,  # released, denoised
        ("pictures", True): 3,
        ("pictures", False): 3 * 2,
        ("proved", True): 1,  # the same with every seed
        ("proved", False): 2,
        ("tells", True): 3 * 1,
        ("tells", False): 3 * 2,
    }


@pytest.mark.parametrize(
    ("attacks", "learners", "expected"),
    [
        (["reidentify-static"], ["protected"], ["reidentify-static"]),
        (["reidentify-adaptive"], ["protected", "denoised"], ["reidentify-adaptive"]),
        (["reidentify-static"], ["denoised"], ["reidentify-static", "reidentify-denoised"]),
        (["reidentify-denoised-adaptive"], ["denoised"], ["reidentify-denoised-adaptive"]),
        (["reidentify-denoised-adaptive"], ["protected"], []),
        (["reidentify-student"], ["protected"], ["reidentify-student"]),
        (RUN, ["denoised"], [name for name in RUN if name != "reidentify-shape"]),
        ([], ["denoised"], []),
    ],
)
def test_the_denoiser_arms_the_static_adversary_where_both_are_studied(attacks, learners, expected):
    """Clear images are attacked by the static adversary only."""
    config = study("block", attacks=attacks, learners=learners, task={"sensitive": "identity"})
    clear = [("none", "reidentify-static")] * ("reidentify-static" in attacks)
    assert cells_of(config, "attack") == [*clear, *(("block", name) for name in expected)]


def test_a_student_trains_by_default_on_an_accelerator_alone(monkeypatch: pytest.MonkeyPatch):
    assert "reidentify-student" not in study("block").attacks
    monkeypatch.setattr(grid, "device_named", lambda name: torch.device("cuda"))
    assert [*study("block").attacks][-3:] == ["reidentify-student", "reidentify-values", "reidentify-fused"]
    assert study("block", attacks=["reidentify-values"]).attacks == ["reidentify-values"]
    with pytest.raises(ConfigError, match="reidentify-restored-adaptive left: use reidentify-student"):
        study("block", attacks=["reidentify-restored-adaptive"])


def test_every_cell_is_there_once_seed_by_seed_and_accuracy_before_what_shows_the_same_model():
    """Whoever stops a study early has models that are judged, not pictures of models that are not."""
    cells = kinds.cells(study("blur:radius=1,3", "block", seeds=[5, 2], task={"sensitive": "identity"}))
    assert len(set(cells)) == len(cells)
    seeds = [cell.seed for cell in cells]
    assert seeds == sorted(seeds, key=[5, 2].index)
    for spec in ("none", "blur:radius=1", "blur:radius=3"):
        names = list(dict.fromkeys(cell.kind for cell in cells if cell.protection == spec))
        assert names == [kind for kind in kinds.KINDS if kind in names]
        assert names[0] == "accuracy"
    words = {"accuracy denoised blur:radius=3", "attack reidentify-static none", "pictures blur:radius=3"}
    assert words <= set(map(str, cells))


# Fitting to small data


@pytest.mark.parametrize(
    ("test", "episode"),
    [
        ([40, 40, 1, 1], (2, 5, 15)),  # the way to the classes of two images or more
        ([4] * 5, (5, 3, 1)),  # the shot, before nothing is left to query
        ([9] * 5, (5, 5, 4)),  # the queries, to what the shot leaves
        ([40] * 5, (5, 5, 15)),  # nothing
    ],
)
def test_fitting_lowers_the_way_the_shot_and_the_queries(test: list[int], episode: tuple[int, int, int]):
    fitted = grid.fit_to_data(study("block"), people(train=[40] * 4, validation=[40] * 3, test=test))
    assert (fitted.task.way, fitted.task.shot, fitted.task.queries) == episode
    assert (fitted.training.way, fitted.training.shot, fitted.training.validation_way) == (4, 5, 3)
    training = grid.fit_to_data(study("block"), people(train=[3, 3, 3], test=test)).training  # no validation
    assert (training.validation_way, training.validation_shot, training.validation_queries) == (3, 2, 1)


def test_fitting_counts_the_classes_of_the_task_only():
    data = people(train=[40] * 4, validation=[40] * 3, test=[40, 9, 8, 40])
    classes = [*(f"train-{i}" for i in range(3)), "validation-0", "validation-1", "test-1", "test-2"]
    fitted = grid.fit_to_data(study("block", task={"classes": classes}), data)
    assert (fitted.task.way, fitted.task.shot, fitted.task.queries) == (2, 5, 3)
    assert (fitted.training.way, fitted.training.validation_way) == (3, 2)


@given(
    train=st.lists(st.integers(1, 12), min_size=2, max_size=8),
    validation=st.lists(st.integers(1, 12), max_size=8),
    test=st.lists(st.integers(1, 12), min_size=2, max_size=8),
    wanted=st.tuples(st.integers(2, 9), st.integers(1, 9), st.integers(1, 9)),
)
def test_a_fitted_study_can_draw_its_episodes_and_asks_for_no_more_than_before(
    train: list[int], validation: list[int], test: list[int], wanted: tuple[int, int, int]
):
    way, shot, queries = wanted
    data = people(train=train, validation=validation, test=test)
    task = {"way": way, "shot": shot, "queries": queries}
    fitted = grid.fit_to_data(study("block", task=task, training=few_shot(way, shot, queries)), data)
    parts = {
        "train": fitted.training.episode,
        "validation": fitted.training.validation_episode,
        "test": Shape(way=fitted.task.way, shot=fitted.task.shot, queries=fitted.task.queries),
    }
    for name, sizes in (("train", train), ("validation", validation), ("test", test)):
        shape = parts[name]
        assert shape.way <= way
        assert shape.shot <= shot
        assert shape.queries <= queries
        label = data.split(name).label("class") if sizes else None
        if label is not None and sum(size >= 2 for size in sizes) >= 2:
            rows = Sampler(label, shape).draw(1, torch.Generator().manual_seed(0))
            assert rows.shape == (1, shape.way, shape.shot + shape.queries)


def test_a_meta_learner_is_fitted_with_its_task_to_training_and_test_images():
    data = people(train=[9] * 4, validation=[40] * 5, test=[40] * 6)
    config = study("block", learners=["clean", "meta"], task={"way": 5, "shot": 6})
    fitted = grid.fit_to_data(config, data)
    assert (fitted.meta.way, fitted.meta.shot, fitted.meta.queries) == (4, 6, 3)
    assert (fitted.task.way, fitted.task.shot, fitted.task.queries) == (4, 6, 15)
    large = people(train=[40] * 6, validation=[40] * 6, test=[40] * 6)
    roomy = study("block", learners=["clean", "meta"], task={"way": 5, "shot": 6}, training=few_shot(5, 2, 3))
    assert grid.fit_to_data(roomy, large) == roomy


def test_data_that_no_episode_fits_is_left_to_the_sampler_to_refuse():
    data = people(train=[1, 1], validation=[1, 1], test=[1, 1])
    fitted = grid.fit_to_data(study("block"), data)
    with pytest.raises(DataError, match=r"and the way is 2; the smallest is .* with 1: add images"):
        Sampler(data.split("train").label("class"), fitted.training.episode)


# Specs

NUMBERS = st.floats(1e-6, 1e9) | st.integers(1, 10**6).map(float)
VARIANTS = st.sampled_from(["sound", "published"])
# Within the bounds of sfumato.protect.parameters, the weaker ones of which protect nothing.
CELLS = st.integers(2, 65_535)
RADII = st.floats(0.5, 10_000) | st.integers(1, 10_000).map(float)
PARAMETERS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "none": {},
    "blur": {"radius": RADII},
    "pixelize": {"cell": CELLS},
    "gaussian": {"sigma": st.floats(2, 1e9)},
    "dp-pix": {"cell": CELLS, "epsilon": NUMBERS, "pixels": st.integers(1, 10**6), "variant": VARIANTS},
    "block": {"share": st.floats(0.1, 1)},
    "centre-blur": {"radius": RADII, "share": st.floats(0.1, 1)},
}
OPTIONAL = {"pixels", "variant", "share"}


@st.composite
def written_specs(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A spec with its keys in any order, with spaces, optional keys or not; and its name and values."""
    name = draw(st.sampled_from(sorted(PARAMETERS)))
    keys = [key for key in PARAMETERS[name] if key not in OPTIONAL or draw(st.booleans())]
    values = {key: draw(PARAMETERS[name][key]) for key in draw(st.permutations(keys))}
    space = draw(st.sampled_from(["", " "]))
    pairs = [f"{space}{key}{space}={space}{value!r}".replace("'", "") for key, value in values.items()]
    return f"{name}:{','.join(pairs)}" if pairs else name, values


@given(first=written_specs(), second=written_specs())
def test_a_spec_names_its_values_and_canonical_specs_are_equal_just_when_protections_are(first, second):
    spec, values = first
    one, other = protect.parse(spec), protect.parse(second[0])
    assert {key: getattr(one, key) for key in values} == values
    again = protect.parse(one.spec)
    assert (again, again.spec) == (one, one.spec)
    assert " " not in one.spec
    assert (one == other) == (one.spec == other.spec)


@given(st.lists(CELLS, min_size=1, max_size=4), st.lists(NUMBERS, min_size=1, max_size=4))
def test_lists_name_every_combination_and_are_for_studies_only(cells: list[int], epsilons: list[float]):
    spec = f"dp-pix:cell={','.join(map(str, cells))},epsilon={','.join(map(str, epsilons))}"
    named = [(protection.cell, protection.epsilon) for protection in expand(spec)]  # type: ignore[attr-defined]
    assert named == [(cell, epsilon) for cell in cells for epsilon in epsilons]
    with pytest.raises(SpecError, match="'blur:radius=1,3' names 2 protections: give one value for each key"):
        protect.parse("blur:radius=1,3")


@given(
    st.text(max_size=30) | st.tuples(st.sampled_from(sorted(PARAMETERS)), st.text("=,:. 1aε-")).map(":".join)
)
def test_any_other_text_raises_nothing_but_spec_error(text: str):
    with suppress(SpecError):
        assert protect.parse(protect.parse(text).spec)


# Helpers


def study_file(directory: Path, text: str, name: str = "study.yaml") -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def study(*protections: str, **settings: Any) -> grid.StudyConfig:
    return grid.parse({"data": "faces", "protections": list(protections), **settings})


def few_shot(way: int, shot: int, queries: int) -> dict[str, int]:
    validation = {"validation_way": way, "validation_shot": shot, "validation_queries": queries}
    return {"way": way, "shot": shot, "queries": queries, **validation}


def people(**splits: list[int]) -> LabelledImages:
    """One-pixel images; a split has a class of each size that is listed for it."""
    sizes = {f"{split}-{i}": size for split in splits for i, size in enumerate(splits[split])}
    values = [name for name, size in sizes.items() for _ in range(size)]
    of = [name.partition("-")[0] for name in values]
    rows = {
        split: torch.tensor([i for i, each in enumerate(of) if each == split], dtype=torch.int64)
        for split in splits
    }
    pixels = torch.zeros(len(values), 1, 1, 1, dtype=torch.uint8)
    return LabelledImages("people", pixels, {"class": label_of(values)}, rows)
