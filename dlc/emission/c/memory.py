"""Buffers as C pointers, and reads and writes of registers.

A row of contiguous elements is one vector load or store per register; other rows, and those that may exceed the buffer, are
accessed element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from dlc.dialects.prefetch import PrefetchOp
from dlc.dialects.sizes import sizes_of
from dlc.emission.c.core import CWriter
from dlc.emission.c.statements import Define, Name, concat
from dlc.emission.common import memory
from dlc.emission.common.emitter import Handlers
from dlc.emission.common.linear_expression import LinearExpression
from dlc.emission.common.memory import ARRAY_ALIGN, lane_access, lane_in_bounds, memref_address, tile_access
from dlc.emission.common.records import TileAccess
from dlc.emission.common.registers import Register, element_bytes, memref_type, vector_shape
from dlc.ir import IndexType, Operation, OpResult, SSAValue, memref, vector
from dlc.runtime.program.kernel_text import required_alignment
from dlc.shapes.dims import product

# A work-item loads up to this many elements with one vector load.
_MAX_ELEMENTS_PER_LOAD = 4
# The interval of a kernel's size arguments; the caller guarantees it, so that sums of a few sizes do not overflow.
_SIZE_INTERVAL = (-(1 << 62), (1 << 62) - 1)


class CMemoryWriter(CWriter):
    """Emit loads, stores, barriers and prefetches."""

    def _buffer(self, space: str, qualifier: str, kind: str, hint: str) -> Name:
        """Return the name of a new buffer in an address space."""
        name = self.name(hint)
        self.pointers[name] = f"{self.syntax.spaces[space]}{qualifier}{self.memory_type(kind)} *"
        return name

    def size_argument(self, value: SSAValue, hint: str) -> str:
        """Register a size as a parameter of the function; return its declaration."""
        name = self.name(hint)
        self.ranges[name], self.linear_expressions[value] = _SIZE_INTERVAL, self.term(name)
        return f"const {self.syntax.types['i64']} {name}"

    def array_argument(self, value: SSAValue, hint: str, *, written: bool) -> str:
        """Return the declaration of an array parameter: a pointer to it, or a buffer and the array's byte offset in it."""
        kind, qualifier = self.kind(memref_type(value).element_type), "" if written else "const "
        name = self._buffer("global", qualifier, kind, hint)
        start = required_alignment(product(sizes_of(value)) * element_bytes(kind))
        self.views[value] = memref_address(self, name, start, value)
        pointer, shape_comment = self.pointers[name], f"/* {'x'.join(map(str, sizes_of(value))) or 'scalar'} */"
        if not self.syntax.passes_buffer_offsets:
            return f"{pointer}{self.syntax.restrict}{name} {shape_comment}"
        memory, byte = self.name(f"{name}_memory"), self.name(f"{name}_start")
        self.scopes[-1].lines.append(Define(name, pointer, concat(f"({pointer})(", memory, " + ", byte, ")")))
        char, long = self.syntax.types["i8"], self.syntax.types["i64"]
        buffer = f"{self.syntax.spaces['global']}{qualifier}{char} *{self.syntax.restrict}{memory}"
        return f"{buffer}, const {long} {byte} {shape_comment}"

    def allocate_local(self, result: SSAValue, kind: str, count: int, *, workgroup: bool) -> str:
        space = "local" if workgroup else "private"
        name = self._buffer(space, "", kind, result.name_hint or "local")
        align_attribute = self.syntax.aligned.format(bytes=ARRAY_ALIGN)
        text = f"{self.syntax.spaces[space]}{self.memory_type(kind)} {name}[{max(1, count)}] {align_attribute};"
        self.declarations.append(text)
        if workgroup:
            self.group_bytes += -(-max(1, count) * element_bytes(kind) // ARRAY_ALIGN) * ARRAY_ALIGN
        return name

    # Conditions

    def in_bounds(self, index: LinearExpression, size: LinearExpression) -> str:
        low, high = self.range(index) or _SIZE_INTERVAL
        smallest, largest = self.range(size) or _SIZE_INTERVAL
        if high < 0 or low >= largest:
            return "0"
        text = self.index(index)
        conditions = [concat(text, " >= 0")] * (low < 0) + [concat(text, " < ", self.index(size))] * (high >= smallest)
        return self._conjunction(*conditions) if conditions else "1"

    def conjunction(self, a: str, b: str) -> str:
        return self._conjunction(a, b)

    def _conjunction(self, *conditions: str) -> str:
        """Return the conjunction of several conditions."""
        value = concat(conditions[0], *(token for condition in conditions[1:] for token in (" && ", condition)))
        return self.define_once(value, Register("i1"), value, "inside")

    # One register

    def _template_fields(self, access: TileAccess, offset: int) -> dict[str, str]:
        """Return the template fields of a load or store.

        They are pointer {p}, index {i}, address {a}, and the address space of the pointer type {space}.
        """
        index = access.displacement.plus(LinearExpression(offset))
        space = self.pointers[access.view.base].removesuffix("*").removesuffix(f"{self.memory_type(access.view.kind)} ")
        return {
            "p": access.pointer,
            "i": self.index(index),
            "a": self.offset_pointer(access.pointer, index),
            "space": space,
        }

    def _is_aligned(self, access: TileAccess, type: Register, offset: int) -> bool:
        """Return whether a vector access is aligned to its own size and the dialect has aligned accesses."""
        size = element_bytes(type.kind)
        is_multiple = gcd(access.align, (access.displacement.constant + offset) * size) % (type.width * size) == 0
        return is_multiple and type.width > 1 and self.has("load.aligned")

    def _load(self, access: TileAccess, type: Register, offset: int) -> str:
        """Return an expression that loads contiguous elements."""
        stored_type, fields = type.with_kind(self.stored_kind(type.kind)), self._template_fields(access, offset)
        text = self.expression(
            "load.aligned" if self._is_aligned(access, stored_type, offset) else "load", stored_type, fields=fields
        )
        return (
            text
            if stored_type.kind == type.kind
            else self.expression(f"from_memory.{type.kind}", self.computed_register(type), text, source_type=stored_type)
        )

    def _store(self, access: TileAccess, type: Register, value: str, offset: int) -> str:
        """Return a statement that stores contiguous elements."""
        stored_type, fields = type.with_kind(self.stored_kind(type.kind)), self._template_fields(access, offset)
        if stored_type.kind != type.kind:
            value = self.expression(f"to_memory.{type.kind}", stored_type, value, source_type=self.computed_register(type))
        template_name = "store.aligned" if self._is_aligned(access, stored_type, offset) else "store"
        return concat(self.expression(template_name, stored_type, value, fields=fields), ";")

    def read_register(
        self, access: TileAccess, type: Register, offset: int, row_in_bounds: str, first_lane: int, padding: str, hint: str
    ) -> str:
        conditions = [lane_in_bounds(self, access, row_in_bounds, first_lane + i) for i in range(type.width)]
        is_in_bounds = all(c == "1" for c in conditions)
        if access.stride == 1 and is_in_bounds:
            return self.compute(type, self._load(access, type, offset), hint, movable=True)

        def element(index: int, condition: str) -> str:
            if condition == "0":
                return padding
            part, start = lane_access(self, access, offset, index)
            text = self._load(part, type.scalar, start)
            return text if condition == "1" else concat("(", condition, " ? ", text, " : ", padding, ")")

        if access.stride == 0 and is_in_bounds:
            first = self.compute(type.scalar, element(0, "1"), hint, movable=True)
            return self.splat(type, first, hint) if type.width > 1 else first
        lanes = [element(i, condition) for i, condition in enumerate(conditions)]
        return self.compute(type, self.from_lanes(type, lanes), hint, movable=True)

    def read_lanes(
        self, access: TileAccess, type: Register, offsets: Sequence[int], contiguous_range: tuple[int, int] | None, hint: str
    ) -> str:
        if contiguous_range is not None and contiguous_range[1] in (2, 4, 8, 16):
            loaded_type = type.with_width(contiguous_range[1])
            name = self.compute(loaded_type, self._load(access, loaded_type, contiguous_range[0]), hint, movable=True)
            texts = [self.lane(loaded_type, name, k - contiguous_range[0]) for k in offsets]
        else:
            texts = [self._load(access, type.scalar, k) for k in offsets]
        return self.compute(type, self.from_lanes(type, texts), hint, movable=True)

    def read_transposed(self, access: TileAccess, result: SSAValue, padding: str) -> list[str] | None:
        """Read a tile in which each row is a splat of one element: load vectors of these elements, and splat each element.

        Only for targets with work-groups: CPUs load and splat one element in a single instruction.
        """
        shape, types = vector_shape(result.type), self.layout(result.type)
        if (
            self.target.groups is None
            or len(shape) < 2
            or access.strides[-2:] != (1, 0)
            or any(b is not None for b in access.bounds)
        ):
            return None
        vector, row_strides = types[0].with_width(gcd(shape[-2], _MAX_ELEMENTS_PER_LOAD)), access.strides[:-2]
        stored_type = vector.with_kind(self.stored_kind(vector.kind))
        if not all(isinstance(s, int) and self._is_aligned(access, stored_type, s) for s in (0, *row_strides)):
            return None
        row, names = types[: len(types) // prod(shape[:-1])], list[str]()
        hint, *_ = self.hints(result, "read")
        loaded = ""
        for index in self.rows(result.type):
            lane = index[-1] % vector.width
            if lane == 0:
                offset = sum(i * s for i, s in zip(index, (*row_strides, 1), strict=True) if isinstance(s, int))
                loaded = self.compute(vector, self._load(access, vector, offset), hint, movable=True)
            element = self.lane(vector, loaded, lane)
            names += [self.compute(t, self.splat_literal(t, element), "row", movable=True) for t in row]
        return names

    def write_register(
        self, access: TileAccess, type: Register, value: str, offset: int, row_in_bounds: str, first_lane: int
    ) -> None:
        conditions = [lane_in_bounds(self, access, row_in_bounds, first_lane + i) for i in range(type.width)]
        if access.stride == 1 and all(c == "1" for c in conditions):
            self.emit(self._store(access, type, value, offset))
            return
        for i, condition in enumerate(conditions):
            if condition != "0":
                part, start = lane_access(self, access, offset, i)
                text = self._store(part, type.scalar, self.lane(type, value, i), start)
                self.emit(text if condition == "1" else concat("if (", condition, ") ", text))

    def load_index(self, op: memref.LoadOp) -> None:
        """Emit a load of an index."""
        text = self._load(tile_access(self, op.memref, op.indices), Register("i64"), 0)
        self.linear_expressions[op.res] = self.define_index(text, op.res.name_hint or "element", None)

    def synchronize(self) -> None:
        """Emit a barrier with fences for local memory, and for buffers that work-items both write and read."""
        spaces = ("local", "global") if self.synchronizes_globally else ("local",)
        fences = " | ".join(self.syntax.fences[space] for space in spaces if space in self.syntax.fences)
        self.emit(self.syntax.barrier.format(fences=fences))

    def prefetch(self, op: PrefetchOp) -> None:
        """Emit `memref.prefetch` if the dialect has it."""
        if self.has("prefetch"):
            access = tile_access(self, op.memref, op.indices)
            self.emit(
                self.expression(
                    "prefetch", self.computed_register(Register(access.view.kind)), fields=self._template_fields(access, 0)
                ),
                ";",
            )


def written_buffers(kernel: Operation) -> set[SSAValue]:
    """Return the buffers that a kernel, or an op in it, writes to."""
    buffers = set[SSAValue]()
    for op in kernel.walk():
        match op:
            case memref.StoreOp():
                buffers.add(_root_buffer(op.memref))
            case vector.TransferWriteOp():
                buffers.add(_root_buffer(op.source))
            case _:
                continue
    return buffers


def read_buffers(kernel: Operation) -> set[SSAValue]:
    """Return the buffers that a kernel, or an op in it, reads from."""
    buffers = set[SSAValue]()
    for op in kernel.walk():
        match op:
            case memref.LoadOp():
                buffers.add(_root_buffer(op.memref))
            case vector.TransferReadOp():
                buffers.add(_root_buffer(op.source))
            case _:
                continue
    return buffers


def _root_buffer(buffer: SSAValue) -> SSAValue:
    """Return the buffer at the root of a chain of views."""
    while isinstance(buffer, OpResult) and isinstance(buffer.op, memref.SubviewOp | memref.ReinterpretCastOp):
        buffer = buffer.op.source
    return buffer


def load(writer: CMemoryWriter, op: Operation) -> None:
    assert isinstance(op, memref.LoadOp)
    if isinstance(op.res.type, IndexType):
        writer.load_index(op)
    else:
        memory.load(writer, op)


def prefetch(writer: CMemoryWriter, op: Operation) -> None:
    assert isinstance(op, PrefetchOp)
    writer.prefetch(op)


def barrier(writer: CMemoryWriter, op: Operation) -> None:
    writer.synchronize()


HANDLERS: Handlers = {**memory.HANDLERS, "memref.load": load, "memref.prefetch": prefetch, "gpu.barrier": barrier}
