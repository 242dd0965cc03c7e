"""Re-identification: name the person on a protected photograph, from a gallery of known people.

Source: Parnami et al. 2022, Sec. V, whose adversary has clean photographs only (static). One who protects
their own photographs in the same way (adaptive) is stronger (McPherson, Shokri & Shmatikov 2016), and is the
one to fear. Both are the same code on different images: the caller passes released images.
"""

import copy
import math
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.attack.plda import PLDA, principal_components
from sfumato.attack.saturation import Training, Validation, check_bounds, hold_out, train
from sfumato.base.hardware import autocast, device_of, resolve, to_device
from sfumato.data.labelled import draw_rows
from sfumato.dp.naming import MOST_OUTPUTS
from sfumato.errors import ConfigError, DataError, did_you_mean, needs_extra
from sfumato.images import to_float
from sfumato.networks import MTCNN, Conv4, DlibResNet, MobileFaceNet, align
from sfumato.networks.weights import initial_weights

# Public face recognisers, and the (height, width) of their input, which are aligned faces.
FACE_NETWORKS = {"mobile-face-net": (MobileFaceNet, (112, 96))}
RECOGNISERS = ("conv4", *FACE_NETWORKS)

FEATURE_ADVERSARIES = ("discriminant", "network")

_EMBED_BATCH = 256
_FRAMING = 300  # photographs that show the usual place of faces
_COSINE_SCALE = 16.0  # large enough that a wrong identity can get a probability near 0
_LIKE_CLEAR = 8.0  # weight of the cosine to the embedding of the clear photograph, for a student
_VALIDATED = 256  # photographs of held-out people that decide when to stop
_FEW_NUMBERS = 80  # dimensions for linear classifiers and discriminants fitted on a gallery alone
_COST = 10.0  # C of the support vector machine with a Gaussian kernel
_COMPARED = 1000  # values whose distances set the width of the kernel
_EPOCHS = 60  # of a network on features
_AT_ONCE = 512  # probes whose margins for all pairs of people are in memory


@dataclass(frozen=True, kw_only=True)
class AdversaryConfig:
    """The strength of the adversary.

    Attributes:
        recogniser: "conv4", which they train on whole images; or a public face network, "mobile-face-net",
            which gets aligned faces.
        start: the first weights of a Conv-4: "drawn", shipped with the library, or "random".
        weights, detector: the files of the weights of a face network, and of MTCNN, which finds the faces.
        second: "dlib" compares faces by a second public network as well, taught by other photographs, and by
            both together; it stays as published. It needs the extra `dlib`, and 0.1 s a face.
        steps: of training the recogniser on clean photographs of other people, at most; it ends when the
            validation stops improving. 0 leaves a face network as published.
        adaptive_steps: of further training on protected photographs, at most; the recogniser without it is
            used as well, with classifiers adapted by a protected gallery. 0 for that one alone.
        batch: images a step.
        learning_rate: of Adam, falling to 0 at the end.
        others: other people to learn from, at most; None for all of the data.
        known: photographs of each identity that the adversary has, at most; the paper has 20.
        probes: released photographs of each identity to name; the paper has 10.
        copies: protected copies of each gallery photograph for an adaptive adversary, each with fresh noise.
        mirrored: whether they try mirror images of photographs; not of characters, which become others.
    """

    recogniser: str = "conv4"
    start: str = field(default="drawn", metadata={"before": "random"})
    weights: str | None = None
    detector: str | None = None
    second: str | None = None
    steps: int = 1000
    adaptive_steps: int = 500
    batch: int = 128
    learning_rate: float = 2e-3
    others: int | None = None
    known: int = 20
    probes: int = 10
    copies: int = 4
    mirrored: bool = True

    def __post_init__(self) -> None:
        choices = {"recogniser": RECOGNISERS, "start": ("drawn", "random"), "second": ("dlib",)}
        for name, known in choices.items():
            given = getattr(self, name)
            if given not in known and (name, given) != ("second", None):
                raise ConfigError(f"no {name} is called {given!r}: {did_you_mean(given, known)}")
        faces = self.recogniser in FACE_NETWORKS
        for name in ("weights", "detector"):
            if faces != (getattr(self, name) is not None):
                cure = "name the file" if faces else "only a face network has one"
                raise ConfigError(f"recogniser={self.recogniser}: {name}={getattr(self, name)}: {cure}")
        if self.second is not None and not faces:
            raise ConfigError(
                f"recogniser={self.recogniser}: second={self.second}: it gets faces that a detector found: "
                f"add it to one of {', '.join(FACE_NETWORKS)}"
            )
        least = {"adaptive_steps": 0, "batch": 1, "known": 1, "probes": 1, "copies": 1}
        least |= {} if self.others is None else {"others": 2}
        check_bounds(self, "learning_rate", steps=0 if faces else 1, **least)


