/** What the parameters of every protection share. */

import { PageError } from "../errors";
import type { Size } from "../image";

/** `name:key=value,...` in the order that Python writes them; what is at its default is left out by the caller. */
export function canonical(name: string, values: Record<string, number | string>): string {
  const parts = Object.entries(values).map(([key, value]) => `${key}=${written(value)}`);
  return parts.length ? `${name}:${parts.join(",")}` : name;
}

/** A number as Python writes it: 3, 0.5, 1e-05. */
function written(value: number | string): string {
  if (typeof value === "string" || Number.isInteger(value)) return String(value);
  const [mantissa, exponent] = value.toExponential().split("e");
  return Number(exponent) < -4 ? `${mantissa}e-${String(-Number(exponent)).padStart(2, "0")}` : String(value);
}

export const LEAST_DIFFERENCE = 2; // grey levels, root mean square: see sfumato.protect.parameters

/** The least and the most of each parameter, as in sfumato.protect.parameters. */
export const BOUNDS: Record<string, Record<string, [number, number]>> = {
  blur: { radius: [0.5, 10_000] },
  pixelize: { cell: [2, 65_535] },
  gaussian: { sigma: [LEAST_DIFFERENCE, 1e9] },
  "dp-pix": { cell: [1, 65_535], epsilon: [1e-12, 1e12], pixels: [1, 1e9] },
  "dp-pix-gaussian": { cell: [1, 65_535], rho: [1e-12, 1e12], pixels: [1, 1e9] },
};
const STRONGER_WHEN_LARGER = ["cell", "radius", "sigma"];
const IN_CLEAR = "or write none to send images in clear";

/** Refuse a parameter that protects nothing, or that cannot be computed with. */
export function checkBounds(name: string, key: string, value: number, cure: string): void {
  const [least, most] = BOUNDS[name][key];
  const given = `${name}: ${key}=${written(value)}`;
  if (!(value > 0)) throw new PageError(`${given} is not above 0: ${cure}`);
  if (value < least && STRONGER_WHEN_LARGER.includes(key)) {
    const nearly = key === "cell" ? "" : "nearly ";
    throw new PageError(`${given} leaves the image ${nearly}as it is: choose a ${key} of at least ${least}, ${IN_CLEAR}`);
  }
  if (value < least) throw new PageError(`${given} is too small to compute with: choose at least ${written(least)}`);
  if (value > most) throw new PageError(`${given} is too large: choose at most ${most}`);
}

/** The side of a cell in pixels; or, as a fraction such as "1/8", in shares of the shorter side of an image. */
export type Cell = number | string;

/** The size of a cell as a spec writes it, fractions in lowest terms; null where it is neither. */
export function readCell(text: string): Cell | null {
  if (/^\d+$/.test(text)) return Number(text);
  const [, part, whole] = (/^(\d+)\/(\d+)$/.exec(text) ?? []).map(Number);
  if (!whole) return null;
  const common = divisor(part, whole);
  return whole === common ? `${part / common}` : `${part / common}/${whole / common}`;
}

function divisor(a: number, b: number): number {
  return b ? divisor(b, a % b) : a;
}

/** Refuse cells whose size is not within BOUNDS, and shares of more than a half. */
export function checkSizeOfCell(name: string, cell: Cell): void {
  if (typeof cell === "number") return checkBounds(name, "cell", cell, "the paper uses 2 to 10");
  const [part, whole = 1] = cell.split("/").map(Number);
  if (part > 0 && 2 * part <= whole) return;
  throw new PageError(
    `${name}: cell=${cell} is a share of the shorter side of an image: choose one above 0 and ` +
      "of at most 1/2, such as 1/8",
  );
}

/** The side of cells on images of one size: shares are rounded up. See sfumato.protect.parameters. */
export function cellInPixels(cell: Cell, { height, width }: Size): number {
  if (typeof cell === "number") return cell;
  const [part, whole] = cell.split("/").map(Number);
  return Math.ceil((part * Math.min(height, width)) / whole);
}

/** Refuse cells of single pixels whose noise is weaker than LEAST_DIFFERENCE, which `most` of the parameter gives. */
export function checkSinglePixels(name: string, cell: Cell, key: string, value: number, most: number): void {
  if (cell !== 1 || value <= most) return;
  throw new PageError(
    `${name}: cell=1 with ${key}=${written(value)} leaves the image nearly as it is: choose a cell of at ` +
      `least 2, or ${key} of at most ${Math.floor(most)}, ${IN_CLEAR}`,
  );
}

export function checkCell(name: string, cell: number, { height, width }: Size): void {
  const most = Math.min(height, width);
  if (cell > most) {
    throw new PageError(
      `${name}: cell=${cell} is larger than the ${height}x${width} images: ` +
        `choose a cell of at most ${most} (the paper uses 2 to 10)`,
    );
  }
}
