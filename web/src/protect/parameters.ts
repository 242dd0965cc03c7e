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

export function checkAboveZero(name: string, key: string, value: number, cure: string): void {
  if (!(value > 0 && value < Infinity)) throw new PageError(`${name}: ${key}=${value} is not above 0: ${cure}`);
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
