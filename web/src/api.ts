/** The HTTP API of sfumato.serve, as far as this page uses it. */

import { PageError } from "./errors";
import type { Left } from "./ledger";
import type { Release } from "./protect/release";
import { type Answer, Table } from "./table";
import { LABELLED_TYPE, MEDIA_TYPE, encode, labelled } from "./wire";

export interface Model {
  name: string;
  kind: string;
  spec: string; // the protection that it was trained for
  naming?: string; // what is proved of who a release shows
  made_of: string | null; // the SHA-256 of the artefact that the spec names
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

export interface Enrolled {
  new: number;
  known: number; // enrolled before, or given twice; with the new ones, all that were sent
  total: number; // examples of the class now
  examples: string[]; // ids of the new ones
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

  /** A picture that is sent twice is enrolled once; pictures whose releases are equal count each. */
  async enrol(classifier: Classifier, label: string, left: Left[]): Promise<Enrolled> {
    path(classifier, label); // which refuses a name that has no address
    const enrolled: Enrolled = { new: 0, known: 0, total: 0, examples: [] };
    for (const part of partsOf(left)) {
      const ids = await Promise.all(part.map(({ number }) => this.idOf(number, classifier, label)));
      const body = labelled(ids.map((id) => ({ label, id })), encode(part.map(({ release }) => release)));
      const resource = path(classifier, "examples");
      const answer = await this.ask<{ classes: Enrolled[] }>("POST", resource, body, LABELLED_TYPE);
      const [became] = answer.classes;
      enrolled.new += became.new;
      enrolled.known += became.known;
      enrolled.total = became.total;
      enrolled.examples.push(...became.examples.slice(0, became.new));
    }
    return enrolled;
  }

  /** By which one class of this server knows an example again: see example_id in sfumato.device.client.outgoing. */
  private async idOf(number: Uint8Array<ArrayBuffer>, { id }: Classifier, label: string): Promise<string> {
    const key = await crypto.subtle.importKey("raw", number, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
    const names = [new URL(this.server || location.origin, location.href).href, id, label.normalize("NFC")];
    const signed = await crypto.subtle.sign("HMAC", key, new TextEncoder().encode(names.join("\n")));
    return [...new Uint8Array(signed, 0, 16)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  forgetClass(classifier: Classifier, label: string): Promise<void> {
    return this.ask("DELETE", path(classifier, "classes", label));
  }

  forgetExample(classifier: Classifier, example: string): Promise<void> {
    return this.ask("DELETE", path(classifier, "examples", example));
  }

  async classify(classifier: Classifier, releases: Release[]): Promise<Answer[]> {
    const answers: Answer[] = [];
    for (const part of partsOf(releases)) {
      const resource = `${path(classifier, "classify")}?top=5`;
      answers.push(...(await this.ask<{ images: Answer[] }>("POST", resource, encode(part), MEDIA_TYPE)).images);
    }
    return answers;
  }

  /** The answers of a classifier to all codes; `known`, if that is still the one; null if its model has none. */
  async table(classifier: Classifier, known: Table | null): Promise<Table | null> {
    const resource = path(classifier, "table");
    const more: Record<string, string> = known ? { "if-none-match": known.tag } : {};
    const reply = await this.fetched("GET", resource, undefined, more);
    if (reply.status === 304) return known;
    if (reply.status === 409) return null; // then it is asked, which says what is missing
    await checked(reply);
    return Table.read(await reply.arrayBuffer(), reply.headers.get("etag") ?? "");
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
    return checked(await this.fetched(method, resource, body, type ? { "content-type": type } : {}));
  }

  private async fetched(
    method: string,
    resource: string,
    body: BodyInit | undefined,
    headers: Record<string, string>,
  ): Promise<Response> {
    try {
      return await fetch(`${this.server}/v1/${resource}`, {
        method,
        body,
        headers: { "x-api-key": this.key, ...headers },
        credentials: "omit",
        cache: "no-store",
        redirect: "error", // the key is for this server alone
        referrerPolicy: "no-referrer",
      });
    } catch {
      throw new PageError("the server does not answer: check the connection, and try again");
    }
  }
}

async function checked(response: Response): Promise<Response> {
  if (!response.ok) {
    throw new PageError(problemOf(await response.text()) ?? `the server refused this with status ${response.status}`);
  }
  return response;
}

function partsOf<T>(all: T[]): T[][] {
  return all.flatMap((_, i) => (i % MOST_IMAGES ? [] : [all.slice(i, i + MOST_IMAGES)]));
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
