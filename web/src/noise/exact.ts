/** Binary digits of e^-x and of the normal distribution, to any precision, by integers with error bounds. */

/** An exact number: a proof of privacy is about the number that the user wrote. */
export interface Fraction {
  numerator: bigint;
  denominator: bigint;
}

export function fraction(numerator: bigint | number, denominator: bigint | number = 1n): Fraction {
  return { numerator: BigInt(numerator), denominator: BigInt(denominator) };
}

/** The decimal that stands for a number, such as 0.5 or 1e-7, and not the double next to it. */
export function decimalFraction(value: number): Fraction {
  const [digits, exponent] = String(value).split("e");
  const [whole, part = ""] = digits.split(".");
  const power = Number(exponent ?? 0) - part.length;
  const integer = BigInt(whole + part);
  return power < 0 ? fraction(integer, 10n ** BigInt(-power)) : fraction(integer * 10n ** BigInt(power));
}

/** A double, to its last bit. */
export function binaryFraction(value: number): Fraction {
  let denominator = 1n;
  while (!Number.isInteger(value)) {
    value *= 2;
    denominator *= 2n;
  }
  return fraction(BigInt(value), denominator);
}

export function times(a: Fraction, b: Fraction): Fraction {
  return fraction(a.numerator * b.numerator, a.denominator * b.denominator);
}

export function dividedBy(a: Fraction, b: Fraction): Fraction {
  return fraction(a.numerator * b.denominator, a.denominator * b.numerator);
}

/** The double near a fraction whose parts may be too large for doubles. */
export function toNumber({ numerator, denominator }: Fraction): number {
  const shift = BigInt(Math.max(0, bitLength(denominator) - bitLength(numerator) + 64));
  return Number((numerator << shift) / denominator) / 2 ** Number(shift);
}

function bitLength(value: bigint): number {
  return value === 0n ? 0 : value.toString(2).length;
}

/** The largest integer whose square is not above. */
export function squareRoot(value: bigint): bigint {
  if (value < 2n) return value;
  let root = 1n << BigInt(Math.ceil(bitLength(value) / 2));
  for (;;) {
    const next = (root + value / root) >> 1n;
    if (next >= root) return root;
    root = next;
  }
}

/** A number lies between these, in units of 2^-bits. */
interface Bounds {
  low: bigint;
  high: bigint;
}

/** length -> floor(p * 2^length). */
export type Digits = (length: number) => bigint;

/** Of a number in (0, 1) that is not a dyadic fraction, such as all below: more precision until the floor is sure. */
function digitsOf(bounds: (bits: number) => Bounds): Digits {
  return (length) => {
    for (let guard = 64; ; guard *= 2) {
      const { low, high } = bounds(length + guard);
      const floor = low >> BigInt(guard);
      if (floor === high >> BigInt(guard)) return floor;
    }
  };
}

/** floor(2^b * e^-x), x > 0. */
export function expDigits(x: Fraction): Digits {
  return digitsOf((bits) => expBounds(x, bits));
}

/** floor(2^b / (1 + e^x)), x > 0; with k others in place of one, floor(2^b k / (k + e^x)). */
export function logisticDigits(x: Fraction, others = 1n): Digits {
  return digitsOf((bits) => {
    const one = 1n << BigInt(bits);
    const { low, high } = expBounds(x, bits);
    return {
      low: (others * low * one) / (one + others * low),
      high: (others * high * one) / (one + others * high) + 1n,
    };
  });
}

/** floor(p * 2^b) of a fraction. */
export function fractionDigits({ numerator, denominator }: Fraction): Digits {
  return (length) => (numerator << BigInt(length)) / denominator;
}

/** floor(2^b * P(X > z)) of a standard normal X, z > 0. */
export function upperTailDigits(z: Fraction): Digits {
  return digitsOf((bits) => upperTailBounds(z, bits));
}

