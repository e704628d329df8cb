// What every screen shares: elements, questions to the server, the model as it is, and what was done.

export function el(tag, given = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "text") node.textContent = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export class Problem extends Error {
  constructor(text, status) { super(text); this.status = status; }
}

const GONE = "No answer: goal review is not running. Start it again in the terminal; this page goes on by itself.";
const SHUT = "goal review was started anew. Open the address that it printed in the terminal.";

export async function ask(path, given = {}) {
  const words = new URLSearchParams(given).toString();
  const content = await told(fetch(words ? `${path}?${words}` : path, { credentials: "same-origin" }));
  if (model.state && content.version && path !== "/api/state" && content.version !== model.state.version && !busy) await renew();
  return content;
}

// The model has changed beside this page: several questions may notice, one asks how it is now.
let renewing = null;
function renew() {
  renewing ??= refresh().finally(() => { renewing = null; });
  return renewing;
}

export async function send(path, body, type = "application/json") {
  const content = type === "application/json" ? JSON.stringify(body) : body;
  return told(fetch(path, { method: "POST", body: content, headers: { "content-type": type }, credentials: "same-origin" }));
}

async function told(coming) {
  let answer;
  try { answer = await coming; } catch { throw new Problem(GONE, 0); }
  if (answer.status === 401) throw new Problem(SHUT, 401);
  let content = {};
  try { content = await answer.json(); } catch { content = { error: `The server answered ${answer.status}.` }; }
  if (!answer.ok) throw new Problem(content.error || `The server answered ${answer.status}.`, answer.status);
  return content;
}

// -- the model as it is ---------------------------------------------------------------------------

export const model = { state: null };
const watchers = new Set();
export const watch = (call) => { watchers.add(call); return () => watchers.delete(call); };

export function take(state) {
  const old = model.state;
  model.state = state;
  model.byId = new Map(state.classes.map((known) => [known.id, known]));
  document.title = `${state.name} – goal review`;
  for (const call of watchers) call(state, old);
}

export const nameOf = (id) => (id < 0 ? "none of these" : model.byId.get(id)?.name ?? `class ${id}`);
export const can = (kind) => model.state.can.includes(kind);

const EVERY = 2000;
let banner = null;

export async function refresh() {
  take(await ask("/api/state"));
}

async function look() {
  if (!document.hidden) {
    try {
      const before = model.state.version;
      await ask("/api/version");
      if (before !== model.state.version && !busy && !place.querySelector("button")) say("The model was changed elsewhere; this is how it is now.");
      warn(null);
    } catch (error) { warn(error.message); }
  }
  setTimeout(look, EVERY);
}
export function keepLooking() { setTimeout(look, EVERY); }
document.addEventListener("visibilitychange", () => { if (!document.hidden) check(); });
export async function check() {
  try {
    const { version } = await ask("/api/version");
    if (version !== model.state.version) await renew();
    warn(null);
  } catch (error) { warn(error.message); }
}

export function warn(text) {
  if (text === null) { if (banner) { banner.remove(); banner = null; } return; }
  if (!banner) {
    banner = el("div", { class: "banner", role: "alert" });
    document.body.prepend(banner);
  }
  if (banner.textContent !== text) banner.textContent = text;
}

// -- doing ----------------------------------------------------------------------------------------

let busy = 0;
const place = el("div", { class: "toasts", role: "status", "aria-live": "polite" });
document.body.append(place);

export function say(text, ...buttons) {
  const toast = el("div", { class: "toast" }, el("span", { text }), ...buttons);
  place.replaceChildren(toast);
  clearTimeout(say.timer);
  say.timer = setTimeout(() => toast.remove(), buttons.length ? 12000 : 6000);
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export async function act(action) {
  if (busy) return false;
  if (model.state.read_only) { say("This page only looks: it was started with --read-only."); return false; }
  busy += 1;
  document.body.classList.add("busy");
  try {
    const done = await send("/api/act", { version: model.state.version, ...action });
    take(done.state);
    const back = action.kind === "undo" ? "redo" : "undo";
    const button = el("button", { type: "button", text: back === "undo" ? "Undo" : "Redo", onclick: () => act({ kind: back }) });
    if (back === "undo") button.append(el("kbd", { text: "u" }));
    say(capital(done.done), can(back) ? button : null);
    return true;
  } catch (error) {
    if (error.status === 409) await check();
    if (error.status === 0 || error.status === 401) warn(error.message);
    const again = el("button", { type: "button", text: "Try again", onclick: () => act(action) });
    const retry = error.status === 409 || error.status === 0;
    say(error.status === 0 ? "Nothing was done: there is no answer." : error.message, retry ? again : null);
    return false;
  } finally {
    busy -= 1;
    document.body.classList.toggle("busy", busy > 0);
  }
}

export const undo = () => (model.state.last === null ? say("There is nothing to undo.") : act({ kind: "undo" }));

export const counted = (number, one, many) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
export const images = (number) => counted(number, "image", "images");
export const percent = (share) => `${Math.floor(100 * share)}%`;

export function thumb(row, extra = {}) {
  const image = el("img", { alt: "", draggable: "false", decoding: "async", ...extra });
  image.onload = () => image.classList.toggle("small", image.naturalWidth <= 32);
  image.onerror = () => { image.replaceWith(el("span", { class: "missing", text: "no picture" })); };
  image.src = `/thumb/${row.id}`;
  return image;
}

export function button(text, key, onclick, extra = {}) {
  const made = el("button", { type: "button", ...extra, onclick }, el("span", { text }));
  if (key) made.append(el("kbd", { text: key, "aria-hidden": "true" }));
  return made;
}
