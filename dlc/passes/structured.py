"""Writing standard-dialect IR: one place to append ops, with index arithmetic folded and constants shared.

place = Place(Constants(function), block)
offset = place.add(outer, 3)            # an int when both are, else one arith.addi
view = place.subview(buffer, (offset, 0), (1, 32), drop=(0,))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

from dlc.dialects.sizes import size_arguments, sizes_of, strides_of, symbol
from dlc.dims import Dim, Size, UndecidableError
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
    arith,
    func,
    index,
    linalg,
    memref,
    scf,
    vector,
)
from dlc.passes.types import (
    PRIVATE,
    i64s,
    in_bounds,
    index_attribute,
    map_attribute,
    memref_of,
    memref_type,
    segments,
    vector_type,
    zero_attribute,
)

Index: TypeAlias = "int | SSAValue"
# Says of a product what is in the matrix that one operand is, where that is known.
MATRIX = "dl.matrix"
# Says of a product by which words its factors go (`DOTS`).
DOT = "dl.dot"
# What places and known numbers are computed with in bodies.
PLACE_ARITHMETIC = (
    linalg.IndexOp, arith.ConstantOp, arith.IndexCastOp, arith.TruncIOp, arith.ExtSIOp, arith.AddiOp, arith.SubiOp,
    arith.MuliOp, arith.CmpiOp, arith.AndIOp, arith.OrIOp, arith.XOrIOp,
)  # fmt: skip


class Constants:
    """The constants of one function, at its top, each once."""

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
        """A size as an index: itself if it is a number, else computed after the constants from the kernel's sizes."""
        if isinstance(size, int):
            return size
        if size not in self._sizes:
            first = next((op for op in self._block.ops if not self._is_size(op)), None)
            self._sizes[size] = self._computed(size, Place(self, self._block, anchor=first))
        return self._sizes[size]

    def _is_size(self, op: Operation) -> bool:
        return isinstance(op, arith.ConstantOp) or (
            isinstance(op, arith.AddiOp | arith.MuliOp) and isinstance(op.result.type, IndexType)
        )

    def _computed(self, size: Dim, place: Place) -> SSAValue:
        known = {symbol(k): argument for k, argument in enumerate(size_arguments(self._block))}
        total: Index = 0
        for monomial, coefficient in size.terms.items():
            product: Index = coefficient
            for atom in monomial:
                if not isinstance(atom, str):
                    raise UndecidableError(f"a kernel's size {size} is divided in the kernel")
                product = place.times(known[atom], product)
            total = place.add(total, product)
        return place.value(total)


