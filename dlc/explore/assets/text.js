// Syntax highlighting, and the links between lines of different texts.

const TOKEN_PATTERNS = {
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

/** A line as HTML; `diffRange` is its range of changed characters. */
function highlighted(line, kind, diffRange) {
  let html = "", end = 0;
  const plain = (text, offset) => {
    if (!diffRange || offset + text.length <= diffRange[0] || offset >= diffRange[1]) return escaped(text);
    const [start, stop] = [Math.max(0, diffRange[0] - offset), Math.min(text.length, diffRange[1] - offset)];
    return `${escaped(text.slice(0, start))}<em>${escaped(text.slice(start, stop))}</em>${escaped(text.slice(stop))}`;
  };
  for (const match of line.matchAll(TOKEN_PATTERNS[kind])) {
    const [name] = Object.entries(match.groups).find(([, value]) => value !== undefined);
    const value = name === "val" ? ` data-v="${escaped(match[0])}"` : "";
    html += `${plain(line.slice(end, match.index), end)}<span class="t-${name}"${value}>${plain(match[0], match.index)}</span>`;
    end = match.index + match[0].length;
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
  const loopLine = step.listing.lines.length ? step.listing.lines[line] : step.isLoops ? line : -1;
  const otherLines = linesOf(other);
  if (loopLine >= 0 && step.unit === other.unit && (other.listing.lines.length || other.isLoops)) {
    if (other.isLoops) return [loopLine];
    return otherLines.flatMap((_, k) => (other.listing.lines[k] === loopLine ? [k] : []));
  }
  const lineOrigins = new Set(originsOf(step, line));
  if (!lineOrigins.size) return [];
  return otherLines.flatMap((_, k) => (originsOf(other, k).some((name) => lineOrigins.has(name)) ? [k] : []));
}
