"""Convolutions by Winograd's algorithm, where that is less work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlc.dialects.dl.base import DlOp, element_type_of, ints, number, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contraction import ConvOp, MatmulOp
from dlc.dialects.dl.movement import ReshapeOp
from dlc.dialects.dl.winograd import ModeProductOp, WinogradInputOp, WinogradOutputOp
from dlc.dims import is_static
from dlc.ir import Context, Float32Type, ModuleOp, ModulePass, SSAValue
from dlc.passes.dl.rewriting import WeightExpressions, function_blocks, rewrite_forward

# Bᵀ, G and Aᵀ of F(m×m, 3×3): the interpolation points are 0, ±1, ∞ and for m = 4 also ±2.
_TRANSFORMS = {
    2: (
        [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, -1, 0, 1]],
        [[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]],
        [[1, 1, 1, 0], [0, 1, -1, 1]],
    ),
    4: (
        [
            [4, 0, -5, 0, 1, 0],
            [0, -4, -4, 1, 1, 0],
            [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ],
        [
            [1 / 4, 0, 0],
            [-1 / 6, -1 / 6, -1 / 6],
            [-1 / 6, 1 / 6, -1 / 6],
            [1 / 24, 1 / 12, 1 / 6],
            [1 / 24, -1 / 12, 1 / 6],
            [0, 0, 1],
        ],
        [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
    ),
}


@dataclass(frozen=True)
class WinogradPass(ModulePass):
    """`winograd`: conv(x, w) of 3×3 and stride 1  →  output(matmul(input(x), G·w·Gᵀ))."""

    name = "winograd"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in function_blocks(op):
            constant = WeightExpressions(block)
            rewrite_forward(block, lambda o, constant=constant: _rewritten(o, constant))


def _rewritten(op: DlOp, constant: WeightExpressions) -> Sequence[SSAValue] | None:
    if not isinstance(op, ConvOp) or op.w not in constant or element_type_of(op.x) != Float32Type():
        return None
    x, w, y = shape_of(op.x), shape_of(op.w), shape_of(op.result)
    if not is_static((*x, *w)) or len(x) != 4 or w[:2] != (3, 3):
        return None
    if ints(op.strides) != (1, 1) or ints(op.dilations) != (1, 1) or number(op.groups) != 1:
        return None
    m = _size(tuple(int(s) for s in y), int(w[2]))
    if m is None:
        return None
    b = Build(op)
    input_, weights, output = (b.constant(np.array(t), element_type_of(op.x)) for t in _TRANSFORMS[m])
    v = b(WinogradInputOp, op.x, input_, step=m)
    t, _, n, p, q, c = shape_of(v)
    u = b(ModeProductOp, b(ModeProductOp, op.w, weights, axis=0, to=0), weights, axis=1, to=1)
    products = b(
        MatmulOp,
        b(ReshapeOp, v, shape=(t * t, n * p * q, c)),
        b(ReshapeOp, u, shape=(t * t, c, w[3])),
    )
    return [b(WinogradOutputOp, b(ReshapeOp, products, shape=(t, t, n, p, q, w[3])), output)]


def _size(result: Sequence[int], channels: int) -> int | None:
    import os

    n, height, width, features = result
    want = os.environ.get("WINO", "")
    if not want:
        return None
    for m in map(int, want.split("+")):
        if height % m == 0 and width % m == 0:
            return m
    return None
