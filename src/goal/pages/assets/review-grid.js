// A wall of thumbnails that holds only what is in sight, however many there are; a selection in it.
import { el, nameOf, percent, say, thumb } from "./review-ask.js";
import { show } from "./review-dialogs.js";

const CHUNK = 120, GAP = 8, CAPTION = 20, SPARE = 2;

export class Grid {
  // load(start, count) resolves to {total, rows}; all() to the ids of all; note(row) to its caption.
  constructor({ load, all, note, changed, label, small }) {
    Object.assign(this, { load, all, note: note ?? ((row) => percent(row.sure)), changed: changed ?? (() => {}) });
    this.wanted = small ? 92 : 124;
    this.inner = el("div", { class: "inner" });
    this.root = el("div", { class: "wall", role: "listbox", "aria-multiselectable": "true", "aria-label": label }, this.inner);
    this.empty = el("p", { class: "empty", hidden: true });
    this.box = el("div", {}, this.root, this.empty);
    this.selected = new Set();
    this.cells = new Map();
    this.total = 0;
    this.at = 0;
    this.anchor = 0;
    this.tell = () => this.draw();
    this.root.addEventListener("click", (event) => this.clicked(event));
    this.root.addEventListener("dblclick", (event) => this.doubled(event));
    this.root.addEventListener("focusin", (event) => { const cell = event.target.closest(".cell"); if (cell) this.at = Number(cell.dataset.place); });
    this.observer = new ResizeObserver(this.tell);
    this.forget();
  }

  mount() {
    this.observer.observe(this.root);
    window.addEventListener("scroll", this.tell, { passive: true });
    return this.reload();
  }

  leave() {
    this.observer.disconnect();
    window.removeEventListener("scroll", this.tell);
  }

  forget() { this.chunks = new Map(); this.loaded = new Map(); }

  async reload(text = "There is no image here.") {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    const fresh = await this.load(0, CHUNK);
    if (turn !== this.turn) return;
    this.forget();
    this.put(0, fresh);
    for (const cell of this.cells.values()) cell.remove();
    this.cells.clear();
    this.at = Math.max(0, Math.min(this.at, this.total - 1));
    this.empty.textContent = text;
    this.draw();
  }

  put(chunk, found) {
    this.total = found.total;
    found.rows.forEach((row, place) => this.loaded.set(chunk * CHUNK + place, row));
    this.chunks.set(chunk, Promise.resolve());
  }

  need(place) {
    const chunk = Math.floor(place / CHUNK);
    if (!this.chunks.has(chunk)) {
      const turn = this.turn;
      const coming = this.load(chunk * CHUNK, CHUNK).then((found) => {
        if (turn !== this.turn) return;
        found.rows.forEach((row, i) => this.loaded.set(chunk * CHUNK + i, row));
        this.draw();
      }).catch(() => this.chunks.delete(chunk));
      this.chunks.set(chunk, coming);
    }
    return this.chunks.get(chunk);
  }

  measure() {
    const width = this.root.clientWidth;
    this.columns = Math.max(3, Math.floor((width + GAP) / (this.wanted + GAP)));
    this.side = (width - GAP * (this.columns - 1)) / this.columns;
    this.step = this.side + CAPTION + GAP;
  }

