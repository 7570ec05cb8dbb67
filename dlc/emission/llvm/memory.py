"""Emit loads and stores of vector registers.

A row of contiguous elements is one load or store. It is masked if the row does not fill its register or may exceed the buffer.
Other rows are accessed element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import cast

from dlc.dialects.prefetch import PrefetchOp
from dlc.emission.common.emitter import Handlers
from dlc.emission.common.linear_expression import LinearExpression
from dlc.emission.common.memory import ARRAY_ALIGN, lane_in_bounds, tile_access
from dlc.emission.common.records import TileAccess
from dlc.emission.common.registers import Register, element_bytes, vector_shape
from dlc.emission.llvm.alias_scopes import AliasScopes
from dlc.emission.llvm.core import (
    LlvmWriter,
    intrinsic_suffix,
    lane_literals,
    literal,
    llvm_type,
    mask_literal,
    memory_kind,
    scalar_type,
    splat_literal,
)
from dlc.emission.llvm.instruction_order import InsertionPoint
from dlc.emission.llvm.value_widths import ValueWidths
from dlc.ir import IntegerAttr, Operation, SSAValue, func
from dlc.target import Target


class LlvmMemoryWriter(LlvmWriter):
    """Emit loads, stores and prefetches."""

    def __init__(self, kernel: func.FuncOp, target: Target, widths: ValueWidths, handlers: Handlers) -> None:
        super().__init__(kernel, target, widths, handlers)
        self.allocas: list[str] = []
        self.aliases = AliasScopes(kernel)

    def array(self, result: SSAValue, kind: str, count: int, *, workgroup: bool) -> str:
        name = f"%{self.fresh('local')}"
        self.allocas.append(f"  {name} = alloca [{count} x {scalar_type(memory_kind(kind))}], align {ARRAY_ALIGN}")
        return name

    # Conditions

    def in_bounds(self, index: LinearExpression, size: int) -> str:
        if not index.terms:
            return "1" if 0 <= index.constant < size else "0"
        value = self.materialize(index)
        # One unsigned comparison checks both bounds.
        return self.define_once(f"icmp ult i64 {value}, {size}", value)

    def conjunction(self, a: str, b: str) -> str:
        return self.define_once(f"and i1 {a}, {b}", a, b)

    def _mask(self, access: TileAccess, register: Register, row_in_bounds: str, first_lane: int) -> str:
        """Return the mask of the lanes to read or write; an empty string if all lanes are accessed."""
        mask_type = llvm_type(register.with_kind("i1"))
        mask = "" if register.used == register.width else mask_literal(register)
        if access.bounds and (bound := access.bounds[-1]) is not None:
            lanes = Register("i64", register.width, register.width)
            first = self.splat(lanes, self.materialize(bound[0].plus(LinearExpression(first_lane))))
            lane_indices = self.define_once(
                f"add {llvm_type(lanes)} {first}, {lane_literals(lanes, [str(i) for i in range(register.width)])}", first
            )
            in_bounds = self.define_once(
                f"icmp ult {llvm_type(lanes)} {lane_indices}, {splat_literal(lanes, str(bound[1]))}", lane_indices
            )
            mask = self.define_once(f"and {mask_type} {in_bounds}, {mask}", in_bounds, mask) if mask else in_bounds
        if row_in_bounds != "1":
            row_mask = self.splat(register.with_kind("i1"), row_in_bounds)
            mask = self.define_once(f"and {mask_type} {row_mask}, {mask}", row_mask, mask) if mask else row_mask
        return mask

    # One register

    def _pointer(self, a: TileAccess, offset: int) -> tuple[str, int]:
        """Return a pointer to an element of a tile, and its alignment in bytes."""
        constant = a.displacement.constant + offset
        return self.offset_pointer(a.view.kind, a.pointer, constant), gcd(a.align, constant * element_bytes(a.view.kind))

    def _load(self, a: TileAccess, t: Register, pointer: str, align: int) -> str:
        """Emit an unmasked load."""
        text = f"load {llvm_type(t)}, ptr {pointer}, align {align}{self.aliases.access_suffix(a.view.base)}"
        return self.define(text, pointer, insertion_point=InsertionPoint.MOVABLE)

    def _to_memory(self, t: Register, value: str) -> str:
        """Convert a value to its representation in memory."""
        memory = t.with_kind(memory_kind(t.kind))
        return value if memory == t else self.define_once(f"zext {llvm_type(t)} {value} to {llvm_type(memory)}", value)

    def _from_memory(self, t: Register, stored: str) -> str:
        """Convert a loaded value from its representation in memory."""
        memory = t.with_kind(memory_kind(t.kind))
        return stored if memory == t else self.compute("icmp ne", memory, stored, "0" if t.width == 1 else "zeroinitializer")

    def _read_element(self, a: TileAccess, kind: str, offset: int, condition: str, padding: str) -> str:
        """Read one element in its memory representation, or `padding` if `condition` is false."""
        pointer, align = self._pointer(a, offset)
        if condition != "1":
            # Out of bounds, load the first element of the buffer instead and discard it.
            pointer = self.define(f"select i1 {condition}, ptr {pointer}, ptr {a.view.base}", condition, pointer)
            align = element_bytes(a.view.kind)
        memory = Register(memory_kind(kind))
        value = self._load(a, memory, pointer, align)
        return value if condition == "1" else self.select(memory, condition, value, self._to_memory(Register(kind), padding))

    def _read_row(self, a: TileAccess, t: Register, offset: int, mask: str, padding: str) -> str:
        """Read contiguous elements, masked if `mask` is not empty."""
        pointer, align = self._pointer(a, offset)
        memory = t.with_kind(memory_kind(t.kind))
        if not mask:
            value = self._load(a, memory, pointer, align)
        else:
            other = self._to_memory(t, self.splat(t, padding))
            value = self.define(
                f"call {llvm_type(memory)} @llvm.masked.load.{intrinsic_suffix(memory)}.p0(ptr align {align} {pointer}, "
                f"{llvm_type(t.with_kind('i1'))} {mask}, {llvm_type(memory)} {other}){self.aliases.access_suffix(a.view.base)}",
                *(pointer, mask, other),
            )
        return self._from_memory(t, value)

    def _needs_access_per_register(self, a: TileAccess, t: Register, row: str) -> bool:
        """Return whether a value of several registers has no single load or store, and is accessed register by register."""
        is_masked = row != "1" or any(bound is not None for bound in a.bounds[-1:])
        return t.width > self.lanes and (is_masked or a.stride not in (0, 1))

    def read_register(self, a: TileAccess, t: Register, offset: int, row: str, start: int, padding: str, hint: str) -> str:
        """Load one register of a tile; lanes out of bounds get `padding`.

        `row` is the condition that the row is in bounds, `start` the position of the first lane in the row.
        """
        if self._needs_access_per_register(a, t, row):
            steps = range(0, t.width, self.lanes)
            register = t.with_width(self.lanes)
            loads = (self.read_register(a, register, offset + k * a.stride, row, start + k, padding, hint) for k in steps)
            return self.concat_vectors(register, list(loads), t.width)[0]
        if t.width > 1 and a.stride == 1:
            return self._read_row(a, t, offset, self._mask(a, t, row, start), padding)
        if t.width == 1:
            return self._from_memory(t, self._read_element(a, t.kind, offset, lane_in_bounds(self, a, row, start), padding))
        if a.stride == 0:
            return self.splat(t, self._from_memory(Register(t.kind), self._read_element(a, t.kind, offset, row, padding)))
        # Insert all lanes in their memory representation first and convert them together.
        memory = t.with_kind(memory_kind(t.kind))
        value = "poison" if t.used == t.width else "zeroinitializer"
        for lane in range(t.used):
            condition = lane_in_bounds(self, a, row, start + lane)
            element = self._read_element(a, t.kind, offset + lane * a.stride, condition, padding)
            value = self.insert(memory, value, element, lane)
        return self._from_memory(t, value)

    def read_lanes(
        self, a: TileAccess, t: Register, offsets: Sequence[int], contiguous_range: tuple[int, int] | None, hint: str
    ) -> str:
        memory = t.with_kind(memory_kind(t.kind))
        if contiguous_range is not None:
            first, count = contiguous_range
            loaded_type = Register(memory.kind, 1 << (count - 1).bit_length(), count)
            mask = mask_literal(loaded_type) if count < loaded_type.width else ""
            loaded = self._read_row(a, loaded_type, first, mask, literal(loaded_type.kind, 0))
            return self._from_memory(t, self.shuffle_vector(loaded_type, loaded, "poison", [k - first for k in offsets]))
        elements = {k: self._read_element(a, t.kind, k, "1", "") for k in dict.fromkeys(offsets)}
        value = "poison"
        for lane, k in enumerate(offsets):
            value = self.insert(memory, value, elements[k], lane)
        return self._from_memory(t, value)

    def read_transposed(self, a: TileAccess, result: SSAValue) -> list[str] | None:
        """Read a tile [k, lane] whose columns are contiguous in memory: load square blocks by column and transpose them."""
        shape, types = vector_shape(result.type), self.layout(result.type)
        kind, width = types[0].kind, types[0].width
        if len(shape) != 2 or a.strides[0] != 1 or not isinstance(a.strides[1], int) or a.strides[1] < 2:
            return None
        side = min(self.lanes, shape[0])
        is_square = (
            all(t == types[0].with_width(width) for t in types)
            and side in (4, 8)
            and shape[0] % side == 0
            and width % side == 0
        )
        if not is_square or memory_kind(kind) != kind or any(bound is not None for bound in a.bounds):
            return None
        square = types[0].with_width(side)
        names: list[str] = []
        for first_row in range(0, shape[0], side):
            rows: list[list[str]] = [[] for _ in range(side)]
            for lane in range(0, shape[1], side):
                pointers = (self._pointer(a, first_row + (lane + j) * a.strides[1]) for j in range(side))
                for row, register_name in zip(
                    rows, self._transposed(square, [self._load(a, square, *p) for p in pointers]), strict=True
                ):
                    row.append(register_name)
            names += [name for row in rows for name in self.concat_vectors(square, row, width)]
        return names

    def _transposed(self, t: Register, rows: Sequence[str]) -> list[str]:
        """Transpose a square block of registers: in log2(n) steps, swap off-diagonal sub-blocks, the largest first."""
        rows, step = list(rows), t.width // 2
        while step:
            for i in (i for i in range(t.width) if not i & step):
                x, y = rows[i], rows[i + step]
                rows[i] = self.shuffle_vector(t, x, y, [t.width + p - step if p & step else p for p in range(t.width)])
                rows[i + step] = self.shuffle_vector(t, x, y, [t.width + p if p & step else p + step for p in range(t.width)])
            step //= 2
        return rows

    def _write_element(self, a: TileAccess, kind: str, value: str, offset: int, condition: str) -> None:
        """Store one element in its memory representation, if `condition` is true."""
        pointer, align = self._pointer(a, offset)
        store_text = f"store {llvm_type(Register(memory_kind(kind)))} {value}, ptr {pointer}, align {align}"
        store = store_text + self.aliases.access_suffix(a.view.base)
        if condition == "1":
            self.emit(store)
            return
        write_label, end_label = self.fresh("write"), self.fresh("written")
        self.emit(f"br i1 {condition}, label %{write_label}, label %{end_label}")
        self.start_block(write_label)
        self.emit(store)
        self.emit(f"br label %{end_label}")
        self.start_block(end_label)

    def write_register(self, a: TileAccess, t: Register, value: str, offset: int, row: str, start: int) -> None:
        if self._needs_access_per_register(a, t, row):
            for k, register in zip(range(0, t.width, self.lanes), self.split_vector(t, value, self.lanes), strict=True):
                self.write_register(a, t.with_width(self.lanes), register, offset + k * a.stride, row, start + k)
            return
        memory, value = t.with_kind(memory_kind(t.kind)), self._to_memory(t, value)
        if t.width == 1:
            self._write_element(a, t.kind, value, offset, lane_in_bounds(self, a, row, start))
            return
        if a.stride != 1:
            for lane in range(t.used):
                element, condition = self.extract(memory, value, lane), lane_in_bounds(self, a, row, start + lane)
                self._write_element(a, t.kind, element, offset + lane * a.stride, condition)
            return
        (pointer, align), metadata = self._pointer(a, offset), self.aliases.access_suffix(a.view.base)
        if mask := self._mask(a, t, row, start):
            arguments = f"{llvm_type(memory)} {value}, ptr align {align} {pointer}, {llvm_type(t.with_kind('i1'))} {mask}"
            self.emit(f"call void @llvm.masked.store.{intrinsic_suffix(memory)}.p0({arguments}){metadata}")
        else:
            self.emit(f"store {llvm_type(memory)} {value}, ptr {pointer}, align {align}{metadata}")

    def prefetch(self, op: PrefetchOp) -> None:
        pointer, _ = self._pointer(tile_access(self, op.memref, op.indices), 0)
        write, locality = (int(cast("IntegerAttr", a).value.data) for a in (op.isWrite, op.localityHint))
        self.emit(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 {write}, i32 {locality}, i32 1)")


def prefetch(e: LlvmMemoryWriter, op: Operation) -> None:
    """Emit `memref.prefetch`."""
    assert isinstance(op, PrefetchOp)
    e.prefetch(op)
