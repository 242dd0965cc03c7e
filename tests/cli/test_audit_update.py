"""`sfumato audit update`: from files to a report and pictures, and exit code 1 where something is read."""

import json

import numpy as np
import pytest
import torch
from commands import check_mistake
from safetensors.torch import save_file
from torch import nn

from sfumato import images
from sfumato.attack.victim import share
from sfumato.cli.audit.updates import sheet
from sfumato.images import to_float, write

SOURCE = """
import torch
from torch import nn

def make():
    return nn.Sequential(nn.Flatten(), nn.Linear(432, 64), nn.ReLU(), nn.Linear(64, 4))

def wrong():
    return 3
"""
QUICK = ("--shape", "3x12x12", "--search", "none")


@pytest.fixture
def client(home, tmp_path):
    """Files of a client: code of a network, its weights, a gradient of two images, and these."""
    (tmp_path / "net.py").write_text(SOURCE)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = nn.Sequential(nn.Flatten(), nn.Linear(432, 64), nn.ReLU(), nn.Linear(64, 4))
    images = torch.randint(0, 256, (2, 3, 12, 12), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    (tmp_path / "photos").mkdir()
    for number, image in enumerate(images):
        write(tmp_path / "photos" / f"{number}.png", image)
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    shared = share(model, to_float(images), torch.tensor([3, 1]))
    np.savez(tmp_path / "gradient.npz", **{name: each.numpy() for name, each in shared.items()})
    after = {name: each - 0.5 * shared[name] for name, each in model.state_dict().items()}
    save_file(after, tmp_path / "after.safetensors")


def audit(command, *options: str):
    return command("audit", "update", "--model", "net.py:make", *QUICK, *options)


GRADIENT = ("--update", "gradient.npz", "--weights", "weights.safetensors", "--images", "2")


def test_a_gradient_gives_its_images_in_the_order_of_their_originals(command, client, tmp_path):
    known = ("--truth", "photos", "--labels", "3,1", "--html", "report.html", "--out", "back")
    said = audit(command, *GRADIENT, *known)
    assert said.code == 1
    assert said.out.startswith("Do not send such an update: 2 of its 2 images come back")
    assert "net.py:make is your code, and runs now" in said.err
    page = (tmp_path / "report.html").read_text()
    assert page.count('src="data:image/png') == 4  # originals, and what came back
    assert "originals above, images that came back: back/exact.png\n" in said.err
    for number in range(2):
        back, original = images.read(f"back/exact-00{number}.png"), images.read(f"photos/{number}.png")
        assert (back.int() - original).abs().max() <= 1
    assert images.read("back/exact.png").shape == (3, 2 * 12 + 2, 2 * 12 + 2)
    check_mistake(audit(command, *GRADIENT, "--out", "back"), "back/exact.png: already exists")
    assert audit(command, *GRADIENT, "--out", "back", "--force").code == 1


def test_a_published_search_draws_the_images_behind_a_gradient(command, client):
    search = ("--search", "inverting-gradients", "--set", "steps=3", "--truth", "photos", "--out", "back")
    said = audit(command, *GRADIENT, *search, "--json")
    found = {each["name"]: each.get("figures") for each in json.loads(said.out)["findings"]}
    assert found["labels"]["counts"] == {"1": 1, "3": 1}
    assert (found["search"]["steps"], found["search"]["labels"]) == (3, [1, 3])
    assert images.read("back/search.png").shape == (3, 2 * 12 + 2, 2 * 12 + 2)


def test_two_states_and_a_rate_are_the_same_update(command, client):
    states = ("--update", "after.safetensors", "--before", "weights.safetensors")
    said = audit(command, *states, "--images", "2", "--rate", "0.5", "--truth", "photos", "--json")
    (exact,) = [each for each in json.loads(said.out)["findings"] if each["name"] == "exact"]
    assert exact["verdict"] == "leaks"
    assert min(exact["figures"]["psnr"]) > 60


def test_noise_is_said_by_two_options(command, client):
    noise = ("--noise-multiplier", "5", "--clipping-norm", "1")
    said = json.loads(audit(command, *GRADIENT, *noise, "--json").out)
    (bound,) = [each for each in said["findings"] if each["name"] == "bound"]
    assert bound["verdict"] == "bounded"
    check_mistake(audit(command, *GRADIENT, *noise[:2]), "--noise-multiplier and --clipping-norm go together")


def test_a_network_and_a_training_have_to_be_described(command, client):
    named = ("audit", "update", "--model", "lenet", *QUICK, "--update", "gradient.npz", "--images", "2")
    check_mistake(command(*named), "lenet needs its number of classes: --classes 10")
    check_mistake(command(*named, "--classes", "4"), "the update has 1.weight, which the model does not have")
    check_mistake(audit(command, *GRADIENT[:4]), "gradient.npz: does not say how the client trained")
    check_mistake(audit(command, *GRADIENT[:4], "--steps", "5"), "--steps and --rate need --images")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "net.py:wrong"), "net.py:wrong: returned int: return an nn.Module"),
        (("--model", "net.py:none"), "net.py:none: net.py has no 'none': name a function that it defines"),
        (("--model", "nowhere.py:make"), "--model nowhere.py:make: there is no file nowhere.py"),
        (("--model", "lennet"), "no network is called 'lennet': did you mean"),
        (("--shape", "3x32x32"), "its first layer takes 432 numbers: give the shape"),
        (("--shape", "12x12"), "--shape 12x12: write channels x height x width"),
        (("--labels", "cat"), "--labels cat: write the numbers of the classes, as 0,3,3"),
        (("--truth", "empty"), "empty: has no image"),
        (("--search", "dgl"), "--search dgl: did you mean 'dlg'"),
        (("--search", "dlg", "--set", "steps=0"), "steps=0: at least 1"),
        (("--set", "steps=9"), "--set steps=9 is of a search: leave out --search none"),
    ],
)
def test_mistakes_have_one_line(command, client, tmp_path, options, message: str):
    (tmp_path / "empty").mkdir()
    check_mistake(audit(command, *GRADIENT, *options), message)


def test_a_sheet_has_rows_below_each_other_and_wraps_after_sixteen():
    above = torch.arange(18, dtype=torch.uint8)[:, None, None, None].expand(18, 1, 4, 4)
    page = sheet([list(above), list(above + 100)])
    assert page.shape == (1, 4 * 6 - 2, 16 * 6 - 2)
    tops = page[0, ::6, ::6]
    assert tops[0].tolist() == list(range(16))
    assert tops[1].tolist() == list(range(100, 116))
    assert tops[2, :2].tolist() == [16, 17]
    assert tops[2, 2] == 255
