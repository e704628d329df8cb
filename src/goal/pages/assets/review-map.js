// The map: images on a plane, and a lasso that selects them.
import { ask, counted, el, nameOf } from "./review-ask.js";
import { Grid } from "./review-grid.js";
import { Selection } from "./review-screens.js";

const colourOf = (id) => (id < 0 ? "hsl(0 0% 55%)" : `hsl(${(id * 137.508) % 360} 62% ${id % 2 ? 46 : 56}%)`);

export class Map_ {
  constructor() {
    this.place = el("div", { class: "plane" });
    this.note = el("p", { class: "soft" });
    this.rows = [];
    this.grid = new Grid({ label: "Images in the lasso", small: true, load: async (start, count) => ({ total: this.rows.length, rows: this.rows.slice(start, start + count) }), note: (row) => nameOf(row.class) });
    this.chosen = new Selection(this.grid, null);
    this.side = el("div", { class: "lassoed" }, el("p", { class: "soft", text: "Draw around images to select them: with the mouse, or with a finger. By keyboard: choose a class." }), this.grid.box);
    this.pick = el("select", { "aria-label": "Select the images of a class on the map", onchange: () => this.byClass(Number(this.pick.value)) });
    this.root = el("section", { "aria-label": "Map" }, el("header", { class: "screen" }, el("h1", { text: "Map" }), this.note, el("div", { class: "buttons" }, this.pick)),
      el("div", { class: "maps" }, this.place, this.side), this.chosen.root);
    this.resized = () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.draw(), 150); };
  }

  async mount() {
    window.addEventListener("resize", this.resized);
    this.note.textContent = "Drawing …";
    await this.grid.mount();
    this.grid.empty.textContent = "";
    await this.load();
  }

  leave() { window.removeEventListener("resize", this.resized); this.grid.leave(); }
  async changed() { await this.load(); }

  async load() {
    this.data = await ask("/api/map");
    const held = this.data.images;
    if (!held) { this.note.textContent = "There is no map: the model keeps no features of its images."; this.pick.hidden = true; return; }
    const shown = held.length < this.data.all ? `${held.length.toLocaleString("en")} of ${counted(this.data.all, "image", "images")}` : counted(held.length, "image", "images");
    this.note.textContent = `${shown} on the plane in which the classes differ most (${Math.round(100 * this.data.explained)}% of what there is to see).`;
    const present = [...new Set(this.data.classes)].sort((a, b) => a - b);
    this.pick.replaceChildren(el("option", { value: -2, text: "Select a class …" }), ...present.map((id) => el("option", { value: id, text: nameOf(id) })));
    if (this.rows.length) this.choose(new Set(this.rows.map((row) => row.id)));
    this.draw();
  }

  draw() {
    if (!this.data?.images || !this.root.isConnected) return;
    const { points, classes, images } = this.data;
    const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
    const [left, low] = [Math.min(...xs), Math.min(...ys)];
    this.dots = points.map(([x, y], i) => ({ x: x - left, y: y - low, colour: colourOf(classes[i]), group: classes[i], id: images[i] }));
    this.chart = Charts.scatter(this.place, { points: this.dots, anchors: [], width: Math.max(...xs) - left || 1, height: Math.max(...ys) - low || 1,
      text: (dot) => [nameOf(dot.group)], title: "Map of the images" });
    this.lasso();
  }

  lasso() {
    const canvas = this.chart.canvas, line = el("canvas", { class: "line", "aria-hidden": "true" });
    line.width = canvas.width; line.height = canvas.height;
    this.place.append(line);
    let path = null;
    const here = (event) => { const box = canvas.getBoundingClientRect(), f = canvas.width / box.width; return [(event.clientX - box.left) * f, (event.clientY - box.top) * f]; };
    canvas.addEventListener("pointerdown", (event) => { path = [here(event)]; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      if (!path) return;
      path.push(here(event));
      const pen = line.getContext("2d");
      pen.clearRect(0, 0, line.width, line.height);
      pen.beginPath();
      path.forEach(([x, y], i) => (i ? pen.lineTo(x, y) : pen.moveTo(x, y)));
      pen.closePath();
      pen.lineWidth = 2 * (window.devicePixelRatio || 1);
      pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
      pen.globalAlpha = .15; pen.fillStyle = pen.strokeStyle; pen.fill();
      pen.globalAlpha = 1; pen.stroke();
    });
    const end = () => {
      if (path && path.length > 3) this.choose(new Set(this.dots.filter((dot) => inside(this.chart.at(dot), path)).map((dot) => dot.id)));
      else if (path) line.getContext("2d").clearRect(0, 0, line.width, line.height);
      path = null;
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", () => { path = null; });
  }

  byClass(id) { if (id > -2) this.choose(new Set(this.dots.filter((dot) => dot.group === id).map((dot) => dot.id))); }

  async choose(ids) {
    this.rows = this.data.images.flatMap((id, i) => (ids.has(id) ? [{ id, name: "", class: this.data.classes[i], second: -1, sure: 0, stage: 0 }] : []));
    await this.grid.reload("No image lies in the lasso.");
    await this.grid.selectAll();
  }

  key(event) { return this.chosen.key(event); }
}

// Whether a point lies within a closed line: whether a ray from it crosses the line an odd number of times.
function inside([x, y], path) {
  let odd = false;
  for (let i = 0, j = path.length - 1; i < path.length; j = i++) {
    const [[ax, ay], [bx, by]] = [path[i], path[j]];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) odd = !odd;
  }
  return odd;
}

