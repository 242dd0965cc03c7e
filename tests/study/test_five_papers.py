"""The study of all five papers at a hundredth of its size: its own file, by the command, to its report."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.study.test_report import Page
from tests.study.test_run import SETTINGS, cartoons, differ, digests_of
from torch import Tensor
from typer.testing import CliRunner

from sfumato.assess.semsim import SemSim
from sfumato.attack.reidentify import Guesses
from sfumato.cli.app import app
from sfumato.errors import ConfigError
from sfumato.images import to_float
from sfumato.learn import semsim
from sfumato.study import grid
from sfumato.study.cells import Cell
from sfumato.study.choose.results import load
from sfumato.study.lab import trained
from sfumato.study.lab.lab import Lab, Progress
from sfumato.study.measure.attack import rank
from sfumato.study.measure.looks import SIMILARITY
from sfumato.study.vocabulary import IMAGES, release_kind

STUDY = Path(__file__).parents[2] / "studies" / "five-papers.yaml"
SMALL = (
    "data: {identities: 40, images_per_identity: 8, headwear: 24, size: 16}",
    "task: {way: 3, shot: 2, queries: 2, episodes: 3}",
    "training: {way: 3, shot: 2, queries: 2, epochs: 1, episodes_per_epoch: 2, validation_episodes: 2,"
    " validation_way: 3, validation_shot: 2, validation_queries: 2, denoiser_width: 4}",
    "meta: {width: 4, queries: 2, steps: 2, tasks: 2}",
    "codes: {way: 3, shot: 2, queries: 2, pretraining_epochs: 1, epochs: 2, episodes_per_epoch: 2}",
    "masks: {epochs: 1, masker_width: 4, levels: 2}",
    "features: {widths: [2, 2, 4, 4, 4, 4, 16], attribute_epochs: 1, simple_epochs: 1, private_epochs: 1}",
    "inversion: {steps: 2, width: 2}",
    "adversary: {steps: 2, adaptive_steps: 2, known: 4, probes: 4}",
    "pictures: 1",
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, quick_adversaries: None) -> Path:
    folder = tmp_path_factory.mktemp("papers")
    (folder / "five-papers.yaml").write_text("\n".join([f"like: {STUDY}", *SMALL]))
    asked = ["study", "run", str(folder / "five-papers.yaml"), "--out", str(folder / "run"), "--yes"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    return folder / "run"


def test_every_protection_is_judged_by_the_measures_of_all_papers(directory: Path):
    results = load(directory)
    specs = results.study["protections"]
    families = [spec.partition(":")[0] for spec in specs]
    assert families == ["none", "blur", "pixelize", "gaussian", "dp-pix", "mask", "feature", "code"]
    assert not results.missing
    assert not [text for text in results.study["left_out"] if "rank" in text]  # every release has one
    learners, attacks = (
        ("clean", "protected", "denoised", "meta-open", "meta"),
        ("static", "denoised", "values"),
    )
    for spec in [spec for spec in specs if release_kind(spec) in IMAGES][1:]:
        assert {(spec, each) for each in learners} <= results.accuracies.keys()
        assert {(spec, f"reidentify-{each}") for each in attacks} <= results.risks.keys()
        for view in ("released", "denoised"):
            (alike,) = results.group("similarity")[spec, view]
            assert alike.measures.keys() == {"ssim", "face-similarity", "semsim"}
    assert "semsim" in results.group("similarity")["none", "released"][0].measures
    assert [*results.ranks] == specs
    for ranked, _ in results.ranks.values():
        assert 0 <= ranked.low <= ranked.value <= ranked.high <= 1


def test_one_of_two_meta_learners_keeps_its_promise_and_the_report_shows_every_release_by_ranks(directory):
    made = load(directory).group("accuracy")
    promised, none = (made["none", name][0].privacy for name in ("meta", "meta-open"))
    assert promised.epsilon <= 9.02
    assert promised.delta == 1e-5
    assert none.epsilon is None
    page = Page((directory / "report.html").read_text(encoding="utf-8"))
    rows = page.table("Table of log-rank privacy")
    assert len(rows) == 9
    assert all(row[1] != "–" for row in rows[1:])
    assert "SemSim" in page.text


# Log-rank privacy from the similarities of any adversary


def test_the_rank_of_an_attack_is_counted_over_people_and_ties_share_theirs():
    similarities = torch.tensor([[3.0, 2, 1], [3, 2, 1], [1, 1, 1]])
    made = rank(Guesses("svm", torch.tensor([4, 7, 9]), similarities), torch.tensor([4, 9, 7]))
    logs = [0.0, torch.tensor(3.0).log(), torch.tensor([1.0, 2, 3]).log().mean()]  # first, last, anywhere
    assert made[0] == pytest.approx(sum(float(each) for each in logs) / 3 / float(torch.tensor(3.0).log()))
    assert made[1] <= made[0] <= made[2]


# SemSim as a measure of studies


def settings(**changes: Any) -> dict[str, Any]:
    alone = {"protections": ["pixelize:cell=4"], "learners": ["clean"], "attacks": [], "tells": False}
    return {**SETTINGS, **alone, "pictures": 0, **changes}


def save_network(path: Path, seed: int = 0) -> Path:
    originals = cartoons().images[:4]
    which = torch.tensor([True, False, True, False])
    judged = semsim.Judgements(originals, originals.flip(0), torch.arange(4), which, "drawn")
    semsim.train(judged, semsim.SemSimConfig(network="lenet", epochs=1), seed=seed).save(path)
    return path


def lab_of(tmp_path: Path, *measures: str) -> Lab:
    return Lab(grid.parse(settings(measures=[*measures])), cartoons(), tmp_path, Progress())


def test_a_network_of_a_file_is_a_measure_and_gives_the_distances_of_the_command(tmp_path: Path):
    path = save_network(tmp_path / "judge.safetensors")
    lab = lab_of(tmp_path, f"semsim:{path}")
    cell = Cell("similarity", "pixelize:cell=4", 0, (("view", "released"),))
    found = SIMILARITY.measure(lab, cell)["semsim"]
    clean = lab.test.images[lab.some_of_the_test(100, 0)]
    shown = lab.release(cell, clean).images()
    expected = SemSim.load(path).distance(to_float(clean), to_float(shown)).mean()
    assert found == pytest.approx(expected.item())


def test_the_content_of_the_file_decides_a_record_and_its_path_does_not(tmp_path: Path):
    paths = [save_network(tmp_path / "one.safetensors"), save_network(tmp_path / "other.safetensors")]
    digests = [digests_of(grid.parse(settings(measures=[f"semsim:{path}"])), tmp_path) for path in paths]
    assert digests[0] == digests[1]
    save_network(paths[1], seed=1)
    changed = digests_of(grid.parse(settings(measures=[f"semsim:{paths[1]}"])), tmp_path)
    assert {words.partition(" ")[0] for words in differ(digests[0], changed)} == {"similarity"}


@pytest.mark.parametrize(
    ("word", "sensitive", "message"),
    [
        ("ssim:file", "identity", "measures: no 'ssim:file'"),
        ("semsin:file", "identity", "measures: no 'semsin:file'"),
        ("semsim", None, r"measures: semsim needs task\.sensitive"),
    ],
)
def test_only_a_measure_of_a_file_takes_one_and_proxies_need_somebody_to_recognise(word, sensitive, message):
    with pytest.raises(ConfigError, match=message):
        grid.parse(settings(measures=[word], task={**SETTINGS["task"], "sensitive": sensitive}))


def test_proxies_recognise_what_a_recogniser_places_nearest_to_a_photograph_of_the_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lab = lab_of(tmp_path, "semsim")

    class Mean:  # recognises colours, which cells keep
        def embed(self, images: Tensor) -> Tensor:
            return torch.nn.functional.normalize(images.float().mean((2, 3)) - 128, dim=1)

    def one_photograph(codes: Tensor, **counts: int) -> tuple[Tensor, Tensor]:
        rows = torch.stack([(codes == code).nonzero()[0, 0] for code in codes.unique()])
        return rows, rows

    monkeypatch.setattr(trained, "split_gallery", one_photograph)
    monkeypatch.setattr(lab.adversaries, "static", lambda seed: Mean())
    negative = SimpleNamespace(denoise=lambda shown: 255 - shown)
    monkeypatch.setattr(trained, "views_of", lambda config, spec: ("released", "denoised"))
    monkeypatch.setattr(trained, "train_few_shot", lambda *asked: negative)
    judged = trained.judge(lab)
    people = len(judged.originals)
    assert judged.source == "faces (proxy annotators)"
    assert judged.of.tolist() == [*range(people)] * 2
    assert torch.equal(judged.reconstructions[people:], 255 - judged.reconstructions[:people])
    assert judged.recognised[:people].double().mean() > 0.8  # all but those whose colours rounding swaps
    assert judged.recognised[people:].double().mean() < 0.3  # of other colours