@dataclass(frozen=True, kw_only=True)
class StudentConfig:
    """The training of a network that sees a face through a protection; see Recognisers.teach.

    Attributes:
        minutes: the budget. What a budget ended depends on the machine, and is a lower bound.
        steps, batch, learning_rate: see AdversaryConfig.
    """

    minutes: float = 5.0
    steps: int = 6000
    batch: int = 128
    learning_rate: float = 5e-4

    def __post_init__(self) -> None:
        check_bounds(self, "minutes", "learning_rate", steps=1, batch=1)


class Recogniser(nn.Module):
    """An encoder whose embeddings of one identity point the same way. State: its weights."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.trained: Training | None = None  # the course of its training, if there was one
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        """(N, C, H, W) float -> (N, D) float32 of unit length."""
        with autocast(resolve("auto", images.device), images.device):
            embeddings = self.encoder(images.contiguous(memory_format=torch.channels_last))
        return functional.normalize(embeddings.float(), dim=1)

    @torch.no_grad()
    def embed(self, images: Tensor, *, mirrored: bool = False) -> Tensor:
        """(N, C, H, W) uint8 -> (N, D) float32 of unit length; `mirrored`: of sums with mirror images."""
        self.eval()
        device = device_of(self)
        parts = [self(to_float(to_device(part, device))) for part in images.split(_EMBED_BATCH)]
        embedded = torch.cat(parts).to(images.device)
        return functional.normalize(embedded + self.embed(images.flip(3))) if mirrored else embedded


def split_gallery(codes: Tensor, *, known: int, probes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Split photographs into rows of the adversary's gallery and of probes, (n,) and (m,) int64, by a seed.

    The numbers are for each identity; with fewer photographs each side gets its share; one is left out.
    """
    generator = torch.Generator().manual_seed(seed)
    first, asked = [], []
    for code in codes.unique().tolist():
        rows = (codes == code).nonzero().flatten()
        if len(rows) < 2:
            continue
        rows = rows[torch.randperm(len(rows), generator=generator)]
        held = min(known, max(1, len(rows) * known // (known + probes)))
        first.append(rows[:held])
        asked.append(rows[held : held + probes])
    if len(first) < 2:
        raise DataError("re-identification needs two identities with two photographs each: add photographs")
    return torch.cat(first), torch.cat(asked)


def train_recogniser(
    seen: Callable[[int], Tensor],
    identities: Tensor,
    config: AdversaryConfig | StudentConfig,
    *,
    encoder: nn.Module | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    device: torch.device | None = None,
    clear: Tensor | None = None,
) -> Recogniser:
    """Train an encoder to distinguish people, on people who are not in the gallery.

    Softmax over cosine similarities to one learned direction an identity (Wang et al. 2018, without the
    margin), on images shifted by a few pixels, until the verification of held-out people stops improving.
    With `clear`, (N, D) of unit length, it learns to give these embeddings as well.

    `seen` maps a pass to (N, C, H, W) uint8, the training images as the adversary sees them on it: clean, or
    protected with fresh noise each time. `identities`: (N,) int64. `encoder`: any module from float images to
    (N, D), trained in place; None creates a Conv-4. It stays on `device`; the CPU makes all draws.
    """
    held = hold_out(identities, most=_VALIDATED, seed=seed)
    codes, labels = identities[~held].unique(return_inverse=True)
    if len(codes) < 2:
        raise DataError("a recogniser needs two identities or more: name more data, or another label")
    generator = torch.Generator().manual_seed(seed)
    images, passes = seen(0), 1
    images, asked = images[~held], images[held]
    with initial_weights(seed):
        recogniser = Recogniser(Conv4(images.shape[1]) if encoder is None else encoder)
        dimension = recogniser.embed(images[:1]).shape[1]
        directions = nn.Parameter((torch.randn(len(codes), dimension) / math.sqrt(dimension)).to(device))
    recogniser.to(device)
    like = None if clear is None else to_device(clear[~held], directions.device)
    order = torch.empty(0, dtype=torch.int64)

    def loss(step: int) -> Tensor:
        nonlocal images, passes, order
        if len(order) < min(config.batch, len(images)):
            if step > 0:
                images, passes = seen(passes)[~held], passes + 1
            order = torch.randperm(len(images), generator=generator)
        rows, order = order[: config.batch], order[config.batch :]
        shown = to_float(to_device(images[rows], directions.device))
        embedded = recogniser(_shift(shown, generator))
        cosines = embedded @ functional.normalize(directions).T
        wanted = to_device(labels[rows], directions.device)
        naming = functional.cross_entropy(_COSINE_SCALE * cosines, wanted, label_smoothing=0.1)
        if like is None:
            return naming
        alike: Tensor = (embedded * like[to_device(rows, like.device)]).sum(1).mean()
        return naming - _LIKE_CLEAR * alike

    recogniser.trained = train(
        loss,
        recogniser,
        beside=(directions,),
        ceiling=config.steps,
        learning_rate=config.learning_rate,
        validation=_verification(recogniser, asked, identities[held]),
        progress=progress,
        minutes=config.minutes if isinstance(config, StudentConfig) else math.inf,
    )
    return recogniser


def _verification(recogniser: Recogniser, images: Tensor, identities: Tensor) -> Validation | None:
    """Validate by the separation of pairs of one person from pairs of two; None without either."""
    first, second = torch.triu_indices(len(images), len(images), 1)
    same = identities[first] == identities[second]
    if not same.any() or same.all():
        return None

    def judge() -> float:
        embedded = recogniser.embed(images)
        cosines = (embedded @ embedded.T)[first, second].double()
        of_one, of_two = cosines[same], cosines[~same].sort().values
        below = torch.searchsorted(of_two, of_one) + torch.searchsorted(of_two, of_one, right=True)
        return (below.double().mean() / (2 * len(of_two))).item()

    return Validation(figure="verification AUC", judge=judge, gain=0.002)


def _shift(images: Tensor, generator: torch.Generator) -> Tensor:
    """Move the whole batch by up to a sixteenth of its side, edges repeated."""
    reach = max(1, images.shape[-1] // 16)
    y, x = torch.randint(0, 2 * reach + 1, (2,), generator=generator).tolist()
    padded = functional.pad(images, (reach, reach, reach, reach), mode="replicate")
    return padded[:, :, y : y + images.shape[2], x : x + images.shape[3]]


@dataclass(frozen=True)
class Guesses:
    """The scores of one classifier for every probe."""

    classifier: str  # its name
    identities: Tensor  # (I,) int64 code of each column, ascending
    similarities: Tensor  # (m, I), of each probe to each identity; higher is more likely


def reidentify(
    gallery: Tensor, gallery_identities: Tensor, probes: Tensor, *, weight: int = 1
) -> tuple[Guesses, ...]:
    """Name every probe by a linear support vector machine, its nearest neighbour, and the nearest mean.

    The means are over each identity's photographs in the gallery; the machine is fitted on the gallery, one
    identity against all others (Parnami et al. 2022, Sec. V). (n, D) and (m, D) embeddings of known people,
    (n,), and of releases, of unit length. `weight`: of each row of the gallery, as if it were repeated.
    """
    with needs_extra("re-identification", "study"):
        from sklearn.svm import LinearSVC

    people, places = gallery_identities.unique(return_inverse=True)
    # With fewer rows than dimensions, its solver visits the rows in random order.
    machine = _fit(LinearSVC(C=weight, dual="auto", random_state=0), gallery.numpy(), places)
    margins = torch.from_numpy(machine.decision_function(probes.numpy())).float()
    if len(people) == 2:  # one margin: the second against the first
        margins = torch.stack([-margins, margins], 1)
    cosines = probes @ gallery.T  # (m, n)
    nearest = cosines.new_full((len(probes), len(people)), -torch.inf)
    nearest.scatter_reduce_(1, places.expand(len(probes), -1), cosines, "amax")
    means = gallery.new_zeros(len(people), gallery.shape[1]).index_add(0, places, gallery)
    scores = {"svm": margins, "1-nn": nearest, "mean": probes @ functional.normalize(means).T}
    return tuple(Guesses(name, people, similarities) for name, similarities in scores.items())


def _fit(machine: Any, values: Any, identities: Tensor) -> Any:
    with warnings.catch_warnings():  # of classes of one photograph each
        warnings.filterwarnings("ignore", message="The number of unique classes is greater than 50%")
        return machine.fit(values, identities.numpy())


def by_numbers(gallery: Tensor, gallery_identities: Tensor, probes: Tensor) -> tuple[Guesses, ...]:
    """Name every probe by numbers of any scale: of a feature, a code or an answer as released.

    Each number is scaled by its spread in the gallery, and rows to unit length, for `reidentify`. A linear
    discriminant with a shrunk covariance weighs the differences between people. With few different outputs,
    the share of each person's releases with the same output is the best that a gallery gives.
    """
    spread, mean = torch.std_mean(gallery.double(), dim=0)
    scaled, scaled_probes = (
        functional.normalize((numbers.double() - mean) / spread.clamp(min=1e-9), dim=1).float()
        for numbers in (gallery, probes)
    )
    guesses = list(reidentify(scaled, gallery_identities, scaled_probes))
    people, places = gallery_identities.unique(return_inverse=True)
    if len(people) < len(gallery_identities):
        posteriors = log_posteriors(gallery, gallery_identities, probes, adversary="discriminant")
        guesses.append(Guesses("discriminant", people, posteriors.float()))
    outputs, rows = torch.cat([gallery, probes]).unique(dim=0, return_inverse=True)
    if len(outputs) <= min(MOST_OUTPUTS, len(gallery)):
        cells = rows[: len(gallery)] * len(people) + places
        counts = cells.bincount(minlength=len(outputs) * len(people)).view(-1, len(people)).float()
        guesses.append(Guesses("table", people, (counts / places.bincount())[rows[len(gallery) :]]))
    return tuple(guesses)


def by_values(
    gallery: Tensor, identities: Tensor, probes: Tensor, model: PLDA | None = None
) -> tuple[Guesses, ...]:
    """Name every probe by released values: cells of pixels, numbers of a feature, bits of a code.

    All classifiers of `by_numbers`, on principal components of the gallery if there are many values; a
    support vector machine with a Gaussian kernel ("rbf"); and two that learn from other people's releases,
    with `model`: the likelihood ratios of PLDA ("plda"), and the same machine in the coordinates of PLDA
    ("plda-rbf"), each weighted by the share of its variance that distinguishes people. (R, n, D) finite
    values of R releases of each photograph of known people, (n,) int64; and (m, D).
    """
    known, names = gallery.flatten(0, 1), identities.repeat(len(gallery))
    few, few_probes = known, probes
    if known.shape[1] > _FEW_NUMBERS:
        components, centre = torch.from_numpy(principal_components(known, _FEW_NUMBERS)), known.mean(0)
        few, few_probes = (known - centre) @ components, (probes - centre) @ components
    guesses = [*by_numbers(few, names, few_probes), Guesses("rbf", *_by_kernel(known, names, probes))]
    if model is not None:
        people, ratios = map(torch.from_numpy, model.log_ratios(gallery, identities, probes))
        guesses.append(Guesses("plda", people, ratios.float()))
        weights = (model.between / (1 + model.between)) ** 0.5
        seen, asked = (torch.from_numpy(model.coordinates(values) * weights) for values in (known, probes))
        guesses.append(Guesses("plda-rbf", *_by_kernel(seen, names, asked)))
    return tuple(guesses)


def _by_kernel(gallery: Tensor, identities: Tensor, probes: Tensor) -> tuple[Tensor, Tensor]:
    """Return people, and (m, I) scores of a machine for each pair, with kernel exp(-|x - y|² / width)."""
    with needs_extra("re-identification", "study"):
        from sklearn.svm import SVC

    gallery, probes = gallery.double(), probes.double()
    width = torch.pdist(gallery[:: -(-len(gallery) // _COMPARED)]).square().median()
    width = torch.where(width > 0, width, 1.0)

    def kernel(values: Tensor) -> Any:
        return (-torch.cdist(values, gallery).square() / width).exp().numpy()

    people = identities.unique()
    machine = SVC(C=_COST, kernel="precomputed", decision_function_shape="ovo")
    _fit(machine, kernel(gallery), identities)
    first, second = torch.triu_indices(len(people), len(people), 1)
    scores = []
    for part in probes.split(_AT_ONCE):
        margins = torch.from_numpy(machine.decision_function(kernel(part))).reshape(len(part), -1)
        # Each pair of people has a vote, the sum of margins breaks ties: as in scikit-learn, but nobody has
        # that of a pair not told apart. With two people alone the margin is that of the second.
        margins = margins if len(people) > 2 else -margins
        votes, sums = margins.new_zeros(2, len(part), len(people))
        votes.index_add_(1, first, (margins > 0).double()).index_add_(1, second, (margins < 0).double())
        sums.index_add_(1, first, margins).index_add_(1, second, -margins)
        scores.append(votes + sums / (3 * (sums.abs() + 1)))
    return people, torch.cat(scores).float()


def log_posteriors(
    features: Tensor, identities: Tensor, test_features: Tensor, *, adversary: str = "network", seed: int = 0
) -> Tensor:
    """Return ln p(y|f) by a classifier trained on known features. -> (M, c) float64, c ascending codes.

    It complements the kernel density of sfumato.assess.log_rank: the strongest counts. (N, d) of known
    people, best repeated with the noise of the (M, d) test features. `adversary`: "discriminant", linear,
    with a shrunk covariance shared by all people; or "network", with one hidden layer. Raises DataError.
    """
    with needs_extra("an adversary who is trained on features", "study"):
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.neural_network import MLPClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

    if adversary not in FEATURE_ADVERSARIES:
        raise ConfigError(
            f"no adversary is called {adversary!r}: {did_you_mean(adversary, FEATURE_ADVERSARIES)}"
        )
    if features.ndim != 2 or test_features.ndim != 2 or features.shape[1] != test_features.shape[1]:
        raise DataError(
            f"known features of {tuple(features.shape)} and test features of {tuple(test_features.shape)}: "
            "(N, d) and (M, d) are needed, of one d"
        )
    if identities.shape != features.shape[:1]:
        raise DataError(f"{len(features)} known features for {len(identities)} identities: one each")
    if not (features.isfinite().all() and test_features.isfinite().all()):
        raise DataError("features are not finite: leave these images out")
    if not len(test_features):
        raise DataError("no test features: give at least one")
    people = len(identities.unique())
    if people < 2 or people == len(identities):
        raise DataError(
            f"{len(identities)} known features of {people} people: at least 2 people, and 2 features of one"
        )
    if adversary == "discriminant":
        model = LinearDiscriminantAnalysis(
            solver="lsqr", shrinkage="auto", priors=np.full(people, 1 / people)
        )
    else:
        model = MLPClassifier((128,), alpha=1e-3, max_iter=_EPOCHS, random_state=seed)
    with warnings.catch_warnings():
        # It is trained for a fixed number of epochs, not to convergence.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # Some people have one photograph, which does not vary.
        warnings.filterwarnings("ignore", message="Only one sample available")
        fitted = make_pipeline(StandardScaler(), model).fit(features.double().numpy(), identities.numpy())
    found = fitted.predict_proba(test_features.double().numpy())
    # No probability is 0: a class that a softmax rounded to 0 is only last in the list.
    return torch.from_numpy(np.log(np.maximum(found, np.finfo(np.float64).tiny)))


@dataclass(frozen=True)
class Found:
    """The face found on each photograph."""

    landmarks: Tensor  # (N, 5, 2) x, y; see networks.align
    seen: Tensor  # (N,) bool, whether the detector found a face; if not, the landmarks are the usual ones

    @property
    def rate(self) -> float:
        """The share of photographs on which a face was found."""
        return self.seen.double().mean().item()


class FaceFinder:
    """Finds the face in the middle of a photograph. State: a detector, and the usual position of a face."""

    def __init__(self, detector: MTCNN, photographs: Tensor) -> None:
        """Learn the usual position from (N, 3, H, W) uint8 clean photographs, framed like those to attack."""
        self._detector = detector
        landmarks, seen = self._detect(photographs)
        if not seen.any():
            raise DataError(
                f"no face was found on any of {len(photographs)} clean photographs: a face network cannot "
                "recognise people on them; use recogniser: conv4"
            )
        self.usual = landmarks[seen].median(0).values  # (5, 2)

    def find(self, photographs: Tensor) -> Found:
        """Find the face on each of (N, 3, H, W) uint8 photographs, clean or released."""
        landmarks, seen = self._detect(photographs)
        return Found(torch.where(seen[:, None, None], landmarks, self.usual), seen)

    def _detect(self, photographs: Tensor) -> tuple[Tensor, Tensor]:
        """Detect (N, 5, 2) landmarks, zero without a face, and (N,) whether there is a face."""
        landmarks = torch.zeros(len(photographs), 5, 2)
        seen = torch.zeros(len(photographs), dtype=torch.bool)
        for row, faces in enumerate(self._detector.detect(photographs)):
            subject = faces.central(photographs.shape[2], photographs.shape[3])
            if subject is not None:
                landmarks[row], seen[row] = faces.landmarks[subject], True
        return landmarks, seen


@dataclass
class Recognisers:
    """The networks by which an adversary recognises people. State: faces and networks found so far."""

    config: AdversaryConfig
    photographs: Tensor  # (N, C, H, W) uint8, of other people
    people: Tensor  # (N,) who is on them
    encoder: Callable[[], nn.Module]  # makes the first network
    how: dict[str, Any] = field(default_factory=dict)  # device and progress of trainings

    @cached_property
    def second(self) -> DlibResNet | None:
        """A second public network, which is not trained; None if they have one alone."""
        return None if self.config.second is None else DlibResNet.load()

    @cached_property
    def _finder(self) -> FaceFinder | None:
        if self.config.detector is None:
            return None
        framing = self.photographs[draw_rows(self.people, _FRAMING, seed=0)]
        return FaceFinder(MTCNN.load(self.config.detector), framing)

    @cached_property
    def _landmarks(self) -> Tensor | None:
        return self.find(self.photographs)[0]

    def find(self, images: Tensor) -> tuple[Tensor | None, float | None]:
        """Find the landmarks of faces on images, and the share found; None if the recogniser needs none."""
        if self._finder is None:
            return None, None
        found = self._finder.find(images)
        return found.landmarks, found.rate

    def cut(self, images: Tensor, landmarks: Tensor | None) -> Tensor:
        """Make the input of the recogniser: whole images, or the faces at those landmarks."""
        if landmarks is None:
            return images
        return align(images, landmarks, FACE_NETWORKS[self.config.recogniser][1])

    def frame(self, images: Tensor) -> Tensor:
        """Cut where faces usually are, since a protection may hide them from a detector."""
        usual = None if self._finder is None else self._finder.usual.expand(len(images), -1, -1)
        return self.cut(images, usual)

    def train(
        self, seed: int, static: Recogniser | None = None, seen: Callable[[int], Tensor] | None = None
    ) -> Recogniser:
        """Train on clear photographs; or `static` further, on the same ones as `seen` in each pass."""
        config, encoder = self.config, self.encoder() if static is None else copy.deepcopy(static.encoder)
        if static is not None:
            config = replace(config, steps=config.adaptive_steps)
        elif not config.steps:
            return Recogniser(encoder).to(self.how.get("device"))
        clear = self.cut(self.photographs, self._landmarks)

        def faces(number: int) -> Tensor:
            return clear if seen is None else self.cut(seen(number), self._landmarks)

        return train_recogniser(faces, self.people, config, encoder=encoder, seed=seed, **self.how)

    def teach(
        self,
        config: StudentConfig,
        seed: int,
        teacher: Recogniser,
        seen: Callable[[int], Tensor],
        *,
        encoder: nn.Module | None = None,
        mirrored: bool = False,
    ) -> Recogniser:
        """Train a student, all its layers: from a release to what `teacher` makes of the clear photograph.

        `seen` maps a pass to (N, C, H, W) uint8, these photographs released with fresh noise. The student
        starts from the teacher's weights, or is `encoder`. `mirrored`: every second pass shows mirror images,
        and the embeddings to give are sums over both.
        """
        embedded = teacher.embed(self.frame(self.photographs), mirrored=mirrored)

        def faces(number: int) -> Tensor:
            shown = self.frame(seen(number))
            return shown.flip(3) if mirrored and number % 2 else shown

        drawn: dict[int, Future[Tensor]] = {}
        # A pass of a slow protection takes as long as training on it: an accelerator has the next one drawn.
        ahead = 2 if getattr(self.how.get("device"), "type", "cpu") != "cpu" else 1
        with ThreadPoolExecutor(1) as thread:

            def next_pass(number: int) -> Tensor:
                for each in range(number, number + ahead):
                    if each not in drawn:
                        drawn[each] = thread.submit(faces, each)
                return drawn.pop(number).result()

            first = copy.deepcopy(teacher.encoder) if encoder is None else encoder
            how: dict[str, Any] = {"encoder": first, "seed": seed, "clear": embedded, **self.how}
            return train_recogniser(next_pass, self.people, config, **how)
