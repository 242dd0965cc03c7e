"""Encoders that were trained before: what they want of images, what they give, and what is refused."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from encoders import SETTINGS, SIDE, Small, write_onnx
from torch import nn
from torch.nn import functional

from sfumato.errors import ArtefactError, ConfigError
from sfumato.export.graphs import to_onnx
from sfumato.images import to_float
from sfumato.learn.start import begin
from sfumato.networks import Conv4, SqueezeNet
from sfumato.networks.classifiers import make_classifier, make_encoder
from sfumato.networks.encoders.efficient_net import LITES
from sfumato.networks.encoders.pretrained import (
    Pretrained,
    PretrainedEncoder,
    Whitened,
    check_card,
    on_card,
    open_pretrained,
    parse_pretrained,
)
from sfumato.networks.onnx_network import OnnxNetwork

LITE0 = LITES["efficientnet-lite0"][2]
SQUEEZENET = "weights/squeezenet1_0_imagenet_deepcomp.npz"
MEAN, STD = torch.tensor([0.5, 0.4, 0.3])[:, None, None], torch.tensor([0.2, 0.25, 0.3])[:, None, None]


@pytest.fixture
def spec(tmp_path: Path) -> str:
    return write_onnx(tmp_path / "small.onnx", Small())


@torch.no_grad()
def test_an_onnx_file_gives_what_its_module_gives_of_resized_and_scaled_images(spec: str, photos):
    images = to_float(photos)
    resized = functional.interpolate(images, (SIDE, SIDE), mode="bilinear", antialias=True)
    expected = Small()((resized - MEAN) / STD)
    torch.testing.assert_close(open_pretrained(parse_pretrained(spec))(images), expected, atol=1e-5, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("any_batch", [True, False])
def test_a_graph_of_maps_is_averaged_and_one_of_a_single_image_is_asked_image_by_image(
    tmp_path: Path, photos, any_batch: bool
):
    spec = write_onnx(tmp_path / "maps.onnx", Small(maps=True), any_batch=any_batch)
    alike = write_onnx(tmp_path / "means.onnx", Small())
    ours, theirs = (open_pretrained(parse_pretrained(each))(to_float(photos)) for each in (spec, alike))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


@torch.no_grad()
def test_grey_images_are_seen_as_three_equal_channels(spec: str, photos):
    grey = to_float(photos[:, :1])
    encoder = open_pretrained(parse_pretrained(spec))
    torch.testing.assert_close(encoder(grey), encoder(grey.expand(-1, 3, -1, -1)), atol=0, rtol=0)


@torch.no_grad()
def test_squeezenet_is_read_by_name(shared_data: Path, photos):
    path = shared_data / SQUEEZENET
    encoder = open_pretrained(parse_pretrained(f"squeeze-net:{path},size=40"))
    resized = functional.interpolate(to_float(photos), (40, 40), mode="bilinear", antialias=True)
    expected = SqueezeNet.load(path).features(resized)[-1].mean((2, 3))
    torch.testing.assert_close(encoder(to_float(photos)), expected, atol=0, rtol=0)


@torch.no_grad()
def test_outputs_are_standardised_over_training_images():
    raw = 3 + 5 * torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    encoder = Pretrained(nn.Identity(), dimension=4, size=None)
    encoder.standardise(raw)
    standard = encoder.scale(raw).double()
    torch.testing.assert_close(standard.mean(0), torch.zeros(4).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(standard.var(0, correction=0), torch.ones(4).double(), atol=1e-5, rtol=0)


@torch.no_grad()
def test_distances_are_those_of_discriminant_analysis_with_half_of_its_shrinkage():
    draw = torch.Generator().manual_seed(1)
    codes = torch.arange(6).repeat_interleave(20)
    mixing = torch.randn(5, 5, generator=draw)
    outputs = 3 * torch.randn(6, 5, generator=draw)[codes] + torch.randn(120, 5, generator=draw) @ mixing
    whitened = Whitened(5)
    whitened.fit(outputs, codes)

    x, y = outputs.double().numpy(), codes.numpy()
    about = np.concatenate([x[y == c] - x[y == c].mean(0) for c in range(6)])
    within = about.T @ about / len(about)
    shrunk = (within + np.trace(within) / 5 * np.eye(5)) / 2
    matrix = whitened.matrix.double().numpy()
    np.testing.assert_allclose(matrix @ matrix.T, np.linalg.inv(shrunk), rtol=1e-4)
    lengths = whitened(outputs).norm(dim=1)
    torch.testing.assert_close(lengths, torch.full_like(lengths, 4), atol=1e-4, rtol=0)


def test_it_is_frozen_unless_a_rate_is_written(shared_data: Path):
    frozen, tuned = (
        open_pretrained(parse_pretrained(f"squeeze-net:{shared_data / SQUEEZENET}{rate}"))
        for rate in ("", ",rate=0.1")
    )
    assert not any(parameter.requires_grad for parameter in frozen.train().parameters())
    assert not frozen.network.training
    assert all(parameter.requires_grad for parameter in tuned.train().parameters())
    assert tuned.network.training


@torch.no_grad()
def test_a_card_says_what_is_in_the_file_and_the_weights_alone_rebuild_the_encoder(spec: str, photos):
    made = make_encoder(spec, 3).eval()
    assert isinstance(made, PretrainedEncoder)
    named = on_card(spec)
    assert "small.onnx" not in named
    assert check_card(named) == named
    rebuilt = make_encoder(named, 3)
    rebuilt.load_state_dict(made.state_dict())
    torch.testing.assert_close(rebuilt.eval()(to_float(photos)), made(to_float(photos)), atol=0, rtol=0)
    with pytest.raises(ValueError, match="an artefact holds its encoder, and names no file"):
        check_card(spec)


@torch.no_grad()
@pytest.mark.parametrize(("spec", "dimension"), [("drawn", 576), ("efficientnet-lite0:size=32", 1280)])
def test_one_that_is_shipped_or_in_a_wheel_needs_no_file_and_artefacts_hold_it(photos, spec, dimension):
    if spec != "drawn" and not LITE0.is_installed():
        pytest.skip("the extra encoders is not installed")
    encoder = open_pretrained(parse_pretrained(spec)).eval()
    embeddings = encoder(to_float(photos))
    assert embeddings.shape == (7, dimension)
    card = on_card(spec)
    assert check_card(card) == card
    assert parse_pretrained(card).sha256
    blank = open_pretrained(parse_pretrained(card))
    blank.load_state_dict(encoder.state_dict())
    assert torch.equal(blank.eval()(to_float(photos)), embeddings)
    with pytest.raises(ValueError, match="an artefact holds its encoder"):
        check_card(spec)


@torch.no_grad()
def test_the_one_that_is_shipped_gives_roots_of_means_of_its_maps(photos):
    network = Conv4(3)
    begin(network, "drawn")
    images = functional.interpolate(
        to_float(photos), (128, 128), mode="bilinear", antialias=True, align_corners=False
    )
    maps = network.eval().blocks(images)
    corner = open_pretrained(parse_pretrained("drawn"))(to_float(photos)).view(7, 64, 3, 3)[:, :, 0, 0]
    torch.testing.assert_close(corner, maps[:, :, :3, :3].mean((2, 3)).sqrt(), atol=1e-5, rtol=1e-4)


def test_the_same_file_elsewhere_has_the_same_name_on_a_card(tmp_path: Path, spec: str):
    moved = tmp_path / "elsewhere" / "other.onnx"
    moved.parent.mkdir()
    moved.write_bytes((tmp_path / "small.onnx").read_bytes())
    assert on_card(f"onnx:{moved},{SETTINGS}") == on_card(spec)


@torch.no_grad()
def test_a_classifier_on_it_is_a_linear_layer(spec: str, photos):
    network = make_classifier(spec, (3, 29, 23), 4).eval()
    features = network.encoder(to_float(photos))
    expected = features @ network.head.weight.T + network.head.bias
    torch.testing.assert_close(network(to_float(photos)), expected)


@pytest.mark.parametrize(
    ("text", "message"),
    {
        "onnx:": "names no file: write one, as onnx:FILE,size=224",
        "onnx:f.onnx,size=224": "does not say how its images are scaled: write mean and std of each channel",
        "onnx:f.onnx,mean=0,std=0": "std=0 is not one number above 0, or three with /",
        "onnx:f.onnx,mean=0/1,std=1": "mean=0/1 is not one number, or three with / between",
        "onnx:f.onnx,mean=0,std=1,rate=0.1": "an ONNX graph has no gradients and cannot be tuned",
        "onnx:f.onnx,mean=0,std=1,size=8": "size=8 is not a side, or HxW, from 16 to 1024",
        "onnx:f.onnx,means=0,std=1": "no parameter 'means': did you mean 'mean'",
        "squeeze-net:f.npz,mean=0": "mean and std are known of a squeeze-net: leave them out",
        "squeeze-net:f.npz,rate=2": "rate=2 is not a rate from 0, for a frozen encoder, to 1",
    }.items(),
)
def test_what_cannot_be_meant_is_refused_with_its_cure(text: str, message: str):
    with pytest.raises(ConfigError) as error:
        parse_pretrained(text)
    assert message in str(error.value)


class Tokens(Small):
    """(N, 3, h, w) -> (N, y·x, 12), as a transformer gives them."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(images).relu()).flatten(2).mT


