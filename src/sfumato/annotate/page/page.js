"use strict";
// Each answer is kept in this browser at once. The file that people save and send back has all of them.
(() => {
  const get = (id) => document.getElementById(id);
  const { campaign, annotator, choose, cannotTell, items } = JSON.parse(get("campaign").textContent);
  const KEYS = "1234567890abcdefghijklmnopqrst"; // as many as an item may have options; "u" undoes
  const NAME = `sfumato:${campaign}:${annotator}`;
  const random = () => [...crypto.getRandomValues(new Uint8Array(8))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

  // browser: tells two people who were given one page apart. given: answers, oldest first. open: changes that
  // are in no saved file.
  let state = { browser: random(), given: [], open: 0 };
  let kept = true; // whether this browser keeps answers
  let shown = null; // the question on the page

  const images = (choose ? ["Picture"] : ["Original", "Reconstruction"]).map((name) => {
    const figure = document.createElement("figure"), frame = document.createElement("div"), image = new Image();
    frame.className = "frame";
    image.alt = `${name} to judge`;
    image.draggable = false;
    image.addEventListener("load", () => enlarge(image));
    frame.append(image);
    figure.append(frame);
    if (!choose) figure.append(Object.assign(document.createElement("figcaption"), { textContent: name }));
    get("pictures").append(figure);
    return image;
  });

  function read() {
    if (!kept) return; // what is stored is older than this page's
    try {
      state = JSON.parse(localStorage.getItem(NAME)) || state;
    } catch {
      kept = false;
    }
  }

  function write() {
    try {
      localStorage.setItem(NAME, JSON.stringify(state));
    } catch {
      kept = false;
    }
  }

  const next = () => {
    const answered = new Set(state.given.map((one) => one.item));
    return items.find((one) => !answered.has(one.item)) || null;
  };

  function render() {
    const { given, open } = state;
    get("progress").textContent = `${given.length} of ${items.length} answered`;
    get("bar").max = items.length;
    get("bar").value = given.length;
    get("state").textContent = open ? `${open} not in a saved file yet` : given.length ? "All in your saved file" : "";
    get("state").classList.toggle("open", open > 0 && !kept);
    get("notice").textContent = "This browser keeps no answers for this page: save them as a file before you close it.";
    get("notice").hidden = kept;
    get("undo").disabled = !given.length;
    const question = next();
    get("asking").hidden = !question;
    get("finished").hidden = Boolean(question);
    if (question && question !== shown) show(question);
    if (!question && shown) get("thanks").focus({ preventScroll: true });
    shown = question;
  }

  function show(question) {
    question.images.forEach((data, place) => { images[place].src = data; });
    const options = get("options");
    const inside = options.contains(document.activeElement) || document.activeElement === get("cannot-tell");
    options.replaceChildren(...question.options.map((name, place) => {
      const button = document.createElement("button"), key = document.createElement("kbd"), label = document.createElement("span");
      // Of two options, the first letters are easier to remember than numbers.
      const letter = choose ? KEYS[place] : name[0];
      button.type = "button";
      button.dataset.key = letter;
      button.setAttribute("aria-keyshortcuts", letter);
      key.ariaHidden = "true"; // said by aria-keyshortcuts
      key.textContent = letter.toUpperCase();
      label.textContent = choose ? name : name[0].toUpperCase() + name.slice(1);
      button.append(key, label);
      button.addEventListener("click", () => answer(name));
      return button;
    }));
    // The button that was pressed is gone: go on from the question.
    if (inside) get("question").focus({ preventScroll: true });
  }

  function enlarge(image) {
    const { naturalWidth: width, naturalHeight: height } = image;
    if (!width) return;
    image.width = Math.max(1, Math.floor(image.parentElement.clientWidth / Math.max(width, height))) * width;
  }

  function change(how) {
    read(); // another window may have answered
    how();
    write();
    render();
  }

  function answer(name) {
    const asked = shown;
    if (!asked || !images.every((image) => image.complete && image.naturalWidth)) return;
    change(() => {
      if (state.given.some((one) => one.item === asked.item)) return;
      state.given.push({ item: asked.item, answer: name, time: Date.now() / 1000 });
      state.open += 1;
    });
  }

  function undo() {
    change(() => {
      if (state.given.pop()) state.open += 1;
    });
  }

  function save() {
    change(() => {
      const content = { campaign, annotator, kind: "people", browser: state.browser, saved: Date.now() / 1000, answers: state.given };
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([JSON.stringify(content)], { type: "application/json" }));
      link.download = `${annotator.replace(" ", "-")}.json`;
      link.click();
      state.open = 0;
    });
  }

  get("question").textContent = choose ? "What does this picture show?" : "Do both pictures show the same?";
  get("help").textContent = choose
    ? "Choose what you recognise. If you cannot, or what you see is not listed, choose “cannot tell”."
    : "Choose “same” if both show the same person or, where they show no people, the same kind of animal or thing. Some pictures do not belong together.";
  get("pictures").className = choose ? "one" : "two";
  get("options").className = choose ? "many" : "few";
  get("cannot-tell").addEventListener("click", () => answer(cannotTell));
  get("undo").addEventListener("click", undo);
  get("save").addEventListener("click", save);
  get("keys").addEventListener("change", () => {
    document.body.classList.toggle("without-keys", !get("keys").checked);
  });
  addEventListener("resize", () => images.forEach(enlarge));
  addEventListener("storage", () => { read(); render(); });
  addEventListener("beforeunload", (event) => { if (state.open && !kept) event.preventDefault(); });
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.repeat || !get("keys").checked) return;
    const key = event.key.toLowerCase();
    if (key === " ") {
      if (event.target.closest("button, input")) return; // there, space presses the button
      answer(cannotTell);
    } else if (key === "u" || key === "backspace") {
      undo();
    } else {
      const button = [...get("options").children].find((one) => one.dataset.key === key);
      if (!button || get("asking").hidden) return;
      button.click();
    }
    event.preventDefault();
  });
  read();
  write();
  render();
})();
