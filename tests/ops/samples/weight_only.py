"""Samples of weight-only quantized products, against integers that are unpacked one at a time."""

from __future__ import annotations

from collections.abc import Sequence

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


def _product(x: np.ndarray, words: np.ndarray, scale: np.ndarray, zero: np.ndarray | None, dtype: np.dtype) -> np.ndarray:
    count = 8 if dtype in (_INT4, _UINT4) else 4
    blocks, rows, columns = words.shape
    weights = np.zeros((blocks, rows, count, columns))
    for b, w, j, n in np.ndindex(*weights.shape):
        weights[b, w, j, n] = _number(int(words[b, w, n]), j, dtype) - (0 if zero is None else float(zero[b, n]))
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


# Unsorted, and with equal entries.
_TABLE = (7, 255, 0, 128, 127, 3, 99, 200, 200, 1, 254, 16, 15, 64, 8, 31)


def _unpacked(bits: int, words: np.ndarray) -> np.ndarray:
    """Return the integers of words [B, W, S, N] of bit planes, one at a time, as [B, W, k, N]."""
    plane_bits = {2: [2], 4: [4], 5: [4, 1], 6: [4, 2], 8: [8]}[bits]
    group, group_words = 32 // plane_bits[-1], bits // plane_bits[-1]
    blocks, steps, size, columns = words.shape
    integers = np.zeros((blocks, steps, size // group_words * group, columns), int)
    for b, w, k, n in np.ndindex(*integers.shape):
        byte, slot, word, low_bit = k % 4, k % group // 4, k // group * group_words, 0
        for width in plane_bits:
            field = int(words[b, w, word + slot * width // 8, n]) >> (8 * byte + slot * width % 8)
            integers[b, w, k, n] += (field & ((1 << width) - 1)) << low_bit
            word, low_bit = word + group * width // 32, low_bit + width
    return integers


def _dots(
    label: str,
    bits: int,
    rows: tuple[int, ...],
    words: tuple[int, int, int, int],
    zero: bool = False,
    dot: str = "i16",
    parts: int = 1,
    scale_dtype: type = F32,
    has_step_scales: bool = False,
    table: Sequence[int] | None = None,
    words_per_sum: int | None = None,
) -> Sample:
    row_dtype, random = numpy_dtype(PACKED_DOTS[dot].weights), np.random.default_rng(len(label))
    blocks, steps, size, columns = words
    fours = (*rows, blocks * steps * size * 32 // bits // 4, parts, 4)
    low, high = np.iinfo(row_dtype).min, np.iinfo(row_dtype).max
    packed = random.integers(low, high + 1, fours).astype(row_dtype)
    in_order = packed[..., [0, 2, 1, 3]] if dot == "i16" else packed
    x = (in_order.astype(int) * ([[256], [1]] if parts == 2 else 1)).sum(-2).reshape(*rows, blocks, steps, -1)
    scale_shape = (*rows, blocks, steps) if has_step_scales and words_per_sum is None else (*rows, blocks, 1)
    row_scale = (random.random(scale_shape) / 256 ** (parts if dot != "i16" else 2)).astype(F32)
    step_scales = random.integers(-128, 128, (blocks, steps, columns)).astype(np.int8)
    weights = random.integers(-(1 << 31), 1 << 31, words).astype(I32)
    bias = 1 << (bits - 1)
    row_sums = (x.sum(-1) * row_scale).astype(F32) if zero else (-bias * x.sum(-1)).astype(I32)
    if words_per_sum is not None:
        halves = -bias * x.reshape(*rows, blocks, steps, -1, 2, 2).sum((-3, -1))
        row_sums = halves.astype(np.int16).view(I32)[..., 0]
    operands = [
        packed.reshape(*rows, -1).view(I32),
        weights,
        row_scale if has_step_scales and words_per_sum is None else row_scale[..., 0],
        row_sums,
        (random.random((blocks, columns)) / 16).astype(scale_dtype),
        *([random.integers(0, 16, (blocks, columns)).astype(F32)] if zero else []),
        *([step_scales] if has_step_scales else []),
    ]

    def expected(*operands: np.ndarray) -> np.ndarray:
        zeros = operands[5][:, None, None] if zero else bias
        floats = x * row_scale.astype(np.float64)[..., None]
        integers = _unpacked(bits, weights)
        integers = integers if table is None else np.asarray(table)[integers]
        scaled = (integers - zeros) * operands[4].astype(np.float64)[:, None, None]
        if has_step_scales:
            scaled = scaled * step_scales[:, :, None]
        return floats.reshape(*rows, -1) @ scaled.reshape(-1, columns)

    properties = {"bits": bits, "parts": parts, "dot": dot} | ({} if table is None else {"table": table})
    properties |= {} if words_per_sum is None else {"words_per_sum": words_per_sum}
    return Sample(dl.MatmulWeightOnlyDotOp, tuple(operands), expected, properties, 4e-6, label)


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
    _dots("pairs_of_a_row", 4, (1,), (3, 2, 1, 40), zero=True),
    _dots("pairs_of_nibbles", 4, (7,), (2, 1, 3, 17)),
    _dots("pairs_of_bytes", 8, (), (2, 2, 2, 33), zero=True),
    _dots("pairs_of_planes", 6, (2,), (2, 1, 3, 17)),
    _dots("fours_of_a_row", 4, (1,), (3, 2, 1, 40), zero=True, dot="u8i8"),
    _dots("fours_of_nibbles", 4, (2, 7), (2, 1, 3, 17), dot="u8i8"),
    _dots("fours_of_bytes", 8, (33,), (2, 2, 8, 33), zero=True, dot="u8i8"),
    _dots("fours_of_five_bits", 5, (5,), (2, 1, 5, 16), zero=True, dot="u8i8"),
    _dots("fours_of_two_bits", 2, (1,), (3, 1, 1, 40), zero=True, dot="u8i7"),
    _dots("half_precision_scales", 4, (1,), (3, 2, 1, 40), scale_dtype=np.float16),
    _dots("two_level_scales", 6, (2,), (2, 3, 3, 17), scale_dtype=np.float16, has_step_scales=True, dot="u8i8"),
    _dots("scaled_integers", 6, (5,), (2, 3, 3, 17), has_step_scales=True, dot="u8i7", words_per_sum=4),
    _dots("scaled_sums_of_two_words", 4, (4,), (2, 2, 1, 40), has_step_scales=True, dot="u8i7", words_per_sum=2),
    _dots("table_of_pairs", 4, (1,), (3, 2, 1, 40), table=_TABLE),
    _dots("table_of_fours", 4, (2,), (2, 1, 3, 17), table=_TABLE, dot="u8i8", parts=2, has_step_scales=True),
    _dots("parts_of_bytes", 8, (1,), (2, 2, 8, 33), dot="u8i8", parts=2),
    _dots("parts_of_six_bits", 6, (1,), (2, 2, 6, 40), dot="u8i8", parts=2),
    _dots("parts_of_rows", 6, (3,), (2, 1, 3, 33), dot="u8i7", parts=2),
    _sample("halves", _UINT4, (2,), (2, 2, 17), zero=True, x=F16),
]
