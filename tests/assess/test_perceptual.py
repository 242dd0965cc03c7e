import io
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch.nn import functional

from sfumato import data
from sfumato.assess import perceptual
from sfumato.assess.perceptual import BACKBONES, Perceptual
from sfumato.errors import ArtefactError, ConfigError
from sfumato.images import to_float
from sfumato.networks import SqueezeNet

SQUEEZENET = "weights/squeezenet1_0_imagenet_deepcomp.npz"
HEADS = "weights/lpips_linear_heads_v0.1.npz"
PUBLISHED = Path(find_spec("torchmetrics").origin).parent / "functional" / "image" / "lpips_models"


@pytest.fixture(scope="module", params=BACKBONES)
def network(request):
    return request.param


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A backbone of each network in the published names, drawn by lot."""
    folder = tmp_path_factory.mktemp("backbones")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for name, kind in BACKBONES.items():
            save_file(kind().state_dict(), folder / f"{name}.safetensors")
    return folder


@pytest.fixture(scope="module")
def lpips(files, network):
    return Perceptual.load(
        network=network, backbone=files / f"{network}.safetensors", heads=PUBLISHED / f"{network}.pth"
    )


@pytest.fixture(scope="module")
def alex(files):
    return Perceptual.load(network="alex", backbone=files / "alex.safetensors", heads=PUBLISHED / "alex.pth")


@pytest.fixture(scope="module")
def unweighted(tmp_path_factory):
    """Of a SqueezeNet 1.0 drawn by lot."""
    path = tmp_path_factory.mktemp("squeezenet") / "squeezenet.safetensors"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_file(SqueezeNet().state_dict(), path)
    return Perceptual.of_squeezenet(path)


@pytest.fixture(scope="module")
def photographs(shared_data):
    """Ten of CIFAR-10, 32x32."""
    packed = dict(np.load(shared_data / "cifar10_jpeg_subset.npz"))
    files = [packed["blob"][packed["offset"][i] : packed["offset"][i + 1]] for i in range(0, 2500, 250)]
    pixels = [np.array(Image.open(io.BytesIO(file.tobytes())).convert("RGB")) for file in files]
    return to_float(torch.from_numpy(np.stack(pixels).transpose(0, 3, 1, 2).copy()))


def drawn(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def pair_of(*shape):
    return drawn(*shape, seed=0), drawn(*shape, seed=1)


def by_formula(network, files, originals, others, *, scaled=True):
    """LPIPS from the text of the paper, in float64, each place on its own: (N,)."""
    backbone = BACKBONES[network].load(files / f"{network}.safetensors").double()
    heads = torch.load(PUBLISHED / f"{network}.pth", map_location="cpu", weights_only=True)
    shift = torch.tensor([-0.030, -0.088, -0.188], dtype=torch.float64)[:, None, None]
    scale = torch.tensor([0.458, 0.448, 0.450], dtype=torch.float64)[:, None, None]

    def stages(images):
        maps = ((2 * images.double() - 1 if scaled else images.double()) - shift) / scale
        found = []
        for place, layer in enumerate(backbone.features):
            maps = layer(maps)
            if place in backbone._taken:
                found.append(maps)
        return found

    total = torch.zeros(len(originals), dtype=torch.float64)
    for number, (first, second) in enumerate(zip(stages(originals), stages(others), strict=True)):
        head = heads[f"lin{number}.model.1.weight"].double().flatten()
        n, _, h, w = first.shape
        for image in range(n):
            for y in range(h):
                for x in range(w):
                    a, b = first[image, :, y, x], second[image, :, y, x]
                    a, b = a / (a.norm() + 1e-10), b / (b.norm() + 1e-10)
                    total[image] += (head * (a - b) ** 2).sum() / (h * w)
    return total


@torch.no_grad()
def test_lpips_is_the_sum_of_the_formula(lpips, network, files):
    originals, others = pair_of(2, 3, 35, 41)
    expected = by_formula(network, files, originals, others)
    torch.testing.assert_close(lpips.distance(originals, others).double(), expected, atol=0, rtol=1e-4)


@torch.no_grad()
def test_images_in_0_1_are_scaled_for_lpips_which_takes_them_in_minus_1_1(alex, files):
    originals, others = pair_of(2, 3, 32, 32)
    mistaken = by_formula("alex", files, originals, others, scaled=False)
    assert ((alex.distance(originals, others) - mistaken).abs() > 0.05 * mistaken).all()


@torch.no_grad()
def test_the_unweighted_distance_is_twice_the_cosine_distance_of_every_stage(unweighted):
    # Zhang et al. 2018, Sec. 3.1: with w = 1 it is a cosine distance.
    originals, others = pair_of(2, 3, 40, 32)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = SqueezeNet().double()
    expected = torch.zeros(2, dtype=torch.float64)
    for first, second in zip(
        network.features(originals.double()), network.features(others.double()), strict=True
    ):
        expected += (2 - 2 * functional.cosine_similarity(first, second, dim=1)).mean((1, 2))
    got = unweighted.distance(originals, others)
    torch.testing.assert_close(got.double(), expected, atol=1e-5, rtol=1e-4)


def test_an_image_is_at_no_distance_from_itself_and_of_others_it_is_the_same_from_either_side(
    lpips, unweighted
):
    originals, others = pair_of(3, 3, 32, 32)
    for measure in (lpips, unweighted):
        assert torch.equal(measure.distance(originals, originals), torch.zeros(3))
        torch.testing.assert_close(measure.distance(originals, others), measure.distance(others, originals))


def noisier(measure, originals):
    """The distances of six copies, each noisier than the last: (6, N)."""
    noise = torch.randn(originals.shape, generator=torch.Generator().manual_seed(0))
    copies = [(originals + sigma * noise).clamp(0, 1) for sigma in (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)]
    return torch.stack([measure.distance(originals, copy) for copy in copies])


def test_photographs_are_the_further_apart_the_noisier_they_are(shared_data, photographs):
    distances = noisier(Perceptual.of_squeezenet(shared_data / SQUEEZENET), photographs)
    assert (distances[1] > 0).all()
    assert (distances.diff(dim=0) > 0).double().mean() > 0.95  # of each photograph, by each step
    assert (distances.mean(1).diff() > 0).all()


def test_drawn_faces_are_the_further_apart_the_noisier_they_are(lpips):
    faces = data.load("faces", identities=3, images_per_identity=2, headwear=3, size=32).images
    assert (noisier(lpips, to_float(faces)).diff(dim=0) > 0).all()


def test_heads_of_the_joined_file_are_those_that_were_published(shared_data, files, network, lpips):
    joined = Perceptual.load(
        network=network, backbone=files / f"{network}.safetensors", heads=shared_data / HEADS
    )
    pair = pair_of(2, 3, 32, 32)
    assert torch.equal(joined.distance(*pair), lpips.distance(*pair))


def test_features_of_both_images_come_with_the_distance_which_alone_is_not_called_lpips(alex, unweighted):
    assert alex.name == "LPIPS v0.1 (alex)"
    assert unweighted.name == "unweighted distance of SqueezeNet 1.0 features"
    originals, others = pair_of(2, 3, 32, 40)
    compared = unweighted.compare(originals, others)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        last = SqueezeNet().features(others)[-1]
    assert compared.originals.shape == (2, 512)
    torch.testing.assert_close(compared.others, last.mean((2, 3)))
    assert torch.equal(compared.distances, unweighted.distance(originals, others))


def enlarged(images, size):
    return functional.interpolate(images, size, mode="bilinear", align_corners=False)


def test_images_that_the_network_cannot_read_are_enlarged_to_64_pixels_and_others_are_not(alex, unweighted):
    pair, small = pair_of(2, 3, 28, 42), pair_of(2, 3, 21, 21)
    expected = alex.distance(*(enlarged(each, (64, 96)) for each in pair))
    torch.testing.assert_close(alex.distance(*pair), expected)
    changed = unweighted.distance(*(enlarged(each, (64, 64)) for each in small))
    assert ((unweighted.distance(*small) - changed).abs() > 1e-3).all()


def test_the_distance_of_a_pair_does_not_depend_on_the_rest_of_the_batch(alex, monkeypatch):
    originals, others = pair_of(5, 3, 32, 32)
    together = alex.distance(originals, others)
    monkeypatch.setattr(perceptual, "_PIXELS", 2 * 32 * 32)
    torch.testing.assert_close(alex.distance(originals, others), together)
    alone = torch.cat([alex.distance(a[None], b[None]) for a, b in zip(originals, others, strict=True)])
    torch.testing.assert_close(alone, together)


def test_the_channel_of_grey_images_is_repeated(alex):
    originals, others = pair_of(2, 1, 32, 32)
    colours = alex.distance(originals.repeat(1, 3, 1, 1), others.repeat(1, 3, 1, 1))
    assert torch.equal(alex.distance(originals, others), colours)


def test_places_without_any_feature_are_alike():
    nothing = Perceptual("nothing", lambda images: [torch.zeros(len(images), 4, 3, 3)], least=1)
    assert nothing.distance(*pair_of(2, 3, 8, 8)).tolist() == [0.0, 0.0]


SCALED = r"floats in \[0, 1\], got .* the scaling to \[-1, 1\] is done"
PAIRS = r"pairs of 1 or 3 channels, got \(2, 3, 32, 32\) and"


@pytest.mark.parametrize(
    ("originals", "others", "message"),
    [
        *(
            (drawn(1, 3, 32, 32), scaled, SCALED)
            for scaled in (2 * drawn(1, 3, 32, 32) - 1, drawn(1, 3, 32, 32) * 255)
        ),
        (drawn(1, 3, 32, 32), torch.full((1, 3, 32, 32), torch.nan), SCALED),
        (drawn(1, 3, 32, 32), drawn(1, 3, 32, 32).byte(), r"got torch\.uint8: use images\.to_float"),
        (drawn(2, 3, 32, 32), drawn(1, 3, 32, 32), PAIRS),
        (drawn(2, 3, 32, 32), drawn(2, 3, 32, 33), PAIRS),
        (drawn(2, 4, 32, 32), drawn(2, 4, 32, 32), "1 or 3 channels"),
    ],
    ids=["-1 to 1", "to 255", "nan", "at rest", "fewer", "wider", "four channels"],
)
def test_what_are_no_pairs_of_images_in_0_1_is_refused(alex, originals, others, message):
    with pytest.raises(ConfigError, match=message):
        alex.distance(originals, others)


def test_an_unknown_network_and_files_that_are_missing_or_another_networks_are_refused(files, tmp_path):
    gone, backbone, heads = tmp_path / "gone.pth", files / "alex.safetensors", PUBLISHED / "alex.pth"
    with pytest.raises(ConfigError, match="no network 'alexnet': did you mean 'alex'"):
        Perceptual.load(network="alexnet", backbone=backbone, heads=heads)
    with pytest.raises(ArtefactError, match=r"gone\.pth: no such file.*alexnet-owt-7be5be79\.pth of"):
        Perceptual.load(network="alex", backbone=gone, heads=heads)
    with pytest.raises(ArtefactError, match=r"gone\.pth: no such file.*richzhang/PerceptualSimilarity \(BSD"):
        Perceptual.load(network="alex", backbone=backbone, heads=gone)
    with pytest.raises(ArtefactError, match=r"gone\.pth: no such file.*SqueezeNet_compressed"):
        Perceptual.of_squeezenet(gone)
    with pytest.raises(ArtefactError, match=r"vgg\.pth: no weights of LPIPSHeads: has other shapes"):
        Perceptual.load(network="alex", backbone=backbone, heads=PUBLISHED / "vgg.pth")


def test_version_1_0_of_squeezenet_is_no_backbone_of_lpips(shared_data):
    with pytest.raises(ArtefactError, match="no weights of SqueezeNet11"):
        Perceptual.load(network="squeeze", backbone=shared_data / SQUEEZENET, heads=PUBLISHED / "squeeze.pth")
