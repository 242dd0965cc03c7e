"""Exact integer noise: discrete Laplace, discrete Gaussian, rounded Gaussian, from random bits alone.

Floating-point samplers leak through the gaps between the numbers that they can return (Mironov 2012).
Everything here compares uniform random bits with the binary digits of a probability, and asks for more
digits when they tie: the distribution is the stated one, not an approximation.
"""

import math
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.base.hardware import thread_count
from sfumato.errors import ConfigError

# Draws are made in chunks that stay in the cache. Each chunk has its own bit stream, so the result of a
# seeded source does not depend on the number of threads.
_CHUNK = 1 << 15

MAX_SCALE = 1 << 55  # noise of that scale fits 64 bits but with probability e^-256

Bits = Callable[[int], bytes]  # n -> n random bytes


class Noise:
    """A source of exact integer noise. State: the position of a seeded source in its sequence."""

    def __init__(self, stream: Callable[[int, int], Bits]) -> None:
        self._stream = stream  # (call, chunk) -> random bytes
        self._calls = 0

    def laplace(self, shape: tuple[int, ...], *, scale: Fraction) -> NDArray[np.int64]:
        """Discrete Laplace noise, P(k) = (1 - q) / (1 + q) * q^|k|, q = exp(-1/scale). -> shape, int64.

        Added to an integer query of L1 sensitivity D with scale = D / epsilon, it is epsilon-DP
        (Ghosh, Roughgarden & Sundararajan 2009).

        How: k >= 0 has probability 1 / (1 + q), and given its sign, k or -1 - k is geometric. The binary
        digits of a geometric variable are independent coins, digit j being 1 with probability
        1 / (1 + q^-(2^j)) (Dwork et al. 2006, "Our data, ourselves", Sec. 4).

        `scale` is an exact fraction, since the privacy proof is about the exact value.
        """
        if not 0 < scale <= MAX_SCALE:
            raise ConfigError(f"the scale of Laplace noise is above 0 and at most 2^55, got {scale}")
        coins = _laplace_coins(scale)
        return self._fill(shape, np.int64, lambda out, bits: _fill_laplace(out, bits, coins))

    def discrete_gaussian(self, shape: tuple[int, ...], *, variance: Fraction) -> NDArray[np.int64]:
        """Discrete Gaussian noise, P(k) proportional to exp(-k^2 / (2 variance)). -> shape, int64.

        Added to an integer query of L2 sensitivity D with variance = D^2 / (2 rho), it is rho-zCDP
        (Canonne, Kamath & Steinke 2020, Theorem 4; for vectors by composition over the coordinates).

        How: their Algorithm 3. A discrete Laplace candidate of scale t = floor(sigma) + 1 is kept with
        probability exp(-(|k| - variance / t)^2 / (2 variance)).

        `variance` is sigma^2 as an exact fraction; the variance of the noise is at most that.
        """
        if not 0 < variance <= MAX_SCALE**2:
            raise ConfigError(f"the variance of Gaussian noise is above 0 and at most 2^110, got {variance}")
        scale = math.isqrt(math.floor(variance)) + 1
        coins = _laplace_coins(Fraction(scale))
        return self._fill(
            shape, np.int64, lambda out, bits: _fill_discrete_gaussian(out, bits, variance, scale, coins)
        )

    def rounded_gaussian(self, shape: tuple[int, ...], *, sigma: float, bound: int) -> NDArray[np.int16]:
        """N(0, sigma^2) rounded to an integer and clamped to +-bound. -> shape, int16.

        Rounding and bounding are post-processing of the Gaussian mechanism, and cost no privacy. A bound
        at which the sum is clamped anyway loses nothing. `sigma` is the deviation before rounding.
        """
        if not (sigma > 0 and math.isfinite(sigma)):
            raise ConfigError(f"sigma of Gaussian noise is above 0, got {sigma:g}")
        if not 1 <= bound <= 32767:
            raise ConfigError(f"the bound of Gaussian noise is from 1 to 32767, got {bound}")
        table = _gaussian_table(sigma, bound)
        return self._fill(shape, np.int16, lambda out, bits: _fill_from_table(out, bits, table))

    def flips(self, shape: tuple[int, ...], *, probability: Fraction) -> NDArray[np.bool_]:
        """Which bits to flip, independently: 1 with exactly that probability. -> shape, bool.

        Flipping a bit so is ε-DP with ε = ln((1 - p) / p) (Warner 1965), for p from 0 to 0.5.
        """
        if not 0 <= probability <= Fraction(1, 2):
            raise ConfigError(
                f"bits are flipped with a probability from 0 to 0.5, got {float(probability):g}"
            )
        coin = _Coin(lambda length: (probability.numerator << length) // probability.denominator)
        return self._fill(shape, np.bool_, lambda out, bits: _fill_coins(out, bits, coin))

    def other_words(self, words: NDArray[np.int64], *, outputs: int, epsilon: Fraction) -> NDArray[np.int64]:
        """Randomised response over k words: the truth with probability e^ε / (e^ε + k - 1), else another.

        ε-DP between any two words (Kairouz, Oh & Viswanath 2016). All others are equally likely.

        (N,) int64 words from 0 to k - 1 -> (N,) int64; k, from 2 to 2^16, are the `outputs`.
        """
        if not 2 <= outputs <= 1 << 16:
            raise ConfigError(f"randomised response is over 2 to 65,536 words, got {outputs}")
        if not epsilon > 0:
            raise ConfigError(f"the epsilon of randomised response is above 0, got {float(epsilon):g}")
        lie = _Coin(_digits_of(lambda context: _lie(epsilon, outputs, context)))
        lies = self._fill(words.shape, np.bool_, lambda out, bits: _fill_coins(out, bits, lie))
        steps = self._fill(words.shape, np.int64, lambda out, bits: _fill_below(out, bits, outputs - 1))
        return np.where(lies, (words + 1 + steps) % outputs, words)

    def _fill(
        self, shape: tuple[int, ...], dtype: type, fill: Callable[["np.ndarray", Bits], None]
    ) -> NDArray[Any]:
        out: np.ndarray = np.empty(math.prod(shape), dtype)
        call, self._calls = self._calls, self._calls + 1

        def work(chunk: int) -> None:
            fill(out[chunk * _CHUNK : (chunk + 1) * _CHUNK], self._stream(call, chunk))

        chunks = range(-(-out.size // _CHUNK))
        threads = min(len(chunks), thread_count())
        if threads < 2:
            for chunk in chunks:
                work(chunk)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(work, chunks))
        return out.reshape(shape)


def fresh_noise() -> Noise:
    """Noise from the operating system's entropy: for every release that leaves a device."""
    return Noise(lambda call, chunk: os.urandom)


def seeded_noise(*seed: int) -> Noise:
    """Noise that repeats, for tests, studies and training on copies that stay here: it hides nothing."""

    def stream(call: int, chunk: int) -> Bits:
        # The length keeps (1,) and (1, 0) apart, which NumPy's padding would make one.
        return np.random.Generator(np.random.SFC64([len(seed), *seed, call, chunk])).bytes

    return Noise(stream)


class _Coin:
    """A coin that shows 1 with an exact probability, given by its binary digits to any precision."""

    def __init__(self, digits: Callable[[int], int]) -> None:
        self._digits = digits  # b -> floor(p * 2^b)
        self.first = digits(16)

    def toss(self, word: int, bits: Bits) -> bool:
        """Compare a uniform number, whose first 16 bits are `word`, with p; draw more while they tie."""
        length = 16
        while True:
            threshold = self._digits(length)
            if word != threshold:
                return word < threshold
            word, length = word << 64 | int.from_bytes(bits(8)), length + 64

    def toss_fresh(self, bits: Bits) -> bool:
        return self.toss(int.from_bytes(bits(2)), bits)


_LaplaceCoins = tuple[_Coin, tuple[_Coin, ...], _Coin]


@lru_cache(maxsize=64)
def _laplace_coins(scale: Fraction) -> _LaplaceCoins:
    """The coins of the sign, of the J low digits, and of "at least another 2^J"."""
    # From 2^J / scale = 12 on, the first 16 digits of the last coin's probability are zeros.
    low = max(0, math.ceil(math.log2(12 * scale)))
    digits = tuple(_Coin(_logistic_digits(Fraction(2**j) / scale)) for j in range(low))
    return _Coin(_logistic_digits(1 / scale)), digits, _Coin(_exp_digits(Fraction(2**low) / scale))


def _logistic_digits(x: Fraction) -> Callable[[int], int]:
    """b -> floor(2^b / (1 + e^x))."""

    def value(context: Context) -> Decimal:
        small = _exp(-x, context)  # not e^x, which may be too large for a decimal
        return context.divide(small, context.add(1, small))

    return _digits_of(value)


def _exp_digits(x: Fraction) -> Callable[[int], int]:
    """b -> floor(2^b * e^-x)."""
    return _digits_of(lambda context: _exp(-x, context))


def _exp(x: Fraction, context: Context) -> Decimal:
    return context.exp(context.divide(Decimal(x.numerator), Decimal(x.denominator)))


def _digits_of(value: Callable[[Context], Decimal]) -> Callable[[int], int]:
    """Binary digits of a number in (0, 1) that `value` gives to the precision of a decimal context."""

    @lru_cache(maxsize=16)
    def digits(length: int) -> int:
        precision = length // 3 + 30
        while True:
            context = Context(prec=precision)
            scaled = context.multiply(value(context), Decimal(2**length))
            # decimal rounds each step correctly; few steps with arguments below 2^20 can lose less than 12
            # digits. If that could move the floor, compute again with more.
            error = Decimal(10) ** (scaled.adjusted() - precision + 12)
            # Not scaled - error: an operator would round to the 28 digits of decimal's default context.
            lower = math.floor(context.subtract(scaled, error))
            upper = math.floor(context.add(scaled, error))
            if lower == upper:
                return max(lower, 0)
            precision *= 2

    return digits


def _fill_laplace(out: np.ndarray, bits: Bits, coins: _LaplaceCoins) -> None:
    sign, digits, more = coins
    n = out.size
    words = np.frombuffer(bits(2 * n * (len(digits) + 2)), np.uint16).reshape(-1, n)
    # Up to 15 digits fit 16 bits, which take a quarter of the time to add.
    low: np.ndarray = np.zeros(n, np.int16 if len(digits) <= 15 else np.int64)
    for j, coin in enumerate(digits):
        low |= _toss_all(coin, words[j], bits).astype(low.dtype) << j
    out[:] = low
    for i in _toss_all(more, words[-2], bits).nonzero()[0]:
        out[i] += 1 << len(digits)
        while more.toss_fresh(bits):
            out[i] += 1 << len(digits)
    negative = _toss_all(sign, words[-1], bits)
    out ^= -negative.astype(np.int64)  # k, or -1 - k


def _fill_coins(out: np.ndarray, bits: Bits, coin: _Coin) -> None:
    out[:] = _toss_all(coin, np.frombuffer(bits(2 * out.size), np.uint16), bits)


def _fill_below(out: np.ndarray, bits: Bits, count: int) -> None:
    """Whole numbers from 0 to count - 1, equally likely: 32 bits each, redrawn if they would be uneven."""
    most = (1 << 32) // count * count
    open_places = np.arange(out.size)
    while open_places.size:
        drawn = np.frombuffer(bits(4 * open_places.size), np.uint32).astype(np.int64)
        even = drawn < most
        out[open_places[even]] = drawn[even] % count
        open_places = open_places[~even]


def _lie(epsilon: Fraction, outputs: int, context: Context) -> Decimal:
    """(k - 1) / (e^ε + k - 1), without e^ε, which may be too large for a decimal."""
    lies = context.multiply(Decimal(outputs - 1), _exp(-epsilon, context))
    return context.divide(lies, context.add(1, lies))


def _toss_all(coin: _Coin, words: np.ndarray, bits: Bits) -> np.ndarray:
    """(n,) uint16 words -> (n,) bool; ties, one in 65,536, are settled one by one."""
    ones = words < coin.first
    for i in (words == coin.first).nonzero()[0]:
        ones[i] = coin.toss(int(words[i]), bits)
    return ones


def _fill_discrete_gaussian(
    out: np.ndarray, bits: Bits, variance: Fraction, scale: int, coins: _LaplaceCoins
) -> None:
    filled = 0
    while filled < out.size:
        # Three in four candidates are kept, fewer for a sigma below 1.
        candidates = np.empty((out.size - filled) * 4 // 3 + 16, np.int64)
        _fill_laplace(candidates, bits, coins)
        kept = candidates[_accept(np.abs(candidates), bits, variance, scale)][: out.size - filled]
        out[filled : filled + kept.size] = kept
        filled += kept.size


def _accept(sizes: np.ndarray, bits: Bits, variance: Fraction, scale: int) -> np.ndarray:
    """Toss a coin of probability exp(-(size - variance / scale)^2 / (2 variance)) for each. -> (n,) bool."""
    # As float64, for 65,535 + 1 does not fit 16 bits.
    words = np.frombuffer(bits(2 * sizes.size), np.uint16).astype(np.float64)
    distances = sizes - float(variance / scale)
    # Floating point decides only where it cannot be wrong. A distance d is off by at most
    # 2^-52 (|d| + 2 sigma), and (1 + x)^2 exp(-x^2 / 2) is below 3: 65,536 p is off by less than 2^-30, and a
    # word this near to it is left open.
    thresholds = np.exp(distances * distances / (-2 * float(variance))) * 65536
    margin = 2.0**-16
    accepted = words + 1 < thresholds - margin
    for i in (~accepted & (words < thresholds + margin)).nonzero()[0]:
        exponent = (int(sizes[i]) - variance / scale) ** 2 / (2 * variance)
        accepted[i] = exponent == 0 or _Coin(_exp_digits(exponent)).toss(int(words[i]), bits)
    return accepted


_OPEN = -(1 << 15)  # marks the words of a table that settle nothing; no bound is as large


class _Table:
    """An integer variable from -bound to bound, looked up by 16 uniform bits, or more where they tie."""

    def __init__(self, cumulative: Callable[[int, int], int], bound: int) -> None:
        self._cumulative = cumulative  # (k, b) -> floor(2^b * P(X <= k)), for k from -bound to bound - 1
        self._bound = bound
        self.thresholds = np.array([cumulative(k, 64) for k in range(-bound, bound)], np.uint64)
        # A word w is the interval [w, w + 1) / 2^16; it settles nothing if a threshold lies inside.
        cuts = self.thresholds >> np.uint64(48)
        self.values = (np.searchsorted(cuts, np.arange(1 << 16), side="right") - bound).astype(np.int16)
        self.values[cuts.astype(np.int64)] = _OPEN

    def settle(self, words: np.ndarray, bits: Bits) -> np.ndarray:
        """(n,) uint16 words that settle nothing -> (n,) values, from as many more bits as it takes."""
        long_bytes = np.empty((words.size, 8), np.uint8)  # the word and six more, the first the highest
        long_bytes[:, :2] = words.astype(">u2")[:, None].view(np.uint8)
        long_bytes[:, 2:] = np.frombuffer(bits(6 * words.size), np.uint8).reshape(-1, 6)
        long = long_bytes.view(">u8")[:, 0].astype(np.uint64)
        below = np.searchsorted(self.thresholds, long, side="left")
        nearest = self.thresholds[np.minimum(below, len(self.thresholds) - 1)]
        for i in (nearest == long).nonzero()[0]:
            up_to = int(np.searchsorted(self.thresholds, long[i], side="right"))
            below[i] = self._settle_one(int(long[i]), range(int(below[i]), up_to), bits)
        return below - self._bound

    def _settle_one(self, word: int, tied: range, bits: Bits) -> int:
        """How many thresholds lie below a number of which 64 bits tie with those of the indices `tied`."""
        length = 64
        while tied:
            word, length = word << 64 | int.from_bytes(bits(8)), length + 64
            cuts = [self._cumulative(i - self._bound, length) for i in tied]
            below = tied.start + sum(cut < word for cut in cuts)
            tied = range(below, below + sum(cut == word for cut in cuts))
        return tied.start


@lru_cache(maxsize=16)
def _gaussian_table(sigma: float, bound: int) -> _Table:
    import mpmath  # here, since most noise does not need it

    context, alone = mpmath.MPContext(), threading.Lock()

    def cumulative(k: int, length: int) -> int:
        with alone:  # threads would share the precision
            context.prec = length + 64
            digits = int(context.floor(context.ncdf((context.mpf(k) + 0.5) / sigma) * 2**length))
        return min(digits, (1 << length) - 1)  # far up the probability rounds to 1, which it never is

    return _Table(cumulative, bound)


def _fill_from_table(out: np.ndarray, bits: Bits, table: _Table) -> None:
    words = np.frombuffer(bits(2 * out.size), np.uint16)
    np.take(table.values, words, out=out, mode="clip")  # which needs no buffer; no word is out of range
    (open_,) = (out == _OPEN).nonzero()
    out[open_] = table.settle(words[open_], bits)
