// Syntax highlighting, and the links between lines of different texts.

const WORDS = {
  mlir: /(?<com>\/\/.*)|(?<str>"(?:[^"\\]|\\.)*")|(?<val>%[\w$.#-]+)|(?<sym>@"[^"]*"|@[\w$.]+|\^\w+)|(?<type>!\w[\w.]*|\b(?:tensor|memref|vector)(?=<)|\b(?:index|[fi]\d+|bf16|ui\d+)\b)|(?<op>\b[a-z_]+\.[a-z_][\w.]*|\bto\b|\bstep\b|\bins\b|\bouts\b|\biter_args\b|\battributes\b)|(?<num>-?\b\d[\w.+-]*)/g,
  llvm: /(?<com>;.*)|(?<str>"[^"]*")|(?<val>%[\w$.]+)|(?<sym>@[\w$.]+|^\w+:)|(?<type><\d+ x \w+>|\b(?:ptr|float|double|half|i\d+|void)\b)|(?<op>\b(?:define|internal|phi|br|label|add|sub|mul|udiv|urem|fadd|fsub|fmul|fdiv|fcmp|icmp|select|load|store|call|tail|ret|getelementptr|insertelement|extractelement|shufflevector|bitcast|zext|sext|trunc|or|and|xor|shl|lshr|ashr|alloca)\b)|(?<num>-?\b\d[\w.]*|0x[0-9A-F]+)/g,
  asm: /(?<com>#.*)|(?<sym>^[.\w$"]+:|\.L\w+)|(?<op>^\t[a-z]\w*)|(?<val>%[a-z]+\d*[a-z]?)|(?<num>\$?-?\b\d[\w]*)/g,
  python: /(?<com>#.*)|(?<str>"[^"]*"|'[^']*')|(?<op>\b(?:def|return|for|in|if|else|lambda|while|with|import|from|as|and|or|not)\b)|(?<num>\b\d[\w.]*)/g,
  c: /(?<com>\/\/.*|\/\*.*?\*\/)|(?<str>"[^"]*")|(?<type>\b(?:float|int|long|char|void|const|double|half|short|uint|ulong|uchar|bool)\d*\b|\b__\w+\b)|(?<op>\b(?:for|if|else|return|barrier|fma)\b)|(?<num>\b\d[\w.]*)/g,
  onnx: /(?<str>'[^']*'|"[^"]*")|(?<op>(?<== )[\w.]+(?=\())|(?<num>-?\b\d[\w.]*)/g,
};

function language(step) {
  if (step.stage === "source") return /^\s*#/.test(TABLES.texts[step.listing.text]) ? "python" : "onnx";
  return { llvm: "llvm", asm: "asm", opencl: "c", c: "c" }[step.stage] ?? "mlir";
}

const linesOf = (step) => (step.all ??= TABLES.texts[step.listing.text].replace(/\n$/, "").split("\n"));

/** A line as HTML; `changed` is its range of changed characters. */
function highlighted(line, kind, changed) {
  let html = "", end = 0;
  const plain = (text, at) => {
    if (!changed || at + text.length <= changed[0] || at >= changed[1]) return escaped(text);
    const [from, to] = [Math.max(0, changed[0] - at), Math.min(text.length, changed[1] - at)];
    return `${escaped(text.slice(0, from))}<em>${escaped(text.slice(from, to))}</em>${escaped(text.slice(to))}`;
  };
  for (const found of line.matchAll(WORDS[kind])) {
    const [name] = Object.entries(found.groups).find(([, value]) => value !== undefined);
    const value = name === "val" ? ` data-v="${escaped(found[0])}"` : "";
    html += `${plain(line.slice(end, found.index), end)}<span class="t-${name}"${value}>${plain(found[0], found.index)}</span>`;
    end = found.index + found[0].length;
  }
  return html + plain(line.slice(end), end);
}

/** The origins of a line as name indices; a derivative has the origins of its primal op. */
const originsOf = (step, line) => TABLES.roots[step.listing.sets[line]] ?? [];

/** The number of a line; for Python, its number in the file, or "" if it has none. */
function numberOf(step, line) {
  if (language(step) !== "python") return line + 1;
  return /:(\d+)$/.exec(TABLES.names[originsOf(step, line)[0]] ?? "")?.[1] ?? "";
}

/** The lines of `other` that share an origin with line `line` of `step`; both are steps of one unit or of the program. */
function related(step, line, other) {
  if (other === step) return [line];
  const loops = step.listing.lines.length ? step.listing.lines[line] : step.isLoops ? line : -1;
  const all = linesOf(other);
  if (loops >= 0 && step.unit === other.unit && (other.listing.lines.length || other.isLoops)) {
    if (other.isLoops) return [loops];
    return all.flatMap((_, k) => (other.listing.lines[k] === loops ? [k] : []));
  }
  const wanted = new Set(originsOf(step, line));
  if (!wanted.size) return [];
  return all.flatMap((_, k) => (originsOf(other, k).some((name) => wanted.has(name)) ? [k] : []));
}