  draw() {
    this.empty.hidden = this.total > 0;
    this.root.hidden = this.total === 0;
    if (!this.total || !this.root.isConnected) return;
    this.measure();
    const lines = Math.ceil(this.total / this.columns);
    this.inner.style.height = `${lines * this.step}px`;
    const top = this.root.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(-top / this.step) - SPARE);
    const last = Math.min(lines, Math.ceil((window.innerHeight - top) / this.step) + SPARE);
    const low = first * this.columns, high = Math.max(low, Math.min(this.total, last * this.columns));
    for (const [place, cell] of this.cells)
      if ((place < low || place >= high) && cell !== document.activeElement) { cell.remove(); this.cells.delete(place); }
    for (let place = low; place < high; place++) this.cell(place);
  }

  cell(place) {
    let cell = this.cells.get(place);
    if (!cell) {
      cell = el("div", { class: "cell", role: "option", "data-place": place, "aria-selected": "false" });
      this.cells.set(place, cell);
      const after = [...this.cells.keys()].filter((other) => other > place);
      this.inner.insertBefore(cell, after.length ? this.cells.get(Math.min(...after)) : null);
    }
    const x = (place % this.columns) * (this.side + GAP), y = Math.floor(place / this.columns) * this.step;
    cell.style.transform = `translate(${x}px, ${y}px)`;
    cell.style.width = `${this.side}px`;
    cell.style.height = `${this.side + CAPTION}px`;
    cell.tabIndex = place === this.at ? 0 : -1;
    const row = this.loaded.get(place);
    if (row && cell.dataset.id !== row.id) this.fill(cell, row);
    else if (!row) this.need(place);
    if (row) cell.setAttribute("aria-selected", String(this.selected.has(row.id)));
    return cell;
  }

  fill(cell, row) {
    cell.dataset.id = row.id;
    cell.setAttribute("aria-label", `${row.name}, ${this.note(row)}`);
    cell.title = row.name;
    const frame = el("div", { class: "frame" }, thumb(row), el("span", { class: "tick", "aria-hidden": "true" }));
    const zoom = el("button", { class: "zoom", type: "button", tabindex: "-1", "aria-label": "Look at it at full size", text: "⤢" });
    cell.replaceChildren(frame, zoom, el("div", { class: "note", dir: "auto", text: this.note(row) }));
    if (row.answered) frame.append(el("span", { class: "said", title: "You said so", text: "✓" }));
  }

  // -- selecting ----------------------------------------------------------------------------------

  ids() { return [...this.selected]; }
  current() { return this.loaded.get(this.at); }

  pick(place, on) {
    const row = this.loaded.get(place);
    if (!row) return;
    if (on ?? !this.selected.has(row.id)) this.selected.add(row.id); else this.selected.delete(row.id);
  }

  async range(from, to) {
    const [low, high] = from < to ? [from, to] : [to, from];
    const chunks = [];
    for (let place = low; place <= high; place = (Math.floor(place / CHUNK) + 1) * CHUNK) chunks.push(this.need(place));
    await Promise.all(chunks);
    for (let place = low; place <= high; place++) this.pick(place, true);
    this.told();
  }

  told() {
    for (const [place, cell] of this.cells) {
      const row = this.loaded.get(place);
      if (row) cell.setAttribute("aria-selected", String(this.selected.has(row.id)));
    }
    this.changed(this.selected.size);
  }

  clear() { this.selected.clear(); this.told(); }

  async selectAll() {
    const ids = this.all ? await this.all() : (await this.load(0, Infinity)).rows.map((row) => row.id);
    this.selected = new Set(ids);
    this.told();
  }

  clicked(event) {
    const cell = event.target.closest(".cell");
    if (!cell) return;
    const place = Number(cell.dataset.place);
    this.walk(place, false);
    if (event.target.closest(".zoom")) { this.look(); return; }
    if (event.shiftKey) this.range(this.anchor, place);
    else { this.pick(place); this.anchor = place; this.told(); }
  }

  doubled(event) {
    if (!event.target.closest(".cell") || event.target.closest(".zoom")) return;
    this.look();
  }

  look() {
    const row = this.current();
    if (row) show(row, async (move) => {
      const next = this.at + move;
      if (next < 0 || next >= this.total) return null;
      await this.need(next);
      this.walk(next);
      return this.current();
    });
  }

  walk(place, scroll = true) {
    if (!this.total) return;
    const old = this.cells.get(this.at);
    this.at = Math.max(0, Math.min(this.total - 1, place));
    if (old) old.tabIndex = -1;
    if (scroll) this.reveal();
    this.draw();
    this.cell(this.at).focus({ preventScroll: true });
  }

  reveal() {
    const top = this.root.getBoundingClientRect().top + Math.floor(this.at / this.columns) * this.step;
    const high = 130, low = window.innerHeight - 90;
    if (top < high) window.scrollBy(0, top - high);
    else if (top + this.step > low) window.scrollBy(0, top + this.step - low);
  }

  key(event) {
    const moves = { j: 1, k: -1, ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns };
    const move = moves[event.key];
    const inside = this.root.contains(document.activeElement);
    if (move !== undefined) {
      const next = inside ? this.at + move : this.at;
      if (next >= 0 && next < this.total) this.walk(next);
      if (event.shiftKey && inside) this.range(this.anchor, this.at);
      return true;
    }
    if (event.key === "x") { this.pick(this.at); this.anchor = this.at; this.told(); return true; }
    if (event.key === "X") { this.range(this.anchor, this.at); return true; }
    if (event.key === "a") { this.selectAll(); return true; }
    if (event.key === "Escape" && this.selected.size) { this.clear(); return true; }
    if ((event.key === "Enter" || event.key === " ") && inside) { this.look(); return true; }
    return false;
  }

  needSelection() {
    if (this.selected.size) return true;
    say("Select images first: click them, or press x.");
    return false;
  }
}

export const otherClass = (row) => (row.second >= 0 ? `${percent(row.sure)}, or ${nameOf(row.second)}` : percent(row.sure));
