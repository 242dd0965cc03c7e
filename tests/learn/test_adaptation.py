import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

from sfumato.errors import ConfigError
from sfumato.learn.adaptation import WAYS, Learner, adapt, contributions, fastest, with_quick_norms
from sfumato.learn.tasks import ALGORITHMS, Inner, Tasks, tasks_of
from sfumato.networks import Convolutional, FullyConnected, Strided

WAY, SHOT, QUERIES = 3, 2, 2


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def made(network, *, seed=0, dtype=torch.float64):
    """A network with drawn weights, in float64 so that formulas can be told from rounding."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return network().to(dtype)


NETWORKS = {
    "fully-connected": lambda: made(lambda: FullyConnected((1, 4, 4), WAY)),
    "convolutional": lambda: made(lambda: Convolutional((1, 16, 16), WAY, width=4)),
}


SIDES = {"fully-connected": 4, "convolutional": 16}


def smooth():
    """Few parameters and no kinks: finite differences need that."""
    return made(lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, WAY)))


def some_tasks(count=3, side=16, *, seed=1, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(count, WAY, SHOT + QUERIES, 1, side, side, generator=generator, dtype=dtype)
    return tasks_of(images, SHOT)


def taken(tasks, rows):
    return Tasks(
        tasks.support[rows], tasks.support_labels[rows], tasks.queries[rows], tasks.query_labels[rows]
    )


def start_of(learner, algorithm, rate=0.3):
    start = learner.initial()
    return torch.cat([start, torch.full_like(start, rate)]) if algorithm == "meta-sgd" else start


def plain(network, tasks, algorithm, *, rate=0.3, steps=2, batches=1):
    """The papers' loops, with lists of tensors and no vector: the oracle."""
    found = []
    names = [name for name, _ in network.named_parameters()]

    def loss(values, images, labels):
        logits = functional_call(network, dict(zip(names, values, strict=True)), (images,))
        return functional.cross_entropy(logits, labels)

    for t in range(len(tasks)):
        theta = [each.detach().clone().requires_grad_() for each in network.parameters()]
        alpha = [torch.full_like(each, rate).requires_grad_() for each in theta]
        support, labels = tasks.support[t], tasks.support_labels[t]
        queries, asked = tasks.queries[t], tasks.query_labels[t]
        if algorithm == "reptile":  # Nichol et al., Algorithm 1: k steps of SGD, then the way back
            support, labels = torch.cat([support, queries]), torch.cat([labels, asked])
        values = theta
        for step in range(steps):
            exact = algorithm in ("maml", "meta-sgd")
            seen = [i for i in range(len(support)) if i % batches == step % batches]
            here = loss(values, support[seen], labels[seen])
            gradients = torch.autograd.grad(here, values, create_graph=exact)
            values = [v - a * g for v, a, g in zip(values, alpha, gradients, strict=True)]
            if algorithm in ("fomaml", "reptile"):
                values = [v.detach().requires_grad_() for v in values]
        if algorithm == "reptile":
            parts = [a - b for a, b in zip(theta, values, strict=True)]
        elif algorithm == "fomaml":  # Finn et al., Sec. 5.2: the gradient at the parameters after learning
            parts = torch.autograd.grad(loss(values, queries, asked), values)
        elif algorithm == "maml":
            parts = torch.autograd.grad(loss(values, queries, asked), theta)
        else:  # Li et al., Algorithm 1: the gradient of both
            parts = torch.autograd.grad(loss(values, queries, asked), [*theta, *alpha])
        found.append(torch.cat([part.detach().flatten() for part in parts]))
    return torch.stack(found)


@pytest.mark.parametrize("batches", [1, 2])  # 2: steps see parts of the images in turn
@pytest.mark.parametrize(
    ("algorithm", "network", "way", "threads"),
    [
        (algorithm, network, way, threads)
        for algorithm in ALGORITHMS
        for network in NETWORKS
        for way in WAYS
        for threads in ((1, 2) if way == "loop" else (1,))
    ],
)
def test_contributions_are_those_of_a_plain_loop_from_the_papers(algorithm, network, way, threads, batches):
    module, steps = NETWORKS[network](), 1 + batches
    learner, tasks = Learner(module), some_tasks(side=SIDES[network])
    inner = Inner(algorithm=algorithm, steps=steps, rate=0.3, batches=batches)
    torch.set_num_threads(threads)
    found = contributions(learner, start_of(learner, algorithm), tasks, inner, way=way)
    torch.set_num_threads(1)
    expected = plain(module, tasks, algorithm, steps=steps, batches=batches)
    assert found.shape == (3, (2 if algorithm == "meta-sgd" else 1) * learner.size)
    assert not found.requires_grad
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9 * expected.abs().max().item())


