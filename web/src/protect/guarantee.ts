/** What a release hides, in the words of sfumato.dp.guarantee. */

export interface Guarantee {
  definition: "pure" | "gaussian" | "concentrated";
  value: number; // between images that differ in `pixels` pixels
  pixels: number;
  wholeImage: number; // between any two images of that shape
}

const NAMES = { pure: "pure DP", gaussian: "Gaussian DP", concentrated: "zCDP" };
const SYMBOLS = { pure: "eps", gaussian: "mu", concentrated: "rho" };

export function sentence(guarantee: Guarantee | null): string {
  if (!guarantee) return "nothing is proved about its pixels";
  const { definition, value, pixels, wholeImage } = guarantee;
  const unit = pixels === 1 ? "any 1 pixel" : `any ${pixels} pixels`;
  const symbol = SYMBOLS[definition];
  return (
    `hides ${unit} at ${symbol} = ${roundedUp(value)} (${NAMES[definition]}); ` +
    `the whole image only at ${symbol} = ${roundedUp(wholeImage)}`
  );
}

/** Three significant digits, not below the value, as Python's "%.10g" writes them. */
function roundedUp(value: number): string {
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "nan";
  // 60 digits of a double, rounded: what is not 0 beyond the third is seen.
  const [digits, exponent] = (value * (1 - 1e-9)).toExponential(60).split("e");
  const kept = Number(digits.slice(0, 4).replace(".", ""));
  const up = /[1-9]/.test(digits.slice(4)) ? kept + 1 : kept;
  const rounded = Number(`${up}e${Number(exponent) - 2}`);
  const [mantissa, power] = rounded.toExponential().split("e");
  if (rounded && (Number(power) < -4 || Number(power) >= 10)) {
    const size = String(Math.abs(Number(power))).padStart(2, "0");
    return `${mantissa}e${power[0]}${size}`;
  }
  return Number(power) < 0 && rounded ? rounded.toFixed(2 - Number(power)).replace(/0+$/, "") : String(rounded);
}
