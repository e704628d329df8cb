// Questions in front of the page: which class, what name, which keys; and a picture at full size.
import { counted, el, images, model, nameOf, percent } from "./review-ask.js";

function open(label, ...content) {
  const dialog = el("dialog", { "aria-label": label, class: "dialog" }, ...content);
  const before = document.activeElement;
  document.body.append(dialog);
  dialog.addEventListener("close", () => { dialog.remove(); before?.focus?.({ preventScroll: true }); });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("keydown", (event) => event.stopPropagation());
  dialog.showModal();
  return dialog;
}

export const anyOpen = () => document.querySelector("dialog[open]") !== null;

const SHOWN = 60;

// Ask for a class; resolves to {id}, to {name} of a class to be made, or to null.
export function chooseClass(title, { without = [], fresh = false } = {}) {
  return new Promise((resolve) => {
    let found = [], at = 0, answer = null;
    const input = el("input", { type: "text", class: "entry", placeholder: "Type a part of its name", role: "combobox",
      "aria-expanded": "true", "aria-controls": "choices", "aria-label": title, autocomplete: "off", spellcheck: "false" });
    const list = el("ul", { class: "choices", role: "listbox", id: "choices" });
    const dialog = open(title, el("h2", { text: title }), input, list);
    const give = (one) => { answer = one; dialog.close(); };
    function mark() {
      [...list.children].forEach((item, place) => item.setAttribute("aria-selected", String(place === at)));
      list.children[at]?.scrollIntoView({ block: "nearest" });
      input.setAttribute("aria-activedescendant", list.children[at]?.id ?? "");
    }
    function draw() {
      const text = input.value.trim().toLowerCase();
      const fits = model.state.classes.filter((known) => !without.includes(known.id) && known.name.toLowerCase().includes(text));
      fits.sort((a, b) => (b.name.toLowerCase() === text) - (a.name.toLowerCase() === text) ||
        b.name.toLowerCase().startsWith(text) - a.name.toLowerCase().startsWith(text));
      found = fits.slice(0, SHOWN).map((known) => ({ id: known.id, text: known.name, note: images(known.size) }));
      const taken = model.state.classes.some((known) => known.name.toLowerCase() === text);
      if (fresh && text && !taken) found.push({ name: input.value.trim(), text: `New class: ${input.value.trim()}`, note: "" });
      at = 0;
      list.replaceChildren(...found.map((one, place) => el("li", { role: "option", id: `choice-${place}`, onclick: () => give(one) },
        el("span", { class: "name", dir: "auto", text: one.text }), el("span", { class: "soft", text: one.note }))));
      if (!found.length) list.append(el("li", { class: "soft", text: "No class has a name like this." }));
      mark();
    }
    input.addEventListener("input", draw);
    input.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step && found.length) { event.preventDefault(); at = (at + step + found.length) % found.length; mark(); }
      if (event.key === "Enter" && found[at]) { event.preventDefault(); give(found[at]); }
    });
    dialog.addEventListener("close", () => resolve(answer));
    draw();
    input.focus();
  });
}

// Ask for a text; resolves to it, or to null.
export function askText(title, value) {
  return new Promise((resolve) => {
    let answer = null;
    const input = el("input", { type: "text", class: "entry", "aria-label": title, maxlength: 200, dir: "auto", autocomplete: "off", value });
    const form = el("form", { onsubmit: (event) => { event.preventDefault(); answer = input.value.trim() || null; dialog.close(); } },
      el("h2", { text: title }), input,
      el("div", { class: "buttons" }, el("button", { class: "main", text: "Keep" }),
        el("button", { type: "button", text: "Cancel", onclick: () => dialog.close() })));
    const dialog = open(title, form);
    dialog.addEventListener("close", () => resolve(answer));
    input.select();
  });
}

export function confirmed(title, text, yes) {
  return new Promise((resolve) => {
    let answer = false;
    const dialog = open(title, el("h2", { text: title }), el("p", { text }), el("div", { class: "buttons" },
      el("button", { class: "main", type: "button", text: yes, autofocus: true, onclick: () => { answer = true; dialog.close(); } }),
      el("button", { type: "button", text: "Cancel", onclick: () => dialog.close() })));
    dialog.addEventListener("close", () => resolve(answer));
  });
}

const KEYS = [
  ["Everywhere", [["1 … 7", "inbox, classes, compare, unsure, search, map, history"], ["j k", "next, previous"], ["u", "undo the last decision"],
    ["/", "go to a class by its name"], ["?", "these keys"], ["Esc", "close, or select nothing"]]],
  ["Images", [["← ↑ → ↓", "walk"], ["x", "select; with Shift: all from the last one"], ["a", "select all of the class"],
    ["Enter", "look at it at full size"], ["m", "move the selected to a class"], ["r", "reject: they are not of this class"],
    ["f", "find images like this one"]]],
  ["A class", [["n", "name it"], ["c", "confirm it, or the selected images of it"], ["g", "merge it with another"], ["p", "part what was merged"],
    ["s", "split it"], ["d", "junk: no class at all"], ["o", "typical or doubtful images first"], ["b", "compare it with another"]]],
  ["Compare", [["y", "the same: merge them"], ["n", "different: the next pair"]]],
];

export function help() {
  const parts = KEYS.map(([title, rows]) => el("div", {}, el("h3", { text: title }),
    el("dl", {}, ...rows.flatMap(([keys, text]) => [el("dt", {}, ...keys.split(" ").map((key) => (key === "…" ? "…" : el("kbd", { text: key })))), el("dd", { text })]))));
  const dialog = open("Keys", el("h2", { text: "Keys" }), el("div", { class: "keylist" }, ...parts),
    el("div", { class: "buttons" }, el("button", { type: "button", class: "main", text: "Close", onclick: () => dialog.close() })));
  dialog.addEventListener("keydown", (event) => { if (event.key === "?") dialog.close(); });
}

// Show a picture at full size; step(+1 or -1) resolves to the next one.
export function show(row, step) {
  const frame = el("div", { class: "whole" });
  const caption = el("p", { class: "soft", dir: "auto" });
  const dialog = open("Picture", frame, caption);
  dialog.classList.add("picture");
  function draw(one) {
    const image = el("img", { alt: one.name });
    image.onload = () => image.classList.toggle("small", image.naturalWidth <= 64);
    image.onerror = () => frame.replaceChildren(el("span", { class: "missing", text: "The image is not where it was. goal review --images FOLDER says where it is now." }));
    image.src = `/image/${one.id}`;
    frame.replaceChildren(image);
    caption.textContent = `${one.name} – ${nameOf(one.class)}, ${percent(one.sure)} sure, stage ${one.stage}`;
  }
  dialog.addEventListener("keydown", async (event) => {
    const move = { j: 1, k: -1, ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); dialog.close(); }
    if (move && step) { event.preventDefault(); const next = await step(move); if (next) draw(next); }
  });
  frame.addEventListener("click", () => dialog.close());
  draw(row);
}

export const already = (number) => counted(number, "image is selected", "images are selected");
