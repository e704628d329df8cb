"use strict";
// Line charts (SVG) and heat maps and scatter maps (canvas), with a tooltip each. No libraries.
const Charts = (function () {
  const NS = "http://www.w3.org/2000/svg";

  function svg(tag, attributes, ...children) {
    const node = document.createElementNS(NS, tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }

  function el(tag, className, ...children) {
    const node = document.createElement(tag);
    if (className) node.className = className;
    node.append(...children);
    return node;
  }

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function ticks(low, high, count, whole) {
    const raw = Math.max((high - low) / count || 1, whole ? 1 : 0);
    const size = 10 ** Math.floor(Math.log10(raw));
    const step = (whole && size < 10 ? [1, 2, 5, 10] : [1, 2, 2.5, 5, 10]).find((m) => m * size >= raw) * size;
    const found = [];
    for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-6; v += step)
      found.push(Math.abs(v) < step * 1e-6 ? 0 : Number(v.toPrecision(10)));
    return found;
  }

  const short = (value) => {
    const size = Math.abs(value);
    if (size >= 1000) return (value / 1000).toPrecision(3) / 1 + "k";
    return String(Number(value.toPrecision(size < 0.01 ? 1 : 3)));
  };

  function marker(kind, x, y, r) {
    const at = (points) => "M" + points.map(([a, b]) => `${x + a * r},${y + b * r}`).join("L") + "Z";
    const shapes = {
      s: at([[-.9, -.9], [.9, -.9], [.9, .9], [-.9, .9]]),
      "^": at([[0, -1.15], [1.05, .85], [-1.05, .85]]),
      v: at([[0, 1.15], [1.05, -.85], [-1.05, -.85]]),
      D: at([[0, -1.25], [1.1, 0], [0, 1.25], [-1.1, 0]]),
      P: at([[-.4, -1.1], [.4, -1.1], [.4, -.4], [1.1, -.4], [1.1, .4], [.4, .4], [.4, 1.1],
        [-.4, 1.1], [-.4, .4], [-1.1, .4], [-1.1, -.4], [-.4, -.4]]),
      X: at([[0, -.5], [.7, -1.1], [1.1, -.7], [.5, 0], [1.1, .7], [.7, 1.1], [0, .5], [-.7, 1.1],
        [-1.1, .7], [-.5, 0], [-1.1, -.7], [-.7, -1.1]]),
      "*": at([...Array(10).keys()].map((i) => {
        const size = i % 2 ? .6 : 1.4, turn = (i * Math.PI) / 5;
        return [size * Math.sin(turn), -size * Math.cos(turn)];
      })),
    };
    return shapes[kind] ? svg("path", { d: shapes[kind] }) : svg("circle", { cx: x, cy: y, r });
  }

  function tooltip(place) {
    const tip = el("div", "tip");
    tip.hidden = true;
    place.append(tip);
    return {
      show(x, y, ...content) {
        tip.replaceChildren(...content);
        tip.hidden = false;
        const room = place.clientWidth - tip.offsetWidth;
        const wanted = x + 14 > room ? x - tip.offsetWidth - 14 : x + 14;
        tip.style.left = `${Math.max(0, Math.min(room, wanted))}px`;
        tip.style.top = `${Math.max(0, y - tip.offsetHeight / 2)}px`;
      },
      hide() { tip.hidden = true; },
    };
  }

  // series: [{name, colour, dash, marker, values: [number|null], deviation: [number]|null, faint}];
  // at: where on the axis each label stands, evenly if it is left out
  function lines(place, { series, labels, at, title, domain, format, tall }) {
    place.replaceChildren();
    place.classList.add("chart");
    const W = 330, H = tall ? 320 : 210, left = 34, right = 12, top = 10, bottom = 24;
    const values = series.flatMap((s) => s.values.flatMap((v, i) =>
      v === null ? [] : [v - (s.deviation ? s.deviation[i] : 0), v + (s.deviation ? s.deviation[i] : 0)]));
    if (!values.length) return;
    let [low, high] = domain || [Math.min(...values), Math.max(...values)];
    if (!domain) { const pad = (high - low) * .08 || Math.abs(high) * .1 || 1; low -= pad; high += pad; }
    const count = labels.length, whole = series.every((s) => s.values.every((v) => v === null || Number.isInteger(v)));
    const spots = at || labels.map((_, i) => i), span = spots[count - 1] - spots[0];
    const x = (i) => left + (span ? (spots[i] - spots[0]) / span : .5) * (W - left - right);
    const y = (v) => top + (1 - (v - low) / (high - low)) * (H - top - bottom);
    const root = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": title, tabindex: "0" });
    for (const value of ticks(low, high, 4, whole)) {
      root.append(svg("line", { x1: left, x2: W - right, y1: y(value), y2: y(value), stroke: "var(--grid)" }),
        svg("text", { x: left - 7, y: y(value) + 4, "text-anchor": "end", style: "font-size:11px" }, short(value)));
    }
    const step = at ? 1 : Math.ceil(count / 8);
    let free = -Infinity;
    labels.forEach((label, i) => {
      if (i % step || (at && x(i) < free)) return;
      free = x(i) + 8 * (String(label).length + 1);
      root.append(svg("text", { x: x(i), y: H - 6, "text-anchor": "middle", style: "font-size:11px" }, label));
    });
    const guide = svg("line", { y1: top, y2: H - bottom, stroke: "var(--faint)", "stroke-dasharray": "2 3", visibility: "hidden" });
    root.append(guide);
    for (const s of series) root.append(drawn(s, x, y, count));
    const near = svg("g", {});
    root.append(near);
    place.append(root);
    const tip = tooltip(place);
    let current = -1;
    function point(i) {
      current = i;
      guide.setAttribute("visibility", "visible");
      guide.setAttribute("x1", x(i)); guide.setAttribute("x2", x(i));
      const listed = series.filter((s) => s.values[i] !== null).sort((a, b) => b.values[i] - a.values[i]);
      near.replaceChildren(...listed.map((s) => svg("circle",
        { cx: x(i), cy: y(s.values[i]), r: 4.5, fill: "var(--card)", stroke: s.colour, "stroke-width": 2 })));
      const scale = place.clientWidth / W;
      const shown = listed.slice(0, 14).map((s) => {
        const name = el("span", "", el("i", "dot"), s.name);
        name.firstChild.style.background = s.colour;
        const sd = s.deviation && s.deviation[i] ? ` ± ${format(s.deviation[i])}` : "";
        return el("div", "entry", name, el("b", "", format(s.values[i]) + sd));
      });
      if (listed.length > 14) shown.push(el("div", "", `and ${listed.length - 14} more`));
      tip.show(x(i) * scale, (H / 2) * scale, el("div", "", el("b", "", labels.full ? labels.full[i] : labels[i])), ...shown);
    }
    function leave() {
      guide.setAttribute("visibility", "hidden"); near.replaceChildren(); tip.hide(); current = -1;
    }
    root.addEventListener("pointermove", (event) => {
      const box = root.getBoundingClientRect();
      const here = ((event.clientX - box.left) / box.width) * W;
      point(labels.reduce((best, _, i) => (Math.abs(x(i) - here) < Math.abs(x(best) - here) ? i : best), 0));
    });
    root.addEventListener("pointerleave", leave);
    root.addEventListener("blur", leave);
    root.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (move) { event.preventDefault(); point(Math.max(0, Math.min(count - 1, current < 0 ? 0 : current + move))); }
    });
  }

  function drawn(s, x, y, count) {
    const group = svg("g", { "data-series": s.name, opacity: s.faint ? .55 : 1 });
    const runs = [];
    s.values.forEach((v, i) => {
      if (v === null) return;
      if (i && s.values[i - 1] !== null && runs.length) runs.at(-1).push(i); else runs.push([i]);
    });
    for (const run of runs) {
      if (s.deviation && run.some((i) => s.deviation[i])) {
        const up = run.map((i) => `${x(i)},${y(s.values[i] + s.deviation[i])}`);
        const down = [...run].reverse().map((i) => `${x(i)},${y(s.values[i] - s.deviation[i])}`);
        group.append(svg("polygon", { points: [...up, ...down].join(" "), fill: s.colour, opacity: .12 }));
      }
      group.append(svg("polyline", { points: run.map((i) => `${x(i)},${y(s.values[i])}`).join(" "), fill: "none",
        stroke: s.colour, "stroke-width": 2, "stroke-linejoin": "round", "stroke-dasharray": s.dash || "none" }));
    }
    if (count <= 15) s.values.forEach((v, i) => {
      if (v === null) return;
      const dot = marker(s.marker, x(i), y(v), 3.4);
      dot.setAttribute("fill", s.faint ? "var(--card)" : s.colour);
      dot.setAttribute("stroke", s.colour);
      group.append(dot);
    });
    return group;
  }

  const rgb = (text) => {
    const probe = text.replace("#", "");
    return [0, 2, 4].map((i) => parseInt(probe.slice(i, i + 2), 16));
  };
  const between = (a, b, t) => a.map((v, i) => Math.round(v + (b[i] - v) * t));

  function canvasOf(place, ratio, title) {
    place.replaceChildren();
    place.classList.add("chart");
    const canvas = el("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", title);
    const width = Math.max(200, place.clientWidth || 320), dpr = Math.min(2, window.devicePixelRatio || 1);
    canvas.width = Math.round(width * dpr);
    canvas.height = Math.round(width * ratio * dpr);
    canvas.style.aspectRatio = `${canvas.width} / ${canvas.height}`;
    place.append(canvas);
    return { canvas, pen: canvas.getContext("2d"), dpr };
  }

  // value(row, column) in -1..1 (diverging) or 0..1; text(row, column) for the tooltip; names of rows and columns
  function heat(place, { size, value, text, title, splits, names }) {
    const { canvas, pen, dpr } = canvasOf(place, 1, title);
    const [low, mid, high] = ["--heat-low", "--heat-mid", "--heat-high"].map((n) => rgb(colour(n)));
    pen.font = `${11 * dpr}px system-ui, sans-serif`;
    const labels = names.map((name) => (name.length > 11 ? `${name.slice(0, 10)}…` : name));
    const edge = Math.max(...labels.map((label) => pen.measureText(label).width)) + 8 * dpr;
    const cell = (canvas.width - edge) / size, every = Math.ceil((13 * dpr) / cell);
    const level = edge <= cell, head = level ? 18 * dpr : edge;
    canvas.height = Math.round(canvas.width - edge + head);
    canvas.style.aspectRatio = `${canvas.width} / ${canvas.height}`;
    pen.font = `${11 * dpr}px system-ui, sans-serif`;
    pen.textBaseline = "middle";
    pen.fillStyle = colour("--soft");
    labels.forEach((label, i) => {
      if (i % every) return;
      pen.fillText(label, 0, head + (i + .5) * cell);
      pen.save();
      pen.translate(edge + (i + .5) * cell, head - (level ? 10 : 6) * dpr);
      pen.rotate(level ? 0 : -Math.PI / 2);
      pen.textAlign = level ? "center" : "start";
      pen.fillText(label, 0, 0);
      pen.restore();
    });
    for (let r = 0; r < size; r++) for (let c = 0; c < size; c++) {
      const v = Math.max(-1, Math.min(1, value(r, c)));
      const tone = v < 0 ? between(mid, low, -v) : between(mid, high, v);
      pen.fillStyle = `rgb(${tone})`;
      pen.fillRect(Math.floor(edge + c * cell), Math.floor(head + r * cell), Math.ceil(cell), Math.ceil(cell));
    }
    pen.strokeStyle = colour("--faint");
    pen.globalAlpha = .6;
    for (const split of splits || []) {
      pen.beginPath();
      pen.moveTo(edge + split * cell, head); pen.lineTo(edge + split * cell, canvas.height);
      pen.moveTo(edge, head + split * cell); pen.lineTo(canvas.width, head + split * cell);
      pen.stroke();
    }
    const tip = tooltip(place);
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect(), f = canvas.width / box.width;
      const at = [event.clientY - box.top, event.clientX - box.left];
      const place_ = (v) => Math.min(size - 1, Math.max(0, Math.floor(v / cell)));
      const [r, c] = [place_(at[0] * f - head), place_(at[1] * f - edge)];
      tip.show(at[1], at[0], ...text(r, c).map((line) => el("div", "", line)));
    });
    canvas.addEventListener("pointerleave", () => tip.hide());
  }

  // points: [{x, y, colour, group, wrong}], anchors the same; text(point) for the tooltip
  function scatter(place, { points, anchors, width, height, text, title }) {
    const ratio = Math.max(.5, Math.min(.95, height / Math.max(1, width)));
    const { canvas, pen, dpr } = canvasOf(place, ratio, title);
    const pad = 14 * dpr;
    const scale = Math.min((canvas.width - 2 * pad) / width, (canvas.height - 2 * pad) / height);
    const ox = (canvas.width - width * scale) / 2, oy = (canvas.height - height * scale) / 2;
    const px = (p) => ox + p.x * scale, py = (p) => canvas.height - oy - p.y * scale;
    const ink = colour("--ink"), card = colour("--card");
    function draw(group) {
      pen.clearRect(0, 0, canvas.width, canvas.height);
      for (const p of points) {
        pen.globalAlpha = group === null || p.group === group ? .8 : .1;
        pen.fillStyle = p.colour;
        pen.beginPath();
        pen.arc(px(p), py(p), 2.6 * dpr, 0, 7);
        pen.fill();
        if (p.wrong && (group === null || p.group === group)) {
          pen.globalAlpha = .55; pen.strokeStyle = ink; pen.lineWidth = .8 * dpr; pen.stroke();
        }
      }
      for (const a of anchors) {
        pen.globalAlpha = group === null || a.group === group ? 1 : .15;
        const r = 7 * dpr;
        pen.beginPath();
        for (let i = 0; i < 10; i++) {
          const size = i % 2 ? r * .45 : r, turn = (i * Math.PI) / 5;
          pen.lineTo(px(a) + size * Math.sin(turn), py(a) - size * Math.cos(turn));
        }
        pen.closePath();
        pen.fillStyle = a.colour; pen.strokeStyle = card; pen.lineWidth = 2 * dpr;
        pen.stroke(); pen.fill();
        pen.strokeStyle = ink; pen.lineWidth = .8 * dpr; pen.stroke();
      }
      pen.globalAlpha = 1;
    }
    draw(null);
    const tip = tooltip(place);
    let shown = null;
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      const f = canvas.width / box.width;
      const mx = (event.clientX - box.left) * f, my = (event.clientY - box.top) * f;
      let best = null, distance = (18 * dpr) ** 2;
      for (const p of [...anchors, ...points]) {
        const d = (px(p) - mx) ** 2 + (py(p) - my) ** 2;
        if (d < distance) { distance = d; best = p; }
      }
      const group = best ? best.group : null;
      if (group !== shown) { shown = group; draw(group); }
      if (best) tip.show(px(best) / f, py(best) / f, ...text(best).map((line) => el("div", "", line)));
      else tip.hide();
    });
    canvas.addEventListener("pointerleave", () => { tip.hide(); shown = null; draw(null); });
    return { canvas, at: (p) => [px(p), py(p)] };
  }

  function swatch(style) {
    const root = svg("svg", { width: 26, height: 12, viewBox: "0 0 26 12", class: "swatch", "aria-hidden": "true" });
    const dot = marker(style.marker, 13, 6, 3.4);
    dot.setAttribute("fill", style.colour);
    root.append(svg("line", { x1: 1, x2: 25, y1: 6, y2: 6, stroke: style.colour, "stroke-width": 2, "stroke-dasharray": style.dash || "none" }), dot);
    return root;
  }

  return { el, lines, heat, scatter, swatch };
})();
