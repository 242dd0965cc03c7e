"""A study file: what it may say, what is said about mistakes in it, and the cells it stands for."""

import itertools
import pickle
import re
from collections import Counter
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
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
from sfumato.study import grid, vocabulary

MINIMAL = "data: faces\nprotections: ['blur:radius=1,3']\n"
STUDIES = Path(__file__).parents[2] / "studies"


# Reading a file


def test_the_smallest_study_is_data_and_protections(tmp_path: Path):
    config = grid.load(study_file(tmp_path, MINIMAL))
    assert config.data == {"source": "faces"}
    assert config.specs == ["none", "blur:radius=1", "blur:radius=3"]
    assert config.task == grid.Task()
    assert config.training == FewShotConfig()
    assert config.seeds == [0]


def test_a_study_is_called_by_its_file_unless_it_has_a_name(tmp_path: Path):
    assert grid.load(study_file(tmp_path, MINIMAL, "my faces.yaml")).name == "my faces"
    assert grid.load(study_file(tmp_path, MINIMAL + "name: other\n")).name == "other"


def test_every_part_can_be_set(tmp_path: Path):
    config = grid.load(
        study_file(
            tmp_path,
            """
            title: All of it
            data: {source: glyphs, classes: 30}
            task: {target: class, sensitive: drawer, way: 3, shot: 2, queries: 4, episodes: 10}
            protections: [block]
            learners: [denoised, clean]
            attacks: [reidentify-adaptive]
            measures: [mse]
            training: {way: 4, denoiser_depth: null, learning_rate: 0.01}
            adversary: {steps: 7, gallery: 3}
            recommend: {reidentification_at_most: 0.25}
            seeds: [3, 1]
            pictures: 0
            """,
        )
    )
    assert config.data == {"source": "glyphs", "classes": 30}
    assert config.task == grid.Task(sensitive="drawer", way=3, shot=2, queries=4, episodes=10)
    assert (config.learners, config.attacks, config.measures) == (
        ["denoised", "clean"],
        ["reidentify-adaptive"],
        ["mse"],
    )
    assert config.training == FewShotConfig(way=4, denoiser_depth=None, learning_rate=0.01)
    assert (config.adversary.steps, config.adversary.gallery) == (7, 3)
    assert config.recommend.reidentification_at_most == 0.25
    assert (config.seeds, config.pictures) == ([3, 1], 0)


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_studies_of_this_repository_are_valid(path: Path):
    assert grid.load(path).name == path.stem


# Mistakes

