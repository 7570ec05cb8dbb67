"""Samples of scatters at data-dependent indices, against loops over their definitions."""

from __future__ import annotations

import numpy as np

from dlc.dialects import dl
from dlc.testing.sample import BF16, BOOL, F16, F32, I8, I32, Sample, exactly, values

_COMBINE = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": max,
    "min": min,
}


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
    *(_elements(F32, mode, 1, 3, 4, 4) for mode in _COMBINE),
    _elements(F32, "none", 0, 2, 4, 3),
    _elements(F32, "add", 1, 3, 4, 4, checked=True),
    _elements(BF16, "add", 2, 3, 2, 5),
    _elements(I32, "max", 1, 2, 7, 1),
    _elements(BOOL, "none", 1, 3, 4, 4),
    *(_nd(F32, mode, _ROWS) for mode in _COMBINE),
    _nd(F32, "none", _PLACES),
    _nd(F32, "none", _PLACES[:, :1], checked=True),
    # More updates than scatter by comparison supports.
    *(_elements(F32, mode, 1, 2, 90, 3) for mode in ("none", "max")),
    _elements(I32, "add", 0, 70, 2, 4),
    _nd(F32, "add", np.random.default_rng(3).integers(-5, 6, (100, 2))),
    _nd(I8, "mul", np.concatenate([_PLACES, _PLACES[..., :1] * 0], -1)),
    _nd(F16, "add", _PLACES),
    _nd(F32, "add", np.zeros((2, 0), np.int64)),
    _nd(F32, "none", np.array([[2**64 - 1], [2]], np.uint64)),
    _nd(F32, "none", np.zeros((0,), np.int64)),
    _nd(I8, "max", np.zeros((0, 1), np.int64)),
]
