"""Samples of running sums and products, of order, and of writes to places that are data, against loops over their definitions."""

from __future__ import annotations

import numpy as np

from dlc.dialects import dl
from tests.ops.sample import BF16, BOOL, F16, F32, I8, I32, I64, U8, Sample, exactly, values

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


def _argsort(dtype: np.dtype, axis: int, descending: bool, count: int | None = None) -> Sample:
    x = values(dtype, 3, 9, 2, scale=1.0)
    if dtype.kind == "f":
        # Ties and NaN.
        x = np.round(x)
        x[0, 2:4] = np.nan
    properties = {"axis": axis, "descending": descending} | ({} if count is None else {"count": count})
    label = f"axis{axis}" + "_descending" * descending + (f"_first{count}" if count else "")
    return Sample(dl.ArgsortOp, (x,), lambda x: argsort(x, axis, descending, count), properties, label=label)


def _long_argsort(dtype: np.dtype, descending: bool, count: int | None, *shape: int) -> Sample:
    """Rows that are longer than a run; ties, and NaN where there is one."""
    x = np.round(values(dtype, *shape, scale=9.0).astype(np.float64)).astype(dtype)
    if dtype.kind == "f":
        x[:, 3:140:40] = np.nan
        x[:, 5:140:30] = -np.inf if descending else np.inf
    properties = {"axis": 1, "descending": descending} | ({} if count is None else {"count": count})
    label = f"long{shape[1]}" + "_descending" * descending + (f"_first{count}" if count else "")
    return Sample(dl.ArgsortOp, (x,), lambda x: argsort(x, 1, descending, count), properties, label=label)


def _merge_sorted(dtype: np.dtype, descending: bool, run: int, count: int) -> Sample:
    x = values(dtype, 2, 4 * run, scale=3.0)
    if dtype.kind == "f":
        x[:, 1] = x[:, -1] = np.nan
    runs = argsort(x.reshape(2, 4, run), 2, descending, None) + np.arange(4)[:, None] * run

    def expected(x: np.ndarray, _: np.ndarray) -> np.ndarray:
        first, second = np.split(x, 2, 1)
        return np.stack([argsort(first, 1, descending, count), argsort(second, 1, descending, count) + 2 * run], 1)

    properties = {"count": count, "descending": descending}
    label = f"runs_of_{run}_first{count}" + "_descending" * descending
    return Sample(dl.MergeSortedOp, (x, runs), expected, properties, label=label)


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


def _elements(dtype: np.dtype, mode: str, axis: int, *shape: int) -> Sample:
    indices = np.random.default_rng(axis).integers(-5, 6, shape)
    operands = (values(dtype, 3, 5, 4), indices, values(dtype, *shape, seed=1))
    formula = exactly(lambda x, i, u: scatter_elements(x, i, u, axis, mode))
    label = f"{mode}_axis{axis}_{'x'.join(map(str, shape))}"
    return Sample(dl.ScatterElementsOp, operands, formula, {"axis": axis, "mode": mode}, _tolerance(dtype, mode), label)


def _nd(dtype: np.dtype, mode: str, indices: np.ndarray) -> Sample:
    updates = values(dtype, *indices.shape[:-1], *(4, 3, 2)[indices.shape[-1] :], seed=1)
    formula = exactly(lambda x, i, u: scatter_nd(x, i, u, mode))
    label = f"{mode}_{indices.shape[-1]}of3"
    return Sample(
        dl.ScatterNdOp, (values(dtype, 4, 3, 2), indices, updates), formula, {"mode": mode}, _tolerance(dtype, mode), label
    )


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
    *(_merge_sorted(F32, d, 5, count) for d in (False, True) for count in (10, 7)),
    _merge_sorted(I32, False, 1, 2),
    *(_elements(F32, mode, 1, 3, 4, 4) for mode in _COMBINE),
    _elements(F32, "none", 0, 2, 4, 3),
    _elements(BF16, "add", 2, 3, 2, 5),
    _elements(I32, "max", 1, 2, 7, 1),
    _elements(BOOL, "none", 1, 3, 4, 4),
    *(_nd(F32, mode, _ROWS) for mode in _COMBINE),
    _nd(F32, "none", _PLACES),
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