MISTAKES = {
    "protection: [block]": "study.yaml: no key 'protection': did you mean 'protections'",
    "task: {sensitve: identity}": "study.yaml: task: no key 'sensitve': did you mean 'sensitive'",
    "training: {ways: 5}": "study.yaml: training: no key 'ways': did you mean 'way'",
    "adversary: {step: 5}": "study.yaml: adversary: no key 'step': did you mean 'steps'",
    "recommend: {reidentification: 1}": "recommend: no key 'reidentification': did you mean 'reid.*at_most'",
    "3: 4": "study.yaml: no key 3: .*Known: adversary, artefacts",
    "task: 5-way": "study.yaml: task: a mapping is needed, got '5-way'",
    "task: null": "study.yaml: task: a mapping is needed, got None",
    "training: [1]": r"study.yaml: training: a mapping is needed, got \[1\]",
    "task: {way: five}": "study.yaml: task.way='five': .*integer",
    "task: {way: 2.5}": "study.yaml: task.way=2.5: .*integer",
    "task: {target: [a]}": r"study.yaml: task.target=\['a'\]: .*string",
    "protections: block": "study.yaml: protections='block': .*list",
    "protections: [3]": "study.yaml: protections.0=3: .*string",
    "learners: clean": "study.yaml: learners='clean': .*list",
    "seeds: 3": "study.yaml: seeds=3: .*list",
    "seeds: [one]": "study.yaml: seeds.0='one': .*integer",
    "tells: maybe": "study.yaml: tells='maybe': .*boolean",
    "transfer: denoised": "study.yaml: no key 'transfer'",
    "data: 3": "study.yaml: data=3: .*dictionary",
    "data: {size: 3}": "study.yaml: data: no source: write data: faces",
    "data: {source: [faces]}": "study.yaml: data: no source: write data: faces",
    "data: null": "study.yaml: data=None",
    "meta: {algoritm: maml}": "study.yaml: meta: no key 'algoritm': did you mean 'algorithm'",
    "meta: {algorithm: mamle}": "meta: no algorithm is called 'mamle': did you mean 'maml'",
    "meta: maml": "study.yaml: meta: a mapping is needed, got 'maml'",
    "meta: null": "study.yaml: meta: a mapping is needed, got None",
    "meta: {private: 9}": "study.yaml: meta: private: a mapping is needed, got 9",
    "meta: {private: {epsilom: 9}}": "study.yaml: meta: private: no key 'epsilom': did you mean 'epsilon'",
    "meta: {private: {epsilon: 9}}": "study.yaml: meta.private.delta is missing",
    "meta: {private: {epsilon: nine, delta: 0.1}}": "study.yaml: meta.private.epsilon='nine': .*number",
    "learners: [deniosed]": "learners: no 'deniosed': did you mean 'denoised'",
    "attacks: [reidentify]": "attacks: no 'reidentify': did you mean 'reidentify-",
    "measures: [simm]": "measures: no 'simm': did you mean 'ssim'",
    "seeds: []": r"seeds=\[\]: give one or more, each once",
    "seeds: [1, 2, 1]": "seeds=.*: give one or more, each once",
    "training: {encoder: conv5}": "no encoder is called 'conv5': did you mean 'conv4'",
    "training: {epochs: 0}": "epochs=0: at least 1",
    "training: {learning_rate: 0}": "learning_rate=0: above 0",
    "training: {learning_rate: .nan}": "learning_rate=nan: above 0",
    "training: {denoiser_depth: 1}": "denoiser_depth=1: at least 2",
    "adversary: {steps: 0}": "steps=0: at least 1",
    "recommend: {reidentification_at_most: 1.5}": "reidentification_at_most=1.5: .*less than or equal to 1",
    "recommend: {reidentification_at_most: .nan}": "reidentification_at_most=nan: .*equal to",
    "protections: ['dp-pix:cell=4,epsilon=0']": "dp-pix: epsilon=0 is not above 0: smaller hides more",
    "protections: ['dp-pix:cell=4']": "dp-pix: epsilon is missing",
    "protections: ['pixelise:cell=4']": "no protection is called 'pixelise': did you mean 'pixelize'",
    "protections: ['blur:radus=4']": "blur: no parameter 'radus': did you mean 'radius'",
    "protections: ['blur:radius=1,,3']": "blur: '' is not key=value",
    "protections: ['pixelize:cell=2.5']": "pixelize: cell=2.5 is not a whole number",
    "task: {way: 1}": "way=1: an episode needs a way of at least 2",
    "task: {shot: 0}": "shot=0: an episode needs a shot of at least 1",
    "task: {queries: 0}": "queries=0: an episode needs a queries of at least 1",
    "task: {episodes: 0}": "episodes=0",
    "task: {episodes: 1}": "episodes=1",  # has no interval
    "training: {way: 1}": "way=1: an episode needs a way of at least 2",
    "training: {validation_way: 1}": "way=1: an episode needs a way of at least 2",
    "task: {other_shots: [1, 0]}": "shot=0: an episode needs a shot of at least 1",
    "task: {other_ways: [1]}": "way=1: an episode needs a way of at least 2",
    "task: {other_ways: [20, 5]}": r"other_ways=\[20, 5\]: name each once, and not 5, of the task itself",
    "task: {other_shots: 1}": "study.yaml: task.other_shots=1: .*list",
    "task: {classes: hat}": "study.yaml: task.classes='hat': .*list",
    "attacks: [reidentify-restored-adaptve]": "no 'reidentify-restored-adaptve': did you mean 'reid",
    "adversary: {recogniser: mobile-facenet}": "no recogniser is called 'mobile-facenet': did you mean 'mob",
    "adversary: {recogniser: mobile-face-net}": "recogniser=mobile-face-net: weights=None: name the file",
    "adversary: {recogniser: inception-resnet-v1}": "inception-resnet-v1 left: use mobile-face-net",
    "adversary: {detector: a}": "recogniser=conv4: detector=a: only a face network has one",
    "adversary: {weights: a}": "recogniser=conv4: weights=a: only a face network has one",
    "classifier: {epoch: 1}": "study.yaml: classifier: no key 'epoch': did you mean 'epochs'",
    "classifier: {network: conv}": "no network is called 'conv': did you mean 'conv4'",
    "learners: [classifier]": "learners: no 'classifier': did you mean 'classifier-",
    "measures: [face-similarity]": "measures: face-similarity needs task.sensitive, the label that says who",
    "like: gone.yaml": r"gone.yaml: cannot be read \(No such file",
    "like: study.yaml": "study.yaml: like=study.yaml: that file is like this one",
    "like: [a]": r"like=\['a'\]: name the study file",
    "pictures: -1": "pictures=-1",
    "device: gpu": "study.yaml: device=gpu: did you mean|device=gpu",
    "name: ../elsewhere": "name=.../elsewhere.: it names a folder",
    "training: {learning_rate: .inf}": "learning_rate=inf",
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


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ("{adversary.steps: []}", "vary: adversary.steps=[]: give values, each once"),
        ("{adversary.steps: [1, 1]}", "vary: adversary.steps=[1, 1]: give values, each once"),
        ("{adversary.step: [1]}", "vary: adversary.step: 1: adversary: no key 'step': did you mean 'steps'"),
        ("{adversary.steps: [1, many]}", "vary: adversary.steps: many: adversary.steps='many'"),
        ("{protections: [[none]]}", "vary: protections cannot vary: a spec lists values itself"),
        ("{seeds: [[0], [1]]}", "vary: seeds cannot vary"),
        ("{vary: [{}]}", "vary: vary cannot vary"),
        ("{vary.task.shot: [[1]]}", "vary: vary.task.shot cannot vary"),
        (f"{{task.shot: {list(range(1, 12))}, task.way: {list(range(2, 13))}}}", "121 combinations"),
        ("[task.shot]", "vary=['task.shot']"),
        ("{task.shot: 1}", "vary.task.shot=1"),
    ],
)
def test_what_cannot_vary_is_named_when_the_file_is_read(tmp_path: Path, vary: str, message: str):
    with pytest.raises(ConfigError, match=re.escape(message)):
        grid.load(study_file(tmp_path, f"data: faces\nprotections: [blur:radius=1]\nvary: {vary}\n"))


