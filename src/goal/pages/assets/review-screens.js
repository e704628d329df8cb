// The screens with a wall of images: a class, two classes side by side, the unsure, a search; lists.
import { act, ask, button, can, counted, el, images, model, nameOf, percent, say, send, thumb } from "./review-ask.js";
import { chooseClass, show } from "./review-dialogs.js";
import { Grid, otherClass } from "./review-grid.js";
import { junk, merge, rename, sizeOf } from "./review-inbox.js";

// What can be done with the images that are selected; `from` is the class they are shown in, or null.
export class Selection {
  constructor(grid, from, extra = []) {
    Object.assign(this, { grid, from, extra });
    this.count = el("b", { text: "" });
    const buttons = [can("move") ? button("Move", "m", () => this.move()) : null, can("reject") ? button("Reject", "r", () => this.reject()) : null,
      ...extra, button("Clear", "Esc", () => grid.clear())];
    this.root = el("div", { class: "selection", hidden: true, role: "toolbar", "aria-label": "What to do with the selected images" }, this.count, ...buttons.filter(Boolean));
    grid.changed = (number) => { this.root.hidden = !number; this.count.textContent = `${number.toLocaleString("en")} selected`; };
  }

  async move() {
    if (!this.grid.needSelection()) return;
    const chosen = this.grid.ids();
    const found = await chooseClass(`Move ${images(chosen.length)} to …`, { without: this.from === null ? [] : [this.from], fresh: can("teach") });
    if (!found) return;
    const into = found.id === undefined ? { name: found.name } : { into: found.id };
    if (await act({ kind: "move", images: chosen, ...into })) this.grid.clear();
  }

  async reject() {
    if (!this.grid.needSelection()) return;
    const classes = this.from === null || this.from < 0 ? [] : [this.from];
    if (await act({ kind: "reject", images: this.grid.ids(), classes })) this.grid.clear();
  }

  key(event) {
    if (event.key === "m" && can("move")) this.move();
    else if (event.key === "r" && can("reject")) this.reject();
    else if (event.key === "f") { const row = this.grid.current(); if (row) location.hash = `#search=${row.id}`; }
    else return this.grid.key(event);
    return true;
  }
}

export class ClassScreen {
  constructor(id) {
    this.id = Number(id);
    this.order = "typical";
    this.head = el("header", { class: "screen" });
    this.grid = new Grid({
      label: "Images of the class",
      load: (start, count) => ask("/api/images", { class: this.id, order: this.order, start, count }),
      all: async () => (await ask("/api/members", { class: this.id })).ids,
      note: (row) => (this.order === "doubt" ? otherClass(row) : percent(row.sure)),
    });
    const confirm = can("confirm") ? button("Confirm", "c", () => this.confirm()) : null;
    this.chosen = new Selection(this.grid, this.id, [confirm]);
    this.root = el("section", { "aria-label": "Class" }, this.head, this.grid.box, this.chosen.root);
  }

  async mount() {
    if (!model.byId.has(this.id)) { this.gone(); return; }
    this.draw();
    await this.grid.mount();
  }

  leave() { this.grid.leave(); }

  gone() {
    this.chosen.root.hidden = true;
    const owner = model.state.classes.find((known) => known.merged.some((one) => one.id === this.id));
    this.head.replaceChildren(el("h1", { text: "This class is not there" }), owner
      ? el("p", {}, "It counts as ", el("a", { href: `#class=${owner.id}`, dir: "auto", text: owner.name }), " now.") : el("p", { text: "It was undone, merged or junked. History has it." }));
    this.grid.box.hidden = true;
  }

  async changed(state, old) {
    if (!model.byId.has(this.id)) { this.gone(); return; }
    this.grid.box.hidden = false;
    this.draw();
    if (!old || old.version !== state.version) await this.grid.reload();
  }

