/** The page: what the user does, in terms of the other modules. */

import { Api, type Classifier, type Model } from "./api";
import { Camera } from "./camera";
import { element, input, made, select } from "./dom";
import { PageError, messageOf } from "./errors";
import type { Image, Shape } from "./image";
import { Keys } from "./keys";
import { Ledger, type Left, MOST_RELEASES } from "./ledger";
import { freshBits } from "./noise/samplers";
import { codeSizeOf, exported } from "./onnx";
import { paint, read } from "./pictures";
import { demanded, pin, pinned } from "./pins";
import type { CodeSize } from "./protect/code";
import { sentence } from "./protect/guarantee";
import { type Protection, type Release, seen, written } from "./protect/release";
import { EXAMPLES, nameOf, parse, sliders, valueIn, withValue } from "./protect/spec";
import { type Answer, MOST_BITS, type Table } from "./table";

const SERVER: string = import.meta.env.VITE_SERVER;

const SHAPE: Shape = { channels: 3, height: 84, width: 84 }; // of pictures, until a model says another

const FEATURE_NOISE = 0.5; // of a private feature, which the user may change

/** A picture of the user's. State: its pixels in the shape of the model, and what was said about it. */
interface Picture {
  name: string;
  file: Blob;
  image: Image;
  answer: Answer | null;
}

/** Whether a protection needs an exported artefact. */
function external(spec: string): boolean {
  return nameOf(spec) === "mask" || hasOwnNoise(spec);
}

/** Whether the noise of a protection is the user's choice, and no matter of the server's. */
function hasOwnNoise(spec: string): boolean {
  return ["feature", "code"].includes(nameOf(spec));
}

/** State: everything that the page shows. */
class Page {
  private api: Api | null = null;
  private models: Model[] = [];
  private classifiers: Classifier[] = [];
  private pictures: Picture[] = [];
  private spec = EXAMPLES[0];
  private exportedFile: Blob | null = null;
  private codeSize: CodeSize | null = null; // by the encoder of a code in that file
  private protection: Protection | null = parse(this.spec);
  private table: { of: string; table: Table } | null = null; // the answers of a classifier, by its id
  private undo: (() => Promise<void>) | null = null;
  private drawing = 0;
  private readonly keys = new Keys(
    () => this.api!,
    (action) => this.attempt(action),
    (text) => this.say(text),
  );

  constructor(private readonly ledger: Ledger) {
    this.on("connect", "submit", () => this.connect());
    this.on("create", "submit", () => this.create());
    this.on("classifiers", "change", () => this.choose());
    this.on("delete-classifier", "click", () => this.deleteClassifier());
    this.on("tenant-keys", "toggle", () => this.keys.toggled());
    this.on("create-key", "submit", () => this.keys.create());
    this.on("kinds", "change", () => this.setSpec(select("kinds").value));
    this.on("exported", "change", () => this.open(input("exported").files?.[0] ?? null));
    this.on("accept", "click", () => this.accept());
    this.on("reset", "click", () => this.setSpec(select("kinds").value));
    this.on("files", "change", () => this.addFiles(input("files")));
    this.on("photograph", "change", () => this.addFiles(input("photograph")));
    this.on("clear", "click", () => this.keep([]));
    this.on("enrol", "submit", () => this.enrol());
    this.on("classify", "click", () => this.classify());
    this.on("undo", "click", () => this.undo?.() ?? Promise.resolve());
    const camera = new Camera(
      element<HTMLDialogElement>("viewfinder"),
      (file) => this.attempt(() => this.add([file])),
    );
    this.on("camera", "click", () => camera.open());
    element("camera").hidden = !Camera.isThere();
    element("main").hidden = false;
    void this.attempt(() => this.choose());
  }

  /** Do this when that happens, with the control off meanwhile; an error is shown where it is read out. */
  private on(id: string, event: string, action: () => Promise<void>): void {
    element(id).addEventListener(event, (happened) => {
      happened.preventDefault();
      const control = (happened as SubmitEvent).submitter ?? (event === "click" ? element(id) : null);
      const button = control as HTMLButtonElement | null;
      if (button) button.disabled = true;
      void this.attempt(action).finally(() => {
        if (button) button.disabled = false;
      });
    });
  }