class Place(NamedTuple):
    """Appends ops to the end of `block`, or before `anchor` where one is given; every op gets `location`."""

    constants: Constants
    block: Block
    location: LocationAttr | None = None
    anchor: Operation | None = None

    def inside(self, block: Block) -> Place:
        """The end of another block of the same function."""
        return self._replace(block=block, anchor=None)

    def located(self, location: LocationAttr) -> Place:
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
        """Appends an op with one result and returns it."""
        value = self.insert(op).results[0]
        if name is not None:
            value.name_hint = name
        return value

    def value(self, i: Index) -> SSAValue:
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

    def floordiv(self, a: Index, b: int) -> Index:
        if isinstance(a, int) or b == 1:
            return a // b if isinstance(a, int) else a
        return self._binary(arith.DivUIOp, a, b)

    def quotient(self, a: Index, b: SSAValue) -> SSAValue:
        """⌊a / b⌋ of indices that are not negative, b not zero."""
        return self._binary(arith.DivUIOp, a, b)

    def remainder(self, a: Index, b: int) -> Index:
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
        """The smaller of two indices that are not negative."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self._binary(arith.MinUIOp, a, b)

    def maximum(self, a: Index, b: Index) -> SSAValue:
        """The larger of two indices that are not negative."""
        if isinstance(a, int) and isinstance(b, int):
            return self.value(max(a, b))
        return self._binary(arith.MaxUIOp, a, b)

    def multiply(self, a: Index, b: int) -> Index:
        return a * b if isinstance(a, int) else self.times(a, b)

    def times(self, a: SSAValue, b: Index) -> Index:
        if b in (0, 1):
            return a if b else 0
        properties = {"overflowFlags": arith.IntegerOverflowAttr("none")}
        op = arith.MuliOp.create(operands=[a, self.value(b)], result_types=[index], properties=properties)
        return self.op(op)

    def size(self, size: Size) -> Index:
        """A size as an index."""
        return self.constants.size(size)

    def compare(self, a: Index, relation: str, b: Index) -> SSAValue:
        """Whether a is `ult`, `ule` or `eq` b, for indices that are not negative."""
        return self.op(arith.CmpiOp(self.value(a), self.value(b), relation))

    def select(self, condition: SSAValue, a: Index, b: Index) -> SSAValue:
        """One index or the other."""
        return self.op(arith.SelectOp(condition, self.value(a), self.value(b)))

    def branch(self, condition: SSAValue) -> Place:
        """The inside of an scf.if without results, ended; ops go before its end."""
        inner = Block([scf.YieldOp()])
        self.insert(scf.IfOp(condition, [], Region(inner)))
        return self._replace(block=inner, anchor=inner.last_op)

    def either(self, condition: SSAValue) -> tuple[Place, Place]:
        """As `branch`, and where the condition does not hold."""
        blocks = Block([scf.YieldOp()]), Block([scf.YieldOp()])
        self.insert(scf.IfOp(condition, [], *map(Region, blocks)))
        first, second = (self._replace(block=b, anchor=b.last_op) for b in blocks)
        return first, second

    def alloca(
        self, element: Attribute, shape: tuple[Size, ...], name: str | None = None, space: Attribute = PRIVATE
    ) -> SSAValue:
        _, dynamic = self.split(map(self.size, shape))
        op = memref.AllocaOp.create(
            operands=dynamic,
            result_types=[memref_type(element, shape, space=space)],
            properties=segments(len(dynamic), 0),
        )
        return self.op(op, name)

    def subview(self, source: SSAValue, offsets: Sequence[Index], sizes: Sequence[Size], drop: Sequence[int] = ()) -> SSAValue:
        """The window of `source` at `offsets`; dimensions in `drop` (of size 1) leave the type."""
        t = memref_of(source)
        strides = strides_of(source)
        keep = [d for d in range(len(sizes)) if d not in drop]
        base = t.get_offset()
        offset: Size | None = None
        if base is not None and all(isinstance(o, int) for o in offsets):
            offset = base
            for o, s in zip(offsets, strides, strict=True):
                offset = offset + cast(int, o) * s
        kept = tuple(sizes[d] for d in keep), tuple(strides[d] for d in keep)
        result = memref_type(t.element_type, *kept, offset, t.memory_space)
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
                "static_strides": i64s((1,) * len(sizes)),
                **segments(1, len(dynamic_starts), len(dynamic_extents), 0),
            },
        )
        return self.op(op)

    def reinterpret(self, root: SSAValue, offset: Size, shape: tuple[Size, ...], strides: tuple[Size, ...]) -> SSAValue:
        """The buffer `root` seen with another shape and layout."""
        t = memref_of(root)
        result = memref_type(t.element_type, shape, strides, offset, t.memory_space)
        if result == t and shape == sizes_of(root):
            return root
        lists = [self.split(map(self.size, entries)) for entries in ((offset,), shape, strides)]
        names = ("static_offsets", "static_sizes", "static_strides")
        counts = [1, *(len(dynamic) for _, dynamic in lists)]
        op = memref.ReinterpretCastOp.create(
            operands=[root, *(v for _, dynamic in lists for v in dynamic)],
            result_types=[result],
            properties={
                **{name: static for name, (static, _) in zip(names, lists, strict=True)},
                **segments(*counts),
            },
        )
        return self.op(op, root.name_hint)

    def split(self, entries: Iterable[Index]) -> tuple[DenseArrayBase[Any], list[SSAValue]]:
        """A list of indices as numbers, and the operands for those that are none."""
        given = tuple(entries)
        return i64s(tuple(e if isinstance(e, int) else DYNAMIC_INDEX for e in given)), [
            e for e in given if not isinstance(e, int)
        ]

    def loop(self, lower: Index, upper: Index, step: Index, carried: Sequence[SSAValue] = (), name: str = "i") -> scf.ForOp:
        """An scf.for with an empty body; the caller appends to it and ends it with `yield_`."""
        body = Block(arg_types=[index, *(v.type for v in carried)])
        body.args[0].name_hint = name
        op = scf.ForOp.create(
            operands=[self.value(lower), self.value(upper), self.value(step), *carried],
            result_types=[v.type for v in carried],
            regions=[Region(body)],
        )
        self.insert(op)
        return op

    def yield_(self, *values: SSAValue) -> None:
        self.insert(scf.YieldOp.create(operands=values))

    def divided(self, size: Size) -> Index:
        """As `size`, for a size that floor divisions may be in, computed here."""
        if isinstance(size, int) or not size.is_divided:
            return self.size(size)
        total: Index = 0
        for monomial, coefficient in size.terms.items():
            product: Index = coefficient
            for atom in monomial:
                if isinstance(atom, str):
                    factor = self.value(self.size(Dim.symbol(atom)))
                else:
                    factor = self.quotient(self.divided(atom[0]), self.value(self.divided(atom[1])))
                product = self.times(factor, product)
            total = self.add(total, product)
        return total

    def parallel(self, level: str, bounds: Sequence[tuple[Size, int]], names: Sequence[str]) -> scf.ParallelOp:
        """An scf.parallel over (extent, step) pairs, its body empty: a `grid`, or the `item`s of one of its points."""
        body = Block(arg_types=[index] * len(bounds))
        for arg, name in zip(body.args, names, strict=True):
            arg.name_hint = name
        zero = self.constants.index(0)
        n = len(bounds)
        op = scf.ParallelOp.create(
            operands=[
                *[zero] * n,
                *(self.value(self.divided(e)) for e, _ in bounds),
                *(self.constants.index(s) for _, s in bounds),
            ],
            properties=segments(n, n, n, 0),
            attributes={"level": StringAttr(level)},
            regions=[Region(body)],
        )
        self.insert(op)
        return op

    def transfer_read(self, source: SSAValue, indices: Sequence[Index], shape: tuple[int, ...], map_: AffineMap) -> SSAValue:
        """The vector that `map_` selects of a memref from `indices` on, all in bounds."""
        element = memref_of(source).element_type
        op = vector.TransferReadOp.create(
            operands=[source, *(self.value(i) for i in indices), self.constants.get(zero_attribute(element), element)],
            result_types=[vector_type(shape, element)],
            properties={
                "in_bounds": in_bounds(len(shape)),
                "permutation_map": map_attribute(map_),
                **segments(1, len(indices), 1, 0),
            },
        )
        return self.op(op)

    def transfer_write(self, value: SSAValue, target: SSAValue, indices: Sequence[Index], map_: AffineMap) -> None:
        """Writes a vector where `transfer_read` with the same map would read it."""
        self.insert(
            vector.TransferWriteOp.create(
                operands=[value, target, *(self.value(i) for i in indices)],
                properties={
                    "in_bounds": in_bounds(len(map_.results)),
                    "permutation_map": map_attribute(map_),
                    **segments(1, 1, len(indices), 0),
                },
            )
        )

    def splat(self, scalar: SSAValue, shape: tuple[int, ...]) -> SSAValue:
        """A scalar in every element; a dense constant where the scalar is one."""
        t = vector_type(shape, scalar.type)
        if isinstance(scalar.owner, arith.ConstantOp) and isinstance(scalar.owner.value, IntegerAttr | FloatAttr):
            number = cast("IntegerAttr[Any] | FloatAttr[Any]", scalar.owner.value).value.data
            return self.constants.get(DenseIntOrFPElementsAttr.from_list(cast(Any, t), [number]), t)
        return self.op(vector.BroadcastOp.create(operands=[scalar], result_types=[t]))
