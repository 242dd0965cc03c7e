"""Many canaries in ONE private meta-training: each a task of the pool, in or out by a fair coin.

For the bounds of `dp.audit.one_run`. Every task of the pool is a trial: a leak of one task is a leak of each.

A canary's images all have one bright pixel, its own. In a network of one linear layer canaries then move
parameters of their own and none hides another. In other networks directions are closer, and the
adversary subtracts what the other canaries may add, which loses some of the signal. Batch norm over a
task sees nothing if all images are alike: a network with it proves little, and convicts nobody wrongly.
"""

import copy
import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sfumato.data.labelled import Label, LabelledImages
from sfumato.dp import accounting
from sfumato.dp.accounting import gaussian_mu
from sfumato.dp.audit.one_run import Guesses, OneRunAudit, conclude, guess, plan_guesses, proves
from sfumato.dp.clipping import ClippingPolicy
from sfumato.dp.guarantee import Definition
from sfumato.dp.mechanisms import seeded_noise
from sfumato.episodes import Shape, seed_of
from sfumato.errors import ConfigError
from sfumato.learn import meta
from sfumato.learn.meta import MetaConfig
from sfumato.learn.task_pool import TaskPool, disjoint_pool
from sfumato.protect import parse

_BRIGHT = 255
_LEAST_LEFT = 16  # values of an update that no canary explains: they measure the size of the noise
_REUSED = 0.5  # of the deviation of fresh noise; a smaller difference between two steps means reused noise
_TINY = 1e-6  # a deviation without noise


@dataclass(frozen=True)
class Places(TaskPool):
    """A pool with empty entries. A subclass, since `Promise` takes a TaskPool."""

    taken: Tensor  # (places,) bool

    def draw(self, numbers: Tensor, shape: Shape, generator: torch.Generator) -> Tensor:
        """See TaskPool.draw; empty entries give no row."""
        return super().draw(numbers[self.taken[numbers]], shape, generator)


def bright(config: MetaConfig, *, places: int, image: tuple[int, int, int], seed: int) -> LabelledImages:
    """Images for a pool of this many tasks, just enough for the way, shot and queries.

    `seed`: of the training, which deals classes to tasks. Raises ConfigError: more tasks than an image of
    (C, H, W) has values.
    """
    if places > math.prod(image):
        raise ConfigError(
            f"{places} canaries and {math.prod(image)} values in an image: each needs a value of its own; "
            "take larger images, or fewer canaries"
        )
    shape = config.shape
    classes, each = places * shape.way, shape.shot + shape.queries
    codes = torch.arange(classes).repeat_interleave(each)
    label = Label(codes, tuple(str(c) for c in range(classes)))
    images = torch.zeros(len(codes), math.prod(image), dtype=torch.uint8)
    for value, task in enumerate(disjoint_pool(label, shape, seed=seed).tasks):
        images[torch.cat(task), value] = _BRIGHT
    return LabelledImages("canaries", images.unflatten(1, image), {"class": label})


def scores_of_run(
    config: MetaConfig, inserted: Tensor, *, image: tuple[int, int, int], seed: int = 0
) -> Tensor:
    """Runs one private training with some of the canaries -> (places,) about the log odds that each is in.

    The adversary knows the code, every setting, all canaries, the first parameters, and every noised update,
    but not the coins, (places,) bool, which are `inserted`. Raises ConfigError: too few parameters for this
    many canaries, or see `with_noise`.
    """
    places = len(inserted)
    config = with_noise(config, places)
    data = bright(config, places=places, image=image, seed=seed)
    training = meta.Training(data, parse("none"), config, "class", seed, image)
    promise = training._promise
    assert promise is not None
    promise.pool = Places(promise.pool.tasks, promise.pool.overlap, inserted)
    adversary = _Adversary(promise.rate, places)
    while training.done < config.steps:
        idle, shifts, spread = _expect(training, promise)
        if not training.step():
            break
        spread = spread.clamp(min=1e-12)
        adversary.look((training.update.double() - idle) / spread, shifts / spread)
    return adversary.scores