  private async attempt(action: () => Promise<void>): Promise<void> {
    const problem = element("problem");
    problem.hidden = true;
    try {
      await action();
    } catch (error) {
      problem.textContent = messageOf(error);
      problem.hidden = false;
      problem.scrollIntoView({ block: "nearest" });
    }
  }

  private say(text: string, undo: (() => Promise<void>) | null = null): void {
    element("status").textContent = text;
    this.undo = undo;
    element("undo").hidden = !undo;
  }

  private get classifier(): Classifier | null {
    return this.classifiers.find((each) => each.id === select("classifiers").value) ?? null;
  }

  private get model(): Model | null {
    return this.models.find((each) => each.name === this.classifier?.model) ?? null;
  }

  private get shape(): Shape {
    if (!this.model) return SHAPE;
    const [channels, height, width] = this.model.shape;
    return { channels, height, width };
  }

  /** The API and the classifier that requests are about, which are there when buttons for them are. */
  private get target(): { api: Api; classifier: Classifier } {
    return { api: this.api!, classifier: this.classifier! };
  }

  private async connect(): Promise<void> {
    const api = new Api(SERVER, input("key").value.trim());
    [this.models, this.classifiers] = await Promise.all([api.models(), api.classifiers()]);
    this.api = api;
    this.keys.close();
    element("connected").hidden = false;
    select("models").replaceChildren(
      ...this.models.map(({ name, spec }) => made("option", { value: name }, `${name} (${spec})`)),
    );
    element<HTMLDetailsElement>("new-classifier").open = !this.classifiers.length;
    this.listClassifiers();
    this.say("Connected.");
    element("classifiers").focus();
    await this.choose();
  }

  private listClassifiers(chosen?: Classifier): void {
    select("classifiers").replaceChildren(
      ...this.classifiers.map((each) => made("option", { value: each.id }, `${each.name} (${each.model})`)),
      ...(this.classifiers.length ? [] : [made("option", { value: "" }, "none yet: create one")]),
    );
    if (chosen) select("classifiers").value = chosen.id;
  }

  private async create(): Promise<void> {
    const created = await this.api!.create(input("name").value.trim(), select("models").value);
    this.classifiers.push(created);
    this.listClassifiers(created);
    input("name").value = "";
    element<HTMLDetailsElement>("new-classifier").open = false;
    this.say(`Created ${created.name}.`);
    await this.choose();
  }

  private async deleteClassifier(): Promise<void> {
    const { api, classifier } = this.target;
    if (!confirm(`Delete ${classifier.name}, with all of its classes? The server forgets them for good.`)) return;
    await api.delete(classifier);
    this.classifiers = this.classifiers.filter((each) => each !== classifier);
    this.listClassifiers();
    this.say(`Deleted ${classifier.name}.`);
    await this.choose();
  }

  /** Show the chosen classifier, and protect as its model wants it. */
  private async choose(): Promise<void> {
    const { classifier, model, shape } = this;
    element("actions").hidden = true; // until pictures have the shape of the model
    element("delete-classifier").hidden = !classifier;
    element("enrolled").hidden = !classifier;
    const specs = model ? [model.spec] : EXAMPLES;
    select("kinds").replaceChildren(
      ...specs.map((each) => made("option", { value: each }, model ? each : nameOf(each))),
    );
    this.exportedFile = this.codeSize = null;
    input("exported").value = "";
    const handedOut = model?.device_side ? await this.api!.deviceSide(model) : null;
    if (this.classifier !== classifier) return; // another one was chosen meanwhile
    if (handedOut) [this.exportedFile, this.codeSize] = [handedOut, await codeSizeOf(handedOut)];
    const { pictures } = this;
    const images = await Promise.all(pictures.map((each) => read(each.file, shape)));
    if (this.classifier !== classifier) return; // another one was chosen meanwhile
    pictures.forEach((each, i) => (each.image = images[i]));
    const agreed = specs.find((each) => demanded(each, shape) === this.pinned) ?? specs[0];
    select("kinds").value = agreed;
    await this.setSpec(agreed);
    if (classifier) await this.listClasses();
  }

  private async open(file: Blob | null): Promise<void> {
    this.exportedFile = file;
    try {
      this.codeSize = file && (await codeSizeOf(file));
    } finally {
      await this.setSpec(this.spec);
    }
  }

