// Parts: what comes one after the other in a program that is compiled in parts, and what each part takes; of two programs,
// which part of the one is which of the other.

function partsView() {
  const body = el("div.scroll");
  return { nodes: [body], ready() { body.replaceChildren(...(PARTS.length > 1 ? bothPrograms() : oneProgram(PARTS[0]))); } };
}

const inParts = (program) => sum(program.turns.map((turn) => turn.seconds ?? 0));
const placesOf = (turn) => [turn.origins.slice(0, 3).map(short).join(", "), turn.origins.length > 3 ? el("span.quiet", {}, ` and ${turn.origins.length - 3} more`) : null];

function oneProgram(program) {
  const inside = inParts(program), most = Math.max(...program.turns.map((turn) => turn.seconds ?? 0), 1e-12);
  const rows = program.turns.map((turn, k) => ({ ...turn, place: k, of: turn.page === null ? null : PAGES[turn.page] }));
  const known = (write) => (row) => (row.of ? write(row) : "");
  const name = (row) => el("span", { style: `padding-left:${16 * row.depth}px` },
    row.of ? button(row.name, () => go("graph", { page: row.page || null })) : [row.name, el("span.quiet", {}, row.name.startsWith("part ") ? " · did not run" : " · by the host")]);
  return [
    facts([String(program.count), "parts ran"], [seconds(program.seconds), "part by part"], [seconds(inside), "in parts"],
      [seconds(Math.max(0, program.seconds - inside)), "by the host, and between"]),
    el("p.quiet.small", {}, "Data decides in this program what no compilation serves at once. It runs in parts, each compiled by itself for the sizes that come out; what is between them the host computes. A part's name leads to its graph; other views are of the part that is chosen at the top."),
    table([
      ["step", false, name, (row) => -row.place],
      ["from", false, placesOf, (row) => row.origins[0] ?? ""],
      ["gives", false, (row) => el("span.mono.small", {}, row.results.join(", ")), (row) => row.results.join()],
      ["runs", true, known((row) => String(row.runs)), (row) => row.runs ?? 0],
      ["time", true, known((row) => seconds(row.seconds)), (row) => row.seconds ?? 0],
      ["share", false, known((row) => [el("span.bar", { style: `width:${90 * row.seconds / most}px` }), ` ${percent(row.seconds / program.seconds)}`]), (row) => row.seconds ?? 0],
      ["kernels", true, known((row) => String(row.of.kernels.length)), (row) => row.of?.kernels.length ?? 0],
      ["arena", true, known((row) => bytes(row.of.memory.arena_bytes)), (row) => row.of?.memory.arena_bytes ?? 0],
      ["weights", true, known((row) => bytes(sum(row.of.memory.weights.map((w) => w.bytes)))), (row) => sum(row.of?.memory.weights.map((w) => w.bytes) ?? [])],
    ], rows, { by: 0, label: "Steps of the program" }),
  ];
}

function bothPrograms() {
  const turnOf = (page) => PARTS.flatMap((p) => p.turns.map((turn) => (turn.page !== null && p.first + turn.page === page ? turn : null))).find(Boolean);
  const pairs = COMPARISONS.map((c, pair) => ({ pair, turns: [turnOf(c.one), turnOf(c.other)], differ: c.pairs.filter((p) => p.differs || !p.one || !p.other).length, of: c.pairs.length }));
  const alone = PARTS.flatMap((p, k) => p.turns.filter((turn) => turn.page !== null && !pairs.some((row) => row.turns[k] === turn))
    .map((turn) => ({ turns: k ? [undefined, turn] : [turn, undefined], page: p.first + turn.page })));
  const rows = [...pairs, ...alone].map((row, place) => ({ ...row, place })), took = (row, k) => row.turns[k]?.seconds ?? 0, gap = (row) => took(row, 0) - took(row, 1);
  const most = Math.max(...rows.map((row) => Math.abs(gap(row))), 1e-12), either = (row) => row.turns[0] ?? row.turns[1];
  const name = (row) => [button(either(row).name, () => (row.pair === undefined ? go("graph", { page: row.page || null }) : go("compare", { pair: row.pair || null, page: null }))),
    row.turns[0] && row.turns[1] && row.turns[0].name !== row.turns[1].name ? el("span.quiet", {}, ` · ${row.turns[1].name}`) : null];
  const differ = (row) => (row.pair === undefined ? `only in ${PARTS[row.turns[0] ? 0 : 1].label}` : row.differ ? `${row.differ} of ${row.of} kernels` : "nothing");
  return [
    comparedLines(PARTS.map((p) => p.label), PARTS, [
      ["a call", (p) => p.seconds, seconds], ["in parts", inParts, seconds],
      ["by the host, and between", (p) => Math.max(0, p.seconds - inParts(p)), seconds], ["parts that ran", (p) => p.count, String],
    ]),
    el("h2", {}, "Parts"),
    el("p.quiet.small", {}, "These programs run in parts, or one of them does. A part's name leads to its kernels in both."),
    table([
      ["part", false, name, (row) => -row.place],
      ["from", false, (row) => placesOf(either(row)), (row) => either(row).origins[0] ?? ""],
      ["what differs", false, differ, differ],
      ...PARTS.map((p, k) => [p.label, true, (row) => (row.turns[k] ? seconds(took(row, k)) : ""), (row) => took(row, k)]),
      ["difference", true, (row) => [`${signed(gap(row), seconds)} `, diverging(gap(row) / most)], (row) => Math.abs(gap(row))],
    ], rows, { by: 0, label: "Parts of both" }),
  ];
}