def test_parts_share_out_the_classes():
    images, labels = torch.arange(6), torch.tensor([0, 0, 1, 1, 2, 2])
    parts = list(Inner(steps=3, batches=2).parts(images, labels))
    assert [part.tolist() for part, _ in parts] == [[0, 2, 4], [1, 3, 5], [0, 2, 4]]
    assert [names.tolist() for _, names in parts] == [[0, 1, 2]] * 3


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_norm_that_clips_nothing_changes_nothing_and_has_no_derivative(algorithm):
    learner, tasks = Learner(smooth()), some_tasks(2, 2)
    start = start_of(learner, algorithm)
    loose, free = (
        contributions(learner, start, tasks, Inner(algorithm=algorithm, steps=2, clipping_norm=norm))
        for norm in (1e6, None)
    )
    torch.testing.assert_close(loose[:, :-1], free, rtol=1e-12, atol=1e-15)
    assert torch.equal(loose[:, -1], torch.zeros(2, dtype=torch.float64))


@pytest.mark.parametrize("clipping_norm", [None, 1.0])
@pytest.mark.parametrize(("algorithm", "way"), [(a, way) for a in ALGORITHMS for way in WAYS])
def test_no_tasks_contribute_no_rows_of_the_usual_width(algorithm, clipping_norm, way):
    learner, tasks = Learner(smooth()), some_tasks(2, 2)
    inner = Inner(algorithm=algorithm, clipping_norm=clipping_norm)
    start = start_of(learner, algorithm)
    one, none = (contributions(learner, start, taken(tasks, slice(n)), inner, way=way).shape for n in (1, 0))
    assert none == (0, one[1])


@pytest.mark.parametrize(
    ("algorithm", "way", "network"),
    [(a, way, network) for a in ALGORITHMS for network in NETWORKS for way in WAYS],
)
def test_what_a_task_contributes_does_not_depend_on_the_others_not_even_if_they_are_nan(
    algorithm, way, network
):
    torch.set_num_threads(2 if way == "loop" else 1)
    learner, tasks = Learner(NETWORKS[network]()), some_tasks(5, SIDES[network])
    inner, start = Inner(algorithm=algorithm, rate=0.3), start_of(Learner(NETWORKS[network]()), algorithm)
    together = contributions(learner, start, tasks, inner, way=way)
    alone = [contributions(learner, start, taken(tasks, [t]), inner, way=way)[0] for t in range(5)]
    # In one call for all, rounding depends on who else is there; the loop is exact.
    slack = {"rtol": 0, "atol": 0} if way == "loop" else {"rtol": 1e-8, "atol": 1e-12}
    torch.testing.assert_close(together, torch.stack(alone), **slack)
    tasks.support[2] = torch.nan
    tasks.queries[2] = torch.nan
    spoilt = contributions(learner, start, tasks, inner, way=way)
    others = [0, 1, 3, 4]
    torch.testing.assert_close(spoilt[others], together[others], **slack)
    assert spoilt[2].isnan().any()


def test_tasks_in_several_threads_compute_each_with_their_own_parameters_and_leave_none_behind():
    """`functional_call` puts parameters into the module: shared by threads, tasks would compute with those
    of others, and the last ones would stay in the network.
    """
    learner = Learner(made(lambda: Convolutional((1, 16, 16), WAY), dtype=torch.float32))
    start, tasks = learner.initial(), some_tasks(12, dtype=torch.float32)
    torch.set_num_threads(1)
    alone = contributions(learner, start, tasks, Inner(), way="loop")
    torch.set_num_threads(4)
    for _ in range(3):
        assert torch.equal(contributions(learner, start, tasks, Inner(), way="loop"), alone)
    assert torch.equal(learner.initial(), start)


def test_the_network_that_was_handed_in_is_left_as_it_was():
    network = NETWORKS["fully-connected"]()
    before = {name: each.clone() for name, each in network.state_dict().items()}
    learner = Learner(network)
    contributions(learner, learner.initial() + 1, some_tasks(2, 4), Inner())
    assert all(torch.equal(each, before[name]) for name, each in network.state_dict().items())
    assert all(each.grad is None for each in network.parameters())


@pytest.mark.parametrize("threads", [1, 3])
def test_torch_has_its_threads_back_also_after_an_error(threads):
    torch.set_num_threads(threads)
    learner = Learner(smooth())
    contributions(learner, learner.initial(), some_tasks(2, 2), Inner(), way="loop")
    assert torch.get_num_threads() == threads
    with pytest.raises(RuntimeError, match="cannot be multiplied"):  # images of another size
        contributions(learner, learner.initial(), some_tasks(2, 3), Inner(), way="loop")
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("clipping_norm", [None, 0.05])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_adapting_is_the_inner_loop(algorithm, clipping_norm):
    learner, tasks = Learner(smooth()), some_tasks(1, 2)
    inner = Inner(algorithm=algorithm, steps=3, rate=0.8, clipping_norm=clipping_norm)
    start = start_of(learner, algorithm, 0.5)
    values = learner.initial()
    for _ in range(3):
        point = values.clone().requires_grad_()
        learner.loss(point, tasks.support[0], tasks.support_labels[0]).backward()
        gradient = point.grad
        if clipping_norm is not None:
            gradient = gradient / max(1.0, gradient.norm().item() / clipping_norm)
        values = values - (0.5 if algorithm == "meta-sgd" else 0.8) * gradient
    found = adapt(learner, start, tasks.support[0], tasks.support_labels[0], inner)
    assert not found.requires_grad
    torch.testing.assert_close(found, values, rtol=1e-12, atol=1e-14)