/** e^-x = (1 / e^y)^(2^s), y = x / 2^s: the series of e^y has positive terms alone. */
function expBounds(x: Fraction, bits: number): Bounds {
  if (x.numerator > BigInt(bits) * x.denominator) return { low: 0n, high: 1n };
  const halvings = Math.max(0, bitLength(x.numerator) - bitLength(x.denominator) + 1) + 8;
  const extra = BigInt(halvings + 24); // squaring doubles an error
  const unit = BigInt(bits) + extra;
  const one = 1n << unit;
  const low = (x.numerator << unit) / (x.denominator << BigInt(halvings));
  const high = low + 1n;
  const sum = { low: one, high: one };
  const term = { low: one, high: one };
  for (let n = 1n; term.high > 1n; n++) {
    term.low = (term.low * low) / (n << unit);
    term.high = (term.high * high) / (n << unit) + 1n;
    sum.low += term.low;
    sum.high += term.high;
  }
  sum.high += 1n; // what is left: y is below 1/128, and the last term one unit
  let power = { low: (one << unit) / sum.high, high: (one << unit) / sum.low + 1n };
  for (let i = 0; i < halvings; i++) {
    power = { low: (power.low * power.low) >> unit, high: ((power.high * power.high) >> unit) + 1n };
  }
  return { low: power.low >> extra, high: (power.high >> extra) + 1n };
}

/** 1/2 - phi(z) (z + z^3/3 + z^5/15 + ...), again of positive terms (Marsaglia 2004). */
function upperTailBounds(z: Fraction, bits: number): Bounds {
  const half = fraction(z.numerator ** 2n, 2n * z.denominator ** 2n); // z^2 / 2
  // P(X > z) is at most e^(-z^2/2) / 2.
  if (half.numerator > BigInt(bits) * half.denominator) return { low: 0n, high: 1n };
  // The sum is as large as phi(z) is small.
  const extra = BigInt(32 + Math.ceil(1.5 * toNumber(half)));
  const unit = BigInt(bits) + extra;
  const ratio = (half.numerator << (unit + 1n)) / half.denominator; // z^2
  const term = { low: (z.numerator << unit) / z.denominator, high: (z.numerator << unit) / z.denominator + 1n };
  const sum = { ...term };
  for (let n = 3n; term.high > 2n || ratio >= n << (unit - 1n); n += 2n) {
    term.low = (term.low * ratio) / (n << unit);
    term.high = (term.high * (ratio + 1n)) / (n << unit) + 1n;
    sum.low += term.low;
    sum.high += term.high;
  }
  sum.high += 4n; // each further term is less than half of the one before
  const density = expBounds(half, Number(unit));
  const root = rootOfTwoPi(Number(unit));
  const low = (density.low * sum.low) / root.high;
  const high = (density.high * sum.high) / root.low + 1n;
  const middle = 1n << (unit - 1n);
  const floor = middle > high ? middle - high : 0n;
  return { low: floor >> extra, high: ((middle - low) >> extra) + 1n };
}

const roots = new Map<number, Bounds>();

function rootOfTwoPi(bits: number): Bounds {
  let root = roots.get(bits);
  if (!root) {
    const pi = piBounds(2 * bits);
    root = { low: squareRoot(pi.low << 1n), high: squareRoot(pi.high << 1n) + 1n };
    roots.set(bits, root);
  }
  return root;
}

/** pi = 16 arctan(1/5) - 4 arctan(1/239) (Machin 1706). */
function piBounds(bits: number): Bounds {
  const guard = 32n; // an arctangent has less than 2^20 terms, each off by less than 1
  const unit = BigInt(bits) + guard;
  const middle = 16n * arctangent(5n, unit) - 4n * arctangent(239n, unit);
  const error = 1n << 25n;
  return { low: (middle - error) >> guard, high: ((middle + error) >> guard) + 1n };
}

function arctangent(inverse: bigint, unit: bigint): bigint {
  let power = (1n << unit) / inverse;
  let sum = 0n;
  for (let n = 1n, sign = 1n; power > 0n; n += 2n, sign = -sign) {
    sum += (sign * power) / n;
    power /= inverse * inverse;
  }
  return sum;
}
