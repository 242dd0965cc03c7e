/**
 * A learned mask, a private feature or a code, by the exported device side that the user gives as a file.
 *
 * `sfumato export ARTEFACT` writes the file. The runtime, of 14 MB, is fetched from this page's own server
 * when the first file is opened.
 */

import type { InferenceSession } from "onnxruntime-web/wasm";
import { PageError } from "./errors";
import type { Image, Shape } from "./image";
import type { Bits } from "./noise/samplers";
import { CodeNoise, type CodeSize } from "./protect/code";
import { clippedGuarantee, clippedNoisy, noisy } from "./protect/feature";
import type { Guarantee } from "./protect/guarantee";
import { type Protection, type Release, packed, packedBits, packedNumbers } from "./protect/release";
import { nameOf, valuesOf } from "./protect/spec";

/** What an exported file says of itself. */
interface Card {
  kind: "mask" | "private feature" | "code";
  side: string;
  shape: [number, number, number];
  artefact: string; // SHA-256 of the artefact that it was exported from
  keep?: number;
  covariance?: number[][];
  bits?: number;
  numbers?: number;
}

/** What the encoder of an exported code makes; null for other files. */
export async function codeSizeOf(file: Blob): Promise<CodeSize | null> {
  const { card } = await opened(file);
  return card.kind === "code" ? sizeOfCard(card) : null;
}

function sizeOfCard({ bits, numbers }: Card): CodeSize {
  if ((bits ?? 0) > MOST_BITS) throw new PageError(`this file makes codes of ${bits} bits, and ${MOST_BITS} is the most`);
  return bits === undefined ? { unit: "numbers", count: numbers! } : { unit: "bits", count: bits };
}

/** The exported device side of the artefact that a server's model was trained for; null where it cannot tell. */
export async function exported(file: Blob, spec: string, madeOf: string | null): Promise<Protection> {
  const { card, session } = await opened(file);
  const kind = { mask: "mask", feature: "private feature", code: "code" }[nameOf(spec)];
  if (card.kind !== kind || card.side !== "device") {
    throw new PageError(
      `this file is the ${card.side} side of a ${card.kind}, and ${spec} needs the device side of a ${kind}`,
    );
  }
  if (madeOf !== null && card.artefact !== madeOf) {
    throw new PageError("this file was exported from another artefact than the server's model: export that one");
  }
  const given = valuesOf(spec);
  const device = { mask: ExportedMask, "private feature": ExportedFeature, code: ExportedCode }[card.kind];
  return new device(session, card, spec, given);
}

const MOST_BITS = 64; // of a code

interface Opened {
  card: Card;
  session: InferenceSession;
}

const files = new WeakMap<Blob, Promise<Opened>>();

function opened(file: Blob): Promise<Opened> {
  let found = files.get(file);
  if (!found) {
    found = open(file);
    files.set(file, found);
  }
  return found;
}

async function open(file: Blob): Promise<Opened> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const card = cardOf(bytes);
  const { InferenceSession, env } = await import("onnxruntime-web/wasm");
  env.wasm.numThreads = 1; // more need headers that few servers send
  return { card, session: await InferenceSession.create(bytes, { executionProviders: ["wasm"] }) };
}

async function run(session: InferenceSession, image: Image, [channels, height, width]: Card["shape"]) {
  if (image.channels !== channels || image.height !== height || image.width !== width) {
    throw new PageError(`this file takes ${channels}x${height}x${width} images`);
  }
  const { Tensor } = await import("onnxruntime-web/wasm");
  return session.run({ images: new Tensor("uint8", image.values, [1, channels, height, width]) });
}

class ExportedMask implements Protection {
  readonly drawsNoise = false;
  readonly madeOf: string;
  private readonly onlyShape: boolean;

  constructor(
    private readonly session: InferenceSession,
    private readonly card: Card,
    readonly spec: string,
    given: Map<string, string>,
  ) {
    this.madeOf = card.artefact;
    this.onlyShape = given.get("values") === "shape";
    if (given.get("values") === "soft") throw new PageError("an exported mask shows pixels as they are, not softened");
    if (given.has("keep") && Number(given.get("keep")) !== card.keep) {
      throw new PageError(`an exported mask shows the share that it was trained with, ${card.keep}`);
    }
  }

