"""Many canaries in ONE private meta-training: each a task of the pool, in or out by a fair coin.

For the bounds of `dp.audit.one_run`: a leak of one task is a leak of each. A canary's images all have one
bright pixel, its own. In a network of one linear layer canaries then move parameters of their own. In others
the adversary subtracts the parts of other canaries, which loses some of the signal. Batch norm sees
nothing if all images are alike: a network with it proves little, and convicts nobody wrongly.
"""

import copy
import math
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sfumato.data.labelled import Label, LabelledImages
from sfumato.dp.accounting import calibrate, gaussian_mu
from sfumato.dp.audit.one_run import Guesses, OneRunAudit, conclude, guess, plan_guesses, proves
from sfumato.dp.mechanisms import seeded_noise
from sfumato.episodes import seed_of
from sfumato.errors import ConfigError
from sfumato.learn import meta
from sfumato.learn.adaptation import contributions
from sfumato.learn.meta import MetaConfig
from sfumato.learn.tasks import TaskPool, deal_pool
from sfumato.protect import parse

_LEAST_LEFT = 16  # values of an update that no canary explains: they measure the size of the noise
_REUSED = 0.5  # of the deviation of fresh noise; a smaller difference between two steps means reused noise
_TINY = 1e-6  # a deviation without noise


def bright(config: MetaConfig, *, places: int, image: tuple[int, int, int], seed: int) -> LabelledImages:
    """Images for a pool of this many tasks, just enough for the way, shot, queries and seed of a training."""
    values = math.prod(image)
    if places > values:
        raise ConfigError(
            f"{places} canaries and {values} values in an image: each needs a value of its own; "
            "take larger images, or fewer canaries"
        )
    shape = config.shape
    codes = torch.arange(places * shape.way).repeat_interleave(shape.shot + shape.queries)
    label = Label(codes, tuple(map(str, range(places * shape.way))))
    images = torch.zeros(len(codes), values, dtype=torch.uint8)
    for value, task in enumerate(deal_pool(label, shape, seed=seed).tasks):
        images[torch.cat(task), value] = 255
    return LabelledImages("canaries", images.unflatten(1, image), {"class": label})


