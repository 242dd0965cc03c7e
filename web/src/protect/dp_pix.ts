/** DP-Pix: noise on the integer sums of cells, see sfumato.protect.dp_pix for what is proved and why. */

import { PageError } from "../errors";
import type { Image, Shape, Size } from "../image";
import { decimalFraction, dividedBy, fraction, times, toNumber } from "../noise/exact";
import { type Bits, discreteGaussian, laplace } from "../noise/samplers";
import type { Guarantee } from "./guarantee";
import {
  type Cell,
  LEAST_DIFFERENCE,
  canonical,
  cellInPixels,
  checkBounds,
  checkCell,
  checkSinglePixels,
  checkSizeOfCell,
} from "./parameters";
import { cellAreas, cellSums, releaseOfCells, spread } from "./pixelize";
import type { Protection, Release } from "./release";

export class DPPix implements Protection {
  readonly madeOf = null;
  readonly drawsNoise = true;

  constructor(
    readonly cell: Cell,
    readonly epsilon: number,
    readonly pixels = 1,
    readonly variant = "sound",
  ) {
    checkSizeOfCell("dp-pix", cell);
    checkBounds("dp-pix", "epsilon", epsilon, "smaller hides more; the paper uses 3");
    checkBounds("dp-pix", "pixels", pixels, "the paper uses 1");
    if (variant !== "sound" && variant !== "published") {
      throw new PageError(`dp-pix: variant=${variant} is unknown: choose sound or published`);
    }
    this.checkSinglePixels(cell);
  }

  private checkSinglePixels(cell: Cell): void {
    const most = (255 * this.pixels * Math.SQRT2) / LEAST_DIFFERENCE;
    checkSinglePixels("dp-pix", cell, "epsilon", this.epsilon, most);
  }

  private cellOn(size: Size): number {
    const cell = cellInPixels(this.cell, size);
    this.checkSinglePixels(cell); // now of this image, where cells are shares of it
    return cell;
  }

  get spec(): string {
    const { cell, epsilon, pixels, variant } = this;
    return canonical("dp-pix", {
      cell,
      epsilon,
      ...(pixels === 1 ? {} : { pixels }),
      ...(variant === "sound" ? {} : { variant }),
    });
  }

  release(image: Image, bits: Bits): Release {
    const cell = this.cellOn(image);
    checkCell("dp-pix", cell, image);
    const noise = this.noise(image.channels, cell, cellAreas(image, cell), bits);
    const sums = cellSums(image, cell).map((sum, i) => sum + noise[i]);
    return releaseOfCells(this.spec, image, cell, sums);
  }

  private noise(channels: number, cell: number, areas: number[], bits: Bits): Float64Array {
    const scale = dividedBy(fraction(255 * this.pixels), decimalFraction(this.epsilon));
    if (this.variant === "sound") return laplace(channels * areas.length, times(scale, fraction(channels)), bits);
    const drawn = new Float64Array(channels * areas.length);
    for (const area of [...new Set(areas)].sort((a, b) => a - b)) {
      const cells = areas.flatMap((each, i) => (each === area ? [i] : []));
      const part = laplace(channels * cells.length, times(scale, fraction(area, cell ** 2)), bits);
      part.forEach((each, i) => {
        drawn[Math.floor(i / cells.length) * areas.length + cells[i % cells.length]] = each;
      });
    }
    return drawn;
  }

  guarantee({ channels, height, width }: Shape): Guarantee {
    const cell = this.cellOn({ height, width });
    const areas = cellAreas({ height, width }, cell);
    const cost = (pixels: number) => {
      if (this.variant === "sound") return this.epsilon * (pixels / this.pixels);
      const { counts, ordered } = spread(pixels, areas, false);
      const shares = counts.reduce((sum, each, i) => sum + each / ordered[i], 0);
      return ((this.epsilon * channels * cell ** 2) / this.pixels) * shares;
    };
    return {
      definition: "pure",
      value: cost(Math.min(this.pixels, height * width)),
      pixels: this.pixels,
      wholeImage: cost(height * width),
    };
  }
}

export class DPPixGaussian implements Protection {
  readonly madeOf = null;
  readonly drawsNoise = true;

  constructor(
    readonly cell: Cell,
    readonly rho: number,
    readonly pixels = 1,
  ) {
    checkSizeOfCell("dp-pix-gaussian", cell);
    checkBounds("dp-pix-gaussian", "rho", rho, "smaller hides more; 0.5 is like mu = 1");
    checkBounds("dp-pix-gaussian", "pixels", pixels, "1 or more");
    this.checkSinglePixels(cell, pixels);
  }

  get spec(): string {
    const { cell, rho, pixels } = this;
    return canonical("dp-pix-gaussian", { cell, rho, ...(pixels === 1 ? {} : { pixels }) });
  }

  release(image: Image, bits: Bits): Release {
    const cell = cellInPixels(this.cell, image);
    checkCell("dp-pix-gaussian", cell, image);
    const areas = cellAreas(image, cell);
    this.checkSinglePixels(cell, Number(squares(this.pixels, areas))); // now of this image, which may have fewer pixels
    const sensitivity = fraction(squares(this.pixels, areas) * 255n ** 2n * BigInt(image.channels));
    const variance = dividedBy(sensitivity, times(fraction(2), decimalFraction(this.rho)));
    const noise = discreteGaussian(image.channels * areas.length, variance, bits);
    const sums = cellSums(image, cell).map((sum, i) => sum + noise[i]);
    return releaseOfCells(this.spec, image, cell, sums);
  }

  private checkSinglePixels(cell: Cell, squares: number): void {
    const most = (squares * 255 ** 2) / (2 * LEAST_DIFFERENCE ** 2);
    checkSinglePixels("dp-pix-gaussian", cell, "rho", this.rho, most);
  }

  guarantee({ height, width }: Shape): Guarantee {
    const areas = cellAreas({ height, width }, cellInPixels(this.cell, { height, width }));
    const each = dividedBy(decimalFraction(this.rho), fraction(squares(this.pixels, areas)));
    const cost = (pixels: number) => toNumber(times(each, fraction(squares(pixels, areas))));
    return {
      definition: "concentrated",
      value: cost(this.pixels),
      pixels: this.pixels,
      wholeImage: cost(height * width),
    };
  }
}

/** The largest sum over cells of the square of how many of `pixels` lie in each. */
function squares(pixels: number, areas: number[]): bigint {
  return spread(pixels, areas, true).counts.reduce((sum, count) => sum + BigInt(count) ** 2n, 0n);
}
