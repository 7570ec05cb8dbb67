// The page: tabs, and the view selected by the URL hash.

const VIEWS = { compare: ["Compared", compareView], graph: ["Graph", graphView], pipeline: ["Pipeline", pipelineView], kernels: ["Kernels", kernelsView], memory: ["Memory", memoryView], time: ["Time", timeView] };
const main = document.getElementById("view"), tabs = document.getElementById("tabs");

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}
setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
document.getElementById("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));

for (const [name, [title]] of Object.entries(VIEWS)) {
  if (name === "compare" && !COMPARISON_VIEWS.includes(name)) continue;
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
  const { view: name, params } = currentView();
  DATA = PAGES[params.page ?? 0] ?? PAGES[0];
  document.querySelectorAll("#pages button").forEach((b, k) => b.setAttribute("aria-pressed", String(!COMPARISON_VIEWS.includes(name) && PAGES[k] === DATA)));
  [...tabs.children].forEach((tab) => {
    const selected = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(selected));
    tab.setAttribute("tabindex", selected ? 0 : -1);
  });
  const { nodes, ready } = VIEWS[name][1](params);
  main.setAttribute("aria-labelledby", `tab-${name}`);
  main.removeAttribute("aria-busy");
  main.replaceChildren(...nodes);
  ready();
}

document.querySelectorAll("#pages button").forEach((b, k) => b.addEventListener("click", () => {
  const { view } = currentView();
  go(COMPARISON_VIEWS.includes(view) ? "graph" : view, { page: k || null });
}));

// The page shown, all pages, their shared tables, the kernel pairs, and the page labels.
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
  main.replaceChildren(el("p.fault", { role: "alert" }, `The page cannot be drawn: ${error.message}. It needs a browser from 2023 or later.`));
  throw error;
}
