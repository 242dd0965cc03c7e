"""Re-identification: classifiers of embeddings and of released values, faces, recognisers, and posteriors."""

import math

import numpy as np
import pictures
import pytest
import torch
from sklearn.svm import SVC, LinearSVC
from torch import Tensor, nn
from torch.nn import functional

from sfumato.assess.log_rank import guessing, judge, log_ranks
from sfumato.assess.recognition import identification
from sfumato.attack import plda
from sfumato.attack.reidentify import (
    FEATURE_ADVERSARIES,
    AdversaryConfig,
    FaceFinder,
    by_values,
    log_posteriors,
    reidentify,
    split_gallery,
    train_recogniser,
)
from sfumato.errors import ConfigError, DataError
from sfumato.networks import MTCNN
from sfumato.networks.faces.finding import Faces

CODES = torch.arange(30).repeat_interleave(12)


def clusters(spread, *, codes=CODES, dimensions=16, seed=0):
    """Embeddings of 30 people around 30 directions, split into gallery and probes, and who the probes are."""
    generator = torch.Generator().manual_seed(seed)
    _, places = codes.unique(return_inverse=True)
    centres = torch.randn(int(places.max()) + 1, dimensions, generator=generator)
    noise = torch.randn(len(codes), dimensions, generator=generator)
    vectors = functional.normalize(centres[places] + spread * noise)
    gallery, probes = split_gallery(codes, known=8, probes=4, seed=0)
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


@pytest.mark.parametrize(
    ("codes", "gallery", "probes", "sizes"),
    [
        (CODES, 8, 4, ([8] * 30, [4] * 30)),
        # With few photographs each side gets its share, and a single one is left out.
        (torch.tensor([0] * 6 + [1] * 2 + [2]), 20, 10, ([4, 1, 0], [2, 1, 0])),
    ],
)
def test_gallery_and_probes_are_disjoint_and_of_the_sizes_asked_for(codes, gallery, probes, sizes):
    known, asked = split_gallery(codes, known=gallery, probes=probes, seed=1)
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
    gallery, probes = split_gallery(codes[test], known=8, probes=4, seed=0)

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
        split_gallery(torch.tensor([0, 0, 0, 1]), known=2, probes=1, seed=0)
    with pytest.raises(DataError, match="two identities or more"):
        train_recogniser(lambda _: torch.zeros(2, 1, 16, 16), torch.zeros(2), AdversaryConfig())


# Faces


def faces(*boxes):
    """Faces of 10x10 whose boxes have these corners; all five landmarks of one lie at its middle."""
    corners = torch.tensor(boxes, dtype=torch.float32).reshape(-1, 2)
    landmarks = (corners + 5)[:, None].expand(-1, 5, 2)
    return Faces(torch.cat([corners, corners + 10], 1), torch.full((len(corners),), 0.9), landmarks)


class Listed:
    """A detector that knows photographs by their brightness."""

    def __init__(self, **found):
        self._found = {int(level.removeprefix("at_")): each for level, each in found.items()}

    def detect(self, photographs):
        return [self._found[int(photograph[0, 0, 0])] for photograph in photographs]


def photographs(*levels):
    return torch.tensor(levels, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 24, 20)


def test_the_face_in_the_middle_is_taken_and_no_other():
    # The middle of 24x20 is (10, 12): in the second face only, then near to that of the first.
    detector = Listed(at_1=faces((0, 0), (5, 7)), at_2=faces((4, 6), (9, 11)), at_3=faces((0, 0)))
    found = FaceFinder(detector, photographs(1)).find(photographs(1, 2, 3))
    assert found.landmarks[0].tolist() == [[10, 12]] * 5
    assert found.landmarks[1].tolist() == [[9, 11]] * 5
    assert found.seen.tolist() == [True, True, False]


def test_where_no_face_is_seen_it_is_where_most_of_the_adversarys_own_are():
    detector = Listed(
        at_0=faces(), at_1=faces((1, 3)), at_2=faces((6, 4)), at_3=faces((7, 9)), at_4=faces((0, 0))
    )
    finder = FaceFinder(detector, photographs(1, 0, 2, 3, 4))  # of 0 and 4 the middle has no face
    finder.find(photographs(1, 1, 1, 1))  # teaches it nothing
    found = finder.find(photographs(0, 3, 4))
    # The medians of 1, 6, 7 and of 3, 4, 9, but in the second.
    assert found.landmarks.tolist() == [[place] * 5 for place in ([11, 9], [12, 14], [11, 9])]
    assert found.seen.tolist() == [False, True, False]
    assert found.rate == pytest.approx(1 / 3)


@pytest.mark.parametrize("levels", [(0, 0), (4,)])
def test_photographs_without_a_face_in_the_middle_are_refused_with_the_cure(levels):
    detector = Listed(at_0=faces(), at_4=faces((0, 0)))
    message = rf"no face was found on any of {len(levels)} clean photographs: .* use recogniser: conv4"
    with pytest.raises(DataError, match=message):
        FaceFinder(detector, photographs(*levels))


