/** Spec strings, as sfumato.protect.parse reads them. */

import { PageError } from "../errors";
import { Blur } from "./blur";
import { DPPix, DPPixGaussian } from "./dp_pix";
import { Gaussian } from "./gaussian";
import { BOUNDS, type Cell, readCell } from "./parameters";
import { Pixelize } from "./pixelize";
import type { CodeSize } from "./code";
import type { Protection } from "./release";

interface Parameter {
  key: string;
  kind: "cell" | "whole" | "number" | "text";
  default?: number | string;
  steps?: number[]; // of a slider
}

interface Kind {
  parameters: Parameter[];
  make: (...values: never[]) => Protection;
}

const range = (count: number, step: number) => Array.from({ length: count }, (_, i) => (i + 1) * step);
const DECADES = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000];

const cell: Parameter = { key: "cell", kind: "cell", steps: range(20, 1) };
const pixels: Parameter = { key: "pixels", kind: "whole", default: 1 };

const KINDS: Record<string, Kind> = {
  blur: {
    parameters: [{ key: "radius", kind: "number", steps: range(20, 0.5) }],
    make: (radius: number) => new Blur(radius),
  },
  pixelize: { parameters: [cell], make: (cell: Cell) => new Pixelize(cell) },
  gaussian: {
    parameters: [{ key: "sigma", kind: "number", steps: range(30, 10) }],
    make: (sigma: number) => new Gaussian(sigma),
  },
  "dp-pix": {
    parameters: [
      cell,
      { key: "epsilon", kind: "number", steps: DECADES },
      pixels,
      { key: "variant", kind: "text", default: "sound" },
    ],
    make: (cell: Cell, epsilon: number, pixels: number, variant: string) => new DPPix(cell, epsilon, pixels, variant),
  },
  "dp-pix-gaussian": {
    parameters: [cell, { key: "rho", kind: "number", steps: DECADES }, pixels],
    make: (cell: Cell, rho: number, pixels: number) => new DPPixGaussian(cell, rho, pixels),
  },
};

/** A protection of each kind that this page computes by itself. */
export const EXAMPLES = ["dp-pix:cell=4,epsilon=3", "pixelize:cell=4", "gaussian:sigma=120", "blur:radius=3"];

const FEATURE_SLIDERS = [
  { key: "noise", steps: [0, ...DECADES] },
  { key: "norm", steps: [0.2, 0.5, 1, 2, 3, 5, 10, 20, 50, Infinity] },
];

const CODE_SLIDERS = {
  bits: [
    { key: "flip", steps: [0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, Infinity] },
    { key: "epsilon", steps: [0.5, ...range(12, 1), Infinity] },
  ],
  numbers: [
    { key: "norm", steps: [0.2, 0.5, 1, 2, 3, 5, 10, Infinity] },
    { key: "noise", steps: [...DECADES.filter((each) => each <= 10), Infinity] },
  ],
};

/** The noise of a code, in the order that Python writes it; and what else must be there with each, or must not. */
const OF_CODE: Record<string, Record<string, string | null>> = {
  flip: { epsilon: null },
  epsilon: { flip: null },
  norm: { noise: "0.1" },
  noise: { norm: "1" },
};

/**
 * What may be set by a slider, and in which steps; infinity is for a value that is left out.
 *
 * Of a code it depends on what the encoder makes: nothing, as long as that is not known.
 */
export function sliders(spec: string, size: CodeSize | null): { key: string; steps: number[] }[] {
  if (nameOf(spec) === "feature") return FEATURE_SLIDERS;
  if (nameOf(spec) === "code") return size ? CODE_SLIDERS[size.unit] : [];
  const name = nameOf(spec);
  return (KINDS[name]?.parameters ?? []).flatMap(({ key, steps }) =>
    steps && !Number.isNaN(valueIn(spec, key)) ? [{ key, steps: steps.filter((each) => each >= BOUNDS[name][key][0]) }] : [],
  );
}

export function valueIn(spec: string, key: string): number | undefined {
  const text = valuesOf(spec).get(key);
  return text === undefined ? undefined : Number(text);
}

/** The same spec with another value of one parameter, or without it, in its canonical form. */
export function withValue(spec: string, key: string, value: number): string {
  const name = nameOf(spec);
  const values = valuesOf(spec);
  if (value === Infinity) values.delete(key);
  else values.set(key, String(value));
  if (name === "code") {
    for (const [other, wanted] of Object.entries(OF_CODE[key])) {
      if (wanted === null ? value !== Infinity : value === Infinity) values.delete(other);
      else if (wanted !== null && !values.has(other)) values.set(other, wanted);
    }
    for (const each of Object.keys(OF_CODE)) {
      const text = values.get(each); // moved to its place
      if (values.delete(each)) values.set(each, text!);
    }
  }
  const changed = `${name}:${[...values].map((pair) => pair.join("=")).join(",")}`;
  return name in KINDS ? parse(changed).spec : changed;
}

/** The name before the colon. */
export function nameOf(spec: string): string {
  return spec.split(":", 1)[0].trim();
}

/** The protection that a spec names; parse(spec).spec is its canonical form. */
export function parse(spec: string): Protection {
  const name = nameOf(spec);
  const kind = KINDS[name];
  if (!kind) {
    const known = Object.keys(KINDS).join(", ");
    throw new PageError(`this page does not protect by ${name}: use the Python client, or one of ${known}`);
  }
  const given = valuesOf(spec);
  const unknown = [...given.keys()].find((key) => !kind.parameters.some((each) => each.key === key));
  if (unknown !== undefined) throw new PageError(`${name}: no parameter ${unknown}`);
  const values = kind.parameters.map((each) => valueOf(name, each, given.get(each.key)));
  return kind.make(...(values as never[]));
}

/** What follows the name: the page takes one value for each key. */
export function valuesOf(spec: string): Map<string, string> {
  const name = nameOf(spec);
  const text = spec.trim().slice(name.length + 1);
  const found = new Map<string, string>();
  for (const part of text.trim() ? text.split(",") : []) {
    const [key, ...rest] = part.split("=");
    const value = rest.join("=").trim();
    if (!value || found.has(key.trim())) throw new PageError(`${name}: write ${name}:key=value,key=value, not ${part}`);
    found.set(key.trim(), value);
  }
  return found;
}

function valueOf(name: string, { key, kind, default: fallback }: Parameter, text: string | undefined): number | string {
  if (text === undefined) {
    if (fallback === undefined) throw new PageError(`${name}: ${key} is missing: write ${name}:${key}=...`);
    return fallback;
  }
  if (kind === "text") return text;
  if (kind === "cell") {
    const cell = readCell(text);
    if (cell !== null) return cell;
    throw new PageError(`${name}: ${key}=${text} is neither a whole number of pixels nor a fraction such as 1/8`);
  }
  const value = Number(text);
  if (!Number.isFinite(value)) throw new PageError(`${name}: ${key}=${text} is not a number`);
  if (kind === "whole" && !/^\d+$/.test(text)) throw new PageError(`${name}: ${key}=${text} is not a whole number`);
  return value;
}
