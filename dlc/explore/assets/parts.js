// Parts: what comes one after the other in a program of which data decides a size, and what each part takes.

function partsView() {
  const inside = sum(PARTS.turns.map((turn) => turn.seconds ?? 0)), most = Math.max(...PARTS.turns.map((turn) => turn.seconds ?? 0), 1e-12);
  const rows = PARTS.turns.map((turn, k) => ({ ...turn, place: k, of: turn.page === null ? null : PAGES[turn.page] }));
  const known = (write) => (row) => (row.of ? write(row) : "");
  const name = (row) => el("span", { style: `padding-left:${16 * row.depth}px` },
    row.of ? button(row.name, () => go("graph", { page: row.page || null })) : [row.name, el("span.quiet", {}, row.name.startsWith("part ") ? " · did not run" : " · by the host")]);
  const from = (row) => [row.origins.slice(0, 3).map(short).join(", "), row.origins.length > 3 ? el("span.quiet", {}, ` and ${row.origins.length - 3} more`) : null];
  const body = el("div.scroll");
  return {
    nodes: [body],
    ready() {
      body.replaceChildren(
        facts([String(PAGES.length), "parts ran"], [seconds(PARTS.seconds), "in a call"], [seconds(inside), "in parts"],
          [seconds(Math.max(0, PARTS.seconds - inside)), "by the host, and between"]),
        el("p.quiet.small", {}, "Data decides a size in this program. Up to there, and from there on, it is compiled; what is between is computed by the host. A part's name leads to its graph; other views are of the part that is chosen at the top."),
        table([
          ["step", false, name, (row) => -row.place],
          ["from", false, from, (row) => row.origins[0] ?? ""],
          ["gives", false, (row) => el("span.mono.small", {}, row.results.join(", ")), (row) => row.results.join()],
          ["runs", true, known((row) => String(row.runs)), (row) => row.runs ?? 0],
          ["time", true, known((row) => seconds(row.seconds)), (row) => row.seconds ?? 0],
          ["share", false, known((row) => [el("span.bar", { style: `width:${90 * row.seconds / most}px` }), ` ${percent(row.seconds / PARTS.seconds)}`]), (row) => row.seconds ?? 0],
          ["kernels", true, known((row) => String(row.of.kernels.length)), (row) => row.of?.kernels.length ?? 0],
          ["arena", true, known((row) => bytes(row.of.memory.arena_bytes)), (row) => row.of?.memory.arena_bytes ?? 0],
          ["weights", true, known((row) => bytes(sum(row.of.memory.weights.map((w) => w.bytes)))), (row) => sum(row.of?.memory.weights.map((w) => w.bytes) ?? [])],
        ], rows, { by: 0, label: "Steps of the program" }),
      );
    },
  };
}
