// The graph: kernel launches as boxes of the model's ops, from top to bottom, with search, zoom and keyboard navigation.

const MARGIN = 18, HEAD = 34, LINE = 19;
// Number of producers or consumers of a value that are listed.
const MAX_LISTED_READERS = 40;

/** Seconds by launch index in the measured run, summed if it ran more than once. */
function launchSeconds() {
  const times = new Map();
  for (const span of DATA.measured?.spans ?? []) times.set(span.launch, (times.get(span.launch) ?? 0) + span.seconds);
  return times;
}

const truncated = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
/** Truncate at the start: the end of an origin is the most specific. */
const truncatedStart = (text, most) => (text.length > most ? `…${text.slice(1 - most)}` : text);
const titleOf = (box) => (box.kind === "view" ? `${box.name} · a view` : box.kind === "size" ? `${box.name} is ${DATA.sizes[box.name] ?? "data-dependent"}` : box.name);
const groupText = (group) => `${group.ops.join(" ")}${group.origins.length ? ` · ${short(group.origins[0])}` : ""}`;

function graphView(at) {
  const { boxes, edges, width, height } = DATA.graph;
  const times = launchSeconds(), total = sum([...times.values()]) || 1;
  const share = (box) => (box.launch !== null && times.has(box.launch) ? times.get(box.launch) / total : null);
  const hottest = Math.max(...boxes.map((box) => share(box) ?? 0), 1e-9);
  const corner = (k) => {
    const { x, y, parent } = boxes[k];
    if (parent === null) return [x, y];
    const [px, py] = corner(parent);
    return [px + MARGIN + x, py + HEAD + y];
  };
  const drawn = [], lines = [];
  const scene = el("g", {});
  const inner = (k) => (boxes[k].parent === null ? [0, 0] : corner(boxes[k].parent).map((c, i) => c + (i ? HEAD : MARGIN)));

  boxes.forEach((box, k) => {
    const [x, y] = corner(k), part = share(box);
    const spoken = `${box.kind} ${box.name}${part === null ? "" : `, ${percent(part)} of the time`}: ${box.groups.map(groupText).join(", ")}`;
    const shape = el(`g.box.${box.kind}`, {
      transform: `translate(${x} ${y})`, tabindex: -1, role: "button", "aria-label": spoken, "data-box": k,
      onclick: (event) => { event.stopPropagation(); pick(k); },
    },
    el("rect.body", { width: box.width, height: box.height, rx: box.kind === "kernel" || box.kind === "loop" ? 8 : 13 }),
    part === null ? null : el("rect.heat", { x: 1, y: 1, width: 5, height: box.height - 2, rx: 2.5, opacity: 0.08 + 0.92 * part / hottest }),
    el("text.title", { x: 14, y: box.kind === "kernel" || box.kind === "loop" ? 22 : 17.5 }, truncated(titleOf(box), part === null ? 28 : 20)),
    part === null ? null : el("text.share.quiet", { x: box.width - 10, y: 22, "text-anchor": "end" }, percent(part)),
    box.kind === "kernel" ? box.groups.map((p, i) => el("text.part.quiet", { x: 14, y: HEAD + 6 + LINE * i + 5 }, truncated(groupText(p), 31))) : null,
    el("title", {}, spoken));
    drawn.push(shape);
  });
  edges.forEach((edge) => {
    const [ox, oy] = inner(edge.source);
    const points = edge.points.map(([x, y]) => [x + ox, y + oy]);
    let path = `M${points[0]}`;
    for (let i = 1; i < points.length; i += 1) {
      const [[ax, ay], [bx, by]] = [points[i - 1], points[i]], bend = Math.max(12, (by - ay) * 0.45);
      path += ax === bx ? `V${by}` : `C${ax} ${ay + bend} ${bx} ${by - bend} ${bx} ${by}`;
    }
    lines.push(el(edge.far ? "path.edge.far" : "path.edge", { d: path }, el("title", {}, edge.far ? `${boxes[edge.source].name}, ${edge.type}` : edge.type)));
  });
  // Loops are drawn below their content, and edges above loops.
  scene.append(...drawn.filter((_, k) => boxes[k].kind === "loop"), ...lines, ...drawn.filter((_, k) => boxes[k].kind !== "loop"));

  const svg = el("svg", { role: "group", "aria-label": "Kernels and their ops" }, scene);
  const stage = el("div.stage", {}, svg);
  const detail = el("aside", { "aria-label": "Selection", tabindex: 0 });
  let zoom = 1, left = 0, top = 0, chosen = null;

  const applyTransform = () => {
    scene.setAttribute("transform", `translate(${left} ${top}) scale(${zoom})`);
    svg.classList.toggle("far", zoom < 0.42);
    svg.classList.toggle("farther", zoom < 0.2);
  };
  const fit = () => {
    const room = stage.getBoundingClientRect();
    zoom = Math.min(1, (room.width - 60) / width, Math.max((room.height - 60) / height, 0.72));
    left = (room.width - width * zoom) / 2;
    top = Math.max(56, (room.height - height * zoom) / 2);
    applyTransform();
  };
  const whole = () => {
    const room = stage.getBoundingClientRect();
    // A graph that is too tall is aligned to its top.
    zoom = Math.max(0.06, Math.min(1, (room.width - 60) / width, (room.height - 90) / height));
    [left, top] = [(room.width - width * zoom) / 2, Math.max(56, (room.height - height * zoom) / 2)];
    applyTransform();
  };
  const zoomBy = (factor, x, y) => {
    const next = Math.min(3, Math.max(0.02, zoom * factor));
    left = x - (x - left) * next / zoom;
    top = y - (y - top) * next / zoom;
    zoom = next;
    applyTransform();
  };
  const middle = () => { const room = stage.getBoundingClientRect(); return [room.width / 2, room.height / 2]; };
  const show = (k) => {
    const room = stage.getBoundingClientRect(), [x, y] = corner(k), box = boxes[k];
    if (zoom < 0.6) zoom = 0.9;
    left = room.width / 2 - (x + box.width / 2) * zoom;
    top = room.height / 2 - (y + Math.min(box.height, room.height / zoom) / 2) * zoom;
    applyTransform();
  };
  const visible = (k) => {
    const room = stage.getBoundingClientRect(), [x, y] = corner(k);
    const [sx, sy] = [left + x * zoom, top + y * zoom];
    return zoom >= 0.42 && sx > -20 && sy > 20 && sx + boxes[k].width * zoom < room.width + 20 && sy + boxes[k].height * zoom < room.height + 20;
  };
  /** Clear the selection and show the program. */
  function overview() {
    chosen = null;
    lines.forEach((line) => line.classList.remove("near"));
    drawn.forEach((shape, i) => { shape.classList.remove("picked", "near"); shape.setAttribute("tabindex", i === first ? 0 : -1); });
    detail.replaceChildren(...programDetail((name) => pick(boxes.findIndex((box) => box.kind === "kernel" && box.name === name), { move: true })));
    replaceHash("graph", {});
  }
  function pick(k, { move = false, focus = true, stay = false } = {}) {
    chosen = k;
    const near = new Set([k]);
    edges.forEach((edge, i) => {
      const touches = edge.source === k || edge.target === k;
      lines[i].classList.toggle("near", touches);
      if (touches) { near.add(edge.source); near.add(edge.target); }
    });
    drawn.forEach((shape, i) => {
      shape.classList.toggle("picked", i === k);
      shape.classList.toggle("near", i !== k && near.has(i));
      shape.setAttribute("tabindex", i === k ? 0 : -1);
    });
    if (move || (!stay && !visible(k))) show(k);
    detail.replaceChildren(...boxDetail(k, share(boxes[k]), times, (other) => pick(other, { move: true })));
    if (focus) drawn[k].focus({ preventScroll: true });
    replaceHash("graph", { box: k });
  }

  stage.addEventListener("wheel", (event) => {
    event.preventDefault();
    const room = stage.getBoundingClientRect();
    if (event.ctrlKey || event.metaKey || event.deltaMode || Math.abs(event.deltaY) >= 40 && !event.deltaX) {
      zoomBy(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0016)), event.clientX - room.left, event.clientY - room.top);
    } else { left -= event.deltaX; top -= event.deltaY; applyTransform(); }
  }, { passive: false });
  stage.addEventListener("pointerdown", (event) => {
    if (event.target.closest(".tools") || event.button) return;
    const from = [event.clientX - left, event.clientY - top];
    let moved = false;
    const ground = event.target === svg || event.target === stage;
    const move = (e) => {
      if (!moved && Math.hypot(e.clientX - from[0] - left, e.clientY - from[1] - top) < 4) return;
      moved = true;
      stage.classList.add("dragging");
      [left, top] = [e.clientX - from[0], e.clientY - from[1]];
      applyTransform();
    };
    const end = () => {
      if (ground && !moved) overview();
      stage.classList.remove("dragging"); removeEventListener("pointermove", move); removeEventListener("pointerup", end); };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
  });
  svg.addEventListener("keydown", (event) => {
    const at = chosen ?? first;
    const following = {
      ArrowDown: () => edges.filter((e) => e.source === at).map((e) => e.target)[0],
      ArrowUp: () => edges.filter((e) => e.target === at).map((e) => e.source)[0],
      ArrowRight: () => (at + 1) % boxes.length,
      ArrowLeft: () => (at + boxes.length - 1) % boxes.length,
      Home: () => 0,
      End: () => boxes.length - 1,
    }[event.key];
    const next = following?.();
    if (next !== undefined) { event.preventDefault(); pick(next); }
    if (event.key === "Escape") overview();
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); chosen === null ? pick(first) : detail.querySelector("button")?.focus(); }
  });

  const tools = el("div.tools", {}, searchBox(boxes, (k) => pick(k, { move: true })),
    button("Fit", whole, "plain"), button("+", () => zoomBy(1.4, ...middle()), "plain"), button("−", () => zoomBy(1 / 1.4, ...middle()), "plain"));
  tools.querySelectorAll("button").forEach((b, i) => b.setAttribute("aria-label", ["Show all", "Zoom in", "Zoom out"][i]));
  stage.append(tools, el("div.legend", {}, DATA.measured
    ? "A box is one kernel launch with its fused ops. The bar on its left shows its share of the time."
    : "A box is one kernel launch with its fused ops.",
  edges.some((edge) => edge.far) ? " A dotted end is an edge from far above." : null));
  const first = at.box !== undefined ? Number(at.box) : boxes.findIndex((box) => box.kind === "kernel" && (!at.kernel || box.name === at.kernel));
  return {
    nodes: [stage, detail],
    ready() {
      fit();
      const wished = at.box !== undefined || at.kernel !== undefined;
      wished && first >= 0 ? pick(first, { focus: false, move: true }) : overview();
    },
  };
}

