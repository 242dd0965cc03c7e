"use strict";
// Answers are kept in the browser until the server has said that they are on its disk, each under a name of its
// own, so that one that is sent twice is kept once there.
(() => {
  const get = (id) => document.getElementById(id);
  const { token, cannotTell } = document.body.dataset;
  const KEYS = "1234567890abcdefghijklmnopqrst"; // as many as an item may have options; "u" undoes
  const PREFIX = `sfumato:${token}:`;
  const FIRST_PAUSE = 500, LONGEST_PAUSE = 10000, PATIENCE = 15000, LOAD_PAUSE = 1000; // milliseconds
  const NOT_LOADED = "A picture did not load, trying again.";
  const images = [...document.querySelectorAll("#pictures img")];

  let upcoming = []; // questions, the first is shown
  let answered = 0, total = null; // as the server counts
  let shown = null; // the question on the page
  let sending = false, late = false, stopped = false; // late: the last attempt failed
  let wake = () => {};
  const passed = []; // questions that were answered since the page was opened, for undo without a wait
  const pending = restore(); // what the server has not confirmed, oldest first

  function restore() {
    const found = [];
    try {
      for (let i = 0; i < localStorage.length; i++) {
        const key = localStorage.key(i);
        if (key.startsWith(PREFIX)) found.push(JSON.parse(localStorage.getItem(key)));
      }
    } catch { /* no storage here: this page still holds what it sends */ }
    return found.sort((one, other) => one.at - other.at);
  }

  function keep(one) {
    pending.push(one);
    try { localStorage.setItem(PREFIX + one.ticket, JSON.stringify(one)); } catch { /* as above */ }
  }

  function forget(one) {
    pending.splice(pending.indexOf(one), 1);
    try { localStorage.removeItem(PREFIX + one.ticket); } catch { /* as above */ }
  }

  function ticket() {
    // crypto.randomUUID is missing where the page comes over plain HTTP from another machine.
    return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  async function ask(what, sent) {
    const request = { signal: AbortSignal.timeout(PATIENCE), cache: "no-store" };
    if (sent) Object.assign(request, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(sent) });
    const response = await fetch(`/a/${token}/${what}`, request);
    if (response.status === 404) stop("This link has ended. Ask whoever sent it to you for a new one.");
    if (response.status === 422) stop("The server refused an answer, which does not fit its questions. Reload the page, and tell whoever sent you the link.");
    if (!response.ok) throw new Error(response.status);
    return response.json();
  }

  function stop(words) {
    stopped = true;
    say(words);
  }

  function say(words) {
    get("notice").textContent = words;
    get("notice").hidden = !words;
  }

  async function send() {
    if (sending) {
      wake();
      return;
    }
    sending = true;
    let pause = FIRST_PAUSE;
    while ((pending.length || total === null) && !stopped) {
      const one = pending[0];
      try {
        const reply = await (one ? ask(one.undo ? "undo" : "answer", one) : ask("next"));
        if (one) forget(one);
        late = false;
        if (reply.before && reply.before !== one.answer) say(`Another window had answered “${reply.before}” here. Your last answer, “${one.answer}”, is the one that counts.`);
        else if (reply.before) say(`Another window had answered this one already, and the same: “${one.answer}”.`);
        take(reply);
        pause = FIRST_PAUSE;
      } catch {
        late = true;
        render();
        await new Promise((go) => { wake = go; setTimeout(go, pause); });
        pause = Math.min(2 * pause, LONGEST_PAUSE);
      }
    }
    sending = false;
    render();
  }

  function take(reply) {
    ({ answered, total } = reply);
    // An undo on its way decides which question is next.
    if (pending.some((one) => one.undo)) return;
    const mine = new Set(pending.map((one) => one.item));
    upcoming = reply.items.filter((question) => !mine.has(question.item));
    render();
  }

  function render() {
    const before = pending.reduce((sum, one) => sum + (one.undo ? -1 : 1), answered);
    get("progress").textContent = total === null ? "Loading …" : `${before} of ${total} answered`;
    get("bar").max = total || 1;
    get("bar").value = before;
    const open = pending.length, failing = late || stopped;
    const saving = get("saving");
    saving.textContent = !open ? (total !== null ? "All saved" : failing ? "No connection" : "") : failing ? `${open} not yet saved` : "Saving …";
    saving.classList.toggle("open", failing && open > 0);
    // Read out when something is wrong, not with every answer.
    saving.setAttribute("aria-live", failing ? "assertive" : "off");
    get("undo").disabled = stopped || before < 1;
    const question = upcoming[0] || null;
    get("asking").hidden = !question;
    get("finished").hidden = !(total !== null && !question && !open);
    get("waiting").hidden = !(total !== null && !question && open);
    if (question && (!shown || shown.item !== question.item)) show(question);
    if (!question && shown && !open) get("thanks").focus({ preventScroll: true });
    shown = question;
    for (const next of upcoming.slice(1, 3)) for (const key of next.images) new Image().src = `/images/${key}`;
  }

  function show(question) {
    question.images.forEach((key, place) => {
      images[place].removeAttribute("src"); // or the one before would stay until this one is there
      images[place].src = `/images/${key}`;
    });
    const options = get("options");
    const inside = options.contains(document.activeElement) || document.activeElement === get("cannot-tell");
    options.replaceChildren(...question.options.map((name, place) => {
      const button = document.createElement("button"), key = document.createElement("kbd"), label = document.createElement("span");
      // Of two options, the first letters are easier to remember than numbers.
      const letter = options.className === "few" ? name[0] : KEYS[place];
      button.type = "button";
      button.dataset.key = letter;
      button.setAttribute("aria-keyshortcuts", letter);
      key.ariaHidden = "true"; // said by aria-keyshortcuts
      key.textContent = letter.toUpperCase();
      label.textContent = options.className === "few" ? name[0].toUpperCase() + name.slice(1) : name;
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
    const times = Math.max(1, Math.floor(image.parentElement.clientWidth / Math.max(width, height)));
    image.width = times * width;
  }

  function answer(name) {
    const question = upcoming[0];
    if (!question || stopped || !images.every((image) => image.complete && image.naturalWidth)) return;
    say("");
    passed.push(upcoming.shift());
    keep({ ticket: ticket(), at: Date.now() + pending.length / 1000, item: question.item, answer: name });
    render();
    send();
  }

  function undo() {
    if (get("undo").disabled) return;
    say("");
    const last = passed.pop();
    if (last) upcoming.unshift(last);
    keep({ ticket: ticket(), at: Date.now() + pending.length / 1000, undo: true });
    render();
    send();
  }

  get("cannot-tell").addEventListener("click", () => answer(cannotTell));
  get("undo").addEventListener("click", undo);
  get("keys").addEventListener("change", () => {
    document.body.classList.toggle("without-keys", !get("keys").checked);
  });
  for (const image of images) {
    image.addEventListener("load", () => {
      enlarge(image);
      if (get("notice").textContent === NOT_LOADED) say("");
    });
    image.addEventListener("error", () => {
      const { src } = image;
      say(NOT_LOADED);
      setTimeout(() => { if (image.src === src) image.src = src; }, LOAD_PAUSE);
    });
  }
  addEventListener("resize", () => images.forEach(enlarge));
  addEventListener("online", () => wake());
  addEventListener("beforeunload", (event) => { if (pending.length) event.preventDefault(); });
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.repeat || !get("keys").checked) return;
    const key = event.key.toLowerCase();
    const onControl = event.target.closest("button, input, a");
    if (key === " ") {
      if (onControl) return; // there, space presses the button
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
  send();
})();
