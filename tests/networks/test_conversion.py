"""Weights of others: what their network computes is what ours computes of the converted file."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.assess.perceptual import Perceptual
from sfumato.errors import ArtefactError, ConfigError
from sfumato.networks.conversion import convert
from sfumato.networks.encoders.backbones import AlexNet
from sfumato.networks.encoders.squeeze_net import SqueezeNet
from sfumato.networks.faces.inception_resnet_v1 import InceptionResnetV1
from sfumato.networks.faces.mobile_face_net import MobileFaceNet
from sfumato.networks.faces.mtcnn import MTCNN


def same(ours: nn.Module, theirs: dict[str, Tensor]) -> bool:
    own = ours.state_dict()
    return all(torch.equal(own[name], tensor) for name, tensor in theirs.items())


def drawn(network: nn.Module, seed: int = 0) -> dict[str, Tensor]:
    """A state dict of these shapes."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.rand(tensor.shape, generator=generator) if tensor.is_floating_point() else tensor
        for name, tensor in network.state_dict().items()
    }


def test_three_files_of_facenet_pytorch_become_one_detector(tmp_path: Path):
    weights = drawn(MTCNN())
    files = []
    for part in ("pnet", "rnet", "onet"):
        files.append(tmp_path / f"{part}.pt")
        own = {name.partition(".")[2]: tensor for name, tensor in weights.items() if name.startswith(part)}
        torch.save(own, files[-1])
    assert convert("mtcnn", files, tmp_path / "m.safetensors") == ""
    assert same(MTCNN.load(tmp_path / "m.safetensors"), weights)
    with pytest.raises(ConfigError, match="name the three files pnet, rnet and onet, got"):
        convert("mtcnn", [files[0], files[1], files[1]], tmp_path / "n.safetensors")


def test_the_layer_of_classes_of_facenet_is_left_out(tmp_path: Path):
    weights = drawn(InceptionResnetV1())
    torch.save(
        {**weights, "logits.weight": torch.rand(10, 512), "logits.bias": torch.rand(10)}, tmp_path / "f.pt"
    )
    convert("facenet", [tmp_path / "f.pt"], tmp_path / "f.safetensors")
    assert same(InceptionResnetV1.load(tmp_path / "f.safetensors"), weights)


def test_a_checkpoint_is_unwrapped_and_its_names_too(tmp_path: Path):
    weights = drawn(MobileFaceNet())
    inner = {f"module.{name}": tensor for name, tensor in weights.items()}
    torch.save({"epoch": 68, "net_state_dict": inner}, tmp_path / "068.ckpt")
    convert("mobile-face-net", [tmp_path / "068.ckpt"], tmp_path / "m.safetensors")
    assert same(MobileFaceNet.load(tmp_path / "m.safetensors"), weights)


