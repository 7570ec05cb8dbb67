"""The number of vector elements in one LLVM value.

A value may be wider than a machine register: LLVM's instruction selection splits it into registers, in the order in which they
would have been emitted. Until then it is one value, which reduces the cost of emitting, parsing and optimizing to a quarter.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from dlc.emission.common.registers import element_bytes, kind_of
from dlc.ir import Attribute, IntegerType, Operation, VectorType, arith, func, i1, scf, vector
from dlc.target import Target

# A value spans up to this many registers, the size of tiles of elementwise ops.
_MAX_REGISTERS_PER_VALUE = 4


class ValueWidths(NamedTuple):
    """A register has `lanes` elements, and a value up to `max_width`, which is `lanes` times a power of two."""

    lanes: int
    max_width: int

    @staticmethod
    def of(kernel: func.FuncOp, target: Target, *, has_dots: bool) -> ValueWidths:
        """Choose the widths for a kernel: registers of 4-byte elements, or of smaller ones if all its integers are narrow.

        A value is limited to one register in three cases: a dot product is one instruction; accumulators should stay in
        registers; LLVM generates worse code for wider values. The last applies to conversions between element widths and
        between masks, where LLVM concatenates several registers only to store them.
        """
        ops = list(kernel.walk())
        types = [result.type for op in ops for result in op.results]
        elements = {cast("VectorType[Attribute]", t).element_type for t in types if isinstance(t, VectorType)}
        kinds = {kind_of(element) or "" for element in elements} - {"i1"}
        if not kinds:
            return ValueWidths(target.lanes(4), _MAX_REGISTERS_PER_VALUE * target.lanes(4))
        are_integers = all(kind.startswith("i") for kind in kinds)
        sizes = {element_bytes(kind) for kind in kinds}
        lanes = target.lanes(min(4, max(sizes)) if are_integers else 4)
        is_even = min(sizes) >= 4 or (are_integers and len(sizes) == 1)
        return ValueWidths(
            lanes,
            _MAX_REGISTERS_PER_VALUE * lanes
            if is_even and not has_dots and not any(map(_requires_single_registers, ops))
            else lanes,
        )

    def split(self, size: int) -> list[tuple[int, int]]:
        """Return (width, used) of each value of a row of `size` elements.

        The remainder is rounded up to a power of two: vector<7x20xf32> with 16 lanes is seven rows of <16 x float>, <4 x
        float>. LLVM splits registers of wider elements and uses partial registers for narrower ones.
        """
        segments: list[tuple[int, int]] = []
        width = self.max_width
        while width >= self.lanes:
            num_full, size = divmod(size, width)
            segments += [(width, width)] * num_full
            width //= 2
        if size:
            segments.append((1 << (size - 1).bit_length(), size))
        return segments


def _requires_single_registers(op: Operation) -> bool:
    """Return whether an op accumulates a tile, or generates worse code on values of several registers."""
    match op:
        case scf.ForOp():
            return any(isinstance(result.type, VectorType) for result in op.results)
        case arith.AndIOp() | arith.OrIOp() | arith.XOrIOp():
            return _element_type(op) == i1
        case arith.SelectOp():
            return isinstance(_element_type(op), IntegerType)
        case vector.ReductionOp():
            return op.dest.type == i1
        case _:
            return isinstance(op, vector.FMAOp | arith.DivSIOp | arith.DivUIOp | arith.RemSIOp | arith.RemUIOp)


def _element_type(op: Operation) -> Attribute | None:
    """Return the element type of an op's vector result, or None."""
    type = op.results[0].type
    return cast("VectorType[Attribute]", type).element_type if isinstance(type, VectorType) else None