def audit_canaries(
    config: MetaConfig,
    *,
    places: int,
    image: tuple[int, int, int],
    runs: int = 1,
    of_mu: bool = False,
    confidence: float = 0.99,
    seed: int = 0,
) -> OneRunAudit:
    """Proves a lower bound on a private training's leak of a task, by the canaries of a few runs.

    Args:
        config: with `private`; noise is calibrated if none is given.
        places: m, the canaries of a run, each in or out by a fair coin; an image has as many values or more.
        of_mu: whether to bound μ and not ε at the δ of the promise, if every task takes part in every
            step: the noise alone decides then, and μ = sqrt(steps) / z is stated.
        seed: of the coins and of the weights, not of the noise of a run.
    """
    config = with_noise(config, places)
    private = config.private
    assert private is not None
    assert private.noise_multiplier is not None
    definition: Definition = "gaussian" if of_mu else "approximate"
    stated, mu, delta = private.epsilon, gaussian_mu(private.epsilon, private.delta), private.delta
    if of_mu:
        if config.tasks != places:
            raise ConfigError(
                f"tasks={config.tasks} of {places}: a training that samples its tasks states no mu; audit "
                "its (eps, delta), or let all tasks take part"
            )
        stated = mu = config.steps**0.5 / private.noise_multiplier
        delta = 0.0
    each = plan_guesses(
        places * runs,
        mu=mu,
        bound=lambda guesses: proves(guesses, definition, delta=delta, confidence=confidence),
    )
    # From a separate stream: the weights are drawn by the seed itself, and must not know the coins.
    coins = torch.Generator().manual_seed(seed_of(seed, places))
    together = Guesses(canaries=0, guesses=0, right=0)
    for number in range(runs):
        inserted = torch.rand(places, generator=coins) < 0.5
        scores = scores_of_run(config, inserted, image=image, seed=seed + number)
        together += guess(scores, inserted, guesses=max(1, each // runs))
    return conclude(
        together, definition=definition, stated=stated, delta=delta, confidence=confidence, runs=runs
    )


class _Adversary:
    """Adds up the evidence of the updates for each canary. State: the scores, and earlier updates."""

    def __init__(self, rate: float, canaries: int) -> None:
        self.scores = torch.zeros(canaries, dtype=torch.float64)
        self._rate = rate
        self._earlier: list[Tensor] = []

    def look(self, seen: Tensor, shifts: Tensor) -> None:
        """Adds one step: (P,) the update and (m, P) each canary's part, in deviations of the noise.

        Reused noise cancels between two steps, and then the canaries that took part in one of
        them stand out: so differences count as well, if they are too small for fresh noise.
        """
        rate = self._rate
        _, canary, length = _evidence_of(seen, shifts, mean=rate / 2, variance=rate / 2 * (1 - rate / 2))
        self.scores += _log_odds(rate, canary - length / 2)
        # The chance that a canary that is in took part in this step and not in the other.
        one = rate * (1 - rate)
        for earlier in self._earlier if one else ():
            size, canary, length = _evidence_of(
                (seen - earlier) / 2**0.5, shifts / 2**0.5, mean=0.0, variance=one
            )
            if size < _REUSED:
                either = torch.logaddexp(canary, -canary) - math.log(2)
                self.scores += _log_odds(2 * one, either - length / 2)
        self._earlier.append(seen)


def _log_odds(chance: float, ratio: Tensor) -> Tensor:
    """ln(1 - q + q e^x): a canary that is in takes part with a chance of q, and e^x are the odds of that."""
    if chance >= 1:
        return ratio
    return torch.logaddexp(torch.tensor(math.log1p(-chance)).double(), math.log(chance) + ratio)


def _evidence_of(
    seen: Tensor, shifts: Tensor, *, mean: float, variance: float
) -> tuple[float, Tensor, Tensor]:
    """The deviation of the noise, and for each canary (m,) <x, d> and |d|^2, in deviations of the rest.

    The rest is noise, and the other canaries, each present with that mean and variance v; x is the update
    less their means. Its covariance is K_i = I + v Σ_k d_k d_k^T over k other than i: with A = D D^T and
    W = (I + v A)^-1, the diagonal of W A has d_i K^-1 d_i with i among them, and leaving i out divides that
    by 1 - v times itself (Sherman & Morrison 1950).

    The noise may be smaller than stated: its deviation is measured on values that no canary explains.
    """
    products = shifts @ shifts.T  # (m, m)
    along = shifts @ seen  # (m,)
    left = len(seen) - len(shifts)
    if left < _LEAST_LEFT:
        raise ConfigError(
            f"{len(shifts)} canaries and {len(seen)} parameters: values without a canary measure the noise; "
            f"take {len(seen) - _LEAST_LEFT} canaries or fewer, or a larger network"
        )
    explained = torch.linalg.lstsq(products, along[:, None], driver="gelsd").solution[:, 0] @ shifts
    size = max(((seen - explained).norm() / left**0.5).item(), _TINY)
    products, along = products / size**2, along / size**2
    eye = torch.eye(len(shifts), dtype=torch.float64)
    whitened = torch.linalg.solve(eye + variance * products, torch.cat([products, along[:, None]], 1))
    lengths = whitened[:, :-1].diagonal()
    centred = whitened[:, -1] - mean * (whitened[:, :-1].sum(1) - lengths)
    alone = (1 - variance * lengths).clamp(min=1e-9)
    return size, centred / alone, lengths / alone


def with_noise(config: MetaConfig, places: int) -> MetaConfig:
    """The configuration of a training that canaries can audit, its noise calibrated if none is given.

    Raises:
        ConfigError: nothing is promised, tasks overlap, or the first norm is fitted to them.
    """
    private = config.private
    if private is None or private.pool_tasks is not None or private.inner_noise:
        raise ConfigError(
            "a canary is for private training on tasks that share no class, from a public clipping norm: "
            "set `private`, with a start among its settings, without pool_tasks or inner_noise"
        )
    if private.noise_multiplier is not None:
        return config
    noise = accounting.calibrate(
        private.epsilon, private.delta, min(1.0, config.tasks / places), config.steps
    )
    return replace(config, private=replace(private, noise_multiplier=noise))


def _expect(training: meta.Training, promise: meta.Promise) -> tuple[Tensor, Tensor, Tensor]:
    """The next update: (P,) its mean without canaries, (n, P) each one's part, (P,) its deviations."""
    config, policy = training._config, promise.policy
    inner = replace(config.inner, clipping_norm=policy.norm) if policy.follows_norm else config.inner
    places = TaskPool(promise.pool.tasks, promise.pool.overlap)
    draws = torch.Generator().manual_seed(0)
    rows = places.draw(torch.arange(len(places)), config.shape, draws)
    found = training._contributions(training._tasks(rows, seeded_noise(0), draws), inner)  # (n, D)
    found, slopes = promise.split(found)

    def update(which: slice, noise: float) -> Tensor:
        own: ClippingPolicy = copy.deepcopy(policy)
        return own.step(
            found[which],
            noise_multiplier=promise.noise,
            public_count=promise.rate * len(promise.pool),
            draw=lambda shape, std: torch.full(shape, noise * std, dtype=torch.float64),
            derivatives=None if slopes is None else slopes[which],
        ).update

    nobody = slice(0, 0)
    idle = update(nobody, 0.0)
    alone = torch.stack([update(slice(n, n + 1), 0.0) for n in range(len(found))])
    return idle, alone - idle, update(nobody, 1.0) - idle
