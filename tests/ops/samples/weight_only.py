"""Samples of weight-only quantized products, against integers that are unpacked one at a time."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import element_type, numpy_dtype
from dlc.dialects.dl.low_precision.packed_dot import PACKED_DOTS
from dlc.testing.sample import F16, F32, I32, Sample, values

_INT4, _UINT4 = (np.dtype(getattr(ml_dtypes, name)) for name in ("int4", "uint4"))


def _number(word: int, j: int, dtype: np.dtype) -> int:
    bits, signed = (4 if dtype in (_INT4, _UINT4) else 8), dtype in (_INT4, np.dtype("i1"))
    number = (word >> (bits * j)) & ((1 << bits) - 1)
    return number - (1 << bits) if signed and number >> (bits - 1) else number


def _product(
    x: np.ndarray, words: np.ndarray, scale: np.ndarray, zero: np.ndarray | None, dtype: np.dtype, in_turns: int = 1
) -> np.ndarray:
    count = 8 if dtype in (_INT4, _UINT4) else 4
    blocks, rows, columns = words.shape
    weights = np.zeros((blocks, rows, count, columns))
    for b, w, j, n in np.ndindex(*weights.shape):
        place = j // in_turns + j % in_turns * count // in_turns
        weights[b, w, j, n] = _number(int(words[b, w, n]), place, dtype) - (0 if zero is None else float(zero[b, n]))
    scaled = weights * scale.astype(np.float64)[:, None, None]
    return x.astype(np.float64) @ scaled.reshape(-1, columns)


def _sample(
    label: str,
    dtype: np.dtype,
    rows: tuple[int, ...],
    words: tuple[int, int, int],
    zero: bool = False,
    x: np.dtype = F32,
    **properties: bool,
) -> Sample:
    count = 8 if dtype in (_INT4, _UINT4) else 4
    random, of = np.random.default_rng(len(label)), element_type(dtype)
    blocks, per_block, columns = words
    operands = [
        values(x, *rows, blocks * per_block * count),
        random.integers(-(1 << 31), 1 << 31, words).astype(I32),
        (random.random((blocks, columns)) / 16).astype(F32),
        *([random.integers(0, 16, (blocks, columns)).astype(F32)] if zero else []),
    ]

    def expected(x: np.ndarray, words: np.ndarray, scale: np.ndarray, zero: np.ndarray | None = None) -> np.ndarray:
        return _product(x, words, scale, zero, numpy_dtype(of))

    tolerance = 2e-3 if x == F16 else 3e-6
    return Sample(dl.MatmulWeightOnlyOp, tuple(operands), expected, {"of": of, **properties}, tolerance, label)


def _unsigned_offsets(sums: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return minus the sums times the bias that makes weights unsigned."""
    bias = {_INT4: 8, np.dtype("i1"): 128}.get(dtype, 0)
    return (-bias * sums).astype(I32)


def _dots(
    label: str, dtype: np.dtype, rows: tuple[int, ...], words: tuple[int, int, int, int], zero: bool = False, dot: str = "i16"
) -> Sample:
    count, row_dtype = 8 if dtype in (_INT4, _UINT4) else 4, numpy_dtype(PACKED_DOTS[dot].weights)
    random, (blocks, per_block, step, columns), most = np.random.default_rng(len(label)), words, np.iinfo(row_dtype).max
    x = random.integers(-most, most + 1, (*rows, blocks, per_block, step * count)).astype(row_dtype)
    row_scale = (random.random((*rows, blocks)) / most).astype(F32)
    operands = [
        x.reshape(*rows, -1).view(I32),
        random.integers(-(1 << 31), 1 << 31, words).astype(I32),
        row_scale,
        (x.sum(-1) * row_scale[..., None]).astype(F32) if zero else _unsigned_offsets(x.sum(-1), dtype),
        (random.random((blocks, columns)) / 16).astype(F32),
        *([random.integers(0, 16, (blocks, columns)).astype(F32)] if zero else []),
    ]

    def expected(*operands: np.ndarray) -> np.ndarray:
        numbers, words, row_scale, row_sums, scale, *zeros = operands
        floats = numbers.view(row_dtype).reshape(*row_sums.shape, -1) * row_scale.astype(np.float64)[..., None, None]
        flat, turns = words.reshape(blocks, -1, columns), PACKED_DOTS[dot].count
        return _product(floats.reshape(*rows, -1), flat, scale, zeros[0] if zeros else None, dtype, in_turns=turns)

    return Sample(dl.MatmulWeightOnlyDotOp, tuple(operands), expected, {"of": element_type(dtype), "dot": dot}, 3e-6, label)


def _nibbles(label: str, dtype: np.dtype, *shape: int) -> Sample:
    def expected(x: np.ndarray) -> np.ndarray:
        codes = x.astype(np.int64) % 16
        return codes[..., ::2] + 16 * codes[..., 1::2]

    x = (np.arange(np.prod(shape)).reshape(shape) % 16 - (8 if dtype == _INT4 else 0)).astype(dtype)
    return Sample(dl.PackNibblesOp, (x,), expected, {}, 0.0, label)


SAMPLES = [
    _nibbles("row", _INT4, 8),
    _nibbles("matrix", _UINT4, 3, 16),
    _sample("one_row", _INT4, (1,), (3, 2, 40)),
    _sample("zeros", _UINT4, (2, 5), (2, 1, 24), zero=True),
    _sample("bytes", np.dtype("i1"), (), (2, 4, 33)),
    _sample("rows_of_bytes", np.dtype("u1"), (7,), (1, 3, 16), zero=True),
    _sample("scaled_weights", _UINT4, (13,), (3, 2, 40), zero=True, scale_weights=True),
    _sample("one_column", _INT4, (3,), (2, 1, 1)),
    _dots("pairs_of_a_row", _UINT4, (1,), (3, 2, 1, 40), zero=True),
    _dots("pairs_of_signed", _INT4, (7,), (2, 1, 3, 17)),
    _dots("pairs_of_bytes", np.dtype("i1"), (), (2, 2, 2, 33), zero=True),
    _dots("fours_of_a_row", _UINT4, (1,), (3, 2, 1, 40), zero=True, dot="u8i8"),
    _dots("fours_of_signed", _INT4, (2, 7), (2, 1, 3, 17), dot="u8i8"),
    _dots("fours_of_bytes", np.dtype("u1"), (33,), (2, 2, 8, 33), zero=True, dot="u8i8"),
    _dots("fours_of_signed_bytes", np.dtype("i1"), (5,), (1, 1, 8, 16), dot="u8i8"),
    _sample("halves", _UINT4, (2,), (2, 2, 17), zero=True, x=F16),
]
