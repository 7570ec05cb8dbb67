"""Rewrite 3×3 convolutions by Winograd's algorithm, where that is cheaper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dlc.cost_model import WinogradCosts
from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AddOp, MulOp, SubOp
from dlc.dialects.dl.arithmetic.logic import ShiftRightOp
from dlc.dialects.dl.base import Array, DlOp, element_type_of, ints, number, rank_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.contraction import MatmulOp
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.contractions.winograd import WinogradInputOp, WinogradOutputOp, with_constant_matrix
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, numpy_dtype
from dlc.dialects.dl.interfaces import Elementwise
from dlc.dialects.dl.movement.packing import UnpackOp
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ReshapeOp, SliceOp, TransposeOp
from dlc.dialects.dl.programs.size_ranges import representative, size_ranges
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.dl.reductions.reduction import ReduceSumOp
from dlc.ir import Context, Float32Type, ModuleOp, Operation, SSAValue, contains, f32, i32
from dlc.passes.base import TargetPass
from dlc.passes.dl.contractions.strip_concatenations import StripConcatenations
from dlc.passes.dl.contractions.strips import slice_strip, split_into_strips
from dlc.passes.dl.contractions.video_convolutions import VideoConvolutions, varies_within_image
from dlc.passes.dl.contractions.winograd_algorithms import (
    ALGORITHMS,
    FLOAT_ALGORITHMS,
    WinogradAlgorithm,
    largest_power_of_two_divisor,
)
from dlc.passes.dl.index_ranges import compute_interval
from dlc.passes.dl.rewriting import defining_op, program_blocks, rewrite_forward
from dlc.shapes.dims import Size, is_static, product
from dlc.shapes.ranges import SizeRange

# The element type of packed i16 dot products.
_INT16 = ELEMENT_TYPES["int16"]
# Bytes per element of weights that each run transforms.
_F32_BYTES = 4
# The rank of images [N, H, W, C].
_IMAGE_RANK = 4


def is_3x3_with_stride_1(op: ConvOp) -> bool:
    """Return whether a convolution has 3×3 kernels (over one or several frames) with stride, dilation and groups 1."""
    *taps, height, width, _, _ = shape_of(op.w) if rank_of(op.w) >= _IMAGE_RANK else (0, 0, 0, 0)
    steps = {*ints(op.strides)[-2:], *ints(op.dilations)[-2:], number(op.groups)}
    return (height, width) == (3, 3) and len(taps) <= 1 and steps == {1}


@dataclass(frozen=True)
class WinogradPass(TargetPass):
    """`winograd`: computes a 3×3 convolution of stride 1 by Winograd tiles of 2×2 or 4×4 results, where that is cheaper.

        %y = dl.conv %x, %w
    →   %v = dl.winograd_input %x, %b {step = 4};  %u = dl.winograd_input %w, G (a weight expression)
        %m = dl.matmul %v, %u;  %y = dl.winograd_output %m, %a

    Large or many images are processed in strips, so that the intermediates of the three steps stay in a cache. Elementwise
    consumers run per strip, unless they depend on all strips, as subtracting the mean does.

        %y = dl.conv %x, %w;  dl.relu %y
    →   dl.concat (dl.relu (… dl.slice %x …)), (dl.relu (… dl.slice %x …)), …

    Computed weights are transformed in each run. That pays if enough tiles use them, as in training. The transform writes them
    in panels of output channels, so that the product needs no packing.

        %u = dl.winograd_input (dl.unpack (dl.transpose %w)), G;  %m = dl.matmul %v, (dl.unpack (dl.transpose %u))

    For videos, the frames of a window become additional channels (`video_convolutions.py`).

    The largest error is about 1e-5 of the largest result for tiles of 4×4, and 2e-6 for 2×2. Images whose size is not divisible
    by the tile are padded, and the result is trimmed after the elementwise consumers. Run it after `fold-scales`, for targets
    with measured Winograd costs.

    Integer results are exact. i16 operands have i16 transformed tiles, whose i32 sums are multiples of the results modulo 2³²:
    these are divided by multiplying with a modular inverse and shifting. Tiles are 2×2, 3×3 or 4×4, as far as the value
    ranges allow.
    """

    name = "winograd"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        costs = self.target.costs.winograd
        if costs is None or not contains(op, ConvOp):
            return
        constant, ranges, concat_dependencies = WeightExpressions(), size_ranges(op), dict[Operation, frozenset[ConvOp]]()
        # A transform writes row segments to separate pages, so panels are as wide as register tiles. Work-groups load tiles to
        # local memory and need no panels.
        panel = self.target.costs.vectors * self.target.lanes(_F32_BYTES) if self.target.groups is None else None
        for block in program_blocks(op):
            rewrite_forward(block, _WinogradRewriter(constant, costs, ranges, concat_dependencies, panel).rewrite)


class _WinogradRewriter:
    """Rewrites the convolutions of a block, and moves elementwise consumers before trims, concatenations and reshapes."""

    def __init__(
        self,
        constant: WeightExpressions,
        costs: WinogradCosts,
        ranges: Mapping[str, SizeRange],
        concat_dependencies: dict[Operation, frozenset[ConvOp]],
        panel: int | None,
    ) -> None:
        self.constant, self.costs, self.ranges = constant, costs, ranges
        # Output channels per panel of weights that each run transforms; None without panels.
        self.panel = panel
        self.trims: set[SSAValue] = set()
        self.strips, self.frames = StripConcatenations(concat_dependencies), VideoConvolutions()

    def rewrite(self, op: DlOp) -> Sequence[SSAValue] | None:
        self.strips.record_dependencies(op)
        if isinstance(op, ConvOp):
            algorithm = self.algorithm(op)
            if algorithm is None:
                return None
            return [self.convolve(op, algorithm) if rank_of(op.x) == _IMAGE_RANK else self.frames.convolve(op)]
        if isinstance(op, Elementwise):
            return self.delay_trim(op) or self.strips.sink_elementwise(op) or self.frames.sink_elementwise(op)
        return None

    def algorithm(self, op: ConvOp) -> WinogradAlgorithm | None:
        """Return the cheapest Winograd algorithm, if it is cheaper than direct convolution; else None."""
        x, w = shape_of(op.x), shape_of(op.w)
        if not is_static((*x[1:], *w)) or not is_3x3_with_stride_1(op):
            return None
        # The choice depends little on the batch size, so a representative size suffices.
        n = representative(x[0], self.ranges) * prod(map(int, shape_of(op.result)[1:-3]))
        (height, width), c, o, costs = map(int, x[-3:-1]), prod(map(int, (*w[:-4], w[-2]))), int(w[-1]), self.costs
        algorithms = self.applicable_algorithms(op, c)
        if not algorithms:
            return None

        def cost(algorithm: WinogradAlgorithm) -> float:
            tiles = n * -(-(height - 2) // algorithm.step) * -(-(width - 2) // algorithm.step)
            tile_elements = algorithm.tile**2
            products = tile_elements * tiles * c * o
            transform_cost = costs.input * c * (tile_elements * tiles + n * height * width) + costs.output * o * tiles * (
                tile_elements + algorithm.step**2
            )
            # Weights transformed in each run are written, in panels, and read again.
            weight_transform_cost = 0 if op.w in self.constant else costs.runtime_weight * c * o * (2 * tile_elements + 9)
            return products + transform_cost + weight_transform_cost + costs.weight * (tile_elements - 9) * c * o

        best = min(algorithms, key=cost)
        direct = n * (height - 2) * (width - 2) * 9 * c * o
        return best if direct > costs.gain * cost(best) else None

    def applicable_algorithms(self, op: ConvOp, c: int) -> Sequence[WinogradAlgorithm]:
        """Return the algorithms that are exact (integers) or accurate (floats) for a convolution with `c` input channels."""
        match [element_type_of(v) for v in (*op.operands, op.result)]:
            case [Float32Type(), Float32Type(), Float32Type()]:
                return FLOAT_ALGORITHMS
            case [x, w, result] if x == w == _INT16 and result == i32 and op.w in self.constant:
                ranges = compute_interval(op.x), compute_interval(op.w)
                terms = 9 * c
                return [a for a in ALGORITHMS if a.fits(*ranges) and a.input_offset(*ranges, terms) is not None]
            case _:
                return ()

    def convolve(self, op: ConvOp, algorithm: WinogradAlgorithm) -> SSAValue:
        build, x, result, m = DlBuilder(op), op.x, shape_of(op.result), algorithm.step
        padding = [-int(size) % m for size in result[1:3]]
        if any(padding):
            x = build(PadOp, x, build.scalar(0, like=x), low=(0, 0, 0, 0), high=(0, *padding, 0), pad_mode="constant")
        is_integer = element_type_of(x) != f32
        weight_matrix, output_matrix = algorithm.weights, algorithm.output
        if is_integer:
            output_matrix = output_matrix * (algorithm.divisor // algorithm.divisors)
        else:
            weight_matrix = weight_matrix / algorithm.divisors[:, None]
        t, c, o = algorithm.tile, *map(int, shape_of(op.w)[2:])
        flat = self.transform_weights(build, op.w, weight_matrix)

        def convolve_tiles(x: SSAValue) -> SSAValue:
            v = with_constant_matrix(build, WinogradInputOp, x, algorithm.input, step=m)
            tiles = shape_of(v)[2:5]
            rows = build(ReshapeOp, v, shape=(t * t, product(tiles), c))
            products = build(MatmulOp, rows, flat, result=element_type_of(op.result))
            return with_constant_matrix(
                build, WinogradOutputOp, build(ReshapeOp, products, shape=(t, t, *tiles, o)), output_matrix
            )

        axis, strips = self.strip_ranges(op, x, algorithm)
        y = (
            self.strips.join(build, [convolve_tiles(slice_strip(build, x, axis, *strip)) for strip in strips], axis, op)
            if strips
            else convolve_tiles(x)
        )
        if is_integer:
            y = self.divide_exactly(build, op, algorithm, y)
        return self.trim(build, y, result) if any(padding) else y

    def transform_weights(self, build: DlBuilder, weights: SSAValue, matrix: Array) -> SSAValue:
        """Return the transformed weights [t², C, O].

        Weights computed in each run are written in panels of output channels, as the product reads them.
        """
        kernel, _, c, o = map(int, shape_of(weights))
        tile_elements, panel = len(matrix) ** 2, self.panel
        if weights in self.constant or panel is None or o <= panel or o % panel:
            flat = build(ReshapeOp, weights, shape=(1, kernel, kernel, c * o))
            return build(
                ReshapeOp, with_constant_matrix(build, WinogradInputOp, flat, matrix, step=kernel), shape=(tile_elements, c, o)
            )
        split = build(ReshapeOp, weights, shape=(kernel, kernel, c, o // panel, panel))
        images = build(TransposeOp, split, permutation=(2, 3, 0, 1, 4))
        flat = build(UnpackOp, images, axis=3, tile=panel, size=c * panel)
        u = build(
            ReshapeOp,
            with_constant_matrix(build, WinogradInputOp, flat, matrix, step=kernel),
            shape=(tile_elements, o // panel, c, panel),
        )
        return build(UnpackOp, build(TransposeOp, u, permutation=(1, 0, 2, 3)), axis=2, tile=panel, size=o)

    def strip_ranges(self, op: ConvOp, x: SSAValue, algorithm: WinogradAlgorithm) -> tuple[int, Sequence[tuple[int, int]]]:
        """Return an axis of images `x`, and strips of it whose tiles and products fit the cache; none if all images fit.

        A batch is split between images, a single image between rows of tiles. Strips of one image overlap by two image rows.
        Each strip reads the transformed weights again, so it is at least as large as they are.
        """
        n, height, width, c = shape_of(x)
        if not isinstance(n, int):
            return 0, ()
        m, o, tile_elements = algorithm.step, int(shape_of(op.w)[3]), algorithm.tile**2
        input_bytes, output_bytes = (numpy_dtype(element_type_of(v)).itemsize for v in (x, op.result))
        tile_rows, tile_columns = (int(height) - 2) // m, (int(width) - 2) // m
        count, tiles = (n, tile_rows * tile_columns) if n > 1 else (tile_rows, tile_columns)
        strips = split_into_strips(
            self.costs,
            count,
            tile_elements * tiles * (int(c) * input_bytes + o * output_bytes),
            tile_elements * int(c) * o * input_bytes,
        )
        return (0, strips) if n > 1 else (1, [(k * m, size * m + 2) for k, size in strips])

    def divide_exactly(self, build: DlBuilder, op: ConvOp, algorithm: WinogradAlgorithm, multiple: SSAValue) -> SSAValue:
        """Divide integers exactly by the squared divisor, modulo 2³²."""
        divisor = algorithm.divisor**2
        power_of_two = largest_power_of_two_divisor(divisor)
        if divisor != power_of_two:
            multiple = build(MulOp, multiple, build.scalar(_as_int32(pow(divisor // power_of_two, -1, 1 << 32)), like=multiple))
        shift = build.scalar(power_of_two.bit_length() - 1, like=multiple)
        input_offset = algorithm.input_offset(compute_interval(op.x), compute_interval(op.w), 9 * int(shape_of(op.x)[-1]))
        if not input_offset:
            return build(ShiftRightOp, multiple, shift)
        # Σ x·w = Σ (x - c)·w + c·Σ w
        sums = build(ReduceSumOp, build(CastOp, op.w, to=i32), axes=(0, 1, 2), keepdims=False)
        result_offset = build(MulOp, sums, build.scalar(input_offset, like=sums))
        centered_multiple = build(SubOp, multiple, build(MulOp, result_offset, build.scalar(power_of_two, like=result_offset)))
        return build(AddOp, build(ShiftRightOp, centered_multiple, shift), result_offset)

    def trim(self, build: DlBuilder, value: SSAValue, shape: Sequence[Size]) -> SSAValue:
        """Slice off the results of padding."""
        trimmed = build(SliceOp, value, starts=(0,) * len(shape), limits=tuple(shape), strides=(1,) * len(shape))
        self.trims.add(trimmed)
        return trimmed

    def delay_trim(self, op: Elementwise) -> Sequence[SSAValue] | None:
        """Rewrite f(trim(x), b) as trim(f(x, b)) for b constant over the image, so that f fuses with the output transform."""
        shape = shape_of(op.results[0])
        trims = [v for v in op.operands if v in self.trims and v.has_one_use()]
        other_operands = [v for v in op.operands if v not in trims]
        if len(trims) != 1 or shape_of(trims[0]) != shape or any(varies_within_image(v) for v in other_operands):
            return None
        inner = defining_op(trims[0], SliceOp)
        assert inner is not None
        build = DlBuilder(op)
        untrimmed = build(type(op), *(inner.x if v is trims[0] else v for v in op.operands), **op.properties)
        return [self.trim(build, untrimmed, shape)]


def _as_int32(n: int) -> int:
    """Reinterpret an unsigned 32-bit integer as signed."""
    return n - (1 << 32) if n >> 31 else n
