// The graph: kernel launches as boxes of the model's ops, from top to bottom, with search, zoom and keyboard navigation.

const MARGIN = 18, HEAD = 34, LINE = 19;
// Number of producers or consumers of a value that are listed.
const MAX_LISTED_READERS = 40;

/** Seconds by launch index: the time of a kernel, split between its launches as in the measured run. */
function launchSeconds() {
  const times = new Map(), kernels = new Map(), measured = new Map();
  for (const span of DATA.measurements?.spans ?? []) {
    times.set(span.launch, (times.get(span.launch) ?? 0) + span.seconds);
    kernels.set(span.launch, span.kernel);
    measured.set(span.kernel, (measured.get(span.kernel) ?? 0) + span.seconds);
  }
  const secondsOf = new Map(DATA.kernels.map((k) => [k.name, k.seconds ?? 0]));
  for (const [launch, time] of times) {
    const kernel = kernels.get(launch);
    times.set(launch, measured.get(kernel) ? (time / measured.get(kernel)) * (secondsOf.get(kernel) ?? time) : 0);
  }
  return times;
}

const truncated = (text, maxChars) => (text.length > maxChars ? `${text.slice(0, maxChars - 1)}…` : text);
/** Truncate at the start: the end of an origin is the most specific. */
const truncatedStart = (text, maxChars) => (text.length > maxChars ? `…${text.slice(1 - maxChars)}` : text);
const titleOf = (box) => (box.kind === "view" ? `${box.name} · a view` : box.kind === "size" ? `${box.name} is ${DATA.sizes[box.name] ?? "data-dependent"}` : box.name);
const groupText = (group) => `${group.ops.join(" ")}${group.origins.length ? ` · ${short(group.origins[0])}` : ""}`;

