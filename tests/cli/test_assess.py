"""`sfumato assess`: what it prints and writes, and that a mistake is answered in one line."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import Command, check_mistake
from safetensors.torch import save_file

from sfumato import images
from sfumato.assess.perceptual import LPIPSHeads
from sfumato.networks import MobileFaceNet, SqueezeNet
from sfumato.networks.encoders.backbones import AlexNet


def photos(folder: Path, count: int = 3, *, shape: tuple[int, int, int] = (3, 24, 22), less: int = 0) -> None:
    """Pictures 0.png, 1.png ..., the darker the higher `less` is, and the less so the higher their number."""
    generator = torch.Generator().manual_seed(0)
    for number in range(count):
        image = torch.randint(100, 256, shape, generator=generator)
        images.write(folder / f"{number}.png", (image - less // (number + 1)).to(torch.uint8))


@pytest.fixture
def folders(tmp_path: Path) -> None:
    """Three photographs and what was made of them, 2.png the least changed."""
    photos(tmp_path / "photos")
    photos(tmp_path / "others", less=90)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of all networks that a command reads, drawn by lot."""
    folder = tmp_path_factory.mktemp("weights")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        networks = {"squeezenet": SqueezeNet(), "alex": AlexNet(), "faces": MobileFaceNet()}
        networks |= {"heads": LPIPSHeads(AlexNet.widths, None)}
    for name, network in networks.items():
        save_file(network.state_dict(), folder / f"{name}.safetensors")
    return folder


def rows(out: str) -> dict[str, list[str]]:
    """The lines of the printed table: measure -> its other columns."""
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]
    return {name: rest for name, *rest in cells}


def test_a_table_says_how_alike_the_pairs_are_and_every_pair_is_written(command, folders):
    said = command("assess", "images", "photos", "others", "--out", "res")
    assert said.code == 0
    first, *_, every = said.out.splitlines()
    assert first == "3 pairs of photos and others"
    table = rows(said.out)
    assert list(table) == ["mse", "psnr", "ssim"]
    errors = [(90 / 255) ** 2, (45 / 255) ** 2, (30 / 255) ** 2]
    pairs, mean, interval, worst = table["mse"]
    assert (pairs, mean, worst) == ("3", f"{np.mean(errors):.4g}", f"{errors[2]:.4g} 2")
    low, high = map(float, interval.split(" to "))
    assert low < np.mean(errors) < high
    assert "psnr: PSNR (dB), higher is more alike" in said.out
    assert "mse: MSE, lower is more alike" in said.out
    assert every == "every pair: res/pairs.csv"
    with Path("res/pairs.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    assert [row["name"] for row in written] == ["0", "1", "2"]
    assert list(written[0]) == ["name", "original", "other", "mse", "psnr", "ssim"]
    assert {each.name for each in Path("res").iterdir()} == {"pairs.csv"}


def test_a_measure_is_called_by_its_network(command, folders, weights):
    def given(*names: str) -> list[str]:
        return [word for name in names for word in (f"--{name}", f"{weights}/{name}.safetensors")]

    lpips = ("--lpips", "alex", *given("heads"), "--backbone", weights / "alex.safetensors")
    said = command("assess", "images", "photos", "others", *given("squeezenet", "faces"), *lpips)
    assert said.code == 0
    assert {"squeezenet", "lpips", "face-similarity"} <= set(rows(said.out))
    assert "squeezenet: unweighted distance of SqueezeNet 1.0 features, lower is more alike" in said.out
    assert "lpips: LPIPS v0.1 (alex), lower is more alike" in said.out
    assert "face-similarity: face similarity (MobileFaceNet), higher is more alike" in said.out
    last = said.out.splitlines()[-1]
    assert last.startswith("Fréchet distance of SqueezeNet 1.0 features: ")
    assert last.endswith(" (biased upwards: 3 images, fewer than 2,048)")
    assert "FID" not in said.out


def test_one_pair_has_a_distance_and_no_frechet_distance(command, tmp_path, weights):
    photos(tmp_path / "photos", 1)
    said = command("assess", "images", "photos", "photos", "--squeezenet", weights / "squeezenet.safetensors")
    assert said.code == 0
    assert rows(said.out)["squeezenet"] == ["1", "0", "-", "0 0"]
    assert said.out.endswith("Fréchet distance of SqueezeNet 1.0 features: of two pairs or more\n")


def test_a_pair_that_cannot_be_read_is_told_and_the_exit_code_is_1(command, folders, tmp_path):
    (tmp_path / "others" / "1.png").write_bytes(b"dear diary")
    said = command("assess", "images", "photos", "others", "--out", "res")
    assert said.code == 1
    assert rows(said.out)["mse"][0] == "2"
    assert said.out.splitlines()[-1].startswith("could not be read: 1 of 3 pairs, such as others/1.png: ")
    assert (tmp_path / "res" / "pairs.csv").exists()


@pytest.mark.parametrize(
    "name",
    ["a\nsfumato: all is well", "\x1b[31m", "[red]", "longer-than-the-terminal-is-wide-" * 4],
    ids=ascii,
)
def test_no_name_breaks_the_table_and_a_long_one_stays_whole(command: Command, tmp_path: Path, name: str):
    images.write(tmp_path / "photos" / f"{name}.png", torch.zeros(3, 12, 12, dtype=torch.uint8))
    said = command("assess", "images", "photos", "photos")
    assert said.code == 0
    assert "\x1b" not in said.out
    assert list(rows(said.out)) == ["mse", "psnr", "ssim"]
    assert len(name) < 80 or name in said.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--lpips alex", "--lpips, --backbone and --heads"),
        ("--heads h.pth", "--lpips, --backbone and --heads"),
        ("--detector d.pt", "name its weights with --faces"),
        ("--lpips resnet --backbone b.pth --heads h.pth", "LPIPS has no network 'resnet'"),
        ("--out photos/res", "photos/res: lies in photos, among the images: name another folder"),
    ],
)
def test_a_mistake_is_answered_in_one_line(command: Command, folders: None, words: str, message: str):
    check_mistake(command("assess", "images", "photos", "others", *words.split()), message)
    assert not Path("photos/res").exists()


