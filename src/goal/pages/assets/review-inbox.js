// The inbox: what to decide first, one card for each question.
import { act, ask, button, can, counted, el, images, model, nameOf, thumb } from "./review-ask.js";
import { askText, chooseClass, confirmed } from "./review-dialogs.js";

const EACH = 6, AT_ONCE = 40;

export async function rename(id) {
  const name = await askText("What is it called?", nameOf(id));
  if (name !== null && name !== nameOf(id)) await act({ kind: "rename", classes: [id], name });
}

export async function merge(id) {
  const found = await chooseClass(`${nameOf(id)} is the same as …`, { without: [id] });
  if (found) await act({ kind: "merge", classes: [id], into: found.id });
}

export async function junk(id) {
  const sure = await confirmed(`Is ${nameOf(id)} no class at all?`,
    "Its images count as none of these, and it attracts no image any more. This can be undone.", "Junk it");
  if (sure) await act({ kind: "junk", classes: [id] });
}

export class Inbox {
  constructor() {
    this.list = el("div", { class: "gallery cards" });
    this.end = el("div", { class: "end" });
    this.root = el("section", { "aria-label": "Inbox" });
    this.at = 0;
    this.fill = new Map();
    this.near = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) this.load(entry.target);
    }, { rootMargin: "400px" });
    this.more = new IntersectionObserver((entries) => { if (entries.some((entry) => entry.isIntersecting)) this.extend(); }, { rootMargin: "800px" });
  }

  async mount() {
    this.draw();
    this.more.observe(this.end);
  }

  leave() { this.near.disconnect(); this.more.disconnect(); }

  changed() {
    const same = JSON.stringify(model.state.inbox) === this.shown;
    if (!same) this.draw();
    else for (const card of this.list.children) this.title(card);
  }

  draw() {
    const focused = this.list.contains(document.activeElement);
    this.shown = JSON.stringify(model.state.inbox);
    this.near.disconnect();
    this.fill.clear();
    this.list.replaceChildren();
    const left = model.state.inbox.length;
    const found = model.state.classes.filter((known) => known.stage > 0).length;
    this.root.replaceChildren(el("header", { class: "screen" },
      el("h1", { text: left ? `${counted(left, "decision", "decisions")} left` : "Nothing to decide" }),
      el("p", { class: "soft", text: left ? "First what settles most. Confirm a class, name it, or say that it is another one." : this.rest(found) })),
      this.list, this.end);
    this.extend();
    this.at = Math.max(0, Math.min(this.at, this.list.children.length - 1));
    if (focused) this.list.children[this.at]?.focus({ preventScroll: true });
  }

  rest(found) {
    if (found) return "Every new class has been looked at. Learn the next images with goal discover, and what is new in them comes here.";
    return "No class has been discovered yet. Learn unlabelled images with goal discover, and the classes that are new in them come here.";
  }

  extend() {
    const from = this.list.children.length;
    for (const card of model.state.inbox.slice(from, from + AT_ONCE)) this.list.append(this.card(card));
    [...this.list.children].forEach((card, place) => { card.tabIndex = place === this.at ? 0 : -1; });
  }

  card(card) {
    const node = el("article", { class: "card", tabindex: -1, "data-kind": card.kind });
    node.question = card;
    const [first, second] = card.classes;
    node.append(el("h3", {}, el("a", { href: `#class=${first}`, dir: "auto" })), el("div", { class: "soft why", text: card.why }));
    for (const label of card.kind === "pair" ? card.classes.map(nameOf) : ["typical", "least typical"]) {
      const strip = el("div", { class: "pictures" });
      for (let i = 0; i < EACH; i++) strip.append(el("figure", {}, el("div", { class: "frame" })));
      node.append(el("div", { class: "row" }, el("div", { class: "label", dir: "auto", text: label }), strip));
    }
    node.append(card.kind === "pair" ? this.pairButtons(first, second) : this.classButtons(first));
    this.title(node);
    node.addEventListener("focus", () => { this.walkTo(node); });
    this.fill.set(node, card);
    this.near.observe(node);
    return node;
  }

  classButtons(id) {
    const choices = [["confirm", "Confirm", "c", () => act({ kind: "confirm", classes: [id] })], ["rename", "Name", "n", () => rename(id)],
      ["merge", "Same as …", "g", () => merge(id)], ["junk", "Junk", "d", () => junk(id)]];
    return el("div", { class: "buttons" }, ...choices.filter(([kind]) => can(kind)).map(([, text, key, call]) => button(text, key, call)));
  }

  pairButtons(first, second) {
    return el("div", { class: "buttons" },
      can("merge") ? button("Same", "y", () => act({ kind: "merge", classes: [second], into: first })) : null,
      el("a", { class: "button", href: `#compare=${first},${second}`, text: "Compare" }));
  }

  title(node) {
    const link = node.querySelector("h3 a");
    link.textContent = node.question.classes.map(nameOf).join("  /  ");
    link.title = link.textContent;
  }

  async load(node) {
    const card = this.fill.get(node);
    if (!card) return;
    this.fill.delete(node);
    this.near.unobserve(node);
    const strips = node.querySelectorAll(".pictures");
    const put = (strip, rows) => strip.replaceChildren(...rows.map((row) => el("figure", { title: row.name }, el("div", { class: "frame" }, thumb(row)))));
    try {
      if (card.kind === "pair") {
        for (const [place, id] of card.classes.entries())
          put(strips[place], (await ask("/api/images", { class: id, count: EACH })).rows);
      } else {
        const found = await ask("/api/images", { class: card.classes[0], order: "ends", count: 2 * EACH });
        put(strips[0], found.rows.slice(0, EACH));
        put(strips[1], found.rows.slice(EACH));
        if (found.rows.length <= EACH) strips[1].parentNode.remove();
      }
      node.dataset.loaded = "yes";
    } catch { this.fill.set(node, card); }
  }

  walkTo(node) {
    const cards = [...this.list.children];
    cards[this.at]?.setAttribute("tabindex", "-1");
    this.at = cards.indexOf(node);
    node.tabIndex = 0;
  }

  key(event) {
    const move = { j: 1, k: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
    const cards = this.list.children;
    if (move && cards.length) {
      const inside = this.list.contains(document.activeElement);
      const next = Math.max(0, Math.min(cards.length - 1, inside ? this.at + move : this.at));
      cards[next].focus({ preventScroll: true });
      cards[next].scrollIntoView({ block: "nearest" });
      if (next > cards.length - 5) this.extend();
      return true;
    }
    const node = cards[this.at];
    if (!node || !this.list.contains(document.activeElement)) return false;
    const [first, second] = node.question.classes;
    if (event.key === "Enter" && document.activeElement === node) {
      location.hash = node.question.kind === "pair" ? `#compare=${first},${second}` : `#class=${first}`;
      return true;
    }
    const calls = node.question.kind === "pair"
      ? { y: ["merge", () => act({ kind: "merge", classes: [second], into: first })] }
      : { c: ["confirm", () => act({ kind: "confirm", classes: [first] })], n: ["rename", () => rename(first)], g: ["merge", () => merge(first)], d: ["junk", () => junk(first)] };
    const [kind, call] = calls[event.key] ?? [];
    if (!kind || !can(kind)) return false;
    call();
    return true;
  }
}

export const sizeOf = (known) => `${images(known.size)}, ${known.stage === 0 ? "learned from labels" : `found at stage ${known.stage}`}`;
