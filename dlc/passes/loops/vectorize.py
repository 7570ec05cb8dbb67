"""`vectorize`: lower structured ops on tiles to n-D vectors, and loops over reduced iterators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from dlc.dialects.loop_attributes import UNROLLED
from dlc.dialects.shape_cast import ShapeCastOp
from dlc.dialects.sizes import strides_of
from dlc.ir import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    Context,
    DenseIntOrFPElementsAttr,
    FastMathFlag,
    MemRefType,
    Operation,
    SSAValue,
    UnitAttr,
    UnknownLoc,
    arith,
    erase_op,
    func,
    index,
    linalg,
    math,
    memref,
    vector,
)
from dlc.passes.base import KernelPass
from dlc.passes.structured import ConstantPool, Index, OpBuilder
from dlc.passes.tiling.structured_ops import (
    ONE_STEP,
    SCALAR_UNROLL_ELEMENTS,
    TWO_ACCUMULATORS,
    contiguous_load_iterator,
    has_indirect_loads_in_body,
    iterator_extents,
    operand_maps,
    reduction_iterators,
)
from dlc.passes.types import memref_of, vector_type, zero_attribute

# The vector.reduction kind of each combining op.
_REDUCTION_KINDS: dict[type[Operation], str] = {
    arith.AddfOp: "add", arith.AddiOp: "add", arith.MulfOp: "mul", arith.MuliOp: "mul",
    arith.MaximumfOp: "maximumf", arith.MinimumfOp: "minimumf",
    arith.MaxnumfOp: "maxnumf", arith.MinnumfOp: "minnumf",
    arith.MaxSIOp: "maxsi", arith.MaxUIOp: "maxui", arith.MinSIOp: "minsi", arith.MinUIOp: "minui",
    arith.AndIOp: "and", arith.OrIOp: "or", arith.XOrIOp: "xor",
}  # fmt: skip

# Maximum number of ops in the bodies of unrolled scalar loops. The loop overhead costs about as much as such a body.
_MAX_UNROLLED_BODY_OPS = 24


@dataclass(frozen=True)
class VectorizePass(KernelPass):
    """Compute each structured op on a tile with one vector per operand.

        linalg.generic (w, o, k): (w, k), (k, o) → (w, o)  ins(%x, %w) outs(%acc) { mulf; addf }
      →
        %a = vector.transfer_read %acc : vector<14x32xf32>
        %r = scf.for %k = 0 to 192 iter_args(%s = %a) {
          %xv = vector.transfer_read %x[0, %k] {(w, k) -> (w, 0)} : vector<14x32xf32>
          %wv = vector.transfer_read %w[%k, 0] {(k, o) -> (0, o)} : vector<14x32xf32>
          scf.yield (vector.fma %xv, %wv, %s) }
        vector.transfer_write %r, %acc

    The parallel iterators are the vector's dimensions, in the storage order of the output; the reduced ones are loops. A
    product added to an accumulator becomes an fma, and so does one with the `contract` flag. A body that loads from computed
    addresses runs on scalars, unrolled by a few elements.

        (w, p, c): (w, p floordiv 4, c)   →   %xv = vector.shape_cast (vector.transfer_read %x[0, 0, 1]
                                                  {(w, g, c) -> (w, g, 0)} : vector<8x4x4xf32>) to vector<8x16xf32>

    An operand that repeats elements along an iterator is read with a separate axis for the repetitions. A reduced iterator
    along which such an operand is contiguous is unrolled: with constant offsets, all of its iterations extract their lanes from
    one contiguous load.

    Requires static shapes, and indexing maps whose results are iterators or `iterator floordiv constant`. Leaves no `linalg`.
    """

    name = "vectorize"

    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        constants = ConstantPool(kernel)
        for op in list(kernel.walk()):
            if isinstance(op, linalg.FillOp | linalg.GenericOp):
                block = op.parent
                assert block is not None
                _Vectorizer(op, OpBuilder(constants, block, op.location, anchor=op)).run()
                erase_op(op)


class _Vectorizer:
    """Vectorize one structured op; `axes` are the iterators that are vector dimensions, `loops` the others."""

    def __init__(self, op: linalg.GenericOp | linalg.FillOp, builder: OpBuilder) -> None:
        self.op = op
        self.builder = builder
        self.body = op.regions[0].block
        self.body_ops = set(self.body.ops)
        self.maps = operand_maps(op)
        self.extents = [int(extent) for extent in iterator_extents(op)]
        self.reduced = reduction_iterators(op)
        self.output = op.operands[-1]
        output_iterators = [_position(e) for e in self.maps[-1].results]
        # In a body with loads from computed addresses, the lanes are those of the loads, if these are contiguous.
        has_loads = has_indirect_loads_in_body(op)
        lane_iterator = contiguous_load_iterator(op) if has_loads else None
        self.axes: list[int] = [lane_iterator] if lane_iterator in output_iterators else [] if has_loads else output_iterators
        # Whether loads from computed addresses are vector loads.
        self.has_vector_loads = bool(self.axes) and has_loads
        self.shape = tuple(self.extents[d] for d in self.axes)
        self.loops = [d for d in range(len(self.extents)) if d not in self.axes]
        self.unrolled = set(self.inner_repetition_loops())

    def run(self) -> None:
        if isinstance(self.op, linalg.FillOp):
            self.write(self.builder, self.splat(self.builder, self.op.operands[0]), {})
        elif self.is_horizontal():
            self.reduce_horizontally()
        elif all(self.reduced[d] for d in self.loops):
            start = self.accumulator(self.builder, {})
            result = (
                self.reduction(self.builder, self.loops, start, {}) if self.loops else self.compute(self.builder, start, {})
            )
            self.write(self.builder, result, {})
        else:
            self.scalar_loops(self.builder, self.loops, {})

    def accumulator(self, builder: OpBuilder, loop_indices: dict[int, Index]) -> SSAValue:
        """Return the contents of the output; where the body does not read it, a zero of its type."""
        if self.body.args[-1].first_use:
            return self.read(builder, len(self.op.operands) - 1, loop_indices)
        element = memref_of(self.output).element_type
        return self.splat(builder, builder.constants.get(zero_attribute(element), element))

    def reduction(self, builder: OpBuilder, dims: Sequence[int], carried: SSAValue, loop_indices: dict[int, Index]) -> SSAValue:
        """Emit loops over the reduced iterators, with the accumulator as iter_arg."""
        if not dims:
            return self.compute(builder, carried, loop_indices)
        d, *inner_dims = dims
        if d in self.unrolled:
            for k in range(self.extents[d]):
                carried = self.reduction(builder, inner_dims, carried, {**loop_indices, d: k})
            return carried
        if not inner_dims and TWO_ACCUMULATORS in self.op.attributes and self.extents[d] % 2 == 0:
            return self.two_accumulators(builder, d, carried, loop_indices)
        loop = builder.loop(0, self.extents[d], 1, [carried], name=f"k{d}")
        if UNROLLED in self.op.attributes:
            loop.attributes[UNROLLED] = UnitAttr()
        body_builder = builder.at_block_end(loop.body.block)
        i, accumulator = loop.body.block.args
        accumulator.name_hint = "acc"
        body_builder.yield_(self.reduction(body_builder, inner_dims, accumulator, {**loop_indices, d: i}))
        return loop.res[0]

    def two_accumulators(self, builder: OpBuilder, d: int, carried: SSAValue, loop_indices: dict[int, Index]) -> SSAValue:
        """Sum the two halves of the reduced iterator separately, to halve the length of the dependence chain."""
        half = self.extents[d] // 2
        element = memref_of(self.output).element_type
        zero = self.splat(builder, builder.constants.get(zero_attribute(element), element))
        loop = builder.loop(0, half, 1, [carried, zero], name=f"k{d}")
        body_builder = builder.at_block_end(loop.body.block)
        i, *sums = loop.body.block.args
        for value in sums:
            value.name_hint = "acc"
        indices = i, body_builder.add(i, half)
        body_builder.yield_(
            *(self.compute(body_builder, acc, {**loop_indices, d: k}) for acc, k in zip(sums, indices, strict=True))
        )
        return builder.op(arith.AddfOp(loop.res[0], loop.res[1]))

    def scalar_loops(self, builder: OpBuilder, dims: Sequence[int], loop_indices: dict[int, Index]) -> None:
        """Emit loops over scalar elements, the innermost unrolled if the body is short."""
        if not dims:
            self.write(builder, self.compute(builder, self.accumulator(builder, loop_indices), loop_indices), loop_indices)
            return
        d, *inner_dims = dims
        step = SCALAR_UNROLL_ELEMENTS if not inner_dims and len(self.body_ops) <= _MAX_UNROLLED_BODY_OPS else 1
        main_extent = self.extents[d] // step * step
        if main_extent:
            for body_builder, start in builder.each(0, main_extent, step, f"k{d}"):
                for k in range(step):
                    self.scalar_loops(body_builder, inner_dims, {**loop_indices, d: body_builder.add(start, k)})
        for k in range(main_extent, self.extents[d]):
            self.scalar_loops(builder, inner_dims, {**loop_indices, d: k})

    def compute(self, builder: OpBuilder, accumulator: SSAValue, loop_indices: dict[int, Index]) -> SSAValue:
        """Emit the body on vectors; `loop_indices` maps loop iterators to their current values."""
        values: dict[SSAValue, SSAValue] = {self.body.args[-1]: accumulator}
        # Values that are equal in all lanes, from which addresses are computed.
        scalars: dict[SSAValue, SSAValue] = {}
        for k, arg in enumerate(self.body.args[:-1]):
            if (use := arg.first_use) is not None:
                values[arg] = self.read(_located_like(builder, use.operation), k, loop_indices)
                values[arg].name_hint = arg.name_hint

        def lookup(value: SSAValue) -> SSAValue:
            if value not in values:
                values[value] = self.splat(builder, scalars.get(value, value))
            return values[value]

        op_builder = builder
        for op in self.body.ops:
            builder = _located_like(op_builder, op)
            if self.has_vector_loads and self.is_uniform(op, scalars):
                scalars[op.results[0]] = self.emit_uniform(builder, op, scalars, loop_indices)
                continue
            match op:
                case linalg.YieldOp():
                    return lookup(op.operands[0])
                case linalg.IndexOp():
                    values[op.result] = self.iterator_values(builder, op.dim.value.data, loop_indices)
                case arith.ConstantOp():
                    values[op.result] = self.splat(builder, builder.constants.get(op.value, op.result.type))
                case memref.LoadOp() if self.has_vector_loads:
                    *outer, last = op.indices
                    first = [scalars.get(i, i) for i in (*outer, *self.uniform_terms(last))]
                    indices = [*first, *(0 for _ in op.indices[len(first) :])]
                    rank = len(op.indices)
                    lanes = AffineMap(rank, 0, (AffineDimExpr(rank - 1),))
                    values[op.results[0]] = builder.transfer_read(op.memref, indices, self.shape, lanes)
                case memref.LoadOp() if self.shape:
                    load_indices = [builder.constants.get(cast(arith.ConstantOp, i.owner).value, index) for i in op.indices]
                    load = memref.LoadOp.create(operands=[op.memref, *load_indices], result_types=[op.results[0].type])
                    values[op.results[0]] = self.splat(builder, builder.op(load, op.results[0].name_hint))
                case arith.MulfOp() if self.fused_addition(op) is not None:
                    pass
                case _:
                    product = next(
                        (p for p in map(_owner, op.operands) if p is not None and self.fused_addition(p) is op), None
                    )
                    if product is not None:
                        values[op.results[0]] = self.multiply_add(builder, op, product, lookup)
                    else:
                        values[op.results[0]] = self.vectorize_op(builder, op, [lookup(v) for v in op.operands])
        raise AssertionError("a structured op's body ends in linalg.yield")

    def is_uniform(self, op: Operation, scalars: Mapping[SSAValue, SSAValue]) -> bool:
        """Return whether an op of the body has the same result in all lanes."""
        if isinstance(op, linalg.IndexOp):
            return op.dim.value.data not in self.axes
        defined_in_body = [v for v in op.operands if v.owner is self.body or _owner(v) in self.body_ops]
        return bool(op.results) and all(v in scalars for v in defined_in_body)

    def emit_uniform(
        self, builder: OpBuilder, op: Operation, scalars: Mapping[SSAValue, SSAValue], loop_indices: dict[int, Index]
    ) -> SSAValue:
        """Emit an op with the same result in all lanes as a scalar op."""
        match op:
            case linalg.IndexOp():
                return builder.value(loop_indices[op.dim.value.data])
            case arith.ConstantOp():
                return builder.constants.get(op.value, op.result.type)
            case _:
                copy = op.create(
                    operands=[scalars.get(v, v) for v in op.operands],
                    result_types=[r.type for r in op.results],
                    properties=op.properties,
                    attributes=op.attributes,
                )
                return builder.op(copy, op.results[0].name_hint)

    def uniform_terms(self, last: SSAValue) -> list[SSAValue]:
        """Return the terms of an index that are added to the lane iterator."""
        terms = last.owner.operands if isinstance(last.owner, arith.AddiOp) else ()
        return [t for t in terms if not (isinstance(t.owner, linalg.IndexOp) and t.owner.dim.value.data in self.axes)]

    def vectorize_op(self, builder: OpBuilder, op: Operation, operands: Sequence[SSAValue]) -> SSAValue:
        """Emit a scalar op on whole vectors."""
        types = [vector_type(self.shape, r.type) if self.shape else r.type for r in op.results]
        vector_op = op.create(operands=operands, result_types=types, properties=op.properties, attributes=op.attributes)
        return builder.op(vector_op, op.results[0].name_hint)

    def fused_addition(self, product: Operation) -> Operation | None:
        """Return the addition that a product fuses with into an fma: to the accumulator, or with the `contract` flag."""
        if not isinstance(product, arith.MulfOp) or not (any(self.reduced) or ONE_STEP in self.op.attributes):
            return None
        uses = list(product.result.uses)
        if len(uses) != 1 or not isinstance(uses[0].operation, arith.AddfOp):
            return None
        addition = uses[0].operation
        contracts = FastMathFlag.ALLOW_CONTRACT in addition.fastmath.data
        first = next(o for o in map(_owner, addition.operands) if isinstance(o, arith.MulfOp))
        return addition if first is product and (contracts or self.body.args[-1] in addition.operands) else None

    def multiply_add(
        self, builder: OpBuilder, op: Operation, product: Operation, lookup: Callable[[SSAValue], SSAValue]
    ) -> SSAValue:
        addend = next(v for v in op.operands if v is not product.results[0])
        operands = [*map(lookup, product.operands), lookup(addend)]
        fma_class = vector.FMAOp if self.shape else math.FmaOp
        fma = fma_class.create(operands=operands, result_types=[operands[2].type])
        if not self.shape:
            fma.properties["fastmath"] = cast(arith.AddfOp, op).fastmath
        return builder.op(fma, op.results[0].name_hint)

    def iterator_values(self, builder: OpBuilder, d: int, loop_indices: dict[int, Index]) -> SSAValue:
        """Return the value of iterator `d` in every lane."""
        if d in loop_indices:
            return self.splat(builder, builder.value(loop_indices[d]))
        axis = self.axes.index(d)
        iota_type = vector_type((self.extents[d], *[1] * (len(self.axes) - axis - 1)), index)
        dense = DenseIntOrFPElementsAttr.from_list(cast(Any, iota_type), list(range(self.extents[d])))
        iota = builder.constants.get(dense, iota_type)
        result_type = vector_type(self.shape, index)
        return (
            iota
            if result_type == iota_type
            else builder.op(vector.BroadcastOp.create(operands=[iota], result_types=[result_type]))
        )

    def splat(self, builder: OpBuilder, scalar: SSAValue) -> SSAValue:
        return builder.splat(scalar, self.shape) if self.shape else scalar

    def read(self, builder: OpBuilder, k: int, loop_indices: dict[int, Index]) -> SSAValue:
        """Read operand `k` as a vector over the axes, broadcast along those that the operand does not have."""
        operand = self.op.operands[k]
        if not isinstance(operand.type, MemRefType):
            return self.splat(builder, operand)
        positions = [_position(e) for e in self.maps[k].results]
        repeats = {d: n for d, n in zip(positions, map(_repetitions, self.maps[k].results), strict=True) if n > 1}
        indices: list[Index] = [loop_indices.get(d, 0) for d in positions]
        if not any(d in positions for d in self.axes):
            load = memref.LoadOp.create(
                operands=[operand, *map(builder.value, indices)], result_types=[memref_of(operand).element_type]
            )
            return self.splat(builder, builder.op(load))
        results: list[AffineExpr] = []
        shape: list[int] = []
        for d, size in zip(self.axes, self.shape, strict=True):
            results.append(AffineDimExpr(positions.index(d)) if d in positions else AffineConstantExpr(0))
            shape.append(size // repeats.get(d, 1))
            if d in repeats:
                results.append(AffineConstantExpr(0))
                shape.append(repeats[d])
        read = builder.transfer_read(operand, indices, tuple(shape), AffineMap(len(positions), 0, tuple(results)))
        if not repeats:
            return read
        element = memref_of(operand).element_type
        return builder.op(ShapeCastOp.create(operands=[read], result_types=[vector_type(self.shape, element)]))

    def inner_repetition_loops(self) -> Iterator[int]:
        """Yield the loop iterators along which an operand with repeated elements is contiguous."""
        for operand, map_ in zip(self.op.operands, self.maps, strict=True):
            if any(_repetitions(e) > 1 for e in map_.results):
                strides = zip(map(_position, map_.results), strides_of(operand), strict=True)
                yield from (d for d, stride in strides if stride == 1 and d in self.loops)

    def write(self, builder: OpBuilder, value: SSAValue, loop_indices: dict[int, Index]) -> None:
        positions = [_position(e) for e in self.maps[-1].results]
        indices: list[Index] = [loop_indices.get(d, 0) for d in positions]
        if not self.axes:
            builder.insert(memref.StoreOp.create(operands=[value, self.output, *map(builder.value, indices)]))
            return
        results = tuple(AffineDimExpr(positions.index(d)) for d in self.axes)
        builder.transfer_write(value, self.output, indices, AffineMap(len(positions), 0, results))

    def is_horizontal(self) -> bool:
        """Return whether the op reduces one row of partial results, with static strides, to a single element."""
        if self.axes or len(self.loops) != 1 or len(self.op.operands) != 2 or not self.reduced[0]:
            return False
        if not all(isinstance(stride, int) for stride in strides_of(self.op.operands[0])):
            return False
        first, last = self.body.first_op, self.body.last_op
        return (
            type(first) in _REDUCTION_KINDS
            and first is not None
            and first.next_op is last
            and set(first.operands) == set(self.body.args)
        )

    def reduce_horizontally(self) -> None:
        combine = self.body.first_op
        assert combine is not None
        source = self.op.operands[0]
        row = self.builder.transfer_read(source, [0], (self.extents[0],), AffineMap.identity(1))
        kind = vector.CombiningKindAttr(vector.CombiningKindFlag(_REDUCTION_KINDS[type(combine)]))
        total = vector.ReductionOp.create(
            operands=[row],
            result_types=[memref_of(source).element_type],
            properties={"kind": kind, "fastmath": arith.FastMathFlagsAttr("none")},
        )
        start = self.read(self.builder, 1, {})
        values: dict[SSAValue, SSAValue] = {self.body.args[0]: self.builder.op(total), self.body.args[1]: start}
        self.write(self.builder, self.vectorize_op(self.builder, combine, [values[v] for v in combine.operands]), {})


def _located_like(builder: OpBuilder, op: Operation) -> OpBuilder:
    """Return the builder with the location of an op of the body, which fusion may have moved from another op of the model."""
    return builder if isinstance(op.location, UnknownLoc) else builder.with_location(op.location)


def _position(expr: AffineExpr) -> int:
    match expr:
        case AffineDimExpr(position) | AffineBinaryOpExpr(
            AffineBinaryOpKind.FloorDiv, AffineDimExpr(position), AffineConstantExpr()
        ):
            return position
        case _:
            raise ValueError(f"vectorize: unsupported index expression {expr}; run tile-kernels before")


def _repetitions(expr: AffineExpr) -> int:
    """Return the number of times that an operand repeats each element along its iterator."""
    return expr.rhs.value if isinstance(expr, AffineBinaryOpExpr) and isinstance(expr.rhs, AffineConstantExpr) else 1


def _owner(value: SSAValue) -> Operation | None:
    return value.owner if isinstance(value.owner, Operation) else None
