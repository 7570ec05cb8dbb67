"""Samples of Winograd transforms, against sums over each tile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import tensor_type
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, dense_attribute
from dlc.testing.sample import F16, F32, F64, I16, I32, Sample, exactly, values

_TOLERANCE = {F32: 3e-6, F64: 1e-14, F16: 4e-3, I16: 0.0, I32: 0.0}


def _tiles(x: np.ndarray, matrix: np.ndarray, step: int) -> np.ndarray:
    """Multiply each tile by the matrix and its transpose."""
    numbers, t = matrix.shape
    rows, columns = ((s - t) // step + 1 for s in x.shape[1:3])
    v = np.zeros((numbers, numbers, x.shape[0], rows, columns, x.shape[3]), x.dtype)
    for n, p, q, c in np.ndindex(*v.shape[2:]):
        tile = x[n, p * step : p * step + t, q * step : q * step + t, c]
        v[:, :, n, p, q, c] = matrix @ tile @ matrix.T
    return v


def _image(v: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Multiply each tile by the matrix and its transpose, and assemble the image."""
    _, _, images, rows, columns, channels = v.shape
    m = len(matrix)
    y = np.zeros((images, rows * m, columns * m, channels), v.dtype)
    for n, p, q, c in np.ndindex(*v.shape[2:]):
        y[n, p * m : (p + 1) * m, q * m : (q + 1) * m, c] = matrix @ v[:, :, n, p, q, c] @ matrix.T
    return y


def _input(label: str, x: tuple[int, ...], t: int, step: int, dtype: np.dtype = F32, rows: int | None = None) -> Sample:
    operands = (values(dtype, *x), values(dtype, rows or t, t, seed=1))
    formula = exactly(lambda x, matrix: _tiles(x, matrix, step))
    return Sample(dl.WinogradInputOp, operands, formula, {"step": step}, _TOLERANCE[dtype], label)


def _output(label: str, v: tuple[int, ...], m: int, dtype: np.dtype = F32) -> Sample:
    operands = (values(dtype, *v), values(dtype, m, v[0], seed=1))
    return Sample(dl.WinogradOutputOp, operands, exactly(_image), {}, _TOLERANCE[dtype], label)


def _known(sample: Sample) -> Sample:
    """Return the sample with the values of its matrix as a constant."""
    matrix = sample.operands[1]
    numbers = dense_attribute(matrix, tensor_type(matrix.shape, ELEMENT_TYPES[matrix.dtype.name]))
    return replace(sample, properties={**sample.properties, "matrix_values": numbers}, label=f"known_{sample.label}")


def _mode_product(label: str, x: tuple[int, ...], rows: int, axis: int, to: int, dtype: np.dtype = F32) -> Sample:
    operands = (values(dtype, *x), values(dtype, rows, x[axis], seed=1))
    formula = exactly(lambda x, matrix: np.moveaxis(np.tensordot(x, matrix, (axis, 1)), -1, to))
    return Sample(dl.ModeProductOp, operands, formula, {"axis": axis, "to": to}, _TOLERANCE[dtype], label)


_SAMPLES = [
    _mode_product("in_place", (3, 4, 5), 6, 1, 1),
    _mode_product("moved", (3, 4, 2, 5), 2, 0, 2),
    _mode_product("double", (4, 3), 5, 1, 0, F64),
    _mode_product("half", (4, 3, 7), 2, 0, 1, F16),
    _mode_product("integers", (4, 3, 7), 2, 0, 1, I16),
    _mode_product("one_row", (4, 37), 1, 0, 0),
    _input("4", (2, 8, 6, 5), 4, 2),
    _input("6", (1, 10, 14, 33), 6, 4),
    _input("one_tile", (1, 6, 6, 3), 6, 4),
    _input("side_by_side", (2, 4, 8, 5), 4, 4, rows=6),
    _input("of_a_weight", (1, 3, 3, 35), 3, 3, rows=6),
    _input("double", (1, 6, 4, 3), 4, 2, F64),
    _input("integers", (1, 6, 10, 33), 6, 4, I16),
    _output("2", (4, 4, 2, 3, 2, 5), 2),
    _output("4", (6, 6, 1, 2, 3, 33), 4),
    _output("one_tile", (6, 6, 1, 1, 1, 3), 4),
    _output("integers", (4, 4, 1, 2, 2, 19), 2, I32),
    _output("half", (4, 4, 1, 2, 2, 3), 2, F16),
]

SAMPLES = [*_SAMPLES, *map(_known, _SAMPLES)]
