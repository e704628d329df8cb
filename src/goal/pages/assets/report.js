"use strict";
// Wires the page: state (benchmark, run, stage, convention), controls, and one function per section.
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { el, lines, heat, scatter, swatch } = Charts;
  const $ = (id) => document.getElementById(id);
  const PAIRS = {
    base: { old: "base", new: "novel", form: "goal_own", name: "base/novel",
      titles: ["Base classes", "Novel classes"],
      note: "Base: the labelled classes of stage 0. Novel: everything discovered since." },
    seen: { old: "seen", new: "unseen", form: "goal_rivals", name: "seen/unseen",
      titles: ["Seen classes", "Unseen classes"],
      note: "Seen: all classes known before the stage. Unseen: the stage's own new classes." },
  };
  const state = { benchmark: 0, group: 0, stage: 0, pair: "base", space: null, hidden: new Set(), paper: true };
  const bench = () => data.benchmarks[state.benchmark];
  const group = () => bench().groups[state.group];
  const details = () => group().details;
  const pair = () => PAIRS[state.pair];
  const fixed = (digits) => (value) => value.toFixed(digits);
  const percent = (cell) => (cell ? cell[0].toFixed(1) : "–");
  const withDeviation = (cell) => (cell ? cell[0].toFixed(1) + (cell[1] ? ` ± ${cell[1].toFixed(1)}` : "") : "–");
  const printed = (value) => (value === undefined || value === null ? "–" : String(value));
  const tone = (index) => `var(--series-${state.benchmark}-${index})`;
  const unpack = (text, Kind) => new Kind(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
  const stageNames = (count) => [...Array(count).keys()].map((i) => `stage ${i}`);
  const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

  function show(id, visible) { $(id).hidden = !visible; return visible; }

  function styleOf(entry, index) {
    return { colour: tone(index), dash: entry.style.dash, marker: entry.style.marker };
  }

  function button(text, pressed, act) {
    const node = el("button", "", text);
    node.type = "button";
    node.setAttribute("aria-pressed", String(pressed));
    node.addEventListener("click", act);
    return node;
  }

  function table(headings, rows) {
    const head = el("tr", "", ...headings.map((text) => el("th", "", text)));
    const body = rows.map(({ cells, className }) =>
      el("tr", className || "", ...cells.map((cell) => el("td", "", cell))));
    return el("table", "", el("thead", "", head), el("tbody", "", ...body));
  }

  // -- headline ----------------------------------------------------------------------------------

  function headline() {
    const entry = group(), last = entry.stages.length - 1, now = entry.stages[state.stage];
    const many = entry.seeds.length > 1;
    const card = (name, value, hint, unit) => {
      const node = el("div", "number", el("div", "name", name), el("div", "value", value), el("div", "hint", hint));
      if (value !== "–" && unit) node.children[1].append(el("small", "", unit));
      return node;
    };
    const [old, fresh] = pair().titles;
    const form = pair().form;
    $("numbers").replaceChildren(
      card("All", percent(now.all), `${plural(now.num_test, "test image")}, stage ${state.stage}`, "%"),
      card(old, percent(now[pair().old]), `stage ${state.stage}`, "%"),
      card(fresh, percent(now[pair().new]), state.stage ? `stage ${state.stage}` : "none at stage 0", "%"),
      card("Forgetting", percent(entry.forgetting[form]), `stage-0 All less ${pair().old} at stage ${last}`, "points"),
      card("Discovery", percent(entry.discovery[form]), `mean of ${pair().new} over stages`, "%"));
    $("convention-note").textContent = `Convention ${pair().name}. ${pair().note} Papers mix the two up: only All `
      + `compares across them. ${many ? `Means over seeds ${entry.seeds.join(", ")}.` : `Seed ${entry.seeds[0]}.`} `
      + `Backbone ${entry.backbone}.`;
  }

  // -- curves ------------------------------------------------------------------------------------

  function chips() {
    const nodes = bench().groups.map((entry, index) => {
      const node = button("", !state.hidden.has(index), () => {
        if (!state.hidden.delete(index)) state.hidden.add(index);
        chips(); curves(); keep();
      });
      node.className = "chip";
      const others = (dim) => document.querySelectorAll("#curves [data-series]").forEach((line) => {
        line.style.opacity = dim && line.dataset.series.replace(/, published$/, "") !== entry.label ? .1 : "";
      });
      for (const [event, dim] of [["pointerenter", true], ["focus", true], ["pointerleave", false], ["blur", false]])
        node.addEventListener(event, () => others(dim));
      node.append(swatch(styleOf(entry, index)), entry.label + (entry.seeds.length > 1 ? ` · ${entry.seeds.length} seeds` : ""));
      return node;
    });
    if (bench().groups.some((entry) => entry.paper)) {
      const node = button("published, hollow markers", state.paper, () => { state.paper = !state.paper; chips(); curves(); });
      node.className = "chip";
      nodes.push(node);
    }
    $("chips").replaceChildren(...nodes);
  }

  function accuracySeries(key, paperKey) {
    const found = [];
    bench().groups.forEach((entry, index) => {
      if (state.hidden.has(index)) return;
      const cells = entry.stages.map((stage) => stage[key]);
      found.push({ name: entry.label, ...styleOf(entry, index), values: cells.map((c) => (c ? c[0] : null)),
        deviation: cells.map((c) => (c ? c[1] : 0)) });
      const paper = entry.paper;
      const same = paperKey === "all" || (paper && paper.convention === pair().name);
      if (!state.paper || !paper || !paper.stages.length || !same) return;
      const start = paperKey === "all" ? paper.stage0_all : null;
      const values = [start, ...paper.stages.map((stage) => stage[paperKey] ?? null)];
      if (values.some((v) => v !== null))
        found.push({ name: `${entry.label}, published`, ...styleOf(entry, index), values, deviation: null, faint: true });
    });
    return found;
  }

  function curves() {
    const parts = { all: accuracySeries("all", "all"), old: accuracySeries(pair().old, "old"), new: accuracySeries(pair().new, "new") };
    const values = Object.values(parts).flat().flatMap((s) => s.values).filter((v) => v !== null);
    const low = values.length ? Math.max(0, Math.floor((Math.min(...values) - 4) / 10) * 10) : 0;
    const count = Math.max(...bench().groups.map((entry) => entry.stages.length));
    const labels = [...Array(count).keys()].map(String);
    labels.full = stageNames(count);
    [$("title-old").textContent, $("title-new").textContent] = pair().titles;
    for (const [name, series] of Object.entries(parts))
      lines($(`chart-${name}`), { series, labels, domain: [low, 100], format: fixed(1), tall: bench().groups.length > 5, title: `Accuracy by stage, ${name}` });
  }

  function sweep() {
    const found = bench().sweep;
    if (!show("sweep", found)) return;
    const labels = [...found.values];
    labels.full = found.values.map((value) => `${found.key} = ${value}`);
    const kinds = { all: "All", [pair().old]: pair().titles[0].split(" ")[0], [pair().new]: pair().titles[1].split(" ")[0] };
    const looks = [["var(--ink)", "", "o"], ["var(--heat-high)", "6 4", "s"], ["var(--heat-low)", "2 3", "^"]];
    const series = Object.entries(kinds).map(([key, name], i) => {
      const cells = found.measures[key], [colour, dash, marker] = looks[i];
      return { name, colour, dash, marker, values: cells.map((c) => (c ? c[0] : null)), deviation: cells.map((c) => (c ? c[1] : 0)) };
    });
    $("sweep-title").textContent = `What ${found.key} does`;
    $("sweep-note").textContent = `${found.method}: percent, averages over stages 1 and later, for each value of ${found.key}. Bands are one standard deviation over seeds.`;
    $("sweep-legend").replaceChildren(...series.map((s) => el("span", "", swatch(s), s.name)));
    lines($("sweep-chart"), { series, labels, at: found.places, format: fixed(1), title: `Accuracy by ${found.key}` });
  }

  function comparison() {
    const { old, new: fresh, form, titles } = pair();
    const rows = [];
    bench().groups.forEach((entry, index) => {
      const name = el("span", "", swatch(styleOf(entry, index)), entry.label);
      const last = entry.stages.at(-1);
      rows.push({ cells: [name, String(entry.seeds.length), withDeviation(entry.stages[0].all), withDeviation(entry.average.all),
        withDeviation(entry.average[old]), withDeviation(entry.average[fresh]), withDeviation(last.all), withDeviation(entry.forgetting[form]), withDeviation(entry.discovery[form])] });
      const paper = entry.paper;
      if (!paper) return;
      const same = paper.convention === pair().name;
      const forms = entry.paper_forms && entry.paper_forms.form === form ? entry.paper_forms : {};
      const end = paper.stages.length ? paper.stages.at(-1).all : null;
      rows.push({ className: "paper", cells: ["published", "", printed(paper.stage0_all), printed(paper.average.all),
        same ? printed(paper.average.old) : "–", same ? printed(paper.average.new) : "–", printed(end), printed(forms.forgetting), printed(forms.discovery)] });
    });
    const heads = ["Method", "Seeds", "Stage 0", "All", ...titles.map((t) => t.split(" ")[0]), "Final All", "Forgetting", "Discovery"];
    $("comparison").replaceChildren(table(heads, rows));
    $("paper-note").textContent = bench().groups.some((entry) => entry.paper)
      ? "Published rows: DINO ViT-B/16, with old and new only in the convention they were printed in." : "";
    const kinds = Object.keys(group().forgetting);
    $("forms").replaceChildren(table(["Method", ...kinds.map((k) => `Mf ${k}`), ...kinds.map((k) => `Md ${k}`)],
      bench().groups.map((entry) => ({ cells: [entry.label, ...kinds.map((k) => withDeviation(entry.forgetting[k])), ...kinds.map((k) => withDeviation(entry.discovery[k]))] }))));
  }

  // -- one run, one stage ------------------------------------------------------------------------

  const stageData = () => (details() ? details().stages[state.stage] : null);
  const nameOf = (index) => (index < 0 ? "no class" : details().names[index] ?? `class ${index}`);

  function confusion() {
    const found = stageData();
    if (!show("confusion", found)) return;
    const born = details().births, kinds = ["base", "earlier", "new"];
    const { counts, right } = found.confusion;
    const rows = [0, 1, 2].filter((r) => counts[r].some((v) => v));
    const columns = [0, 1, 2, 3].filter((c) => c < 3 ? rows.includes(c) : rows.some((r) => counts[r][3]));
    const heads = ["", ...columns.map((c) => (c === 3 ? "no class" : kinds[c]))];
    const body = rows.map((r) => {
      const total = counts[r].reduce((a, b) => a + b, 0);
      return { cells: [el("span", "", kinds[r]), ...columns.map((c) => {
        const share = counts[r][c] / total;
        const node = el("div", "cell", `${(100 * share).toFixed(1)}%`);
        node.style.background = `color-mix(in srgb, var(--${c === r ? "heat-high" : "heat-low"}) ${Math.round(15 + share * 60)}%, var(--card))`;
        if (share > .55) node.style.color = "var(--card)";
        if (c === r) node.append(el("small", "", `${((100 * right[r]) / total).toFixed(1)}% right`));
        return node;
      })] };
    });
    const kindTable = table(heads, body);
    kindTable.className = "kinds";
    $("kinds").replaceChildren(kindTable);
    const { classes, of } = found.matrix, cells = unpack(found.matrix.cells, Uint8Array);
    $("confusion-note").textContent = `${group().label}, seed ${details().seed}, after stage ${state.stage}. `
      + (classes.length < of ? `Class by class: ${classes.length} of ${of} classes, evenly spread. ` : "")
      + "Rows are true classes, columns what their images were taken for: base, found at earlier stages, new in this stage. Lines part classes of different stages.";
    heat($("matrix"), { size: classes.length, names: classes.map(nameOf), title: "Confusion, class by class", splits: splits(classes, born),
      value: (r, c) => Math.sqrt(cells[r * classes.length + c] / 100),
      text: (r, c) => [`${nameOf(classes[r])} → ${nameOf(classes[c])}`, `${cells[r * classes.length + c]}% of its images`] });
  }

  const splits = (classes, born) => classes.flatMap((c, i) => (i && born[c] !== born[classes[i - 1]] ? [i] : []));

  function gallery() {
    const found = stageData();
    if (!show("found", found && state.stage > 0)) return;
    const cards = found.cards || [];
    const wrong = cards.length ? "" : " No pictures of this stage are in this page.";
    $("gallery-note").textContent = `Classes that ${group().label} (seed ${details().seed}) discovered without a label, as it sees test images `
      + `after stage ${state.stage}. A class bears the name of the true one it matches; the method never saw that name.${wrong}`;
    showGallery($("gallery"), { cards, thumbnails: data.thumbnails });
  }

  function stageColour(index, last) {
    if (index === 0) return getComputedStyle(document.documentElement).getPropertyValue("--faint").trim();
    const anchors = ["#2f7fc1", "#1f9e8f", "#7da52c", "#e0a11b", "#db6a1f", "#b8407f"];
    if (last <= anchors.length) return anchors[Math.round(((index - 1) * (anchors.length - 1)) / Math.max(1, last - 1))];
    const at = ((index - 1) * (anchors.length - 1)) / (last - 1), low = Math.floor(at);
    const parts = [anchors[low], anchors[Math.min(low + 1, anchors.length - 1)]].map((t) => [1, 3, 5].map((i) => parseInt(t.slice(i, i + 2), 16)));
    return `rgb(${parts[0].map((v, i) => Math.round(v + (parts[1][i] - v) * (at - low)))})`;
  }

  function currentMap() {
    const maps = stageData() ? stageData().maps : {};
    const spaces = Object.keys(maps);
    // Vertices are targets of training: where a stage took no steps, its classes live in feature space.
    const trained = spaces.length > 1 && details().history.stage.includes(state.stage);
    const first = trained ? "embeddings" : "features";
    return { maps, spaces, space: spaces.includes(state.space) ? state.space : spaces.includes(first) ? first : spaces[0] };
  }

  function map() {
    const { maps, spaces, space } = currentMap();
    if (!show("map", spaces.length)) return;
    const words = { embeddings: "embeddings, with vertices", features: "features" };
    $("space").replaceChildren(...(spaces.length > 1 ? spaces.map((name) => button(words[name], name === space, () => { state.space = name; map(); geometry(); keep(); })) : []));
    const found = maps[space], { births: born } = details(), last = Math.max(...born);
    const flat = unpack(found.points, Uint16Array), truth = unpack(found.truth, Uint16Array), named = unpack(found.named, Uint16Array);
    const points = [...truth].map((t, i) => ({ x: flat[2 * i], y: flat[2 * i + 1], group: t, named: named[i] - 1, wrong: named[i] - 1 !== t, colour: stageColour(born[t], last) }));
    const tips = unpack(found.vertices, Uint16Array);
    const anchors = found.owner.flatMap((owner, i) => (owner < 0 || 2 * i >= tips.length ? [] : [{ x: tips[2 * i], y: tips[2 * i + 1], group: owner, vertex: true, colour: stageColour(born[owner], last) }]));
    scatter($("scatter"), { points, anchors, width: found.size[0] || 1, height: found.size[1] || 1, title: `Map of ${space}`,
      text: (p) => (p.vertex ? [`vertex of ${nameOf(p.group)}`] : [nameOf(p.group), p.wrong ? `taken for ${nameOf(p.named)}` : "named right"]) });
    $("map-note").textContent = `${points.length === found.of ? plural(found.of, "test image") : `${points.length.toLocaleString("en")} of ${plural(found.of, "test image")}, evenly spread over classes`}`
      + `, on the two principal axes of their ${space}, which hold ${(100 * found.explained).toFixed(0)}% of the variance. Ringed: named wrong. Point at one to see its class.`;
    const legend = [...Array(state.stage + 1).keys()].map((i) => {
      const dot = el("i", "dot");
      dot.style.background = stageColour(i, last);
      return el("div", "", dot, i ? `found at stage ${i}` : "base classes");
    });
    if (anchors.length) legend.push(el("div", "", "★ vertices of the simplex, each the fixed target of a class"));
    $("map-legend").replaceChildren(...legend);
  }

  function geometry() {
    const { maps, space } = currentMap();
    const found = space ? maps[space] : null;
    for (const id of ["cosines", "ideal"]) $(id).parentElement.hidden = !found;
    if (found) {
      const { classes, class_count: count } = found, cells = unpack(found.cosines, Uint8Array), size = classes.length;
      const value = (r, c) => (cells[r * size + c] - 100) / 100, ideal = (r, c) => (r === c ? 1 : -1 / Math.max(1, count - 1));
      const named = (r, c) => (r === c ? nameOf(classes[r]) : `${nameOf(classes[r])} · ${nameOf(classes[c])}`);
      const names = classes.map(nameOf), lines_ = splits(classes, details().births);
      heat($("cosines"), { size, names, value, splits: lines_, title: "Cosines between class means",
        text: (r, c) => [named(r, c), `cosine ${value(r, c).toFixed(2)}, ideal ${ideal(r, c).toFixed(2)}`] });
      heat($("ideal"), { size, names, value: ideal, splits: lines_, title: "Cosines of an ideal simplex", text: (r, c) => [named(r, c), `cosine ${ideal(r, c).toFixed(2)}`] });
      $("geometry-note").textContent = `Cosines between the class means of test ${space} about their common mean, after stage ${state.stage}`
        + `${size < count ? `; ${size} of ${count} classes, evenly spread` : ""}. With all classes equally far apart, every pair has −1/${count - 1}.`;
    }
    const panels = { nc1: "NC1 within / between", nc2: "NC2 off the simplex", nc3: "NC3 means and weights",
      nc3_vertices: "NC3 means and vertices", nc4: "NC4 nearest mean agrees", vertex_alignment: "Cosine to own vertex" };
    show("geometry", small("collapse", panels, fixed(3)) || found);
    const trusted = { confident_size: "Size", confident_novel: "Truly new, %", confident_purity: "Purity, %" };
    show("trusted-part", small("trusted", trusted, fixed(1), (key) => key !== "confident_size"));
  }

  function small(id, panels, format, isPercent = () => false) {
    const nodes = [];
    for (const [key, title] of Object.entries(panels)) {
      const series = [];
      bench().groups.forEach((entry, index) => {
        const cells = entry.stages.map((stage) => stage[key]);
        if (cells.some((c) => c) && !state.hidden.has(index))
          series.push({ name: entry.label, ...styleOf(entry, index), values: cells.map((c) => (c ? c[0] : null)), deviation: cells.map((c) => (c ? c[1] : 0)) });
      });
      if (!series.length) continue;
      const place = el("div", ""), labels = bench().groups[0].stages.map((_, i) => String(i));
      labels.full = stageNames(labels.length);
      nodes.push(el("div", "panel", el("h3", "", title), place));
      const low = Math.min(...series.flatMap((s) => s.values.filter((v) => v !== null)));
      lines(place, { series, labels, format, title, domain: isPercent(key) ? [Math.max(0, Math.floor(low / 10 - 1) * 10), 100] : null });
    }
    $(id).replaceChildren(...nodes);
    return nodes.length > 0;
  }

  function losses() {
    const history = details() ? details().history : { epoch: [], stage: [], terms: {} };
    if (!show("losses", history.epoch.length)) return;
    const here = history.stage.flatMap((stage, i) => (stage === state.stage ? [i] : []));
    $("loss-note").textContent = here.length ? `${group().label}, seed ${details().seed}, stage ${state.stage}: the mean of each weighted term over an epoch.`
      : `${group().label} takes no gradient steps at stage ${state.stage}.`;
    const labels = here.map((i) => String(history.epoch[i]));
    labels.full = here.map((i) => `epoch ${history.epoch[i]}`);
    const nodes = Object.entries(history.terms).flatMap(([term, all]) => {
      const values = here.map((i) => all[i]);
      if (!values.some((v) => v !== null)) return [];
      const place = el("div", "");
      lines(place, { series: [{ name: term, ...styleOf(group(), state.group), dash: "", values, deviation: null }], labels, format: (v) => v.toPrecision(3), title: `Loss term ${term}` });
      return [el("div", "panel", el("h3", "", term.replaceAll("_", " ")), place)];
    });
    $("loss").replaceChildren(...nodes);
  }

  function facts() {
    const d = details();
    if (!show("facts", d)) return;
    const seconds = (v) => (v >= 3600 ? `${(v / 3600).toFixed(1)} h` : v >= 60 ? `${(v / 60).toFixed(1)} min` : `${v.toFixed(1)} s`);
    const rows = group().stages.map((stage, i) => ({ cells: [`stage ${i}`, printed(stage.num_train), printed(stage.num_test), printed(stage.num_new), d.stage_seconds.length === group().stages.length ? seconds(d.stage_seconds[i]) : "–"] }));
    const versions = Object.entries(d.versions).map(([k, v]) => `${k} ${v}`).join(", ");
    const settings = el("details", "", el("summary", "", "Every setting"), el("pre", "", d.settings));
    $("facts-body").replaceChildren(
      el("p", "soft", `${group().label}: folder ${d.folder}, ${group().seeds.length > 1 ? `seeds ${group().seeds.join(", ")}; details of seed ${d.seed}` : `seed ${d.seed}`}; ${seconds(d.wall_seconds)} in all; epochs: ${group().selection === "last" ? "the last one's model" : "chosen on test accuracy"}. ${versions}.`),
      el("div", "panel wide", table(["", "Train images", "Test images", "New classes", "Time"], rows)), settings);
  }

  // -- controls ----------------------------------------------------------------------------------

  function controls() {
    const last = group().stages.length - 1;
    if (last <= 6) {
      const row = el("span", "switch", ...stageNames(last + 1).map((name, i) => {
        const node = button(String(i), i === state.stage, () => { state.stage = i; render(); });
        node.setAttribute("aria-label", name);
        return node;
      }));
      $("stage").replaceChildren(row);
    } else $("stage").replaceChildren(choice(stageNames(last + 1), state.stage, (i) => { state.stage = i; render(); }));
    $("run").replaceChildren(...options(bench().groups.map((entry) => entry.label), state.group));
    for (const node of $("convention").children) node.setAttribute("aria-pressed", String(node.dataset.value === state.pair));
  }

  const options = (names, chosen) => names.map((name, i) => new Option(name, i, false, i === chosen));

  function choice(names, chosen, act) {
    const node = el("select", "", ...options(names, chosen));
    node.setAttribute("aria-label", "Stage");
    node.addEventListener("change", () => act(Number(node.value)));
    return node;
  }

  function detail() { confusion(); gallery(); map(); geometry(); losses(); facts(); }
  function render() { controls(); headline(); detail(); keep(); }
  function everything() { controls(); headline(); chips(); curves(); sweep(); comparison(); detail(); keep(); }

  // -- the address keeps what was chosen, by name -------------------------------------------------

  function keep() {
    const chosen = new URLSearchParams({ benchmark: bench().title, run: group().label, stage: state.stage, convention: state.pair });
    if (state.space) chosen.set("space", state.space);
    for (const index of state.hidden) chosen.append("off", bench().groups[index].label);
    history.replaceState(null, "", `#${chosen}`);
  }

  function recall() {
    const chosen = new URLSearchParams(location.hash.slice(1));
    const place = (list, name) => Math.max(0, list.indexOf(name));
    state.benchmark = place(data.benchmarks.map((b) => b.title), chosen.get("benchmark"));
    const labels = bench().groups.map((entry) => entry.label);
    state.group = place(labels, chosen.get("run"));
    const last = group().stages.length - 1, stage = chosen.has("stage") ? Number(chosen.get("stage")) : last;
    state.stage = Number.isInteger(stage) && stage >= 0 && stage <= last ? stage : last;
    state.pair = Object.hasOwn(PAIRS, chosen.get("convention")) ? chosen.get("convention") : "base";
    state.space = ["embeddings", "features"].includes(chosen.get("space")) ? chosen.get("space") : null;
    state.hidden = new Set(chosen.getAll("off").map((name) => labels.indexOf(name)).filter((index) => index >= 0));
    $("benchmark").value = state.benchmark;
    everything();
  }

  $("benchmark").append(...options(data.benchmarks.map((b) => b.title), 0));
  $("benchmark-field").hidden = data.benchmarks.length < 2;
  $("benchmark").addEventListener("change", (event) => {
    Object.assign(state, { benchmark: Number(event.target.value), group: 0, hidden: new Set() });
    state.stage = group().stages.length - 1;
    everything();
  });
  $("run").addEventListener("change", (event) => { state.group = Number(event.target.value); render(); });
  $("convention").addEventListener("click", (event) => {
    if (!event.target.dataset.value) return;
    state.pair = event.target.dataset.value;
    controls(); headline(); curves(); sweep(); comparison(); keep();
  });
  $("notes").replaceChildren(...data.notes.map((text) => el("p", "soft", text)));
  recall();
  window.addEventListener("hashchange", recall);
  const redraw = () => { confusion(); map(); geometry(); };
  for (const query of ["(prefers-color-scheme: dark)", "print"]) window.matchMedia(query).addEventListener("change", redraw);
  let timer = 0, width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    clearTimeout(timer);
    timer = setTimeout(redraw, 150);
  });
})();
