/** All answers of a classifier of short codes, in which this page looks up its own: see sfumato.wire.tables. */

import { PageError } from "./errors";
import type { Release } from "./protect/release";

export const MOST_BITS = 16;

const NONE = 0x8000;
const SIGNATURE = 64; // bytes; not checked, since this page comes from the same server by the same connection

interface Guess {
  label: string;
  probability: number | null; // null: withheld by the service
  distance: number | null;
}

export interface Answer {
  guesses: Guess[];
  none_of_these: boolean | null; // null: nobody measured when a distance is too large
}

/** State: none but what came. */
export class Table {
  private constructor(
    readonly tag: string, // of the version, as HTTP has it
    readonly bits: number,
    private readonly refuses: boolean,
    private readonly labels: string[],
    private readonly answers: Uint16Array,
  ) {}

  static async read(content: ArrayBuffer, tag: string): Promise<Table> {
    const length = new DataView(content).getUint32(5, true);
    const { bits, refuses, labels } = JSON.parse(new TextDecoder().decode(new Uint8Array(content, 9, length)));
    const packed = new Blob([content.slice(9 + length, content.byteLength - SIGNATURE)]);
    const unpacked = packed.stream().pipeThrough(new DecompressionStream("deflate"));
    const view = new DataView(await new Response(unpacked).arrayBuffer());
    const answers = Uint16Array.from({ length: 2 ** bits }, (_, word) => view.getUint16(2 * word, true));
    return new Table(tag, bits, refuses, labels, answers);
  }

  /** The answer to the code of one image. */
  answer({ packet, bits }: Release): Answer {
    if (bits !== this.bits) throw new PageError(`this file makes ${bits} bits, and the server's answers are to ${this.bits}`);
    let word = 0;
    for (let at = 0; at < bits; at++) word = 2 * word + ((packet[at >> 3] >> (7 - (at & 7))) & 1);
    const found = this.answers[word];
    const guess = { label: this.labels[found & ~NONE], probability: null, distance: null };
    return { guesses: [guess], none_of_these: this.refuses ? found >= NONE : null };
  }
}
