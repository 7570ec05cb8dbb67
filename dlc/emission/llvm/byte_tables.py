"""Lookups in tables of 16 bytes: one instruction instead of the tree of selects that defines them (`lookup_bytes`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.dialects.dl.low_precision.byte_table import TABLE_BITS, TABLE_SIZE, WORD_OF_ONES
from dlc.emission.common.constants import splat_constant
from dlc.emission.common.emitter import Handlers
from dlc.emission.common.registers import Register
from dlc.emission.llvm.core import LlvmWriter, llvm_type
from dlc.emission.llvm.unused_ops import PatternMatch, unused_ops
from dlc.emission.llvm.value_widths import ValueWidths
from dlc.ir import Operation, SSAValue, VectorType, arith, func, i32
from dlc.target import Target

# The intrinsics of an architecture by the register width in 32-bit words. All look up bytes below 16 in 16 bytes.
_INTRINSICS: Mapping[str, Mapping[int, str]] = {
    "x86_64": {4: "x86.ssse3.pshuf.b.128", 8: "x86.avx2.pshuf.b", 16: "x86.avx512.pshuf.b.512"},
    "aarch64": {4: "aarch64.neon.tbl1.v16i8"},
}


@dataclass(frozen=True)
class TableLookup:
    """A lookup of the low four bits of each byte of a word, and the ops that define it."""

    table: Sequence[int]
    word: SSAValue
    inner_ops: frozenset[Operation]


def find_lookups(kernel: func.FuncOp, target: Target) -> dict[Operation, TableLookup]:
    """Find the ops of a kernel that end a table lookup for which the target has an instruction."""
    if target.architecture not in _INTRINSICS:
        return {}
    ops = [op for op in kernel.walk() if isinstance(op, arith.XOrIOp)]
    vectors = [op for op in ops if isinstance(kind := op.result.type, VectorType) and kind.element_type == i32]
    return {op: lookup for op in vectors if (lookup := _match_lookup(op)) is not None}


def _match_lookup(op: arith.XOrIOp) -> TableLookup | None:
    inner_ops, masks = set[Operation](), list[SSAValue]()
    table = _match_tree(op.result, TABLE_BITS, inner_ops, masks)
    word = None if len(table) != TABLE_SIZE else _match_masks(masks, inner_ops)
    return None if word is None else TableLookup(table, word, frozenset(inner_ops - {op}))


def _match_tree(value: SSAValue, depth: int, inner_ops: set[Operation], masks: list[SSAValue]) -> list[int]:
    """Return the bytes of a tree of `depth` selects, and append the masks of its levels; an empty list for other values."""
    op = value.owner
    if not isinstance(op, arith.XOrIOp) or not isinstance(op.lhs.owner, arith.AndIOp):
        return []
    difference = op.lhs.owner
    if depth == 1:
        low, changed, mask = splat_constant(op.rhs), splat_constant(difference.rhs), difference.lhs
        if low is None or changed is None:
            return []
        words = [int(low) & 0xFFFFFFFF, (int(low) ^ int(changed)) & 0xFFFFFFFF]
        table = [word & 255 for word in words if word == (word & 255) * WORD_OF_ONES]
    else:
        pair, mask = difference.lhs.owner, difference.rhs
        if not isinstance(pair, arith.XOrIOp) or pair.lhs != op.rhs:
            return []
        inner_ops.add(pair)
        table = [byte for v in pair.operands for byte in _match_tree(v, depth - 1, inner_ops, masks)]
    inner_ops.update((op, difference))
    if len(masks) < depth:
        masks.append(mask)
    return table if len(table) == 1 << depth and masks[depth - 1] == mask else []


def _match_masks(masks: Sequence[SSAValue], inner_ops: set[Operation]) -> SSAValue | None:
    """Return the word whose bits 0, 1, … in each byte are the masks, or None."""
    words = set[SSAValue]()
    for bit, mask in enumerate(masks):
        product = mask.owner
        if not isinstance(product, arith.MuliOp) or splat_constant(product.rhs) != 255:
            return None
        ones = product.lhs.owner
        if not isinstance(ones, arith.AndIOp) or splat_constant(ones.rhs) != WORD_OF_ONES:
            return None
        inner_ops.update((product, ones))
        word, shift = ones.lhs, ones.lhs.owner
        if bit:
            if not isinstance(shift, arith.ShRUIOp) or splat_constant(shift.rhs) != bit:
                return None
            inner_ops.add(shift)
            word = shift.lhs
        words.add(word)
    return words.pop() if len(words) == 1 else None


class LlvmByteTableWriter(LlvmWriter):
    """Emit table lookups."""

    def __init__(
        self,
        kernel: func.FuncOp,
        target: Target,
        widths: ValueWidths,
        lookups: Mapping[Operation, TableLookup],
        handlers: Handlers,
    ) -> None:
        super().__init__(kernel, target, widths, handlers)
        self.lookup_names = _INTRINSICS.get(target.architecture, {})
        self.lookups = {
            op: lookup
            for op, lookup in lookups.items()
            if all(t.width in self.lookup_names for t in self.layout(op.results[0].type))
        }
        self.lookup_ops = unused_ops({op: PatternMatch(x.inner_ops, [x.word]) for op, x in self.lookups.items()})

    def visit(self, op: Operation) -> None:
        if op in self.lookup_ops:
            return
        if (lookup := self.lookups.get(op)) is None:
            super().visit(op)
            return
        words = zip(self.layout(lookup.word.type), self.regs(lookup.word), strict=True)
        self.bind(op.results[0], [self._look_up(lookup.table, *register) for register in words])

    def _look_up(self, table: Sequence[int], type: Register, word: str) -> str:
        """Emit the bytes of a table for the low four bits of each byte."""
        words, count = llvm_type(type), 4 * type.width
        # The instructions treat the other bits differently.
        index = self.define(f"and {words} {word}, splat (i32 {(TABLE_SIZE - 1) * WORD_OF_ONES})", word)
        index = self.define(f"bitcast {words} {index} to <{count} x i8>", index)
        entries = ", ".join(f"i8 {byte}" for byte in [*table] * (count // TABLE_SIZE))
        call = f"call <{count} x i8> @llvm.{self.lookup_names[type.width]}(<{count} x i8> <{entries}>, <{count} x i8> {index})"
        result = self.define(call, index)
        return self.define(f"bitcast <{count} x i8> {result} to {words}", result)