@pytest.mark.parametrize("missing", ["data", "protections"])
def test_a_missing_part_is_named(tmp_path: Path, missing: str):
    others = [line for line in MINIMAL.splitlines() if not line.startswith(missing)]
    with pytest.raises(ConfigError, match=rf"study\.yaml: {missing} is missing"):
        grid.load(study_file(tmp_path, "\n".join(others)))


@pytest.mark.parametrize("text", ["", "[]", "faces", "3", "# nothing\n"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str):
    with pytest.raises(
        ConfigError, match=r"study\.yaml: a study file is a mapping with data and protections, got"
    ):
        grid.load(study_file(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    [
        "data: [faces",
        "a: b: c",
        "\tdata: faces",
        "data: !!python/object/apply:os.getcwd []",
        "data: \0",
        "on: 2024-99-99",
    ],
    ids=["open bracket", "two colons", "tab", "code", "zero byte", "impossible date"],
)
def test_a_file_that_is_not_yaml_is_refused_in_one_line(tmp_path: Path, text: str):
    with pytest.raises(ConfigError, match=r"study\.yaml: not YAML \(") as raised:
        grid.load(study_file(tmp_path, text))
    assert "\n" not in str(raised.value)


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
        "protections: ["
        + "'pixelize:cell="
        + ",".join(map(str, range(2, 902)))
        + "',"
        + "'blur:radius="
        + ",".join(map(str, range(2, 902)))
        + "']",
        "protections: more than 1,000",
    ),
    "turns": ("task: {folds: 1000000000000}", "folds=1000000000000: .*less than or equal to 100"),
    "shots": (
        f"task: {{other_shots: [{','.join(map(str, range(6, 1000)))}]}}",
        "other_shots=.* at most 100 items",
    ),
}