function searchBox(boxes, choose) {
  const list = el("ul", { role: "listbox", id: "found", hidden: true, "aria-label": "Found" });
  const input = el("input", {
    type: "search", placeholder: "Search ops, kernels, origins", "aria-label": "Search ops, kernels and origins", role: "combobox",
    "aria-expanded": "false", "aria-controls": "found", "aria-autocomplete": "list", size: 30, id: "search",
  });
  const texts = boxes.map((box) => [box.name, ...box.groups.map(groupText), ...box.weights].join(" ").toLowerCase());
  let found = [], at = 0;
  const mark = () => {
    [...list.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === at)));
    list.children[at]?.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", list.children[at]?.id ?? "");
  };
  const close = () => { list.hidden = true; input.setAttribute("aria-expanded", "false"); };
  const take = (i) => { close(); choose(found[i]); };
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = words.length ? boxes.map((_, k) => k).filter((k) => words.every((w) => texts[k].includes(w))).slice(0, 200) : [];
    list.replaceChildren(...found.map((k, i) => el("li", { role: "option", id: `found-${i}`, onpointerdown: () => take(i) },
      boxes[k].name, " ", el("span.quiet", {}, boxes[k].groups.map(groupText).join(", ")))));
    if (words.length && !found.length) list.append(el("li.quiet", {}, "No match"));
    list.hidden = !words.length;
    input.setAttribute("aria-expanded", String(Boolean(words.length)));
    announce(words.length ? `${found.length} found` : "");
    at = 0;
    mark();
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      at = Math.max(0, Math.min(found.length - 1, at + (event.key === "ArrowDown" ? 1 : -1)));
      mark();
    }
    if (event.key === "Enter" && found.length) take(at);
    if (event.key === "Escape") close();
  });
  input.addEventListener("blur", close);
  return el("div.found", {}, input, list);
}

