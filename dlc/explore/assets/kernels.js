// Kernels: time, share of the machine's limits (roofline), and tile plan.

const NO_KERNEL = "There are no kernels: each output is a copy of an input or a constant.";

function kernelsView(params) {
  const total = sum(DATA.kernels.map((k) => k.seconds ?? 0));
  const limitSeconds = sum(DATA.kernels.map((k) => Math.min(k.limit_seconds ?? 0, k.seconds ?? 0)));
  const limit = (k) => (k.seconds ? Math.min(1, k.limit_seconds / k.seconds) : 0);
  const maxSeconds = Math.max(...DATA.kernels.map((k) => k.seconds ?? 0), 1e-12);
  let selected = DATA.kernels.find((k) => k.name === params.kernel) ?? [...DATA.kernels].sort((a, b) => (b.seconds ?? 0) - (a.seconds ?? 0))[0];
  const detail = el("aside", { "aria-label": "Selected kernel", tabindex: 0 }), body = el("div.scroll");
  const select = (kernel) => {
    selected = kernel;
    replaceHash("kernels", { kernel: kernel.name });
    draw();
  };
  const columns = [
    ["kernel", false, (k) => button(k.name, () => select(k)), (k) => k.name],
    ["launches", true, (k) => String(k.runs), (k) => k.runs],
    ...(total ? [
      ["time", true, (k) => seconds(k.seconds ?? 0), (k) => k.seconds ?? 0],
      ["share", false, (k) => [el("span.bar", { style: `width:${90 * (k.seconds ?? 0) / maxSeconds}px` }), ` ${percent((k.seconds ?? 0) / total)}`], (k) => k.seconds ?? 0],
      ["GFLOP/s", true, (k) => (k.flops ? digits(k.flops / k.seconds / 1e9) : ""), (k) => (k.seconds ? k.flops / k.seconds : 0)],
      ["GB/s", true, (k) => (k.seconds ? digits(k.bytes / k.seconds / 1e9) : ""), (k) => (k.seconds ? k.bytes / k.seconds : 0)],
      ["of limit", true, (k) => (k.seconds ? percent(limit(k)) : ""), limit],
    ] : []),
    ["code", true, (k) => bytes(k.code_bytes), (k) => k.code_bytes],
    ["compile time", true, (k) => seconds(k.compile_seconds), (k) => k.compile_seconds],
  ];
  function draw() {
    body.replaceChildren(
      facts([String(DATA.kernels.length), "different kernels"], [String(sum(DATA.kernels.map((k) => k.runs))), "launches per call"],
        total && [seconds(total), "in all kernels"], total && [percent(limitSeconds / total), "of the machine limit"]),
      ...timingWarnings(DATA),
      total ? roofline(selected, select) : el("p.quiet", {}, selected ? "No times: the program was not run. Give it inputs to measure it." : NO_KERNEL),
      ...(selected ? [table(columns, DATA.kernels, { sortBy: total ? 2 : 0, isPicked: (k) => k === selected, onPick: select, label: "Kernels" })] : []),
    );
    detail.replaceChildren(...(selected ? kernelDetail(selected, total) : [el("p.quiet", {}, "No kernel.")]));
  }
  return { nodes: [body, detail], ready: draw };
}

function kernelDetail(kernel, total) {
  const boxes = DATA.graph.boxes.map((box, k) => [box, k]).filter(([box]) => box.kind === "kernel" && box.name === kernel.name);
  const [first] = boxes[0] ?? [];
  const intensity = kernel.bytes ? kernel.flops / kernel.bytes : 0;
  const bound = kernel.seconds && kernel.limit_seconds ? (kernel.flops / DATA.measurements.flops >= kernel.limit_seconds * 0.999 ? "arithmetic" : "memory") : null;
  return [
    el("h2", {}, breakable(kernel.name)),
    el("p.small", {}, button("Show its passes", () => go("pipeline", { unit: kernel.name })),
      boxes.length ? [" · ", button("Show in the graph", () => go("graph", { box: boxes[0][1] }))] : null),
    listed([
      kernel.seconds && ["time", `${seconds(kernel.seconds)} in ${plural(kernel.runs, "launch", "es")}, ${percent(kernel.seconds / total)}`],
      bound && ["limit", `${seconds(kernel.limit_seconds)}, bound by ${bound}: ${percent(Math.min(1, kernel.limit_seconds / kernel.seconds))} reached`],
      kernel.flops && ["work", `${count(kernel.flops)}FLOP, ${digits(intensity)} per byte`],
      kernel.bytes && ["buffers", bytes(kernel.bytes)],
      kernel.tasks.length && ["tasks", kernel.tasks.join(" + ")],
      ["code", bytes(kernel.code_bytes)],
    ]),
    first?.groups.length ? [el("h3", {}, "Fused ops"), el("p.small", {}, first.groups.map((p) => p.ops.join(", ")).join(" → "))] : null,
    first?.reason ? [el("h3", {}, "Why fusion stopped"), el("p.small", {}, first.next_op ? [el("b", {}, short(first.next_op)), ": "] : null, first.reason)] : null,
    adviceSection(kernel),
    kernel.plan.length ? [el("h3", {}, "Tile plan"), planSection(kernel.plan)] : null,
    el("h3", {}, "Origin"),
    el("div.chips", {}, kernel.origins.map((name) => button(short(name), () => go("pipeline", { unit: kernel.name, origin: name }), "chip"))),
  ].flat().filter(Boolean);
}

