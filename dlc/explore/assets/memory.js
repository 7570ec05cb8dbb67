// Memory: lifetimes and offsets of arena buffers, the peak, and weights.

/** The name of a buffer, or its origin. */
const bufferName = (b) => short(b.name || "a buffer");
/** Buffer sizes are rounded up to this. */
const BUFFER_ALIGNMENT_BYTES = 64;
/** The reason for an empty arena. */
const NO_ARENA = () => (DATA.kernels.length ? "The arena is empty: kernels read inputs and write outputs only." : NO_KERNEL);

function memoryView() {
  const memory = DATA.memory, body = el("div.scroll"), detail = el("aside", { "aria-label": "Selected buffer", tabindex: 0 });
  const { live, peak } = liveBuffers(memory);
  const largestAtPeak = [...(live[peak] ?? [])].sort((a, b) => b.bytes - a.bytes)[0];
  const peakBytes = sum((live[peak] ?? []).map((b) => b.bytes)), bytesWithoutReuse = sum(memory.buffers.map((b) => b.bytes));
  let selected = largestAtPeak;
  const select = (b) => { selected = b; draw(); };

  const highest = memory.buffers.findLast((b) => b.offset + b.bytes > memory.arena_bytes - 256), callSizes = Object.entries(DATA.sizes);

  function draw() {
    const chart = arenaChart(memory, memory.arena_bytes, selected, select);
    const weights = sum(memory.weights.map((w) => w.bytes));
    body.replaceChildren(
      facts([bytes(memory.arena_bytes), "arena"], [bytes(bytesWithoutReuse), "without buffer reuse"], [bytes(weights), "weights"], [bytes(memory.input_bytes + memory.output_bytes), "inputs and outputs"]),
      el("figure", {}, el("figcaption", {}, largestAtPeak
        ? [`The peak is at launch ${peak + 1}, `, el("b", {}, memory.launches[peak]), `: ${plural(live[peak].length, "buffer")}, ${bytes(peakBytes)}, of which `, el("b", {}, bufferName(largestAtPeak)), ` takes ${percent(largestAtPeak.bytes / Math.max(1, peakBytes))}. The dashed line marks that launch.`,
          memory.arena_bytes > 1.02 * peakBytes + BUFFER_ALIGNMENT_BYTES * live[peak].length && highest ? [` The arena is ${bytes(memory.arena_bytes - peakBytes)} larger because of fragmentation: `, button(bufferName(highest), () => select(highest)), " has the highest offset."] : [],
          callSizes.length ? ` The shapes are dynamic; this is for ${callSizes.map(([name, size]) => `${name} = ${size}`).join(", ")}.` : ""].flat()
        : NO_ARENA()), largestAtPeak && chart),
      memory.weights.length ? el("h2", {}, "Weights after preprocessing") : "",
      memory.weights.length ? table([
        ["name", false, (w) => el("span.mono", {}, w.name), (w) => w.name],
        ["type", false, (w) => el("span.mono.whole", {}, w.type), (w) => w.type],
        ["size", true, (w) => bytes(w.bytes), (w) => w.bytes],
        ["share", true, (w) => percent(w.bytes / weights), (w) => w.bytes],
        ["read by", false, (w) => w.kernels.map((name) => button(name, () => go("kernels", { kernel: name }))), (w) => w.kernels.join()],
      ], memory.weights, { sortBy: 2, label: "Weights" }) : "",
    );
    body.querySelectorAll("td .link + .link").forEach((link) => link.before(", "));
    detail.replaceChildren(...(selected ? [
      el("h2", {}, bufferName(selected)), el("p.mono.quiet", {}, selected.type),
      listed([["size", bytes(selected.bytes)], ["offset", bytes(selected.offset)],
        ["live", `launches ${selected.first_launch + 1} to ${selected.last_launch + 1}`],
        ["written by", button(memory.launches[selected.first_launch] ?? "", () => go("kernels", { kernel: memory.launches[selected.first_launch] }))],
        ["last read by", button(memory.launches[selected.last_launch] ?? "", () => go("kernels", { kernel: memory.launches[selected.last_launch] }))]]),
      el("h3", {}, "Origin"), el("div.chips", {}, selected.origins.map((name) => el("span.chip", { title: name }, short(name)))),
      el("h3", {}, "Live buffers at the peak"),
      el("ul.bare.small", {}, [...(live[peak] ?? [])].sort((a, b) => b.bytes - a.bytes).slice(0, 12).map((b) => el("li", {}, button(bufferName(b), () => select(b)), el("span.quiet", {}, ` ${bytes(b.bytes)}, ${b.type}`)))),
    ] : [el("p.quiet", {}, "No buffer.")]));
  }
  return { nodes: [body, detail], ready: draw };
}

