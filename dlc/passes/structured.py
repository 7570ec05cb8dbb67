"""Build standard-dialect IR: an insertion point whose index arithmetic folds and shares constants.

builder = OpBuilder(ConstantPool(function), block)
offset = builder.add(outer, 3)            # an int when both operands are, else one arith.addi
view = builder.subview(buffer, (offset, 0), (1, 32), drop=(0,))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

from dlc.dialects.prefetch import PrefetchOp
from dlc.dialects.sizes import size_arguments, sizes_of, strides_of, symbol
from dlc.ir import (
    DYNAMIC_INDEX,
    AffineMap,
    Attribute,
    Block,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IndexType,
    IntegerAttr,
    LocationAttr,
    Operation,
    Region,
    SSAValue,
    StringAttr,
    VectorType,
    arith,
    erase_op,
    func,
    index,
    linalg,
    memref,
    scf,
    vector,
)
from dlc.passes.types import (
    PRIVATE,
    i64_array,
    in_bounds,
    index_attribute,
    map_attribute,
    memref_of,
    memref_type,
    segments,
    vector_type,
    zero_attribute,
)
from dlc.shapes.dims import Dim, Size, UndecidableError, is_nonnegative

Index: TypeAlias = "int | SSAValue"
# Attribute of a matrix product with a constant matrix: the value of the matrix.
CONSTANT_MATRIX = "dl.matrix"
# Attribute of a product of packed operands: the name of the dot-product instruction (a key of `PACKED_DOTS`).
PACKED_DOT = "dl.dot"
# Ops in index computations of a body, such as the condition of a causal mask.
INDEX_ARITHMETIC_OPS = (
    linalg.IndexOp, arith.ConstantOp, arith.IndexCastOp, arith.TruncIOp, arith.ExtSIOp, arith.AddiOp, arith.SubiOp,
    arith.MuliOp, arith.CmpiOp, arith.AndIOp, arith.OrIOp, arith.XOrIOp,
)  # fmt: skip


def erase_dead(block: Block) -> None:
    """Erase unused ops of a body, which is pure."""
    for op in reversed(list(block.ops)):
        if op.results and not any(r.first_use for r in op.results):
            erase_op(op)


class ConstantPool:
    """The constants of one function, each created once at the top of its body."""

    def __init__(self, function: func.FuncOp) -> None:
        self._block = function.body.block
        self._values: dict[tuple[Attribute, Attribute], SSAValue] = {}
        self._sizes: dict[Dim, SSAValue] = {}
        for op in self._block.ops:
            if isinstance(op, arith.ConstantOp):
                self._values.setdefault((op.value, op.result.type), op.result)

    def get(self, value: Attribute, type_: Attribute) -> SSAValue:
        key = (value, type_)
        if key not in self._values:
            op = arith.ConstantOp.create(result_types=[type_], properties={"value": value})
            first = self._block.first_op
            if first is None:
                self._block.add_op(op)
            else:
                self._block.insert_op_before(op, first)
            self._values[key] = op.result
            if isinstance(value, IntegerAttr):
                op.result.name_hint = f"c{value.value.data}" if value.value.data >= 0 else f"cm{-value.value.data}"
        return self._values[key]

    def index(self, value: int) -> SSAValue:
        return self.get(index_attribute(value), index)

    def size(self, size: Size) -> Index:
        """Return a size as an index: an int if it is static, else a value computed from the kernel's size arguments."""
        if isinstance(size, int):
            return size
        if size not in self._sizes:
            first = next((op for op in self._block.ops if not self._computes_size(op)), None)
            self._sizes[size] = self._compute_size(size, OpBuilder(self, self._block, anchor=first))
        return self._sizes[size]

    def _computes_size(self, op: Operation) -> bool:
        """Return whether an op is a constant or index arithmetic at the top of the function, as sizes are."""
        return isinstance(op, arith.ConstantOp) or (
            isinstance(op, arith.AddiOp | arith.MuliOp) and isinstance(op.result.type, IndexType)
        )

    def _compute_size(self, size: Dim, builder: OpBuilder) -> SSAValue:
        """Insert the ops that compute a polynomial of the kernel's size arguments."""
        symbols = {symbol(k): argument for k, argument in enumerate(size_arguments(self._block))}
        total: Index = 0
        for monomial, coefficient in size.terms.items():
            product: Index = coefficient
            for atom in monomial:
                if not isinstance(atom, str):
                    raise UndecidableError(
                        f"size {size} contains a division, which a kernel cannot compute; pass the quotient as a size"
                    )
                product = builder.multiply(symbols[atom], product)
            total = builder.add(total, product)
        return builder.value(total)


