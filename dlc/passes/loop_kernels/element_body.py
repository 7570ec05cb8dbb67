"""Insertion of scalar code, with constant folding and ranges of integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

from dlc.dialects.dl import scalar
from dlc.dialects.dl.interfaces import Body
from dlc.ir import Attribute, Block, FastMathFlag, IndexType, IntegerType, Operation, SSAValue, arith, index, tensor
from dlc.passes.kernel_builder import KernelBuilder
from dlc.passes.structured import Index
from dlc.shapes.dims import Size

# Reads an element of a tensor at an index.
Read: TypeAlias = "Callable[[Sequence[Index]], SSAValue]"

_FOLDED: dict[type[Operation], Callable[[int, int], int]] = {
    arith.AddiOp: lambda a, b: a + b, arith.SubiOp: lambda a, b: a - b, arith.MuliOp: lambda a, b: a * b,
    arith.MinSIOp: min, arith.MaxSIOp: max, arith.AndIOp: lambda a, b: a & b, arith.OrIOp: lambda a, b: a | b,
    arith.XOrIOp: lambda a, b: a ^ b,
}  # fmt: skip
_WIDENING = (arith.IndexCastOp, arith.ExtSIOp, arith.ExtUIOp, arith.TruncIOp)
_INDEX_BITS = 64


class Range(NamedTuple):
    """The bounds of an integer, inclusive; `root` is an index that it exceeds by exactly `offset`, if there is one."""

    low: int
    high: int
    root: SSAValue | None = None
    offset: int = 0

    def plus(self, number: int) -> Range:
        """Return the range of the integer plus a number."""
        return Range(self.low + number, self.high + number, self.root, self.offset + number)


class IntegerRanges:
    """The ranges of SSA values: of constants, indices, and results of arithmetic on them."""

    def __init__(self) -> None:
        self._ranges: dict[SSAValue, Range] = {}
        # The in-bounds indices that index checks computed, by integer and axis size.
        self.checked: dict[tuple[SSAValue, Size], SSAValue] = {}

    def __getitem__(self, value: SSAValue) -> Range | None:
        number = scalar.constant_integer(value)
        return self._ranges.get(value) if number is None else Range(number, number)

    def __setitem__(self, value: SSAValue, bounds: Range) -> None:
        self._ranges[value] = bounds

    def simplify(self, op: Operation) -> int | SSAValue | None:
        """Return the value of an op if its operands' ranges determine it: a constant or one of its operands."""
        if isinstance(op, arith.SelectOp):
            condition = scalar.constant_integer(op.cond)
            return None if condition is None else op.lhs if condition else op.rhs
        if len(op.results) != 1 or not isinstance(op.results[0].type, IntegerType | IndexType):
            return None
        operands = [self[v] for v in op.operands]
        if not operands or any(r is None for r in operands):
            return None
        return _simplify(op, cast("list[Range]", operands))

    def record(self, op: Operation) -> None:
        """Record the range of the result of an op."""
        if len(op.results) != 1 or not isinstance(op.results[0].type, IntegerType | IndexType):
            return
        operands = [self[v] for v in op.operands]
        bounds: Range | None = None
        match op, operands:
            case arith.AndIOp(), [x, y] if (mask := _mask(x, y)) is not None:
                bounds = Range(0, mask)
            case arith.AddiOp(), [Range() as x, Range() as y] if y.low == y.high:
                bounds = x.plus(y.low)
            case arith.AddiOp(), [Range() as x, Range() as y] if x.low == x.high:
                bounds = y.plus(x.low)
            case arith.SubiOp(), [Range() as x, Range() as y] if y.low == y.high:
                bounds = x.plus(-y.low)
            case arith.SelectOp(), [_, Range() as x, Range() as y]:
                bounds = Range(min(x.low, y.low), max(x.high, y.high))
            case ((arith.IndexCastOp() | arith.ExtSIOp() | arith.TruncIOp()), [Range() as x]):
                bounds = x
            case arith.ExtUIOp(), [Range() as x] if x.low >= 0:
                bounds = x
            case _:
                pass
        if bounds is not None and _fits(bounds, cast(Attribute, op.results[0].type)):
            self._ranges[op.results[0]] = bounds


def _mask(x: Range | None, y: Range | None) -> int | None:
    """Return a non-negative operand of a bitwise and, which bounds the result."""
    constants = [r.low for r in (x, y) if r is not None and r.low == r.high >= 0]
    return min(constants, default=None)