/** The panel of the program, shown without a selection: time and memory. */
function programDetail(choose) {
  const { kernels, memory: m } = DATA, time = sum(kernels.map((k) => k.seconds ?? 0)), limitSeconds = sum(kernels.map((k) => Math.min(k.limit_seconds ?? 0, k.seconds ?? 0)));
  const slowest = [...kernels].sort((a, b) => (b.seconds ?? 0) - (a.seconds ?? 0)).slice(0, 6);
  const { live, peak } = liveBuffers(m), held = live[peak] ?? [], largest = [...held].sort((a, b) => b.bytes - a.bytes)[0];
  return [
    el("h2", {}, DATA.name), el("p.quiet.small", {}, "The whole program. Click a box, or press Enter, for details."),
    listed([
      time && ["a call", `${seconds(time)} in kernels, ${percent(limitSeconds / time)} of the machine limit`],
      ["kernels", `${kernels.length}, in ${plural(sum(kernels.map((k) => k.runs)), "launch", "es")}`],
      ["arena", bytes(m.arena_bytes)], ["weights", bytes(sum(m.weights.map((w) => w.bytes)))],
      ["compilation", seconds(DATA.seconds)],
    ]),
    time ? el("h3", {}, "Time by kernel") : null,
    time ? el("ul.bare.small.shares", {}, slowest.map((k) => el("li", {}, button(k.name, () => choose(k.name)),
      el("span.bar", { "aria-hidden": "true", style: `width:${70 * k.seconds / slowest[0].seconds}px` }), el("span.quiet", {}, percent(k.seconds / time))))) : null,
    time && kernels.length > slowest.length ? el("p.small", {}, button(`All ${kernels.length} kernels`, () => go("kernels"))) : null,
    el("h3", {}, "Peak memory"),
    el("p.small", {}, largest ? ["The peak is at launch ", `${peak + 1}, `, el("b", {}, m.launches[peak]), `: ${bytes(sum(held.map((b) => b.bytes)))}, of which `, el("b", {}, bufferName(largest)), ` takes ${percent(largest.bytes / sum(held.map((b) => b.bytes)))}. `]
      : `${NO_ARENA()} `, button("Arena over time", () => go("memory"))),
    ...[["Inputs", DATA.inputs], ["Outputs", DATA.outputs]].flatMap(([title, texts]) => [el("h3", {}, title),
      el("ul.bare.small", {}, texts.map((text) => el("li.mono", {}, text)))]),
  ].filter(Boolean);
}

