"""Buffers as C's pointers, and reads and writes of registers: a row whose elements lie side by side is one vector load or
store per register; other rows, and those that may leave the buffer, are read element by element."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from dlc.dialects.prefetch import PrefetchOp
from dlc.dialects.sizes import sizes_of
from dlc.dims import product
from dlc.emission.c.core import Writer
from dlc.emission.c.text import Define, Name, code
from dlc.emission.visit import memory
from dlc.emission.visit.linear import Linear
from dlc.emission.visit.memory import ARRAY_ALIGN, access, lane_condition, view_of
from dlc.emission.visit.records import Access
from dlc.emission.visit.registers import Register, element_bytes, memref_type, vector_shape
from dlc.emission.visit.visit import Handlers
from dlc.ir import IndexType, Operation, OpResult, SSAValue, memref, vector
from dlc.runtime.program.kernel_text import start_of

# Elements that an item reads at once.
_AT_ONCE = 4
# Of a kernel's sizes; who gives them sees to it, so that sums of a few do not overflow.
_SIZES = (-(1 << 62), (1 << 62) - 1)


class MemoryWriter(Writer):
    def _buffer(self, space: str, qualifier: str, kind: str, hint: str) -> Name:
        """The name of a new buffer in a space."""
        name = self.name(hint)
        self.pointers[name] = f"{self.syntax.spaces[space]}{qualifier}{self.memory_type(kind)} *"
        return name

    def size_argument(self, value: SSAValue, hint: str) -> str:
        """Says that a size is a parameter of the function; how it is declared."""
        name = self.name(hint)
        self.ranges[name], self.linears[value] = _SIZES, self.term(name)
        return f"const {self.syntax.types['i64']} {name}"

    def array_argument(self, value: SSAValue, hint: str, *, written: bool) -> str:
        """As `size_argument`, for an array: a pointer to it, or to a buffer and where it begins there."""
        kind, qualifier = self.kind(memref_type(value).element_type), "" if written else "const "
        name = self._buffer("global", qualifier, kind, hint)
        start = start_of(product(sizes_of(value)) * element_bytes(kind))
        self.views[value] = view_of(self, name, start, value)
        pointer, said = self.pointers[name], f"/* {'x'.join(map(str, sizes_of(value))) or 'scalar'} */"
        if not self.syntax.starts:
            return f"{pointer}{self.syntax.restrict}{name} {said}"
        memory, byte = self.name(f"{name}_memory"), self.name(f"{name}_start")
        self.scopes[-1].lines.append(Define(name, pointer, code(f"({pointer})(", memory, " + ", byte, ")")))
        char, long = self.syntax.types["i8"], self.syntax.types["i64"]
        return f"{self.syntax.spaces['global']}{qualifier}{char} *{self.syntax.restrict}{memory}, const {long} {byte} {said}"

    def array(self, result: SSAValue, kind: str, count: int, *, workgroup: bool) -> str:
        space = "local" if workgroup else "private"
        name = self._buffer(space, "", kind, result.name_hint or "local")
        aligned = self.syntax.aligned.format(bytes=ARRAY_ALIGN)
        text = f"{self.syntax.spaces[space]}{self.memory_type(kind)} {name}[{max(1, count)}] {aligned};"
        self.declarations.append(text)
        if workgroup:
            self.group_bytes += -(-max(1, count) * element_bytes(kind) // ARRAY_ALIGN) * ARRAY_ALIGN
        return name

    # Conditions

    def inside(self, place: Linear, size: int) -> str:
        known = self.range(place)
        low, high = known if known is not None else (-1, size)
        if known is not None and (high < 0 or low >= size):
            return "0"
        text = self.index(place)
        tests = [code(text, " >= 0")] * (low < 0) + [code(text, f" < {size}")] * (high >= size)
        return self._all(*tests) if tests else "1"

    def both(self, a: str, b: str) -> str:
        return self._all(a, b)

    def _all(self, *tests: str) -> str:
        value = code(tests[0], *(part for test in tests[1:] for part in (" && ", test)))
        return self.once(value, Register("i1"), value, "inside")

    # One register

    def _words(self, a: Access, offset: int) -> dict[str, str]:
        """The words of templates for a load or store: pointer {p}, index {i}, address {a}, how its type begins {space}."""
        place = a.form.plus(Linear(offset))
        space = self.pointers[a.view.base].removesuffix("*").removesuffix(f"{self.memory_type(a.view.kind)} ")
        return {
            "p": a.pointer,
            "i": self.index(place),
            "a": self.displaced(a.pointer, place),
            "space": space,
        }

    def _is_aligned(self, a: Access, t: Register, offset: int) -> bool:
        size = element_bytes(t.kind)
        whole = gcd(a.align, (a.form.constant + offset) * size) % (t.width * size) == 0
        return whole and t.width > 1 and self.has("load.aligned")

    def _load(self, a: Access, t: Register, offset: int) -> str:
        """Elements side by side."""
        stored, words = t.of(self.stored(t.kind)), self._words(a, offset)
        text = self.expression("load.aligned" if self._is_aligned(a, stored, offset) else "load", stored, words=words)
        return text if stored.kind == t.kind else self.expression(f"from_memory.{t.kind}", self.held(t), text, s=stored)

    def _store(self, a: Access, t: Register, value: str, offset: int) -> str:
        stored, words = t.of(self.stored(t.kind)), self._words(a, offset)
        if stored.kind != t.kind:
            value = self.expression(f"to_memory.{t.kind}", stored, value, s=self.held(t))
        which = "store.aligned" if self._is_aligned(a, stored, offset) else "store"
        return code(self.expression(which, stored, value, words=words), ";")

    def read_register(self, a: Access, t: Register, offset: int, row: str, start: int, padding: str, hint: str) -> str:
        conditions = [lane_condition(self, a, row, start + i) for i in range(t.width)]
        surely = all(c == "1" for c in conditions)
        if a.stride == 1 and surely:
            return self.compute(t, self._load(a, t, offset), hint, movable=True)

        def element(place: int, condition: str) -> str:
            if condition == "0":
                return padding
            text = self._load(a, t.single, offset + place * a.stride)
            return text if condition == "1" else code("(", condition, " ? ", text, " : ", padding, ")")

        if a.stride == 0 and surely:
            first = self.compute(t.single, element(0, "1"), hint, movable=True)
            return self.splat(t, first, hint) if t.width > 1 else first
        lanes = [element(i, condition) for i, condition in enumerate(conditions)]
        return self.compute(t, self.from_lanes(t, lanes), hint, movable=True)

    def read_lanes(self, a: Access, t: Register, offsets: Sequence[int], piece: tuple[int, int] | None, hint: str) -> str:
        if piece is not None and piece[1] in (2, 4, 8, 16):
            whole = t.wide(piece[1])
            name = self.compute(whole, self._load(a, whole, piece[0]), hint, movable=True)
            texts = [self.lane(whole, name, k - piece[0]) for k in offsets]
        else:
            texts = [self._load(a, t.single, k) for k in offsets]
        return self.compute(t, self.from_lanes(t, texts), hint, movable=True)

    def read_turned(self, a: Access, result: SSAValue) -> list[str] | None:
        """A tile each of whose rows is one element, side by side in memory: items read a few at once, and spread them.

        Processors read and spread one element in an instruction.
        """
        shape, types = vector_shape(result.type), self.layout(result.type)
        if self.target.groups is None or len(shape) < 2 or a.strides[-2:] != (1, 0) or any(b is not None for b in a.bounds):
            return None
        several, apart = types[0].wide(gcd(shape[-2], _AT_ONCE)), a.strides[:-2]
        stored = several.of(self.stored(several.kind))
        if not all(isinstance(s, int) and self._is_aligned(a, stored, s) for s in (0, *apart)):
            return None
        row, names = types[: len(types) // prod(shape[:-1])], list[str]()
        hint, *_ = self.hints(result, "read")
        whole = ""
        for index in self.rows(result.type):
            lane = index[-1] % several.width
            if lane == 0:
                offset = sum(i * s for i, s in zip(index, (*apart, 1), strict=True) if isinstance(s, int))
                whole = self.compute(several, self._load(a, several, offset), hint, movable=True)
            element = self.lane(several, whole, lane)
            names += [self.compute(t, self.splat_literal(t, element), "row", movable=True) for t in row]
        return names

    def write_register(self, a: Access, t: Register, value: str, offset: int, row: str, start: int) -> None:
        conditions = [lane_condition(self, a, row, start + i) for i in range(t.width)]
        if a.stride == 1 and all(c == "1" for c in conditions):
            self.emit(self._store(a, t, value, offset))
            return
        for i, condition in enumerate(conditions):
            if condition != "0":
                text = self._store(a, t.single, self.lane(t, value, i), offset + i * a.stride)
                self.emit(text if condition == "1" else code("if (", condition, ") ", text))

    def load_index(self, op: memref.LoadOp) -> None:
        text = self._load(access(self, op.memref, op.indices), Register("i64"), 0)
        self.linears[op.res] = self.define_index(text, op.res.name_hint or "element", None)

    def meet(self) -> None:
        """A barrier: what items tell each other by is the memory of the group, and buffers that they write and read."""
        spaces = ("local", "global") if self.meets_globally else ("local",)
        fences = " | ".join(self.syntax.fences[space] for space in spaces if space in self.syntax.fences)
        self.emit(self.syntax.barrier.format(fences=fences))

    def prefetch(self, op: PrefetchOp) -> None:
        if self.has("prefetch"):
            a = access(self, op.memref, op.indices)
            self.emit(self.expression("prefetch", self.held(Register(a.view.kind)), words=self._words(a, 0)), ";")


def written_by(kernel: Operation) -> set[SSAValue]:
    """The buffers that a kernel, or a part of it, writes to."""
    written = set[SSAValue]()
    for op in kernel.walk():
        match op:
            case memref.StoreOp():
                written.add(_root(op.memref))
            case vector.TransferWriteOp():
                written.add(_root(op.source))
            case _:
                continue
    return written


def read_by(kernel: Operation) -> set[SSAValue]:
    """The buffers that a kernel, or a part of it, reads from."""
    read = set[SSAValue]()
    for op in kernel.walk():
        match op:
            case memref.LoadOp():
                read.add(_root(op.memref))
            case vector.TransferReadOp():
                read.add(_root(op.source))
            case _:
                continue
    return read


def _root(buffer: SSAValue) -> SSAValue:
    while isinstance(buffer, OpResult) and isinstance(buffer.op, memref.SubviewOp | memref.ReinterpretCastOp):
        buffer = buffer.op.source
    return buffer


def load(e: MemoryWriter, op: Operation) -> None:
    assert isinstance(op, memref.LoadOp)
    if isinstance(op.res.type, IndexType):
        e.load_index(op)
    else:
        memory.load(e, op)


def prefetch(e: MemoryWriter, op: Operation) -> None:
    assert isinstance(op, PrefetchOp)
    e.prefetch(op)


def barrier(e: MemoryWriter, op: Operation) -> None:
    e.meet()


HANDLERS: Handlers = {**memory.HANDLERS, "memref.load": load, "memref.prefetch": prefetch, "gpu.barrier": barrier}