def scores_of_run(
    config: MetaConfig, inserted: Tensor, *, image: tuple[int, int, int], seed: int = 0
) -> Tensor:
    """Runs one private training with some of the canaries -> (places,) about the log odds that each is in.

    The adversary knows everything, every noised update too, but the coins: (places,) bool, `inserted`.
    """
    data = bright(config, places=len(inserted), image=image, seed=seed)
    training = meta.Training(data, parse("none"), config, "class", seed)
    promise = training._promise
    assert promise is not None
    pool = promise.pool
    pairs = zip(pool.tasks, inserted, strict=True)
    promise.pool = TaskPool(tuple(task if coin else () for task, coin in pairs))
    scores, earlier = torch.zeros(len(inserted), dtype=torch.float64), list[Tensor]()
    while training.run.epoch < config.steps:
        idle, shifts, spread = _expect(training, promise, pool)
        if not training.step():
            break
        seen = (training.update.double() - idle) / spread
        scores += _evidence(promise.rate, seen, shifts / spread, earlier)
        earlier.append(seen)
    return scores


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
        places: m, the canaries of a run, each in or out by a fair coin; an image has as many values or more.
        of_mu: bounds μ = sqrt(steps) / z, and not ε at δ: if every task takes part in every step.
        seed: of the coins and of the weights, not of the noise of a run.
    """
    private = config.private
    if private is None or private.pool_tasks is not None or private.inner_noise:
        raise ConfigError(
            "a canary is for private training on tasks that share no class, from a public clipping norm: "
            "set `private`, with a start among its settings, without pool_tasks or inner_noise"
        )
    stated, delta, noise = private.epsilon, private.delta, private.noise_multiplier
    if noise is None:  # calibrated once for all runs
        noise = calibrate(stated, delta, min(1.0, config.tasks / places), config.steps)
    config = replace(config, private=replace(private, noise_multiplier=noise))
    mu = gaussian_mu(stated, delta)
    if of_mu:
        if config.tasks != places:
            raise ConfigError(
                f"tasks={config.tasks} of {places}: a training that samples its tasks states no mu; audit "
                "its (eps, delta), or let all tasks take part"
            )
        mu, delta = config.steps**0.5 / noise, 0.0
        stated = mu
    definition = "gaussian" if of_mu else "approximate"
    about: dict[str, Any] = {"definition": definition, "delta": delta, "confidence": confidence}
    each = max(1, plan_guesses(places * runs, mu=mu, bound=partial(proves, **about)) // runs)
    # From a separate stream: the weights are drawn by the seed itself, and must not know the coins.
    coins = torch.Generator().manual_seed(seed_of(seed, places))
    together = Guesses(canaries=0, guesses=0, right=0)
    for number in range(runs):
        inserted = torch.rand(places, generator=coins) < 0.5
        scores = scores_of_run(config, inserted, image=image, seed=seed + number)
        together += guess(scores, inserted, guesses=each)
    return conclude(together, stated=stated, runs=runs, **about)


def _evidence(rate: float, seen: Tensor, shifts: Tensor, earlier: list[Tensor]) -> Tensor:
    """(m,) the evidence of a step for each canary: (P,) the update and (m, P) shifts, in deviations of noise.

    Reused noise cancels between two steps: differences count as well, if too small for fresh noise.
    """
    _, canary, length = _evidence_of(seen, shifts, mean=rate / 2, variance=rate / 2 * (1 - rate / 2))
    scores = _log_odds(rate, canary - length / 2)
    # The chance that a canary that is in took part in this step and not in the other.
    one = rate * (1 - rate)
    for before in earlier if one else ():
        seen_twice, halves = (seen - before) / 2**0.5, shifts / 2**0.5
        size, canary, length = _evidence_of(seen_twice, halves, mean=0.0, variance=one)
        if size < _REUSED:
            either = torch.logaddexp(canary, -canary) - math.log(2)
            scores += _log_odds(2 * one, either - length / 2)
    return scores


def _log_odds(chance: float, ratio: Tensor) -> Tensor:
    """ln(1 - q + q e^x): a canary that is in takes part with a chance of q, and e^x are the odds of that."""
    return torch.logaddexp(torch.tensor(-chance, dtype=torch.float64).log1p(), math.log(chance) + ratio)


def _evidence_of(
    seen: Tensor, shifts: Tensor, *, mean: float, variance: float
) -> tuple[float, Tensor, Tensor]:
    """The deviation of the noise, measured on values that no canary explains; and for each canary (m,)
    <x, d> and |d|^2, in deviations of the rest.

    The rest is noise, and the other canaries, each present with that mean and variance v; x is the update
    less their means. Its covariance is K_i = I + v Σ_k d_k d_k^T over k other than i: with A = D D^T and
    W = (I + v A)^-1, the diagonal of W A has d_i K^-1 d_i with i among them, and leaving i out divides that
    by 1 - v times itself (Sherman & Morrison 1950).
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


def _expect(training: meta.Training, promise: meta.Promise, pool: TaskPool) -> tuple[Tensor, Tensor, Tensor]:
    """The next update: (P,) its mean without canaries, (n, P) each one's part, (P,) its deviations."""
    config, draws = training._config, torch.Generator().manual_seed(0)
    rows = pool.draw(torch.arange(len(pool)), config.shape, draws)
    tasks = training._tasks(rows, seeded_noise(0), draws)
    inner = promise.inner(config.inner)
    found = contributions(training._learner, training._start.detach(), tasks, inner)  # (n, D)

    def update(which: slice, noise: float = 0.0) -> Tensor:
        other = copy.copy(promise)
        other.policy = copy.deepcopy(promise.policy)
        return other.release(
            [found[which]], lambda shape, std: torch.full(shape, noise * std, dtype=torch.float64)
        ).update

    nobody = slice(0)
    idle = update(nobody)
    alone = torch.stack([update(slice(n, n + 1)) for n in range(len(found))])
    return idle, alone - idle, (update(nobody, 1.0) - idle).clamp(min=1e-12)
