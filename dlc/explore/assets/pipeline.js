// The pipeline: the texts of a program or kernel after each pass, two side by side, with lines linked by origin.

const FORMS = { llvm: "LLVM IR", asm: "assembly", opencl: "OpenCL C", c: "C" };

// The multiplications of innermost loops, at every level of IR.
const PRODUCT = /vector\.(fma|contract)|arith\.mulf|linalg\.generic|@llvm\.fma|\bfmul\b|\bv(fmadd|mulp|pmadd)|\bfma\(/;

function stepName(step) {
  if (step.stage === "source") return "source";
  return FORMS[step.stage] ?? ({ import: "as imported", segments: "segments joined" }[step.producer] ?? (step.producer.replace(/\{.*/, "") || "after fusion"));
}

const titleOfUnit = (unit) => ({ program: "program", segment: unit.name }[unit.kind] ?? `kernel ${unit.name}`);

function pipelineView(params) {
  const program = DATA.units[0], unit = DATA.units.find((u) => u.name === params.unit) ?? program;
  // The selectable steps: those of the program, and those of the selected kernel.
  const selectableSteps = (first, unit) => (unit === first ? unit.steps : [...first.steps, ...unit.steps]);
  // In a comparison, also those of the other page.
  const otherPage = counterpart(PAGES.indexOf(DATA)), otherUnit = params.twin ? otherPage?.units.find((u) => u.name === params.twin) : undefined;
  const steps = otherUnit ? [...selectableSteps(program, unit), ...selectableSteps(otherPage.units[0], otherUnit)] : selectableSteps(program, unit);
  const isSelectedUnit = (step) => step.unit === unit;
  const start = steps.findIndex(isSelectedUnit);
  const loops = steps.findLastIndex((s) => s.isLoops && isSelectedUnit(s));
  const sourceAt = steps.findIndex((s) => s.stage === "source");
  /** The index of the corresponding step of the other page: the same pass, or the end of the same stage. */
  const counterpartStep = (k) => {
    const findStep = (same) => steps.findLastIndex((s) => s.unit === (steps[k].unit === unit ? otherUnit : otherPage.units[0]) && same(s));
    const rank = (s) => (s.stage in FORMS ? 99 : STAGE_ORDER.indexOf(s.stage));
    return [(s) => s.stage === steps[k].stage && s.producer === steps[k].producer, (s) => s.stage === steps[k].stage, (s) => rank(s) <= rank(steps[k])]
      .map(findStep).find((index) => index >= 0) ?? k;
  };
  const stageEnd = (stage) => steps.findLastIndex((s) => isSelectedUnit(s) && s.stage === stage);
  let right = params.right !== undefined ? Number(params.right) : loops >= 0 ? loops : Math.min(start + 1 + (steps[0].stage === "source" ? 1 : 0), steps.length - 1);
  let left = params.left !== undefined ? Number(params.left) : loops >= 0 ? (sourceAt >= 0 ? sourceAt : start) : Math.max(0, right - 1);
  if (otherUnit && params.right === undefined) {
    const last = steps.findLastIndex(isSelectedUnit);
    right = params.stage === "code" ? last : [params.stage, "loops"].map(stageEnd).find((k) => k >= 0) ?? last;
    left = counterpartStep(right);
  }
  [left, right] = [left, right].map((k) => Math.max(0, Math.min(steps.length - 1, k)));

  const list = el("ol.steps", {}), panes = [pane("Left"), pane("Right")];
  const trail = el("div.trail", { role: "region", "aria-label": "Origin of the selected line" });
  let table = [], selected = null, syncing = false;

  function pane(side) {
    const select = el("select", { "aria-label": `${side} text`, onchange: () => { side === "Left" ? (left = Number(select.value)) : (right = Number(select.value)); draw(); } });
    const pageLabel = el("b.whose"), lines = el("div.lines"), code = el("div.code", { tabindex: 0, role: "region", "aria-label": `${side} text` }, lines);
    return { pageLabel, select, lines, code, node: el("section.pane", {}, el("header", {}, pageLabel, select), code) };
  }
  const nameOf = (step) => (step.stage && !(step.stage in FORMS) && step.stage !== "source" && step.producer ? `${step.stage} · ` : "") + stepName(step);
  const isProgram = (step) => step.unit === step.page.units[0];
  const aligned = () => {
    const [a, b] = [steps[left], steps[right]];
    if (a.page !== b.page) return a.stage === b.stage && isProgram(a) === isProgram(b);
    return a.unit === b.unit && a.stage !== "source" && !a.listing.lines.length && !b.listing.lines.length;
  };

  function draw() {
    [left, right].forEach((k, side) => {
      const groups = [...new Set(steps.map((s) => s.unit))].map((u) => el("optgroup", { label: (u.steps[0].page === DATA ? "" : `${LABELS[PAGES.indexOf(otherPage)]}: `) + titleOfUnit(u) },
        steps.map((s, i) => (s.unit === u ? el("option", { value: i, selected: i === k }, nameOf(s)) : null))));
      panes[side].select.replaceChildren(...groups);
      panes[side].pageLabel.textContent = otherUnit ? LABELS[PAGES.indexOf(steps[k].page)] : "";
    });
    const texts = [linesOf(steps[left]), linesOf(steps[right])];
    table = aligned() ? alignedRows(...texts) : null;
    // If hardly any line is equal, diff marks on all lines would hide the links between lines.
    const numEqual = table?.filter((row) => row[2]).length ?? 0;
    if (Math.abs(left - right) > 1 && steps[left].page === steps[right].page && numEqual < Math.min(texts[0].length, texts[1].length) / 4) table = null;
    panes.forEach((p, side) => {
      const step = steps[side ? right : left], kind = language(step), other = texts[1 - side];
      const order = table ?? texts[side].map((_, k) => (side ? [null, k, true] : [k, null, true]));
      p.lines.innerHTML = order.map((row) => {
        const lineIndex = row[side], otherIndex = row[1 - side];
        if (lineIndex === null) return '<div class="row gap"></div>';
        const text = texts[side][lineIndex], same = row[2];
        const mark = same ? (table && text.trim() !== other[otherIndex].trim() ? " renumbered" : "") : side ? " added" : " removed";
        const changed = !same && otherIndex !== null ? changedRange(text, other[otherIndex]) : null;
        return `<div class="row${mark}" data-n="${lineIndex}"><span class="no">${numberOf(step, lineIndex)}</span><span>${highlighted(text, kind, changed)}</span></div>`;
      }).join("");
      // Rows that are out of view have no width.
      p.lines.style.minWidth = `max(100%, ${texts[side].reduce((width, text) => Math.max(width, text.replaceAll("\t", "    ").length), 0)}ch + 70px)`;
      p.rows = [];
      p.lines.querySelectorAll("[data-n]").forEach((row) => { p.rows[Number(row.dataset.n)] = row; });
    });
    list.querySelectorAll("button").forEach((b) => b.setAttribute("aria-current", String(Number(b.dataset.step) === right)));
    const changes = table ? table.filter((row) => !row[2]).length : 0;
    announce(table ? `${changes} rows differ` : "Click a line to find it in the other text");
    replaceHash("pipeline", { unit: unit.name, twin: otherUnit?.name, left, right });
    if (selected) selectLine(selected.side, Math.min(selected.line, texts[selected.side].length - 1), false);
    else {
      const first = table?.findIndex((row) => !row[2]) ?? -1;
      panes.forEach((p) => { p.code.scrollTop = Math.max(0, first * 18 - 90); });
      showTrail(null);
    }
  }

  /** Select a line and show the related lines on the other side. */
  function selectLine(side, line, move = true) {
    const [step, other] = side ? [steps[right], steps[left]] : [steps[left], steps[right]];
    selected = { side, line, names: originsOf(step, line) };
    panes.forEach((p) => p.rows.forEach((row) => row.classList.remove("selected", "related")));
    panes[side].rows[line]?.classList.add("selected");
    const relatedLines = related(step, line, other);
    relatedLines.forEach((k) => panes[1 - side].rows[k]?.classList.add("related"));
    if (!table || !move) {
      const target = panes[1 - side].rows[bestLine(step, line, other, relatedLines)];
      if (target) reveal(1 - side, Number(target.dataset.n));
    }
    if (!move) reveal(side, line);
    showTrail(side, relatedLines.length);
  }

  /** Scroll a line of a pane into view. */
  function reveal(side, line) {
    const row = panes[side].rows[line], { code, lines } = panes[side];
    if (row) code.scrollTop = [...lines.children].indexOf(row) * 18 - code.clientHeight / 3;
  }

  /** The related line to scroll to: the innermost multiplication, where most time is spent. */
  function bestLine(step, line, other, relatedLines) {
    const depth = (k) => linesOf(other)[k].search(/\S/);
    const names = originsOf(step, line).length;
    const exact = relatedLines.filter((k) => originsOf(other, k).length === names);
    const candidates = exact.length ? exact : relatedLines;
    const productLines = candidates.filter((k) => PRODUCT.test(linesOf(other)[k]));
    return (productLines.length ? productLines : candidates).reduce((a, k) => (a === undefined || (productLines.length && depth(k) > depth(a)) ? k : a), undefined);
  }

  function showTrail(side, numRelated = 0) {
    if (side === null) {
      trail.replaceChildren(el("span.quiet", {}, table
        ? "Changed lines are marked; coloured line numbers mean that only value names changed. Click a line to find its counterpart, or a value to highlight its uses."
        : "Click a line to find its counterpart on the other side."));
      return;
    }
    const names = selected.names.map((n) => TABLES.names[n]), other = steps[side ? left : right];
    const others = [...new Set(DATA.units.filter((u) => u.kind === "kernel" && u !== unit && u.steps[0].listing.sets.some((s) => TABLES.roots[s].some((n) => selected.names.includes(n)))))];
    const levels = steps.map((s, k) => [s, k]).filter(([s, k]) => s.page === other.page && (s.stage === "source" || k === steps.findLastIndex((o) => o.stage === s.stage && o.unit === s.unit)));
    trail.replaceChildren(...[
      el("span", {}, `Line ${numberOf(steps[side ? right : left], selected.line)}`), names.length ? el("span.quiet", {}, "originates from") : el("span.quiet", {}, "has no known origin"),
      el("div.chips", {}, names.slice(0, 12).map((name) => el("span.chip", { title: name }, short(name))), names.length > 12 ? el("span.quiet", {}, `and ${names.length - 12} more`) : null),
      el("span.quiet", {}, numRelated ? `${numRelated} related ${numRelated === 1 ? "line" : "lines"}. Show in` : "No related lines. Show in"),
      levels.map(([s, k]) => button(FORMS[s.stage] ?? (s.stage === "fusion" && s.unit !== program ? "kernel" : s.stage || "import"), () => { side ? (left = k) : (right = k); draw(); }, "plain")),
      others.slice(0, 4).map((u) => button(`kernel ${u.name}`, () => go("pipeline", { unit: u.name, origin: names[0] }), "plain")),
    ].flat());
    trail.querySelectorAll("button.plain").forEach((b, i) => {
      if (levels[i]) b.setAttribute("aria-pressed", String(levels[i][1] === (side ? left : right)));
    });
  }

  /** Highlight all uses of a value, on the other side by its name there. */
  function highlightValue(side, value) {
    const names = [value, value];
    if (table) {
      const line = panes[side].rows.findIndex((row) => row?.querySelector(`[data-v="${CSS.escape(value)}"]`));
      const row = table.find((r) => r[side] === line && r[2]);
      if (row) {
        const words = (k, s) => [...panes[s].rows[k].querySelectorAll("[data-v]")].map((span) => span.dataset.v);
        names[1 - side] = words(row[1 - side], 1 - side)[words(line, side).indexOf(value)] ?? value;
      }
    }
    panes.forEach((p, s) => p.lines.querySelectorAll(".t-val").forEach((span) => span.classList.toggle("lit", span.dataset.v === names[s])));
    const uses = panes[side].lines.querySelectorAll(".lit").length;
    announce(`${value} occurs ${uses} times`);
  }

  panes.forEach((p, side) => {
    p.code.addEventListener("click", (event) => {
      const value = event.target.closest("[data-v]"), row = event.target.closest("[data-n]");
      if (value) highlightValue(side, value.dataset.v);
      if (row && !String(getSelection())) selectLine(side, Number(row.dataset.n));
    });
    p.code.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step || event.altKey) return;
      event.preventDefault();
      const line = selected?.side === side ? selected.line + step : 0;
      if (!p.rows[line]) return;
      selectLine(side, line);
      p.code.scrollTop = Math.min(line * 18, Math.max(p.code.scrollTop, (line + 1) * 18 - p.code.clientHeight));
      announce(linesOf(steps[side ? right : left])[line]);
    });
    p.code.addEventListener("scroll", () => {
      if (!table || syncing) { syncing = false; return; }
      const other = panes[1 - side].code;
      if (other.scrollTop !== p.code.scrollTop || other.scrollLeft !== p.code.scrollLeft) {
        syncing = true;
        other.scrollTop = p.code.scrollTop;
        other.scrollLeft = p.code.scrollLeft;
      }
    });
  });

  const units = el("select", { "aria-label": "Program or kernel", onchange: () => go("pipeline", { unit: units.value }) },
    DATA.units.map((u) => el("option", { value: u.name, selected: u === unit }, titleOfUnit(u))));
  steps.forEach((step, k) => {
    if (!isSelectedUnit(step)) return;
    list.append(el("li", {}, el("button", {
      type: "button", "data-step": k, title: [step.producer, step.change].filter(Boolean).join("\n"),
      onclick: () => { selected = null; right = k; left = otherUnit ? counterpartStep(k) : Math.max(start, k - 1); draw(); },
    }, el("span.where", {}, step.stage in FORMS ? "code" : step.stage || "import"), el("span.what", {}, stepName(step)), el("span.took", {}, step.seconds ? seconds(step.seconds) : ""))));
  });
  list.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const buttons = [...list.querySelectorAll("button")], next = buttons[buttons.indexOf(document.activeElement) + step];
    if (step && next) { event.preventDefault(); next.focus(); next.click(); }
  });
  const side = el("aside.left", { "aria-label": "Passes" }, el("div.field", {}, units),
    el("h2", {}, "Passes with changes"), list);
  return {
    nodes: [side, el("div.work", {}, el("div.panes", {}, panes.map((p) => p.node)), trail)],
    ready() {
      draw();
      // Without a selection in the URL, the op with the most operations is selected.
      const groups = DATA.graph.boxes.find((box) => box.kind === "kernel" && box.name === unit.name)?.groups ?? [];
      const mainGroup = groups.reduce((a, b) => (a && a.flops >= b.flops ? a : b), undefined);
      const originName = (params.origin ?? (params.left === undefined && !otherUnit ? mainGroup?.origins[0] : undefined))?.replace(/^(∂ )+/, "");
      const origin = TABLES.names.indexOf(originName);
      const startSide = [0, 1].find((s) => linesOf(steps[s ? right : left]).some((_, k) => originsOf(steps[s ? right : left], k).includes(origin)));
      if (origin >= 0 && startSide !== undefined) {
        const step = steps[startSide ? right : left];
        const lines = linesOf(step).flatMap((_, k) => (originsOf(step, k).includes(origin) ? [k] : []));
        // Ops that prepare an operand have the same origin.
        const op = (groups.find((part) => part.origins.includes(params.origin)) ?? mainGroup)?.ops[0];
        const line = lines.find((k) => linesOf(step)[k].includes(`dl.${op} `)) ?? lines[0];
        selectLine(startSide, line);
        reveal(startSide, line);
      }
    },
  };
}
