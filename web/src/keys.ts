/** The keys of the tenant, for its admins: list them, make one, revoke one. */

import type { Api, KeyInfo } from "./api";
import { element, input, made, select } from "./dom";

/** State: the list and the secret of the last key, both on the page alone, until the list is closed. */
export class Keys {
  constructor(
    private readonly api: () => Api,
    private readonly attempt: (action: () => Promise<void>) => Promise<void>,
    private readonly say: (text: string) => void,
  ) {}

  /** Another key may be that of another tenant. */
  close(): void {
    element<HTMLDetailsElement>("tenant-keys").open = false;
    this.forgetSecret();
  }

  async toggled(): Promise<void> {
    this.forgetSecret();
    if (element<HTMLDetailsElement>("tenant-keys").open) await this.list();
  }

  async create(): Promise<void> {
    const { name, role, secret } = await this.api().createKey(input("key-name").value.trim(), select("key-role").value);
    input("key-name").value = "";
    element("secret").replaceChildren(`Secret of ${name} (${role}), shown this once: `, made("code", {}, secret));
    element("secret").hidden = false;
    await this.list();
  }

  private async list(): Promise<void> {
    element("keys").replaceChildren();
    const keys = await this.api().keys();
    element("keys").replaceChildren(...keys.map((key) => this.item(key)));
  }

  private item(key: KeyInfo): HTMLElement {
    const limits = [
      ...(key.rate === null ? [] : [`${key.rate} requests a minute`]),
      ...(key.quota === null ? [] : [`${key.quota} examples`]),
      `made ${key.created.slice(0, 10)}`,
      ...(key.expires ? [`${Date.parse(key.expires) > Date.now() ? "expires" : "expired"} ${key.expires.slice(0, 10)}`] : []),
      ...(key.revoked === null ? [] : [`revoked ${key.revoked.slice(0, 10)}`]),
    ];
    const words = made("span", {}, `${key.name}: ${key.role}, ${limits.join(", ")}`);
    if (key.revoked !== null) return made("li", {}, words);
    const revoke = made("button", { type: "button" }, "Revoke");
    revoke.setAttribute("aria-label", `Revoke ${key.name}`);
    revoke.addEventListener("click", () => void this.attempt(() => this.revoke(key)));
    return made("li", {}, words, revoke);
  }

  private async revoke(key: KeyInfo): Promise<void> {
    if (!confirm(`Revoke ${key.name}? The key opens nothing from then on. What it enrolled stays.`)) return;
    await this.api().revokeKey(key.id);
    await this.list();
    this.say(`Revoked ${key.name}.`);
  }

  private forgetSecret(): void {
    element("secret").replaceChildren();
    element("secret").hidden = true;
  }
}
