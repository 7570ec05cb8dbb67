"""Samples of the ops that gradients consist of, against loops over their definitions."""

from __future__ import annotations

import numpy as np

from dlc.dialects import dl
from dlc.testing.sample import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, U64, Sample, values
from tests.ops.samples.shape import F8

_COMBINE = {"none": lambda old, new: new, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def scatter_rows(x: np.ndarray, indices: np.ndarray, updates: np.ndarray, mode: str, clamped: bool) -> np.ndarray:
    y, rows = x.copy(), x.shape[0]
    for place in np.ndindex(*indices.shape):
        row = int(indices[place])
        row = row + rows if row < 0 else row
        if clamped:
            row = min(max(row, 0), rows - 1)
        if 0 <= row < rows:
            y[row] = _COMBINE[mode](y[row], updates[place])
    return y


def _rows(dtype: np.dtype, mode: str, indices: np.ndarray, *shape: int, clamped: bool = False) -> Sample:
    x, updates = values(dtype, *shape), values(dtype, *indices.shape, *shape[1:], seed=1)
    label = (
        f"{mode}_{indices.dtype}_{'x'.join(map(str, indices.shape))}_into_{'x'.join(map(str, shape))}" + "_clamped" * clamped
    )
    properties = {"mode": mode} | ({"clamped": True} if clamped else {})
    tolerance = {F32: 1e-6, F16: 2e-3, BF16: 2e-2}.get(dtype, 0.0) if mode == "mul" else 0.0
    formula = lambda x, i, u: scatter_rows(x, i, u, mode, clamped)  # noqa: E731
    return Sample(dl.ScatterRowsOp, (x, indices, updates), formula, properties, tolerance, label)


def _places(dtype: np.dtype, *shape: int, reach: int = 7) -> np.ndarray:
    return np.random.default_rng(5).integers(0 if dtype.kind == "u" else -reach, reach + 1, shape).astype(dtype)


def max_pool_gradient(
    x: np.ndarray, y: np.ndarray, g: np.ndarray, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> np.ndarray:
    result = np.zeros(x.shape, np.float64)
    for place in np.ndindex(*y.shape):
        n, *at, c = place
        taps = [
            (n, *(a * s + k * d for a, k, s, d in zip(at, tap, strides, dilations, strict=True)), c)
            for tap in np.ndindex(*kernel)
        ]
        first = next((t for t in taps if x[t] == y[place]), taps[0])
        result[first] += np.float64(g[place])
    return result


def _pooled(
    dtype: np.dtype,
    shape: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    label: str,
) -> Sample:
    # Few values, so that there are ties.
    x = np.round(values(dtype, *shape, scale=1.5).astype(np.float64)).astype(dtype)
    if label == "nan":
        x[0, 1:3] = np.nan
    counts = [(n - (k - 1) * d - 1) // s + 1 for n, k, s, d in zip(shape[1:-1], kernel, strides, dilations, strict=True)]
    y = np.empty((shape[0], *counts, shape[-1]), dtype)
    for place in np.ndindex(*counts):
        window = tuple(
            slice(a * s, a * s + (k - 1) * d + 1, d) for a, k, s, d in zip(place, kernel, strides, dilations, strict=True)
        )
        y[:, *place] = x[:, *window].max(tuple(range(1, len(kernel) + 1)))
    properties = {"kernel": kernel, "strides": strides, "dilations": dilations}
    tolerance = {F32: 1e-6, F64: 1e-14, F16: 1e-3, BF16: 1e-2}[dtype]
    formula = lambda x, y, g: max_pool_gradient(x, y, g, kernel, strides, dilations)  # noqa: E731
    return Sample(dl.MaxPoolGradientOp, (x, y, values(dtype, *y.shape, seed=1)), formula, properties, tolerance, label)


def dilate(x: np.ndarray, value: np.ndarray, interior: tuple[int, ...]) -> np.ndarray:
    y = np.full([n and n + (n - 1) * k for n, k in zip(x.shape, interior, strict=True)], value, x.dtype)
    for place in np.ndindex(*x.shape):
        y[tuple(i * (k + 1) for i, k in zip(place, interior, strict=True))] = x[place]
    return y


def _dilate(dtype: np.dtype, shape: tuple[int, ...], interior: tuple[int, ...]) -> Sample:
    operands = (values(dtype, *shape), values(dtype, seed=1).reshape(()))
    label = "x".join(map(str, shape)) + "_by_" + "_".join(map(str, interior))
    return Sample(dl.DilateOp, operands, lambda x, v: dilate(x, v, interior), {"interior": interior}, label=label)


SAMPLES = [
    *(Sample(dl.StopGradientOp, (values(d, 3, 5),), lambda x: x) for d in (F32, I64, BOOL, F8)),
    Sample(dl.AddDependencyOp, (values(F32, 3, 5), values(I8, 2)), lambda x, y: x),
    Sample(dl.AddDependencyOp, (values(BOOL, 4), values(F32)), lambda x, y: x),
    *(_dilate(d, (3, 4), (1, 2)) for d in (F32, F16, I64, BOOL, F8)),
    _dilate(F32, (2, 5, 3), (0, 3, 0)),
    _dilate(F32, (2, 17), (2, 0)),
    _dilate(I8, (1, 4), (5, 0)),
    _dilate(F32, (0, 3), (2, 1)),
    *(_rows(F32, mode, _places(I64, 20), 6, 5) for mode in _COMBINE),
    *(_rows(F32, mode, _places(I32, 4, 3), 6, 2, 40, clamped=True) for mode in ("add", "none")),
    *(_rows(d, "add", _places(I64, 9), 4, 3) for d in (F64, F16, BF16, I8, U8)),
    _rows(F32, "add", _places(I64, 300, reach=90), 70, 150),
    *(_rows(F64, mode, _places(I64, 3), 0, 2) for mode in ("none", "add", "max")),
    _rows(I32, "max", _places(U8, 12), 5, 1),
    _rows(BOOL, "none", _places(I8, 7), 5, 4),
    _rows(F32, "add", _places(I64, 50), 6),
    _rows(F32, "add", np.array(-2), 6, 3),
    _rows(F32, "none", np.array([2**64 - 1, 2**63, 2], U64), 4, 3),
    _rows(F32, "add", np.array([2**64 - 1, 2**63, 2], U64), 4, 3, clamped=True),
    _rows(F32, "add", np.zeros((0,), I64), 4, 3),
    _rows(F32, "add", np.zeros((3,), I64), 0, 3),
    _rows(F32, "add", np.zeros((3,), I64), 2, 0),
    *(_pooled(d, (2, 6, 8, 5), (2, 2), (2, 2), (1, 1), "apart") for d in (F32, F64, F16, BF16)),
    _pooled(F32, (1, 7, 9, 17), (2, 3), (2, 3), (1, 1), "ragged"),
    _pooled(F32, (2, 9, 7, 5), (3, 3), (2, 2), (1, 1), "overlapping"),
    _pooled(BF16, (2, 9, 7, 5), (3, 3), (2, 2), (1, 1), "overlapping"),
    _pooled(F32, (1, 6, 5, 3), (3, 2), (1, 1), (1, 1), "step_1"),
    _pooled(F32, (1, 9, 8, 3), (2, 3), (3, 2), (2, 2), "dilated"),
    _pooled(F32, (1, 7, 7, 4), (1, 2), (3, 3), (1, 1), "gaps"),
    _pooled(F32, (1, 8, 4), (3,), (2,), (1,), "line"),
    _pooled(F32, (1, 4, 4, 4, 3), (2, 2, 2), (2, 2, 2), (1, 1, 1), "volume"),
    _pooled(F32, (1, 6, 6, 3), (2, 2), (2, 2), (1, 1), "nan"),
]
