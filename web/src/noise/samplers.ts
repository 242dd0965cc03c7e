/**
 * Exact noise from random bits alone: discrete Laplace, discrete Gaussian, rounded Gaussian, lies.
 *
 * The samplers of sfumato.dp.mechanisms, in the same order: from the same bits come the same numbers. Uniform
 * bits are compared with the binary digits of a probability, and more are asked for when they tie, so that the
 * distribution is the stated one. No floating-point number decides where it could be wrong.
 */

import { PageError } from "../errors";
import {
  type Digits,
  type Fraction,
  binaryFraction,
  dividedBy,
  expDigits,
  fraction,
  fractionDigits,
  logisticDigits,
  squareRoot,
  toNumber,
  upperTailDigits,
} from "./exact";

/** n -> n random bytes. */
export type Bits = (count: number) => Uint8Array;

/** From the browser's generator for cryptography: for every release that leaves. */
export function freshBits(count: number): Uint8Array {
  const bytes = new Uint8Array(count);
  for (let i = 0; i < count; i += 65536) crypto.getRandomValues(bytes.subarray(i, i + 65536));
  return bytes;
}

const CHUNK = 1 << 15; // numbers that are drawn from the bits of one request

const MOST_SCALE = 1n << 40n; // of such noise, numbers above 2^53 have a probability of e^-8192

/** Discrete Laplace noise, P(k) = (1 - q) / (1 + q) * q^|k|, q = exp(-1/scale): see Noise.laplace in Python. */
export function laplace(count: number, scale: Fraction, bits: Bits): Float64Array {
  checkScale(scale);
  const coins = laplaceCoins(scale);
  return inChunks(count, (out) => fillLaplace(out, bits, coins));
}

/** Discrete Gaussian noise, P(k) proportional to exp(-k^2 / (2 variance)): Canonne et al. 2020, Algorithm 3. */
export function discreteGaussian(count: number, variance: Fraction, bits: Bits): Float64Array {
  const scale = squareRoot(variance.numerator / variance.denominator) + 1n;
  checkScale(fraction(scale));
  const coins = laplaceCoins(fraction(scale));
  return inChunks(count, (out) => {
    let filled = 0;
    while (filled < out.length) {
      const candidates = new Float64Array(Math.floor(((out.length - filled) * 4) / 3) + 16);
      fillLaplace(candidates, bits, coins);
      const kept = accepted(candidates, bits, variance, scale).subarray(0, out.length - filled);
      out.set(kept, filled);
      filled += kept.length;
    }
  });
}

/** N(0, sigma^2) rounded to an integer, what lies beyond +-bound moved onto it. */
export function roundedGaussian(count: number, sigma: number, bound: number, bits: Bits): Float64Array {
  const table = gaussianTable(sigma, bound);
  return inChunks(count, (out) => fillFromTable(out, bits, table));
}

/** Which bits to flip, each by itself with that probability: see Noise.flips in Python. */
export function flips(count: number, probability: Fraction, bits: Bits): Uint8Array {
  return tossChunks(count, new Coin(fractionDigits(probability)), bits);
}

/** Each word below `outputs` as it is, or by randomised response another: see Noise.other_words in Python. */
export function otherWords(words: number[], outputs: number, epsilon: Fraction, bits: Bits): number[] {
  const lie = new Coin(logisticDigits(epsilon, BigInt(outputs - 1)));
  const lies = tossChunks(words.length, lie, bits);
  const steps = inChunks(words.length, (out) => fillBelow(out, outputs - 1, bits));
  return words.map((word, i) => (lies[i] ? (word + 1 + steps[i]) % outputs : word));
}

function checkScale({ numerator, denominator }: Fraction): void {
  if (!(numerator > 0n && numerator <= MOST_SCALE * denominator)) {
    throw new PageError("noise of a scale above 2^40 does not fit this page's numbers: choose a larger epsilon");
  }
}

function inChunks(count: number, fill: (out: Float64Array) => void): Float64Array {
  const out = new Float64Array(count);
  for (let i = 0; i < count; i += CHUNK) fill(out.subarray(i, i + CHUNK));
  return out;
}

