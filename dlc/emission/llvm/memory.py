"""Memrefs: views, and reads and writes of scalars and vectors through any projected permutation.

Strides are constants, so a register of a tile lies at a constant distance from the tile's first element: each access
computes one pointer (Note [Linear indices]) and displaces it. A row whose elements lie side by side is one load or store,
masked where the row is ragged or may leave the buffer; other rows are read element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import gcd, prod
from typing import NamedTuple, cast

from dlc.dialects.prefetch import PrefetchOp
from dlc.emission.llvm.constants import lane_literals, mask_literal
from dlc.emission.llvm.core import (
    Emitter,
    RegisterType,
    View,
    element_bytes,
    llvm_memory_element,
    register_type,
    splat_literal,
    splat_register,
    vector_shape,
)
from dlc.emission.visit.linear import Linear
from dlc.errors import CompileError, UnsupportedError
from dlc.ir import (
    AffineConstantExpr,
    AffineDimExpr,
    Attribute,
    DenseArrayBase,
    IntegerAttr,
    MemRefType,
    Operation,
    SSAValue,
    i1,
    i8,
    i64,
    memref,
    vector,
)

_DYNAMIC = -(1 << 63)
# What a thread's stack surely holds, with room for the caller's frames.
_STACK_BYTES = 4 << 20


class Access(NamedTuple):
    """One tile in memory: where it starts, and per vector dimension the stride and the test whether an index is inside."""

    pointer: str
    constant: int
    text: str  # LLVM type of an element in memory
    bytes: int
    align: int  # of `pointer`, in bytes
    base: str
    strides: tuple[int, ...]
    # (index of the first element, size of the dimension) where the access may leave the buffer
    bounds: tuple[tuple[Linear, int] | None, ...]


def memref_type(value: SSAValue) -> MemRefType[Attribute]:
    assert isinstance(value.type, MemRefType)
    return cast("MemRefType[Attribute]", value.type)


def view_of(base: str, align: int, value: SSAValue, offset: Linear) -> View:
    """A value of memref type as elements `offset` elements from `base` on."""
    type = memref_type(value)
    strides = type.get_strides()
    if strides is None or None in strides:
        raise UnsupportedError(f"the CPU backend needs constant strides, not {type}")
    return View(base, align, type.element_type, type.get_shape(), tuple(s for s in strides if s is not None), offset)


def _mixed(e: Emitter, op: Operation, name: str, operands: Sequence[SSAValue]) -> list[Linear]:
    """The static and dynamic entries of an index list, as linear forms."""
    static = op.properties[f"static_{name}"]
    assert isinstance(static, DenseArrayBase)
    dynamic = iter(operands)
    return [e.linear(next(dynamic)) if v == _DYNAMIC else Linear(int(v)) for v in static.get_values()]


def subview(e: Emitter, op: Operation) -> None:
    assert isinstance(op, memref.SubviewOp)
    source, offset = e.view(op.source), e.view(op.source).offset
    for form, stride in zip(_mixed(e, op, "offsets", op.offsets), source.strides, strict=True):
        offset = offset.plus(form, stride)
    e.views[op.result] = view_of(source.base, source.align, op.result, offset)


def reinterpret_cast(e: Emitter, op: Operation) -> None:
    assert isinstance(op, memref.ReinterpretCastOp)
    # As in MLIR the offset counts from the buffer's start, not from the start of a source that is a view.
    (offset,) = _mixed(e, op, "offsets", op.offsets)
    source = e.view(op.source)
    e.views[op.result] = view_of(source.base, source.align, op.result, offset)


def alloca(e: Emitter, op: Operation) -> None:
    type = memref_type(op.results[0])
    count = prod(type.get_shape())
    e.alloca_bytes += count * element_bytes(type.element_type)
    if e.alloca_bytes > _STACK_BYTES:
        raise CompileError(f"kernel @{e.kernel} needs {e.alloca_bytes} bytes of local buffers; its tile plan is too large")
    name = f"%{e.fresh('local')}"
    e.allocas.append(f"  {name} = alloca [{count} x {llvm_memory_element(type.element_type)}], align 64")
    e.views[op.results[0]] = view_of(name, 64, op.results[0], Linear(0))


def access(
    e: Emitter,
    view: View,
    indices: Sequence[SSAValue],
    dims: Sequence[int | None] = (),
    in_bounds: Sequence[bool] = (),
) -> Access:
    """The tile that starts at `indices` and whose dimensions run along `dims` of the view (None: stays where it is)."""
    forms = [e.linear(i) for i in indices]
    total = view.offset
    for form, stride in zip(forms, view.strides, strict=True):
        total = total.plus(form, stride)
    text, size = llvm_memory_element(view.element), element_bytes(view.element)
    align = gcd(view.align, *(c * size for _, _, c in total.terms))
    strides = tuple(0 if d is None else view.strides[d] for d in dims)
    bounds = tuple(
        None if inside or d is None else (forms[d], view.shape[d]) for d, inside in zip(dims, in_bounds, strict=True)
    )
    pointer = e.address(view.base, text, total)
    return Access(pointer, total.constant, text, size, align, view.base, strides, bounds)


# Conditions


def _inside(e: Emitter, bound: tuple[Linear, int], at: int) -> str:
    """An i1: whether index + at lies in the buffer; one unsigned comparison sees both ends."""
    form = bound[0].plus(Linear(at))
    if not form.terms:
        return "1" if 0 <= form.constant < bound[1] else "0"
    return e.define_once(f"icmp ult i64 {e.materialize(form)}, {bound[1]}")


def _row_condition(e: Emitter, a: Access, index: tuple[int, ...]) -> str:
    """Whether the row at these leading indices lies in the buffer: "1" if it surely does."""
    condition = "1"
    for bound, i in zip(a.bounds[:-1], index, strict=True):
        if bound is not None:
            inside = _inside(e, bound, i)
            condition = inside if condition == "1" else e.define_once(f"and i1 {condition}, {inside}")
    return condition


def _mask(e: Emitter, a: Access, t: RegisterType, row: str, start: int) -> str:
    """The lanes to read or write: "" for all of them."""
    mask_type = t.of(i1)
    mask = "" if t.used == t.width else mask_literal(t)
    if a.bounds and (bound := a.bounds[-1]) is not None:
        lanes = register_type(i64, t.width)
        first = splat_register(e, lanes, e.materialize(bound[0].plus(Linear(start))))
        each = e.define_once(f"add {lanes.text} {first}, {lane_literals(lanes, [str(i) for i in range(t.width)])}")
        inside = e.define_once(f"icmp ult {lanes.text} {each}, {splat_literal(lanes, str(bound[1]))}")
        mask = e.define_once(f"and {mask_type.text} {inside}, {mask}") if mask else inside
    if row != "1":
        whole = splat_register(e, mask_type, row)
        mask = e.define_once(f"and {mask_type.text} {whole}, {mask}") if mask else whole
    return mask


# One register


def _element_pointer(e: Emitter, a: Access, offset: int) -> tuple[str, int]:
    constant = a.constant + offset
    return e.displace(a.pointer, a.text, constant), gcd(a.align, constant * a.bytes)


def _read_element(e: Emitter, a: Access, element: Attribute, offset: int, condition: str, padding: str) -> str:
    pointer, align = _element_pointer(e, a, offset)
    if condition != "1":
        # Outside the buffer its first element is read in place, and dropped.
        pointer = e.define(f"select i1 {condition}, ptr {pointer}, ptr {a.base}")
        align = a.bytes
    value = e.define(f"load {a.text}, ptr {pointer}, align {align}")
    scalar = register_type(element, 1)
    if scalar.text != a.text:
        value = e.define(f"icmp ne i8 {value}, 0")
    if condition != "1":
        value = e.define(f"select i1 {condition}, {scalar.text} {value}, {scalar.text} {padding}")
    return value


def _read_row(e: Emitter, a: Access, t: RegisterType, offset: int, mask: str, padding: str) -> str:
    pointer, align = _element_pointer(e, a, offset)
    memory = t if t.scalar == a.text else t.of(i8)
    if not mask:
        value = e.define(f"load {memory.text}, ptr {pointer}, align {align}")
    else:
        other = splat_register(e, t, padding)
        if memory is not t:
            other = e.define_once(f"zext {t.text} {other} to {memory.text}")
        value = e.define(
            f"call {memory.text} @llvm.masked.load.{memory.suffix}.p0(ptr align {align} {pointer}, "
            f"{t.of(i1).text} {mask}, {memory.text} {other})"
        )
    return value if memory is t else e.define(f"icmp ne {memory.text} {value}, zeroinitializer")


def _lane_condition(e: Emitter, a: Access, row: str, lane: int) -> str:
    if not a.bounds or (bound := a.bounds[-1]) is None:
        return row
    inside = _inside(e, bound, lane)
    return inside if row == "1" else e.define_once(f"and i1 {row}, {inside}")


def read_register(e: Emitter, a: Access, t: RegisterType, offset: int, row: str, start: int, padding: str) -> str:
    """The register whose first element lies `offset` elements into the tile, at lane `start` of its row."""
    stride = a.strides[-1] if a.strides else 1
    if t.width == 1:
        return _read_element(e, a, t.element, offset, _lane_condition(e, a, row, start), padding)
    if stride == 1:
        return _read_row(e, a, t, offset, _mask(e, a, t, row, start), padding)
    if stride == 0:
        return splat_register(e, t, _read_element(e, a, t.element, offset, row, padding))
    value = "poison" if t.used == t.width else "zeroinitializer"
    for lane in range(t.used):
        condition = _lane_condition(e, a, row, start + lane)
        element = _read_element(e, a, t.element, offset + lane * stride, condition, padding)
        value = e.define(f"insertelement {t.text} {value}, {t.scalar} {element}, i64 {lane}")
    return value


def _write_element(e: Emitter, a: Access, element: Attribute, value: str, offset: int, condition: str) -> None:
    pointer, align = _element_pointer(e, a, offset)
    scalar = register_type(element, 1)
    if scalar.text != a.text:
        value = e.define(f"zext i1 {value} to i8")
    if condition == "1":
        e.emit(f"  store {a.text} {value}, ptr {pointer}, align {align}")
        return
    write, done = e.fresh("write"), e.fresh("written")
    e.emit(f"  br i1 {condition}, label %{write}, label %{done}")
    e.start_block(write)
    e.emit(f"  store {a.text} {value}, ptr {pointer}, align {align}")
    e.emit(f"  br label %{done}")
    e.start_block(done)


def write_register(e: Emitter, a: Access, t: RegisterType, value: str, offset: int, row: str, start: int) -> None:
    stride = a.strides[-1] if a.strides else 1
    if t.width == 1:
        _write_element(e, a, t.element, value, offset, _lane_condition(e, a, row, start))
        return
    if stride != 1:
        for lane in range(t.used):
            element = e.define(f"extractelement {t.text} {value}, i64 {lane}")
            _write_element(e, a, t.element, element, offset + lane * stride, _lane_condition(e, a, row, start + lane))
        return
    pointer, align = _element_pointer(e, a, offset)
    memory = t if t.scalar == a.text else t.of(i8)
    if memory is not t:
        value = e.define(f"zext {t.text} {value} to {memory.text}")
    if mask := _mask(e, a, t, row, start):
        e.emit(
            f"  call void @llvm.masked.store.{memory.suffix}.p0({memory.text} {value}, ptr align {align} {pointer}, "
            f"{t.of(i1).text} {mask})"
        )
    else:
        e.emit(f"  store {memory.text} {value}, ptr {pointer}, align {align}")


# Ops


def _places(e: Emitter, a: Access, value: SSAValue) -> Iterator[tuple[RegisterType, int, str, int]]:
    """(register type, offset of its first element, row condition, first lane) of each register of a tile."""
    types, shape = e.layout(value.type), vector_shape(value.type)
    pieces = len(e.pieces(shape[-1] if shape else 1))
    step = e.lanes * (a.strides[-1] if a.strides else 0)
    for index in product(*(range(n) for n in shape[:-1])):
        row = _row_condition(e, a, index) if a.bounds else "1"
        offset = sum(i * s for i, s in zip(index, a.strides, strict=False))
        for piece in range(pieces):
            start = piece * e.lanes
            yield types[piece], offset + piece * step, row, start


def read(e: Emitter, a: Access, result: SSAValue, padding: str) -> None:
    done: dict[object, str] = {}  # rows along broadcast dimensions are the same
    names: list[str] = []
    for t, offset, row, start in _places(e, a, result):
        key = (t.width, offset, row)
        if key not in done:
            done[key] = read_register(e, a, t, offset, row, start, padding)
        names.append(done[key])
    e.bind(result, names)


def write(e: Emitter, a: Access, value: SSAValue) -> None:
    e.stored.add(a.base)
    for name, (t, offset, row, start) in zip(e.regs(value), _places(e, a, value), strict=True):
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
    e.bind(op.res, [_read_element(e, a, op.res.type, 0, "1", "")])


def store(e: Emitter, op: Operation) -> None:
    assert isinstance(op, memref.StoreOp)
    a = access(e, e.view(op.memref), op.indices)
    e.stored.add(a.base)
    _write_element(e, a, op.value.type, e.scalar(op.value), 0, "1")


def prefetch(e: Emitter, op: Operation) -> None:
    assert isinstance(op, PrefetchOp)
    a = access(e, e.view(op.memref), op.indices)
    pointer, _ = _element_pointer(e, a, 0)
    write, locality = (int(cast("IntegerAttr", a).value.data) for a in (op.isWrite, op.localityHint))
    e.emit(f"  call void @llvm.prefetch.p0(ptr {pointer}, i32 {write}, i32 {locality}, i32 1)")


HANDLERS: dict[str, Callable[[Emitter, Operation], None]] = {
    "memref.subview": subview,
    "memref.reinterpret_cast": reinterpret_cast,
    "memref.alloca": alloca,
    "memref.load": load,
    "memref.store": store,
    "memref.prefetch": prefetch,
    "vector.transfer_read": transfer_read,
    "vector.transfer_write": transfer_write,
}
