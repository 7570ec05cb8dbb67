// Shared by all views: the data, DOM elements, number formatting, and the current location in the page.

async function unpacked() {
  const packed = Uint8Array.from(atob(document.getElementById("data").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const SVG = "http://www.w3.org/2000/svg";
const SHAPES = new Set(["svg", "g", "rect", "path", "text", "circle", "line", "title"]);

/** Create an element: `el("button.link", {onclick: f}, "text", child)`; null and false children are skipped. */
function el(kind, attributes = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  const element = SHAPES.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false && child !== ""));
  return element;
}

/** A name with line-break opportunities after `_`, `/` and `.`. */
const breakable = (name) => name.split(/(?<=[_/.])(?=.)/).flatMap((part, k) => (k ? [el("wbr"), part] : [part]));
const button = (text, onclick, kind = "link") => el(`button.${kind}`, { type: "button", onclick }, kind === "link" ? breakable(text) : text);
const announce = (text) => { document.getElementById("status").textContent = text; };
const escaped = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

/** Format with three significant digits. */
const digits = (x) => (x >= 100 ? Math.round(x).toLocaleString("en") : x.toPrecision(x >= 10 ? 3 : 2));
const scaled = (x, factor, units) => {
  let k = 0;
  while (k < units.length - 1 && Math.abs(x) >= factor) { x /= factor; k += 1; }
  return `${digits(x)} ${units[k]}`;
};
const seconds = (x) => (x ? scaled(x * 1e9, 1000, ["ns", "µs", "ms", "s"]) : "0");
const bytes = (x) => (x < 1024 ? `${x} B` : scaled(x, 1024, ["B", "KB", "MB", "GB"]));
const count = (x) => (x < 1000 ? String(x) : scaled(x, 1000, ["", "k", "M", "G", "T"]).trim());
const percent = (x) => (x > 0 && x < 0.001 ? "< 0.1 %" : `${(100 * x).toFixed(x < 0.1 ? 1 : 0)} %`);
/** Format a count with its noun, in the plural unless it is 1. */
const plural = (n, noun, ending = "s") => `${n} ${noun}${n === 1 ? "" : ending}`;
/** Shorten an origin: a Python file without its folders, the last two components of a long layer path. */
const short = (name) => name.replace(/(?:[^\s/]*\/)+(?=[^/]+:\d+$)/, "").replace(/\S{24,}/g, (path) => path.replace(/^.*\/(?=[^/]+\/[^/]+$)/, "…/"));

/** Distinguishable colours, assigned in descending order of time. */
const HUES = [200, 25, 150, 280, 50, 340, 100, 230, 5, 175];
const hue = (k) => `hsl(${HUES[k % HUES.length]} ${k < HUES.length ? 48 : 30}% ${k % 2 ? 62 : 54}%)`;

/** The views that exist only in a comparison of two pages. */
const COMPARISON_VIEWS = document.getElementById("pages")?.dataset.views.split(" ") ?? [];
/** The location is in the URL hash, so that back and forward work: `#pipeline?unit=conv&left=2`, `page=1` for the second page. */
const currentView = () => {
  const [view, query] = location.hash.slice(1).split("?");
  return { view: document.getElementById(`tab-${view}`) ? view : COMPARISON_VIEWS[0] ?? "graph", params: Object.fromEntries(new URLSearchParams(query ?? "")) };
};
const hashOf = (view, params) => {
  const page = "page" in params ? params.page : PAGES.indexOf(DATA) || null;
  return `#${view}?${new URLSearchParams(Object.entries({ ...params, page }).filter(([, value]) => value !== null && value !== undefined && value !== ""))}`;
};
const go = (view, params = {}) => { location.hash = hashOf(view, params); };
/** Replace the location without a new history entry. */
const replaceHash = (view, params) => history.replaceState(null, "", hashOf(view, params));

function facts(...pairs) {
  return el("div.facts", {}, pairs.filter(Boolean).map(([value, label]) => el("div", {}, el("b", {}, value), el("span", {}, label))));
}

function listed(pairs) {
  return el("dl", {}, pairs.filter(Boolean).flatMap(([term, ...definition]) => [el("dt", {}, term), el("dd", {}, ...definition)]));
}

/** A table with sortable columns: [title, is numeric, cell of a row, sort key of a row]. */
function table(columns, rows, { sortBy, onPick, isPicked, label }) {
  let column = sortBy, isDescending = true;
  const head = el("tr"), body = el("tbody");
  const draw = () => {
    const key = columns[column][3];
    const sorted = [...rows].sort((a, b) => (key(a) > key(b) ? 1 : key(a) < key(b) ? -1 : 0) * (isDescending ? -1 : 1));
    head.replaceChildren(...columns.map(([title, numeric], k) => el(numeric ? "th.n" : "th", {
      scope: "col", "aria-sort": k === column ? (isDescending ? "descending" : "ascending") : null,
    }, button(title, () => { isDescending = k === column ? !isDescending : Boolean(numeric); column = k; draw(); }, "sort"))));
    body.replaceChildren(...sorted.map((row) => el(isPicked?.(row) ? "tr.picked" : "tr", { onclick: () => onPick?.(row) },
      columns.map(([, numeric, cell]) => el(numeric ? "td.n" : "td", {}, cell(row))))));
  };
  draw();
  return el("table", { "aria-label": label }, el("thead", {}, head), body);
}