  async release(image: Image): Promise<Release> {
    const { shown, values } = await run(this.session, image, this.card.shape);
    const { values: _, ...shape } = image;
    if (this.onlyShape) (values.data as Uint8Array).fill(255); // hidden ones are not packed
    return {
      kind: "masked",
      spec: this.spec,
      madeOf: this.madeOf,
      shape,
      cell: 1,
      packet: packed(shown.data as Uint8Array, values.data as Uint8Array),
    };
  }

  guarantee(): Guarantee | null {
    return null;
  }
}

class ExportedFeature implements Protection {
  readonly madeOf: string;
  private readonly noise: number;
  private readonly norm: number | null;

  constructor(
    private readonly session: InferenceSession,
    private readonly card: Card,
    readonly spec: string,
    given: Map<string, string>,
  ) {
    this.madeOf = card.artefact;
    this.noise = Number(given.get("noise"));
    this.norm = given.has("norm") ? Number(given.get("norm")) : null;
  }

  get drawsNoise(): boolean {
    return this.noise > 0;
  }

  async release(image: Image, bits: Bits): Promise<Release> {
    const { feature } = await run(this.session, image, this.card.shape);
    const { values: _, ...shape } = image;
    const clean = Array.from(feature.data as Float32Array);
    const released =
      this.norm === null
        ? noisy(clean, this.card.covariance!, this.noise, bits)
        : clippedNoisy(clean, this.norm, this.noise, bits);
    const packet = packedNumbers(released);
    return { kind: "feature", spec: this.spec, madeOf: this.madeOf, shape, cell: 1, packet };
  }

  guarantee(_: Shape): Guarantee | null {
    return this.norm === null || !this.noise ? null : clippedGuarantee(this.norm, this.noise);
  }
}

/** Of a code of bits only the signs leave here, and not the numbers. */
class ExportedCode implements Protection {
  readonly madeOf: string;
  private readonly size: CodeSize;
  private readonly noise: CodeNoise;

  constructor(
    private readonly session: InferenceSession,
    private readonly card: Card,
    readonly spec: string,
    given: Map<string, string>,
  ) {
    this.madeOf = card.artefact;
    this.size = sizeOfCard(card);
    this.noise = new CodeNoise(this.size, given);
  }

  get drawsNoise(): boolean {
    return this.noise.isThere;
  }

  async release(image: Image, bits: Bits): Promise<Release> {
    const { numbers } = await run(this.session, image, this.card.shape);
    const { values: _, ...shape } = image;
    const clean = Array.from(numbers.data as Float32Array);
    if (clean.length !== this.size.count) throw new PageError("this file makes another code than it says");
    const words = { spec: this.spec, madeOf: this.madeOf, shape, cell: 1 };
    if (this.size.unit === "numbers") {
      return { ...words, kind: "feature", packet: packedNumbers(this.noise.ofNumbers(clean, bits)) };
    }
    const flags = this.noise.ofBits(Uint8Array.from(clean, (each) => Number(each > 0)), bits);
    return { ...words, kind: "bits", packet: packedBits(flags), bits: flags.length };
  }

  guarantee(_: Shape): Guarantee | null {
    return this.noise.guarantee();
  }
}

/** The JSON text under the key "sfumato" of an ONNX file's metadata. */
function cardOf(bytes: Uint8Array): Card {
  for (const [number, entry] of fieldsOf(bytes)) {
    if (number !== 14) continue; // metadata_props of ModelProto
    const words = new Map([...fieldsOf(entry)].map(([key, value]) => [key, new TextDecoder().decode(value)]));
    if (words.get(1) === "sfumato") return JSON.parse(words.get(2) ?? "");
  }
  throw new PageError("this file was not written by `sfumato export`: choose the .onnx file of the model's artefact");
}

/** The length-delimited fields of a protocol buffers message: their numbers and contents. */
function* fieldsOf(bytes: Uint8Array): Generator<[number, Uint8Array]> {
  let at = 0;
  const integer = () => {
    let value = 0;
    for (let factor = 1; at < bytes.length; factor *= 128) {
      const byte = bytes[at++];
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
    return value;
  };
  while (at < bytes.length) {
    const tag = integer();
    const type = tag % 8;
    if (type === 0) integer();
    else if (type === 1) at += 8;
    else if (type === 5) at += 4;
    else if (type === 2) {
      const length = integer();
      yield [(tag - type) / 8, bytes.subarray(at, at + length)];
      at += length;
    } else return; // no protocol buffers
  }
}
