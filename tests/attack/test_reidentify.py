import numpy as np
import pytest
import torch
from sklearn.svm import SVC, LinearSVC
from torch import nn
from torch.nn import functional

from sfumato.assess.recognition import identification
from sfumato.attack import plda
from sfumato.attack.reidentify import AdversaryConfig, by_values, reidentify, split_gallery, train_recogniser
from sfumato.errors import DataError

CODES = torch.arange(30).repeat_interleave(12)


def clusters(spread, *, codes=CODES, dimensions=16, seed=0):
    """Embeddings of 30 people around 30 directions, split into gallery and probes, and who the probes are."""
    generator = torch.Generator().manual_seed(seed)
    _, places = codes.unique(return_inverse=True)
    centres = torch.randn(int(places.max()) + 1, dimensions, generator=generator)
    noise = torch.randn(len(codes), dimensions, generator=generator)
    vectors = functional.normalize(centres[places] + spread * noise)
    gallery, probes = split_gallery(codes, gallery=8, probes=4, seed=0)
    return vectors[gallery], codes[gallery], vectors[probes], codes[probes]


def named(gallery, identities, probes):
    """Whom each classifier names first."""
    found = reidentify(gallery, identities, probes)
    return {each.classifier: each.identities[each.similarities.argmax(1)] for each in found}


@pytest.mark.parametrize("codes", [CODES, torch.tensor([3, 9]).repeat_interleave(12)])
def test_people_far_apart_are_all_found_by_every_classifier_among_all_identities(codes):
    *seen, truth = clusters(0.05, codes=codes)
    found = reidentify(*seen)
    assert [each.classifier for each in found] == ["svm", "1-nn", "mean"]
    for each in found:
        assert each.identities.tolist() == codes.unique().tolist()
        assert each.similarities.shape == (len(truth), len(each.identities))
        assert identification(each.similarities, each.identities, truth).top1 == 1
    assert len(codes) > 24 or torch.equal(found[0].similarities[:, 0], -found[0].similarities[:, 1])


def test_embeddings_without_identity_stay_at_chance():
    *seen, truth = clusters(1e4)
    # 120 guesses that are right 4 in all on average: more than 14 has a probability below 1e-4.
    assert all((each == truth).sum() <= 14 for each in named(*seen).values())


def test_nearest_neighbour_and_nearest_mean_agree_with_plain_loops():
    gallery, names, probes, _ = clusters(0.9)
    _, nearest, mean = reidentify(gallery, names, probes)
    own = [gallery[names == who] for who in range(30)]
    expected = [[max(float(probe @ known) for known in rows) for rows in own] for probe in probes[:20]]
    torch.testing.assert_close(nearest.similarities[:20], torch.tensor(expected))
    means = [rows.mean(0) for rows in own]
    expected = [[float(probe @ each / each.norm()) for each in means] for probe in probes[:20]]
    torch.testing.assert_close(mean.similarities[:20], torch.tensor(expected))


