// Comparison of two pages: cost of a call, kernel by kernel, and the first stage at which the texts differ.

/** The other page of a comparison. */
function counterpart(k) {
  return PAGES[1 - k];
}

function compareView() {
  const pages = PAGES, labels = LABELS;
  const body = el("div.scroll"), kernelNamed = (page, name) => page.kernels.find((k) => k.name === name);
  const kernels = PAIRS.map((pair) => ({ ...pair, kernels: [kernelNamed(pages[0], pair.first), kernelNamed(pages[1], pair.second)] }));
  const kernelSeconds = (row, k) => row.kernels[k]?.seconds ?? 0, timeDifference = (row) => kernelSeconds(row, 0) - kernelSeconds(row, 1);
  // Kernels with different code come first: time differences of equal code are noise.
  const sortKey = (row) => (row.first && row.second && !row.different_from ? Math.abs(timeDifference(row)) / (1 + Math.abs(timeDifference(row))) : 1 + Math.abs(timeDifference(row)));
  const hasTimes = pages.every((page) => page.measurements), maxDifference = Math.max(...kernels.map((row) => Math.abs(timeDifference(row))), 1e-12);
  const openTexts = (row) => go("pipeline", { page: row.first ? null : 1, unit: row.first || row.second, twin: row.first ? row.second : "", stage: row.different_from });
  const name = (row) => [row.first && row.second ? button(row.first, () => openTexts(row)) : button(row.first || row.second, () => openTexts(row)),
    row.first && row.second && row.first !== row.second ? el("span.quiet", {}, ` · ${row.second}`) : null];
  const differs = (row) => (!row.second ? `only in ${labels[0]}` : !row.first ? `only in ${labels[1]}`
    : !row.different_from ? "nothing" : row.different_from === "code" ? "the code" : `from ${STAGES[row.different_from] ?? row.different_from} on`);
  const columns = [
    ["kernel", false, name, (row) => row.first || row.second],
    ["what differs", false, differs, (row) => `${STAGE_ORDER.indexOf(row.different_from)} ${differs(row)}`],
    ...(hasTimes ? [
      ...labels.map((label, k) => [label, true, (row) => (row.kernels[k] ? seconds(kernelSeconds(row, k)) : ""), (row) => kernelSeconds(row, k)]),
      ["difference", true, (row) => [`${withSign(timeDifference(row), seconds)} `, divergingBar(timeDifference(row) / maxDifference)], sortKey],
    ] : labels.map((label, k) => [`code, ${label}`, true, (row) => (row.kernels[k] ? bytes(row.kernels[k].code_bytes) : ""), (row) => row.kernels[k]?.code_bytes ?? 0])),
  ];
  return {
    nodes: [body],
    ready() {
      const numIdentical = kernels.filter((row) => row.first && row.second && !row.different_from).length;
      body.replaceChildren(
        summary(pages, labels),
        el("h2", {}, "Kernels"),
        el("p.quiet.small", {}, `${numIdentical} of ${kernels.length} are identical. Click a kernel to compare its texts at the first stage at which they differ. `,
          button("Compare the programs", () => go("pipeline", { page: null, unit: "program", twin: "program" }))),
        ...pages.flatMap((page, k) => timingWarnings(page, `${labels[k]}: the`)),
        table(columns, kernels, { sortBy: hasTimes ? columns.length - 1 : 1, label: "Kernels of both" }),
        ...(hasTimes ? [el("h2.section", {}, "Timelines"), el("p.quiet.small", {}, "Both have the same scale; matching kernels have the same colour."), ...timelines(pages, labels, kernels)] : []),
        el("h2.section", {}, "Arenas"), ...arenas(pages, labels),
      );
    },
  };
}

const STAGE_ORDER = ["source", "", "dl", "fusion", "linalg", "tiling", "loops", "llvm", "asm", "opencl", "c", "code"];
const STAGES = { fusion: "its ops", llvm: "LLVM IR", asm: "assembly", opencl: "OpenCL C", c: "C" };
const withSign = (x, format) => (x ? `${x > 0 ? "+" : "−"}${format(Math.abs(x))}` : "0");

/** A bar to the right for an increase, to the left for a decrease. */
function divergingBar(share) {
  const width = 50 * Math.min(1, Math.abs(share));
  return el("span.diverging", { "aria-hidden": "true" }, el(share > 0 ? "i.more" : "i.less", { style: `width:${width}%` }));
}

/** A table of the cost of a call of each program. */
function summary(pages, labels) {
  const total = (page, key) => sum(page.kernels.map((k) => k[key] ?? 0));
  const lines = [
    ["time in kernels", (p) => p.measurements && total(p, "seconds"), seconds],
    ["lower bound from machine limits", (p) => total(p, "limit_seconds") || null, seconds],
    ["kernel launches", (p) => total(p, "runs"), String],
    ["different kernels", (p) => p.kernels.length, String],
    ["kernel code", (p) => total(p, "code_bytes"), bytes],
    ["arena", (p) => p.memory.arena_bytes, bytes],
    ["weights after preprocessing", (p) => sum(p.memory.weights.map((w) => w.bytes)), bytes],
    ["compilation (wall time)", (p) => p.seconds, seconds],
  ];
  return comparisonTable(labels, pages, lines);
}

/** A table of two pages: lines are [title, value of a page, formatter]. */
function comparisonTable(labels, pages, lines) {
  const cell = (value, format) => (value === null || value === undefined ? "–" : format(value));
  return el("table.summary", { "aria-label": "Comparison" },
    el("thead", {}, el("tr", {}, ["", ...labels, "", ""].map((title, k) => el(k === 1 || k === 2 ? "th.n" : "th", { scope: "col" }, title)))),
    el("tbody", {}, lines.map(([title, valueOf, format]) => {
      const [a, b] = pages.map(valueOf);
      const ratio = a && b ? a / b : null;
      return el("tr", {}, el("th", { scope: "row" }, title), el("td.n", {}, cell(a, format)), el("td.n", {}, cell(b, format)),
        el("td.n", {}, ratio === null ? "" : Math.abs(ratio - 1) < 0.005 ? "the same" : `${digits(ratio)} ×`),
        el("td", {}, ratio === null ? "" : divergingBar(Math.log2(ratio) / 2)));
    })));
}

/** Both timelines on one scale; matching kernels have one colour. */
function timelines(pages, labels, kernels) {
  const colour = (k) => (name) => { const index = kernels.findIndex((row) => (k ? row.second : row.first) === name); return index < 0 ? "var(--quiet)" : hue(index); };
  const end = Math.max(...pages.map((page) => durationOf(page.measurements.spans)));
  return pages.flatMap((page, k) => [el("h3", {}, labels[k]), timeline(page.measurements, colour(k), end, false)]);
}

function arenas(pages, labels) {
  const maxBytes = Math.max(...pages.map((page) => page.memory.arena_bytes));
  return pages.flatMap((page, k) => [el("h3", {}, `${labels[k]}: ${bytes(page.memory.arena_bytes)}`), arenaChart(page.memory, maxBytes, null, () => go("memory", { page: k || null }))]);
}