function graphView(params) {
  const { boxes, edges, width, height } = DATA.graph;
  const times = launchSeconds(), total = sum(DATA.kernels.map((k) => k.seconds ?? 0)) || 1;
  const share = (box) => (box.launch !== null && times.has(box.launch) ? times.get(box.launch) / total : null);
  const maxShare = Math.max(...boxes.map((box) => share(box) ?? 0), 1e-9);
  const corner = (k) => {
    const { x, y, parent } = boxes[k];
    if (parent === null) return [x, y];
    const [px, py] = corner(parent);
    return [px + MARGIN + x, py + HEAD + y];
  };
  const shapes = [], lines = [];
  const scene = el("g", {});
  const contentOrigin = (k) => (boxes[k].parent === null ? [0, 0] : corner(boxes[k].parent).map((c, i) => c + (i ? HEAD : MARGIN)));

  boxes.forEach((box, k) => {
    const [x, y] = corner(k), timeShare = share(box);
    const description = `${box.kind} ${box.name}${timeShare === null ? "" : `, ${percent(timeShare)} of the time`}: ${box.groups.map(groupText).join(", ")}`;
    const shape = el(`g.box.${box.kind}`, {
      transform: `translate(${x} ${y})`, tabindex: -1, role: "button", "aria-label": description, "data-box": k,
      onclick: (event) => { event.stopPropagation(); select(k); },
    },
    el("rect.body", { width: box.width, height: box.height, rx: box.kind === "kernel" || box.kind === "loop" ? 8 : 13 }),
    timeShare === null ? null : el("rect.heat", { x: 1, y: 1, width: 5, height: box.height - 2, rx: 2.5, opacity: 0.08 + 0.92 * timeShare / maxShare }),
    el("text.title", { x: 14, y: box.kind === "kernel" || box.kind === "loop" ? 22 : 17.5 }, truncated(titleOf(box), timeShare === null ? 28 : 20)),
    timeShare === null ? null : el("text.share.quiet", { x: box.width - 10, y: 22, "text-anchor": "end" }, percent(timeShare)),
    box.kind === "kernel" ? box.groups.map((p, i) => el("text.part.quiet", { x: 14, y: HEAD + 6 + LINE * i + 5 }, truncated(groupText(p), 31))) : null,
    el("title", {}, description));
    shapes.push(shape);
  });
  edges.forEach((edge) => {
    const [ox, oy] = contentOrigin(edge.source);
    const points = edge.points.map(([x, y]) => [x + ox, y + oy]);
    let path = `M${points[0]}`;
    for (let i = 1; i < points.length; i += 1) {
      const [[ax, ay], [bx, by]] = [points[i - 1], points[i]], bend = Math.max(12, (by - ay) * 0.45);
      path += ax === bx ? `V${by}` : `C${ax} ${ay + bend} ${bx} ${by - bend} ${bx} ${by}`;
    }
    lines.push(el(edge.is_stub ? "path.edge.is_stub" : "path.edge", { d: path }, el("title", {}, edge.is_stub ? `${boxes[edge.source].name}, ${edge.type}` : edge.type)));
  });
  // Loops are drawn below their content, and edges above loops.
  scene.append(...shapes.filter((_, k) => boxes[k].kind === "loop"), ...lines, ...shapes.filter((_, k) => boxes[k].kind !== "loop"));

  const svg = el("svg", { role: "group", "aria-label": "Kernels and their ops" }, scene);
  const stage = el("div.stage", {}, svg);
  const detail = el("aside", { "aria-label": "Selection", tabindex: 0 });
  let zoom = 1, left = 0, top = 0, selected = null;

  const applyTransform = () => {
    scene.setAttribute("transform", `translate(${left} ${top}) scale(${zoom})`);
    svg.classList.toggle("far", zoom < 0.42);
    svg.classList.toggle("farther", zoom < 0.2);
  };
  const fit = () => {
    const bounds = stage.getBoundingClientRect();
    zoom = Math.min(1, (bounds.width - 60) / width, Math.max((bounds.height - 60) / height, 0.72));
    left = (bounds.width - width * zoom) / 2;
    top = Math.max(56, (bounds.height - height * zoom) / 2);
    applyTransform();
  };
  const showAll = () => {
    const bounds = stage.getBoundingClientRect();
    // A graph that is too tall is aligned to its top.
    zoom = Math.max(0.06, Math.min(1, (bounds.width - 60) / width, (bounds.height - 90) / height));
    [left, top] = [(bounds.width - width * zoom) / 2, Math.max(56, (bounds.height - height * zoom) / 2)];
    applyTransform();
  };
  const zoomBy = (factor, x, y) => {
    const next = Math.min(3, Math.max(0.02, zoom * factor));
    left = x - (x - left) * next / zoom;
    top = y - (y - top) * next / zoom;
    zoom = next;
    applyTransform();
  };
  const middle = () => { const bounds = stage.getBoundingClientRect(); return [bounds.width / 2, bounds.height / 2]; };
  const centerOn = (k) => {
    const bounds = stage.getBoundingClientRect(), [x, y] = corner(k), box = boxes[k];
    if (zoom < 0.6) zoom = 0.9;
    left = bounds.width / 2 - (x + box.width / 2) * zoom;
    top = bounds.height / 2 - (y + Math.min(box.height, bounds.height / zoom) / 2) * zoom;
    applyTransform();
  };
  const isVisible = (k) => {
    const bounds = stage.getBoundingClientRect(), [x, y] = corner(k);
    const [sx, sy] = [left + x * zoom, top + y * zoom];
    return zoom >= 0.42 && sx > -20 && sy > 20 && sx + boxes[k].width * zoom < bounds.width + 20 && sy + boxes[k].height * zoom < bounds.height + 20;
  };
  /** Clear the selection and show the program. */
  function overview() {
    selected = null;
    lines.forEach((line) => line.classList.remove("near"));
    shapes.forEach((shape, i) => { shape.classList.remove("picked", "near"); shape.setAttribute("tabindex", i === first ? 0 : -1); });
    detail.replaceChildren(...programDetail((name) => select(boxes.findIndex((box) => box.kind === "kernel" && box.name === name), { move: true })));
    replaceHash("graph", {});
  }
  function select(k, { move = false, focus = true, stay = false } = {}) {
    selected = k;
    const near = new Set([k]);
    edges.forEach((edge, i) => {
      const touches = edge.source === k || edge.target === k;
      lines[i].classList.toggle("near", touches);
      if (touches) { near.add(edge.source); near.add(edge.target); }
    });
    shapes.forEach((shape, i) => {
      shape.classList.toggle("picked", i === k);
      shape.classList.toggle("near", i !== k && near.has(i));
      shape.setAttribute("tabindex", i === k ? 0 : -1);
    });
    if (move || (!stay && !isVisible(k))) centerOn(k);
    detail.replaceChildren(...boxDetail(k, share(boxes[k]), times, (neighbor) => select(neighbor, { move: true })));
    if (focus) shapes[k].focus({ preventScroll: true });
    replaceHash("graph", { box: k });
  }

  stage.addEventListener("wheel", (event) => {
    event.preventDefault();
    const bounds = stage.getBoundingClientRect();
    if (event.ctrlKey || event.metaKey || event.deltaMode || Math.abs(event.deltaY) >= 40 && !event.deltaX) {
      zoomBy(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0016)), event.clientX - bounds.left, event.clientY - bounds.top);
    } else { left -= event.deltaX; top -= event.deltaY; applyTransform(); }
  }, { passive: false });
  stage.addEventListener("pointerdown", (event) => {
    if (event.target.closest(".tools") || event.button) return;
    const from = [event.clientX - left, event.clientY - top];
    let moved = false;
    const isBackground = event.target === svg || event.target === stage;
    const move = (e) => {
      if (!moved && Math.hypot(e.clientX - from[0] - left, e.clientY - from[1] - top) < 4) return;
      moved = true;
      stage.classList.add("dragging");
      [left, top] = [e.clientX - from[0], e.clientY - from[1]];
      applyTransform();
    };
    const end = () => {
      if (isBackground && !moved) overview();
      stage.classList.remove("dragging"); removeEventListener("pointermove", move); removeEventListener("pointerup", end); };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
  });
  svg.addEventListener("keydown", (event) => {
    const current = selected ?? first;
    const findNext = {
      ArrowDown: () => edges.filter((e) => e.source === current).map((e) => e.target)[0],
      ArrowUp: () => edges.filter((e) => e.target === current).map((e) => e.source)[0],
      ArrowRight: () => (current + 1) % boxes.length,
      ArrowLeft: () => (current + boxes.length - 1) % boxes.length,
      Home: () => 0,
      End: () => boxes.length - 1,
    }[event.key];
    const next = findNext?.();
    if (next !== undefined) { event.preventDefault(); select(next); }
    if (event.key === "Escape") overview();
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); selected === null ? select(first) : detail.querySelector("button")?.focus(); }
  });

  const tools = el("div.tools", {}, searchBox(boxes, (k) => select(k, { move: true })),
    button("Fit", showAll, "plain"), button("+", () => zoomBy(1.4, ...middle()), "plain"), button("−", () => zoomBy(1 / 1.4, ...middle()), "plain"));
  tools.querySelectorAll("button").forEach((b, i) => b.setAttribute("aria-label", ["Show all", "Zoom in", "Zoom out"][i]));
  stage.append(tools, el("div.legend", {}, DATA.measurements
    ? "A box is one kernel launch with its fused ops. The bar on its left shows its share of the time."
    : "A box is one kernel launch with its fused ops.",
  edges.some((edge) => edge.is_stub) ? " A dotted end is an edge from far above." : null));
  const first = params.box !== undefined ? Number(params.box) : boxes.findIndex((box) => box.kind === "kernel" && (!params.kernel || box.name === params.kernel));
  return {
    nodes: [stage, detail],
    ready() {
      fit();
      const hasSelection = params.box !== undefined || params.kernel !== undefined;
      hasSelection && first >= 0 ? select(first, { focus: false, move: true }) : overview();
    },
  };
}

