// Memory: lifetimes and offsets of arena buffers, the peak, and weights.

/** The name of a buffer, or its origin. */
const bufferName = (b) => short(b.name || "a buffer");
/** Buffer sizes are rounded up to this. */
const BUFFER_ALIGNMENT_BYTES = 64;
/** The reason for an empty arena. */
const NO_ARENA = () => (DATA.kernels.length ? "The arena is empty: kernels read inputs and write outputs only." : NO_KERNEL);

function memoryView() {
  const m = DATA.memory, body = el("div.scroll"), detail = el("aside", { "aria-label": "Selected buffer", tabindex: 0 });
  const { live, peak } = liveBuffers(m);
  const culprit = [...(live[peak] ?? [])].sort((a, b) => b.bytes - a.bytes)[0];
  const held = sum((live[peak] ?? []).map((b) => b.bytes)), separately = sum(m.buffers.map((b) => b.bytes));
  let chosen = culprit;
  const pick = (b) => { chosen = b; draw(); };

  const highest = m.buffers.findLast((b) => b.offset + b.bytes > m.arena_bytes - 256), given = Object.entries(DATA.sizes);

  function draw() {
    const chart = arenaChart(m, m.arena_bytes, chosen, pick);
    const weights = sum(m.weights.map((w) => w.bytes));
    body.replaceChildren(
      facts([bytes(m.arena_bytes), "arena"], [bytes(separately), "without buffer reuse"], [bytes(weights), "weights"], [bytes(m.input_bytes + m.output_bytes), "inputs and outputs"]),
      el("figure", {}, el("figcaption", {}, culprit
        ? [`The peak is at launch ${peak + 1}, `, el("b", {}, m.launches[peak]), `: ${plural(live[peak].length, "buffer")}, ${bytes(held)}, of which `, el("b", {}, bufferName(culprit)), ` takes ${percent(culprit.bytes / Math.max(1, held))}. The dashed line marks that launch.`,
          m.arena_bytes > 1.02 * held + BUFFER_ALIGNMENT_BYTES * live[peak].length && highest ? [` The arena is ${bytes(m.arena_bytes - held)} larger because of fragmentation: `, button(bufferName(highest), () => pick(highest)), " has the highest offset."] : [],
          given.length ? ` The shapes are dynamic; this is for ${given.map(([name, size]) => `${name} = ${size}`).join(", ")}.` : ""].flat()
        : NO_ARENA()), culprit && chart),
      m.weights.length ? el("h2", {}, "Weights after preprocessing") : "",
      m.weights.length ? table([
        ["name", false, (w) => el("span.mono", {}, w.name), (w) => w.name],
        ["type", false, (w) => el("span.mono.whole", {}, w.type), (w) => w.type],
        ["size", true, (w) => bytes(w.bytes), (w) => w.bytes],
        ["share", true, (w) => percent(w.bytes / weights), (w) => w.bytes],
        ["read by", false, (w) => w.kernels.map((name) => button(name, () => go("kernels", { kernel: name }))), (w) => w.kernels.join()],
      ], m.weights, { by: 2, label: "Weights" }) : "",
    );
    body.querySelectorAll("td .link + .link").forEach((link) => link.before(", "));
    detail.replaceChildren(...(chosen ? [
      el("h2", {}, bufferName(chosen)), el("p.mono.quiet", {}, chosen.type),
      listed([["size", bytes(chosen.bytes)], ["offset", bytes(chosen.offset)],
        ["live", `launches ${chosen.first + 1} to ${chosen.last + 1}`],
        ["written by", button(m.launches[chosen.first] ?? "", () => go("kernels", { kernel: m.launches[chosen.first] }))],
        ["last read by", button(m.launches[chosen.last] ?? "", () => go("kernels", { kernel: m.launches[chosen.last] }))]]),
      el("h3", {}, "Origin"), el("div.chips", {}, chosen.origins.map((name) => el("span.chip", { title: name }, short(name)))),
      el("h3", {}, "Live buffers at the peak"),
      el("ul.bare.small", {}, [...(live[peak] ?? [])].sort((a, b) => b.bytes - a.bytes).slice(0, 12).map((b) => el("li", {}, button(bufferName(b), () => pick(b)), el("span.quiet", {}, ` ${bytes(b.bytes)}, ${b.type}`)))),
    ] : [el("p.quiet", {}, "No buffer.")]));
  }
  return { nodes: [body, detail], ready: draw };
}

/** The live buffers at each launch, and the launch with the peak. */
function liveBuffers(m) {
  const live = m.launches.map((_, k) => m.buffers.filter((b) => b.first <= k && k <= b.last));
  return { live, peak: live.map((all) => sum(all.map((b) => b.bytes))).reduce((a, v, k, all) => (v > all[a] ? k : a), 0) };
}

/** The arena over the launches, scaled to `most` bytes. */
function arenaChart(m, most, chosen, pick) {
  const W = 900, H = 340, L = 64, B = 30, T = 8;
  const X = (k) => L + (W - L - 4) * k / Math.max(1, m.launches.length), Y = (v) => H - B - (H - B - T) * v / Math.max(1, most);
  const marks = [0, 0.25, 0.5, 0.75, 1].map((f) => f * most), { peak } = liveBuffers(m);
  return el("svg", { viewBox: `0 0 ${W} ${H}`, style: `width:100%;max-width:${W * 1.3}px`, role: "group", "aria-label": "Buffers of the arena over the launches of a call" },
    marks.flatMap((v) => [el("line.axis", { x1: L, x2: W, y1: Y(v), y2: Y(v) }), el("text.quiet", { x: L - 8, y: Y(v) + 4, "text-anchor": "end" }, bytes(Math.round(v)))]),
    m.buffers.map((b, k) => el("rect", {
      x: X(b.first) + 0.5, width: Math.max(1.5, X(b.last + 1) - X(b.first) - 1), y: Y(b.offset + b.bytes), height: Math.max(1, Y(b.offset) - Y(b.offset + b.bytes) - 0.5), rx: 2,
      fill: b === chosen ? "var(--warm)" : hue(k), opacity: b === chosen ? 1 : 0.6, stroke: "var(--ground)", tabindex: 0, role: "button", style: "cursor:pointer",
      "aria-label": `${bufferName(b)}, ${bytes(b.bytes)}`, onclick: () => pick(b), onkeydown: (event) => { if (event.key === "Enter") pick(b); },
    }, el("title", {}, `${bufferName(b)} ${b.type}: ${bytes(b.bytes)}`))),
    m.buffers.map((b) => {
      // Names are drawn in buffers that have room for them.
      const [x, wide, high] = [X(b.first), X(b.last + 1) - X(b.first), Y(b.offset) - Y(b.offset + b.bytes)], most = Math.floor((wide - 16) / 7);
      return high >= 18 && most >= 6 ? el(b === chosen ? "text.within.chosen" : "text.within", { x: x + 8, y: Y(b.offset + b.bytes) + 15, "aria-hidden": "true" }, truncatedStart(bufferName(b), most)) : null;
    }),
    m.launches.length ? el("line.peak", { x1: X(peak + 0.5), x2: X(peak + 0.5), y1: T, y2: H - B }) : null,
    el("text.quiet", { x: W, y: H - 6, "text-anchor": "end" }, `${plural(m.launches.length, "kernel launch", "es")}, from first to last`));
}