/** The advice for a kernel. */
function adviceSection(kernel) {
  return kernel.advice.length ? [el("h3", {}, "How to make it faster"), el("ul.bare.small", {}, kernel.advice.map((line) => el("li", {}, line)))] : [];
}

function planSection(lines) {
  return el("div.small", {}, lines.map((line) => (line.startsWith("  ")
    ? el("p", { style: "margin:2px 0 2px 12px" }, line.trim()) : el("p.mono", { style: "margin-top:8px" }, line))));
}

/** Roofline: GFLOP/s over FLOP per byte, both logarithmic, with the machine's limits. */
function roofline(selected, onPick) {
  const contractions = DATA.kernels.filter((k) => k.flops && k.seconds), limits = DATA.measurements;
  if (!contractions.length) return el("p.quiet", {}, "No kernel has a contraction: all are memory bound.");
  const W = 760, H = 282, L = 54, B = 34, T = 22, R = 16;
  const xs = contractions.map((k) => k.flops / k.bytes), ys = contractions.map((k) => k.flops / k.seconds);
  const [x0, x1] = [Math.min(...xs, limits.flops / limits.cache) / 2, Math.max(...xs, limits.flops / limits.memory) * 2];
  const [y0, y1] = [Math.min(...ys) / 2, Math.max(limits.flops, ...ys) * 1.6];
  const log = (v, a, b) => Math.log(v / a) / Math.log(b / a);
  const X = (v) => L + (W - L - R) * log(v, x0, x1), Y = (v) => H - B - (H - B - T) * log(Math.max(v, y0), y0, y1);
  // Powers of ten, and 2 and 5 times these on a short axis.
  const ticks = (a, b) => {
    const steps = b / a > 500 ? [1] : [1, 2, 5], values = [];
    for (let e = Math.floor(Math.log10(a)); 10 ** e <= b; e += 1) values.push(...steps.map((s) => Number(`${s}e${e}`)));
    return values.filter((v) => v >= a && v <= b);
  };
  const roof = (rate, kind) => el(`path.roof${kind}`, { d: `M${X(Math.max(x0, y0 / rate))} ${Y(Math.max(x0, y0 / rate) * rate)}L${X(limits.flops / rate)} ${Y(limits.flops)}L${X(x1)} ${Y(limits.flops)}` });
  const total = sum(DATA.kernels.map((k) => k.seconds ?? 0));
  const busy = Math.max(...ys) > 1.1 * limits.flops ? " Some kernels exceed them: the machine was busy while the limits were measured." : "";
  return el("figure", {},
    el("figcaption", {}, `Kernels with contractions and the measured limits: ${digits(limits.flops / 1e9)} GFLOP/s, ${digits(limits.memory / 1e9)} GB/s from memory (solid), ${digits(limits.cache / 1e9)} GB/s from the cache (dashed). The area of a circle is its share of the time.${busy}`),
    el("svg", { viewBox: `0 0 ${W} ${H}`, style: `width:100%;max-width:${W}px`, role: "group", "aria-label": "Roofline" },
      ticks(x0, x1).flatMap((v) => [el("line.axis", { x1: X(v), x2: X(v), y1: T, y2: H - B }), el("text.quiet", { x: X(v), y: H - B + 16, "text-anchor": "middle" }, String(v))]),
      ticks(y0 / 1e9, y1 / 1e9).map((v) => v * 1e9).flatMap((v) => [el("line.axis", { x1: L, x2: W - R, y1: Y(v), y2: Y(v) }), el("text.quiet", { x: L - 8, y: Y(v) + 4, "text-anchor": "end" }, String(Number((v / 1e9).toPrecision(3))))]),
      el("text.quiet", { x: W - R, y: H - 4, "text-anchor": "end" }, "FLOP per byte"), el("text.quiet", { x: 0, y: T - 8 }, "GFLOP/s"),
      roof(limits.memory, ""), roof(limits.cache, ".near"),
      // The selected kernel is drawn last, and small circles after large ones.
      [...contractions].sort((a, b) => (a === selected) - (b === selected) || b.seconds - a.seconds).map((k) => el(k === selected ? "circle.mark-of.picked" : "circle.mark-of", {
        cx: X(k.flops / k.bytes), cy: Y(k.flops / k.seconds), r: 4 + 16 * Math.sqrt(k.seconds / total), tabindex: 0, role: "button",
        "aria-label": `${k.name}: ${digits(k.flops / k.seconds / 1e9)} GFLOP/s`, onclick: () => onPick(k),
        onkeydown: (event) => { if (event.key === "Enter") onPick(k); },
      }, el("title", {}, `${k.name}: ${digits(k.flops / k.seconds / 1e9)} GFLOP/s, ${percent(k.seconds / total)} of the time`)))));
}
