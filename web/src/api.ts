/** The HTTP API of sfumato.serve, as far as this page uses it. */

import { PageError } from "./errors";
import type { Release } from "./protect/release";
import { MEDIA_TYPE, encode } from "./wire";

export interface Model {
  name: string;
  kind: string;
  specs: string[]; // the protections that it was trained for
  naming?: string[]; // of each, what is proved of who a release shows
  made_of: (string | null)[]; // of each, the SHA-256 of the artefact that it names
  shape: [number, number, number];
  device_side?: boolean; // whether the server hands out what makes the codes that it takes
}

export interface Classifier {
  id: string;
  name: string;
  model: string;
}

interface ClassInfo {
  label: string;
  examples: number;
}

interface Guess {
  label: string;
  probability: number | null; // null: withheld by the service
  distance: number | null;
}

export interface Answer {
  guesses: Guess[];
  none_of_these: boolean | null; // null: nobody measured when a distance is too large
}

export interface Enrolled {
  new: number;
  known: number;
  examples: string[]; // ids, those of the new ones first
}

export interface KeyInfo {
  id: string;
  name: string;
  role: string;
  rate: number | null; // requests a minute
  quota: number | null; // examples stored
  created: string; // ISO 8601
  expires?: string | null; // from when it is worthless
  revoked: string | null;
}

const MOST_IMAGES = 64; // of one request

/** State: the user's key, which is written nowhere. */
export class Api {
  constructor(
    private readonly server: string,
    private readonly key: string,
  ) {}

  models(): Promise<Model[]> {
    return this.ask("GET", "models");
  }

  /** The file by which this browser makes the codes that a model takes. */
  async deviceSide({ name }: Model): Promise<Blob> {
    return (await this.reply("GET", `models/${encodeURIComponent(name)}/device`)).blob();
  }

  classifiers(): Promise<Classifier[]> {
    return this.ask("GET", "classifiers");
  }

  create(name: string, model: string): Promise<Classifier> {
    return this.ask("POST", "classifiers", JSON.stringify({ name, model }), "application/json");
  }

  delete(classifier: Classifier): Promise<void> {
    return this.ask("DELETE", path(classifier));
  }

  classes(classifier: Classifier): Promise<ClassInfo[]> {
    return this.ask("GET", path(classifier, "classes"));
  }

  /** Sent twice, the same releases are enrolled once. The ids are those of the new examples. */
  async enrol(classifier: Classifier, label: string, releases: Release[]): Promise<Enrolled> {
    const enrolled: Enrolled = { new: 0, known: 0, examples: [] };
    for (const body of bodiesOf(releases)) {
      const resource = path(classifier, "classes", label, "examples");
      const part = await this.ask<Enrolled>("POST", resource, body, MEDIA_TYPE);
      enrolled.new += part.new;
      enrolled.known += part.known;
      enrolled.examples.push(...part.examples.slice(0, part.new));
    }
    return enrolled;
  }

  forgetClass(classifier: Classifier, label: string): Promise<void> {
    return this.ask("DELETE", path(classifier, "classes", label));
  }

  forgetExample(classifier: Classifier, example: string): Promise<void> {
    return this.ask("DELETE", path(classifier, "examples", example));
  }

  async classify(classifier: Classifier, releases: Release[]): Promise<Answer[]> {
    const answers: Answer[] = [];
    for (const body of bodiesOf(releases)) {
      const resource = `${path(classifier, "classify")}?top=5`;
      answers.push(...(await this.ask<{ images: Answer[] }>("POST", resource, body, MEDIA_TYPE)).images);
    }
    return answers;
  }

  keys(): Promise<KeyInfo[]> {
    return this.ask("GET", "keys");
  }

  createKey(name: string, role: string): Promise<KeyInfo & { secret: string }> {
    return this.ask("POST", "keys", JSON.stringify({ name, role }), "application/json");
  }

  revokeKey(id: string): Promise<void> {
    return this.ask("DELETE", `keys/${encodeURIComponent(id)}`);
  }

  private async ask<T>(method: string, resource: string, body?: BodyInit, type?: string): Promise<T> {
    const text = await (await this.reply(method, resource, body, type)).text();
    return (text ? JSON.parse(text) : undefined) as T;
  }

  private async reply(method: string, resource: string, body?: BodyInit, type?: string): Promise<Response> {
    let response: Response;
    try {
      response = await fetch(`${this.server}/v1/${resource}`, {
        method,
        body,
        headers: { "x-api-key": this.key, ...(type ? { "content-type": type } : {}) },
        credentials: "omit",
        cache: "no-store",
        redirect: "error", // the key is for this server alone
        referrerPolicy: "no-referrer",
      });
    } catch {
      throw new PageError("the server does not answer: check the connection, and try again");
    }
    if (!response.ok) {
      throw new PageError(problemOf(await response.text()) ?? `the server refused this with status ${response.status}`);
    }
    return response;
  }
}

function bodiesOf(releases: Release[]): Uint8Array<ArrayBuffer>[] {
  return releases.flatMap((_, i) => (i % MOST_IMAGES ? [] : [encode(releases.slice(i, i + MOST_IMAGES))]));
}

function path({ id }: Classifier, ...parts: string[]): string {
  // Browsers take these out of an address, which is then another one: that of the classifier itself.
  if (parts.some((part) => part === "." || part === "..")) throw new PageError("a name of dots alone has no address");
  return ["classifiers", id, ...parts].map(encodeURIComponent).join("/");
}

/** The `detail` of a problem document (RFC 9457), which says what to do. */
function problemOf(text: string): string | null {
  try {
    const { detail } = JSON.parse(text);
    return typeof detail === "string" ? detail : null;
  } catch {
    return null;
  }
}
