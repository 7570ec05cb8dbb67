"""How many elements of a vector are one value of LLVM.

A value may be wider than a register of the processor: LLVM's selection of instructions makes it several registers, in the
order in which they would have been written out. Until then it is one, and text, parsing and simplification cost a fourth.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from dlc.emission.visit.registers import element_bytes, kind_of
from dlc.ir import Attribute, IntegerType, Operation, VectorType, arith, func, i1, scf, vector
from dlc.target import Target

# Registers that are one value at most: what tiles of elementwise ops have.
_TOGETHER = 4


class Widths(NamedTuple):
    """A register is full of `lanes` elements, and a value of at most `most`, which is a power of two times as many."""

    lanes: int
    most: int

    @staticmethod
    def of(kernel: func.FuncOp, target: Target, *, has_dots: bool) -> Widths:
        """Registers of four bytes an element, or of fewer where a kernel has narrow integers alone.

        Values are of one register each where a product of words is one instruction, where a tile of sums is to stay in
        registers, and where LLVM makes worse code of more: of elements that become narrower or wider it would put several
        registers' parts together, only to write them at once, and so it would of masks that become other masks.
        """
        ops = list(kernel.walk())
        types = [result.type for op in ops for result in op.results]
        elements = {cast("VectorType[Attribute]", t).element_type for t in types if isinstance(t, VectorType)}
        kinds = {kind_of(element) or "" for element in elements} - {"i1"}
        if not kinds:
            return Widths(target.lanes(4), _TOGETHER * target.lanes(4))
        are_integers = all(kind.startswith("i") for kind in kinds)
        sizes = {element_bytes(kind) for kind in kinds}
        lanes = target.lanes(min(4, max(sizes)) if are_integers else 4)
        is_even = min(sizes) >= 4 or (are_integers and len(sizes) == 1)
        return Widths(lanes, _TOGETHER * lanes if is_even and not has_dots and not any(map(_is_of_one, ops)) else lanes)

    def cut(self, size: int) -> list[tuple[int, int]]:
        """(width, used) of each value of a row of `size` elements.

        What is left over of registers rounds up to a power of two: vector<7x20xf32> with 16 lanes is seven rows of
        <16 x float>, <4 x float>. LLVM splits the registers of wider elements and uses parts of registers for narrower ones.
        """
        pieces: list[tuple[int, int]] = []
        width = self.most
        while width >= self.lanes:
            full, size = divmod(size, width)
            pieces += [(width, width)] * full
            width //= 2
        if size:
            pieces.append((1 << (size - 1).bit_length(), size))
        return pieces


def _is_of_one(op: Operation) -> bool:
    """Whether an op is of a tile of sums, or one that LLVM is given by registers."""
    match op:
        case scf.ForOp():
            return any(isinstance(result.type, VectorType) for result in op.results)
        case arith.AndIOp() | arith.OrIOp() | arith.XOrIOp():
            return _element(op) == i1
        case arith.SelectOp():
            return isinstance(_element(op), IntegerType)
        case vector.ReductionOp():
            return op.dest.type == i1
        case _:
            return isinstance(op, vector.FMAOp | arith.DivSIOp | arith.DivUIOp | arith.RemSIOp | arith.RemUIOp)


def _element(op: Operation) -> Attribute | None:
    """The type of the elements of a vector that an op makes, if it makes one."""
    type = op.results[0].type
    return cast("VectorType[Attribute]", type).element_type if isinstance(type, VectorType) else None
