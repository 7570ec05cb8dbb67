"""Samples of running sums and products, of order, and of writes to places that are data, against loops over their definitions."""

from __future__ import annotations

import numpy as np

from dlc.dialects import dl
from tests.ops.sample import BF16, BOOL, F16, F32, I8, I32, I64, Sample, exactly, values

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
    *(_elements(F32, mode, 1, 3, 4, 4) for mode in _COMBINE),
    _elements(F32, "none", 0, 2, 4, 3),
    _elements(BF16, "add", 2, 3, 2, 5),
    _elements(I32, "max", 1, 2, 7, 1),
    _elements(BOOL, "none", 1, 3, 4, 4),
    *(_nd(F32, mode, _ROWS) for mode in _COMBINE),
    _nd(F32, "none", _PLACES),
    _nd(I8, "mul", np.concatenate([_PLACES, _PLACES[..., :1] * 0], -1)),
    _nd(F16, "add", _PLACES),
    _nd(F32, "add", np.zeros((2, 0), np.int64)),
    _nd(F32, "none", np.zeros((0,), np.int64)),
    _nd(I8, "max", np.zeros((0, 1), np.int64)),
]
