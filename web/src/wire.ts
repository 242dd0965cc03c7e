/** Releases as they travel, application/vnd.sfumato.release: see sfumato.wire. */

import type { Release } from "./protect/release";

export const MEDIA_TYPE = "application/vnd.sfumato.release";
export const LABELLED_TYPE = "application/vnd.sfumato.labelled-release";

const VERSION = 1;

/** "SFMT", the version, the length of a JSON header, the header, and the packets of all images end to end. */
export function encode(releases: Release[]): Uint8Array<ArrayBuffer> {
  const [{ kind, spec, madeOf, shape, cell, packet, bits }] = releases;
  const header = {
    spec,
    made_of: madeOf,
    count: releases.length,
    kind,
    ...(kind === "feature"
      ? { dimension: packet.length / 4, dtype: "float32" }
      : kind === "bits"
        ? { bits }
        : { channels: shape.channels, size: [shape.height, shape.width], cell }),
  };
  return framed("SFMT", header, releases.map((each) => each.packet));
}

/** "SFML", and the label and id of each image, before the release: see sfumato.wire.labelled. */
export function labelled(examples: { label: string; id: string }[], release: Uint8Array): Uint8Array<ArrayBuffer> {
  return framed("SFML", examples, [release]);
}

function framed(magic: string, header: unknown, parts: Uint8Array[]): Uint8Array<ArrayBuffer> {
  const text = new TextEncoder().encode(JSON.stringify(header));
  let at = 9 + text.length;
  const bytes = new Uint8Array(parts.reduce((sum, each) => sum + each.length, at));
  bytes.set(new TextEncoder().encode(magic));
  bytes[4] = VERSION;
  new DataView(bytes.buffer).setUint32(5, text.length, true);
  bytes.set(text, 9);
  for (const each of parts) {
    bytes.set(each, at);
    at += each.length;
  }
  return bytes;
}
