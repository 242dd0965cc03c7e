"""The rows of tasks: their norms, clipping to a norm, and noise on the grid of their sums."""

import math
from collections.abc import Callable
from fractions import Fraction

import torch
from torch import Tensor

from sfumato.dp.mechanisms import fresh_noise
from sfumato.errors import ConfigError

Draw = Callable[[tuple[int, ...], float], Tensor]  # shape, standard deviation -> Gaussian noise, float64

# Vectors are cut slightly below C: far more than float64 loses in norms of 10^6 values and in sums of tasks.
BELOW = 1 - 1e-9


def clip_rows(contributions: Tensor, *, clipping_norm: float) -> Tensor:
    """Scale each task's contribution to an L2 norm of at most C. (T, P) -> (T, P) float64.

    Source: Abadi et al. 2016, Algorithm 1, with a task instead of an example.

    Guarantees, in exact arithmetic on the float64 result: no row has a norm above C; a row within
    (1 - 1e-9)·C comes back unchanged, a zero row too; a row with a value that is not finite becomes zero, so
    that no task can spoil the sum. The sum over tasks has L2 sensitivity C when a task is added or removed.
    """
    check_above_0("clipping_norm", clipping_norm)
    rows, unit, peaks = _scale(contributions)
    lengths = unit.norm(dim=1, keepdim=True)  # (T, 1), 1 or more but for zero rows
    limit = clipping_norm * BELOW
    within = peaks * lengths <= limit
    if within.all():
        return rows
    clipped = unit.mul_(limit / lengths.clamp(min=1))
    return torch.where(within, rows, clipped) if within.any() else clipped


def normalise_rows(contributions: Tensor, *, stability: float) -> Tensor:
    """g / (|g| + γ) for each task. (T, P) -> (T, P) float64, each of a norm below 1.

    Source: Bu, Wang, Zha & Karypis 2022, "Automatic clipping", AUTO-S. Rows that are not finite become zero.
    """
    _, unit, peaks = _scale(contributions)
    lengths = unit.norm(dim=1, keepdim=True)  # (T, 1)
    denominators: Tensor = lengths + stability / peaks
    return unit * BELOW / denominators


def row_norms(contributions: Tensor) -> Tensor:
    """(T, P) -> (T,) float64; 0 for rows that are not finite."""
    scaled = [_scale(row[None]) for row in contributions]
    return torch.tensor([float(peak * unit.norm()) for _, unit, peak in scaled], dtype=torch.float64)


def finite_rows(contributions: Tensor) -> Tensor:
    """Whether all values of a row are finite. (T, P) -> (T,) bool."""
    return _peaks(contributions.detach()).isfinite()[:, 0]


def _peaks(rows: Tensor) -> Tensor:
    """The largest absolute value of each row, NaN if there is one. (T, P) -> (T, 1)."""
    return torch.maximum(-rows.amin(1, keepdim=True), rows.amax(1, keepdim=True))


def _scale(contributions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Divide rows by their largest value, so that norms cannot overflow.

    Returns:
        (T, P) float64, the rows, with zeros for rows that are not finite; (T, P), the scaled ones, in memory
        of their own; and (T, 1), by what they were divided.
    """
    rows = contributions.detach().to("cpu", torch.float64)
    peaks = _peaks(rows)
    finite = peaks.isfinite()
    if not finite.all():
        rows, peaks = torch.where(finite, rows, 0.0), torch.where(finite, peaks, 0.0)
    peaks = peaks.clamp(min=torch.finfo(torch.float64).tiny)
    return rows, rows / peaks, peaks


def fresh_gaussian(shape: tuple[int, ...], std: float) -> Tensor:
    """Noise from the operating system's entropy, for real runs. -> float64 of `shape`.

    A discrete Gaussian on a grid (see the package); its deviation is `std`, or up to 2^-40 of it more.
    """
    if not std:
        return torch.zeros(shape, dtype=torch.float64)
    step = grid_of(std)
    drawn = fresh_noise().discrete_gaussian(shape or (1,), variance=Fraction(math.ceil(std / step) ** 2))
    return (torch.from_numpy(drawn).double() * step).reshape(shape)


def grid_of(std: float) -> float:
    """The step of the grid of noise: a power of two, 2^40 to 2^41 of them in the deviation."""
    return 2.0 ** (math.frexp(std)[1] - 41)


def check_above_0(name: str, value: float) -> None:
    """Raises ConfigError unless a setting is above 0, and finite."""
    if not 0 < value < math.inf:
        raise ConfigError(f"{name}={value:g}: above 0 and finite")


def check_between_0_and_1(name: str, value: float) -> None:
    """Raises ConfigError unless a setting is above 0 and below 1."""
    if not 0 < value < 1:
        raise ConfigError(f"{name}={value:g}: above 0 and below 1")
