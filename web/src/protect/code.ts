/** The noise of a code, which an exported graph does not draw, and what it proves: see sfumato.protect.code. */

import { PageError } from "../errors";
import { decimalFraction } from "../noise/exact";
import { type Bits, flips, otherWords } from "../noise/samplers";
import { clippedGuarantee, clippedNoisy } from "./feature";
import type { Guarantee } from "./guarantee";

/** What an encoder makes: bits, or numbers; and how many. */
export interface CodeSize {
  unit: "bits" | "numbers";
  count: number;
}

const MOST_WORD = 16; // bits of a word that one randomised response is over

const NOISE = { bits: ["flip", "epsilon"], numbers: ["norm", "noise"] };

/** What a spec does to codes. */
export class CodeNoise {
  private readonly values: Map<string, number>;

  constructor(
    private readonly size: CodeSize,
    given: Map<string, string>,
  ) {
    const { unit, count } = size;
    for (const key of ["bits", "numbers"]) {
      if (given.has(key) && (key !== unit || Number(given.get(key)) !== count)) {
        throw new PageError(`code: ${key}=${given.get(key)}, and this file makes ${count} ${unit}`);
      }
    }
    this.values = new Map([...NOISE.bits, ...NOISE.numbers].flatMap((key) => this.valueOf(key, given.get(key))));
    const { flip, epsilon } = this;
    if (flip !== undefined && epsilon !== undefined) throw new PageError("code: flip and epsilon: leave one out");
    if (flip !== undefined && flip >= 0.5) {
      throw new PageError(`code: flip=${flip}: a bit is flipped with a probability above 0 and below 0.5`);
    }
    if (epsilon !== undefined && count > MOST_WORD) {
      throw new PageError(`code: epsilon=${epsilon}: for at most ${MOST_WORD} bits; of ${count}, write flip=`);
    }
    if (this.values.has("norm") !== this.values.has("noise")) {
      throw new PageError("code: norm and noise belong together: write both");
    }
  }

  get isThere(): boolean {
    return this.values.size > 0;
  }

  /** Bits as they leave, each 0 or 1: as they are, flipped by chance, or their word told with lies. */
  ofBits(flags: Uint8Array, bits: Bits): Uint8Array {
    const { flip, epsilon } = this;
    if (flip !== undefined) {
      const turned = flips(flags.length, decimalFraction(flip), bits);
      return flags.map((flag, i) => flag ^ turned[i]);
    }
    if (epsilon === undefined) return flags;
    const word = flags.reduce((sum, flag) => 2 * sum + flag, 0);
    const [told] = otherWords([word], 2 ** flags.length, decimalFraction(epsilon), bits);
    return flags.map((_, i) => (told >> (flags.length - 1 - i)) & 1);
  }

  /** Numbers as they leave. */
  ofNumbers(numbers: number[], bits: Bits): number[] {
    const { norm, noise } = this;
    return norm === undefined || noise === undefined ? numbers : clippedNoisy(numbers, norm, noise, bits);
  }

  guarantee(): Guarantee | null {
    const { flip, epsilon, norm, noise } = this;
    if (norm !== undefined && noise !== undefined) return clippedGuarantee(norm, noise);
    if (flip !== undefined) return pure(this.size.count * (Math.log1p(-flip) - Math.log(flip)) * (1 + 1e-12));
    return epsilon === undefined ? null : pure(epsilon);
  }

  private get flip(): number | undefined {
    return this.values.get("flip");
  }

  private get epsilon(): number | undefined {
    return this.values.get("epsilon");
  }

  private get norm(): number | undefined {
    return this.values.get("norm");
  }

  private get noise(): number | undefined {
    return this.values.get("noise");
  }

  private valueOf(key: string, text: string | undefined): [string, number][] {
    if (text === undefined) return [];
    const { unit } = this.size;
    if (!NOISE[unit].includes(key)) {
      throw new PageError(`code: this file makes ${unit}, which have ${NOISE[unit].join("= or ")}=, not ${key}=`);
    }
    const value = Number(text);
    if (!(value > 0 && value <= 1e9)) throw new PageError(`code: ${key}=${text}: above 0, and at most 1000000000`);
    return [[key, value]];
  }
}

function pure(epsilon: number): Guarantee {
  return { definition: "pure", value: epsilon, pixels: 1, wholeImage: epsilon };
}
