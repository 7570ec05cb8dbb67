"""`unpack-panels`: hoist computations on a panel of weights out of the loop over its register tiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.low_precision.packed_dot import packed_word
from dlc.ir import (
    AffineConstantExpr,
    AffineDimExpr,
    AffineMap,
    Attribute,
    Block,
    Context,
    DenseIntOrFPElementsAttr,
    Operation,
    SSAValue,
    VectorType,
    arith,
    func,
    memref,
    scf,
    vector,
    walk_ops,
)
from dlc.passes.base import KernelPass, TargetPass
from dlc.passes.loops.cse_kernels import erase_unused, is_pure
from dlc.passes.loops.static_loops import constant_range, is_inside
from dlc.passes.structured import ConstantPool, OpBuilder
from dlc.passes.types import vector_type, viewed_buffer

# The minimum iterations of a loop over register tiles.
_MIN_TILES = 4
# Words of pairs take as many loads as ops that unpack them (Zen 4, AVX2, 32 rows times 2048 weights of 8 bits: 63 -> 50 billion
# multiply-adds per second; words of four 6-bit weights: 85 -> 105).
_UNPROFITABLE_ELEMENTS_PER_WORD = 2
_READS = (vector.TransferReadOp, memref.LoadOp)


@dataclass(frozen=True)
class UnpackPanelsPass(TargetPass, KernelPass):
    """Hoist computations that are the same for all register tiles out of the loop over tiles, into a local panel.

        scf.for %r = 0 to 32 step 4 {
          scf.for %k = 0 to 128 iter_args(%acc) {
            %w = arith.andi (vector.transfer_read %words[%k, 0]), 15 : vector<4x8xi32>;  … dot %x, %w …
      →
        %panel = memref.alloca : memref<128x1x8xi32>
        scf.for %k = 0 to 128 {
          %w = arith.andi (vector.transfer_read %words[%k, 0]), 15 : vector<8xi32>
          vector.transfer_write %w, %panel[%k, 0, 0] }
        scf.for %r = 0 to 32 step 4 {
          scf.for %k = 0 to 128 iter_args(%acc) { %w = vector.transfer_read %panel[%k, 0, 0];  … dot %x, %w …

    Packed weights are unpacked, and their scales converted, once for all rows of a product. The loop over register tiles has at
    least four iterations, and the panel at most the size that the target's cost model states. The rows of a
    hoisted value are equal, and it does not depend on buffers that the loop writes. Results do not change.
    """

    name = "unpack-panels"

    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        constants, max_bytes = ConstantPool(kernel), self.target.costs.max_unpacked_panel_bytes
        for op in list(kernel.walk()):
            if isinstance(op, scf.ForOp) and (tiles := constant_range(op)) is not None and len(tiles) >= _MIN_TILES:
                for loops in list(_reduction_nests(op)):
                    _TileInvariants(op, loops, constants).hoist(max_bytes)


def _reduction_nests(tiles: scf.ForOp) -> Iterator[list[scf.ForOp]]:
    """Yield the perfect nests of loops with unit steps in a loop over tiles, where all loops carry accumulators."""
    for op in tiles.body.block.ops:
        loops, loop = list[scf.ForOp](), op
        while isinstance(loop, scf.ForOp) and (steps := constant_range(loop)) is not None:
            if (steps.start, steps.step) != (0, 1) or not loop.iter_args:
                break
            loops.append(loop)
            inner_loops = [inner for inner in loop.body.block.ops if inner.regions]
            if not inner_loops:
                yield loops
            if len(inner_loops) != 1:
                break
            loop = inner_loops[0]


class _TileInvariants:
    """The ops of a nest of reduction loops, outermost first, that compute the same in all iterations of a loop over tiles."""

    def __init__(self, tiles: scf.ForOp, loops: Sequence[scf.ForOp], constants: ConstantPool) -> None:
        self.tiles = tiles
        self.loops = loops
        self.constants = constants
        self.body = loops[-1].body.block
        self.counters = [loop.body.block.args[0] for loop in loops]
        self.written_buffers = {
            viewed_buffer(op.source if isinstance(op, vector.TransferWriteOp) else op.memref)
            for op in walk_ops(tiles, vector.TransferWriteOp, memref.StoreOp)
        }
        self.invariance: dict[SSAValue, bool] = {}

    def hoist(self, max_bytes: int) -> None:
        """Store the values in a panel before the loop over tiles if they fit `max_bytes`."""
        values = list(self.hoisted_values())
        steps = [len(cast(range, constant_range(loop))) for loop in self.loops]
        if not values or prod(steps) * sum(_row_bytes(v) for v in values) > max_bytes:
            return
        assert self.tiles.parent is not None
        builder = OpBuilder(self.constants, self.tiles.parent, self.loops[-1].location, anchor=self.tiles)
        by_element: dict[Attribute, list[SSAValue]] = {}
        for value in values:
            by_element.setdefault(_vector(value).element_type, []).append(value)
        shapes = {e: (*steps, len(group), _vector(group[0]).get_shape()[-1]) for e, group in by_element.items()}
        panels = {e: builder.alloca(e, shape, "panel") for e, shape in shapes.items()}
        copies, inner = dict[SSAValue, SSAValue](), builder
        for loop, count in zip(self.loops, steps, strict=True):
            copy = inner.loop(0, count, 1, name="k")
            block = copy.body.block
            copies[loop.body.block.args[0]] = block.args[0]
            inner.at_block_end(block).yield_()
            inner = inner._replace(block=block, anchor=block.last_op)
        for element, group in by_element.items():
            rank = len(shapes[element])
            lanes = AffineMap(rank, 0, (AffineDimExpr(rank - 1),))
            for slot, value in enumerate(group):
                indices = [*(copies[c] for c in self.counters), slot, 0]
                inner.transfer_write(self.copy(inner, value, copies), panels[element], indices, lanes)
                reader = OpBuilder(self.constants, self.body, self.loops[-1].location, anchor=cast(Operation, value.owner))
                shape = _vector(value).get_shape()
                leading = [AffineConstantExpr(0) for _ in shape[:-1]]
                broadcast = AffineMap(rank, 0, (*leading, AffineDimExpr(rank - 1)))
                read = reader.transfer_read(panels[element], [*self.counters, slot, 0], tuple(shape), broadcast)
                read.name_hint = value.name_hint
                value.replace_all_uses_with(read)
        erase_unused(self.body)

    def hoisted_values(self) -> Iterator[SSAValue]:
        """Yield the vectors that are computed from invariant ones in the innermost loop, and that other ops read.

        A broadcast of a vector in memory is not computed: a panel would only copy it.

        Of the factors of a packed dot product, these are the words; none if these are pairs.
        """
        values = dict[SSAValue, None]()
        for op in self.body.ops:
            if any(map(self.is_invariant, op.results)):
                continue
            for value in op.operands:
                if not isinstance(value.type, VectorType) or not self.is_invariant(value):
                    continue
                word, count = packed_word(value) if isinstance(op, arith.MuliOp) else (value, 1)
                if count == _UNPROFITABLE_ELEMENTS_PER_WORD:
                    return
                values[word] = None
        for value in values:
            if value.owner.parent is self.body and not isinstance(_broadcast_source(value).owner, _READS):
                yield value

    def is_invariant(self, value: SSAValue) -> bool:
        if value not in self.invariance:
            self.invariance[value] = self.compute_invariance(value)
        return self.invariance[value]

    def compute_invariance(self, value: SSAValue) -> bool:
        """Return whether a value is the same in all iterations of the loop over tiles and in all rows of a tile."""
        op = value.owner
        if not is_inside(op, self.tiles):
            return _is_single_row(value) or _splat(value) is not None
        if isinstance(op, Block):
            return any(value is counter for counter in self.counters)
        match op:
            case vector.TransferReadOp():
                *rows, _ = op.permutation_map.data.results or (AffineConstantExpr(0),)
                if viewed_buffer(op.source) in self.written_buffers or not all(isinstance(e, AffineConstantExpr) for e in rows):
                    return False
            case memref.LoadOp():
                if viewed_buffer(op.memref) in self.written_buffers:
                    return False
            case _ if not is_pure(op) or isinstance(op, vector.ShuffleOp | vector.ReductionOp | vector.ExtractOp):
                return False
            case _:
                pass
        return all(map(self.is_invariant, op.operands))

    def copy(self, builder: OpBuilder, value: SSAValue, copies: dict[SSAValue, SSAValue]) -> SSAValue:
        """Return the first row of an invariant value, computed at `builder`."""
        if value in copies:
            return copies[value]
        op = value.owner
        if isinstance(op, Block) or not is_inside(op, self.tiles):
            element, row = _splat(value), _first_row(value.type)
            if element is None:
                return value
            return self.constants.get(DenseIntOrFPElementsAttr.from_list(cast(Any, row), [element]), row)
        operands = [self.copy(builder, v, copies) for v in op.operands]
        if isinstance(op, vector.TransferReadOp):
            map_, shape = op.permutation_map.data, _vector(value).get_shape()[-1:]
            lanes = AffineMap(map_.num_dims, 0, map_.results[-1:])
            copies[value] = builder.transfer_read(operands[0], operands[1 : 1 + len(op.indices)], tuple(shape), lanes)
            return copies[value]
        types = [_first_row(r.type) for r in op.results]
        row_op = op.create(operands=operands, result_types=types, properties=op.properties, attributes=op.attributes)
        copies[value] = builder.op(row_op, value.name_hint)
        return copies[value]


def _vector(value: SSAValue) -> VectorType[Attribute]:
    return cast("VectorType[Attribute]", value.type)


def _broadcast_source(value: SSAValue) -> SSAValue:
    """Return the value of which a value is a broadcast, or the value itself."""
    while isinstance(value.owner, vector.BroadcastOp):
        value = value.owner.source
    return value


def _row_bytes(value: SSAValue) -> int:
    """Return the size of a row of a vector."""
    return _vector(value).get_shape()[-1] * numpy_dtype(_vector(value).element_type).itemsize


def _first_row(type: Attribute) -> Attribute:
    if not isinstance(type, VectorType):
        return type
    rows = cast("VectorType[Attribute]", type)
    return vector_type(rows.get_shape()[-1:], rows.element_type)


def _is_single_row(value: SSAValue) -> bool:
    return not isinstance(value.type, VectorType) or prod(value.type.get_shape()[:-1]) == 1


def _splat(value: SSAValue) -> int | float | None:
    """Return the element of a constant vector whose elements are equal; else None."""
    attribute = value.owner.value if isinstance(value.owner, arith.ConstantOp) else None
    if not isinstance(attribute, DenseIntOrFPElementsAttr) or not attribute.is_splat():
        return None
    element = attribute.get_values()[0]
    return element if isinstance(element, int | float) else None
