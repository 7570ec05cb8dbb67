// Side-by-side diff of two texts that ignores the numbering of SSA values.

/** A line without the numbers of SSA values. */
const normalizedLine = (line) => line.trim().replace(/%\d+\b/g, "%").replace(/(%[A-Za-z_]\w*?)_\d+\b/g, "$1");

/** Pairs [i, j] of a longest common subsequence, after Myers, An O(ND) Difference Algorithm (1986). */
function commonSubsequence(a, b) {
  let start = 0, endA = a.length, endB = b.length;
  while (start < endA && start < endB && a[start] === b[start]) start += 1;
  while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) { endA -= 1; endB -= 1; }
  const pairs = [];
  for (let k = 0; k < start; k += 1) pairs.push([k, k]);
  pairs.push(...shortestEdit(a.slice(start, endA), b.slice(start, endB)).map(([i, j]) => [i + start, j + start]));
  for (let k = 0; endA + k < a.length; k += 1) pairs.push([endA + k, endB + k]);
  return pairs;
}

// The edit distance at which the comparison gives up.
const MAX_EDITS = 1500;

function shortestEdit(a, b) {
  const n = a.length, m = b.length, maxEdits = Math.min(n + m, MAX_EDITS), reach = new Map([[1, 0]]), trace = [];
  for (let d = 0; d <= maxEdits; d += 1) {
    trace.push(new Map(reach));
    for (let k = -d; k <= d; k += 2) {
      let x = k === -d || (k !== d && reach.get(k - 1) < reach.get(k + 1)) ? reach.get(k + 1) : reach.get(k - 1) + 1;
      while (x < n && x - k < m && a[x] === b[x - k]) x += 1;
      reach.set(k, x);
      if (x >= n && x - k >= m) return backtrack(trace, n, m);
    }
  }
  return [];
}

function backtrack(trace, x, y) {
  const pairs = [];
  for (let d = trace.length - 1; d >= 0; d -= 1) {
    const reach = trace[d], k = x - y;
    const previous = k === -d || (k !== d && reach.get(k - 1) < reach.get(k + 1)) ? k + 1 : k - 1;
    const fromX = d ? reach.get(previous) : 0, fromY = d ? fromX - previous : 0;
    while (x > fromX && y > fromY) { x -= 1; y -= 1; pairs.push([x, y]); }
    [x, y] = [fromX, fromY];
  }
  return pairs.reverse();
}

/** Align two texts: rows of [left line or null, right line or null, are equal]. */
function alignedRows(left, right) {
  const result = [];
  let i = 0, j = 0;
  const pushUnmatched = (toI, toJ) => {
    while (i < toI || j < toJ) result.push([i < toI ? i++ : null, j < toJ ? j++ : null, false]);
  };
  for (const [a, b] of commonSubsequence(left.map(normalizedLine), right.map(normalizedLine))) {
    pushUnmatched(a, b);
    result.push([i++, j++, true]);
  }
  pushUnmatched(left.length, right.length);
  return result;
}

/** The range of a line that differs from another line, if most of the line is equal. */
function changedRange(line, other) {
  let start = 0, end = line.length, otherEnd = other.length;
  while (start < end && start < otherEnd && line[start] === other[start]) start += 1;
  while (end > start && otherEnd > start && line[end - 1] === other[otherEnd - 1]) { end -= 1; otherEnd -= 1; }
  return line.length - (end - start) > 0.3 * line.length ? [start, end] : null;
}