function searchBox(boxes, onChoose) {
  const list = el("ul", { role: "listbox", id: "found", hidden: true, "aria-label": "Found" });
  const input = el("input", {
    type: "search", placeholder: "Search ops, kernels, origins", "aria-label": "Search ops, kernels and origins", role: "combobox",
    "aria-expanded": "false", "aria-controls": "found", "aria-autocomplete": "list", size: 30, id: "search",
  });
  const texts = boxes.map((box) => [box.name, ...box.groups.map(groupText), ...box.weights].join(" ").toLowerCase());
  let matches = [], active = 0;
  const markActive = () => {
    [...list.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === active)));
    list.children[active]?.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", list.children[active]?.id ?? "");
  };
  const close = () => { list.hidden = true; input.setAttribute("aria-expanded", "false"); };
  const pick = (i) => { close(); onChoose(matches[i]); };
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    matches = words.length ? boxes.map((_, k) => k).filter((k) => words.every((w) => texts[k].includes(w))).slice(0, 200) : [];
    list.replaceChildren(...matches.map((k, i) => el("li", { role: "option", id: `found-${i}`, onpointerdown: () => pick(i) },
      boxes[k].name, " ", el("span.quiet", {}, boxes[k].groups.map(groupText).join(", ")))));
    if (words.length && !matches.length) list.append(el("li.quiet", {}, "No match"));
    list.hidden = !words.length;
    input.setAttribute("aria-expanded", String(Boolean(words.length)));
    announce(words.length ? `${matches.length} found` : "");
    active = 0;
    markActive();
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      active = Math.max(0, Math.min(matches.length - 1, active + (event.key === "ArrowDown" ? 1 : -1)));
      markActive();
    }
    if (event.key === "Enter" && matches.length) pick(active);
    if (event.key === "Escape") close();
  });
  input.addEventListener("blur", close);
  return el("div.found", {}, input, list);
}

