/**
 * What this browser has released of which image: the same image and spec always leave with the same noise.
 *
 * Drawing noise anew would let whoever collects releases average it away. Images are known by the digest of
 * their pixels; originals are not kept. Whoever reads the ledger can tell whether a picture was released here.
 */

import { PageError } from "./errors";
import { type Image, digest } from "./image";
import type { Bits } from "./noise/samplers";
import { type Protection, type Release, checkDiffers } from "./protect/release";

interface Entry {
  key: string; // digest of the image, spec, and what the protection is made of
  time: number; // milliseconds since 1970
  release: Release | null; // null where the protection draws no noise, and would give the same again
  number: Uint8Array<ArrayBuffer>; // random: from it come the ids by which services know the release again
}

/** A release that may leave, and its number. */
export interface Left {
  release: Release;
  number: Uint8Array<ArrayBuffer>;
}

/** State: the database, and what was drawn in this session and has not left yet. */
export class Ledger {
  private readonly drawn = new Map<string, Release>();

  private constructor(private readonly database: IDBDatabase) {}

  static async open(): Promise<Ledger> {
    if (!globalThis.crypto?.subtle) {
      throw new PageError("this page needs a secure connection: open it by https, or on this computer as localhost");
    }
    const request = indexedDB.open("sfumato-ledger", 1);
    request.onupgradeneeded = () => request.result.createObjectStore("releases", { keyPath: "key" });
    return new Ledger(await done(request));
  }

  /**
   * The release of an image, to look at: the one that left before, or else the one that would leave now.
   *
   * It is drawn once, however often it is looked at, so that nobody chooses among several.
   */
  async preview(protection: Protection, image: Image, bits: Bits): Promise<Release> {
    const key = await keyOf(protection, image);
    const kept = await done<Entry | undefined>(this.store("readonly").get(key));
    if (kept?.release) return kept.release;
    const release = this.drawn.get(key) ?? (await protection.release(image, bits));
    // Another call may have drawn meanwhile: the first stays.
    if (!this.drawn.has(key)) this.drawn.set(key, release);
    return this.drawn.get(key)!;
  }

  /** The releases of images, written down before they leave; what another page wrote first is what leaves. */
  async release(protection: Protection, images: Image[], bits: Bits): Promise<Left[]> {
    const keys = await Promise.all(images.map((image) => keyOf(protection, image)));
    const previews: Release[] = [];
    for (const image of images) {
      const preview = await this.preview(protection, image, bits);
      checkDiffers(protection, image, preview);
      previews.push(preview);
    }
    void navigator.storage.persist(); // or the browser may forget the ledger where it lacks space
    const transaction = this.database.transaction("releases", "readwrite", { durability: "strict" });
    const store = transaction.objectStore("releases");
    const written = new Promise<void>((resolve, reject) => {
      transaction.oncomplete = () => resolve();
      transaction.onabort = transaction.onerror = () =>
        reject(new PageError(`nothing was sent: the ledger cannot be written (${transaction.error?.message})`));
    });
    const releases = keys.map(async (key, i) => {
      const kept = await done<Entry | undefined>(store.get(key));
      if (kept) return { release: kept.release ?? previews[i], number: kept.number };
      const number = crypto.getRandomValues(new Uint8Array(16));
      store.put({ key, time: Date.now(), release: protection.drawsNoise ? previews[i] : null, number } satisfies Entry);
      return { release: previews[i], number };
    });
    const [found] = await Promise.all([Promise.all(releases), written]);
    return found;
  }

  async counts(): Promise<{ images: number; releases: number }> {
    const keys = (await done(this.store("readonly").getAllKeys())) as string[];
    return { images: new Set(keys.map((key) => key.split(" ")[0])).size, releases: keys.length };
  }

  private store(mode: IDBTransactionMode): IDBObjectStore {
    return this.database.transaction("releases", mode).objectStore("releases");
  }
}

async function keyOf({ spec, madeOf }: Protection, image: Image): Promise<string> {
  return `${await digest(image)} ${spec}@${madeOf ?? ""}`;
}

function done<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(new PageError(`the ledger cannot be read: ${request.error?.message}`));
  });
}
