"""Reads and writes of registers: a row whose elements lie side by side is one load or store, masked where the row is ragged or
may leave the buffer; other rows are read element by element."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import cast

from dlc.dialects.prefetch import PrefetchOp
from dlc.emission.llvm.aliases import Aliases
from dlc.emission.llvm.core import (
    Writer,
    lane_literals,
    literal,
    mask_literal,
    memory_kind,
    scalar_text,
    splat_literal,
    suffix_of,
    text_of,
)
from dlc.emission.llvm.order import Place
from dlc.emission.llvm.widths import Widths
from dlc.emission.visit.linear import Linear
from dlc.emission.visit.memory import ARRAY_ALIGN, access, lane_condition
from dlc.emission.visit.records import Access
from dlc.emission.visit.registers import Register, element_bytes, vector_shape
from dlc.emission.visit.visit import Handlers
from dlc.ir import IntegerAttr, Operation, SSAValue, func
from dlc.target import Target


class MemoryWriter(Writer):
    """Reads and writes."""

    def __init__(self, kernel: func.FuncOp, target: Target, widths: Widths, handlers: Handlers) -> None:
        super().__init__(kernel, target, widths, handlers)
        self.allocas: list[str] = []
        self.aliases = Aliases(kernel)

    def array(self, result: SSAValue, kind: str, count: int, *, workgroup: bool) -> str:
        name = f"%{self.fresh('local')}"
        self.allocas.append(f"  {name} = alloca [{count} x {scalar_text(memory_kind(kind))}], align {ARRAY_ALIGN}")
        return name

    # Conditions

    def inside(self, place: Linear, size: int) -> str:
        if not place.terms:
            return "1" if 0 <= place.constant < size else "0"
        index = self.materialize(place)
        # One unsigned comparison sees both ends.
        return self.once(f"icmp ult i64 {index}, {size}", index)

    def both(self, a: str, b: str) -> str:
        return self.once(f"and i1 {a}, {b}", a, b)

    def _mask(self, a: Access, t: Register, row: str, start: int) -> str:
        """The lanes to read or write: "" for all of them."""
        mask_type = text_of(t.of("i1"))
        mask = "" if t.used == t.width else mask_literal(t)
        if a.bounds and (bound := a.bounds[-1]) is not None:
            lanes = Register("i64", t.width, t.width)
            first = self.splat(lanes, self.materialize(bound[0].plus(Linear(start))))
            each = self.once(f"add {text_of(lanes)} {first}, {lane_literals(lanes, [str(i) for i in range(t.width)])}", first)
            inside = self.once(f"icmp ult {text_of(lanes)} {each}, {splat_literal(lanes, str(bound[1]))}", each)
            mask = self.once(f"and {mask_type} {inside}, {mask}", inside, mask) if mask else inside
        if row != "1":
            whole = self.splat(t.of("i1"), row)
            mask = self.once(f"and {mask_type} {whole}, {mask}", whole, mask) if mask else whole
        return mask

    # One register

    def _pointer(self, a: Access, offset: int) -> tuple[str, int]:
        """To an element of a tile, and its alignment."""
        constant = a.form.constant + offset
        return self.displace(a.view.kind, a.pointer, constant), gcd(a.align, constant * element_bytes(a.view.kind))

    def _load(self, a: Access, t: Register, pointer: str, align: int) -> str:
        text = f"load {text_of(t)}, ptr {pointer}, align {align}{self.aliases.behind(a.view.base)}"
        return self.define(text, pointer, place=Place.MOVABLE)

    def _stored(self, t: Register, value: str) -> str:
        """A value as memory has it."""
        memory = t.of(memory_kind(t.kind))
        return value if memory == t else self.once(f"zext {text_of(t)} {value} to {text_of(memory)}", value)

    def _taken(self, t: Register, stored: str) -> str:
        """What memory has as the value that it is."""
        memory = t.of(memory_kind(t.kind))
        return stored if memory == t else self.compute("icmp ne", memory, stored, "0" if t.width == 1 else "zeroinitializer")

    def _read_element(self, a: Access, kind: str, offset: int, condition: str, padding: str) -> str:
        """An element, or `padding`, as memory has it."""
        pointer, align = self._pointer(a, offset)
        if condition != "1":
            # Outside the buffer its first element is read in place, and dropped.
            pointer = self.define(f"select i1 {condition}, ptr {pointer}, ptr {a.view.base}", condition, pointer)
            align = element_bytes(a.view.kind)
        memory = Register(memory_kind(kind))
        value = self._load(a, memory, pointer, align)
        return value if condition == "1" else self.select(memory, condition, value, self._stored(Register(kind), padding))

    def _read_row(self, a: Access, t: Register, offset: int, mask: str, padding: str) -> str:
        pointer, align = self._pointer(a, offset)
        memory = t.of(memory_kind(t.kind))
        if not mask:
            value = self._load(a, memory, pointer, align)
        else:
            other = self._stored(t, self.splat(t, padding))
            value = self.define(
                f"call {text_of(memory)} @llvm.masked.load.{suffix_of(memory)}.p0(ptr align {align} {pointer}, "
                f"{text_of(t.of('i1'))} {mask}, {text_of(memory)} {other}){self.aliases.behind(a.view.base)}",
                *(pointer, mask, other),
            )
        return self._taken(t, value)

    def _is_apart(self, a: Access, t: Register, row: str) -> bool:
        """Whether a value of several registers is read or written by each: no load or store has all of its lanes."""
        checked = row != "1" or any(bound is not None for bound in a.bounds[-1:])
        return t.width > self.lanes and (checked or a.stride not in (0, 1))

    def read_register(self, a: Access, t: Register, offset: int, row: str, start: int, padding: str, hint: str) -> str:
        if self._is_apart(a, t, row):
            steps = range(0, t.width, self.lanes)
            one = t.wide(self.lanes)
            read = (self.read_register(a, one, offset + k * a.stride, row, start + k, padding, hint) for k in steps)
            return self.joined(one, list(read), t.width)[0]
        if t.width > 1 and a.stride == 1:
            return self._read_row(a, t, offset, self._mask(a, t, row, start), padding)
        if t.width == 1:
            return self._taken(t, self._read_element(a, t.kind, offset, lane_condition(self, a, row, start), padding))
        if a.stride == 0:
            return self.splat(t, self._taken(Register(t.kind), self._read_element(a, t.kind, offset, row, padding)))
        # What memory has of all lanes becomes values at once.
        memory = t.of(memory_kind(t.kind))
        value = "poison" if t.used == t.width else "zeroinitializer"
        for lane in range(t.used):
            condition = lane_condition(self, a, row, start + lane)
            element = self._read_element(a, t.kind, offset + lane * a.stride, condition, padding)
            value = self.insert(memory, value, element, lane)
        return self._taken(t, value)

    def read_lanes(self, a: Access, t: Register, offsets: Sequence[int], piece: tuple[int, int] | None, hint: str) -> str:
        memory = t.of(memory_kind(t.kind))
        if piece is not None:
            first, count = piece
            whole = Register(memory.kind, 1 << (count - 1).bit_length(), count)
            mask = mask_literal(whole) if count < whole.width else ""
            loaded = self._read_row(a, whole, first, mask, literal(whole.kind, 0))
            return self._taken(t, self.shuffled(whole, loaded, "poison", [k - first for k in offsets]))
        elements = {k: self._read_element(a, t.kind, k, "1", "") for k in dict.fromkeys(offsets)}
        value = "poison"
        for lane, k in enumerate(offsets):
            value = self.insert(memory, value, elements[k], lane)
        return self._taken(t, value)

    def read_turned(self, a: Access, result: SSAValue) -> list[str] | None:
        """A tile [k, lane] whose columns lie side by side in memory: squares of it are read by column, and transposed."""
        shape, types = vector_shape(result.type), self.layout(result.type)
        kind, width = types[0].kind, types[0].width
        if len(shape) != 2 or a.strides[0] != 1 or not isinstance(a.strides[1], int) or a.strides[1] < 2:
            return None
        side = min(self.lanes, shape[0])
        whole = all(t == types[0].wide(width) for t in types) and side in (4, 8) and shape[0] % side == 0 and width % side == 0
        if not whole or memory_kind(kind) != kind or any(bound is not None for bound in a.bounds):
            return None
        square = types[0].wide(side)
        names: list[str] = []
        for first in range(0, shape[0], side):
            rows: list[list[str]] = [[] for _ in range(side)]
            for lane in range(0, shape[1], side):
                places = (self._pointer(a, first + (lane + j) * a.strides[1]) for j in range(side))
                for row, piece in zip(rows, self._transposed(square, [self._load(a, square, *p) for p in places]), strict=True):
                    row.append(piece)
            names += [name for row in rows for name in self.joined(square, row, width)]
        return names

    def _transposed(self, t: Register, rows: Sequence[str]) -> list[str]:
        """A square of registers: step by step blocks off the diagonal change places, the largest first."""
        rows, step = list(rows), t.width // 2
        while step:
            for i in (i for i in range(t.width) if not i & step):
                x, y = rows[i], rows[i + step]
                rows[i] = self.shuffled(t, x, y, [t.width + p - step if p & step else p for p in range(t.width)])
                rows[i + step] = self.shuffled(t, x, y, [t.width + p if p & step else p + step for p in range(t.width)])
            step //= 2
        return rows

    def _write_element(self, a: Access, kind: str, value: str, offset: int, condition: str) -> None:
        """Writes an element as memory has it."""
        pointer, align = self._pointer(a, offset)
        stored = f"store {text_of(Register(memory_kind(kind)))} {value}, ptr {pointer}, align {align}"
        store = stored + self.aliases.behind(a.view.base)
        if condition == "1":
            self.emit(store)
            return
        write, done = self.fresh("write"), self.fresh("written")
        self.emit(f"br i1 {condition}, label %{write}, label %{done}")
        self.start_block(write)
        self.emit(store)
        self.emit(f"br label %{done}")
        self.start_block(done)

    def write_register(self, a: Access, t: Register, value: str, offset: int, row: str, start: int) -> None:
        if self._is_apart(a, t, row):
            for k, one in zip(range(0, t.width, self.lanes), self.parts(t, value, self.lanes), strict=True):
                self.write_register(a, t.wide(self.lanes), one, offset + k * a.stride, row, start + k)
            return
        memory, value = t.of(memory_kind(t.kind)), self._stored(t, value)
        if t.width == 1:
            self._write_element(a, t.kind, value, offset, lane_condition(self, a, row, start))
            return
        if a.stride != 1:
            for lane in range(t.used):
                element, condition = self.extract(memory, value, lane), lane_condition(self, a, row, start + lane)
                self._write_element(a, t.kind, element, offset + lane * a.stride, condition)
            return
        (pointer, align), behind = self._pointer(a, offset), self.aliases.behind(a.view.base)
        if mask := self._mask(a, t, row, start):
            self.emit(
                f"call void @llvm.masked.store.{suffix_of(memory)}.p0({text_of(memory)} {value}, ptr align {align} {pointer}, "
                f"{text_of(t.of('i1'))} {mask}){behind}"
            )
        else:
            self.emit(f"store {text_of(memory)} {value}, ptr {pointer}, align {align}{behind}")

    def prefetch(self, op: PrefetchOp) -> None:
        pointer, _ = self._pointer(access(self, op.memref, op.indices), 0)
        write, locality = (int(cast("IntegerAttr", a).value.data) for a in (op.isWrite, op.localityHint))
        self.emit(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 {write}, i32 {locality}, i32 1)")


def prefetch(e: MemoryWriter, op: Operation) -> None:
    assert isinstance(op, PrefetchOp)
    e.prefetch(op)
