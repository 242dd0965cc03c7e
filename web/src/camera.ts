/** The camera of this device, in a dialog. */

import { PageError } from "./errors";

/** State: the stream while the dialog is open. */
export class Camera {
  private readonly video: HTMLVideoElement;
  private taken = 0;

  static isThere(): boolean {
    return Boolean(navigator.mediaDevices?.getUserMedia);
  }

  constructor(
    private readonly dialog: HTMLDialogElement,
    private readonly take: (file: File) => void,
  ) {
    this.video = dialog.querySelector("video")!;
    dialog.querySelector("#shoot")!.addEventListener("click", () => void this.shoot());
    dialog.querySelector("#cancel")!.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      (this.video.srcObject as MediaStream | null)?.getTracks().forEach((each) => each.stop());
      this.video.srcObject = null;
    });
  }

  async open(): Promise<void> {
    try {
      this.video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    } catch {
      throw new PageError("the camera cannot be used: allow it for this page, or choose a file");
    }
    await this.video.play();
    this.dialog.showModal();
  }

  private async shoot(): Promise<void> {
    const { videoWidth: width, videoHeight: height } = this.video;
    const canvas = new OffscreenCanvas(width, height);
    canvas.getContext("2d")!.drawImage(this.video, 0, 0);
    const blob = await canvas.convertToBlob({ type: "image/png" });
    this.dialog.close();
    this.take(new File([blob], `camera ${++this.taken}`, { type: blob.type }));
  }
}
