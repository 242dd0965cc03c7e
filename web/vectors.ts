/** What the page makes of the vectors of vectors.py, for tests: node bundle.mjs VECTORS ANSWERS. */

import { readFileSync, writeFileSync } from "node:fs";
import { messageOf } from "./src/errors";
import { type Image, type Shape, digest } from "./src/image";
import { type Fraction, expDigits, fraction, logisticDigits, upperTailDigits } from "./src/noise/exact";
import {
  type Bits,
  discreteGaussian,
  flips,
  freshBits,
  laplace,
  otherWords,
  roundedGaussian,
} from "./src/noise/samplers";
import { CodeNoise } from "./src/protect/code";
import { clippedNoisy, noisy } from "./src/protect/feature";
import { sentence } from "./src/protect/guarantee";
import { BOUNDS } from "./src/protect/parameters";
import { type Release, packed, packedBits } from "./src/protect/release";
import { parse, valuesOf, withValue } from "./src/protect/spec";
import { fit, grey } from "./src/resize";
import { encode } from "./src/wire";

type Words = Record<string, any>;

const bytes = (text: string) => Uint8Array.from(Buffer.from(text, "base64"));
const text = (values: Uint8Array) => Buffer.from(values).toString("base64");

function image({ shape: [channels, height, width], values }: Words): Image {
  return { channels, height, width, values: bytes(values) };
}

function shape([channels, height, width]: number[]): Shape {
  return { channels, height, width };
}

/** These bits, and no others; too few of them is an error. */
function recorded(values: string): Bits {
  const all = bytes(values);
  let at = 0;
  return (count) => {
    if (at + count > all.length) throw new Error(`${count} more bytes after ${at} of ${all.length}`);
    return all.subarray(at, (at += count));
  };
}

function exact([numerator, denominator]: [string, string]): Fraction {
  return fraction(BigInt(numerator), BigInt(denominator));
}

function codeNoise(unit: "bits" | "numbers", count: number, noise: string): CodeNoise {
  return new CodeNoise({ unit, count }, valuesOf(`code:${noise}`));
}

const ANSWERS: Record<string, (words: Words) => unknown> = {
  protect: async (words) => text((await parse(words.spec).release(image(words), recorded(words.bits))).packet),
  laplace: ({ count, scale, bits }) => [...laplace(count, exact(scale), recorded(bits))],
  "discrete gaussian": ({ count, variance, bits }) => [...discreteGaussian(count, exact(variance), recorded(bits))],
  "rounded gaussian": ({ count, sigma, bits }) => [...roundedGaussian(count, sigma, 255, recorded(bits))],
  "fresh laplace": ({ count, scale }) => [...laplace(count, exact(scale), freshBits)],
  noisy: ({ feature, covariance, ratio, bits }) => noisy(feature, covariance, ratio, recorded(bits)),
  "fresh noisy": ({ feature, covariance, ratio, count }) =>
    Array.from({ length: count }, () => noisy(feature, covariance, ratio, freshBits)),
  "clipped noisy": ({ feature, norm, variance, bits }) => clippedNoisy(feature, norm, variance, recorded(bits)),
  flips: ({ count, probability, bits }) => [...flips(count, exact(probability), recorded(bits))],
  "other words": ({ words, outputs, epsilon, bits }) => otherWords(words, outputs, exact(epsilon), recorded(bits)),
  "fresh words": ({ count, word, outputs, epsilon }) =>
    otherWords(Array(count).fill(word), outputs, exact(epsilon), freshBits),
  code: ({ bits, flags, noise, drawn }) =>
    text(packedBits(codeNoise("bits", bits, noise).ofBits(Uint8Array.from(flags), recorded(drawn)))),
  "code on the wire": ({ bits, flags }) => {
    const [shape, packet] = [{ channels: 3, height: 9, width: 9 }, packedBits(Uint8Array.from(flags))];
    const release = { kind: "bits", spec: "code:artefact=c", madeOf: "a".repeat(64), shape, cell: 1, packet, bits };
    return text(encode([release as Release]));
  },
  "code refused": ({ unit, count, noise }) => {
    try {
      return codeNoise(unit, count, noise).isThere;
    } catch (error) {
      return messageOf(error);
    }
  },
  "code guarantee": ({ unit, count, noise }) => sentence(codeNoise(unit, count, noise).guarantee()),
  slid: ({ spec, key, value }) => withValue(spec, key, value ?? Infinity),
  packed: ({ shown, values }) => text(packed(bytes(shown), bytes(values))),
  exp: ({ x, length }) => String(expDigits(exact(x))(length)),
  logistic: ({ x, length }) => String(logisticDigits(exact(x))(length)),
  "upper tail": ({ x, length }) => String(upperTailDigits(exact(x))(length)),
  bounds: () => BOUNDS,
  refused: ({ spec }) => {
    try {
      return parse(spec).spec;
    } catch (error) {
      return messageOf(error);
    }
  },
  spec: ({ spec }) => parse(spec).spec,
  guarantee: (words) => sentence(parse(words.spec).guarantee(shape(words.shape))),
  fit: (words) => text(fit(image(words), { height: words.size[0], width: words.size[1] }).values),
  grey: (words) => text(grey(image(words)).values),
  digest: (words) => digest(image(words)),
  wire: async ({ spec, images }) => {
    const releases = images.map((each: Words) => parse(spec).release(image(each), freshBits));
    return text(encode(await Promise.all(releases)));
  },
};

const [, , source, destination] = process.argv;
const answers: unknown[] = [];
for (const words of JSON.parse(readFileSync(source, "utf8"))) {
  try {
    answers.push(await ANSWERS[words.kind](words));
  } catch (error) {
    answers.push({ error: String(error) });
  }
}
writeFileSync(destination, JSON.stringify(answers));