  draw() {
    const known = model.byId.get(this.id);
    const tools = [["rename", "Name", "n", () => rename(this.id)], ["confirm", "Confirm", "c", () => this.confirm()], ["merge", "Merge", "g", () => merge(this.id)],
      ["split", "Split", "s", () => act({ kind: "split", classes: [this.id] })], ["junk", "Junk", "d", () => junk(this.id)]];
    const parts = known.merged.map((one) => el("span", { class: "part" }, el("span", { dir: "auto", text: one.name }),
      can("unmerge") ? el("button", { type: "button", "aria-label": `Part ${one.name} again`, text: "part", onclick: () => act({ kind: "unmerge", classes: [one.id] }) }) : null));
    this.head.replaceChildren(...[
      el("p", { class: "kicker" }, el("a", { href: "#classes", text: "Classes" })),
      el("h1", { dir: "auto", title: known.name, text: known.name }),
      el("p", { class: "soft" }, sizeOf(known), known.confirmed ? el("span", { class: "badge", text: "confirmed" }) : null),
      parts.length ? el("p", { class: "parts soft" }, "Merged into it: ", ...parts) : null,
      el("div", { class: "buttons" }, ...tools.filter(([kind]) => can(kind)).map(([, text, key, call]) => button(text, key, call)),
        button("Compare", "b", () => this.compare()),
        el("span", { class: "space" }), ...this.switches()),
    ].filter(Boolean));
  }

  switches() {
    return [["typical", "Typical first"], ["doubt", "Doubtful first"]].map(([order, text]) =>
      el("button", { type: "button", class: "pick", "aria-pressed": String(order === this.order), text, onclick: () => this.sort(order) }));
  }

  sort(order) { this.order = order; this.grid.at = 0; this.draw(); this.grid.reload(); }

  async compare() {
    const found = await chooseClass(`Compare ${nameOf(this.id)} with …`, { without: [this.id] });
    if (found) location.hash = `#compare=${this.id},${found.id}`;
  }

  async confirm() {
    if (await act({ kind: "confirm", classes: [this.id], images: this.grid.ids() })) this.grid.clear();
  }

  async unmerge() {
    const [one] = model.byId.get(this.id).merged.slice(-1);
    if (one) await act({ kind: "unmerge", classes: [one.id] });
    else say("Nothing was merged into this class.");
  }

  key(event) {
    const calls = { n: ["rename", () => rename(this.id)], c: ["confirm", () => this.confirm()], g: ["merge", () => merge(this.id)], p: ["unmerge", () => this.unmerge()],
      s: ["split", () => act({ kind: "split", classes: [this.id] })], d: ["junk", () => junk(this.id)] };
    const [kind, call] = calls[event.key] ?? [];
    if (kind) { if (can(kind)) call(); return can(kind); }
    if (event.key === "o") { this.sort(this.order === "doubt" ? "typical" : "doubt"); return true; }
    if (event.key === "b") { this.compare(); return true; }
    return this.chosen.key(event);
  }
}

export class Classes {
  constructor() {
    this.words = el("input", { type: "search", class: "entry", placeholder: "Find a class by its name", "aria-label": "Find a class", oninput: () => this.draw() });
    this.list = el("ul", { class: "list" });
    this.root = el("section", { "aria-label": "Classes" }, el("header", { class: "screen" }, el("h1", { text: "Classes" }), this.words), this.list);
  }

  async mount() { this.draw(); }
  leave() {}
  changed() { this.draw(); }

  draw() {
    const text = this.words.value.trim().toLowerCase();
    const fits = model.state.classes.filter((known) => known.name.toLowerCase().includes(text));
    fits.sort((a, b) => b.stage - a.stage || b.size - a.size);
    this.list.replaceChildren(...fits.map((known) => el("li", {}, el("a", { href: `#class=${known.id}` },
      el("span", { class: "name", dir: "auto", text: known.name }), el("span", { class: "soft", text: sizeOf(known) })))));
    if (!fits.length) this.list.append(el("li", { class: "empty", text: "No class has a name like this." }));
  }

  key(event) {
    const links = [...this.list.querySelectorAll("a")], at = links.indexOf(document.activeElement);
    const move = { j: 1, k: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!move || !links.length) return false;
    links[Math.max(0, Math.min(links.length - 1, at + move))].focus();
    return true;
  }
}

export class Compare {
  constructor(pair) {
    [this.first, this.second] = (pair ?? "").split(",").filter(Boolean).map(Number);
    this.root = el("section", { "aria-label": "Compare" });
  }

  async mount() { await this.draw(); }
  leave() {}
  async changed() { await this.draw(); }

  // The next pair to be asked about: of the inbox, or else two new classes of like size.
  next() {
    const pairs = model.state.inbox.filter((card) => card.kind === "pair").map((card) => card.classes);
    const here = pairs.findIndex(([a, b]) => a === this.first && b === this.second);
    return pairs[(here + 1) % pairs.length] ?? null;
  }