class _Fire(nn.Module):
    """Of torchvision.models.squeezenet."""

    def __init__(self, inputs: int, squeezed: int, one: int, three: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.expand1x1 = nn.Conv2d(squeezed, one, 1)
        self.expand3x3 = nn.Conv2d(squeezed, three, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.squeeze(x))
        return torch.cat([functional.relu(self.expand1x1(x)), functional.relu(self.expand3x3(x))], 1)


def torchvisions_squeezenet() -> nn.Module:
    """Version 1.0, written after its documentation."""

    def pool() -> nn.Module:
        return nn.MaxPool2d(3, 2, ceil_mode=True)

    network = nn.Module()
    network.features = nn.Sequential(
        *(nn.Conv2d(3, 96, 7, stride=2), nn.ReLU(), pool()),
        *(_Fire(96, 16, 64, 64), _Fire(128, 16, 64, 64), _Fire(128, 32, 128, 128), pool()),
        *(_Fire(256, 32, 128, 128), _Fire(256, 48, 192, 192), _Fire(384, 48, 192, 192)),
        *(_Fire(384, 64, 256, 256), pool(), _Fire(512, 64, 256, 256)),
    )
    network.classifier = nn.Sequential(nn.Dropout(), nn.Conv2d(512, 1000, 1), nn.ReLU())
    return network


def test_squeezenet_of_torchvision_has_the_same_features_of_images_that_it_scales_otherwise(tmp_path: Path):
    torch.manual_seed(0)
    theirs = torchvisions_squeezenet().eval()
    torch.save(theirs.state_dict(), tmp_path / "squeezenet1_0.pth")
    note = convert("squeeze-net", [tmp_path / "squeezenet1_0.pth"], tmp_path / "s.safetensors")
    assert note.startswith("features are the same; class probabilities are not")
    images = torch.rand(2, 3, 64, 50)
    mean, std = (torch.tensor(each)[:, None, None] for each in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    with torch.no_grad():
        expected = theirs.features((images - mean) / std)
        torch.testing.assert_close(
            SqueezeNet.load(tmp_path / "s.safetensors").features(images)[-1], expected, rtol=1e-3, atol=1e-4
        )


def test_a_state_dict_of_lpips_gives_backbone_and_heads(tmp_path: Path):
    backbone = drawn(AlexNet())
    slices = {0: 1, 3: 2, 6: 3, 8: 4, 10: 5}  # of lpips.pretrained_networks.alexnet
    theirs = {
        f"net.slice{slices[int(name.split('.')[1])]}.{name.removeprefix('features.')}": tensor
        for name, tensor in backbone.items()
    }
    for stage, width in enumerate((64, 192, 384, 256, 256)):
        theirs[f"lin{stage}.model.1.weight"] = torch.rand(1, width, 1, 1)
        theirs[f"lins.{stage}.model.1.weight"] = theirs[f"lin{stage}.model.1.weight"]
    theirs["scaling_layer.shift"] = torch.rand(1, 3, 1, 1)
    torch.save(theirs, tmp_path / "lpips.pth")
    for kind in ("lpips-alex", "lpips-heads"):
        convert(kind, [tmp_path / "lpips.pth"], tmp_path / f"{kind}.safetensors")
    assert same(AlexNet.load(tmp_path / "lpips-alex.safetensors"), backbone)
    distance = Perceptual.load(
        network="alex",
        backbone=tmp_path / "lpips-alex.safetensors",
        heads=tmp_path / "lpips-heads.safetensors",
    )
    image = torch.rand(1, 3, 64, 64)
    assert distance.distance(image, image).item() == 0


class _Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("run",)


def test_a_file_that_could_run_code_is_refused_and_leaves_nothing(tmp_path: Path, capsys):
    torch.save({"state_dict": _Evil()}, tmp_path / "evil.pt")
    with pytest.raises(ArtefactError, match="anything else could run code"):
        convert("facenet", [tmp_path / "evil.pt"], tmp_path / "f.safetensors")
    assert capsys.readouterr().out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["evil.pt"]


def test_weights_of_another_network_are_refused_by_the_name_of_their_file(tmp_path: Path):
    torch.save(drawn(AlexNet()), tmp_path / "alex.pth")
    with pytest.raises(ArtefactError, match=r"alex\.pth: no weights of SqueezeNet"):
        convert("squeeze-net", [tmp_path / "alex.pth"], tmp_path / "s.safetensors")
    with pytest.raises(ArtefactError, match=r"alex\.pth: holds no lpips-heads"):
        convert("lpips-heads", [tmp_path / "alex.pth"], tmp_path / "s.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["alex.pth"]


@pytest.mark.parametrize(
    ("kind", "files", "destination", "message"),
    [
        ("timm", ["a.pt"], "b.safetensors", "such as timm's, are read as ONNX: see docs/guides/encoder.md"),
        ("facenet", ["a.pt"], "b.pt", "b.pt: name a .safetensors file"),
        ("facenet", ["a.pt", "b.pt"], "c.safetensors", "facenet: one file is needed, got 2"),
        ("mtcnn", ["a.pt", "b.pt"], "c.safetensors", "one file, or pnet, rnet and onet, is needed, got 2"),
    ],
)
def test_what_cannot_be_converted_says_why(kind: str, files: list[str], destination: str, message: str):
    with pytest.raises(ConfigError, match=message):
        convert(kind, list(map(Path, files)), Path(destination))
