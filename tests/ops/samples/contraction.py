"""Samples of contractions and windows, against loops over their definitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.ir import f32, i32
from dlc.testing.sample import BF16, F16, F32, F64, I8, I16, I32, I64, U8, Sample, exactly, values

_TOLERANCE = {F32: 2e-6, F64: 1e-14, F16: 1e-3, BF16: 8e-3}


def conv(x: np.ndarray, w: np.ndarray, strides: Sequence[int], dilations: Sequence[int], groups: int) -> np.ndarray:
    """Compute a channels-last convolution, one result element at a time."""
    *kernel, depth, outputs = w.shape
    spatial = [(s - (k - 1) * d - 1) // t + 1 for s, k, t, d in zip(x.shape[1:-1], kernel, strides, dilations, strict=True)]
    y = np.zeros((x.shape[0], *spatial, outputs), x.dtype)
    for n, *s, o in np.ndindex(*y.shape):
        g = o // (outputs // groups)
        for k in np.ndindex(*kernel):
            place = tuple(a * t + b * d for a, t, b, d in zip(s, strides, k, dilations, strict=True))
            y[(n, *s, o)] += (x[(n, *place)][g * depth : (g + 1) * depth] * w[(*k, slice(None), o)]).sum()
    return y


def conv_transpose(x: np.ndarray, w: np.ndarray, strides: Sequence[int], dilations: Sequence[int], groups: int) -> np.ndarray:
    """Compute a transposed convolution by scattering the products of each element."""
    *kernel, channels, outputs = w.shape
    spatial = [(s - 1) * t + (k - 1) * d + 1 for s, k, t, d in zip(x.shape[1:-1], kernel, strides, dilations, strict=True)]
    y = np.zeros((x.shape[0], *spatial, outputs * groups), x.dtype)
    for n, *s, c in np.ndindex(*x.shape):
        g = c // (channels // groups)
        for k in np.ndindex(*kernel):
            place = tuple(a * t + b * d for a, t, b, d in zip(s, strides, k, dilations, strict=True))
            y[(n, *place)][g * outputs : (g + 1) * outputs] += x[(n, *s, c)] * w[(*k, c)]
    return y


def pool(f: Callable[..., Any], x: np.ndarray, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]):
    """Reduce the windows of a channels-last tensor, one output position at a time."""
    spatial = [(s - (k - 1) * d - 1) // t + 1 for s, k, t, d in zip(x.shape[1:-1], kernel, strides, dilations, strict=True)]
    y = np.zeros((x.shape[0], *spatial, x.shape[-1]), x.dtype)
    for s in np.ndindex(*spatial):
        window = tuple(
            slice(a * t, a * t + (k - 1) * d + 1, d) for a, t, k, d in zip(s, strides, kernel, dilations, strict=True)
        )
        y[(slice(None), *s)] = f(x[(slice(None), *window)], axis=tuple(range(1, x.ndim - 1)))
    return y


def _matmul(a: tuple[int, ...], b: tuple[int, ...], dtype: np.dtype = F32, label: str = "") -> Sample:
    shapes = label or "x".join(map(str, a)) + "_" + "x".join(map(str, b))
    operands = (values(dtype, *a), values(dtype, *b, seed=1))
    return Sample(dl.MatmulOp, operands, exactly(lambda x, y: x @ y), tolerance=_TOLERANCE.get(dtype, 0), label=shapes)


def _conv(
    label: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    dilations: tuple[int, ...] | None = None,
    groups: int = 1,
    dtype: np.dtype = F32,
    op: Any = dl.ConvOp,
    special: bool = False,
) -> Sample:
    ones = (1,) * (len(x) - 2)
    properties = {"strides": strides or ones, "dilations": dilations or ones, "groups": groups}
    formula = conv if op is dl.ConvOp else conv_transpose
    operands = (values(dtype, *x), values(dtype, *w, seed=1))
    if special:
        operands[0].flat[[0, -1]] = np.nan, np.inf
    return Sample(op, operands, exactly(lambda x, w: formula(x, w, **properties)), properties, _TOLERANCE.get(dtype, 0), label)


def _of_words(dot: str, a: np.dtype, b: np.dtype, max_weight: int | None = None) -> list[Sample]:
    """Return products of packed operands: extreme integers, in rows of full and partial vectors, and as a convolution."""
    r, wide = 4 // a.itemsize, F32 if a in (F16, BF16) else I64

    def words(dtype: np.dtype, *shape: int) -> np.ndarray:
        if dtype in (F16, BF16):
            return values(dtype, *shape, r, seed=7).view(I32)[..., 0]
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        if dtype == b and max_weight is not None:
            low, high = -max_weight, max_weight
        integers = np.random.default_rng(7).integers(low, high, (*shape, r), dtype, endpoint=True)
        # The largest sum of two products.
        integers[..., 0, :2] = high
        return integers.view(I32)[..., 0]

    def numbers(words: np.ndarray, dtype: np.dtype, axis: int) -> np.ndarray:
        return np.moveaxis(words[..., None].view(dtype), -1, axis).astype(wide)

    def matmul(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return np.einsum("mkr,krn->mn", numbers(x, a, 2), numbers(w, b, 1))

    def dot_general(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return np.einsum("jkmr,krn->jmn", numbers(x, a, 3), numbers(w, b, 1))

    def convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        n, h, d, c = x.shape
        x = numbers(x, a, 4).reshape(n, h, d, c * r)
        return conv(x, numbers(w, b, 3).reshape(*w.shape[:2], c * r, -1), (2, 1), (1, 1), 1)

    axes = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (1,), "rhs_contract": (0,), "dot": dot}
    windows = {"strides": (2, 1), "dilations": (1, 1), "groups": 1, "dot": dot}
    cases = [(words(a, 5, 3), words(b, 3, n)) for n in (3, 45)]
    tolerance = _TOLERANCE[F32] if a in (F16, BF16) else 0.0
    return [
        *(Sample(dl.MatmulOp, pair, matmul, {"dot": dot}, tolerance, f"{dot}_{len(pair[1][0])}") for pair in cases),
        Sample(dl.DotGeneralOp, (words(a, 2, 3, 4), words(b, 3, 16)), dot_general, axes, tolerance, dot),
        Sample(dl.ConvOp, (words(a, 1, 5, 7, 3), words(b, 3, 2, 3, 16)), convolved, windows, tolerance, dot),
    ]


def _pool(label: str, x: np.ndarray, *window: tuple[int, ...]) -> list[Sample]:
    properties = dict(zip(("kernel", "strides", "dilations"), window, strict=True))
    return [
        Sample(op, (x,), exactly(lambda x, f=f: pool(f, x, **properties)), properties, _TOLERANCE.get(x.dtype, 0), label)
        for op, f in ((dl.MaxPoolOp, np.max), (dl.SumPoolOp, np.sum))
    ]


SAMPLES = [
    *(_matmul((5, 7), (7, 3), d) for d in (F32, F64, F16, BF16, I8, I32, U8)),
    _matmul((33, 40), (40, 70)),
    _matmul((7,), (7,)),
    _matmul((4, 7), (7,)),
    _matmul((7,), (2, 7, 3)),
    _matmul((2, 1, 4, 5), (3, 5, 6)),
    _matmul((2, 0), (0, 3), label="empty"),
    Sample(
        dl.MatmulOp,
        (values(U8, 4, 6), values(I8, 6, 5)),
        exactly(lambda x, y: x @ y),
        {"result": i32},
        label="widening",
    ),
    *_of_words("i16", I16, I16),
    *_of_words("u8i8", U8, I8),
    *_of_words("u8i7", U8, I8, max_weight=64),
    *_of_words("bf16", BF16, BF16),
    *_of_words("f16", F16, F16),
    Sample(dl.MatmulOp, (values(F16, 4, 6), values(F16, 6, 5)), exactly(lambda x, y: x @ y), {"result": f32}, 2e-6, "widening"),
    Sample(
        dl.DotGeneralOp,
        (values(F32, 2, 5, 3, 4), values(F32, 4, 2, 6, 5, seed=1)),
        exactly(lambda x, y: np.einsum("bkmc,cbnk->bmn", x, y)),
        {"lhs_batch": (0,), "rhs_batch": (1,), "lhs_contract": (1, 3), "rhs_contract": (3, 0)},
        2e-6,
    ),
    Sample(
        dl.DotGeneralOp,
        (values(I8, 3, 4), values(I8, 5, 4, seed=1)),
        exactly(lambda x, y: np.einsum("mk,nk->mn", x.astype(int), y.astype(int))),
        {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (1,), "rhs_contract": (1,), "result": i32},
        label="transposed",
    ),
    Sample(
        dl.DotGeneralOp,
        (values(F32), values(F32, seed=1)),
        exactly(lambda x, y: x * y),
        {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (), "rhs_contract": ()},
        label="numbers",
    ),
    _conv("one_axis", (1, 12, 3), (4, 3, 5), (2,), (2,)),
    _conv("3x3", (2, 7, 6, 4), (3, 3, 4, 8)),
    _conv("3x3_stride", (1, 9, 8, 3), (3, 2, 3, 5), (2, 3), (1, 2)),
    _conv("1x1", (1, 4, 5, 6), (1, 1, 6, 7)),
    _conv("groups", (1, 6, 6, 6), (3, 3, 2, 9), groups=3),
    _conv("depthwise", (1, 8, 8, 6), (3, 3, 1, 6), (2, 2), groups=6),
    _conv("depthwise_twice", (1, 5, 5, 3), (3, 3, 1, 6), groups=3),
    _conv("three_axes", (1, 4, 5, 4, 2), (2, 3, 2, 2, 3)),
    _conv("half", (1, 5, 5, 4), (3, 3, 4, 4), dtype=F16),
    _conv("no_channels", (1, 5, 5, 0), (3, 3, 0, 4)),
    _conv("bf16", (1, 5, 5, 4), (3, 3, 4, 4), dtype=BF16),
    _conv("one_axis", (1, 5, 3), (4, 3, 2), (5,), op=dl.ConvTransposeOp),
    _conv("stride", (2, 3, 4, 4), (3, 3, 4, 2), (2, 2), op=dl.ConvTransposeOp),
    _conv("groups", (1, 3, 3, 4), (2, 3, 4, 3), (2, 1), (1, 2), groups=2, op=dl.ConvTransposeOp),
    _conv("half", (1, 3, 3, 2), (2, 2, 2, 2), (2, 2), dtype=F16, op=dl.ConvTransposeOp),
    _conv("no_images", (0, 3, 3, 4), (2, 3, 4, 3), (2, 1), op=dl.ConvTransposeOp),
    _conv("apart", (1, 3, 2, 2), (4, 3, 2, 2), (4, 3), (2, 3), op=dl.ConvTransposeOp),
    _conv("special", (1, 3, 4, 2), (3, 4, 2, 2), (2, 3), (3, 1), op=dl.ConvTransposeOp, special=True),
    _conv("special_apart", (1, 6, 2), (3, 2, 3), (4,), (6,), op=dl.ConvTransposeOp, special=True),
    _conv("no_outputs", (1, 3, 3, 4), (2, 3, 4, 0), (2, 1), op=dl.ConvTransposeOp),
    *_pool("2x2", values(F32, 1, 6, 8, 5), (2, 2), (2, 2), (1, 1)),
    *_pool("3x3_dilated", values(F32, 2, 9, 7, 3), (3, 2), (2, 1), (2, 3)),
    *_pool("one_axis", values(I8, 1, 9, 3), (4,), (3,), (1,)),
    *_pool("half", values(F16, 1, 5, 5, 4), (3, 3), (1, 1), (1, 1)),
]
