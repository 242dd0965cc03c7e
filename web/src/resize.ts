/**
 * Centre-crop and resize, as sfumato.images.read does it: Pillow's ImageOps.fit with Lanczos, to the byte.
 *
 * So a picture without loss, such as a PNG, gives the same pixels here and in Python. JPEG decoders differ in
 * the last bits.
 */

import { type Image, type Size, emptyImage } from "./image";

const PRECISION = 22; // bits of Pillow's weights

/** ITU-R 601 luma of an RGB image, as Pillow converts to "L". */
export function grey({ height, width, values }: Image): Image {
  const image = emptyImage({ channels: 1, height, width });
  const n = height * width;
  for (let i = 0; i < n; i++) {
    image.values[i] = (values[i] * 19595 + values[n + i] * 38470 + values[2 * n + i] * 7471 + 0x8000) >> 16;
  }
  return image;
}

/** The largest centre part of the proportions wanted, resized. */
export function fit(image: Image, { height, width }: Size): Image {
  const ratio = width / height;
  const found = image.width / image.height;
  const cropWidth = found > ratio ? ratio * image.height : image.width;
  const cropHeight = found < ratio ? image.width / ratio : image.height;
  const left = (image.width - cropWidth) * 0.5;
  const top = (image.height - cropHeight) * 0.5;
  const across = weights(image.width, left, left + cropWidth, width);
  const down = weights(image.height, top, top + cropHeight, height);
  // Since version 13 Pillow begins with the columns where that leaves less to do; each pass rounds to bytes.
  return image.height - height > Math.max(0, 2 * (image.width - width))
    ? resampleRows(resampleColumns(image, down), across)
    : resampleColumns(resampleRows(image, across), down);
}

interface Window {
  start: number;
  weights: Int32Array;
}

/** For each of `count` places, which values count, and how much in units of 2^-22. */
function weights(length: number, from: number, to: number, count: number): Window[] {
  // Pillow takes the box as float32.
  const start = Math.fround(from);
  const scale = Math.fround(Math.fround(to) - start) / count;
  const stretch = Math.max(scale, 1);
  const support = 3 * stretch;
  return Array.from({ length: count }, (_, i) => {
    const centre = start + (i + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - support + 0.5));
    const last = Math.min(length, Math.trunc(centre + support + 0.5));
    const raw = Array.from({ length: last - first }, (_, j) => lanczos((j + first - centre + 0.5) * (1 / stretch)));
    const sum = raw.reduce((a, b) => a + b, 0);
    const normalised = raw.map((each) => each / sum);
    return {
      start: first,
      weights: Int32Array.from(normalised, (each) => Math.trunc(each * 2 ** PRECISION + (each < 0 ? -0.5 : 0.5))),
    };
  });
}

function lanczos(x: number): number {
  return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

function sinc(x: number): number {
  return x === 0 ? 1 : Math.sin(x * Math.PI) / (x * Math.PI);
}

function resampleRows(image: Image, windows: Window[]): Image {
  const { channels, height, width, values } = image;
  const resized = emptyImage({ channels, height, width: windows.length });
  let i = 0;
  for (let row = 0; row < values.length; row += width) {
    for (const { start, weights } of windows) {
      let sum = 1 << (PRECISION - 1);
      for (let j = 0; j < weights.length; j++) sum += values[row + start + j] * weights[j];
      resized.values[i++] = byte(sum);
    }
  }
  return resized;
}

function resampleColumns(image: Image, windows: Window[]): Image {
  const { channels, height, width, values } = image;
  const resized = emptyImage({ channels, height: windows.length, width });
  let i = 0;
  for (let plane = 0; plane < values.length; plane += height * width) {
    for (const { start, weights } of windows) {
      for (let x = 0; x < width; x++) {
        let sum = 1 << (PRECISION - 1);
        for (let j = 0; j < weights.length; j++) sum += values[plane + (start + j) * width + x] * weights[j];
        resized.values[i++] = byte(sum);
      }
    }
  }
  return resized;
}

function byte(sum: number): number {
  return Math.min(Math.max(sum >> PRECISION, 0), 255);
}