def _fits(bounds: Range, type_: Attribute) -> bool:
    """Return whether a signed integer type holds all values, so that arithmetic did not wrap around."""
    bits = _INDEX_BITS if type_ == index else cast(IntegerType, type_).width.data
    limit = (1 << (bits - 1)) - 1
    return -limit - 1 <= bounds.low and bounds.high <= limit


def _simplify(op: Operation, operands: list[Range]) -> int | SSAValue | None:
    x, *others = operands
    y = others[0] if others else x
    if all(r.low == r.high for r in operands) and (fold := _FOLDED.get(type(op))) is not None:
        return fold(x.low, y.low)
    match op:
        case arith.CmpiOp():
            return _compare(op.predicate.value.data, x, y)
        case arith.AddiOp() | arith.SubiOp() if y.low == y.high == 0:
            return op.lhs
        case arith.AddiOp() if x.low == x.high == 0:
            return op.rhs
        case arith.MuliOp() if y.low == y.high == 1:
            return op.lhs
        case arith.MinSIOp() | arith.MinUIOp() if min(x.low, y.low) >= 0 or isinstance(op, arith.MinSIOp):
            return op.lhs if x.high <= y.low else op.rhs if y.high <= x.low else None
        case arith.MaxSIOp():
            return op.lhs if x.low >= y.high else op.rhs if y.low >= x.high else None
        case arith.AndIOp() if x.low >= 0 and y.low == y.high and (y.low & (y.low + 1)) == 0 and x.high <= y.low:
            return op.lhs
        case _ if isinstance(op, _WIDENING) and x.low == x.high and (x.low >= 0 or not isinstance(op, arith.ExtUIOp)):
            return x.low
        case _:
            return None


def _compare(predicate: int, x: Range, y: Range) -> int | None:
    """Return the result of arith.cmpi (eq, ne, slt, sle, sgt, sge, then unsigned ult … uge); None if it is not determined."""
    if predicate > 5:
        if min(x.low, y.low) < 0:
            return None
        predicate -= 4
    if predicate in (4, 5):
        x, y, predicate = y, x, predicate - 2
    match predicate:
        case 0 | 1:
            same = 1 if x.low == x.high == y.low == y.high else 0 if x.high < y.low or y.high < x.low else None
            return None if same is None else same ^ predicate
        case 2:
            return 1 if x.high < y.low else 0 if x.low >= y.high else None
        case _:
            return 1 if x.high <= y.low else 0 if x.low > y.high else None


class ElementBody(Body):
    """Inserts scalar code at the builder's insertion point.

    Constants are pooled, arithmetic on integers with known ranges is folded, and extracts from stand-in tensors read elements.
    With `contracts`, a product and its addition may become one fused multiply-add.
    """

    def __init__(
        self,
        builder: KernelBuilder,
        ranges: IntegerRanges,
        sources: Mapping[SSAValue, Read] | None = None,
        contracts: bool = False,
    ) -> None:
        super().__init__(Block(), builder.op_builder.location)
        self._builder = builder
        self._ranges = ranges
        self._sources = sources or {}
        self._contracts = contracts

    def checked_index(self, integer_index: SSAValue, size: Size) -> SSAValue | None:
        return self._ranges.checked.get((integer_index, size))

    def __call__(self, op: Operation) -> SSAValue:
        b = self._builder.op_builder
        if isinstance(op, arith.ConstantOp):
            return b.constants.get(op.value, op.result.type)
        if isinstance(op, tensor.ExtractOp):
            positions = [i if (n := scalar.constant_integer(i)) is None else n for i in op.indices]
            return self._sources[op.tensor](positions)
        known = self._ranges.simplify(op)
        if known is not None:
            return known if isinstance(known, SSAValue) else scalar.constant(self, known, op.results[0].type)
        if isinstance(op, arith.IndexCastOp) and op.result.type == index:
            bounds = self._ranges[op.input]
            if bounds is not None and bounds.root is not None:
                # Address the element relative to the loop's index.
                result = cast(Any, b.add(bounds.root, bounds.offset))
                self._ranges[result] = bounds
                return result
        if self._contracts and isinstance(op, arith.MulfOp | arith.AddfOp):
            op.properties["fastmath"] = arith.FastMathFlagsAttr([FastMathFlag.ALLOW_CONTRACT])
        result = b.op(op)
        self._ranges.record(op)
        return result
