/** Releases as they travel, application/vnd.sfumato.release: see sfumato.wire. */

import type { Release } from "./protect/release";

export const MEDIA_TYPE = "application/vnd.sfumato.release";

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
  const text = new TextEncoder().encode(JSON.stringify(header));
  const start = 9 + text.length;
  const bytes = new Uint8Array(releases.reduce((sum, each) => sum + each.packet.length, start));
  bytes.set(new TextEncoder().encode("SFMT"));
  bytes[4] = VERSION;
  new DataView(bytes.buffer).setUint32(5, text.length, true);
  bytes.set(text, 9);
  let at = start;
  for (const each of releases) {
    bytes.set(each.packet, at);
    at += each.packet.length;
  }
  return bytes;
}