/** Shows 1 with an exact probability, given by its binary digits. */
class Coin {
  readonly first: number;

  constructor(private readonly digits: Digits) {
    this.first = Number(digits(16));
  }

  /** Compare a uniform number, whose first 16 bits are `word`, with p; draw more while they tie. */
  toss(word: number, bits: Bits): boolean {
    if (word !== this.first) return word < this.first;
    let long = BigInt(word);
    for (let length = 80; ; length += 64) {
      long = (long << 64n) | integerOf(bits(8));
      const threshold = this.digits(length);
      if (long !== threshold) return long < threshold;
    }
  }

  tossFresh(bits: Bits): boolean {
    return this.toss(Number(integerOf(bits(2))), bits);
  }
}

function integerOf(bytes: Uint8Array): bigint {
  return bytes.reduce((number, byte) => (number << 8n) | BigInt(byte), 0n);
}

/** Uniform 16-bit words, little-endian. */
function wordsOf(bytes: Uint8Array): Uint16Array {
  return Uint16Array.from({ length: bytes.length / 2 }, (_, i) => bytes[2 * i] | (bytes[2 * i + 1] << 8));
}

interface LaplaceCoins {
  sign: Coin;
  digits: Coin[];
  more: Coin; // "at least another 2^J"
}

const laplaceCoins = remembered((scale: Fraction): LaplaceCoins => {
  const exponent = (j: number) => fraction((1n << BigInt(j)) * scale.denominator, scale.numerator);
  // J = ceil(log2(12 scale)): from there on the first 16 digits of the last coin's probability are zeros.
  let low = 0;
  while (scale.denominator << BigInt(low) < 12n * scale.numerator) low++;
  const digits = Array.from({ length: low }, (_, j) => new Coin(logisticDigits(exponent(j))));
  return { sign: new Coin(logisticDigits(exponent(0))), digits, more: new Coin(expDigits(exponent(low))) };
});

function fillLaplace(out: Float64Array, bits: Bits, { sign, digits, more }: LaplaceCoins): void {
  const n = out.length;
  const words = wordsOf(bits(2 * n * (digits.length + 2)));
  const row = (j: number) => words.subarray(j * n, (j + 1) * n);
  out.fill(0);
  digits.forEach((coin, j) => tossAll(coin, row(j), bits).forEach((one, i) => (out[i] += one * 2 ** j)));
  const step = 2 ** digits.length;
  tossAll(more, row(digits.length), bits).forEach((one, i) => {
    if (!one) return;
    out[i] += step;
    while (more.tossFresh(bits)) out[i] += step;
  });
  tossAll(sign, row(digits.length + 1), bits).forEach((negative, i) => {
    if (negative) out[i] = -1 - out[i];
  });
}

function tossChunks(count: number, coin: Coin, bits: Bits): Uint8Array {
  return Uint8Array.from(
    inChunks(count, (out) => out.set(tossAll(coin, wordsOf(bits(2 * out.length)), bits))),
  );
}

/** Whole numbers below `count`, all equally likely: 32 bits each, drawn again where they do not divide evenly. */
function fillBelow(out: Float64Array, count: number, bits: Bits): void {
  const most = Math.floor(2 ** 32 / count) * count;
  for (let open = [...out.keys()]; open.length; ) {
    const bytes = bits(4 * open.length);
    const view = new DataView(bytes.buffer, bytes.byteOffset);
    open = open.filter((place, i) => {
      const drawn = view.getUint32(4 * i, true);
      out[place] = drawn % count;
      return drawn >= most;
    });
  }
}

function tossAll(coin: Coin, words: Uint16Array, bits: Bits): Uint8Array {
  return Uint8Array.from(words, (word) => Number(coin.toss(word, bits)));
}

