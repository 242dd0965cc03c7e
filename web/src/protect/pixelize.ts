/** Pixelization: a grid of square cells, each shown as its mean. */

import type { Image, Shape, Size } from "../image";
import type { Guarantee } from "./guarantee";
import { type Cell, canonical, cellInPixels, checkCell, checkSizeOfCell } from "./parameters";
import { type Protection, type Release, gridOf } from "./release";

/** Sums over cells of b x b pixels, (C, h, w); cells of the last row and column may be smaller. */
export function cellSums({ channels, height, width, values }: Image, cell: number): Float64Array {
  const grid = gridOf({ height, width }, cell);
  const sums = new Float64Array(channels * grid.height * grid.width);
  let i = 0;
  for (let c = 0; c < channels; c++) {
    for (let y = 0; y < height; y++) {
      const row = (c * grid.height + Math.floor(y / cell)) * grid.width;
      for (let x = 0; x < width; x++) sums[row + Math.floor(x / cell)] += values[i++];
    }
  }
  return sums;
}

/** How many pixels each cell of a grid has, (h, w). */
export function cellAreas({ height, width }: Size, cell: number): number[] {
  const lengths = (side: number) =>
    Array.from({ length: Math.ceil(side / cell) }, (_, i) => Math.min(cell, side - i * cell));
  return lengths(height).flatMap((rows) => lengths(width).map((columns) => rows * columns));
}

/** Sums of cells -> their means, halves rounded up, clamped: integers below 2^53, and so exact. */
function cellMeans(sums: Float64Array, areas: number[]): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(sums, (sum, i) => {
    const area = areas[i % areas.length];
    return Math.floor((2 * Math.min(Math.max(sum, 0), 255 * area) + area) / (2 * area));
  });
}

/** How many of `pixels` each cell gets when one after another is filled, and the areas in that order. */
export function spread(
  pixels: number,
  areas: number[],
  largestFirst: boolean,
): { counts: number[]; ordered: number[] } {
  const ordered = [...areas].sort((a, b) => (largestFirst ? b - a : a - b));
  let left = pixels;
  const counts = ordered.map((area) => {
    const count = Math.min(left, area);
    left -= count;
    return count;
  });
  return { counts, ordered };
}

export function releaseOfCells(spec: string, image: Image, cell: number, sums: Float64Array): Release {
  const { values: _, ...shape } = image;
  return { kind: "pixels", spec, madeOf: null, shape, cell, packet: cellMeans(sums, cellAreas(shape, cell)) };
}

export class Pixelize implements Protection {
  readonly madeOf = null;
  readonly drawsNoise = false;

  constructor(readonly cell: Cell) {
    checkSizeOfCell("pixelize", cell);
  }

  get spec(): string {
    return canonical("pixelize", { cell: this.cell });
  }

  release(image: Image): Release {
    const cell = cellInPixels(this.cell, image);
    checkSizeOfCell("pixelize", cell);
    checkCell("pixelize", cell, image);
    return releaseOfCells(this.spec, image, cell, cellSums(image, cell));
  }

  guarantee(_: Shape): Guarantee | null {
    return null;
  }
}