  private async setSpec(spec: string): Promise<void> {
    const unsaid = nameOf(spec) === "feature" && valueIn(spec, "noise") === undefined;
    this.spec = unsaid ? withValue(spec, "noise", FEATURE_NOISE) : spec;
    this.listSliders();
    await this.protect();
  }

  /** Take the protection that the spec names; what was answered is about another release. */
  private async protect(): Promise<void> {
    const { spec } = this;
    element("export").hidden = !external(spec) || this.isHandedOut;
    element("exported-help").hidden = !external(spec);
    element("exported-help").textContent = this.isHandedOut
      ? "The server handed out the network that makes codes. It runs in this browser: pictures are not sent."
      : "This model needs the device side of its artefact, the .onnx file beside it, which `sfumato export` writes. " +
        "It runs in this browser, and is not sent.";
    element("pixels").hidden = hasOwnNoise(spec);
    this.protection = null;
    for (const each of this.pictures) each.answer = null;
    try {
      if (!external(spec)) this.protection = parse(spec);
      else if (this.exportedFile) {
        const found = await exported(this.exportedFile, spec, this.madeOf);
        if (spec === this.spec) this.protection = found; // and no slider was moved meanwhile
      }
    } finally {
      await this.show();
    }
  }

  private get isHandedOut(): boolean {
    return this.model?.device_side === true;
  }

  private get madeOf(): string | null {
    return this.model?.made_of ?? null;
  }

  /** Whether what this spec makes is what the model was trained for. */
  private get fits(): boolean {
    const { spec } = this;
    const wanted = this.model?.spec;
    return wanted === spec || (wanted !== undefined && hasOwnNoise(spec) && nameOf(wanted) === nameOf(spec));
  }

  /** How pictures would leave, but for noise that is the user's own. */
  private get demand(): string {
    return demanded(external(this.spec) ? select("kinds").value : this.spec, this.shape);
  }

  /** What is proved of who a release shows, as the service says; "" of a setting that it does not demand. */
  private get naming(): string {
    return (this.model?.spec === this.spec && this.model?.naming) || "";
  }

  private get pinned(): string | null {
    return this.classifier && pinned(SERVER, this.classifier);
  }

  private get changed(): boolean {
    return this.fits && this.pinned !== null && this.pinned !== this.demand;
  }

  private async accept(): Promise<void> {
    pin(SERVER, this.target.classifier, this.demand);
    await this.show();
  }

  private listSliders(): void {
    const row = element("parameters");
    row.querySelectorAll(".slider").forEach((each) => each.remove());
    for (const { key, steps } of sliders(this.spec, this.codeSize)) {
      const value = valueIn(this.spec, key) ?? Infinity;
      const most = key === "cell" ? Math.min(this.shape.height, this.shape.width) : Infinity;
      const all = [...new Set([...steps, value])].filter((each) => each <= most).sort((a, b) => a - b);
      const slider = made("input", { type: "range", id: `slider-${key}` });
      slider.max = String(all.length - 1);
      slider.value = String(all.indexOf(value));
      const shown = made("output");
      const tell = (value: number) => {
        shown.textContent = value === Infinity ? "none" : String(value);
        slider.setAttribute("aria-valuetext", shown.textContent);
      };
      tell(value);
      slider.addEventListener("input", () => {
        const chosen = all[Number(slider.value)];
        tell(chosen);
        void this.attempt(() => this.slide(key, chosen));
      });
      const label = made("label", { htmlFor: slider.id }, `${key} = `, shown);
      row.append(made("div", { className: "field slider" }, label, slider));
    }
  }

  private async slide(key: string, value: number): Promise<void> {
    const all = sliders(this.spec, this.codeSize).filter((each) => each.key !== key);
    const others = () => all.map((each) => valueIn(this.spec, each.key)).join();
    const before = others();
    this.spec = withValue(this.spec, key, value);
    if (others() !== before) {
      this.listSliders();
      element(`slider-${key}`).focus();
    }
    await this.protect();
  }

  private async addFiles(source: HTMLInputElement): Promise<void> {
    const files = [...(source.files ?? [])];
    source.value = ""; // the same file may be chosen again
    await this.add(files);
  }