@pytest.fixture(scope="module")
def of_lfw(shared_data):
    """Eight faces of LFW at 84x84, and the landmarks that were found on the full photographs."""
    landmarks = torch.from_numpy(np.load(shared_data / "lfw_faces_84.npz")["landmarks"])[::1100]
    rows = range(0, 1100 * len(landmarks), 1100)
    return pictures.photographs(shared_data, "lfw_faces_84", rows), landmarks


def test_faces_of_real_photographs_are_found_and_a_black_one_has_the_usual_place(shared_data, of_lfw):
    images, landmarks = of_lfw
    finder = FaceFinder(MTCNN.load(shared_data / "weights/mtcnn.safetensors"), images[:5])
    found = finder.find(torch.cat([images, torch.zeros_like(images[:2])]))
    assert found.seen.tolist() == [True] * len(images) + [False] * 2
    assert found.rate == pytest.approx(len(images) / (len(images) + 2))
    assert (found.landmarks[:-2] - landmarks).norm(dim=2).mean() < 1.0  # pixels
    usual = found.landmarks[:5].median(0).values
    assert torch.equal(found.landmarks[-2:], usual.expand(2, 5, 2))
    # All are framed alike: the usual place is within a few pixels of anybody's.
    assert (usual - landmarks).norm(dim=2).max() < 10


# Features


def people(count: int, *, spread: float, seed: int, of: int = 5) -> tuple[Tensor, Tensor]:
    """Features around the corners of a simplex, with a deviation of `spread` in every direction."""
    generator = torch.Generator().manual_seed(seed)
    identities = torch.arange(count) % of
    return 3 * torch.eye(of)[identities] + spread * torch.randn(count, of, generator=generator), identities


def test_the_discriminant_has_the_posteriors_of_gaussians_of_one_covariance():
    features, identities = people(20_000, spread=1.5, seed=0)
    test, _ = people(200, spread=1.5, seed=1)
    found = log_posteriors(features, identities, test, adversary="discriminant")
    true = (-(test[:, None] - 3 * torch.eye(5)).square().sum(2) / (2 * 1.5**2)).double().log_softmax(1)
    assert (found.exp() - true.exp()).abs().mean() < 0.005  # shrunk a little, too


@pytest.mark.parametrize("adversary", FEATURE_ADVERSARIES)
def test_people_who_are_far_apart_are_always_known(adversary: str):
    features, identities = people(100, spread=0.1, seed=0)
    test, truth = people(50, spread=0.1, seed=1)
    found = log_posteriors(features, identities, test, adversary=adversary)
    assert found.argmax(1).tolist() == truth.tolist()
    assert torch.allclose(found.exp().sum(1), torch.ones(50, dtype=torch.float64))
    assert judge(found, truth).lrp < 0.01


@pytest.mark.parametrize("adversary", FEATURE_ADVERSARIES)
def test_features_of_nobody_are_guessed_blindly(adversary: str):
    generator = torch.Generator().manual_seed(0)
    features, test = torch.randn(400, 3, generator=generator), torch.randn(2000, 3, generator=generator)
    found = log_posteriors(features, torch.arange(400) % 10, test, adversary=adversary)
    result = judge(found, torch.arange(2000) % 10)
    assert result.low < guessing(10) < result.high


def test_a_network_knows_people_that_no_line_divides():
    """Two people in the corners of a square, each in two that are opposite."""
    generator = torch.Generator().manual_seed(0)
    corners = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    rows = torch.arange(400) % 4
    features = corners[rows] + 0.2 * torch.randn(400, 2, generator=generator)
    known, line = (
        log_posteriors(features[:200], (rows // 2)[:200], features[200:], adversary=each)
        for each in ("network", "discriminant")
    )
    truth = (rows // 2)[200:]
    assert (known.argmax(1) == truth).float().mean() > 0.98
    assert (line.argmax(1) == truth).float().mean() < 0.7


def test_columns_are_in_the_order_of_the_codes_and_no_chance_is_zero():
    features, identities = people(100, spread=0.01, seed=0)
    found = log_posteriors(features, 90 - 7 * identities, features, adversary="network")
    assert (4 - found.argmax(1)).tolist() == identities.tolist()
    assert found.isfinite().all()
    assert log_ranks(found, 4 - identities).means.max() <= 5


def test_the_same_seed_gives_the_same_network():
    features, identities = people(100, spread=1.0, seed=0)
    one, again, other = (log_posteriors(features, identities, features, seed=each) for each in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"adversary": "netwrk"}, ConfigError, "did you mean 'network'"),
        ({"test_features": torch.zeros(3, 4)}, DataError, r"\(10, 2\) and test features of \(3, 4\)"),
        ({"identities": torch.zeros(9).long()}, DataError, "10 known features for 9 identities"),
        ({"identities": torch.zeros(10).long()}, DataError, "10 known features of 1 people"),
        ({"identities": torch.arange(10)}, DataError, "10 known features of 10 people"),
        ({"test_features": torch.zeros(0, 2)}, DataError, "no test features"),
        ({"features": torch.full((10, 2), math.nan)}, DataError, "not finite"),
    ],
)
def test_what_nobody_can_learn_from_is_refused(change, error, message: str):
    given = {
        "features": torch.randn(10, 2),
        "identities": torch.arange(10) % 2,
        "test_features": torch.zeros(3, 2),
    }
    with pytest.raises(error, match=message):
        log_posteriors(**given | change)