/** Those candidates whose coin of probability exp(-(|k| - variance / scale)^2 / (2 variance)) shows 1. */
function accepted(candidates: Float64Array, bits: Bits, variance: Fraction, scale: bigint): Float64Array {
  const words = wordsOf(bits(2 * candidates.length));
  const shift = toNumber(dividedBy(variance, fraction(scale)));
  const divisor = -2 * toNumber(variance);
  const margin = 2 ** -16;
  return candidates.filter((candidate, i) => {
    const size = Math.abs(candidate);
    const threshold = Math.exp(((size - shift) * (size - shift)) / divisor) * 65536;
    if (words[i] + 1 < threshold - margin) return true;
    if (words[i] >= threshold + margin) return false;
    const distance = BigInt(size) * scale * variance.denominator - variance.numerator; // times scale * denominator
    const exponent = fraction(
      distance ** 2n,
      2n * variance.numerator * variance.denominator * scale ** 2n,
    );
    return exponent.numerator === 0n || new Coin(expDigits(exponent)).toss(words[i], bits);
  });
}

/** An integer variable from -bound to bound, looked up by 16 uniform bits, or more where they tie. */
interface Table {
  values: Int16Array; // of a word w, which stands for [w, w + 1) / 2^16
  settled: Uint8Array; // 0 where a threshold lies in there
  thresholds: bigint[]; // 64 digits of P(X <= k), k from -bound to bound - 1
  cumulative: (index: number, length: number) => bigint;
  bound: number;
}

const gaussianTable = remembered((sigma: number, bound: number): Table => {
  const exact = binaryFraction(sigma);
  const tails = Array.from({ length: bound }, (_, k) =>
    upperTailDigits(fraction(BigInt(2 * k + 1) * exact.denominator, 2n * exact.numerator)),
  );
  // P(X <= k) = P(X > -k - 1), and of a number that is not a dyadic fraction floor(2^b (1 - p)) is this:
  const cumulative = (index: number, length: number) => {
    const k = index - bound;
    return k < 0 ? tails[-k - 1](length) : (1n << BigInt(length)) - 1n - tails[k](length);
  };
  const thresholds = Array.from({ length: 2 * bound }, (_, index) => cumulative(index, 64));
  const cuts = thresholds.map((each) => Number(each >> 48n));
  const values = new Int16Array(1 << 16);
  for (let word = 0, index = 0; word < values.length; word++) {
    while (index < cuts.length && cuts[index] <= word) index++;
    values[word] = index - bound;
  }
  const settled = new Uint8Array(1 << 16).fill(1);
  for (const cut of cuts) settled[cut] = 0;
  return { values, settled, thresholds, cumulative, bound };
});

function fillFromTable(out: Float64Array, bits: Bits, table: Table): void {
  const words = wordsOf(bits(2 * out.length));
  const open: number[] = [];
  words.forEach((word, i) => {
    out[i] = table.values[word];
    if (!table.settled[word]) open.push(i);
  });
  if (!open.length) return;
  const rest = bits(6 * open.length);
  const long = open.map((i, j) => (BigInt(words[i]) << 48n) | integerOf(rest.subarray(6 * j, 6 * j + 6)));
  open.forEach((i, j) => (out[i] = settle(long[j], table, bits) - table.bound));
}

/** How many thresholds lie below a number whose first 64 bits are these. */
function settle(word: bigint, { thresholds, cumulative }: Table, bits: Bits): number {
  let below = count(thresholds, (cut) => cut < word);
  let end = count(thresholds, (cut) => cut <= word);
  for (let length = 128; below < end; length += 64) {
    word = (word << 64n) | integerOf(bits(8));
    const cuts = Array.from({ length: end - below }, (_, i) => cumulative(below + i, length));
    end = below + count(cuts, (cut) => cut <= word);
    below += count(cuts, (cut) => cut < word);
  }
  return below;
}

function count<T>(values: T[], test: (value: T) => boolean): number {
  return values.filter(test).length;
}

/** The last 64 results by their arguments. */
function remembered<A extends unknown[], R>(make: (...words: A) => R): (...words: A) => R {
  const results = new Map<string, R>();
  return (...words) => {
    const key = JSON.stringify(words, (_, each) => (typeof each === "bigint" ? String(each) : each));
    let result = results.get(key);
    if (result === undefined) {
      if (results.size >= 64) results.clear();
      result = make(...words);
      results.set(key, result);
    }
    return result;
  };
}

