"""Gradients of convolutions by their weights by Winograd's algorithm, where that is less work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.costs import Winograd
from dlc.dialects.dl.base import Array, element_type_of, ints, rank_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.contraction import DotGeneralOp
from dlc.dialects.dl.contractions.winograd import WinogradInputOp, WinogradOutputOp, of_known
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ConcatOp, ReshapeOp, WindowsOp
from dlc.dialects.dl.programs.ranges import ranges_of, representative
from dlc.dialects.dl.reductions.reduction import ReduceSumOp
from dlc.dims import Range, is_static, product
from dlc.ir import Context, Float32Type, ModuleOp, SSAValue
from dlc.passes.base import TargetPass
from dlc.passes.dl.contractions.strips import strip_of, strips
from dlc.passes.dl.contractions.winograd_algorithms import OF_FLOATS, Algorithm
from dlc.passes.dl.rewriting import defining, program_blocks, rewrite_forward

_WINDOW = 3


@dataclass(frozen=True)
class WinogradGradientsPass(TargetPass):
    """`winograd-gradients`: the gradient of a 3×3 convolution of stride 1 by its weights from tiles, where that is less work.

        %s = dl.windows %x;  %g = dl.dot_general %s, %ct      (Σ over images and places)
    →   %v = dl.winograd_input %x, %b {step = 4};  %d = dl.winograd_input %ct, %a {step = 4}
        %u = dl.dot_general %v, %d                            (Σ over tiles, for each of 6×6 numbers of a tile)
        %g = dl.winograd_output %u, %c

    The transpose of what `winograd` makes of the convolution, with the same matrices but for divisors, and the same errors.
    Many images go in strips, whose sums are added up. Run it before `block-sums`: there are fewer tiles than places.
    """

    name = "winograd-gradients"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        costs = self.target.machine.winograd
        if costs is None:
            return
        ranges = ranges_of(op)
        for block in program_blocks(op):
            rewrite_forward(block, lambda product: _rewritten(product, costs, ranges), DotGeneralOp)


def _rewritten(op: DotGeneralOp, costs: Winograd, ranges: Mapping[str, Range]) -> Sequence[SSAValue] | None:
    x = _image(op)
    algorithm = None if x is None else _algorithm(x, op.rhs, costs, ranges)
    return None if x is None or algorithm is None else [_gradient(op, x, algorithm, costs)]


def _image(op: DotGeneralOp) -> SSAValue | None:
    """The images whose windows of 3×3 are summed with a cotangent's places; None where a product is something else."""
    windows = defining(op.lhs, WindowsOp)
    if windows is None or rank_of(windows.x) != 4 or windows.slides != {1: (_WINDOW, 1), 2: (_WINDOW, 1)}:
        return None
    summed = sorted(zip(ints(op.lhs_contract), ints(op.rhs_contract), strict=True))
    places = rank_of(op.rhs) == 4 and summed == [(2, 0), (3, 1), (4, 2)] and not ints(op.lhs_batch)
    floats = all(isinstance(element_type_of(v), Float32Type) for v in (op.lhs, op.rhs, op.result))
    return windows.x if places and floats else None


def _algorithm(x: SSAValue, ct: SSAValue, costs: Winograd, ranges: Mapping[str, Range]) -> Algorithm | None:
    """The cheapest algorithm for a gradient, if it is cheaper than the sum itself."""
    count, *places, o = shape_of(ct)
    if not is_static((*places, o, *shape_of(x)[1:])):
        return None
    # Whether it is less work depends little on how many images there are.
    n, (height, width), c = representative(count, ranges), map(int, places), int(shape_of(x)[3])
    o = int(o)

    def cost(a: Algorithm) -> float:
        tiles, numbers = n * -(-height // a.step) * -(-width // a.step), a.tile**2
        moved = (c + o) * (numbers * tiles + n * height * width) + c * o * (numbers + _WINDOW**2)
        return numbers * tiles * c * o + costs.made * moved

    best = min(OF_FLOATS, key=cost)
    return best if n * height * width * _WINDOW**2 * c * o > cost(best) else None


def _gradient(op: DotGeneralOp, x: SSAValue, algorithm: Algorithm, costs: Winograd) -> SSAValue:
    b, ct, m, t = Build(op), op.rhs, algorithm.step, algorithm.tile
    c, o = (int(shape_of(v)[3]) for v in (x, ct))
    missing = [-int(size) % m for size in shape_of(ct)[1:3]]
    if any(missing):
        zero = b.scalar(0, like=x)
        x, ct = (b(PadOp, v, zero, low=(0, 0, 0, 0), high=(0, *missing, 0), pad_mode="constant") for v in (x, ct))
    # Divided here and not with the sums, tiles are made anew: equal to the convolution's own ones they would be kept from
    # there, in more than twice the memory of the images.
    of_x, of_ct, of_sums = algorithm.input / algorithm.divisors[:, None], algorithm.output.T, algorithm.weights.T

    def rows(image: SSAValue, matrix: Array) -> SSAValue:
        v = of_known(b, WinogradInputOp, image, matrix, step=m)
        return b(ReshapeOp, v, shape=(t * t, product(shape_of(v)[2:5]), shape_of(v)[5]))

    def sums(x: SSAValue, ct: SSAValue) -> SSAValue:
        axes = {"lhs_batch": (0,), "rhs_batch": (0,), "lhs_contract": (1,), "rhs_contract": (1,)}
        return b(DotGeneralOp, rows(x, of_x), rows(ct, of_ct), **axes)

    parts = [sums(*part) for part in _parts(b, x, ct, algorithm, costs)]
    u, *others = parts
    if others:
        # One beside the other, to be added up as they lie: a product that adds those of other strips waits for memory.
        joined = b(ReshapeOp, b(ConcatOp, *parts, axis=0), shape=(len(parts), t * t, c, o))
        u = b(ReduceSumOp, joined, axes=(0,), keepdims=False)
    tile = b(ReshapeOp, u, shape=(t, t, 1, 1, 1, c * o))
    return b(ReshapeOp, of_known(b, WinogradOutputOp, tile, of_sums), shape=shape_of(op.result))


def _parts(b: Build, x: SSAValue, ct: SSAValue, algorithm: Algorithm, costs: Winograd) -> Sequence[tuple[SSAValue, SSAValue]]:
    """Images and their cotangents, several at a time where the tiles of all would leave a cache."""
    count, height, width, o = shape_of(ct)
    if not isinstance(count, int):
        return [(x, ct)]
    c, numbers = int(shape_of(x)[3]), algorithm.tile**2
    tiles = int(height) // algorithm.step * (int(width) // algorithm.step)
    of_float = 4
    each, shared = (of_float * numbers * n for n in (tiles * (c + int(o)), c * int(o)))
    found = strips(costs, count, each, shared)
    return [(strip_of(b, x, 0, *place), strip_of(b, ct, 0, *place)) for place in found] or [(x, ct)]
