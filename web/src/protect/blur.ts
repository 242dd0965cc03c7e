/** Gaussian blur exactly as Pillow's GaussianBlur(radius): three box blurs, rounded to a byte after each. */

import type { Image } from "../image";
import type { Guarantee } from "./guarantee";
import { canonical, checkBounds } from "./parameters";
import type { Protection, Release } from "./release";

const PASSES = 3;

export function blur(image: Image, radius: number): Image {
  const box = boxRadius(radius);
  const rows = { ...image, values: Uint8Array.from(image.values) };
  for (let pass = 0; pass < PASSES; pass++) blurLines(rows, box, image.width, 1, image.width);
  for (let pass = 0; pass < PASSES; pass++) blurLines(rows, box, image.height, image.width, 1);
  return rows;
}

/** The radius of a box whose repeated blur has this standard deviation (Gwosdek et al. 2011), in float32. */
function boxRadius(radius: number): number {
  const f = Math.fround;
  const variance = f(f(f(radius) * f(radius)) / PASSES);
  const length = f(Math.sqrt(12 * variance + 1));
  const whole = f(Math.floor((length - 1) / 2));
  const numerator = f(f(2 * whole + 1) * f(f(whole * f(whole + 1)) - f(3 * variance)));
  const denominator = f(6 * f(variance - f(f(whole + 1) * f(whole + 1))));
  return f(whole + f(numerator / denominator));
}

/** One box blur of every line of `length` values that lie `step` apart; the edges are extended. */
function blurLines(image: Image, radius: number, length: number, step: number, between: number): void {
  const whole = Math.trunc(radius);
  // Weights in units of 2^-24: of the values inside, and of the two half inside.
  const inside = Math.trunc(Math.fround(2 ** 24 / Math.fround(Math.fround(radius * 2) + 1)));
  const outside = Math.floor((2 ** 24 - (whole * 2 + 1) * inside) / 2);
  const { values, height, width } = image;
  const line = new Uint8Array(length);
  const at = (i: number) => line[Math.min(Math.max(i, 0), length - 1)];
  for (let plane = 0; plane < values.length; plane += height * width) {
    const end = plane + ((height * width) / length) * between;
    for (let start = plane; start < end; start += between) {
      for (let i = 0; i < length; i++) line[i] = values[start + i * step];
      let sum = 0;
      for (let i = -whole; i <= whole; i++) sum += at(i);
      for (let i = 0; i < length; i++) {
        const total = sum * inside + (at(i - whole - 1) + at(i + whole + 1)) * outside;
        values[start + i * step] = Math.floor((total + 2 ** 23) / 2 ** 24);
        sum += at(i + whole + 1) - at(i - whole);
      }
    }
  }
}

export class Blur implements Protection {
  readonly madeOf = null;
  readonly drawsNoise = false;

  constructor(readonly radius: number) {
    checkBounds("blur", "radius", radius, "the paper uses 1 to 5");
  }

  get spec(): string {
    return canonical("blur", { radius: this.radius });
  }

  release(image: Image): Release {
    const { values, ...shape } = blur(image, this.radius);
    return { kind: "pixels", spec: this.spec, madeOf: null, shape, cell: 1, packet: values };
  }

  guarantee(): Guarantee | null {
    return null;
  }
}
