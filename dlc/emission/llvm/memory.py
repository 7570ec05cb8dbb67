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
from dlc.emission.common.memory import ARRAY_ALIGN, lane_access, lane_in_bounds, tile_access
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

    def allocate_local(self, result: SSAValue, kind: str, count: int, *, workgroup: bool) -> str:
        name = f"%{self.fresh('local')}"
        self.allocas.append(f"  {name} = alloca [{count} x {scalar_type(memory_kind(kind))}], align {ARRAY_ALIGN}")
        return name

    # Conditions

    def in_bounds(self, index: LinearExpression, size: LinearExpression) -> str:
        if not index.terms and not size.terms:
            return "1" if 0 <= index.constant < size.constant else "0"
        value, limit = self.materialize(index), self.materialize(size)
        # One unsigned comparison checks both bounds.
        return self.define_once(f"icmp ult i64 {value}, {limit}", value, limit)

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
            size = self.materialize(bound[1])
            limits = self.splat(lanes, size) if bound[1].terms else splat_literal(lanes, size)
            in_bounds = self.define_once(f"icmp ult {llvm_type(lanes)} {lane_indices}, {limits}", lane_indices, limits)
            mask = self.define_once(f"and {mask_type} {in_bounds}, {mask}", in_bounds, mask) if mask else in_bounds
        if row_in_bounds != "1":
            row_mask = self.splat(register.with_kind("i1"), row_in_bounds)
            mask = self.define_once(f"and {mask_type} {row_mask}, {mask}", row_mask, mask) if mask else row_mask
        return mask

    # One register

    def _pointer(self, access: TileAccess, offset: int) -> tuple[str, int]:
        """Return a pointer to an element of a tile, and its alignment in bytes."""
        constant = access.displacement.constant + offset
        return self.offset_pointer(access.view.kind, access.pointer, constant), gcd(
            access.align, constant * element_bytes(access.view.kind)
        )

    def _load(self, access: TileAccess, type: Register, pointer: str, align: int) -> str:
        """Emit an unmasked load."""
        text = f"load {llvm_type(type)}, ptr {pointer}, align {align}{self.aliases.access_suffix(access.view.base)}"
        return self.define(text, pointer, insertion_point=InsertionPoint.MOVABLE)

    def _to_memory(self, type: Register, value: str) -> str:
        """Convert a value to its representation in memory."""
        memory = type.with_kind(memory_kind(type.kind))
        return value if memory == type else self.define_once(f"zext {llvm_type(type)} {value} to {llvm_type(memory)}", value)

    def _from_memory(self, type: Register, stored: str) -> str:
        """Convert a loaded value from its representation in memory."""
        memory = type.with_kind(memory_kind(type.kind))
        return (
            stored if memory == type else self.compute("icmp ne", memory, stored, "0" if type.width == 1 else "zeroinitializer")
        )

    def _read_element(self, access: TileAccess, kind: str, offset: int, condition: str, padding: str) -> str:
        """Read one element in its memory representation, or `padding` if `condition` is false."""
        pointer, align = self._pointer(access, offset)
        if condition != "1":
            # Out of bounds, load the first element of the buffer instead and discard it.
            pointer = self.define(f"select i1 {condition}, ptr {pointer}, ptr {access.view.base}", condition, pointer)
            align = element_bytes(access.view.kind)
        memory = Register(memory_kind(kind))
        value = self._load(access, memory, pointer, align)
        return value if condition == "1" else self.select(memory, condition, value, self._to_memory(Register(kind), padding))

    def _read_row(self, access: TileAccess, type: Register, offset: int, mask: str, padding: str) -> str:
        """Read contiguous elements, masked if `mask` is not empty."""
        pointer, align = self._pointer(access, offset)
        memory = type.with_kind(memory_kind(type.kind))
        if not mask:
            value = self._load(access, memory, pointer, align)
        else:
            other = self._to_memory(type, self.splat(type, padding))
            value = self.define(
                f"call {llvm_type(memory)} @llvm.masked.load.{intrinsic_suffix(memory)}.p0(ptr align {align} {pointer}, "
                f"{llvm_type(type.with_kind('i1'))} {mask}, {llvm_type(memory)} {other})"
                f"{self.aliases.access_suffix(access.view.base)}",
                *(pointer, mask, other),
            )
        return self._from_memory(type, value)

    def _needs_access_per_register(self, access: TileAccess, type: Register, row_in_bounds: str) -> bool:
        """Return whether a value of several registers must be accessed register by register."""
        is_masked = row_in_bounds != "1" or any(bound is not None for bound in access.bounds[-1:])
        return type.width > self.lanes and (is_masked or access.stride not in (0, 1))

    def read_register(
        self, access: TileAccess, type: Register, offset: int, row_in_bounds: str, first_lane: int, padding: str, hint: str
    ) -> str:
        """Load one register of a tile; lanes out of bounds get `padding`.

        `row_in_bounds` is the condition that the row is in bounds, `first_lane` the position of the first lane in the row.
        """
        if self._needs_access_per_register(access, type, row_in_bounds):
            register, loads = type.with_width(self.lanes), list[str]()
            for k in range(0, type.width, self.lanes):
                part, start = lane_access(self, access, offset, k)
                loads.append(self.read_register(part, register, start, row_in_bounds, first_lane + k, padding, hint))
            return self.concat_vectors(register, loads, type.width)[0]
        if type.width > 1 and access.stride == 1:
            return self._read_row(access, type, offset, self._mask(access, type, row_in_bounds, first_lane), padding)
        if type.width == 1:
            return self._from_memory(
                type,
                self._read_element(access, type.kind, offset, lane_in_bounds(self, access, row_in_bounds, first_lane), padding),
            )
        if access.stride == 0:
            return self.splat(
                type,
                self._from_memory(Register(type.kind), self._read_element(access, type.kind, offset, row_in_bounds, padding)),
            )
        # Insert all lanes in their memory representation first and convert them together.
        memory = type.with_kind(memory_kind(type.kind))
        value = "poison" if type.used == type.width else "zeroinitializer"
        for lane in range(type.used):
            condition = lane_in_bounds(self, access, row_in_bounds, first_lane + lane)
            part, start = lane_access(self, access, offset, lane)
            element = self._read_element(part, type.kind, start, condition, padding)
            value = self.insert(memory, value, element, lane)
        return self._from_memory(type, value)

    def read_lanes(
        self, access: TileAccess, type: Register, offsets: Sequence[int], contiguous_range: tuple[int, int] | None, hint: str
    ) -> str:
        memory = type.with_kind(memory_kind(type.kind))
        if contiguous_range is not None:
            first, count = contiguous_range
            loaded_type = Register(memory.kind, 1 << (count - 1).bit_length(), count)
            mask = mask_literal(loaded_type) if count < loaded_type.width else ""
            loaded = self._read_row(access, loaded_type, first, mask, literal(loaded_type.kind, 0))
            return self._from_memory(type, self.shuffle_vector(loaded_type, loaded, "poison", [k - first for k in offsets]))
        elements = {k: self._read_element(access, type.kind, k, "1", "") for k in dict.fromkeys(offsets)}
        value = "poison"
        for lane, k in enumerate(offsets):
            value = self.insert(memory, value, elements[k], lane)
        return self._from_memory(type, value)

    def read_transposed(self, access: TileAccess, result: SSAValue, padding: str) -> list[str] | None:
        """Read a tile [k, lane] whose columns are contiguous in memory: load square blocks by column and transpose them."""
        shape, types = vector_shape(result.type), self.layout(result.type)
        kind, width = types[0].kind, types[0].width
        if len(shape) != 2 or access.strides[0] != 1 or access.strides[1] in (0, 1):
            return None
        side = min(self.lanes, shape[0], width)
        is_square = (
            all(t == types[0].with_width(width) for t in types)
            and side in (4, 8)
            and shape[0] % side == 0
            and width % side == 0
        )
        if not is_square or memory_kind(kind) != kind:
            return None
        square = types[0].with_width(side)
        names: list[str] = []
        for first_row in range(0, shape[0], side):
            rows: list[list[str]] = [[] for _ in range(side)]
            for lane in range(0, shape[1], side):
                loaded = [self._read_column(access, square, first_row, lane + j, padding) for j in range(side)]
                for row, register_name in zip(rows, self._transposed(square, loaded), strict=True):
                    row.append(register_name)
            names += [name for row in rows for name in self.concat_vectors(square, row, width)]
        return names

    def _read_column(self, access: TileAccess, type: Register, first_row: int, lane: int, padding: str) -> str:
        """Read contiguous elements of a column of a tile, from `first_row` on; those out of bounds are `padding`."""
        columns, in_bounds = access._replace(bounds=access.bounds[::-1]), "1"
        if access.bounds and (bound := access.bounds[-1]) is not None:
            in_bounds = self.in_bounds(bound[0].plus(LinearExpression(lane)), bound[1])
        column, offset = lane_access(self, access, first_row, lane)
        return self._read_row(column, type, offset, self._mask(columns, type, in_bounds, first_row), padding)

    def _transposed(self, type: Register, rows: Sequence[str]) -> list[str]:
        """Transpose a square block of registers: in log2(n) steps, swap off-diagonal sub-blocks, the largest first."""
        rows, step = list(rows), type.width // 2
        while step:
            for i in (i for i in range(type.width) if not i & step):
                x, y = rows[i], rows[i + step]
                rows[i] = self.shuffle_vector(type, x, y, [type.width + p - step if p & step else p for p in range(type.width)])
                rows[i + step] = self.shuffle_vector(
                    type, x, y, [type.width + p if p & step else p + step for p in range(type.width)]
                )
            step //= 2
        return rows

    def _write_element(self, access: TileAccess, kind: str, value: str, offset: int, condition: str) -> None:
        """Store one element in its memory representation, if `condition` is true."""
        pointer, align = self._pointer(access, offset)
        store_text = f"store {llvm_type(Register(memory_kind(kind)))} {value}, ptr {pointer}, align {align}"
        store = store_text + self.aliases.access_suffix(access.view.base)
        if condition == "1":
            self.emit(store)
            return
        write_label, end_label = self.fresh("write"), self.fresh("written")
        self.emit(f"br i1 {condition}, label %{write_label}, label %{end_label}")
        self.start_block(write_label)
        self.emit(store)
        self.emit(f"br label %{end_label}")
        self.start_block(end_label)

    def write_register(
        self, access: TileAccess, type: Register, value: str, offset: int, row_in_bounds: str, first_lane: int
    ) -> None:
        if self._needs_access_per_register(access, type, row_in_bounds):
            for k, register in zip(range(0, type.width, self.lanes), self.split_vector(type, value, self.lanes), strict=True):
                part, start = lane_access(self, access, offset, k)
                self.write_register(part, type.with_width(self.lanes), register, start, row_in_bounds, first_lane + k)
            return
        memory, value = type.with_kind(memory_kind(type.kind)), self._to_memory(type, value)
        if type.width == 1:
            self._write_element(access, type.kind, value, offset, lane_in_bounds(self, access, row_in_bounds, first_lane))
            return
        if access.stride != 1:
            for lane in range(type.used):
                element = self.extract(memory, value, lane)
                condition = lane_in_bounds(self, access, row_in_bounds, first_lane + lane)
                part, start = lane_access(self, access, offset, lane)
                self._write_element(part, type.kind, element, start, condition)
            return
        (pointer, align), metadata = self._pointer(access, offset), self.aliases.access_suffix(access.view.base)
        mask = self._mask(access, type, row_in_bounds, first_lane)
        if mask and "avx512vl" not in self.target.features and mask == mask_literal(type) and type.used > 1:
            # LLVM splits it into unmasked stores (Zen 4, 2 to 7 floats: 0.8 to 1.1 ns; masked stores of AVX2: 3.3 ns or more).
            value, mask = self.shuffle_vector(memory, value, "poison", range(type.used)), ""
            memory = memory.with_width(type.used)
        if mask:
            arguments = f"{llvm_type(memory)} {value}, ptr align {align} {pointer}, {llvm_type(type.with_kind('i1'))} {mask}"
            self.emit(f"call void @llvm.masked.store.{intrinsic_suffix(memory)}.p0({arguments}){metadata}")
        else:
            self.emit(f"store {llvm_type(memory)} {value}, ptr {pointer}, align {align}{metadata}")

    def prefetch(self, op: PrefetchOp) -> None:
        pointer, _ = self._pointer(tile_access(self, op.memref, op.indices), 0)
        write, locality = (int(cast("IntegerAttr", a).value.data) for a in (op.isWrite, op.localityHint))
        self.emit(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 {write}, i32 {locality}, i32 1)")


def prefetch(writer: LlvmMemoryWriter, op: Operation) -> None:
    """Emit `memref.prefetch`."""
    assert isinstance(op, PrefetchOp)
    writer.prefetch(op)