  private async add(files: File[]): Promise<void> {
    const added: Picture[] = [];
    const problems: string[] = [];
    for (const file of files) {
      try {
        const name = this.nameFor(file.name, added);
        added.push({ name, file, image: await read(file, this.shape), answer: null });
      } catch (error) {
        problems.push(messageOf(error));
      }
    }
    await this.keep([...this.pictures, ...added]);
    if (!problems.length) return;
    const count = files.length > 1 ? `${problems.length} of ${files.length} files were left out: ` : "";
    throw new PageError(count + problems.join("; "));
  }

  /** A name that no picture has: of two files of one name, the second gets a number. */
  private nameFor(name: string, added: Picture[]): string {
    const taken = new Set([...this.pictures, ...added].map((each) => each.name));
    let free = name;
    for (let number = 2; taken.has(free); number++) free = `${name} (${number})`;
    return free;
  }

  private async keep(pictures: Picture[]): Promise<void> {
    this.pictures = pictures;
    await this.show();
  }

  /** Paint everything anew; a later call overtakes an earlier one. */
  private async show(): Promise<void> {
    const turn = ++this.drawing;
    const { protection } = this;
    element("spec").textContent = this.spec;
    element("guarantee").textContent = protection
      ? sentence(protection.guarantee(this.shape))
      : external(this.spec)
        ? "choose the exported artefact to protect pictures"
        : "this page cannot protect pictures that way";
    element("naming").textContent = this.naming;
    element("mismatch").hidden = !this.model || this.fits;
    const { changed } = this;
    element("changed").hidden = !changed;
    element("changed-words").textContent =
      `Until now, pictures for this classifier were sent as ${this.pinned}. It now takes ${this.demand}: ` +
      `${element("guarantee").textContent}.`;
    element("first").hidden = this.pinned !== null;
    element("actions").hidden = !(this.classifier && this.pictures.length && protection && this.fits && !changed);
    element("none").hidden = this.pictures.length > 0;
    element("clear").hidden = !this.pictures.length;
    const counts = await this.ledger.counts();
    const items: HTMLElement[] = [];
    for (const picture of this.pictures) {
      const release = protection && (await this.ledger.preview(protection, picture.image, freshBits));
      if (turn !== this.drawing) return;
      items.push(this.item(picture, release));
    }
    if (turn !== this.drawing) return;
    element("pictures").replaceChildren(...items);
    element("ledger").textContent =
      `This browser's ledger: ${counts.releases} ${counts.releases === 1 ? "release" : "releases"} of ` +
      `${counts.images} ${counts.images === 1 ? "picture" : "pictures"} so far. A picture that is sent again with the ` +
      `same protection gets the same noise, and at most ${MOST_RELEASES} different releases of a picture leave.`;
  }

  private item(picture: Picture, release: Release | null): HTMLElement {
    const remove = made("button", { type: "button" }, "Remove");
    remove.setAttribute("aria-label", `Remove ${picture.name}`);
    remove.addEventListener("click", () => {
      void this.attempt(() => this.keep(this.pictures.filter((each) => each !== picture)));
    });
    const view = release && seen(release);
    return made(
      "li",
      {},
      made(
        "div",
        { className: "pair" },
        figure(picture.image, `${picture.name}, original`, "original"),
        ...(view ? [figure(view, `${picture.name}, protected`, "protected")] : []),
        ...(release && !view ? [made("p", {}, `leaves as ${written(release)}`)] : []),
      ),
      made("div", { className: "caption" }, made("span", {}, picture.name), remove),
      ...(picture.answer ? [guesses(picture.answer)] : []),
    );
  }

  /** What leaves of the pictures is written down before it does. */
  private async released(): Promise<Left[]> {
    if (this.changed) throw new PageError("nothing was sent: accept the protection that this classifier now takes");
    const left = await this.ledger.release(this.protection!, this.pictures, freshBits);
    pin(SERVER, this.target.classifier, this.demand);
    return left;
  }

  private async enrol(): Promise<void> {
    const { api, classifier } = this.target;
    const label = input("label").value.trim();
    const enrolled = await api.enrol(classifier, label, await this.released());
    const undo = async () => {
      for (const example of enrolled.examples) await api.forgetExample(classifier, example);
      await this.classesChanged();
      this.say(`Forgot ${enrolled.examples.length} again.`);
    };
    input("label").value = "";
    await this.keep([]);
    await this.listClasses();
    const known = `${enrolled.new} enrolled now, ${enrolled.known} before`;
    const examples = `${enrolled.total} ${enrolled.total === 1 ? "example" : "examples"}`;
    this.say(`${label}: ${known}; the class has ${examples}.`, enrolled.new ? undo : null);
  }

