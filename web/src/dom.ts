/** What is on the page, by id, and what is put there. */

export function element<T extends HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element ${id}`);
  return found as T;
}

export function made<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Partial<HTMLElementTagNameMap[K]> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const found = Object.assign(document.createElement(tag), properties);
  found.append(...children);
  return found;
}

export const select = (id: string) => element<HTMLSelectElement>(id);
export const input = (id: string) => element<HTMLInputElement>(id);