@pytest.mark.parametrize(("text", "message"), STRANGE.values(), ids=STRANGE)
def test_a_file_from_a_stranger_is_refused_soon_and_in_a_short_message(
    tmp_path: Path, text: str, message: str
):
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


def test_a_device_is_no_study_file():
    with pytest.raises(ConfigError, match=r"/dev/zero: cannot be read \(not a regular file\)"):
        grid.load("/dev/zero")


def test_a_file_in_another_encoding_is_refused(tmp_path: Path):
    path = tmp_path / "study.yaml"
    path.write_bytes("title: Ä\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"study\.yaml: not YAML"):
        grid.load(path)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"gone\.yaml: cannot be read \(No such file"):
        grid.load(tmp_path / "gone.yaml")


def test_a_folder_is_no_study_file(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"cannot be read \(Is a directory"):
        grid.load(tmp_path)


# Overrides


@pytest.mark.parametrize(
    ("override", "place", "value"),
    [
        ("title=Other", "title", "Other"),
        ("title=a=b", "title", "a=b"),
        ("task.shot=1", "task.shot", 1),
        ("task.sensitive=identity", "task.sensitive", "identity"),
        ("task.sensitive=null", "task.sensitive", None),
        ("training.learning_rate=0.5", "training.learning_rate", 0.5),
        ("training.denoiser_depth=null", "training.denoiser_depth", None),
        ("seeds=[4, 5]", "seeds", [4, 5]),
        ("data=glyphs", "data.source", "glyphs"),
        ("data.size=32", "data.size", 32),
        ("data.size=32", "data.source", "faces"),
        ("task={way: 3}", "task.way", 3),
        ("protections=[block]", "specs", ["none", "block"]),
        (" task.way =3", "task.way", 3),
    ],
)
def test_an_override_replaces_one_setting(tmp_path: Path, override: str, place: str, value: Any):
    config = grid.load(study_file(tmp_path, MINIMAL), [override])
    settings: Any = {**asdict(config), "specs": config.specs}
    for key in place.split("."):
        settings = settings[key]
    assert settings == value


def test_an_override_leaves_its_neighbours(tmp_path: Path):
    path = study_file(tmp_path, MINIMAL + "task: {way: 3, shot: 2}\n")
    assert grid.load(path, ["task.shot=1"]).task == grid.Task(way=3, shot=1)


def test_of_two_overrides_the_last_counts(tmp_path: Path):
    assert grid.load(study_file(tmp_path, MINIMAL), ["task.way=3", "task.way=4"]).task.way == 4


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("task.shot", "'task.shot' is not key=value: write for example task.episodes=100"),
        ("task.shoot=1", "task: no key 'shoot': did you mean 'shot'"),
        ("tasks.shot=1", "no key 'tasks': did you mean 'task'"),
        ("title.shot=1", "title has no keys"),
        ("seeds.0=1", "seeds has no keys"),
        ("task.shot.one=1", "shot has no keys"),
        ("task.shot=one", "task.shot='one': .*integer"),
        ("task=one", "task: a mapping is needed, got 'one'"),
        ("seeds=[1", r"'seeds=\[1': the value is not YAML"),
        ("=1", "no key ''"),
        ("protections=['dp-pix:cell=4,epsilon=0']", "epsilon=0 is not above 0"),
    ],
)
def test_a_mistaken_override_is_named(tmp_path: Path, override: str, message: str):
    path = study_file(tmp_path, MINIMAL + "title: T\nseeds: [0]\ntask: {shot: 5}\n")
    with pytest.raises(ConfigError, match=message):
        grid.load(path, [override])


# Meta-learning


def test_a_meta_learner_is_studied_where_it_is_named_and_only_there():
    assert study("block").learners == ["clean", "protected", "denoised"]
    assert study("block", learners=["meta"]).learners == ["meta"]


