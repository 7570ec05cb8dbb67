"""Convolutions by Winograd's algorithm, where that is less work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dlc.dialects.dl.base import DlOp, element_type_of, ints, number, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contraction import ConvOp, MatmulOp
from dlc.dialects.dl.interfaces import Elementwise
from dlc.dialects.dl.movement import PadOp, ReshapeOp, SliceOp
from dlc.dialects.dl.ranges import ranges_of, representative
from dlc.dialects.dl.weight_expressions import WeightExpressions
from dlc.dialects.dl.winograd import ModeProductOp, WinogradInputOp, WinogradOutputOp
from dlc.dims import Range, Size, is_static, product
from dlc.ir import Context, Float32Type, ModuleOp, SSAValue
from dlc.passes.base import TargetPass
from dlc.passes.dl.rewriting import defining, program_blocks, rewrite_forward
from dlc.target import Winograd

Matrix = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Algorithm:
    """F(m×m, 3×3): what images, weights and products are multiplied with from both sides."""

    input: Matrix
    weights: Matrix
    output: Matrix

    @property
    def step(self) -> int:
        """m, the results that a tile gives along each axis."""
        return len(self.output)

    @property
    def tile(self) -> int:
        """m + 2, the numbers that a tile has along each axis."""
        return len(self.input)


# Interpolation at 0, ±1, ∞, and ±2 for the larger one: Lavin and Gray, 2015.
_ALGORITHMS = (
    Algorithm(
        input=((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1)),
        weights=((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
        output=((1, 1, 1, 0), (0, 1, -1, 1)),
    ),
    Algorithm(
        input=(
            (4, 0, -5, 0, 1, 0),
            (0, -4, -4, 1, 1, 0),
            (0, 4, -4, -1, 1, 0),
            (0, -2, -1, 2, 1, 0),
            (0, 2, -1, -2, 1, 0),
            (0, 4, 0, -5, 0, 1),
        ),
        weights=(
            (1 / 4, 0, 0),
            (-1 / 6, -1 / 6, -1 / 6),
            (-1 / 6, 1 / 6, -1 / 6),
            (1 / 24, 1 / 12, 1 / 6),
            (1 / 24, -1 / 12, 1 / 6),
            (0, 0, 1),
        ),
        output=((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
    ),
)


@dataclass(frozen=True)
class WinogradPass(TargetPass):
    """`winograd`: a 3×3 convolution of stride 1 as tiles of 2×2 or 4×4 results, where that is less work.

        %y = dl.conv %x, %w
    →   %v = dl.winograd_input %x, %b {step = 4};  %u = G·w·Gᵀ (an expression of weights)
        %m = dl.matmul %v, %u;  %y = dl.winograd_output %m, %a

    Weights that are computed are transformed in each run, which pays where enough tiles share them, as in training.
    The largest error is about 1e-5 of the largest result for tiles of 4×4, and 2e-6 for 2×2. An image that tiles
    do not divide is padded, and its result cut after the elementwise ops that follow. Run it after `fold-scales`, for targets
    that know what it costs.
    """

    name = "winograd"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        costs = self.target.machine.winograd
        if costs is None:
            return
        for block in program_blocks(op):
            rewrite_forward(block, _Rewriter(WeightExpressions(block), costs, ranges_of(op)).rewritten)


class _Rewriter:
    def __init__(self, constant: WeightExpressions, costs: Winograd, ranges: Mapping[str, Range]) -> None:
        self.constant, self.costs, self.ranges = constant, costs, ranges
        self.crops: set[SSAValue] = set()

    def rewritten(self, op: DlOp) -> Sequence[SSAValue] | None:
        if isinstance(op, ConvOp):
            algorithm = self.algorithm(op)
            return [self.convolved(op, algorithm)] if algorithm is not None else None
        return self.cropped_later(op) if isinstance(op, Elementwise) else None

    def algorithm(self, op: ConvOp) -> Algorithm | None:
        """The cheapest algorithm for a convolution, if it is cheaper than the sum itself."""
        x, w = shape_of(op.x), shape_of(op.w)
        if element_type_of(op.x) != Float32Type() or not is_static((*x[1:], *w)):
            return None
        if w[:2] != (3, 3) or len(w) != 4 or {*ints(op.strides), *ints(op.dilations), number(op.groups)} != {1}:
            return None
        # Whether it is less work depends little on how many images there are.
        n, (height, width, c) = representative(x[0], self.ranges), map(int, x[1:])
        o, costs = int(w[3]), self.costs

        def cost(a: Algorithm) -> float:
            tiles = n * -(-(height - 2) // a.step) * -(-(width - 2) // a.step)
            numbers = a.tile**2
            products = numbers * tiles * c * o
            moved = costs.input * c * (numbers * tiles + n * height * width) + costs.output * o * tiles * (numbers + a.step**2)
            transformed = 0 if op.w in self.constant else costs.input * c * o * (numbers + 9)
            return products + moved + transformed + costs.weight * (numbers - 9) * c * o

        best = min(_ALGORITHMS, key=cost)
        direct = n * (height - 2) * (width - 2) * 9 * c * o
        return best if direct > costs.gain * cost(best) else None

    def convolved(self, op: ConvOp, algorithm: Algorithm) -> SSAValue:
        b, x, result, m = Build(op), op.x, shape_of(op.result), algorithm.step
        element = element_type_of(x)
        missing = [-int(size) % m for size in result[1:3]]
        if any(missing):
            x = b(PadOp, x, b.scalar(0, like=x), low=(0, 0, 0, 0), high=(0, *missing, 0), pad_mode="constant")
        by_input, by_weights, by_output = (
            b.constant(np.array(m), element) for m in (algorithm.input, algorithm.weights, algorithm.output)
        )
        v = b(WinogradInputOp, x, by_input, step=m)
        u = b(ModeProductOp, b(ModeProductOp, op.w, by_weights, axis=0, to=0), by_weights, axis=1, to=1)
        tiles, (t, _, c, o) = shape_of(v)[2:5], shape_of(u)
        flat = b(ReshapeOp, v, shape=(t * t, product(tiles), c)), b(ReshapeOp, u, shape=(t * t, c, o))
        products = b(ReshapeOp, b(MatmulOp, *flat), shape=(t, t, *tiles, o))
        y = b(WinogradOutputOp, products, by_output)
        return self.crop(b, y, result) if any(missing) else y

    def crop(self, b: Build, value: SSAValue, shape: Sequence[Size]) -> SSAValue:
        cut = b(SliceOp, value, starts=(0,) * len(shape), limits=tuple(shape), strides=(1,) * len(shape))
        self.crops.add(cut)
        return cut

    def cropped_later(self, op: Elementwise) -> Sequence[SSAValue] | None:
        """f(crop(x), b) = crop(f(x, b)) for b that are the same all over the image, so that f joins the output's kernel."""
        shape = shape_of(op.results[0])
        crops = [v for v in op.operands if v in self.crops and v.has_one_use()]
        others = [v for v in op.operands if v not in crops]
        if len(crops) != 1 or shape_of(crops[0]) != shape or any(_varies(v) for v in others):
            return None
        inner = defining(crops[0], SliceOp)
        assert inner is not None
        b = Build(op)
        whole = b(type(op), *(inner.x if v is crops[0] else v for v in op.operands), **op.properties)
        return [self.crop(b, whole, shape)]


def _varies(value: SSAValue) -> bool:
    """Whether an operand has a value of its own at each place of an image [N, H, W, C]."""
    return any(size != 1 for size in shape_of(value)[:-1])
