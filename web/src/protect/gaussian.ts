/** Additive Gaussian noise on every value, then clamped: see sfumato.protect.pixels. */

import type { Image, Shape } from "../image";
import { type Bits, roundedGaussian } from "../noise/samplers";
import type { Guarantee } from "./guarantee";
import { canonical, checkBounds } from "./parameters";
import type { Protection, Release } from "./release";

export class Gaussian implements Protection {
  readonly madeOf = null;
  readonly drawsNoise = true;

  constructor(readonly sigma: number) {
    checkBounds("gaussian", "sigma", sigma, "the paper uses 40 to 200");
  }

  get spec(): string {
    return canonical("gaussian", { sigma: this.sigma });
  }

  release({ values, ...shape }: Image, bits: Bits): Release {
    // Beyond 255 the sum is clamped whatever the pixel was.
    const noise = roundedGaussian(values.length, this.sigma, 255, bits);
    const packet = values.map((value, i) => Math.min(Math.max(value + noise[i], 0), 255));
    return { kind: "pixels", spec: this.spec, madeOf: null, shape, cell: 1, packet };
  }

  guarantee({ channels, height, width }: Shape): Guarantee {
    const onePixel = (255 * Math.sqrt(channels)) / this.sigma;
    return { definition: "gaussian", value: onePixel, pixels: 1, wholeImage: onePixel * Math.sqrt(height * width) };
  }
}