def test_a_nested_promise_is_read_from_a_file(tmp_path: Path):
    text = """
        data: glyphs
        protections: [block]
        learners: [clean, meta]
        task: {way: 5, shot: 1}
        meta:
          algorithm: maml
          steps: 2000
          private: {epsilon: 9, delta: 1e-5, clipping: fixed, settings: {clipping_norm: 1.0}}
        """
    private = Private(epsilon=9, delta=1e-5, clipping="fixed", settings={"clipping_norm": 1.0})
    expected = MetaConfig(way=5, shot=1, steps=2000, private=private)
    path = study_file(tmp_path, text)
    assert grid.load(path).meta == expected
    assert grid.load(path, ["meta.private=null"]).meta.private is None
    cheaper = grid.load(path, ["meta.private.epsilon=2"]).meta.private
    assert cheaper is not None
    assert (cheaper.epsilon, cheaper.delta) == (2, 1e-5)


def test_a_meta_learner_has_the_way_and_shot_of_the_task():
    config = study("block", learners=["meta"], task={"way": 7, "shot": 3}, meta={"steps": 5})
    assert (config.meta.way, config.meta.shot, config.meta.steps) == (7, 3, 5)
    assert (study("block").meta.way, study("block").meta.shot) == (grid.Task.way, grid.Task.shot)


@pytest.mark.parametrize(("name", "own"), [("way", 3), ("shot", 1)])
def test_another_way_or_shot_than_that_of_the_task_is_refused(name: str, own: int):
    message = rf"meta: {name}={own}: the task has {name}=5, .*: leave {name} out of meta, or change that"
    with pytest.raises(ConfigError, match=message):
        study("block", learners=["meta"], meta={name: own})
    assert study("block", learners=["meta"], task={name: own}, meta={name: own}).meta.steps


def test_a_meta_learner_has_accuracy_cells_also_on_clear_images_and_no_others():
    settings: dict[str, Any] = {"seeds": [4, 2], "task": {"sensitive": "identity"}}
    plain = kinds.cells(study("blur:radius=1,3", **settings))
    cells = kinds.cells(
        study("blur:radius=1,3", learners=["clean", "protected", "denoised", "meta"], **settings)
    )
    assert [cell for cell in cells if dict(cell.which).get("learner") != "meta"] == plain
    assert [(cell.kind, cell.seed, cell.protection) for cell in cells if cell not in plain] == [
        ("accuracy", seed, spec) for seed in (4, 2) for spec in ("none", "blur:radius=1", "blur:radius=3")
    ]


# Ordinary classifiers, and shapes

MASK = "mask:artefact=m.safetensors"


def cells_of(config: grid.StudyConfig, kind: str) -> list[tuple[str, str]]:
    return [(cell.protection, cell.which[0][1]) for cell in kinds.cells(config) if cell.kind == kind]


def test_classifiers_are_studied_where_they_are_named_and_change_no_other_cell():
    settings: dict[str, Any] = {"task": {"sensitive": "identity"}}
    plain = study("block", **settings)
    assert not set(plain.learners) & set(vocabulary.classifiers())
    both = study("block", learners=[*plain.learners, "classifier-protected", "classifier-clean"], **settings)
    added = [cell for cell in kinds.cells(both) if cell not in kinds.cells(plain)]
    assert [(cell.kind, cell.protection, cell.which[0][1]) for cell in added] == [
        ("accuracy", "none", "classifier-clean"),
        ("accuracy", "block", "classifier-protected"),
        ("accuracy", "block", "classifier-clean"),
    ]


def test_where_all_learners_are_classifiers_there_are_no_episodes():
    config = study("block", learners=["classifier-protected"])
    assert cells_of(config, "accuracy") == [("none", "classifier-clean"), ("block", "classifier-protected")]
    assert not config.episodic
    assert study("block", learners=["classifier-protected", "clean"]).episodic
    assert study("block", learners=["meta"]).episodic
    assert study("block").episodic


def test_a_shape_is_learned_and_attacked_of_masks_alone():
    config = study(
        "block",
        MASK,
        learners=["classifier-protected", "classifier-shape"],
        attacks=["reidentify-static", "reidentify-shape"],
        task={"sensitive": "identity"},
    )
    assert cells_of(config, "accuracy") == [
        ("none", "classifier-clean"),
        ("block", "classifier-protected"),
        (MASK, "classifier-protected"),
        (MASK, "classifier-shape"),
    ]
    assert cells_of(config, "attack") == [
        ("none", "reidentify-static"),
        ("block", "reidentify-static"),
        (MASK, "reidentify-static"),
        (MASK, "reidentify-shape"),
    ]


