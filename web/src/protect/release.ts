/** What leaves a browser, and what every protection offers. */

import { PageError } from "../errors";
import { type Image, type Shape, type Size, emptyImage } from "../image";
import type { Bits } from "../noise/samplers";
import type { Guarantee } from "./guarantee";
import { LEAST_DIFFERENCE } from "./parameters";

/** One protected image, private feature or code, as it leaves. */
export interface Release {
  kind: "pixels" | "masked" | "feature" | "bits";
  spec: string;
  madeOf: string | null; // SHA-256 of a trained artefact
  shape: Shape; // of the original
  cell: number; // side of the square of pixels that each value stands for
  packet: Uint8Array<ArrayBuffer>; // what travels, see sfumato.protect.release.Release.pack
  bits?: number; // of a code of bits, how many
}

export interface Protection {
  readonly spec: string;
  readonly madeOf: string | null;
  readonly drawsNoise: boolean;
  release(image: Image, bits: Bits): Release | Promise<Release>;
  guarantee(shape: Shape): Guarantee | null;
}

/** What the receiver of a release sees: cells enlarged to their pixels. Masked: RGBA, hidden pixels transparent. */
export function seen(release: Release): Image | null {
  if (release.kind === "feature" || release.kind === "bits") return null;
  return release.kind === "pixels" ? enlarged(release) : unmasked(release);
}

/**
 * Refuse what is nearly the image itself: see sfumato.device.jobs.releasing.check_differs.
 *
 * Never by looking at a release that has noise, since a refusal would tell of the image.
 */
export function checkDiffers({ spec, drawsNoise }: Protection, { values, height, width }: Image, release: Release): void {
  if (drawsNoise || release.kind !== "pixels") return;
  const others = enlarged(release).values;
  const squares = values.reduce((sum, each, i) => sum + (each - others[i]) ** 2, 0);
  const difference = Math.sqrt(squares / values.length);
  if (difference > LEAST_DIFFERENCE) return;
  throw new PageError(
    `${spec}: the release of a ${height}x${width} image would differ from it by ${difference.toFixed(1)} grey levels ` +
      `(root mean square), and leaves only above ${LEAST_DIFFERENCE}: nothing was sent; remove that picture`,
  );
}

export function gridOf({ height, width }: Size, cell: number): Size {
  return { height: Math.ceil(height / cell), width: Math.ceil(width / cell) };
}

function enlarged({ shape, cell, packet }: Release): Image {
  const image = emptyImage(shape);
  const grid = gridOf(shape, cell);
  let i = 0;
  for (let c = 0; c < shape.channels; c++) {
    for (let y = 0; y < shape.height; y++) {
      const row = (c * grid.height + Math.floor(y / cell)) * grid.width;
      for (let x = 0; x < shape.width; x++) image.values[i++] = packet[row + Math.floor(x / cell)];
    }
  }
  return image;
}

function unmasked({ shape, packet }: Release): Image {
  const pixels = shape.height * shape.width;
  const image = emptyImage({ ...shape, channels: 4 });
  const shown = Array.from({ length: pixels }, (_, i) => i).filter((i) => packet[i >> 3] & (0x80 >> (i & 7)));
  const head = Math.ceil(pixels / 8);
  shown.forEach((pixel, i) => {
    for (let c = 0; c < 3; c++) {
      const channel = Math.min(c, shape.channels - 1);
      image.values[c * pixels + pixel] = packet[head + channel * shown.length + i];
    }
    image.values[3 * pixels + pixel] = 255;
  });
  return image;
}

/** What leaves in words, where it is not an image. */
export function written({ kind, packet, bits = 0 }: Release): string {
  if (kind === "feature") return `${packet.length / 4} numbers`;
  const flags = Array.from({ length: bits }, (_, i) => (packet[i >> 3] & (0x80 >> (i & 7)) ? 1 : 0));
  return `${bits} ${bits === 1 ? "bit" : "bits"}: ${flags.join("").replace(/(.{4})(?=.)/g, "$1 ")}`;
}

/** Mask bits row by row; then the shown values, channel by channel. */
export function packed(shown: Uint8Array, values: Uint8Array): Uint8Array<ArrayBuffer> {
  const revealed = values.filter((_, i) => shown[i % shown.length]);
  const head = packedBits(shown);
  const packet = new Uint8Array(head.length + revealed.length);
  packet.set(head);
  packet.set(revealed, head.length);
  return packet;
}

/** Eight bits a byte, the first the highest, and 0s at the end. */
export function packedBits(flags: Uint8Array): Uint8Array<ArrayBuffer> {
  const packet = new Uint8Array(Math.ceil(flags.length / 8));
  flags.forEach((each, i) => {
    if (each) packet[i >> 3] |= 0x80 >> (i & 7);
  });
  return packet;
}

/** Numbers as little-endian float32. */
export function packedNumbers(numbers: number[]): Uint8Array<ArrayBuffer> {
  const packet = new Uint8Array(4 * numbers.length);
  const view = new DataView(packet.buffer);
  numbers.forEach((each, i) => view.setFloat32(4 * i, each, true));
  return packet;
}
