// The pipeline: the texts of a program or kernel after each pass, two side by side, with lines linked by origin.

const FORMS = { llvm: "LLVM IR", asm: "assembly", opencl: "OpenCL C", c: "C" };

// The multiplications of innermost loops, at every level of IR.
const PRODUCT = /vector\.(fma|contract)|arith\.mulf|linalg\.generic|@llvm\.fma|\bfmul\b|\bv(fmadd|mulp|pmadd)|\bfma\(/;

function stepName(step) {
  if (step.stage === "source") return "source";
  return FORMS[step.stage] ?? ({ import: "as imported", parts: "segments joined" }[step.made_by] ?? (step.made_by.replace(/\{.*/, "") || "after fusion"));
}

const titleOfUnit = (unit) => ({ program: "program", segment: unit.name }[unit.kind] ?? `kernel ${unit.name}`);

function pipelineView(at) {
  const program = DATA.units[0], unit = DATA.units.find((u) => u.name === at.unit) ?? program;
  // The selectable steps: those of the program, and those of the selected kernel.
  const all = (first, unit) => (unit === first ? unit.steps : [...first.steps, ...unit.steps]);
  // In a comparison, also those of the other page.
  const second = counterpart(PAGES.indexOf(DATA)), twin = at.twin ? second?.units.find((u) => u.name === at.twin) : undefined;
  const steps = twin ? [...all(program, unit), ...all(second.units[0], twin)] : all(program, unit);
  const own = (step) => step.unit === unit;
  const start = steps.findIndex(own);
  const loops = steps.findLastIndex((s) => s.isLoops && own(s));
  const sourceAt = steps.findIndex((s) => s.stage === "source");
  /** The index of the corresponding step of the other page: the same pass, or the end of the same stage. */
  const counterpartStep = (k) => {
    const there = (same) => steps.findLastIndex((s) => s.unit === (steps[k].unit === unit ? twin : second.units[0]) && same(s));
    const rank = (s) => (s.stage in FORMS ? 99 : STAGE_ORDER.indexOf(s.stage));
    return [(s) => s.stage === steps[k].stage && s.made_by === steps[k].made_by, (s) => s.stage === steps[k].stage, (s) => rank(s) <= rank(steps[k])]
      .map(there).find((found) => found >= 0) ?? k;
  };
  const stageEnd = (stage) => steps.findLastIndex((s) => own(s) && s.stage === stage);
  let right = at.right !== undefined ? Number(at.right) : loops >= 0 ? loops : Math.min(start + 1 + (steps[0].stage === "source" ? 1 : 0), steps.length - 1);
  let left = at.left !== undefined ? Number(at.left) : loops >= 0 ? (sourceAt >= 0 ? sourceAt : start) : Math.max(0, right - 1);
  if (twin && at.right === undefined) {
    const last = steps.findLastIndex(own);
    right = at.stage === "code" ? last : [at.stage, "loops"].map(stageEnd).find((k) => k >= 0) ?? last;
    left = counterpartStep(right);
  }
  [left, right] = [left, right].map((k) => Math.max(0, Math.min(steps.length - 1, k)));

  const list = el("ol.steps", {}), panes = [pane("Left"), pane("Right")];
  const trail = el("div.trail", { role: "region", "aria-label": "Origin of the selected line" });
  let table = [], chosen = null, syncing = false;

  function pane(side) {
    const select = el("select", { "aria-label": `${side} text`, onchange: () => { side === "Left" ? (left = Number(select.value)) : (right = Number(select.value)); draw(); } });
    const whose = el("b.whose"), lines = el("div.lines"), code = el("div.code", { tabindex: 0, role: "region", "aria-label": `${side} text` }, lines);
    return { whose, select, lines, code, node: el("section.pane", {}, el("header", {}, whose, select), code) };
  }
  const nameOf = (step) => (step.stage && !(step.stage in FORMS) && step.stage !== "source" && step.made_by ? `${step.stage} · ` : "") + stepName(step);
  const whole = (step) => step.unit === step.page.units[0];
  const aligned = () => {
    const [a, b] = [steps[left], steps[right]];
    if (a.page !== b.page) return a.stage === b.stage && whole(a) === whole(b);
    return a.unit === b.unit && a.stage !== "source" && !a.listing.lines.length && !b.listing.lines.length;
  };

  function draw() {
    [left, right].forEach((k, side) => {
      const groups = [...new Set(steps.map((s) => s.unit))].map((u) => el("optgroup", { label: (u.steps[0].page === DATA ? "" : `${LABELS[PAGES.indexOf(second)]}: `) + titleOfUnit(u) },
        steps.map((s, i) => (s.unit === u ? el("option", { value: i, selected: i === k }, nameOf(s)) : null))));
      panes[side].select.replaceChildren(...groups);
      panes[side].whose.textContent = twin ? LABELS[PAGES.indexOf(steps[k].page)] : "";
    });
    const texts = [linesOf(steps[left]), linesOf(steps[right])];
    table = aligned() ? rows(...texts) : null;
    // If hardly any line is equal, diff marks on all lines would hide the links between lines.
    const kept = table?.filter((row) => row[2]).length ?? 0;
    if (Math.abs(left - right) > 1 && steps[left].page === steps[right].page && kept < Math.min(texts[0].length, texts[1].length) / 4) table = null;
    panes.forEach((p, side) => {
      const step = steps[side ? right : left], kind = language(step), other = texts[1 - side];
      const order = table ?? texts[side].map((_, k) => (side ? [null, k, true] : [k, null, true]));
      p.lines.innerHTML = order.map((row) => {
        const mine = row[side], theirs = row[1 - side];
        if (mine === null) return '<div class="row gap"></div>';
        const text = texts[side][mine], same = row[2];
        const mark = same ? (table && text.trim() !== other[theirs].trim() ? " renumbered" : "") : side ? " added" : " removed";
        const changed = !same && theirs !== null ? changedRange(text, other[theirs]) : null;
        return `<div class="row${mark}" data-n="${mine}"><span class="no">${numberOf(step, mine)}</span><span>${highlighted(text, kind, changed)}</span></div>`;
      }).join("");
      p.rows = [];
      p.lines.querySelectorAll("[data-n]").forEach((row) => { p.rows[Number(row.dataset.n)] = row; });
    });
    list.querySelectorAll("button").forEach((b) => b.setAttribute("aria-current", String(Number(b.dataset.step) === right)));
    const changes = table ? table.filter((row) => !row[2]).length : 0;
    announce(table ? `${changes} rows differ` : "Click a line to find it in the other text");
    replaceHash("pipeline", { unit: unit.name, twin: twin?.name, left, right });
    if (chosen) follow(chosen.side, Math.min(chosen.line, texts[chosen.side].length - 1), false);
    else {
      const first = table?.findIndex((row) => !row[2]) ?? -1;
      panes.forEach((p) => { p.code.scrollTop = Math.max(0, first * 18 - 90); });
      tell(null);
    }
  }

  /** Select a line and show the related lines on the other side. */
  function follow(side, line, move = true) {
    const [mine, other] = side ? [steps[right], steps[left]] : [steps[left], steps[right]];
    chosen = { side, line, names: originsOf(mine, line) };
    panes.forEach((p) => p.rows.forEach((row) => row.classList.remove("selected", "related")));
    panes[side].rows[line]?.classList.add("selected");
    const found = related(mine, line, other);
    found.forEach((k) => panes[1 - side].rows[k]?.classList.add("related"));
    if (!table || !move) {
      const target = panes[1 - side].rows[best(mine, line, other, found)];
      if (target) reveal(1 - side, Number(target.dataset.n));
    }
    if (!move) reveal(side, line);
    tell(side, found.length);
  }

  /** Scroll a line of a pane into view. */
  function reveal(side, line) {
    const row = panes[side].rows[line], { code, lines } = panes[side];
    if (row) code.scrollTop = [...lines.children].indexOf(row) * 18 - code.clientHeight / 3;
  }

  /** Among related lines, the one to show first: the most deeply nested, where most time is spent. */
  function best(mine, line, other, found) {
    const depth = (k) => linesOf(other)[k].search(/\S/);
    const names = originsOf(mine, line).length;
    const exact = found.filter((k) => originsOf(other, k).length === names);
    const among = exact.length ? exact : found;
    const busy = among.filter((k) => PRODUCT.test(linesOf(other)[k]));
    return (busy.length ? busy : among).reduce((a, k) => (a === undefined || (busy.length && depth(k) > depth(a)) ? k : a), undefined);
  }

  function tell(side, found = 0) {
    if (side === null) {
      trail.replaceChildren(el("span.quiet", {}, table
        ? "Changed lines are marked; coloured line numbers mean that only value names changed. Click a line to find its counterpart, or a value to highlight its uses."
        : "Click a line to find its counterpart on the other side."));
      return;
    }
    const names = chosen.names.map((n) => TABLES.names[n]), other = steps[side ? left : right];
    const others = [...new Set(DATA.units.filter((u) => u.kind === "kernel" && u !== unit && u.steps[0].listing.sets.some((s) => TABLES.roots[s].some((n) => chosen.names.includes(n)))))];
    const levels = steps.map((s, k) => [s, k]).filter(([s, k]) => s.page === other.page && (s.stage === "source" || k === steps.findLastIndex((o) => o.stage === s.stage && o.unit === s.unit)));
    trail.replaceChildren(...[
      el("span", {}, `Line ${numberOf(steps[side ? right : left], chosen.line)}`), names.length ? el("span.quiet", {}, "originates from") : el("span.quiet", {}, "has no known origin"),
      el("div.chips", {}, names.slice(0, 12).map((name) => el("span.chip", { title: name }, short(name))), names.length > 12 ? el("span.quiet", {}, `and ${names.length - 12} more`) : null),
      el("span.quiet", {}, found ? `${found} related ${found === 1 ? "line" : "lines"}. Show in` : "No related lines. Show in"),
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
      if (row && !String(getSelection())) follow(side, Number(row.dataset.n));
    });
    p.code.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step || event.altKey) return;
      event.preventDefault();
      const line = chosen?.side === side ? chosen.line + step : 0;
      if (!p.rows[line]) return;
      follow(side, line);
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
    if (!own(step)) return;
    list.append(el("li", {}, el("button", {
      type: "button", "data-step": k, title: [step.made_by, step.change].filter(Boolean).join("\n"),
      onclick: () => { chosen = null; right = k; left = twin ? counterpartStep(k) : Math.max(start, k - 1); draw(); },
    }, el("span.where", {}, step.stage in FORMS ? "code" : step.stage || "import"), el("span.what", {}, stepName(step)), el("span.took", {}, step.seconds ? seconds(step.seconds) : ""))));
  });
  list.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const all = [...list.querySelectorAll("button")], next = all[all.indexOf(document.activeElement) + step];
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
      const busy = groups.reduce((a, b) => (a && a.flops >= b.flops ? a : b), undefined);
      const wish = (at.origin ?? (at.left === undefined && !twin ? busy?.origins[0] : undefined))?.replace(/^(∂ )+/, "");
      const origin = TABLES.names.indexOf(wish);
      const from = [0, 1].find((s) => linesOf(steps[s ? right : left]).some((_, k) => originsOf(steps[s ? right : left], k).includes(origin)));
      if (origin >= 0 && from !== undefined) {
        const step = steps[from ? right : left];
        const lines = linesOf(step).flatMap((_, k) => (originsOf(step, k).includes(origin) ? [k] : []));
        // Ops that prepare an operand have the same origin.
        const op = (groups.find((part) => part.origins.includes(at.origin)) ?? busy)?.ops[0];
        const line = lines.find((k) => linesOf(step)[k].includes(`dl.${op} `)) ?? lines[0];
        follow(from, line);
        reveal(from, line);
      }
    },
  };
}