def test_a_classifier_is_set_in_its_own_section(tmp_path: Path):
    path = study_file(tmp_path, MINIMAL + "classifier: {network: conv4, epochs: 3}\n")
    assert grid.load(path).classifier == ClassifierConfig(network="conv4", epochs=3)
    assert grid.load(path, ["classifier.patience=2"]).classifier.patience == 2


def test_how_alike_faces_are_is_measured_where_it_is_asked_for():
    assert study("block").measures == ["ssim", "psnr", "mse"]
    asked = study("block", measures=["face-similarity"], task={"sensitive": "identity"})
    assert asked.measures == ["face-similarity"]


# Protections and cells


def test_lists_expand_in_the_order_of_the_file_with_the_last_key_fastest():
    config = study("gaussian:sigma=9,3", "dp-pix:cell=4,2,epsilon=3,1")
    assert config.specs == [
        "none",
        "gaussian:sigma=9",
        "gaussian:sigma=3",
        "dp-pix:cell=4,epsilon=3",
        "dp-pix:cell=4,epsilon=1",
        "dp-pix:cell=2,epsilon=3",
        "dp-pix:cell=2,epsilon=1",
    ]


def test_none_is_first_wherever_it_was_written():
    assert study("block", "none").specs == ["none", "block"]
    assert study().specs == ["none"]


def test_a_protection_written_twice_in_any_way_counts_once():
    config = study(
        "blur:radius=3,1", "blur:radius=1.0", "dp-pix:epsilon=3,cell=4", "dp-pix:cell=4,epsilon=3.0,pixels=1"
    )
    assert config.specs == ["none", "blur:radius=3", "blur:radius=1", "dp-pix:cell=4,epsilon=3"]


def test_the_cells_of_a_whole_study_are_as_many_as_its_parts():
    """For each of 3 seeds: the clear image, and 2 protections."""
    config = study("blur:radius=1,3", seeds=[0, 1, 2], task={"sensitive": "identity"})
    counts = Counter((cell.kind, cell.protection == "none") for cell in kinds.cells(config))
    assert counts == {
        ("accuracy", True): 3 * 1,  # the clean learner
        ("accuracy", False): 3 * 2 * 3,  # clean, protected, denoised
        ("attack", True): 3 * 1,  # static
        # Static, adaptive, on restored images, on values, static behind the denoiser, and all fused.
        ("attack", False): 3 * 2 * 6,
        ("many", False): 3 * 2,
        ("similarity", True): 3 * 1,
        ("similarity", False): 3 * 2 * 3,  # released, denoised, restored
        ("pictures", True): 3,
        ("pictures", False): 3 * 2,
        ("proved", True): 1,  # the same with every seed
        ("proved", False): 2,
        ("tells", True): 3 * 1,
        ("tells", False): 3 * 2,
    }


def test_a_study_of_nothing_but_accuracy_has_one_cell_a_protection_and_learner():
    config = study("blur:radius=1,3", learners=["clean", "protected"], pictures=0, tells=False)
    found = [(cell.protection, *cell.which) for cell in kinds.cells(config) if cell.kind == "accuracy"]
    assert found == [
        ("none", ("learner", "clean")),
        ("blur:radius=1", ("learner", "clean")),
        ("blur:radius=1", ("learner", "protected")),
        ("blur:radius=3", ("learner", "clean")),
        ("blur:radius=3", ("learner", "protected")),
    ]
    assert {cell.kind for cell in kinds.cells(config)} == {"accuracy", "similarity", "proved"}


def test_without_a_sensitive_label_nothing_is_attacked():
    assert "attack" not in {cell.kind for cell in kinds.cells(study("block"))}


