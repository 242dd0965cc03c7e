/** The image convention, as in sfumato.images: (C, H, W) uint8. */

export interface Size {
  height: number;
  width: number;
}

export interface Shape extends Size {
  channels: number;
}

/** One image: C of 1 or 3, values channel by channel, row by row. */
export interface Image extends Shape {
  values: Uint8Array<ArrayBuffer>;
}

export function emptyImage({ channels, height, width }: Shape): Image {
  return { channels, height, width, values: new Uint8Array(channels * height * width) };
}

/** SHA-256 over the shape and the pixels, as hexadecimal digits: that of sfumato.images.digest. */
export async function digest(image: Image): Promise<string> {
  const bytes = new Uint8Array(24 + image.values.length);
  const header = new DataView(bytes.buffer);
  [image.channels, image.height, image.width].forEach((each, i) => header.setBigUint64(8 * i, BigInt(each), true));
  bytes.set(image.values, 24);
  return digestOf(bytes.buffer);
}

/** SHA-256, as hexadecimal digits. */
export async function digestOf(bytes: ArrayBuffer): Promise<string> {
  return hexadecimal(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));
}

function hexadecimal(bytes: Uint8Array): string {
  return Array.from(bytes, (each) => each.toString(16).padStart(2, "0")).join("");
}