/** The live buffers at each launch, and the launch with the peak. */
function liveBuffers(memory) {
  const live = memory.launches.map((_, k) => memory.buffers.filter((b) => b.first_launch <= k && k <= b.last_launch));
  return { live, peak: live.map((buffers) => sum(buffers.map((b) => b.bytes))).reduce((peak, size, k, sizes) => (size > sizes[peak] ? k : peak), 0) };
}

/** The arena over the launches, scaled to `maxBytes`. */
function arenaChart(memory, maxBytes, selected, onPick) {
  const W = 900, H = 340, L = 64, B = 30, T = 8;
  const X = (k) => L + (W - L - 4) * k / Math.max(1, memory.launches.length), Y = (v) => H - B - (H - B - T) * v / Math.max(1, maxBytes);
  const marks = [0, 0.25, 0.5, 0.75, 1].map((f) => f * maxBytes), { peak } = liveBuffers(memory);
  return el("svg", { viewBox: `0 0 ${W} ${H}`, style: `width:100%;max-width:${W * 1.3}px`, role: "group", "aria-label": "Buffers of the arena over the launches of a call" },
    marks.flatMap((v) => [el("line.axis", { x1: L, x2: W, y1: Y(v), y2: Y(v) }), el("text.quiet", { x: L - 8, y: Y(v) + 4, "text-anchor": "end" }, bytes(Math.round(v)))]),
    memory.buffers.map((b, k) => el("rect", {
      x: X(b.first_launch) + 0.5, width: Math.max(1.5, X(b.last_launch + 1) - X(b.first_launch) - 1), y: Y(b.offset + b.bytes), height: Math.max(1, Y(b.offset) - Y(b.offset + b.bytes) - 0.5), rx: 2,
      fill: b === selected ? "var(--warm)" : hue(k), opacity: b === selected ? 1 : 0.6, stroke: "var(--ground)", tabindex: 0, role: "button", style: "cursor:pointer",
      "aria-label": `${bufferName(b)}, ${bytes(b.bytes)}`, onclick: () => onPick(b), onkeydown: (event) => { if (event.key === "Enter") onPick(b); },
    }, el("title", {}, `${bufferName(b)} ${b.type}: ${bytes(b.bytes)}`))),
    memory.buffers.map((b) => {
      // Names are drawn in buffers that have room for them.
      const [x, width, height] = [X(b.first_launch), X(b.last_launch + 1) - X(b.first_launch), Y(b.offset) - Y(b.offset + b.bytes)], maxChars = Math.floor((width - 16) / 7);
      return height >= 18 && maxChars >= 6 ? el(b === selected ? "text.within.chosen" : "text.within", { x: x + 8, y: Y(b.offset + b.bytes) + 15, "aria-hidden": "true" }, truncatedStart(bufferName(b), maxChars)) : null;
    }),
    memory.launches.length ? el("line.peak", { x1: X(peak + 0.5), x2: X(peak + 0.5), y1: T, y2: H - B }) : null,
    el("text.quiet", { x: W, y: H - 6, "text-anchor": "end" }, `${plural(memory.launches.length, "kernel launch", "es")}, from first to last`));
}
