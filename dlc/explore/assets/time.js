// Time: the timeline of a measured run, and compilation time by phase and pass.

function timeView() {
  const measurements = DATA.measurements, body = el("div.scroll");
  const order = [...DATA.kernels].sort((a, b) => (b.seconds ?? 0) - (a.seconds ?? 0)).map((k) => k.name);
  const colour = (name) => (order.includes(name) ? hue(order.indexOf(name)) : "var(--quiet)");
  const phases = Object.entries(DATA.phases).filter(([, s]) => s > 0), totalSeconds = sum(phases.map(([, s]) => s));
  const byPass = new Map();
  for (const [stage, name, passSeconds] of DATA.passes) {
    const key = `${stage}\n${name}`, row = byPass.get(key) ?? { stage, name, runs: 0, took: 0 };
    row.runs += 1;
    row.took += passSeconds;
    byPass.set(key, row);
  }
  return {
    nodes: [body],
    ready() {
      body.replaceChildren(
        ...(measurements ? [el("h2", {}, "Timeline"), timeline(measurements, colour)] : [el("p.quiet", {}, "No timeline: the program was not run. Give it inputs to measure it.")]),
        el("h2", {}, "Compilation"),
        el("p.quiet.small", {}, `${seconds(DATA.seconds)} wall time, with IR recording; the phases of kernels are sums over processes.`),
        el("div.stack", { role: "img", "aria-label": phases.map(([name, s]) => `${name} ${seconds(s)}`).join(", ") },
          phases.map(([name, s], k) => el("span", { style: `width:${100 * s / totalSeconds}%;background:${hue(k)}`, title: `${name}: ${seconds(s)}` }))),
        el("div.keys", {}, phases.map(([name, s], k) => el("span", {}, el("i", { style: `background:${hue(k)}` }), `${name} `, el("span.quiet", {}, seconds(s))))),
        el("h3", {}, "By pass"),
        table([
          ["pass", false, (p) => el("span.mono", { title: p.name }, breakable(p.name.replace(/\{target="[^"]*"\}$/, ""))), (p) => p.name],
          ["stage", false, (p) => p.stage, (p) => p.stage],
          ["runs", true, (p) => String(p.runs), (p) => p.runs],
          ["time", true, (p) => seconds(p.took), (p) => p.took],
        ], [...byPass.values()], { sortBy: 3, label: "Passes by time" }),
      );
    },
  };
}

const durationOf = (spans) => Math.max(...spans.map((s) => s.start + s.seconds), 1e-12);

/** The timeline of a run: one row per thread, bars of kernels, `end` seconds wide. */
function timeline(measurements, colour, end = durationOf(measurements.spans), hasCaption = true) {
  const { spans, row_labels: rows } = measurements, runSeconds = durationOf(spans);
  const busy = rows.map((_, k) => sum(spans.filter((s) => s.thread === k).map((s) => s.seconds)) / runSeconds);
  const W = 1000, ROW_HEIGHT = rows.length > 8 ? 18 : rows.length > 2 ? 26 : 36, GAP = 5, H = rows.length * (ROW_HEIGHT + GAP);
  let start = 0, width = end;
  const svg = el("svg.spans", { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", style: `height:${H}px`, role: "group", tabindex: 0, "aria-label": "Timeline; plus and minus zoom, arrows move" });
  const details = el("p.small", { role: "status" }, " "), axisLabels = el("div.ends.small.quiet");
  const draw = () => {
    const X = (t) => W * (t - start) / width;
    svg.replaceChildren(
      ...rows.map((_, k) => el("rect.lane", { x: 0, width: W, y: k * (ROW_HEIGHT + GAP), height: ROW_HEIGHT })),
      ...spans.flatMap((s) => {
        const x = X(s.start), w = W * s.seconds / width;
        if (x + w < 0 || x > W) return [];
        const tasks = `${s.tasks} ${s.tasks === 1 ? "task" : "tasks"}`;
        const showDetails = () => { details.textContent = `${s.kernel}, ${rows[s.thread]}: ${seconds(s.seconds)}, ${tasks}, start at ${seconds(s.start)}, ${percent(s.seconds / runSeconds)} of the run`; };
        return [el("rect.span", { x, y: s.thread * (ROW_HEIGHT + GAP), width: Math.max(0.4, w - (w > 3 ? 0.8 : 0)), height: ROW_HEIGHT, fill: colour(s.kernel), onpointerenter: showDetails, onclick: () => { showDetails(); go("kernels", { kernel: s.kernel }); } },
          el("title", {}, `${s.kernel}: ${seconds(s.seconds)}, ${tasks}`))];
      }),
    );
    axisLabels.replaceChildren(el("span", {}, seconds(start)), el("span", {}, seconds(start + width)));
  };
  const zoom = (factor, center = 0.5) => {
    const newWidth = Math.min(end, Math.max(end / 5000, width * factor));
    start = Math.max(0, Math.min(end - newWidth, start + (width - newWidth) * center));
    width = newWidth;
    draw();
  };
  svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    const bounds = svg.getBoundingClientRect();
    zoom(Math.exp((event.deltaY || event.deltaX) * 0.002), (event.clientX - bounds.left) / bounds.width);
  }, { passive: false });
  svg.addEventListener("keydown", (event) => {
    if (event.key === "+" || event.key === "=") zoom(0.7);
    if (event.key === "-") zoom(1 / 0.7);
    const step = { ArrowLeft: -0.1, ArrowRight: 0.1 }[event.key];
    if (step) { start = Math.max(0, Math.min(end - width, start + step * width)); draw(); }
  });
  draw();
  return el("figure", {}, hasCaption && el("figcaption", {}, `${measurements.runs.length > 1 ? `The fastest of ${measurements.runs.length} runs` : "One run"}, ${seconds(runSeconds)}. Gaps are waiting time. Zoom with Ctrl and the wheel.`),
    hasCaption && el("div.zoom", {}, button("Zoom in", () => zoom(0.6), "plain"), button("Zoom out", () => zoom(1 / 0.6), "plain")),
    el("div.timeline", {}, el("div.names.small", {}, rows.map((name, k) => el("span", { title: name, style: `height:${ROW_HEIGHT + GAP}px;line-height:${ROW_HEIGHT}px` }, `${name} `, el("span.quiet", {}, percent(busy[k]))))), svg), axisLabels, details);
}

/** A warning if the median run took more than 25 % longer than the fastest. */
function timingWarnings(page, subject = "The") {
  const runs = [...(page.measurements?.runs ?? [])].sort((a, b) => a - b), medianSeconds = runs[runs.length >> 1];
  if (!runs.length || medianSeconds <= 1.25 * runs[0]) return [];
  const message = `${subject} fastest run took ${seconds(runs[0])}, the median run ${seconds(medianSeconds)}`;
  return [el("p.quiet.small", {}, `${message}: the machine was busy, so kernel times are uncertain.`)];
}
