/**
 * What pictures may leave as for a classifier of a server: as this browser's user agreed to, and not otherwise.
 *
 * The server says how it wants pictures. The first that are sent agree to that, as the page shows it; another
 * protection, or larger pictures for the same one, need the user's word again.
 */

import type { Classifier } from "./api";
import type { Shape } from "./image";

/** How pictures leave: the protection, and the size that they are made first. */
export function demanded(spec: string, { channels, height, width }: Shape): string {
  return `${spec} of images of ${channels}x${height}x${width}`;
}

export function pinned(server: string, classifier: Classifier): string | null {
  return localStorage.getItem(keyOf(server, classifier));
}

export function pin(server: string, classifier: Classifier, demand: string): void {
  localStorage.setItem(keyOf(server, classifier), demand);
}

// By the name: the server chooses the id.
function keyOf(server: string, { name }: Classifier): string {
  return `sfumato-pin ${JSON.stringify([server, name])}`;
}
