"""Compute weight gradients of convolutions by Winograd's algorithm, where that is cheaper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.cost_model import WinogradCosts
from dlc.dialects.dl.base import Array, element_type_of, ints, rank_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.contraction import DotGeneralOp
from dlc.dialects.dl.contractions.winograd import WinogradInputOp, WinogradOutputOp, with_constant_matrix
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ConcatOp, ReshapeOp, SlidingWindowsOp
from dlc.dialects.dl.programs.size_ranges import representative, size_ranges
from dlc.dialects.dl.reductions.reduction import ReduceSumOp
from dlc.ir import Context, Float32Type, ModuleOp, SSAValue
from dlc.passes.base import TargetPass
from dlc.passes.dl.contractions.strips import slice_strip, split_into_strips
from dlc.passes.dl.contractions.winograd_algorithms import FLOAT_ALGORITHMS, WinogradAlgorithm
from dlc.passes.dl.rewriting import defining_op, program_blocks, rewrite_forward
from dlc.shapes.dims import is_static, product
from dlc.shapes.ranges import SizeRange

_KERNEL_SIZE = 3


@dataclass(frozen=True)
class WinogradGradientsPass(TargetPass):
    """`winograd-gradients`: computes weight gradients of 3×3 convolutions of stride 1 by Winograd tiles, where that is cheaper.

        %s = dl.sliding_windows %x;  %g = dl.dot_general %s, %ct      (Σ over images and positions)
    →   %v = dl.winograd_input %x, %b {step = 4};  %d = dl.winograd_input %ct, %a {step = 4}
        %u = dl.dot_general %v, %d                            (Σ over tiles, for each of the 6×6 elements of a tile)
        %g = dl.winograd_output %u, %c

    It is the transpose of the rewrite by `winograd`, with the same matrices except for the divisors, and the same errors.
    Large batches are processed in strips, whose sums are added up. Run it before `block-reductions`: there are fewer tiles
    than positions.
    """

    name = "winograd-gradients"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        costs = self.target.costs.winograd
        if costs is None:
            return
        ranges = size_ranges(op)
        for block in program_blocks(op):
            rewrite_forward(block, lambda product: _rewrite(product, costs, ranges), DotGeneralOp)


def _rewrite(op: DotGeneralOp, costs: WinogradCosts, ranges: Mapping[str, SizeRange]) -> Sequence[SSAValue] | None:
    x = _image(op)
    algorithm = None if x is None else _algorithm(x, op.rhs, costs, ranges)
    return None if x is None or algorithm is None else [_gradient(op, x, algorithm, costs)]


def _image(op: DotGeneralOp) -> SSAValue | None:
    """Return the images whose 3×3 windows a product contracts with a cotangent; None for other products."""
    windows = defining_op(op.lhs, SlidingWindowsOp)
    if windows is None or rank_of(windows.x) != 4 or windows.windows_by_axis != {1: (_KERNEL_SIZE, 1), 2: (_KERNEL_SIZE, 1)}:
        return None
    contracted = sorted(zip(ints(op.lhs_contract), ints(op.rhs_contract), strict=True))
    sums_over_positions = rank_of(op.rhs) == 4 and contracted == [(2, 0), (3, 1), (4, 2)] and not ints(op.lhs_batch)
    is_f32 = all(isinstance(element_type_of(v), Float32Type) for v in (op.lhs, op.rhs, op.result))
    return windows.x if sums_over_positions and is_f32 else None


def _algorithm(
    x: SSAValue, cotangent: SSAValue, costs: WinogradCosts, ranges: Mapping[str, SizeRange]
) -> WinogradAlgorithm | None:
    """Return the cheapest Winograd algorithm for a gradient, if it is cheaper than the direct sum; else None."""
    count, *spatial, o = shape_of(cotangent)
    if not is_static((*spatial, o, *shape_of(x)[1:])):
        return None
    # The choice depends little on the batch size, so a representative size suffices.
    n, (height, width), c = representative(count, ranges), map(int, spatial), int(shape_of(x)[3])
    o = int(o)

    def cost(algorithm: WinogradAlgorithm) -> float:
        tiles, tile_elements = n * -(-height // algorithm.step) * -(-width // algorithm.step), algorithm.tile**2
        transform_cost = (c + o) * (tile_elements * tiles + n * height * width) + c * o * (tile_elements + _KERNEL_SIZE**2)
        return tile_elements * tiles * c * o + costs.runtime_weight * transform_cost

    best = min(FLOAT_ALGORITHMS, key=cost)
    return best if n * height * width * _KERNEL_SIZE**2 * c * o > cost(best) else None


def _gradient(op: DotGeneralOp, x: SSAValue, algorithm: WinogradAlgorithm, costs: WinogradCosts) -> SSAValue:
    build, cotangent, m, t = DlBuilder(op), op.rhs, algorithm.step, algorithm.tile
    c, o = (int(shape_of(v)[3]) for v in (x, cotangent))
    padding = [-int(size) % m for size in shape_of(cotangent)[1:3]]
    if any(padding):
        zero = build.scalar(0, like=x)
        x, cotangent = (
            build(PadOp, v, zero, low=(0, 0, 0, 0), high=(0, *padding, 0), pad_mode="constant") for v in (x, cotangent)
        )
    # The divisors apply to the input here, so that the tiles differ from those of the forward convolution: CSE would otherwise
    # keep the forward tiles alive, in more than twice the memory of the images.
    input_matrix, cotangent_matrix, output_matrix = (
        algorithm.input / algorithm.divisors[:, None],
        algorithm.output.T,
        algorithm.weights.T,
    )

    def rows(image: SSAValue, matrix: Array) -> SSAValue:
        v = with_constant_matrix(build, WinogradInputOp, image, matrix, step=m)
        return build(ReshapeOp, v, shape=(t * t, product(shape_of(v)[2:5]), shape_of(v)[5]))

    def sums(x: SSAValue, cotangent: SSAValue) -> SSAValue:
        axes = {"lhs_batch": (0,), "rhs_batch": (0,), "lhs_contract": (1,), "rhs_contract": (1,)}
        return build(DotGeneralOp, rows(x, input_matrix), rows(cotangent, cotangent_matrix), **axes)

    strip_sums = [sums(*strip) for strip in _strips(build, x, cotangent, algorithm, costs)]
    u, *other_sums = strip_sums
    if other_sums:
        # Concatenated and reduced afterwards: accumulating into the product of the previous strip would wait for memory.
        stacked_sums = build(ReshapeOp, build(ConcatOp, *strip_sums, axis=0), shape=(len(strip_sums), t * t, c, o))
        u = build(ReduceSumOp, stacked_sums, axes=(0,), keepdims=False)
    tile = build(ReshapeOp, u, shape=(t, t, 1, 1, 1, c * o))
    return build(ReshapeOp, with_constant_matrix(build, WinogradOutputOp, tile, output_matrix), shape=shape_of(op.result))


def _strips(
    build: DlBuilder, x: SSAValue, cotangent: SSAValue, algorithm: WinogradAlgorithm, costs: WinogradCosts
) -> Sequence[tuple[SSAValue, SSAValue]]:
    """Split images and cotangents into strips of several images, where the tiles of all would exceed the cache."""
    count, height, width, o = shape_of(cotangent)
    if not isinstance(count, int):
        return [(x, cotangent)]
    c, tile_elements = int(shape_of(x)[3]), algorithm.tile**2
    tiles = int(height) // algorithm.step * (int(width) // algorithm.step)
    f32_bytes = 4
    image_bytes, shared_bytes = (f32_bytes * tile_elements * n for n in (tiles * (c + int(o)), c * int(o)))
    strips = split_into_strips(costs, count, image_bytes, shared_bytes)
    return [(slice_strip(build, x, 0, *strip), slice_strip(build, cotangent, 0, *strip)) for strip in strips] or [
        (x, cotangent)
    ]
