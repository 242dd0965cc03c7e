/** Picture files as pixels, in the shape that a model takes. */

import { PageError } from "./errors";
import { type Image, type Shape, emptyImage } from "./image";
import { fit, grey } from "./resize";

const MOST_PIXELS = 64_000_000;

/** Upright, white behind transparent parts, the centre of it, resized by Lanczos. */
export async function read(file: Blob, shape: Shape): Promise<Image> {
  const name = file instanceof File ? file.name : "this picture";
  let bitmap: ImageBitmap;
  try {
    bitmap = await createImageBitmap(file, { imageOrientation: "from-image", colorSpaceConversion: "none" });
  } catch {
    throw new PageError(`${name} is not a picture that this browser reads: save it as JPEG or PNG`);
  }
  const { width, height } = bitmap;
  if (width * height > MOST_PIXELS) {
    throw new PageError(`${name} has ${width}x${height} pixels, more than the ${MOST_PIXELS} allowed: make it smaller`);
  }
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d", { willReadFrequently: true })!;
  context.fillStyle = "white";
  context.fillRect(0, 0, width, height);
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  const colour = planes(context.getImageData(0, 0, width, height));
  return fit(shape.channels === 1 ? grey(colour) : colour, shape);
}

function planes({ data, width, height }: ImageData): Image {
  const image = emptyImage({ channels: 3, height, width });
  const n = width * height;
  for (let i = 0; i < n; i++) {
    for (let c = 0; c < 3; c++) image.values[c * n + i] = data[4 * i + c];
  }
  return image;
}

/** Paint an image of 1, 3 or 4 channels pixel by pixel; the style sheet enlarges the canvas. */
export function paint(canvas: HTMLCanvasElement, { channels, height, width, values }: Image): void {
  canvas.width = width;
  canvas.height = height;
  const n = height * width;
  const data = new ImageData(width, height);
  for (let i = 0; i < n; i++) {
    for (let c = 0; c < 3; c++) data.data[4 * i + c] = values[Math.min(c, channels - 1) * n + i];
    data.data[4 * i + 3] = channels === 4 ? values[3 * n + i] : 255;
  }
  canvas.getContext("2d")!.putImageData(data, 0, 0);
}