@pytest.mark.parametrize(
    ("attacks", "learners", "expected"),
    [
        (["reidentify-static"], ["protected"], ["reidentify-static"]),
        (["reidentify-adaptive"], ["protected", "denoised"], ["reidentify-adaptive"]),
        (["reidentify-static"], ["denoised"], ["reidentify-static", "reidentify-denoised"]),
        (["reidentify-denoised-adaptive"], ["denoised"], ["reidentify-denoised-adaptive"]),
        (["reidentify-denoised-adaptive"], ["protected"], []),
        (["reidentify-restored-adaptive"], ["protected"], ["reidentify-restored-adaptive"]),
        (list(grid.ATTACKS), ["denoised"], [name for name in grid.ATTACKS if name != "reidentify-shape"]),
        ([], ["denoised"], []),
    ],
)
def test_the_denoiser_arms_the_static_adversary_where_both_are_studied(
    attacks: list[str], learners: list[str], expected: list[str]
):
    config = study("block", attacks=attacks, learners=learners, task={"sensitive": "identity"})
    protected = [cell for cell in kinds.cells(config) if cell.kind == "attack" and cell.protection == "block"]
    assert [cell.subject for cell in protected] == expected


def test_clear_images_are_attacked_by_the_static_adversary_only():
    config = study("block", task={"sensitive": "identity"})
    clear = [
        dict(c.which)["attack"] for c in kinds.cells(config) if c.kind == "attack" and c.protection == "none"
    ]
    assert clear == ["reidentify-static"]


def test_what_is_restored_is_measured_where_somebody_restores():
    def views(*attacks: str) -> list[tuple[str, str]]:
        config = study("block", attacks=list(attacks), task={"sensitive": "identity"})
        cells = [cell for cell in kinds.cells(config) if cell.kind == "similarity"]
        return [(cell.protection, cell.subject) for cell in cells]

    plain = [("none", "released"), ("block", "released"), ("block", "denoised")]
    assert views("reidentify-adaptive") == plain
    assert views("reidentify-restored-adaptive") == [*plain, ("block", "restored")]


def test_every_cell_is_there_once_and_seed_by_seed():
    cells = kinds.cells(study("blur:radius=1,3", "block", seeds=[5, 2], task={"sensitive": "identity"}))
    assert len(set(cells)) == len(cells)
    seeds = [cell.seed for cell in cells]
    assert seeds == sorted(seeds, key=[5, 2].index)


def test_accuracy_comes_before_what_shows_the_same_model():
    """Whoever stops a study early has models that are judged, not pictures of models that are not."""
    cells = kinds.cells(study("blur:radius=1,3", task={"sensitive": "identity"}))
    for spec in ("none", "blur:radius=1", "blur:radius=3"):
        names = list(dict.fromkeys(cell.kind for cell in cells if cell.protection == spec))
        assert names == [kind for kind in kinds.KINDS if kind in names]
        assert names[0] == "accuracy"


def test_a_cell_reads_as_its_words():
    cells = kinds.cells(study("blur:radius=3", task={"sensitive": "identity"}))
    words = [str(cell) for cell in cells]
    assert "accuracy denoised blur:radius=3" in words
    assert "attack reidentify-static none" in words
    assert "pictures blur:radius=3" in words


# Fitting to small data


def test_fitting_leaves_a_study_that_fits_as_it_is():
    config = study("block", task={"way": 2, "shot": 2, "queries": 3}, training=few_shot(2, 2, 3))
    assert grid.fit_to_data(config, people(train=[5, 5], validation=[5, 5], test=[5, 5])) == config


def test_fitting_lowers_the_way_to_the_classes_of_two_images_or_more():
    fitted = grid.fit_to_data(
        study("block"), people(train=[40] * 4, validation=[40] * 3, test=[40, 40, 1, 1])
    )
    assert (fitted.task.way, fitted.task.shot, fitted.task.queries) == (2, 5, 15)
    assert (fitted.training.way, fitted.training.shot) == (4, 5)
    assert fitted.training.validation_way == 3


def test_fitting_counts_the_classes_of_the_task_only():
    data = people(train=[40] * 4, validation=[40] * 3, test=[40, 9, 8, 40])
    classes = [*(f"train-{i}" for i in range(3)), "validation-0", "validation-1", "test-1", "test-2"]
    fitted = grid.fit_to_data(study("block", task={"classes": classes}), data)
    assert (fitted.task.way, fitted.task.shot, fitted.task.queries) == (2, 5, 3)
    assert (fitted.training.way, fitted.training.validation_way) == (3, 2)


