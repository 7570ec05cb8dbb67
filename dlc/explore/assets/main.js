// The page: its tabs, and the view that the address names.

const VIEWS = { compare: ["Compared", compareView], graph: ["Graph", graphView], pipeline: ["Pipeline", pipelineView], kernels: ["Kernels", kernelsView], memory: ["Memory", memoryView], time: ["Time", timeView] };
const main = document.getElementById("view"), tabs = document.getElementById("tabs");

function shade(theme) {
  document.documentElement.dataset.theme = theme;
}
shade(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
document.getElementById("theme").addEventListener("click", () => shade(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));

for (const [name, [title]] of Object.entries(VIEWS)) {
  if (name === "compare" && !OVERALL.includes(name)) continue;
  tabs.append(el("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "view", onclick: () => go(name) }, title));
}
tabs.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const all = [...tabs.children], next = all[(all.indexOf(document.activeElement) + step + all.length) % all.length];
  next.click();
  next.focus();
});
addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
    const search = document.getElementById("search");
    if (search) { event.preventDefault(); search.focus(); }
  }
});

function draw() {
  const { view: name, at } = here();
  DATA = PAGES[at.page ?? 0] ?? PAGES[0];
  document.querySelectorAll("#pages button").forEach((b, k) => b.setAttribute("aria-pressed", String(!OVERALL.includes(name) && PAGES[k] === DATA)));
  [...tabs.children].forEach((tab) => {
    const selected = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(selected));
    tab.setAttribute("tabindex", selected ? 0 : -1);
  });
  const { nodes, ready } = VIEWS[name][1](at);
  main.setAttribute("aria-labelledby", `tab-${name}`);
  main.removeAttribute("aria-busy");
  main.replaceChildren(...nodes);
  ready();
}

document.querySelectorAll("#pages button").forEach((b, k) => b.addEventListener("click", () => {
  const { view } = here();
  go(OVERALL.includes(view) ? "graph" : view, { page: k || null });
}));

// The page that is shown, of one or two; what they share; which kernel of the one is which of the other.
let DATA, PAGES, TABLES, PAIRS, LABELS;
try {
  const { pages, pairs, labels, ...tables } = await unpacked();
  [PAGES, PAIRS, LABELS, TABLES, DATA] = [pages, pairs, labels, tables, pages[0]];
  const numbers = new Map(TABLES.names.map((name, k) => [name, k]));
  TABLES.roots = TABLES.sets.map((set) => set.map((k) => numbers.get(TABLES.names[k].replace(/^(∂ )+/, "")) ?? k));
  for (const page of PAGES) for (const unit of page.units) {
    const last = unit.steps.findLastIndex((step) => step.stage === "loops");
    unit.steps.forEach((step, k) => Object.assign(step, { unit, page, isLoops: k === last }));
  }
  draw();
  addEventListener("hashchange", draw);
} catch (error) {
  main.replaceChildren(el("p.fault", { role: "alert" }, `The page cannot be drawn: ${error.message}. It needs a browser of 2023 or later.`));
  throw error;
}