@pytest.mark.parametrize("dimensions", [16, 300])  # fewer than the 240 photographs, and more: two solvers
def test_the_machine_agrees_with_the_library_used_directly(dimensions):
    gallery, names, probes, _ = clusters(0.9, dimensions=dimensions)
    machine, *_ = reidentify(gallery, names, probes)
    theirs = LinearSVC(C=1, random_state=0).fit(gallery.double().numpy(), names.numpy())
    expected = torch.from_numpy(theirs.decision_function(probes.double().numpy())).float()
    torch.testing.assert_close(machine.similarities, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dimensions", [16, 600])
def test_a_row_that_counts_twice_is_one_that_stands_there_twice(dimensions):
    gallery, names, probes, _ = clusters(0.5, dimensions=dimensions)
    once = reidentify(gallery, names, probes)
    weighted = reidentify(gallery, names, probes, weight=2)
    twice = reidentify(gallery.repeat(2, 1), names.repeat(2), probes)
    for one, other in zip(weighted, twice, strict=True):
        torch.testing.assert_close(one.similarities, other.similarities, atol=1e-3, rtol=0)
    assert not torch.allclose(weighted[0].similarities, once[0].similarities, atol=1e-2)


def test_guesses_repeat_exactly_and_move_no_global_state():
    # With more dimensions than photographs the solver of the machine draws random numbers.
    seen, before = clusters(0.9, dimensions=300)[:3], str(np.random.get_state())  # noqa: NPY002
    for first, second in zip(reidentify(*seen), reidentify(*seen), strict=True):
        assert torch.equal(first.similarities, second.similarities)
    assert str(np.random.get_state()) == before  # noqa: NPY002


def test_codes_may_have_gaps_and_come_in_any_order():
    gallery, names, probes, _ = clusters(0.9)
    other = torch.randperm(1000, generator=torch.Generator().manual_seed(1))[:30]  # a code for each
    order = torch.randperm(len(gallery), generator=torch.Generator().manual_seed(2))
    plain = reidentify(gallery, names, probes)
    renamed = reidentify(gallery[order], other[names][order], probes)
    for one, two in zip(plain, renamed, strict=True):
        assert two.identities.tolist() == sorted(other.tolist())
        columns = torch.searchsorted(two.identities, other)
        # The order of rows decides where the machine's solver stops.
        torch.testing.assert_close(two.similarities[:, columns], one.similarities, atol=2e-3, rtol=1e-3)


def portraits_as_values(people, each, *, first=0, releases=2, noise=0.1, numbers=20):
    """(R, N, D) noisy values of photographs of people, who differ in a few directions, and who they are."""
    draw = torch.Generator().manual_seed(first)
    shared = torch.Generator().manual_seed(99)
    directions = torch.randn(4, numbers, generator=shared) / numbers**0.5
    nuisances = 3 * torch.randn(8, numbers, generator=shared) / numbers**0.5
    codes = torch.arange(first, first + people).repeat_interleave(each)
    points = torch.randn(people, 4, generator=draw) @ directions
    clear = points[codes - first] + torch.randn(len(codes), 8, generator=draw) @ nuisances
    return clear + noise * torch.randn(releases, len(codes), numbers, generator=draw), codes


@pytest.mark.parametrize("numbers", [20, 200])  # few, and more than the 80 that a discriminant is given
def test_who_learned_from_other_people_names_more_than_who_has_a_gallery_alone(numbers):
    values, codes = portraits_as_values(30, 8, first=100, numbers=numbers)
    seen = values[:, ::2], codes[::2], values[0, 1::2]
    others = portraits_as_values(60, 8, numbers=numbers)
    alone, found = by_values(*seen), by_values(*seen, plda.train(*others))
    assert [each.classifier for each in alone] == ["svm", "1-nn", "mean", "discriminant", "rbf"]
    assert [each.classifier for each in found[5:]] == ["plda", "plda-rbf"]
    top1 = [identification(each.similarities, each.identities, codes[1::2].clone()).top1 for each in found]
    assert min(top1[5:]) > max(top1[:5]) > 4 / 30  # chance is 1 / 30


@pytest.mark.parametrize("people", [2, 30])
def test_the_machine_with_a_gaussian_kernel_agrees_with_the_library_used_directly(people):
    values, codes = portraits_as_values(people, 12)
    gallery, probes = values[:, ::2], values[0, 1::2]
    (ours,) = [guesses for guesses in by_values(gallery, codes[::2], probes) if guesses.classifier == "rbf"]
    known, names = gallery.flatten(0, 1).double().numpy(), codes[::2].repeat(2).numpy()
    first, second = np.triu_indices(len(known), 1)
    width = np.median(((known[first] - known[second]) ** 2).sum(1))
    theirs = SVC(C=10, gamma=1 / width).fit(known, names).predict(probes.double().numpy())
    share = identification(ours.similarities, ours.identities, codes[1::2].clone()).top1
    assert share == pytest.approx((theirs == codes[1::2].numpy()).mean(), abs=0.005)
    assert share > 2 / people or people == 2


def test_values_that_are_all_equal_name_nobody():
    gallery, codes = torch.ones(1, 24, 100), torch.arange(6).repeat_interleave(4)
    for guesses in by_values(gallery, codes, torch.ones(12, 100)):
        assert guesses.similarities.isfinite().all()
        assert len(guesses.similarities.unique(dim=0)) == 1


def test_double_precision_gives_the_same_guesses():
    gallery, names, probes, _ = clusters(0.9)
    single, double = named(gallery, names, probes), named(gallery.double(), names, probes.double())
    assert all(torch.equal(single[each], double[each]) for each in single)


@pytest.mark.parametrize(
    ("codes", "gallery", "probes", "sizes"),
    [
        (CODES, 8, 4, ([8] * 30, [4] * 30)),
        # With few photographs each side gets its share, and a single one is left out.
        (torch.tensor([0] * 6 + [1] * 2 + [2]), 20, 10, ([4, 1, 0], [2, 1, 0])),
    ],
)
def test_gallery_and_probes_are_disjoint_and_of_the_sizes_asked_for(codes, gallery, probes, sizes):
    known, asked = split_gallery(codes, gallery=gallery, probes=probes, seed=1)
    assert not set(known.tolist()) & set(asked.tolist())
    assert tuple(codes[rows].bincount(minlength=len(sizes[0])).tolist() for rows in (known, asked)) == sizes


def portraits(people, each, *, noise=60):
    """Flat-patterned 16x16 faces of people: sixteen squares of fixed brightness each, with noise."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randint(60, 196, (people, 1, 4, 4), generator=generator)
    codes = torch.arange(people).repeat_interleave(each)
    squares = patterns[codes].repeat_interleave(4, 2).repeat_interleave(4, 3)
    noisy = squares + noise * torch.randn(squares.shape, generator=generator)
    return noisy.clamp(0, 255).to(torch.uint8), codes


def test_training_on_some_people_helps_to_tell_others_apart():
    images, codes = portraits(60, 12, noise=120)
    train, test = codes < 40, codes >= 40
    gallery, probes = split_gallery(codes[test], gallery=8, probes=4, seed=0)

    def nearest(config):
        vectors = train_recogniser(lambda _: images[train], codes[train], config).embed(images[test])
        names = named(vectors[gallery], codes[test][gallery], vectors[probes])["1-nn"]
        return (names == codes[test][probes]).double().mean()

    untrained = AdversaryConfig(steps=1, learning_rate=1e-9)
    assert nearest(AdversaryConfig(steps=120, batch=64)) > nearest(untrained) + 0.1


def test_each_pass_over_the_data_is_seen_anew():
    images, codes = portraits(4, 8)
    passes, pixels = [], nn.Sequential(nn.Flatten(), nn.Linear(256, 8))  # an encoder of the user's own

    def seen(number):
        passes.append(number)
        return images

    train_recogniser(seen, codes, AdversaryConfig(steps=4, batch=16), encoder=pixels)
    assert passes == [0, 1]  # 32 images, 16 a step


def test_a_seed_repeats_and_moves_no_global_state():
    images, codes = portraits(4, 8)
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    one, two = (
        train_recogniser(lambda _: images, codes, AdversaryConfig(steps=2), seed=5).embed(images)
        for _ in range(2)
    )
    assert torch.equal(one, two)
    assert torch.equal(before, torch.random.get_rng_state())


def test_one_identity_is_nothing_to_tell_apart():
    with pytest.raises(DataError, match="two identities with two photographs each"):
        split_gallery(torch.tensor([0, 0, 0, 1]), gallery=2, probes=1, seed=0)
    with pytest.raises(DataError, match="two identities or more"):
        train_recogniser(lambda _: torch.zeros(2, 1, 16, 16), torch.zeros(2), AdversaryConfig())
