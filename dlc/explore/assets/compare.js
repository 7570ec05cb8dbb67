// Comparison of two pages: cost of a call, kernel by kernel, and the first stage at which the texts differ.

/** The other page of a comparison. */
function counterpart(k) {
  return PAGES[1 - k];
}

function compareView() {
  const two = PAGES, labels = LABELS;
  const body = el("div.scroll"), of = (page, name) => page.kernels.find((k) => k.name === name);
  const kernels = PAIRS.map((pair) => ({ ...pair, kernels: [of(two[0], pair.one), of(two[1], pair.other)] }));
  const took = (row, k) => row.kernels[k]?.seconds ?? 0, gap = (row) => took(row, 0) - took(row, 1);
  // Kernels with different code come first: time differences of equal code are noise.
  const ranked = (row) => (row.one && row.other && !row.differs ? Math.abs(gap(row)) / (1 + Math.abs(gap(row))) : 1 + Math.abs(gap(row)));
  const timed = two.every((page) => page.measured), most = Math.max(...kernels.map((row) => Math.abs(gap(row))), 1e-12);
  const follow = (row) => go("pipeline", { page: row.one ? null : 1, unit: row.one || row.other, twin: row.one ? row.other : "", stage: row.differs });
  const name = (row) => [row.one && row.other ? button(row.one, () => follow(row)) : button(row.one || row.other, () => follow(row)),
    row.one && row.other && row.one !== row.other ? el("span.quiet", {}, ` · ${row.other}`) : null];
  const differs = (row) => (!row.other ? `only in ${labels[0]}` : !row.one ? `only in ${labels[1]}`
    : !row.differs ? "nothing" : row.differs === "code" ? "the code" : `from ${STAGES[row.differs] ?? row.differs} on`);
  const columns = [
    ["kernel", false, name, (row) => row.one || row.other],
    ["what differs", false, differs, (row) => `${STAGE_ORDER.indexOf(row.differs)} ${differs(row)}`],
    ...(timed ? [
      ...labels.map((label, k) => [label, true, (row) => (row.kernels[k] ? seconds(took(row, k)) : ""), (row) => took(row, k)]),
      ["difference", true, (row) => [`${withSign(gap(row), seconds)} `, divergingBar(gap(row) / most)], ranked],
    ] : labels.map((label, k) => [`code, ${label}`, true, (row) => (row.kernels[k] ? bytes(row.kernels[k].code_bytes) : ""), (row) => row.kernels[k]?.code_bytes ?? 0])),
  ];
  return {
    nodes: [body],
    ready() {
      const same = kernels.filter((row) => row.one && row.other && !row.differs).length;
      body.replaceChildren(
        summary(two, labels),
        el("h2", {}, "Kernels"),
        el("p.quiet.small", {}, `${same} of ${kernels.length} are identical. Click a kernel to compare its texts at the first stage at which they differ. `,
          button("Compare the programs", () => go("pipeline", { page: null, unit: "program", twin: "program" }))),
        ...two.flatMap((page, k) => timingWarnings(page, `${labels[k]}: the`)),
        table(columns, kernels, { by: timed ? columns.length - 1 : 1, label: "Kernels of both" }),
        ...(timed ? [el("h2.section", {}, "Timelines"), el("p.quiet.small", {}, "Both have the same scale; matching kernels have the same colour."), ...runs(two, labels, kernels)] : []),
        el("h2.section", {}, "Arenas"), ...arenas(two, labels),
      );
    },
  };
}

const STAGE_ORDER = ["source", "", "dl", "fusion", "linalg", "tiling", "loops", "llvm", "asm", "opencl", "c", "code"];
const STAGES = { fusion: "its ops", llvm: "LLVM IR", asm: "assembly", opencl: "OpenCL C", c: "C" };
const withSign = (x, write) => (x ? `${x > 0 ? "+" : "−"}${write(Math.abs(x))}` : "0");

/** A bar to the right for an increase, to the left for a decrease. */
function divergingBar(share) {
  const width = 50 * Math.min(1, Math.abs(share));
  return el("span.diverging", { "aria-hidden": "true" }, el(share > 0 ? "i.more" : "i.less", { style: `width:${width}%` }));
}

/** A table of the cost of a call of each program. */
function summary(two, labels) {
  const total = (page, key) => sum(page.kernels.map((k) => k[key] ?? 0));
  const lines = [
    ["time in kernels", (p) => p.measured && total(p, "seconds"), seconds],
    ["lower bound from machine limits", (p) => total(p, "limit_seconds") || null, seconds],
    ["kernel launches", (p) => total(p, "runs"), String],
    ["different kernels", (p) => p.kernels.length, String],
    ["kernel code", (p) => total(p, "code_bytes"), bytes],
    ["arena", (p) => p.memory.arena_bytes, bytes],
    ["weights after preprocessing", (p) => sum(p.memory.weights.map((w) => w.bytes)), bytes],
    ["compilation (wall time)", (p) => p.seconds, seconds],
  ];
  return comparisonTable(labels, two, lines);
}

/** A table of two pages: lines are [title, value of a page, formatter]. */
function comparisonTable(labels, two, lines) {
  const cell = (value, write) => (value === null || value === undefined ? "–" : write(value));
  return el("table.summary", { "aria-label": "Comparison" },
    el("thead", {}, el("tr", {}, ["", ...labels, "", ""].map((title, k) => el(k === 1 || k === 2 ? "th.n" : "th", { scope: "col" }, title)))),
    el("tbody", {}, lines.map(([title, of, write]) => {
      const [a, b] = two.map(of);
      const ratio = a && b ? a / b : null;
      return el("tr", {}, el("th", { scope: "row" }, title), el("td.n", {}, cell(a, write)), el("td.n", {}, cell(b, write)),
        el("td.n", {}, ratio === null ? "" : Math.abs(ratio - 1) < 0.005 ? "the same" : `${digits(ratio)} ×`),
        el("td", {}, ratio === null ? "" : divergingBar(Math.log2(ratio) / 2)));
    })));
}

/** Both timelines on one scale; matching kernels have one colour. */
function runs(two, labels, kernels) {
  const colour = (k) => (name) => { const at = kernels.findIndex((row) => (k ? row.other : row.one) === name); return at < 0 ? "var(--quiet)" : hue(at); };
  const end = Math.max(...two.map((page) => durationOf(page.measured.spans)));
  return two.flatMap((page, k) => [el("h3", {}, labels[k]), timeline(page.measured, colour(k), end, false)]);
}

function arenas(two, labels) {
  const most = Math.max(...two.map((page) => page.memory.arena_bytes));
  return two.flatMap((page, k) => [el("h3", {}, `${labels[k]}: ${bytes(page.memory.arena_bytes)}`), arenaChart(page.memory, most, null, () => go("memory", { page: k || null }))]);
}
