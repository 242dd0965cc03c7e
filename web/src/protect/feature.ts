/** The noise of a private feature, which an exported graph does not draw: see sfumato.protect.feature. */

import { PageError } from "../errors";
import { decimalFraction, dividedBy, fraction, times, toNumber } from "../noise/exact";
import { type Bits, discreteGaussian } from "../noise/samplers";
import type { Guarantee } from "./guarantee";

const FINE = 2 ** 16; // steps of the noise in a standard deviation, where nothing is proved
const GRID = 1024; // steps of a released number in a unit, where something is

/** Gaussian noise of the covariance of training features, times `ratio`: see protect.feature.noisy. */
export function noisy(feature: number[], covariance: number[][], ratio: number, bits: Bits): number[] {
  if (!ratio) return feature;
  const root = rootOf(covariance.map((row) => row.map((each) => ratio * each)));
  const drawn = discreteGaussian(feature.length, fraction(FINE ** 2), bits);
  return feature.map((each, i) => each + root[i].reduce((sum, part, j) => sum + part * (drawn[j] / FINE), 0));
}

/** Clip to a norm, round towards 0 to a grid, add discrete Gaussian noise: see protect.vectors.clip_and_noise. */
export function clippedNoisy(feature: number[], norm: number, variance: number, bits: Bits): number[] {
  if (!feature.every(Number.isFinite)) throw new PageError("the extractor gives numbers that are not finite");
  const length = Math.sqrt(feature.reduce((sum, each) => sum + each * each, 0));
  if (!variance) return feature.map((each) => each * Math.min(norm / length, 1));
  // A hair below the norm: rounding in the product must not lead beyond it.
  const scale = Math.min((norm * (1 - 1e-9)) / length, 1);
  const noise = discreteGaussian(feature.length, times(decimalFraction(variance), fraction(GRID ** 2)), bits);
  return feature.map((each, i) => (Math.trunc(each * scale * GRID) + noise[i]) / GRID);
}

/** What is proved of clippedNoisy, of any two images: see protect.vectors.guarantee_of_clipped. */
export function clippedGuarantee(norm: number, variance: number): Guarantee {
  const squared = times(decimalFraction(norm), decimalFraction(norm));
  const rho = toNumber(dividedBy(times(fraction(2), squared), decimalFraction(variance)));
  return { definition: "concentrated", value: rho, pixels: 1, wholeImage: rho };
}

/** A lower triangular R with R R^T = C, for a C that need not have full rank (Cholesky). */
function rootOf(matrix: number[][]): number[][] {
  const root = matrix.map((row) => row.map(() => 0));
  const least = 1e-12 * Math.max(...matrix.map((row, i) => row[i]));
  matrix.forEach((row, i) => {
    for (let j = 0; j <= i; j++) {
      const rest = row[j] - root[i].slice(0, j).reduce((sum, each, k) => sum + each * root[j][k], 0);
      if (i === j) root[i][i] = rest > least ? Math.sqrt(rest) : 0;
      else root[i][j] = root[j][j] ? rest / root[j][j] : 0;
    }
  });
  return root;
}
