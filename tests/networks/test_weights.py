import pickle
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from sfumato.errors import ArtefactError
from sfumato.networks import MTCNN, MobileFaceNet, SqueezeNet
from sfumato.networks.encoders.backbones import VGG16, AlexNet, SqueezeNet11
from sfumato.networks.weights import initial_weights, load_weights, no_larger_than

SOURCE = "Ask the museum."


def small_network():
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def write(path, tensors):
    """Tensors in the format that the suffix names."""
    if path.suffix == ".safetensors":
        save_file(dict(tensors), path)
    elif path.suffix == ".npz":
        np.savez(path, **{name: tensor.numpy() for name, tensor in tensors.items()})
    else:
        torch.save(tensors, path)
    return path


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".pt", ".pth", ".ckpt"])
def test_weights_of_every_format_are_those_that_were_written(tmp_path, suffix):
    theirs = small_network()
    path = write(tmp_path / f"weights{suffix}", theirs.state_dict())
    ours = load_weights(small_network, path, source=SOURCE)
    for name, tensor in ours.state_dict().items():
        assert torch.equal(tensor, theirs.state_dict()[name])
    assert not ours.training


def test_counters_of_batch_norms_may_be_missing(tmp_path):
    theirs = {k: v for k, v in small_network().state_dict().items() if not k.endswith("num_batches_tracked")}
    ours = load_weights(small_network, write(tmp_path / "weights.npz", theirs), source=SOURCE)
    assert torch.equal(ours[0].weight, theirs["0.weight"])


def test_another_network_is_told_by_the_first_few_names_and_shapes(tmp_path):
    path = write(tmp_path / "weights.npz", {"0.weight": torch.zeros(2, 4), "colour": torch.zeros(1)})
    with pytest.raises(
        ArtefactError,
        match=r"no weights of Sequential: lacks 0\.bias, 1\.weight, 1\.bias and 2 more; has unknown colour; "
        r"has other shapes: 0\.weight \(2, 4\) for \(2, 3\)\. Ask the museum",
    ):
        load_weights(small_network, path, source=SOURCE)


def test_reading_weights_draws_nothing_that_others_would_have_drawn(tmp_path):
    path = write(tmp_path / "weights.npz", small_network().state_dict())
    torch.manual_seed(0)
    expected = torch.rand(5)
    torch.manual_seed(0)
    load_weights(small_network, path, source=SOURCE)
    assert torch.equal(torch.rand(5), expected)


def test_a_seed_decides_initial_weights_though_other_threads_make_networks_meanwhile():
    def drawn(seed):
        with initial_weights(seed):
            return torch.cat([nn.Linear(20, 20).weight.detach().flatten() for _ in range(20)])

    seeds = [0, 1] * 20
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(drawn, seeds))
    apart = {seed: drawn(seed) for seed in (0, 1)}
    assert all(torch.equal(one, apart[seed]) for seed, one in zip(seeds, together, strict=True))


class Trap:
    """What a pickle could do: here, to raise."""

    def __reduce__(self):
        return (pytest.fail, ("code of a weights file ran",))


def test_a_pickle_runs_no_code_and_is_refused_with_the_cure(tmp_path):
    path = tmp_path / "weights.pt"
    torch.save({"0.weight": Trap()}, path)
    with pytest.raises(ArtefactError, match=r"is not a plain state dict.*safetensors\.torch\.save_file"):
        load_weights(small_network, path, source=SOURCE)


def test_the_state_dict_of_a_checkpoint_is_read_whatever_lies_beside_it(tmp_path):
    theirs = small_network().state_dict()
    parallel = {f"module.{name}": tensor for name, tensor in theirs.items()}
    path = tmp_path / "068.ckpt"
    torch.save({"epoch": 68, "model": {"net_state_dict": parallel}}, path)
    ours = load_weights(small_network, path, source=SOURCE).state_dict()
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())
    torch.save({"epoch": 68, "weight": torch.zeros(1)}, path)
    with pytest.raises(ArtefactError, match="is not a plain state dict"):
        load_weights(small_network, path, source=SOURCE)


def test_an_npz_of_pickled_arrays_is_refused(tmp_path):
    path = tmp_path / "weights.npz"
    np.savez(path, weight=np.array([Trap()], dtype=object))
    with pytest.raises(ArtefactError, match="damaged, or not plain numbers"):
        load_weights(small_network, path, source=SOURCE)


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".pt"])
@pytest.mark.parametrize(
    "content",
    [b"", b"nonsense" * 9, pickle.dumps([1, 2], protocol=2), None],
    ids=["empty", "text", "pickle", "cut short"],
)
def test_a_damaged_file_is_an_error_of_ours(tmp_path, suffix, content):
    path = write(tmp_path / f"weights{suffix}", small_network().state_dict())
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    with pytest.raises(ArtefactError, match=rf"weights{re.escape(suffix)}: (damaged|is not a plain)"):
        load_weights(small_network, path, source=SOURCE)


def test_another_format_is_refused_by_its_suffix(tmp_path):
    with pytest.raises(ArtefactError, match=r"weights are read from \.safetensors, \.npz, \.pt, \.pth"):
        load_weights(small_network, tmp_path / "068.h5", source=SOURCE)


# A network that is larger than its weights


def test_a_network_that_is_too_large_is_not_made_and_leaves_torch_as_it_was():
    def makes() -> None:
        with torch.no_grad():
            torch.zeros(1)  # within the bound
            nn.Linear(10_000, 10_000)

    with pytest.raises(ArtefactError, match="a larger network than it has weights for"), no_larger_than({}):
        makes()
    assert torch.is_grad_enabled()
    torch.ones(2, requires_grad=True).sum().backward()


def test_a_network_of_the_size_of_its_weights_is_made():
    network = nn.Linear(30, 20)
    with no_larger_than(network.state_dict()):
        nn.Linear(30, 20)


@pytest.mark.parametrize(
    ("network", "said"),
    {
        SqueezeNet: r"songhan/SqueezeNet_compressed: BSD",
        MobileFaceNet: r"MobileFaceNet_Pytorch.*no licence.*research only",
        MTCNN: r"timesler/facenet-pytorch \(MIT\)",
        AlexNet: r"alexnet-owt.*pth of torchvision",
        VGG16: r"vgg16-397923af.*pth of torchvision",
        SqueezeNet11: r"squeezenet1_1-.*pth of torchvision",
    }.items(),
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_missing_weights_say_where_they_are_published_and_on_what_terms(network, said, tmp_path):
    for suffix in (".safetensors", ".npz", ".pth"):
        with pytest.raises(ArtefactError, match=f"no such file.*{said}"):
            network.load(tmp_path / f"gone{suffix}")
    save_file({"other": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ArtefactError, match=f"no weights of {network.__name__}: lacks"):
        network.load(tmp_path / "other.safetensors")