def test_meta_sgd_learns_with_a_rate_for_every_parameter():
    learner, tasks = Learner(smooth()), some_tasks(1, 2)
    initial = learner.initial()
    rates = torch.zeros_like(initial)
    rates[3] = 0.5
    inner = Inner(algorithm="meta-sgd", rate=9.0)  # of which nothing is left once the rates are learned
    found = adapt(learner, torch.cat([initial, rates]), tasks.support[0], tasks.support_labels[0], inner)
    assert (found != initial).nonzero().flatten().tolist() == [3]


@pytest.mark.parametrize(
    "network", [FullyConnected, partial(Strided, width=16), partial(Convolutional, width=4)]
)
def test_mixed_precision_contributes_what_float32_does_but_for_its_rounding(network):
    made_of = made(lambda: network((1, 16, 16), WAY), dtype=torch.float32)
    exact, mixed = Learner(made_of), Learner(made_of, precision="bfloat16")
    tasks, inner = some_tasks(dtype=torch.float32), Inner(algorithm="reptile", rate=0.1)
    assert fastest(mixed, torch.device("cpu")) == "loop"
    wanted, found = (contributions(each, exact.initial(), tasks, inner) for each in (exact, mixed))
    assert found.dtype == torch.float32
    assert functional.cosine_similarity(wanted, found).min() > 0.97
    assert not torch.equal(wanted, found)
    with pytest.raises(ConfigError, match="way='vectorised' is not for mixed precision: take 'loop'"):
        contributions(mixed, exact.initial(), tasks, inner, way="vectorised")


def test_a_network_that_remembers_batches_is_refused():
    with pytest.raises(ConfigError, match=r"keeps 1\.running_mean .* track_running_stats=False"):
        Learner(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))


def test_labels_and_parts_of_a_task_belong_together():
    images = torch.arange(2 * 3 * 4).view(2, 3, 4, 1, 1, 1).float()
    tasks = tasks_of(images, 1)
    assert len(tasks) == 2
    assert tasks.support[0].flatten().tolist() == [0, 4, 8]
    assert tasks.support_labels.tolist() == [[0, 1, 2]] * 2
    assert tasks.queries[1].flatten().tolist() == [13, 14, 15, 17, 18, 19, 21, 22, 23]
    assert tasks.query_labels.tolist() == [[0, 0, 0, 1, 1, 1, 2, 2, 2]] * 2


def test_wide_convolutions_are_looped_over_on_a_processor_and_connected_layers_are_not():
    connected, processor = Learner(smooth()), torch.device("cpu")
    assert fastest(Learner(Strided((1, 28, 28), 5)), processor) == "loop"
    assert fastest(Learner(Strided((1, 28, 28), 5, width=16)), processor) == "vectorised"
    assert fastest(Learner(Strided((1, 28, 28), 5)), torch.device("cuda")) == "vectorised"
    assert fastest(connected, processor) == "vectorised"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"algorithm": "mamml"}, "no algorithm is called 'mamml': did you mean 'maml'"),
        ({"steps": 0}, "steps=0: at least 1"),
        ({"batches": 0}, "batches=0: at least 1"),
        ({"rate": 0.0}, "rate=0: above 0"),
        ({"rate": float("nan")}, "rate=nan: above 0 and finite"),
        ({"clipping_norm": 0.0}, "clipping_norm=0: above 0"),
        ({"noise_multiplier": 0.1}, "noise_multiplier=0.1 without a clipping_norm"),
    ],
)
def test_impossible_settings_are_refused(setting, message):
    with pytest.raises(ConfigError, match=message):
        Inner(**setting)


# Quick batch norms against PyTorch's own


def both(channels: int) -> tuple[nn.Module, nn.Module]:
    """PyTorch's own, with a scale of both signs, and ours."""
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(channels, track_running_stats=False).double()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm, with_quick_norms(copy.deepcopy(norm))


def test_gradients_and_their_gradients_are_those_of_finite_differences():
    norm = both(3)[1]
    rows = torch.randn(3, 3, 2, 2, dtype=torch.double, requires_grad=True)

    def function(rows, weight, bias):
        return torch.func.functional_call(norm, {"weight": weight, "bias": bias}, (rows,))

    given = rows, norm.weight, norm.bias
    assert torch.autograd.gradcheck(function, given)
    assert torch.autograd.gradgradcheck(function, given)


def test_norms_with_running_statistics_are_left_as_they_are():
    norm = with_quick_norms(nn.BatchNorm2d(2))
    assert "forward" not in vars(norm)


def test_one_number_a_channel_is_refused_in_the_words_of_pytorch():
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        both(2)[1](torch.zeros(1, 2, 1, 1, dtype=torch.double))