def test_a_graph_that_is_no_encoder_of_images_is_refused(tmp_path: Path, spec: str):
    def fails(spec: str) -> str:
        with pytest.raises((ArtefactError, ConfigError)) as error:
            open_pretrained(parse_pretrained(spec))
        return str(error.value)

    assert "gives (1, 81, 12) for one image: an encoder gives (N, D)" in fails(
        write_onnx(tmp_path / "tokens.onnx", Tokens())
    )
    assert f"the graph takes images of {SIDE}x{SIDE}: leave size out" in fails(
        spec.replace(f"size={SIDE}", "size=32")
    )
    numbers = to_onnx(nn.Linear(4, 2), torch.zeros(1, 4), "x", ["y"])
    (tmp_path / "numbers.onnx").write_bytes(numbers.SerializeToString())
    assert "takes x tensor(float) [1, 4]: an encoder takes one tensor(float) of (N, 3, H, W)" in fails(
        f"onnx:{tmp_path}/numbers.onnx,mean=0,std=1"
    )
    (tmp_path / "text.onnx").write_text("no graph")
    assert "not a graph" in fails(f"onnx:{tmp_path}/text.onnx,mean=0,std=1")
    assert "cannot be read (No such file" in fails(f"onnx:{tmp_path}/none.onnx,mean=0,std=1")