def test_what_was_measured_is_said_in_json(command: Command, folders: None):
    told = json.loads(command("assess", "images", "photos", "others", "--json").out)
    assert (told["pairs"], told["failed"], told["frechet"]) == (3, [], None)
    ssim = next(each for each in told["measures"] if each["name"] == "ssim")
    assert ssim["higher_is_more_alike"]
    assert ssim["most_alike"] == "2"
    assert ssim["low"] < ssim["mean"] < ssim["high"]


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    """What people recognised of four pictures: slightly darker ones, and not a plain black one."""
    photos(tmp_path / "judged" / "originals", 4, shape=(3, 32, 32))
    photos(tmp_path / "judged" / "dark", 4, shape=(3, 32, 32), less=4)
    images.write(tmp_path / "judged" / "black.png", torch.zeros(3, 32, 32, dtype=torch.uint8))
    path = tmp_path / "judged" / "judged.csv"
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["original", "reconstruction", "recognised", "model", "source", "far"])
        for number in range(4):
            table.writerow([f"originals/{number}.png", f"dark/{number}.png", "true", "open", "photos", 1])
            table.writerow([f"originals/{number}.png", "black.png", "false", "closed", "photos", 3])
    return path


@pytest.fixture
def ranked(judged: Path) -> Path:
    """The same of a third model, of which half is recognised, and of a second data set."""
    header, *lines = judged.read_text().splitlines()
    for number, recognised in enumerate(("true", "true", "false", "false")):
        lines.append(f"originals/{number}.png,dark/{number}.png,{recognised},half,photos,2")
    lines += [line.replace("photos", "others") for line in lines]
    judged.write_text("\n".join([header, *lines, ""]))
    return judged


def test_measures_are_compared_with_people_on_each_data_set(command: Command, ranked: Path):
    decoy = "originals/0.png,black.png,,open,photos,9"
    ranked.write_text(ranked.read_text() + decoy)
    said = command("assess", "agreement", ranked, "--score", "-far", "--json")
    assert said.code == 0
    found = json.loads(said.out)
    assert list(found) == ["others", "photos"]
    assert found["photos"]["recognised"] == {"open": 1.0, "closed": 0.0, "half": 0.5}
    assert found["photos"]["pairs"] == 12
    assert found["photos"]["measures"]["far"]["kendall"]["value"] == pytest.approx(1)
    two_of_three_pairs = 2 / (2 * 3) ** 0.5  # two models have the same pictures
    assert found["photos"]["measures"]["ssim"]["kendall"]["value"] == pytest.approx(two_of_three_pairs)
    check_mistake(command("assess", "agreement", ranked, "--score", "fra"), "no column 'fra'")


def test_a_semsim_is_compared_with_people_on_the_data_set_that_it_left_out(command: Command, ranked: Path):
    asked = ("train", "semsim", "--judgements", ranked, "--leave-out")
    check_mistake(command(*asked, "ohters", "--out", "s.safetensors"), "no data set is called 'ohters'")
    settings = ("--set", "network=lenet", "--set", "epochs=1")
    said = command(*asked, "others", "--out", "s.safetensors", *settings)
    assert said.out.startswith("photos: 12 reconstructions of 4 originals, 6 recognised")
    said = command("assess", "agreement", ranked, "--semsim", "s.safetensors")
    lines = [line for line in said.out.splitlines() if "semsim" in line.lower()]
    assert [line.split()[1] for line in lines[:1]] == ["others"]
    assert lines[1:] == ["photos: each SemSim was trained on it: train one with --leave-out"]


def test_measures_are_not_compared_with_people_who_have_no_order(command: Command, judged: Path):
    check_mistake(command("assess", "agreement", judged), "its models are open, closed: a ranking needs 3")
    text = judged.read_text()
    judged.write_text(text.replace("true", "").replace("false", ""))
    check_mistake(command("assess", "agreement", judged), "no row has a value of 'recognised'")


def test_a_learned_measure_says_with_which_probability_people_recognise(command, folders, judged, weights):
    network = weights / "squeezenet.safetensors"
    asked = ("--judgements", judged, "--out", "p.safetensors", "--squeezenet", network)
    said = command("train", "semsim-perceptual", *asked, "--set", "size=32", "--set", "epochs=3")
    assert said.code == 0
    trained, held_out, artefact = said.out.splitlines()
    assert trained == "photos: 8 reconstructions of 4 originals, 4 recognised"
    assert held_out.startswith("on 1 originals held out from training: Brier score 0.")
    assert artefact == "artefact: p.safetensors"
    table = rows(command("assess", "images", "photos", "others", "--semsim", "p.safetensors").out)
    assert list(table) == ["mse", "psnr", "ssim", "semsim", "recognised"]
    assert 0 < float(table["recognised"][1]) < 1
    assert table["recognised"][3].endswith(table["semsim"][3].split()[-1])  # the nearest is the likeliest
    described = command("show", "p.safetensors").out
    assert "how likely they see the same" in described
