"""Memrefs: reads and writes of scalars and vectors through any projected permutation.

A row whose elements lie side by side is one vector load or store per register; other rows, and those that may leave the
buffer, are read element by element.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import gcd

from dlc.dialects.prefetch import PrefetchOp
from dlc.emission.c.convert import from_lanes, lane, splat
from dlc.emission.c.core import Emitter, Handlers
from dlc.emission.c.views import Access, access
from dlc.emission.c.vocabulary import Register, element_bytes, vector_shape
from dlc.emission.visit.linear import Linear
from dlc.errors import CompileError, UnsupportedError
from dlc.ir import (
    AffineConstantExpr,
    AffineDimExpr,
    IndexType,
    Operation,
    SSAValue,
    memref,
    vector,
)

# Conditions


def _inside(e: Emitter, bound: tuple[Linear, int], at: int) -> str:
    """Whether index + at lies in the buffer: "1" if it surely does, "0" if it surely does not."""
    form = bound[0].plus(Linear(at))
    known = e.range(form)
    low, high = known if known is not None else (-1, bound[1])
    if known is not None and (high < 0 or low >= bound[1]):
        return "0"
    text = e.index(form)
    tests = [f"{text} >= 0"] * (low < 0) + [f"{text} < {bound[1]}"] * (high >= bound[1])
    return " && ".join(tests) or "1"


def _all(*conditions: str) -> str:
    if "0" in conditions:
        return "0"
    return " && ".join(dict.fromkeys(c for c in conditions if c != "1")) or "1"


def _row_condition(e: Emitter, a: Access, index: tuple[int, ...]) -> str:
    """Whether the row at these leading indices lies in the buffer."""
    return _all(*(_inside(e, bound, i) for bound, i in zip(a.bounds[:-1], index, strict=True) if bound is not None))


def _lane_condition(e: Emitter, a: Access, row: str, lane: int) -> str:
    if not a.bounds or (bound := a.bounds[-1]) is None:
        return row
    return _all(row, _inside(e, bound, lane))


# One register


def _words(e: Emitter, a: Access, offset: int) -> dict[str, str]:
    """The words of templates for a load or store: pointer {p}, index {i}, address {a}, and how its type begins {space}."""
    form = a.form.plus(Linear(offset))
    index = e.index(form)
    space = a.view.pointer.removesuffix("*").removesuffix(f"{e.memory_type(a.view.kind)} ")
    address = a.pointer if index == "0" else f"{a.pointer} {index}" if index.startswith("-") else f"{a.pointer} + {index}"
    return {"p": a.pointer, "i": index, "a": address, "space": space}


def _aligned(e: Emitter, a: Access, t: Register, offset: int) -> bool:
    size = element_bytes(t.kind)
    whole = gcd(a.align, (a.form.constant + offset) * size) % (t.width * size) == 0
    return whole and t.width > 1 and e.has("load.aligned")


def _load(e: Emitter, a: Access, t: Register, offset: int) -> str:
    """Elements side by side."""
    memory, words = t.of(e.stored(t.kind)), _words(e, a, offset)
    text = e.expression("load.aligned" if _aligned(e, a, memory, offset) else "load", memory, words=words)
    return text if memory.kind == t.kind else e.expression(f"from_memory.{t.kind}", t.of(e.computed(t.kind)), text, s=memory)


def _store(e: Emitter, a: Access, t: Register, value: str, offset: int) -> str:
    memory, words = t.of(e.stored(t.kind)), _words(e, a, offset)
    if memory.kind != t.kind:
        value = e.expression(f"to_memory.{t.kind}", memory, value, s=t.of(e.computed(t.kind)))
    return e.expression("store.aligned" if _aligned(e, a, memory, offset) else "store", memory, value, words=words) + ";"


def read_register(e: Emitter, a: Access, t: Register, offset: int, row: str, start: int, padding: str, hint: str) -> str:
    """The register whose first element lies `offset` elements into the tile, at lane `start` of its row."""
    stride, single = a.strides[-1] if a.strides else 1, t._replace(width=1)
    conditions = [_lane_condition(e, a, row, start + i) for i in range(t.width)]
    surely = all(c == "1" for c in conditions)
    if stride == 1 and surely:
        return e.define(e.type(t), _load(e, a, t, offset), hint, movable=True)

    def element(place: int, condition: str) -> str:
        if condition == "0":
            return padding
        text = _load(e, a, single, offset + place * stride)
        return text if condition == "1" else f"({condition} ? {text} : {padding})"

    if stride == 0 and surely:
        if t.width == 1:
            return e.define(e.type(t), element(0, "1"), hint, movable=True)
        scalar = e.define(e.type(single), element(0, "1"), hint, movable=True)
        return e.define(e.type(t), splat(e, t, scalar), hint, movable=True)
    lanes = [element(i, condition) for i, condition in enumerate(conditions)]
    return e.define(e.type(t), from_lanes(e, t, lanes), hint, movable=True)


def write_register(e: Emitter, a: Access, t: Register, value: str, offset: int, row: str, start: int) -> None:
    stride, single = a.strides[-1] if a.strides else 1, t._replace(width=1)
    conditions = [_lane_condition(e, a, row, start + i) for i in range(t.width)]
    if stride == 1 and all(c == "1" for c in conditions):
        e.emit(_store(e, a, t, value, offset))
        return
    for i, condition in enumerate(conditions):
        if condition != "0":
            text = _store(e, a, single, lane(e, t, value, i), offset + i * stride)
            e.emit(text if condition == "1" else f"if ({condition}) {text}")


# Ops


def _places(e: Emitter, a: Access, value: SSAValue) -> Iterator[tuple[Register, int, str, int, str]]:
    """(register, offset of its first element, row condition, first lane, suffix of its name) of each register of a tile."""
    types, shape, suffixes = e.layout(value.type), vector_shape(value.type), e.suffixes(value.type)
    row_types = types[: len(e.pieces(shape[-1] if shape else 1))]
    stride = a.strides[-1] if a.strides else 0
    for index in product(*(range(n) for n in shape[:-1])):
        row = _row_condition(e, a, index) if a.bounds else "1"
        offset, start = sum(i * s for i, s in zip(index, a.strides, strict=False)), 0
        for t in row_types:
            yield t, offset + start * stride, row, start, next(suffixes)
            start += t.width


def read(e: Emitter, a: Access, result: SSAValue, padding: str) -> None:
    done: dict[object, str] = {}  # rows along broadcast dimensions are the same
    names: list[str] = []
    hint = result.name_hint or "read"
    for t, offset, row, start, suffix in _places(e, a, result):
        key = (t.width, offset, row)
        if key not in done:
            done[key] = read_register(e, a, t, offset, row, start, padding, hint + suffix)
        names.append(done[key])
    e.bind(result, names)


def write(e: Emitter, a: Access, value: SSAValue) -> None:
    for name, (t, offset, row, start, _) in zip(e.regs(value), _places(e, a, value), strict=True):
        write_register(e, a, t, name, offset, row, start)


def _transfer(e: Emitter, op: vector.TransferReadOp | vector.TransferWriteOp) -> Access:
    if op.mask is not None:
        raise UnsupportedError(f"kernel @{e.kernel}: {op.name} with a mask cannot be emitted; use in_bounds instead")
    dims: list[int | None] = []
    for expression in op.permutation_map.data.results:
        if isinstance(expression, AffineDimExpr):
            dims.append(expression.position)
        elif isinstance(expression, AffineConstantExpr) and expression.value == 0:
            dims.append(None)
        else:
            raise CompileError(f"kernel @{e.kernel}: {op.name} with {op.permutation_map.data}, not a projected permutation")
    return access(e, e.view(op.source), op.indices, dims, [bool(b.value.data) for b in op.in_bounds])


def transfer_read(e: Emitter, op: Operation) -> None:
    assert isinstance(op, vector.TransferReadOp)
    read(e, _transfer(e, op), op.result, e.scalar(op.padding))


def transfer_write(e: Emitter, op: Operation) -> None:
    assert isinstance(op, vector.TransferWriteOp)
    write(e, _transfer(e, op), op.vector)


def load(e: Emitter, op: Operation) -> None:
    assert isinstance(op, memref.LoadOp)
    a = access(e, e.view(op.memref), op.indices)
    (t,) = e.layout(op.res.type)
    hint = op.res.name_hint or "element"
    if isinstance(op.res.type, IndexType):
        e.linears[op.res] = e.define_index(_load(e, a, t, 0), hint, None)
    else:
        e.bind(op.res, [e.define(e.type(t), _load(e, a, t, 0), hint, movable=True)])


def store(e: Emitter, op: Operation) -> None:
    assert isinstance(op, memref.StoreOp)
    a = access(e, e.view(op.memref), op.indices)
    (t,) = e.layout(op.value.type)
    e.emit(_store(e, a, t, e.scalar(op.value), 0))


def prefetch(e: Emitter, op: Operation) -> None:
    assert isinstance(op, PrefetchOp)
    if e.has("prefetch"):
        a = access(e, e.view(op.memref), op.indices)
        t = Register(a.view.kind, 1)
        e.emit(e.expression("prefetch", t.of(e.computed(t.kind)), words=_words(e, a, 0)) + ";")


def barrier(e: Emitter, op: Operation) -> None:
    e.emit(e.syntax.barrier)


HANDLERS: Handlers = {
    "memref.load": load,
    "memref.store": store,
    "memref.prefetch": prefetch,
    "gpu.barrier": barrier,
    "vector.transfer_read": transfer_read,
    "vector.transfer_write": transfer_write,
}
