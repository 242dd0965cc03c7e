/**
 * What this browser has released of which image: the same image and spec always leave with the same noise, and
 * at most MOST_RELEASES different releases of a picture leave.
 *
 * Drawing noise anew would let whoever collects releases average it away. Pictures are known by the digests of
 * their pixels and of their file: a copy that was changed is another one. Originals are not kept. Whoever reads
 * the ledger can tell whether a picture was released here.
 */

import { PageError } from "./errors";
import { type Image, digest, digestOf } from "./image";
import type { Bits } from "./noise/samplers";
import { type Protection, type Release, checkDiffers } from "./protect/release";

export const MOST_RELEASES = 5; // as sfumato.device.ledger.tables.DEFAULT_BUDGETS has it for every image

/** A picture, its pixels in the shape of a model, and the file that they were read from. */
export interface Original {
  name: string;
  image: Image;
  file: Blob;
}

interface Entry {
  key: string; // digest of the image, spec, and what the protection is made of
  time: number; // milliseconds since 1970
  release: Release | null; // null where the protection draws no noise, and would give the same again
  number: Uint8Array<ArrayBuffer>; // random: from it come the ids by which services know the release again
  file?: string; // digest of the file; not in ledgers of an earlier page
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
    const request = indexedDB.open("sfumato-ledger", 2);
    request.onupgradeneeded = ({ oldVersion }) => {
      if (!oldVersion) request.result.createObjectStore("releases", { keyPath: "key" });
      request.transaction!.objectStore("releases").createIndex("file", "file");
    };
    const blocked = new Promise<never>((_, reject) => {
      request.onblocked = () => reject(new PageError("an older tab of this page is open: close it, then load this one again"));
    });
    const database = await Promise.race([done(request), blocked]);
    database.onversionchange = () => database.close();
    return new Ledger(database);
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

  /**
   * The releases of pictures, written down before they leave; what another page wrote first is what leaves.
   *
   * Of a picture that has no release left, nothing is written, and nothing of the others.
   */
  async release(protection: Protection, originals: Original[], bits: Bits): Promise<Left[]> {
    const keys = await Promise.all(originals.map(({ image }) => keyOf(protection, image)));
    const files = await Promise.all(originals.map(async ({ file }) => digestOf(await file.arrayBuffer())));
    const previews: Release[] = [];
    for (const { image } of originals) {
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
    written.catch(() => {}); // it is awaited below, unless a picture is refused first
    const found: Left[] = [];
    for (const [i, key] of keys.entries()) {
      const kept = await done<Entry | undefined>(store.get(key));
      const number = kept?.number ?? crypto.getRandomValues(new Uint8Array(16));
      found.push({ release: kept?.release ?? previews[i], number });
      if (kept) continue;
      if ((await before(store, key, files[i])) >= MOST_RELEASES) {
        transaction.abort();
        throw new PageError(
          `nothing was sent: ${MOST_RELEASES} different releases of ${originals[i].name} have left this browser, the ` +
            "most that may: more would tell more of it. Remove it, or choose a setting that it left by before",
        );
      }
      const release = protection.drawsNoise ? previews[i] : null;
      store.put({ key, time: Date.now(), release, number, file: files[i] } satisfies Entry);
    }
    await written;
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

/** How many different releases of a picture have left: by the pixels of a key, and by its file, in any shape. */
async function before(store: IDBObjectStore, key: string, file: string): Promise<number> {
  const pixels = key.slice(0, key.indexOf(" ") + 1);
  const ofPixels = await done(store.getAllKeys(IDBKeyRange.bound(pixels, `${pixels}\uffff`)));
  const ofFile = await done(store.index("file").getAllKeys(file));
  return new Set([...ofPixels, ...ofFile]).size;
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