function boxDetail(k, share, times, choose) {
  const box = DATA.graph.boxes[k], kernel = box.kind === "kernel" && DATA.kernels.find((other) => other.name === box.name);
  const links = (ends) => el("ul.bare.small", {}, ends.slice(0, MAX_LISTED_READERS).map(([other, type]) => el("li", {},
    button(DATA.graph.boxes[other].name, () => choose(other)), " ", el("span.quiet.mono", {}, type))),
  ends.length > MAX_LISTED_READERS ? el("li.quiet", {}, `and ${ends.length - MAX_LISTED_READERS} more`) : null);
  const into = DATA.graph.edges.filter((e) => e.target === k).map((e) => [e.source, e.type]);
  const out = DATA.graph.edges.filter((e) => e.source === k).map((e) => [e.target, e.type]);
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
    box.groups.length ? el("ul.bare.small", {}, box.groups.map((part) => el("li", {}, el("b", {}, part.ops.join(", ")),
      part.flops ? el("span.quiet", {}, ` ${count(part.flops)}FLOP`) : null,
      el("div.chips", {}, part.origins.map((name) => button(short(name), () => go("pipeline", { unit: box.kind === "kernel" ? box.name : "program", origin: name }), "chip")))))) : null,
    box.reason ? el("h3", {}, "Why fusion stopped") : null,
    box.reason ? el("p.small", {}, box.before ? [el("b", {}, short(box.before)), ": "] : null, box.reason) : null,
    ...(kernel ? adviceSection(kernel) : []),
    box.weights.length ? el("h3", {}, "Weights") : null,
    box.weights.length ? el("div.chips", {}, box.weights.map((name) => el("span.chip", { title: name }, name))) : null,
    into.length ? el("h3", {}, "Inputs") : null, into.length ? links(into) : null,
    out.length ? el("h3", {}, "Consumers") : null, out.length ? links(out) : null,
  ].filter(Boolean);
}
