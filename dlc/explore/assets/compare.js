// Two pages beside each other: what a call takes, kernel by kernel, and from which stage on their texts differ.

/** What a page is compared with. */
function counterpart(k) {
  return PAGES[1 - k];
}

function compareView() {
  const two = PAGES, labels = LABELS;
  const body = el("div.scroll"), of = (page, name) => page.kernels.find((k) => k.name === name);
  const kernels = PAIRS.map((pair) => ({ ...pair, kernels: [of(two[0], pair.one), of(two[1], pair.other)] }));
  const took = (row, k) => row.kernels[k]?.seconds ?? 0, gap = (row) => took(row, 0) - took(row, 1);
  // Of the same code other times are the machine's: what differs comes first.
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
      ["difference", true, (row) => [`${signed(gap(row), seconds)} `, diverging(gap(row) / most)], ranked],
    ] : labels.map((label, k) => [`code, ${label}`, true, (row) => (row.kernels[k] ? bytes(row.kernels[k].code_bytes) : ""), (row) => row.kernels[k]?.code_bytes ?? 0])),
  ];
  return {
    nodes: [body],
    ready() {
      const same = kernels.filter((row) => row.one && row.other && !row.differs).length;
      body.replaceChildren(
        summary(two, labels),
        el("h2", {}, "Kernels"),
        el("p.quiet.small", {}, `${same} of ${kernels.length} are the same, text for text. A kernel's name leads to both texts, at the stage at which they begin to differ. `,
          button("The programs, side by side", () => go("pipeline", { page: null, unit: "program", twin: "program" }))),
        ...two.flatMap((page, k) => doubts(page, `${labels[k]}: the`)),
        table(columns, kernels, { by: timed ? columns.length - 1 : 1, label: "Kernels of both" }),
        ...(timed ? [el("h2.apart", {}, "A run of each"), el("p.quiet.small", {}, "On one scale; kernels that are the same have the same colour."), ...runs(two, labels, kernels)] : []),
        el("h2.apart", {}, "The arena of each"), ...arenas(two, labels),
      );
    },
  };
}

const STAGE_ORDER = ["source", "", "dl", "fusion", "linalg", "tiling", "loops", "llvm", "asm", "opencl", "c", "code"];
const STAGES = { fusion: "its ops", llvm: "LLVM IR", asm: "assembly", opencl: "OpenCL C", c: "C" };
const signed = (x, write) => (x ? `${x > 0 ? "+" : "−"}${write(Math.abs(x))}` : "0");

/** A bar to the right for what is more, to the left for what is less. */
function diverging(share) {
  const width = 50 * Math.min(1, Math.abs(share));
  return el("span.diverging", { "aria-hidden": "true" }, el(share > 0 ? "i.more" : "i.less", { style: `width:${width}%` }));
}

/** What a call of each takes, line by line. */
function summary(two, labels) {
  const total = (page, key) => sum(page.kernels.map((k) => k[key] ?? 0));
  const lines = [
    ["time in kernels", (p) => p.measured && total(p, "seconds"), seconds],
    ["least that the machine could do", (p) => total(p, "least") || null, seconds],
    ["runs of kernels", (p) => total(p, "runs"), String],
    ["different kernels", (p) => p.kernels.length, String],
    ["code of kernels", (p) => total(p, "code_bytes"), bytes],
    ["arena", (p) => p.memory.arena_bytes, bytes],
    ["weights, as kernels read them", (p) => sum(p.memory.weights.map((w) => w.bytes)), bytes],
    ["compilation, as the clock ran", (p) => p.seconds, seconds],
  ];
  return comparedLines(labels, two, lines);
}

/** A table of two: lines are [title, number of one of them, how it is written]. */
function comparedLines(labels, two, lines) {
  const cell = (value, write) => (value === null || value === undefined ? "–" : write(value));
  return el("table.summary", { "aria-label": "What each takes" },
    el("thead", {}, el("tr", {}, ["", ...labels, "", ""].map((title, k) => el(k === 1 || k === 2 ? "th.n" : "th", { scope: "col" }, title)))),
    el("tbody", {}, lines.map(([title, of, write]) => {
      const [a, b] = two.map(of);
      const ratio = a && b ? a / b : null;
      return el("tr", {}, el("th", { scope: "row" }, title), el("td.n", {}, cell(a, write)), el("td.n", {}, cell(b, write)),
        el("td.n", {}, ratio === null ? "" : Math.abs(ratio - 1) < 0.005 ? "the same" : `${digits(ratio)} ×`),
        el("td", {}, ratio === null ? "" : diverging(Math.log2(ratio) / 2)));
    })));
}

/** Both runs on one scale; kernels that are a pair have one colour. */
function runs(two, labels, kernels) {
  const colour = (k) => (name) => { const at = kernels.findIndex((row) => (k ? row.other : row.one) === name); return at < 0 ? "var(--quiet)" : hue(at); };
  const end = Math.max(...two.map((page) => lengthOf(page.measured.spans)));
  return two.flatMap((page, k) => [el("h3", {}, labels[k]), timeline(page.measured, colour(k), end, false)]);
}

function arenas(two, labels) {
  const most = Math.max(...two.map((page) => page.memory.arena_bytes));
  return two.flatMap((page, k) => [el("h3", {}, `${labels[k]}: ${bytes(page.memory.arena_bytes)}`), arenaChart(page.memory, most, null, () => go("memory", { page: k || null }))]);
}