  async draw() {
    const whole = model.byId.has(this.first) && model.byId.has(this.second) && this.first !== this.second;
    if (!whole) { this.choose(); return; }
    let found;
    try { found = await ask("/api/compare", { first: this.first, second: this.second, count: 24 }); } catch (error) { say(error.message); return; }
    this.found = found;
    const middle = el("div", { class: "side" }, el("h2", { text: "Between them" }), el("p", { class: "soft", text: found.between.length ? "nearest to the border" : "needs features, which this model does not keep" }), this.strip(found.between, true));
    this.root.replaceChildren(
      el("header", { class: "screen" }, el("h1", { text: "Same or different?" }), el("div", { class: "buttons" },
        can("merge") ? button("Same: merge them", "y", () => this.same()) : null, button("Different", "n", () => this.different()),
        button("Swap", "w", () => { location.hash = `#compare=${this.second},${this.first}`; }))),
      el("div", { class: "compare" }, this.side(this.first, found.first), middle, this.side(this.second, found.second)));
  }

  choose() {
    const ready = model.state.classes.length > 1;
    this.root.replaceChildren(el("header", { class: "screen" }, el("h1", { text: "Compare two classes" }),
      el("p", { class: "soft", text: ready ? "They stand side by side, with the images between them in the middle." : "There is only one class." }),
      ready ? el("div", { class: "buttons" }, button("Choose them", "b", () => this.ask()), ...(this.next() ? [button("The likeliest pair", "y", () => this.go(this.next()))] : [])) : null));
  }

  async ask() {
    const one = await chooseClass("Compare …");
    const two = one && await chooseClass(`Compare ${nameOf(one.id)} with …`, { without: [one.id] });
    if (two) this.go([one.id, two.id]);
  }

  go([first, second]) { location.hash = `#compare=${first},${second}`; }

  side(id, rows) {
    const known = model.byId.get(id);
    return el("div", { class: "side" }, el("h2", {}, el("a", { href: `#class=${id}`, dir: "auto", text: known.name })), el("p", { class: "soft", text: sizeOf(known) }), this.strip(rows));
  }

  strip(rows, named = false) {
    return el("div", { class: "pictures" }, ...rows.map((row) => el("button", { type: "button", class: "tile", title: row.name, "aria-label": `${row.name}, ${nameOf(row.class)}`, onclick: () => show(row) },
      el("div", { class: "frame" }, thumb(row)), named ? el("span", { class: "note", dir: "auto", text: nameOf(row.class) }) : null)));
  }

  async same() {
    const into = this.first;
    if (await act({ kind: "merge", classes: [this.second], into })) location.hash = `#class=${into}`;
  }

  different() {
    const next = this.next();
    if (next && (next[0] !== this.first || next[1] !== this.second)) this.go(next);
    else { this.first = undefined; location.hash = "#compare"; }
  }

  key(event) {
    if (!model.byId.has(this.first)) {
      if (event.key === "b") { this.ask(); return true; }
      if (event.key === "y" && this.next()) { this.go(this.next()); return true; }
      return false;
    }
    const calls = { y: () => can("merge") && this.same(), n: () => this.different(), w: () => { location.hash = `#compare=${this.second},${this.first}`; }, b: () => this.ask() };
    if (!calls[event.key]) return false;
    calls[event.key]();
    return true;
  }
}

export class Unsure {
  constructor() {
    this.grid = new Grid({
      label: "Images that are like no class",
      load: (start, count) => ask("/api/images", { class: -1, order: "doubt", start, count }),
      all: async () => (await ask("/api/members", { class: -1 })).ids,
      note: (row) => (row.second >= 0 ? `near ${nameOf(row.second)}` : "unknown"),
    });
    this.chosen = new Selection(this.grid, null);
    this.head = el("header", { class: "screen" });
    this.root = el("section", { "aria-label": "Unsure" }, this.head, this.grid.box, this.chosen.root);
  }

  async mount() { this.draw(); await this.grid.mount(); this.grid.reload("No image is unknown: each is like some class."); }
  leave() { this.grid.leave(); }
  async changed() { this.draw(); await this.grid.reload("No image is unknown: each is like some class."); }

  draw() {
    this.head.replaceChildren(el("h1", { text: "Unsure" }), el("p", { class: "soft", text: `${counted(model.state.unknown, "image is", "images are")} like no class. They join the next stage's images, so that small classes are found once enough of them have come.` }));
  }

  key(event) { return this.chosen.key(event); }
}