class OpBuilder(NamedTuple):
    """An insertion point: appends ops to `block`, or inserts them before `anchor` if given; every new op gets `location`."""

    constants: ConstantPool
    block: Block
    location: LocationAttr | None = None
    anchor: Operation | None = None

    def at_block_end(self, block: Block) -> OpBuilder:
        """Return a builder at the end of another block of the same function."""
        return self._replace(block=block, anchor=None)

    def with_location(self, location: LocationAttr) -> OpBuilder:
        """Return a builder whose ops get `location`."""
        return self._replace(location=location)

    def insert(self, op: Operation) -> Operation:
        if self.location is not None:
            op.location = self.location
        if self.anchor is not None:
            self.block.insert_op_before(op, self.anchor)
        else:
            self.block.add_op(op)
        return op

    def op(self, op: Operation, name: str | None = None) -> SSAValue:
        """Insert an op with one result and return the result."""
        value = self.insert(op).results[0]
        if name is not None:
            value.name_hint = name
        return value

    def value(self, i: Index) -> SSAValue:
        """Return an index as an SSA value."""
        return self.constants.index(i) if isinstance(i, int) else i

    def _binary(self, op: type[Operation], a: Index, b: Index) -> SSAValue:
        return self.op(op.create(operands=[self.value(a), self.value(b)], result_types=[index]))

    def add(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if b == 0 or a == 0:
            return a if b == 0 else b
        op = arith.AddiOp.create(
            operands=[self.value(a), self.value(b)],
            result_types=[index],
            properties={"overflowFlags": arith.IntegerOverflowAttr("none")},
        )
        return self.op(op)

    def floordiv(self, a: Index, b: Index) -> Index:
        """Return ⌊a / b⌋ of non-negative indices, b ≠ 0."""
        if isinstance(b, int) and (isinstance(a, int) or b == 1):
            return a // b if isinstance(a, int) else a
        return self._binary(arith.DivUIOp, a, b)

    def remainder(self, a: Index, b: int) -> Index:
        """Return a mod b of a non-negative index, b > 0."""
        if isinstance(a, int) or b == 1:
            return a % b if isinstance(a, int) else 0
        return self._binary(arith.RemUIOp, a, b)

    def subtract(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        if b == 0:
            return a
        properties = {"overflowFlags": arith.IntegerOverflowAttr("none")}
        op = arith.SubiOp.create(operands=[self.value(a), self.value(b)], result_types=[index], properties=properties)
        return self.op(op)

    def minimum(self, a: Index, b: Index) -> Index:
        """Return the smaller of two non-negative indices."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self._binary(arith.MinUIOp, a, b)

    def maximum(self, a: Index, b: Index) -> SSAValue:
        """Return the larger of two non-negative indices."""
        if isinstance(a, int) and isinstance(b, int):
            return self.value(max(a, b))
        return self._binary(arith.MaxUIOp, a, b)

    def multiply(self, a: Index, b: Index) -> Index:
        if isinstance(a, int):
            if isinstance(b, int):
                return a * b
            a, b = b, a
        if b in (0, 1):
            return a if b else 0
        properties = {"overflowFlags": arith.IntegerOverflowAttr("none")}
        op = arith.MuliOp.create(operands=[a, self.value(b)], result_types=[index], properties=properties)
        return self.op(op)

    def size(self, size: Size) -> Index:
        """Return a size without floor divisions as an index."""
        return self.constants.size(size)

    def compare(self, a: Index, relation: str, b: Index) -> SSAValue:
        """Compare two indices; `relation` is that of `arith.cmpi`, such as `eq`, `ult` (of non-negative indices) or `slt`."""
        return self.op(arith.CmpiOp(self.value(a), self.value(b), relation))

    def select(self, condition: SSAValue, a: Index, b: Index) -> SSAValue:
        """Return `a` if the condition holds, else `b`."""
        return self.op(arith.SelectOp(condition, self.value(a), self.value(b)))

    def prefetch(self, source: SSAValue, indices: Sequence[Index], hints: Mapping[str, Attribute]) -> None:
        """Prefetch the cache line of an element, which may be out of bounds."""
        self.insert(PrefetchOp.create(operands=[source, *map(self.value, indices)], properties=hints))

    def branch(self, condition: SSAValue) -> OpBuilder:
        """Insert an scf.if without results or else branch; return a builder for its body."""
        then_block = Block([scf.YieldOp()])
        self.insert(scf.IfOp(condition, [], Region(then_block)))
        return self._replace(block=then_block, anchor=then_block.last_op)

    def if_else(self, condition: SSAValue) -> tuple[OpBuilder, OpBuilder]:
        """Insert an scf.if with an else branch; return builders for both bodies."""
        then_block, else_block = Block([scf.YieldOp()]), Block([scf.YieldOp()])
        self.insert(scf.IfOp(condition, [], Region(then_block), Region(else_block)))
        return (
            self._replace(block=then_block, anchor=then_block.last_op),
            self._replace(block=else_block, anchor=else_block.last_op),
        )

    def alloca(
        self, element: Attribute, shape: tuple[Size, ...], name: str | None = None, space: Attribute = PRIVATE
    ) -> SSAValue:
        """Allocate a local buffer in memory space `space`."""
        _, dynamic = self.split(map(self.size, shape))
        op = memref.AllocaOp.create(
            operands=dynamic,
            result_types=[memref_type(element, shape, space=space)],
            properties=segments(len(dynamic), 0),
        )
        return self.op(op, name)

    def subview(self, source: SSAValue, offsets: Sequence[Index], sizes: Sequence[Size], drop: Sequence[int] = ()) -> SSAValue:
        """Return the subview of `source` at `offsets`; the dimensions in `drop` (of size 1) are rank-reduced."""
        t = memref_of(source)
        strides = strides_of(source)
        remaining_dims = [d for d in range(len(sizes)) if d not in drop]
        source_offset = t.get_offset()
        offset: Size | None = None
        if source_offset is not None and all(isinstance(o, int) for o in offsets):
            offset = source_offset
            for o, s in zip(offsets, strides, strict=True):
                offset = offset + cast(int, o) * s
        result_shape, result_strides = tuple(sizes[d] for d in remaining_dims), tuple(strides[d] for d in remaining_dims)
        result = memref_type(t.element_type, result_shape, result_strides, offset, t.memory_space)
        if result == t and tuple(sizes) == sizes_of(source):
            return source
        starts, dynamic_starts = self.split(offsets)
        extents, dynamic_extents = self.split(map(self.size, sizes))
        op = memref.SubviewOp.create(
            operands=[source, *dynamic_starts, *dynamic_extents],
            result_types=[result],
            properties={
                "static_offsets": starts,
                "static_sizes": extents,
                "static_strides": i64_array((1,) * len(sizes)),
                **segments(1, len(dynamic_starts), len(dynamic_extents), 0),
            },
        )
        return self.op(op)

    def reinterpret(self, root: SSAValue, offset: Size, shape: tuple[Size, ...], strides: tuple[Size, ...]) -> SSAValue:
        """Return the buffer `root` with another offset, shape and strides."""
        t = memref_of(root)
        result = memref_type(t.element_type, shape, strides, offset, t.memory_space)
        if result == t and shape == sizes_of(root):
            return root
        split_entries = [self.split(map(self.size, entries)) for entries in ((offset,), shape, strides)]
        names = ("static_offsets", "static_sizes", "static_strides")
        operand_counts = [1, *(len(dynamic) for _, dynamic in split_entries)]
        op = memref.ReinterpretCastOp.create(
            operands=[root, *(v for _, dynamic in split_entries for v in dynamic)],
            result_types=[result],
            properties={
                **{name: static for name, (static, _) in zip(names, split_entries, strict=True)},
                **segments(*operand_counts),
            },
        )
        return self.op(op, root.name_hint)

    def split(self, entries: Iterable[Index]) -> tuple[DenseArrayBase[Any], list[SSAValue]]:
        """Split indices into a static array, with `DYNAMIC_INDEX` for SSA values, and the list of these values."""
        indices = tuple(entries)
        static = i64_array(tuple(i if isinstance(i, int) else DYNAMIC_INDEX for i in indices))
        return static, [i for i in indices if not isinstance(i, int)]

    def loop(self, lower: Index, upper: Index, step: Index, carried: Sequence[SSAValue] = (), name: str = "i") -> scf.ForOp:
        """Insert an scf.for with an empty body; the caller fills it and ends it with `yield_`."""
        body = Block(arg_types=[index, *(v.type for v in carried)])
        body.args[0].name_hint = name
        op = scf.ForOp.create(
            operands=[self.value(lower), self.value(upper), self.value(step), *carried],
            result_types=[v.type for v in carried],
            regions=[Region(body)],
        )
        self.insert(op)
        return op

    def each(self, lower: Index, upper: Index, step: Index, name: str = "i") -> Iterator[tuple[OpBuilder, SSAValue]]:
        """Insert an scf.for; yield, once, a builder for its body and the induction variable."""
        loop = self.loop(lower, upper, step, name=name)
        body_builder = self.at_block_end(loop.body.block)
        yield body_builder, loop.body.block.args[0]
        body_builder.yield_()

    def yield_(self, *values: SSAValue) -> None:
        self.insert(scf.YieldOp.create(operands=values))

    def compute_size(self, size: Size) -> Index:
        """Return a size as an index, like `size`, but insert the floor divisions that it contains at this point."""
        if isinstance(size, int) or not size.is_divided:
            return self.size(size)
        total: Index = 0
        for monomial, coefficient in size.terms.items():
            product: Index = coefficient
            for atom in monomial:
                factor = self.size(Dim.symbol(atom)) if isinstance(atom, str) else self._compute_quotient(*atom)
                product = self.multiply(self.value(factor), product)
            total = self.add(total, product)
        return total

    def _compute_quotient(self, dividend: Dim, divisor: Dim) -> Index:
        """Return a floor division of sizes; the dividend may be negative."""
        a, b = self.compute_size(dividend), self.value(self.compute_size(divisor))
        if is_nonnegative(dividend):
            return self.floordiv(a, b)
        # For a negative a: a // b = -((b - 1 - a) // b).
        rounded_up = self.floordiv(self.subtract(self.add(b, -1), a), b)
        return self.select(self.compare(a, "slt", 0), self.multiply(rounded_up, -1), self.floordiv(a, b))

    def parallel(self, level: str, bounds: Sequence[tuple[Size, int]], names: Sequence[str]) -> scf.ParallelOp:
        """Insert an scf.parallel over (extent, step) pairs with an empty body.

        `level` is `grid` (tasks or work-groups) or `item` (the work-items of one group).
        """
        body = Block(arg_types=[index] * len(bounds))
        for arg, name in zip(body.args, names, strict=True):
            arg.name_hint = name
        zero = self.constants.index(0)
        n = len(bounds)
        op = scf.ParallelOp.create(
            operands=[
                *[zero] * n,
                *(self.value(self.compute_size(e)) for e, _ in bounds),
                *(self.constants.index(s) for _, s in bounds),
            ],
            properties=segments(n, n, n, 0),
            attributes={"level": StringAttr(level)},
            regions=[Region(body)],
        )
        self.insert(op)
        return op

    def transfer_read(
        self,
        source: SSAValue,
        indices: Sequence[Index],
        shape: tuple[int, ...],
        map_: AffineMap,
        padding: SSAValue | None = None,
        masked_dims: Sequence[int] = (),
    ) -> SSAValue:
        """Read a vector from a memref, starting at `indices`, along the axes in `map_`.

        Elements outside of the memref along `masked_dims` of the vector are `padding`; along other dims they are in bounds.
        """
        element = memref_of(source).element_type
        padding = self.constants.get(zero_attribute(element), element) if padding is None else padding
        op = vector.TransferReadOp.create(
            operands=[source, *(self.value(i) for i in indices), padding],
            result_types=[vector_type(shape, element)],
            properties={
                "in_bounds": in_bounds(len(shape), tuple(masked_dims)),
                "permutation_map": map_attribute(map_),
                **segments(1, len(indices), 1, 0),
            },
        )
        return self.op(op)

    def transfer_write(
        self,
        value: SSAValue,
        destination: SSAValue,
        indices: Sequence[Index],
        map_: AffineMap,
        masked_dims: Sequence[int] = (),
    ) -> None:
        """Write a vector to the elements that `transfer_read` reads with the same arguments; those outside are not written."""
        self.insert(
            vector.TransferWriteOp.create(
                operands=[value, destination, *(self.value(i) for i in indices)],
                properties={
                    "in_bounds": in_bounds(len(map_.results), tuple(masked_dims)),
                    "permutation_map": map_attribute(map_),
                    **segments(1, 1, len(indices), 0),
                },
            )
        )

    def splat(self, scalar: SSAValue, shape: tuple[int, ...]) -> SSAValue:
        """Broadcast a scalar or vector to a vector; a constant scalar gives a dense constant."""
        t = vector_type(shape, cast(Any, scalar.type).element_type if isinstance(scalar.type, VectorType) else scalar.type)
        if isinstance(scalar.owner, arith.ConstantOp) and isinstance(scalar.owner.value, IntegerAttr | FloatAttr):
            number = cast("IntegerAttr[Any] | FloatAttr[Any]", scalar.owner.value).value.data
            return self.constants.get(DenseIntOrFPElementsAttr.from_list(cast(Any, t), [number]), t)
        return self.op(vector.BroadcastOp.create(operands=[scalar], result_types=[t]))