/** The panel of the program, shown without a selection: time and memory. */
function programDetail(onChoose) {
  const { kernels, memory } = DATA, time = sum(kernels.map((k) => k.seconds ?? 0)), limitSeconds = sum(kernels.map((k) => Math.min(k.limit_seconds ?? 0, k.seconds ?? 0)));
  const slowest = [...kernels].sort((a, b) => (b.seconds ?? 0) - (a.seconds ?? 0)).slice(0, 6);
  const { live, peak } = liveBuffers(memory), liveAtPeak = live[peak] ?? [], largest = [...liveAtPeak].sort((a, b) => b.bytes - a.bytes)[0];
  return [
    el("h2", {}, DATA.name), el("p.quiet.small", {}, "The whole program. Click a box, or press Enter, for details."),
    listed([
      time && ["a call", `${seconds(time)} in kernels, ${percent(limitSeconds / time)} of the machine limit`],
      ["kernels", `${kernels.length}, in ${plural(sum(kernels.map((k) => k.runs)), "launch", "es")}`],
      ["arena", bytes(memory.arena_bytes)], ["weights", bytes(sum(memory.weights.map((w) => w.bytes)))],
      ["compilation", seconds(DATA.seconds)],
    ]),
    time ? el("h3", {}, "Time by kernel") : null,
    time ? el("ul.bare.small.shares", {}, slowest.map((k) => el("li", {}, button(k.name, () => onChoose(k.name)),
      el("span.bar", { "aria-hidden": "true", style: `width:${70 * k.seconds / slowest[0].seconds}px` }), el("span.quiet", {}, percent(k.seconds / time))))) : null,
    time && kernels.length > slowest.length ? el("p.small", {}, button(`All ${kernels.length} kernels`, () => go("kernels"))) : null,
    el("h3", {}, "Peak memory"),
    el("p.small", {}, largest ? ["The peak is at launch ", `${peak + 1}, `, el("b", {}, memory.launches[peak]), `: ${bytes(sum(liveAtPeak.map((b) => b.bytes)))}, of which `, el("b", {}, bufferName(largest)), ` takes ${percent(largest.bytes / sum(liveAtPeak.map((b) => b.bytes)))}. `]
      : `${NO_ARENA()} `, button("Arena over time", () => go("memory"))),
    ...[["Inputs", DATA.inputs], ["Outputs", DATA.outputs]].flatMap(([title, texts]) => [el("h3", {}, title),
      el("ul.bare.small", {}, texts.map((text) => el("li.mono", {}, text)))]),
  ].filter(Boolean);
}