export class Search {
  constructor(like) {
    this.like = like;
    this.input = el("input", { type: "file", accept: "image/*", id: "picture", onchange: () => this.given(this.input.files[0]) });
    this.drop = el("label", { class: "drop", for: "picture" }, el("span", { text: "Drop a picture here, paste one, or choose a file" }), this.input);
    this.answer = el("p", { class: "soft", role: "status" });
    this.rows = [];
    this.grid = new Grid({ label: "Images most like it", load: async (start, count) => ({ total: this.rows.length, rows: this.rows.slice(start, start + count) }),
      note: (row) => `${nameOf(row.class)}, ${row.cosine.toFixed(2)}` });
    this.chosen = new Selection(this.grid, null);
    this.root = el("section", { "aria-label": "Search" }, el("header", { class: "screen" }, el("h1", { text: "Search by picture" }), this.drop, this.answer), this.grid.box, this.chosen.root);
    this.over = (event) => { event.preventDefault(); this.drop.classList.toggle("over", event.type === "dragover"); };
    this.dropped = (event) => { this.over(event); this.given(event.dataTransfer.files[0]); };
    this.pasted = (event) => { const [file] = event.clipboardData.files; if (file) this.given(file); };
  }

  async mount() {
    for (const kind of ["dragover", "dragleave"]) window.addEventListener(kind, this.over);
    window.addEventListener("drop", this.dropped);
    window.addEventListener("paste", this.pasted);
    await this.grid.mount();
    this.grid.empty.textContent = "";
    if (this.like) await this.near(() => ask("/api/similar", { image: this.like, count: 120 }), { id: this.like, name: "" });
  }

  leave() {
    for (const kind of ["dragover", "dragleave"]) window.removeEventListener(kind, this.over);
    window.removeEventListener("drop", this.dropped);
    window.removeEventListener("paste", this.pasted);
    this.grid.leave();
  }

  async changed() { if (this.again) await this.near(this.again, this.shown); }

  async given(file) {
    if (!file) return;
    const content = await file.arrayBuffer();
    const url = URL.createObjectURL(file);
    await this.near(() => send("/api/search", content, "application/octet-stream"), { url, name: file.name });
  }

  async near(call, shown) {
    this.answer.textContent = "Looking …";
    try {
      const found = await call();
      this.again = call; this.shown = shown;
      this.rows = found.rows;
      const image = el("img", { alt: "", class: "asked", src: shown.url ?? `/thumb/${shown.id}` });
      const said = found.class === undefined ? "The images most like this one" : `It would be ${nameOf(found.class)} (${percent(found.sure)} sure). The images most like it`;
      this.answer.replaceChildren(image, el("span", { dir: "auto", text: `${said}:` }));
      await this.grid.reload();
    } catch (error) { this.answer.textContent = error.message; }
  }

  key(event) { return this.chosen.key(event); }
}

export class History {
  constructor() {
    this.list = el("ol", { class: "list history" });
    this.root = el("section", { "aria-label": "History" }, el("header", { class: "screen" }, el("h1", { text: "History" }),
      el("p", { class: "soft", text: "Everything that was decided and learned, the last first. Each can be undone by itself, as long as nothing later stands on it." }),
      el("div", { class: "buttons" }, can("undo") ? button("Undo the last", "u", () => act({ kind: "undo" })) : null, can("redo") ? button("Redo", "", () => act({ kind: "redo" })) : null)), this.list);
  }

  async mount() { await this.draw(); }
  leave() {}
  async changed() { await this.draw(); }

  async draw() {
    const { entries } = await ask("/api/history");
    const at = [...this.list.children].findIndex((item) => item.contains(document.activeElement));
    this.list.replaceChildren(...entries.map((entry) => el("li", { class: entry.undone ? "undone" : "", tabindex: 0, "data-entry": entry.id },
      el("span", { class: "name", dir: "auto", text: entry.said }), el("span", { class: "soft", text: entry.undone ? "undone" : entry.time ? entry.time.slice(0, 16).replace("T", " ") : "" }),
      entry.undoable && can("undo") ? el("button", { type: "button", text: "Undo", onclick: () => this.undo(entry) }) : null)));
    this.entries = entries;
    if (at >= 0) this.list.children[Math.min(at, entries.length - 1)]?.focus();
  }

  undo(entry) { return act({ kind: "undo", entry: entry.id }); }

  key(event) {
    const items = [...this.list.children], at = items.findIndex((item) => item.contains(document.activeElement));
    const move = { j: 1, k: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move && items.length) { items[Math.max(0, Math.min(items.length - 1, at + move))].focus(); return true; }
    if (event.key === "u" && at >= 0 && can("undo") && this.entries[at].undoable) { this.undo(this.entries[at]); return true; }
    return false;
  }
}
