"""`sfumato attack`: from a file that somebody has to a picture of what came back."""

import json
from pathlib import Path

import pytest
import torch
from commands import Command, check_mistake
from safetensors.torch import save_file
from torch import Tensor, nn

from sfumato import images
from sfumato.attack.gradient_inversion import share
from sfumato.cli.attack.family import sheet
from sfumato.images import to_float, write

SOURCE = """
from torch import nn

def make():
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 48), nn.ReLU(), nn.Linear(48, 4))

def smooth():
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 48), nn.Sigmoid(), nn.Linear(48, 4))

def half():
    return nn.Sequential(nn.Flatten(), nn.Linear(32, 40))

def head():
    return nn.Sequential(nn.Linear(80, 20), nn.Sigmoid(), nn.Linear(20, 4))
"""
SHAPE = ("--shape", "3x8x8")


def drawn(make: str, seed: int = 3) -> nn.Sequential:
    """A network of SOURCE with weights of a seed."""
    names: dict[str, object] = {}
    exec(SOURCE, names)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = names[make]()  # type: ignore[operator]
    assert isinstance(network, nn.Sequential)
    return network


def client(folder: Path, make: str, labels: list[int]) -> Tensor:
    """Files of a client: code of a network, its weights, the gradient of some images, and these."""
    (folder / "net.py").write_text(SOURCE)
    network = drawn(make)
    generator = torch.Generator().manual_seed(0)
    photographs = torch.randint(0, 256, (len(labels), 3, 8, 8), generator=generator).to(torch.uint8)
    for number, image in enumerate(photographs):
        write(folder / "photos" / f"{number}.png", image)
    save_file(network.state_dict(), folder / "weights.safetensors")
    shared = share(network, to_float(photographs), torch.tensor(labels))
    save_file({name: each.contiguous() for name, each in shared.items()}, folder / "gradient.safetensors")
    return photographs


def asked(make: str, images: int) -> tuple[str, ...]:
    return (
        *("--model", f"net.py:{make}", "--weights", "weights.safetensors"),
        *("--update", "gradient.safetensors", "--images", str(images), *SHAPE),
    )


def test_one_image_is_read_from_a_first_linear_layer(command: Command, tmp_path: Path):
    photographs = client(tmp_path, "make", [2])
    said = command("attack", "first-layer", *asked("make", 1), "--out", "back", "--truth", "photos")
    assert said.code == 0
    assert said.out.startswith(
        "1 image read from the first layer by a division (Phong et al. 2017), pixel by pixel."
    )
    assert said.out.endswith("originals above, what came back: back/came-back.png\n")
    assert (images.read(tmp_path / "back" / "000.png").int() - photographs[0]).abs().max() <= 1
    assert "net.py:make is your code, and runs now" in said.err


def test_a_batch_is_read_from_it_in_the_order_of_its_originals(command: Command, tmp_path: Path):
    photographs = client(tmp_path, "make", [2, 0, 3])
    said = command("attack", "first-layer", *asked("make", 3), "--out", "back", "--truth", "photos", "--json")
    figures = json.loads(said.out)
    assert figures["images"] == 3
    assert min(figures["psnr"]) > 50
    for number, original in enumerate(photographs):
        assert (images.read(tmp_path / "back" / f"{number:03d}.png").int() - original).abs().max() <= 1
    page = images.read(tmp_path / "back" / "came-back.png")
    assert page.shape == (3, 2 * 8 + 2, 3 * 8 + 2 * 2)


def test_labels_of_a_gradient_are_counted(command: Command, tmp_path: Path):
    client(tmp_path, "make", [2])
    said = command("attack", "labels", *asked("make", 1), "--labels", "2")
    assert said.out == "class 2: 1 image\n1 of 1 are right\n"
    assert json.loads(command("attack", "labels", *asked("make", 1), "--json").out) == {
        "counts": {"2": 1},
        "right": None,
        "images": 1,
    }


def test_a_search_finds_the_image_behind_a_gradient(command: Command, tmp_path: Path):
    client(tmp_path, "smooth", [2])
    search = ("--attack", "idlg", "--set", "steps=60", "--truth", "photos", "--json")
    said = json.loads(command("attack", "invert", *asked("smooth", 1), "--out", "back", *search).out)
    assert said["labels"] == [2]
    assert said["psnr"][0] > 30
    assert said["picture"] == "back/came-back.png"


def test_a_search_takes_known_labels_and_says_how_near_its_update_is(command: Command, tmp_path: Path):
    client(tmp_path, "smooth", [2, 1])
    search = ("--set", "steps=5", "--labels", "2,1")
    said = command("attack", "invert", *asked("smooth", 2), "--out", "back", *search)
    assert said.out.startswith("2 images of classes 2, 1, whose update lies ")
    assert said.out.endswith("\nwhat came back: back/came-back.png\n")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--attack", "dgl"), "--attack dgl: did you mean 'dlg'"),
        (("--set", "steps=0"), "steps=0: at least 1"),
        (("--steps", "3"), "--steps and --rate need --images"),
        (("--images", "1", "--shape", "1x8x8"), "its first layer takes 192 numbers: give the shape"),
        (("--images", "1", "--labels", "7"), "the model has the classes 0 to 3: give one for each image"),
        (("--shape", "8x8"), "--shape 8x8: write channels x height x width, as 3x28x28"),
    ],
)
def test_what_cannot_be_meant_is_answered_in_a_line(
    command: Command, tmp_path: Path, more: tuple[str, ...], message: str
):
    client(tmp_path, "smooth", [2])
    base = ("--model", "net.py:smooth", "--update", "gradient.safetensors", "--out", "back", *SHAPE)
    check_mistake(command("attack", "invert", *base, *more), message)


def test_a_picture_that_exists_is_replaced_only_by_force(command: Command, tmp_path: Path):
    client(tmp_path, "make", [2])
    assert command("attack", "first-layer", *asked("make", 1), "--out", "back").code == 0
    check_mistake(command("attack", "first-layer", *asked("make", 1), "--out", "back"), "came-back.png")
    assert command("attack", "first-layer", *asked("make", 1), "--out", "back", "--force").code == 0


def test_a_truth_of_other_images_is_named(command: Command, tmp_path: Path):
    client(tmp_path, "make", [2, 1])
    save_file(share(drawn("make"), torch.rand(1, 3, 8, 8), torch.tensor([0])), "gradient.safetensors")
    said = command("attack", "first-layer", *asked("make", 1), "--out", "back", "--truth", "photos")
    check_mistake(said, "the truth has 2 images, and 1 came back: give those behind the file")


def test_a_sheet_has_rows_below_each_other_and_wraps_after_sixteen():
    above = torch.arange(18, dtype=torch.uint8)[:, None, None, None].expand(18, 1, 4, 4)
    page = sheet([above, above + 100])
    assert page.shape == (1, 4 * 6 - 2, 16 * 6 - 2)
    tops = page[0, ::6, ::6]
    assert tops[0].tolist() == list(range(16))
    assert tops[1].tolist() == list(range(100, 116))
    assert tops[2, :2].tolist() == [16, 17]
    assert tops[2, 2] == 255
