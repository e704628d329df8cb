// The page: screens, the way between them, and keys.
import { button, can, check, el, keepLooking, model, refresh, undo, warn, watch } from "./review-ask.js";
import { anyOpen, chooseClass, help } from "./review-dialogs.js";
import { Inbox } from "./review-inbox.js";
import { Map_ } from "./review-map.js";
import { Classes, ClassScreen, Compare, History, Search, Unsure } from "./review-screens.js";

const SCREENS = [["inbox", "Inbox", Inbox], ["classes", "Classes", Classes], ["compare", "Compare", Compare], ["unsure", "Unsure", Unsure],
  ["search", "Search", Search], ["map", "Map", Map_], ["history", "History", History]];
const ALSO = { class: ["classes", ClassScreen] };

const name = el("strong", { class: "model", dir: "auto" });
const links = new Map(SCREENS.map(([key, text]) => [key, el("a", { href: `#${key}` }, el("span", { text }), el("span", { class: "count", hidden: true }))]));
const nav = el("nav", { "aria-label": "Screens" }, ...links.values());
const only = el("span", { class: "badge", text: "only looking", hidden: true });
const back = button("Undo", "u", undo, { class: "plain", hidden: true });
const bar = el("header", { class: "bar" }, el("div", {}, el("a", { class: "skip", href: "#main", text: "To the content" }), name, nav, el("span", { class: "space" }), only, back,
  el("button", { type: "button", class: "plain", "aria-label": "Keys", text: "?", onclick: help })));
const main = el("main", { id: "main", tabindex: -1 });
let screen = null;

function head(state) {
  name.textContent = state.name;
  name.title = state.name;
  only.hidden = !state.read_only;
  back.hidden = !can("undo");
  back.disabled = state.last === null;
  back.title = state.last === null ? "Nothing to undo" : `Undo ${state.last}`;
  for (const [key, number] of [["inbox", state.inbox.length], ["unsure", state.unknown]]) {
    const count = links.get(key).querySelector(".count");
    count.hidden = !number;
    count.textContent = number.toLocaleString("en");
  }
}

async function go() {
  const [key, value] = decodeURIComponent(location.hash.slice(1)).split("=");
  if (key === "main") return;
  const found = SCREENS.find(([own]) => own === key);
  const [tab, Screen] = ALSO[key] ?? (found ? [found[0], found[2]] : ["inbox", Inbox]);
  screen?.leave();
  for (const [own, link] of links) {
    if (own === tab) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  links.get(tab).scrollIntoView({ block: "nearest", inline: "nearest" });
  const fresh = screen = new Screen(value);
  main.replaceChildren(screen.root);
  window.scrollTo(0, 0);
  try { await fresh.mount(); } catch (error) { warn(error.message); }
  document.body.dataset.screen = key || "inbox";
}

function keys(event) {
  const typing = event.target.matches("input, select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey || anyOpen()) return;
  if (typing) { if (event.key === "Escape") event.target.blur(); return; }
  const press = event.target.matches("button, a, summary") && (event.key === "Enter" || event.key === " ");
  if (press || !model.state) return;
  if (screen?.key(event) || everywhere(event)) event.preventDefault();
}

function everywhere(event) {
  if (event.key === "?") { help(); return true; }
  if (event.key === "u" && can("undo")) { undo(); return true; }
  if (event.key === "/") {
    chooseClass("Go to a class").then((found) => { if (found) location.hash = `#class=${found.id}`; });
    return true;
  }
  const place = "1234567".indexOf(event.key);
  if (place >= 0) { location.hash = `#${SCREENS[place][0]}`; return true; }
  return false;
}

async function begin() {
  document.body.prepend(bar, main);
  watch(head);
  watch((state, old) => { if (old) Promise.resolve(screen?.changed(state, old)).catch((error) => warn(error.message)); });
  window.addEventListener("hashchange", go);
  document.addEventListener("keydown", keys);
  const arrive = async () => {
    try { await refresh(); warn(null); await go(); } catch (error) { warn(error.message); setTimeout(arrive, 2000); return; }
    keepLooking();
  };
  await arrive();
}

window.addEventListener("online", check);
begin();
