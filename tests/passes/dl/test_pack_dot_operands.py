"""`pack-dot-operands`: operands of low-precision contractions are packed into words, padded, or packed across pixels."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of
from dlc.ir import SSAValue, i32
from dlc.passes.dl.low_precision.pack_dot_operands import PackDotOperandsPass
from dlc.passes.dl.simplification.dce import DcePass
from dlc.passes.dl.simplification.simplify import SimplifyPass
from dlc.target import CPU_LEVELS, resolve
from tests.passes.programs import Program, Writer, program

PAIRS, FOURS = CPU_LEVELS["cpu:avx2"], CPU_LEVELS["cpu:avx512_vnni"]


def integers(dtype: type, *shape: int) -> np.ndarray:
    limits = np.iinfo(np.int8 if dtype is np.int16 else dtype)
    return np.random.default_rng(0).integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def packed(image: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...], fours: bool = False) -> Program:
    data, weights = (np.uint8, np.int8) if fours else (np.int16, np.int16)

    def body(b: Writer, x: SSAValue) -> SSAValue:
        w = b.weight(integers(weights, *kernel, image[-1], 8))
        return b(dl.ConvOp, x, w, strides=strides, dilations=(1,) * len(strides), groups=1, result=i32)

    return program(body, integers(data, *image)).apply(PackDotOperandsPass(FOURS if fours else PAIRS), SimplifyPass())


@pytest.mark.parametrize(
    "order, words",
    [
        # Words run along rows in memory order; along columns the contracted axis is split first.
        ((0, 2, 3, 1), ["view_as", "transpose", "view_as", "transpose"]),
        ((0, 2, 1, 3), ["view_as", "transpose", "reshape", "transpose", "view_as", "reshape"]),
    ],
)
def test_products_of_data_on_matrix_units(order: tuple[int, ...], words: list[str]) -> None:
    def body(b: Writer, x: SSAValue, y: SSAValue) -> SSAValue:
        x = b(dl.TransposeOp, x, permutation=(0, 2, 1, 3))
        return b(dl.MatmulOp, x, b(dl.TransposeOp, y, permutation=order))

    y = np.ones((2, 24, 3, 32) if order[-1] == 1 else (2, 32, 3, 24), np.float16)
    x = np.random.default_rng(0).standard_normal((2, 10, 3, 32)).astype(np.float16)
    p = program(body, x, y).apply(PackDotOperandsPass(resolve("opencl:gpu:mma")), DcePass(), tolerance=1e-3)
    assert p.ops == [*words, "matmul", "cast"]
    # CPUs, and products with few rows, do not pack data operands.
    assert "view_as" not in program(body, x, y).apply(PackDotOperandsPass(FOURS)).ops
    assert "view_as" not in program(body, x[:, :7], y).apply(PackDotOperandsPass(resolve("opencl:gpu:mma"))).ops


@pytest.mark.parametrize("max_weight, dot", [(64, "u8i7"), (65, None)])
def test_bytes_are_packed_if_sums_of_pairs_are_exact(max_weight: int, dot: str | None) -> None:
    w = np.full((8, 8), 64, np.int8)
    w[3, 3] = max_weight
    p = program(lambda b, x: b(dl.MatmulOp, x, b.weight(w), result=i32), np.full((8, 8), 255, np.uint8))
    p.apply(PackDotOperandsPass(PAIRS), DcePass())
    (matmul,) = (op for op in p.main.body.block.ops if isinstance(op, dl.MatmulOp))
    assert matmul.dot is (None if dot is None else dl.PACKED_DOTS[dot])


def packed_shapes(p: Program) -> tuple[tuple[int, ...], ...]:
    (conv,) = (op for op in p.main.body.block.ops if isinstance(op, dl.ConvOp))
    assert conv.dot is not None
    return tuple(tuple(map(int, shape_of(v))) for v in conv.operands)


# The words of an image and of the weights: a row of 3 · 7 = 21 integers is 11 words, per pixel they would be 14.
@pytest.mark.parametrize(
    "image, kernel, strides, fours, words",
    [
        ((2, 9, 13, 3), (7, 7), (2, 2), False, ((2, 9, 20, 1), (7, 11, 1, 8))),
        ((1, 21, 3), (5,), (2,), False, ((1, 32, 1), (8, 1, 8))),
        ((1, 4, 9, 3), (2, 5), (1, 4), True, ((1, 4, 7, 1), (2, 4, 1, 8))),
        ((1, 9, 13, 3), (7, 7), (2, 1), False, ((1, 9, 13, 2), (7, 7, 2, 8))),
        ((1, 9, 13, 3), (7, 7), (2, 2), True, ((1, 9, 13, 1), (7, 7, 1, 8))),
        ((1, 5, 5, 6), (3, 3), (1, 1), False, ((1, 5, 5, 3), (3, 3, 3, 8))),
    ],
)
def test_pixels_share_words_if_windows_are_aligned(
    image: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    fours: bool,
    words: tuple[tuple[int, ...], ...],
) -> None:
    assert packed_shapes(packed(image, kernel, strides, fours)) == words
