"""Samples of cumulative sums and products, and of argmax and argmin, against loops over their definitions."""

from __future__ import annotations

import numpy as np

from dlc.dialects import dl
from dlc.testing.sample import BF16, F16, F32, F64, I8, I32, I64, U8, Sample, exactly, values


def running(x: np.ndarray, axis: int, exclusive: bool, reverse: bool, product: bool = False) -> np.ndarray:
    y = np.full_like(x, 1 if product else 0)
    n = x.shape[axis]
    for j in range(n):
        near = range(j + exclusive, n) if reverse else range(j + 1 - exclusive)
        for k in near:
            place, term = (slice(None),) * axis + (j,), x[(slice(None),) * axis + (k,)]
            y[place] = y[place] * term if product else y[place] + term
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
    """A sample with ties, and a NaN in a column of floats."""
    x = np.round(values(dtype, *shape).astype(np.float64)).astype(dtype)
    if dtype.kind == "f":
        x[0, 2:4, 0] = x[-1, -1, -1] = np.nan
        x[-1, :, 0] = np.inf if smallest else -np.inf

    def place(column: np.ndarray) -> int:
        order = [(v == v, float(v) if smallest else -float(v)) if v == v else (False, 0.0) for v in column]
        best = min(order)
        return max(k for k, v in enumerate(order) if v == best) if last else order.index(best)

    label = "x".join(map(str, shape)) + "_smallest" * smallest + "_last" * last
    properties = {"smallest": smallest, "last": last}
    return Sample(dl.ArgExtremumOp, (x,), lambda x: np.apply_along_axis(place, 1, x), properties, label=label)


def _extreme_places(dtype: np.dtype, smallest: bool, last: bool, parts: int, *shape: int) -> Sample:
    """Return a sample with segments; the last two overlap if the length does not divide, and later ones are never extreme."""
    x = values(dtype, *shape)
    limits = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    x[-1, shape[1] // 2 :] = limits[smallest]
    size = -(-shape[1] // parts)
    starts = [min(k * size, shape[1] - size) for k in range(parts)]

    def places(x: np.ndarray) -> np.ndarray:
        found = [np.flip(part, 1) if last else part for part in (x[:, start : start + size] for start in starts)]
        places = np.stack([(np.argmin if smallest else np.argmax)(part, 1) for part in found], 1)
        return (size - 1 - places if last else places) + np.reshape(starts, (1, -1, 1))

    label = "x".join(map(str, shape)) + f"_of_{parts}" + "_smallest" * smallest + "_last" * last
    properties = {"smallest": smallest, "last": last, "segments": parts}
    return Sample(dl.ArgExtremumOp, (x,), places, properties, label=label)


SAMPLES = [
    *(_cumsum(F32, 1, e, r) for e in (False, True) for r in (False, True)),
    *(_cumsum(d, 2) for d in (F16, I8, I64)),
    *(_cumprod(F32, e, r) for e in (False, True) for r in (False, True)),
    *(_cumprod(d, False, False) for d in (BF16, I8)),
    _accumulate(F32, "add", False, False, 2, 300, 1),
    _accumulate(F32, "mul", True, False, 2, 5, 18),
    _accumulate(I32, "add", True, True, 1, 9, 3),
    _accumulate(U8, "mul", False, True, 2, 3, 1),
    *(_extreme_place(F32, smallest, last, 3, 37, 1) for smallest in (False, True) for last in (False, True)),
    _extreme_place(F32, False, False, 2, 1030, 1),
    *(_extreme_place(F32, smallest, last, 2, n, 1) for smallest, last in ((False, True), (True, False)) for n in (4096, 5003)),
    _extreme_place(U8, True, False, 1, 6001, 1),
    _extreme_place(I32, False, False, 1, 4500, 1),
    _extreme_place(F64, True, True, 2, 5, 18),
    _extreme_place(F32, False, False, 2, 9, 3),
    _extreme_place(U8, False, False, 1, 21, 1),
    _extreme_place(I32, True, True, 2, 6, 1),
    _extreme_places(F32, False, False, 3, 2, 12_400, 1),
    _extreme_places(F32, True, True, 4, 1, 90, 1),
    _extreme_places(I8, True, False, 7, 2, 50, 19),
    _extreme_places(I32, False, True, 5, 1, 5, 2),
]