function boxDetail(k, share, times, onChoose) {
  const box = DATA.graph.boxes[k], kernel = box.kind === "kernel" && DATA.kernels.find((candidate) => candidate.name === box.name);
  const links = (neighbors) => el("ul.bare.small", {}, neighbors.slice(0, MAX_LISTED_READERS).map(([neighbor, type]) => el("li", {},
    button(DATA.graph.boxes[neighbor].name, () => onChoose(neighbor)), " ", el("span.quiet.mono", {}, type))),
  neighbors.length > MAX_LISTED_READERS ? el("li.quiet", {}, `and ${neighbors.length - MAX_LISTED_READERS} more`) : null);
  const producers = DATA.graph.edges.filter((e) => e.target === k).map((e) => [e.source, e.type]);
  const consumers = DATA.graph.edges.filter((e) => e.source === k).map((e) => [e.target, e.type]);
  const kinds = { kernel: "a kernel launch", view: "a view: another shape of the same memory", loop: "a loop or a branch", input: "an input", output: "an output",
    host: "computed in Python: a call waits here for the result",
    size: "a data-dependent size: a call waits here until it is known; later buffers have this size" };
  return [
    el("h2", {}, breakable(box.name)), el("p.quiet.small", {}, kinds[box.kind]),
    box.kind === "kernel" && kernel ? el("p.small", {}, button("Show its passes", () => go("pipeline", { unit: box.name })),
      " · ", button("Show its profile", () => go("kernels", { kernel: box.name }))) : null,
    listed([
      box.kind === "size" && ["in this call", String(DATA.sizes[box.name] ?? "")],
      share !== null && ["time", `${seconds(times.get(box.launch))}, ${percent(share)} of a run`],
      box.results.length && ["results", ...box.results.map((type) => el("div.mono", {}, type))],
      kernel && kernel.runs > 1 && ["launches", `${kernel.runs} of this kernel per call`],
      kernel && kernel.tasks.length && ["tasks", `${kernel.tasks.join(" + ")}`],
    ]),
    box.groups.length ? el("h3", {}, box.kind === "kernel" ? "Fused ops, in order" : "Origin") : null,
    box.groups.length ? el("ul.bare.small", {}, box.groups.map((group) => el("li", {}, el("b", {}, group.ops.join(", ")),
      group.flops ? el("span.quiet", {}, ` ${count(group.flops)}FLOP`) : null,
      el("div.chips", {}, group.origins.map((name) => button(short(name), () => go("pipeline", { unit: box.kind === "kernel" ? box.name : "program", origin: name }), "chip")))))) : null,
    box.reason ? el("h3", {}, "Why fusion stopped") : null,
    box.reason ? el("p.small", {}, box.next_op ? [el("b", {}, short(box.next_op)), ": "] : null, box.reason) : null,
    ...(kernel ? adviceSection(kernel) : []),
    box.weights.length ? el("h3", {}, "Weights") : null,
    box.weights.length ? el("div.chips", {}, box.weights.map((name) => el("span.chip", { title: name }, name))) : null,
    producers.length ? el("h3", {}, "Inputs") : null, producers.length ? links(producers) : null,
    consumers.length ? el("h3", {}, "Consumers") : null, consumers.length ? links(consumers) : null,
  ].filter(Boolean);
}