def test_a_graph_whose_weights_are_in_other_files_reads_none_of_them(tmp_path: Path, spec: str):
    model = onnx.load(tmp_path / "small.onnx")
    onnx.save(
        model, tmp_path / "parts.onnx", save_as_external_data=True, size_threshold=0, location="weights.bin"
    )
    with pytest.raises(ArtefactError, match="weights that lie in another file: write it as one file"):
        open_pretrained(parse_pretrained(f"onnx:{tmp_path}/parts.onnx,{SETTINGS}"))
    with pytest.raises(ArtefactError, match="weights that lie in another file"):
        OnnxNetwork((tmp_path / "parts.onnx").read_bytes())(torch.zeros(1, 3, SIDE, SIDE))


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")  # of torch.export, of itself
@torch.no_grad()
def test_what_the_guide_says_makes_a_file_that_is_read(tmp_path: Path, photos):
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "encoder.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(.*?)```", guide, re.DOTALL)
    names: dict[str, Any] = {}
    exec(block[1], names)
    names["write"](Small(), str(tmp_path / "own.onnx"), SIDE)
    ours = open_pretrained(parse_pretrained(f"onnx:{tmp_path}/own.onnx,{SETTINGS}"))(to_float(photos))
    theirs = open_pretrained(parse_pretrained(write_onnx(tmp_path / "small.onnx", Small())))(to_float(photos))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
