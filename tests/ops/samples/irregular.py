"""Samples of running sums and products, of order, and of writes to places that are data, against loops over their definitions."""

from __future__ import annotations

import numpy as np

from dlc.dialects import dl
from tests.ops.sample import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, Sample, exactly, values

_COMBINE = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": max,
    "min": min,
}


def running(x: np.ndarray, axis: int, exclusive: bool, reverse: bool, product: bool = False) -> np.ndarray:
    y = np.full_like(x, 1 if product else 0)
    n = x.shape[axis]
    for j in range(n):
        near = range(j + exclusive, n) if reverse else range(j + 1 - exclusive)
        for k in near:
            place, term = (slice(None),) * axis + (j,), x[(slice(None),) * axis + (k,)]
            y[place] = y[place] * term if product else y[place] + term
    return y


def argsort(x: np.ndarray, axis: int, descending: bool, count: int | None) -> np.ndarray:
    def order(row: np.ndarray) -> list[int]:
        # NaN is the largest; sorted() keeps the order of equal keys.
        keys = [(bool(v != v), 0.0 if v != v else float(v)) for v in row]
        if descending:
            keys = [(not isnan, -v) for isnan, v in keys]
        return sorted(range(len(row)), key=lambda k: keys[k])[:count]

    return np.apply_along_axis(order, axis, x)


def scatter_elements(x: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int, mode: str) -> np.ndarray:
    y = x.copy()
    for place in np.ndindex(*indices.shape):
        i = int(indices[place])
        if -x.shape[axis] <= i < x.shape[axis]:
            target = (*place[:axis], i, *place[axis + 1 :])
            y[target] = _COMBINE[mode](y[target], updates[place])
    return y


def scatter_nd(x: np.ndarray, indices: np.ndarray, updates: np.ndarray, mode: str) -> np.ndarray:
    y = x.copy()
    for place in np.ndindex(*indices.shape[:-1]):
        target = tuple(int(i) for i in indices[place])
        if all(-n <= i < n for i, n in zip(target, x.shape, strict=False)):
            for rest in np.ndindex(*x.shape[len(target) :]):
                y[target + rest] = _COMBINE[mode](y[target + rest], updates[place + rest])
    return y


def _cumsum(dtype: np.dtype, axis: int, exclusive: bool = False, reverse: bool = False) -> Sample:
    label = f"axis{axis}" + "_exclusive" * exclusive + "_reverse" * reverse
    properties = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
    formula = exactly(lambda x: running(x, axis, exclusive, reverse))
    return Sample(dl.CumsumOp, (values(dtype, 3, 7, 2),), formula, properties, {F32: 1e-6, F16: 1e-3}.get(dtype, 0), label)


def _cumprod(dtype: np.dtype, exclusive: bool, reverse: bool) -> Sample:
    label = "exclusive" * exclusive + "reverse" * reverse
    formula = exactly(lambda x: running(x, 1, exclusive, reverse, product=True))
    properties = {"axis": 1, "exclusive": exclusive, "reverse": reverse}
    return Sample(dl.CumprodOp, (values(dtype, 2, 5, 3),), formula, properties, {F32: 1e-5, BF16: 1e-2}.get(dtype, 0), label)


def _accumulate(dtype: np.dtype, kind: str, exclusive: bool, reverse: bool, *shape: int) -> Sample:
    label = "x".join(map(str, shape)) + f"_{kind}" + "_exclusive" * exclusive + "_reverse" * reverse
    formula = exactly(lambda x: running(x, 1, exclusive, reverse, product=kind == "mul"))
    properties = {"kind": kind, "exclusive": exclusive, "reverse": reverse}
    return Sample(dl.AccumulateOp, (values(dtype, *shape),), formula, properties, {F32: 1e-5}.get(dtype, 0), label)


def _extreme_place(dtype: np.dtype, smallest: bool, last: bool, *shape: int) -> Sample:
    """Ties, and a NaN in a column where there is one."""
    x = np.round(values(dtype, *shape).astype(np.float64)).astype(dtype)
    if dtype.kind == "f":
        x[0, 2:4, 0] = x[-1, -1, -1] = np.nan
        x[-1, :, 0] = np.inf if smallest else -np.inf

    def place(column: np.ndarray) -> int:
        order = [(v == v, float(v) if smallest else -float(v)) if v == v else (False, 0.0) for v in column]
        return max(k for k, v in enumerate(order) if v == min(order)) if last else order.index(min(order))

    label = "x".join(map(str, shape)) + "_smallest" * smallest + "_last" * last
    properties = {"smallest": smallest, "last": last}
    return Sample(dl.ExtremePlaceOp, (x,), lambda x: np.apply_along_axis(place, 1, x), properties, label=label)