def test_fitting_lowers_the_shot_before_nothing_is_left_to_query():
    fitted = grid.fit_to_data(study("block"), people(train=[40] * 5, validation=[40] * 5, test=[4] * 5))
    assert (fitted.task.way, fitted.task.shot, fitted.task.queries) == (5, 3, 1)


def test_fitting_lowers_the_queries_to_what_the_shot_leaves():
    fitted = grid.fit_to_data(study("block"), people(train=[40] * 5, validation=[40] * 5, test=[9] * 5))
    assert (fitted.task.way, fitted.task.shot, fitted.task.queries) == (5, 5, 4)


@settings(deadline=None)
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


def test_without_a_validation_split_validation_is_fitted_to_the_training_classes():
    data = people(train=[3, 3, 3], test=[40] * 5)
    training = grid.fit_to_data(study("block"), data).training
    assert (training.validation_way, training.validation_shot, training.validation_queries) == (3, 2, 1)


# Specs

NUMBERS = st.floats(1e-6, 1e9) | st.integers(1, 10**6).map(float)
WHOLE = st.integers(1, 10**6)
# Within the bounds of sfumato.protect.parameters, the weaker ones of which protect nothing.
CELLS = st.integers(2, 65_535)
RADII = st.floats(0.5, 10_000) | st.integers(1, 10_000).map(float)
SHARES = st.floats(0.1, 1)
PARAMETERS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "none": {},
    "blur": {"radius": RADII},
    "pixelize": {"cell": CELLS},
    "gaussian": {"sigma": st.floats(2, 1e9)},
    "dp-pix": {
        "cell": CELLS,
        "epsilon": NUMBERS,
        "pixels": WHOLE,
        "variant": st.sampled_from(["sound", "published"]),
    },
    "block": {"share": SHARES},
    "centre-blur": {"radius": RADII, "share": SHARES},
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


@settings(deadline=None)
@given(written_specs())
def test_a_spec_names_the_protection_with_its_values(written: tuple[str, dict[str, Any]]):
    spec, values = written
    protection = protect.parse(spec)
    assert {key: getattr(protection, key) for key in values} == values


@settings(deadline=None)
@given(written_specs())
def test_the_canonical_spec_names_the_same_protection_and_is_its_own_canonical_form(
    written: tuple[str, dict[str, Any]],
):
    protection = protect.parse(written[0])
    again = protect.parse(protection.spec)
    assert again == protection
    assert again.spec == protection.spec
    assert " " not in protection.spec


@settings(deadline=None)
@given(first=written_specs(), second=written_specs())
def test_two_protections_are_equal_just_when_their_canonical_specs_are(
    first: tuple[str, dict[str, Any]], second: tuple[str, dict[str, Any]]
):
    one, other = protect.parse(first[0]), protect.parse(second[0])
    assert (one == other) == (one.spec == other.spec)


@settings(deadline=None)
@given(st.lists(CELLS, min_size=1, max_size=4), st.lists(NUMBERS, min_size=1, max_size=4))
def test_lists_name_every_combination(cells: list[int], epsilons: list[float]):
    spec = f"dp-pix:cell={','.join(map(str, cells))},epsilon={','.join(map(str, epsilons))}"
    named = [(protection.cell, protection.epsilon) for protection in expand(spec)]  # type: ignore[attr-defined]
    assert named == [(cell, epsilon) for cell in cells for epsilon in epsilons]


def test_a_list_is_for_studies_only():
    with pytest.raises(SpecError, match="'blur:radius=1,3' names 2 protections: give one value for each key"):
        protect.parse("blur:radius=1,3")


@settings(deadline=None)
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
    values = [
        (split, f"{split}-{i}")
        for split, sizes in splits.items()
        for i, size in enumerate(sizes)
        for _ in range(size)
    ]
    rows = {
        split: torch.tensor([row for row, (name, _) in enumerate(values) if name == split], dtype=torch.int64)
        for split in splits
    }
    pixels = torch.zeros(len(values), 1, 1, 1, dtype=torch.uint8)
    return LabelledImages("people", pixels, {"class": label_of([value for _, value in values])}, rows)
