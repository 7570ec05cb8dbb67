"""Convolutions by Winograd's algorithm, where that is less work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dlc.costs import Winograd
from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AddOp, MulOp, SubOp
from dlc.dialects.dl.arithmetic.logic import ShiftRightOp
from dlc.dialects.dl.base import Array, DlOp, element_type_of, ints, number, rank_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.contraction import MatmulOp
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.contractions.winograd import WinogradInputOp, WinogradOutputOp, of_known
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, numpy_dtype
from dlc.dialects.dl.interfaces import Elementwise
from dlc.dialects.dl.movement.packing import UnpackOp
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ReshapeOp, SliceOp, TransposeOp
from dlc.dialects.dl.programs.ranges import ranges_of, representative
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.dl.reductions.reduction import ReduceSumOp
from dlc.dims import Range, Size, is_static, product
from dlc.ir import Context, Float32Type, ModuleOp, Operation, SSAValue, contains, f32, i32
from dlc.passes.base import TargetPass
from dlc.passes.dl.contractions.frames import Frames, varies
from dlc.passes.dl.contractions.joined_strips import JoinedStrips
from dlc.passes.dl.contractions.strips import strip_of, strips
from dlc.passes.dl.contractions.winograd_algorithms import ALGORITHMS, OF_FLOATS, Algorithm, twos
from dlc.passes.dl.index_ranges import interval_of
from dlc.passes.dl.rewriting import defining, program_blocks, rewrite_forward

# What pairs of are multiplied at once.
_PART = ELEMENT_TYPES["int16"]
# Bytes of a number of weights that each run transforms.
_FLOAT = 4
# Axes of images.
_IMAGES = 4


def has_windows_of_three(op: ConvOp) -> bool:
    """Whether windows are of 3×3, or several such frames of a film, and move by one place of an image."""
    *taps, height, width, _, _ = shape_of(op.w) if rank_of(op.w) >= _IMAGES else (0, 0, 0, 0)
    steps = {*ints(op.strides)[-2:], *ints(op.dilations)[-2:], number(op.groups)}
    return (height, width) == (3, 3) and len(taps) <= 1 and steps == {1}


@dataclass(frozen=True)
class WinogradPass(TargetPass):
    """`winograd`: a 3×3 convolution of stride 1 as tiles of 2×2 or 4×4 results, where that is less work.

        %y = dl.conv %x, %w
    →   %v = dl.winograd_input %x, %b {step = 4};  %u = dl.winograd_input %w, G (an expression of weights)
        %m = dl.matmul %v, %u;  %y = dl.winograd_output %m, %a

    Large or many images go strip by strip, so that what is between the three steps stays in a cache; what is elementwise
    behind them goes with each strip, unless it waits for all of them, as what is less the mean does.

        %y = dl.conv %x, %w;  dl.relu %y
    →   dl.concat (dl.relu (… dl.slice %x …)), (dl.relu (… dl.slice %x …)), …

    Weights that are computed are transformed in each run, which pays where enough tiles share them, as in training, and are
    written in panels of output channels, so that no product copies them.

        %u = dl.winograd_input (dl.unpack (dl.transpose %w)), G;  %m = dl.matmul %v, (dl.unpack (dl.transpose %u))

    What a window sees of other frames of a film lies beside a frame, as more channels (`frames.py`).

    The largest error is about 1e-5 of the largest result for tiles of 4×4, and 2e-6 for 2×2. An image that tiles
    do not divide is padded, and its result cut after the elementwise ops that follow. Run it after `fold-scales`, for targets
    that know what it costs.

    Of integers results are exact. Those that are multiplied as i16 have transformed tiles of i16, of which the sums in i32
    are multiples of the results, modulo 2³²: they are divided by multiplying with an inverse and by a shift. Tiles are of
    2×2, 3×3 or 4×4, as far as the numbers' ranges allow.
    """

    name = "winograd"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        costs = self.target.machine.winograd
        if costs is None or not contains(op, ConvOp):
            return
        constant, ranges, awaited = WeightExpressions(), ranges_of(op), dict[Operation, frozenset[ConvOp]]()
        # Pieces of rows, each written to another page: as wide as register tiles of panels are. Groups bring tiles near by
        # themselves.
        panel = self.target.machine.vectors * self.target.lanes(_FLOAT) if self.target.groups is None else None
        for block in program_blocks(op):
            rewrite_forward(block, _Rewriter(constant, costs, ranges, awaited, panel).rewritten)


class _Rewriter:
    def __init__(
        self,
        constant: WeightExpressions,
        costs: Winograd,
        ranges: Mapping[str, Range],
        awaited: dict[Operation, frozenset[ConvOp]],
        panel: int | None,
    ) -> None:
        self.constant, self.costs, self.ranges = constant, costs, ranges
        # The output channels side by side in weights that each run transforms.
        self.panel = panel
        self.crops: set[SSAValue] = set()
        self.strips, self.frames = JoinedStrips(awaited), Frames()

    def rewritten(self, op: DlOp) -> Sequence[SSAValue] | None:
        self.strips.passed(op)
        if isinstance(op, ConvOp):
            algorithm = self.algorithm(op)
            if algorithm is None:
                return None
            return [self.convolved(op, algorithm) if rank_of(op.x) == _IMAGES else self.frames.convolved(op)]
        if isinstance(op, Elementwise):
            return self.cropped_later(op) or self.strips.followed(op) or self.frames.followed(op)
        return None

    def algorithm(self, op: ConvOp) -> Algorithm | None:
        """The cheapest algorithm for a convolution, if it is cheaper than the sum itself."""
        x, w = shape_of(op.x), shape_of(op.w)
        if not is_static((*x[1:], *w)) or not has_windows_of_three(op):
            return None
        # Whether it is less work depends little on how many images there are.
        n = representative(x[0], self.ranges) * prod(map(int, shape_of(op.result)[1:-3]))
        (height, width), c, o, costs = map(int, x[-3:-1]), prod(map(int, (*w[:-4], w[-2]))), int(w[-1]), self.costs
        algorithms = self.possible(op, c)
        if not algorithms:
            return None

        def cost(a: Algorithm) -> float:
            tiles = n * -(-(height - 2) // a.step) * -(-(width - 2) // a.step)
            numbers = a.tile**2
            products = numbers * tiles * c * o
            moved = costs.input * c * (numbers * tiles + n * height * width) + costs.output * o * tiles * (numbers + a.step**2)
            # What is computed is written, in panels, and read again.
            transformed = 0 if op.w in self.constant else costs.made * c * o * (2 * numbers + 9)
            return products + moved + transformed + costs.weight * (numbers - 9) * c * o

        best = min(algorithms, key=cost)
        direct = n * (height - 2) * (width - 2) * 9 * c * o
        return best if direct > costs.gain * cost(best) else None

    def possible(self, op: ConvOp, c: int) -> Sequence[Algorithm]:
        """The algorithms that give a convolution's results, of images of so many channels."""
        match [element_type_of(v) for v in (*op.operands, op.result)]:
            case [Float32Type(), Float32Type(), Float32Type()]:
                return OF_FLOATS
            case [x, w, result] if x == w == _PART and result == i32 and op.w in self.constant:
                ranges = interval_of(op.x), interval_of(op.w)
                terms = 9 * c
                return [a for a in ALGORITHMS if a.fits(*ranges) and a.centre(*ranges, terms) is not None]
            case _:
                return ()

    def convolved(self, op: ConvOp, algorithm: Algorithm) -> SSAValue:
        b, x, result, m = Build(op), op.x, shape_of(op.result), algorithm.step
        missing = [-int(size) % m for size in result[1:3]]
        if any(missing):
            x = b(PadOp, x, b.scalar(0, like=x), low=(0, 0, 0, 0), high=(0, *missing, 0), pad_mode="constant")
        integers = element_type_of(x) != f32
        of_weights, of_output = algorithm.weights, algorithm.output
        if integers:
            of_output = of_output * (algorithm.divisor // algorithm.divisors)
        else:
            of_weights = of_weights / algorithm.divisors[:, None]
        t, c, o = algorithm.tile, *map(int, shape_of(op.w)[2:])
        flat = self.transformed(b, op.w, of_weights)

        def results(x: SSAValue) -> SSAValue:
            v = of_known(b, WinogradInputOp, x, algorithm.input, step=m)
            tiles = shape_of(v)[2:5]
            rows = b(ReshapeOp, v, shape=(t * t, product(tiles), c))
            products = b(MatmulOp, rows, flat, result=element_type_of(op.result))
            return of_known(b, WinogradOutputOp, b(ReshapeOp, products, shape=(t, t, *tiles, o)), of_output)

        axis, parts = self.parts(op, x, algorithm)
        y = self.strips.join(b, [results(strip_of(b, x, axis, *place)) for place in parts], axis, op) if parts else results(x)
        if integers:
            y = self.divided(b, op, algorithm, y)
        return self.crop(b, y, result) if any(missing) else y

    def transformed(self, b: Build, w: SSAValue, matrix: Array) -> SSAValue:
        """The transformed weights [t², C, O]: those of one tile, whose channels are those of both sides.

        Those that are computed in each run are written as they are read, in panels of output channels: one image each.
        """
        kernel, _, c, o = map(int, shape_of(w))
        numbers, panel = len(matrix) ** 2, self.panel
        if w in self.constant or panel is None or o <= panel or o % panel:
            flat = b(ReshapeOp, w, shape=(1, kernel, kernel, c * o))
            return b(ReshapeOp, of_known(b, WinogradInputOp, flat, matrix, step=kernel), shape=(numbers, c, o))
        split = b(ReshapeOp, w, shape=(kernel, kernel, c, o // panel, panel))
        images = b(TransposeOp, split, permutation=(2, 3, 0, 1, 4))
        flat = b(UnpackOp, images, axis=3, tile=panel, size=c * panel)
        u = b(ReshapeOp, of_known(b, WinogradInputOp, flat, matrix, step=kernel), shape=(numbers, o // panel, c, panel))
        return b(UnpackOp, b(TransposeOp, u, permutation=(1, 0, 2, 3)), axis=2, tile=panel, size=o)

    def parts(self, op: ConvOp, x: SSAValue, algorithm: Algorithm) -> tuple[int, Sequence[tuple[int, int]]]:
        """An axis of images `x`, and parts of it whose tiles and products stay in a cache; none where all of them do.

        Several images are cut between two of them, one between rows of tiles, which share two rows of the image. Each part
        reads the transformed weights again: it is no smaller than they are.
        """
        n, height, width, c = shape_of(x)
        if not isinstance(n, int):
            return 0, ()
        m, o, numbers = algorithm.step, int(shape_of(op.w)[3]), algorithm.tile**2
        inner, outer = (numpy_dtype(element_type_of(v)).itemsize for v in (x, op.result))
        down, across = (int(height) - 2) // m, (int(width) - 2) // m
        count, tiles = (n, down * across) if n > 1 else (down, across)
        parts = strips(self.costs, count, numbers * tiles * (int(c) * inner + o * outer), numbers * int(c) * o * inner)
        return (0, parts) if n > 1 else (1, [(k * m, size * m + 2) for k, size in parts])

    def divided(self, b: Build, op: ConvOp, algorithm: Algorithm, multiple: SSAValue) -> SSAValue:
        """The integers that `multiple` is the divisor squared times, modulo 2³²."""
        by = algorithm.divisor**2
        even = twos(by)
        if by != even:
            multiple = b(MulOp, multiple, b.scalar(_signed(pow(by // even, -1, 1 << 32)), like=multiple))
        shift = b.scalar(even.bit_length() - 1, like=multiple)
        centre = algorithm.centre(interval_of(op.x), interval_of(op.w), 9 * int(shape_of(op.x)[-1]))
        if not centre:
            return b(ShiftRightOp, multiple, shift)
        # Σ x·w = Σ (x - c)·w + c·Σ w
        sums = b(ReduceSumOp, b(CastOp, op.w, to=i32), axes=(0, 1, 2), keepdims=False)
        rest = b(MulOp, sums, b.scalar(centre, like=sums))
        less = b(SubOp, multiple, b(MulOp, rest, b.scalar(even, like=rest)))
        return b(AddOp, b(ShiftRightOp, less, shift), rest)

    def crop(self, b: Build, value: SSAValue, shape: Sequence[Size]) -> SSAValue:
        cut = b(SliceOp, value, starts=(0,) * len(shape), limits=tuple(shape), strides=(1,) * len(shape))
        self.crops.add(cut)
        return cut

    def cropped_later(self, op: Elementwise) -> Sequence[SSAValue] | None:
        """f(crop(x), b) = crop(f(x, b)) for b that are the same all over the image, so that f joins the output's kernel."""
        shape = shape_of(op.results[0])
        crops = [v for v in op.operands if v in self.crops and v.has_one_use()]
        others = [v for v in op.operands if v not in crops]
        if len(crops) != 1 or shape_of(crops[0]) != shape or any(varies(v) for v in others):
            return None
        inner = defining(crops[0], SliceOp)
        assert inner is not None
        b = Build(op)
        whole = b(type(op), *(inner.x if v is crops[0] else v for v in op.operands), **op.properties)
        return [self.crop(b, whole, shape)]


def _signed(n: int) -> int:
    """A number below 2³² as i32 holds it."""
    return n - (1 << 32) if n >> 31 else n