def _forest(dtype: np.dtype, rows: int, trees: int, outputs: int, kind: str) -> Sample:
    """Trees of two or three levels with nodes of each other's, and a row with NaN."""
    random = np.random.default_rng(trees)
    x = values(dtype, rows, 5)
    x[-1, ::2] = np.nan
    count = 7 * trees
    nodes = np.zeros((count, 4), I32 if dtype == F32 else I64)
    nodes[:, 0] = random.integers(0, 5, count)
    nodes[:, 1] = values(dtype, count, seed=1).view(nodes.dtype)
    nodes[:, 2:] = np.arange(count)[:, None]
    for tree in range(trees):
        # 0 to 2 ask, 3 to 6 are leaves; one leaf is not as deep.
        inner = 7 * tree + np.array([[1, 2], [3, 4], [5, 6]])
        nodes[7 * tree : 7 * tree + (2 if tree % 2 else 3), 2:] = inner[: 2 if tree % 2 else 3]
    roots, levels = 7 * np.arange(trees, dtype=np.int32), 2 + np.arange(-(-trees // 8), dtype=np.int32)
    weights = values(dtype, count, outputs, seed=2)

    def walk(x: np.ndarray, nodes: np.ndarray, roots: np.ndarray, levels: np.ndarray, weights: np.ndarray) -> np.ndarray:
        thresholds, y = np.ascontiguousarray(nodes[:, 1]).view(x.dtype), []
        for row in x:
            leaves = []
            for tree, root in enumerate(roots):
                at = int(root)
                for _ in range(levels[tree // 8]):
                    at = int(nodes[at, 2 if row[nodes[at, 0]] <= thresholds[at] else 3])
                leaves.append(weights[at])
            y.append({"add": np.sum, "min": np.min, "max": np.max}[kind](leaves, axis=0))
        return np.array(y)

    label = f"{rows}x{trees}x{outputs}_{kind}"
    return Sample(dl.ForestOp, (x, nodes, roots, levels, weights), walk, {"kind": kind}, {F32: 1e-6}.get(dtype, 1e-14), label)


def _argsort(dtype: np.dtype, axis: int, descending: bool, count: int | None = None) -> Sample:
    x = values(dtype, 3, 9, 2, scale=1.0)
    if dtype.kind == "f":
        # Ties and NaN.
        x = np.round(x)
        x[0, 2:4] = np.nan
    properties = {"axis": axis, "descending": descending} | ({} if count is None else {"count": (count,)})
    label = f"axis{axis}" + "_descending" * descending + (f"_first{count}" if count else "")
    return Sample(dl.ArgsortOp, (x,), lambda x: argsort(x, axis, descending, count), properties, label=label)


def _long_argsort(dtype: np.dtype, descending: bool, count: int | None, *shape: int) -> Sample:
    """Rows that are longer than a run; ties, and NaN where there is one."""
    x = np.round(values(dtype, *shape, scale=9.0).astype(np.float64)).astype(dtype)
    if dtype.kind == "f":
        x[:, 3:140:40] = np.nan
        x[:, 5:140:30] = -np.inf if descending else np.inf
    properties = {"axis": 1, "descending": descending} | ({} if count is None else {"count": (count,)})
    label = f"long{shape[1]}" + "_descending" * descending + (f"_first{count}" if count else "")
    return Sample(dl.ArgsortOp, (x,), lambda x: argsort(x, 1, descending, count), properties, label=label)


def _sort(dtype: np.dtype, axis: int, descending: bool, *shape: int) -> Sample:
    """Ties, NaN and infinities where there are any."""
    x = np.round(values(dtype, *shape, scale=9.0).astype(np.float64)).astype(dtype)
    if dtype.kind in "fV":
        x[0, 1:3], x[-1, :2], x[0, 0] = np.nan, -np.inf, np.inf

    def expected(x: np.ndarray) -> np.ndarray:
        return np.take_along_axis(x, argsort(x, axis, descending, None), axis)

    label = f"axis{axis}_of_{'x'.join(map(str, shape))}" + "_descending" * descending
    return Sample(dl.SortOp, (x,), expected, {"axis": axis, "descending": descending}, label=label)


def _sort_columns(dtype: np.dtype, *shape: int) -> Sample:
    x, label = values(dtype, *shape, scale=90.0), "x".join(map(str, shape))
    return Sample(dl.SortColumnsOp, (x,), lambda x: np.apply_along_axis(sorted, 1, x).astype(dtype), label=label)


def _smallest(dtype: np.dtype, rows: int, n: int, count: int) -> Sample:
    x = values(dtype, rows, n, scale=90.0)
    return Sample(dl.SmallestOp, (x,), lambda x: np.sort(x, 1)[:, :count], {"size": (count,)}, label=f"{count}_of_{n}")


def _sort_digit(dtype: np.dtype, shift: int, bits: int, signed: bool) -> Sample:
    x = values(dtype, 2, 37, scale=90.0)

    def digit(v: int) -> int:
        unsigned = (int(v) >> shift) % 2**bits
        return (unsigned + 2 ** (bits - 1)) % 2**bits if signed else unsigned

    properties = {"shift": shift, "bits": bits, "signed": signed}
    label = f"bits{shift}to{shift + bits}" + "_signed" * signed
    return Sample(dl.SortDigitOp, (x,), lambda x: np.array([sorted(r, key=digit) for r in x], dtype), properties, label=label)


def _searchsorted(dtype: np.dtype, right: bool) -> Sample:
    x, wanted = np.sort(values(dtype, 2, 3, 21, scale=4.0), 2), values(dtype, 2, 3, 9, seed=1, scale=4.0)
    wanted[..., :3] = x[..., 4:7]
    if dtype.kind == "f":
        x[..., -2:] = wanted[..., 4:5] = np.nan

    def expected(x: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        def before(a: float, b: float) -> bool:
            return bool(a < b or (b != b and a == a) or (right and (a == b or (a != a and b != b))))

        counts = [sum(before(a, w) for a in x[place[:-1]]) for place, w in np.ndenumerate(wanted)]
        return np.array(counts).reshape(wanted.shape)

    return Sample(dl.SearchsortedOp, (x, wanted), expected, {"right": right}, label="right" if right else "left")


def _elements(dtype: np.dtype, mode: str, axis: int, *shape: int, checked: bool = False) -> Sample:
    indices = np.random.default_rng(axis).integers(-5, 5 if checked else 6, shape)
    operands = (values(dtype, 3, 5, 4), indices, values(dtype, *shape, seed=1))
    formula = exactly(lambda x, i, u: scatter_elements(x, i, u, axis, mode))
    label = f"{mode}_axis{axis}_{'x'.join(map(str, shape))}{'_checked' * checked}"
    properties = {"axis": axis, "mode": mode} | ({"checked": True} if checked else {})
    return Sample(dl.ScatterElementsOp, operands, formula, properties, _tolerance(dtype, mode), label)


def _nd(dtype: np.dtype, mode: str, indices: np.ndarray, *, checked: bool = False) -> Sample:
    updates = values(dtype, *indices.shape[:-1], *(4, 3, 2)[indices.shape[-1] :], seed=1)
    formula = exactly(lambda x, i, u: scatter_nd(x, i, u, mode))
    label = f"{mode}_{indices.shape[-1]}of3{'_checked' * checked}"
    properties = {"mode": mode} | ({"checked": True} if checked else {})
    operands = (values(dtype, 4, 3, 2), indices, updates)
    return Sample(dl.ScatterNdOp, operands, formula, properties, _tolerance(dtype, mode), label)


def _tolerance(dtype: np.dtype, mode: str) -> float:
    return {F32: 1e-6, F16: 2e-3, BF16: 1e-2}.get(dtype, 0.0) if mode in ("add", "mul") else 0.0


_ROWS = np.array([[1], [3], [1], [-4], [9]])
_PLACES = np.array([[[0, 1], [3, -1]], [[0, 1], [2, 5]]], np.int32)

SAMPLES = [
    *(_cumsum(F32, 1, e, r) for e in (False, True) for r in (False, True)),
    *(_cumsum(d, 2) for d in (F16, I8, I64)),
    *(_cumprod(F32, e, r) for e in (False, True) for r in (False, True)),
    *(_cumprod(d, False, False) for d in (BF16, I8)),
    *(_argsort(F32, 1, d, count) for d in (False, True) for count in (None, 3)),
    *(_argsort(d, 2, True) for d in (F16, I8, BOOL)),
    _argsort(I64, 0, False, 2),
    *(_long_argsort(F32, d, count, 2, 150) for d in (False, True) for count in (None, 5)),
    _long_argsort(I8, False, None, 1, 65),
    _long_argsort(U8, True, 70, 1, 300),
    _long_argsort(F16, False, None, 1, 129),
    _long_argsort(I64, False, None, 1, 90),
    _long_argsort(F32, True, None, 33, 12),
    _sort(F32, 1, False, 3, 150),
    _sort(F32, 1, True, 20, 13),
    _sort(F32, 0, False, 9, 20),
    _sort(F64, 1, False, 1, 40),
    *(_sort(d, 1, False, 2, 9) for d in (F16, BF16, BOOL)),
    _sort(I64, 1, True, 1, 40),
    _sort(U8, 1, True, 1, 200),
    _sort_columns(I32, 2, 7, 18),
    _sort_columns(I32, 19, 21, 1),
    _sort_columns(I8, 3, 5, 1),
    _sort_columns(I64, 17, 1, 1),
    _sort_digit(I32, 0, 8, False),
    *(_smallest(I64, 3, 37, count) for count in (1, 2, 6, 37)),
    _smallest(I8, 2, 9, 4),
    _accumulate(F32, "add", False, False, 2, 300, 1),
    _accumulate(F32, "mul", True, False, 2, 5, 18),
    _accumulate(I32, "add", True, True, 1, 9, 3),
    _accumulate(U8, "mul", False, True, 2, 3, 1),
    *(_extreme_place(F32, smallest, last, 3, 37, 1) for smallest in (False, True) for last in (False, True)),
    _extreme_place(F32, False, False, 2, 1030, 1),
    _extreme_place(F64, True, True, 2, 5, 18),
    _extreme_place(F32, False, False, 2, 9, 3),
    _extreme_place(U8, False, False, 1, 21, 1),
    _extreme_place(I32, True, True, 2, 6, 1),
    _forest(F32, 35, 11, 3, "add"),
    _forest(F32, 2, 3, 1, "max"),
    _forest(F64, 3, 8, 9, "min"),
    _sort_digit(I32, 21, 11, True),
    _sort_digit(I8, 0, 8, True),
    _sort_digit(I64, 60, 4, True),
    *(_elements(F32, mode, 1, 3, 4, 4) for mode in _COMBINE),
    _elements(F32, "none", 0, 2, 4, 3),
    _elements(F32, "add", 1, 3, 4, 4, checked=True),
    _elements(BF16, "add", 2, 3, 2, 5),
    _elements(I32, "max", 1, 2, 7, 1),
    _elements(BOOL, "none", 1, 3, 4, 4),
    *(_nd(F32, mode, _ROWS) for mode in _COMBINE),
    _nd(F32, "none", _PLACES),
    _nd(F32, "none", _PLACES[:, :1], checked=True),
    # More updates than are compared with every element.
    *(_elements(F32, mode, 1, 2, 90, 3) for mode in ("none", "max")),
    _elements(I32, "add", 0, 70, 2, 4),
    _nd(F32, "add", np.random.default_rng(3).integers(-5, 6, (100, 2))),
    *(_searchsorted(F32, right) for right in (False, True)),
    _searchsorted(I32, True),
    _searchsorted(U8, False),
    _nd(I8, "mul", np.concatenate([_PLACES, _PLACES[..., :1] * 0], -1)),
    _nd(F16, "add", _PLACES),
    _nd(F32, "add", np.zeros((2, 0), np.int64)),
    _nd(F32, "none", np.array([[2**64 - 1], [2]], np.uint64)),
    _nd(F32, "none", np.zeros((0,), np.int64)),
    _nd(I8, "max", np.zeros((0, 1), np.int64)),
]
