"""Loops on buffers, for ops whose steps build on one another: an op writes its kernel with these.

`with b.grid(rows) as (i,)` and `with b.loop(0, n) as k` open a loop and go on inside; what follows the block stands behind it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.interfaces import Body
from dlc.dims import Dim, Size
from dlc.ir import (
    AffineDimExpr,
    AffineMap,
    AffineMapAttr,
    ArrayAttr,
    Attribute,
    Block,
    BoolAttr,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    LocationAttr,
    MemRefType,
    Operation,
    Region,
    SSAValue,
    StringAttr,
    VectorType,
    arith,
    index,
    memref,
    scf,
    vector,
)

# A place in a buffer: a number, what is computed, or a size that the kernel is given.
Index: TypeAlias = "SSAValue | Size"


def tiles(extent: Size, width: int) -> list[tuple[int, int, Size]]:
    """What cuts an extent: (where the first begins, how wide each is, how many), and what is left over as one more.

    An extent that the kernel is given goes one by one.
    """
    if not isinstance(extent, int):
        return [(0, 1, extent)]
    whole, rest = divmod(extent, width)
    return [part for part in ((0, width, whole), (extent - rest, rest, 1)) if part[1] and part[2]]


@dataclass
class Carrying:
    """A loop that is open: where it stands, what it carries, what it carries on, and what is left of that in the end."""

    at: SSAValue
    values: Sequence[SSAValue]
    following: Sequence[SSAValue] = ()
    results: Sequence[SSAValue] = ()


class Loops(Body):
    """Appends to the innermost open loop. Indices are never negative, and everything named is inside of its buffer.

    `sizes` are the values of those that the kernel is given.
    """

    def __init__(self, block: Block, location: LocationAttr, sizes: Mapping[Dim, SSAValue]) -> None:
        super().__init__(block, location)
        self.sizes = sizes

    def insert(self, op: Operation) -> Operation:
        """Appends any op."""
        if self.location is not None:
            op.location = self.location
        self.block.add_op(op)
        return op

    def at(self, i: Index) -> SSAValue:
        """An index as a value."""
        if isinstance(i, SSAValue):
            return i
        return self(arith.ConstantOp(IntegerAttr(i, index))) if isinstance(i, int) else self.size(i)

    def size(self, size: Dim) -> SSAValue:
        return self.sizes[size]

    @contextmanager
    def grid(self, *counts: Size, steps: Sequence[int] = ()) -> Generator[Sequence[SSAValue]]:
        """Points that do not know of one another: any may run first, or all at once. With `steps` they are so far apart."""
        body = Block(arg_types=[index] * len(counts))
        bounds = [*(0 for _ in counts), *counts, *(steps or (1 for _ in counts))]
        self.insert(
            scf.ParallelOp.create(
                operands=[self.at(n) for n in bounds],
                properties={"operandSegmentSizes": DenseArrayBase.from_list(IntegerType(32), [len(counts)] * 3 + [0])},
                attributes={"level": StringAttr("grid")},
                regions=[Region(body)],
            )
        )
        with self._inside(body):
            yield body.args
            self.insert(scf.ReduceOp())

    @contextmanager
    def loop(self, low: Index, high: Index, step: Index = 1, name: str = "i") -> Generator[SSAValue]:
        """low, low + step, … below high."""
        with self.carry([], low, high, step, name) as loop:
            yield loop.at

    @contextmanager
    def carry(
        self, values: Sequence[SSAValue], low: Index, high: Index, step: Index = 1, name: str = "i"
    ) -> Generator[Carrying]:
        """A loop in which each step leaves values (`following`) to the next one; the last step's are its `results`."""
        types = [v.type for v in values]
        body = Block(arg_types=[index, *types])
        body.args[0].name_hint = name
        operands = [self.at(low), self.at(high), self.at(step), *values]
        op = scf.ForOp.create(operands=operands, result_types=types, regions=[Region(body)])
        self.insert(op)
        loop = Carrying(body.args[0], body.args[1:], results=op.results)
        with self._inside(body):
            yield loop
            self.insert(scf.YieldOp.create(operands=loop.following))

    @contextmanager
    def _inside(self, block: Block) -> Generator[None]:
        outer, self.block = self.block, block
        yield
        self.block = outer

    # Indices

    def plus(self, i: Index, j: Index) -> SSAValue:
        return self(arith.AddiOp(self.at(i), self.at(j)))

    def minus(self, i: Index, j: Index) -> SSAValue:
        return self(arith.SubiOp(self.at(i), self.at(j)))

    def times(self, i: Index, j: Index) -> SSAValue:
        return self(arith.MuliOp(self.at(i), self.at(j)))

    def remainder(self, i: Index, j: Index) -> SSAValue:
        return self(arith.RemUIOp(self.at(i), self.at(j)))

    def halved(self, i: Index, times: Index) -> SSAValue:
        """i / 2^times, rounded down."""
        return self(arith.ShRUIOp(self.at(i), self.at(times)))

    def least(self, i: Index, j: Index) -> SSAValue:
        return self(arith.MinUIOp(self.at(i), self.at(j)))

    def if_zero(self, i: Index, x: Index, y: Index) -> SSAValue:
        """x where i is 0, else y."""
        return self(arith.SelectOp(self(arith.CmpiOp(self.at(i), self.at(0), "eq")), self.at(x), self.at(y)))

    def place_of(self, value: SSAValue) -> SSAValue:
        """An integer as an index."""
        return self(arith.IndexCastOp(value, index))

    # Buffers

    def spread(self, value: SSAValue, width: int) -> SSAValue:
        """A scalar in every lane."""
        return self(vector.BroadcastOp.create(operands=[value], result_types=[VectorType(value.type, (width,))]))

    def reduced(self, kind: str, lanes: SSAValue) -> SSAValue:
        """The lanes of a vector as one, by a `vector.kind`."""
        assert isinstance(lanes.type, VectorType)
        properties = {
            "kind": vector.CombiningKindAttr(vector.CombiningKindFlag(kind)),
            "fastmath": arith.FastMathFlagsAttr("none"),
        }
        element = cast("VectorType[Attribute]", lanes.type).element_type
        return self(vector.ReductionOp.create(operands=[lanes], result_types=[element], properties=properties))

    def local(self, element: Attribute, *shape: int) -> SSAValue:
        """A buffer of the point's own, for a few kilobytes."""
        segments = DenseArrayBase.from_list(IntegerType(32), [0, 0])
        type_ = MemRefType(element, shape)
        return self(memref.AllocaOp.create(result_types=[type_], properties={"operandSegmentSizes": segments}))

    def load(self, buffer: SSAValue, *places: Index) -> SSAValue:
        return self(memref.LoadOp.get(buffer, [self.at(i) for i in places]))

    def store(self, value: SSAValue, buffer: SSAValue, *places: Index) -> None:
        self.insert(memref.StoreOp.get(value, buffer, [self.at(i) for i in places]))

    def read(self, buffer: SSAValue, places: Sequence[Index], shape: Sequence[int], axes: Sequence[int]) -> SSAValue:
        """A vector from `places` on, whose dimensions run along these axes of the buffer."""
        element = _element(buffer)
        zero = FloatAttr(0.0, element) if is_float(element) else IntegerAttr(0, element)
        return self(
            vector.TransferReadOp.create(
                operands=[buffer, *map(self.at, places), self(arith.ConstantOp(zero))],
                result_types=[VectorType(element, shape)],
                properties={
                    **_whole(places, axes),
                    "operandSegmentSizes": DenseArrayBase.from_list(IntegerType(32), [1, len(places), 1, 0]),
                },
            )
        )

    def write(self, value: SSAValue, buffer: SSAValue, places: Sequence[Index], axes: Sequence[int]) -> None:
        """Writes a vector where `read` would read it."""
        self.insert(
            vector.TransferWriteOp.create(
                operands=[value, buffer, *map(self.at, places)],
                properties={
                    **_whole(places, axes),
                    "operandSegmentSizes": DenseArrayBase.from_list(IntegerType(32), [1, 1, len(places), 0]),
                },
            )
        )


def _element(buffer: SSAValue) -> Any:
    assert isinstance(buffer.type, MemRefType)
    return cast("MemRefType[Attribute]", buffer.type).element_type


def _whole(places: Sequence[Index], axes: Sequence[int]) -> dict[str, Attribute]:
    """The properties of a vector that is inside of its buffer."""
    return {
        "in_bounds": ArrayAttr([BoolAttr.from_bool(True)] * len(axes)),
        "permutation_map": AffineMapAttr(AffineMap(len(places), 0, tuple(AffineDimExpr(a) for a in axes))),
    }