  private async classify(): Promise<void> {
    const { api, classifier } = this.target;
    const pictures = [...this.pictures];
    const here = await this.lookedUp();
    const asked = async () => {
      const left = await this.released();
      return api.classify(classifier, left.map(({ release }) => release));
    };
    const answers = here ?? (await asked());
    pictures.forEach((each, i) => (each.answer = answers[i]));
    await this.show();
    const said = pictures.map((each) => `${each.name}: ${summary(each.answer!)}`).join("; ");
    this.say(here ? `${said}. Looked up here: nothing of ${pictures.length > 1 ? "them" : "it"} was sent.` : said);
  }

  /** The answers to short codes without noise, by the classifier's table; null for everything else. */
  private async lookedUp(): Promise<Answer[] | null> {
    const { api, classifier } = this.target;
    const protection = this.protection!;
    if (protection.drawsNoise || this.changed) return null;
    const images = this.pictures.map((each) => each.image);
    const codes = await Promise.all(images.map((image) => this.ledger.preview(protection, image, freshBits)));
    if (!codes.every(({ kind, bits }) => kind === "bits" && bits! <= MOST_BITS)) return null;
    const known = this.table?.of === classifier.id ? this.table.table : null;
    const table = await api.table(classifier, known);
    this.table = table && { of: classifier.id, table };
    return table && codes.map((code) => table.answer(code));
  }

  /** Show the classes after a change: the answers were about the earlier ones. */
  private async classesChanged(): Promise<void> {
    for (const each of this.pictures) each.answer = null;
    await this.listClasses();
    await this.show();
  }

  private async listClasses(): Promise<void> {
    const { api, classifier } = this.target;
    const classes = await api.classes(classifier);
    if (this.classifier !== classifier) return; // another one was chosen meanwhile
    const items = classes.map(({ label, examples }) => {
      const forget = made("button", { type: "button" }, "Forget");
      forget.setAttribute("aria-label", `Forget ${label}`);
      forget.addEventListener("click", () => void this.attempt(() => this.forget(label)));
      const count = `${examples} ${examples === 1 ? "example" : "examples"}`;
      return made("li", {}, made("span", {}, `${label}: ${count}`), forget);
    });
    element("classes").replaceChildren(...(items.length ? items : [made("li", {}, "none yet")]));
    element("labels").replaceChildren(...classes.map(({ label }) => made("option", { value: label })));
  }

  private async forget(label: string): Promise<void> {
    const { api, classifier } = this.target;
    if (!confirm(`Forget ${label}? The server deletes its examples for good.`)) return;
    await api.forgetClass(classifier, label);
    await this.classesChanged();
    this.say(`Forgot ${label}.`);
    element("classes-heading").focus();
  }
}

function figure(image: Image, description: string, caption: string): HTMLElement {
  const canvas = made("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", description);
  paint(canvas, image);
  return made("figure", {}, canvas, made("figcaption", {}, caption));
}

function guesses({ guesses, none_of_these }: Answer): HTMLElement {
  const items = guesses.map(({ label, probability, distance }) => {
    if (probability === null) return made("li", {}, made("span", {}, label));
    const share = `${(100 * probability).toFixed(probability > 0.995 ? 0 : 1)}%`;
    const meter = made("meter", {
      value: probability,
      ...(distance === null ? {} : { title: `distance ${distance.toPrecision(3)}` }),
    });
    meter.setAttribute("aria-hidden", "true"); // the number is beside it
    return made("li", {}, made("span", {}, label), meter, made("span", { className: "share" }, share));
  });
  const verdict = none_of_these ? [made("p", {}, made("em", {}, "None of these, most likely."))] : [];
  return made("div", {}, ...verdict, made("ul", { className: "guesses" }, ...items));
}

function summary({ guesses: [best], none_of_these }: Answer): string {
  if (!best || none_of_these) return "none of the enrolled classes";
  if (best.probability === null) return best.label;
  return `${best.label}, ${(100 * best.probability).toFixed(0)}%`;
}

Ledger.open().then(
  (ledger) => new Page(ledger),
  (error) => {
    element("problem").textContent = messageOf(error);
    element("problem").hidden = false;
  },
);
