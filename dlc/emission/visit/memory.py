"""Memrefs: views, local arrays, and reads and writes of scalars and vectors through any projected permutation.

Where strides are constants, a register of a tile lies at a constant distance from the tile's first element: each access
computes one pointer (Note [Linear indices]); along other dimensions each row has one. How a register is read or written
whose row is ragged, whose elements do not lie side by side, or that may leave the buffer, is the language's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd, prod

from dlc.dialects.shape_cast import ShapeCastOp
from dlc.dialects.sizes import strides_of
from dlc.dialects.workgroup import is_workgroup
from dlc.emission.visit.linear import Linear
from dlc.emission.visit.records import Access
from dlc.emission.visit.registers import Register, View, element_bytes, memref_type, vector_shape
from dlc.emission.visit.visit import Handlers, Visit
from dlc.errors import CompileError, UnsupportedError
from dlc.ir import AffineConstantExpr, AffineDimExpr, DenseArrayBase, Operation, SSAValue, memref, vector

_DYNAMIC = -(1 << 63)
ARRAY_ALIGN = 64


# Views


def view_of(e: Visit, base: str, align: int, value: SSAValue, offset: Linear | None = None) -> View:
    """A value of memref type as elements from `base` on, or `offset` further."""
    type = memref_type(value)
    strides = tuple(s if isinstance(s, int) else e.size(s) for s in strides_of(value))
    return View(base, align, e.kind(type.element_type), type.get_shape(), strides, offset or Linear(0))


def _offsets(e: Visit, op: Operation, operands: Sequence[SSAValue]) -> list[Linear]:
    """The static and dynamic offsets of a view, as linear forms."""
    static = op.properties["static_offsets"]
    assert isinstance(static, DenseArrayBase)
    dynamic = iter(operands)
    return [e.linear(next(dynamic)) if v == _DYNAMIC else Linear(int(v)) for v in static.get_values()]


def subview(e: Visit, op: Operation) -> None:
    assert isinstance(op, memref.SubviewOp)
    source, offset = e.view(op.source), e.view(op.source).offset
    for form, stride in zip(_offsets(e, op, op.offsets), source.strides, strict=True):
        offset = offset.plus(e.scaled(form, stride))
    e.views[op.result] = view_of(e, source.base, source.align, op.result, offset)


def reinterpret_cast(e: Visit, op: Operation) -> None:
    assert isinstance(op, memref.ReinterpretCastOp)
    # As in MLIR the offset counts from the buffer's start, not from the start of a source that is a view.
    (offset,) = _offsets(e, op, op.offsets)
    source = e.view(op.source)
    e.views[op.result] = view_of(e, source.base, source.align, op.result, offset)


def alloca(e: Visit, op: Operation) -> None:
    """An array of the task's or item's, or of the group's if its memory space says so."""
    (result,) = op.results
    type = memref_type(result)
    kind, count, workgroup = e.kind(type.element_type), prod(type.get_shape()), is_workgroup(result)
    if not workgroup:
        e.local_bytes += count * element_bytes(kind)
        if e.local_bytes > e.target.machine.stack_bytes:
            raise CompileError(f"kernel @{e.kernel} needs {e.local_bytes} bytes of local buffers; its tile plan is too large")
    e.views[result] = view_of(e, e.array(result, kind, count, workgroup=workgroup), ARRAY_ALIGN, result)


# Accesses


def access(
    e: Visit,
    buffer: SSAValue,
    indices: Sequence[SSAValue],
    dims: Sequence[int | None] = (),
    in_bounds: Sequence[bool] = (),
) -> Access:
    """The tile that starts at `indices` and whose dimensions run along `dims` of a buffer (None: stays where it is)."""
    view, forms = e.view(buffer), [e.linear(i) for i in indices]
    total = view.offset
    for form, stride in zip(forms, view.strides, strict=True):
        total = total.plus(e.scaled(form, stride))
    align = gcd(view.align, *(e.multiple(name, c) * element_bytes(view.kind) for _, name, c in total.terms))
    strides = tuple(0 if d is None else view.strides[d] for d in dims)
    bounds = tuple(
        None if inside or d is None else (forms[d], view.shape[d]) for d, inside in zip(dims, in_bounds, strict=True)
    )
    return Access(view, *e.address(view, total), align, strides, total, bounds)


def _both(e: Visit, a: str, b: str) -> str:
    if "0" in (a, b):
        return "0"
    return b if a == "1" else a if b == "1" else e.both(a, b)


def _row_condition(e: Visit, a: Access, index: tuple[int, ...]) -> str:
    """Whether the row at these leading indices lies in the buffer."""
    condition = "1"
    for bound, i in zip(a.bounds[:-1], index, strict=True):
        if bound is not None:
            condition = _both(e, condition, e.inside(bound[0].plus(Linear(i)), bound[1]))
    return condition


def lane_condition(e: Visit, a: Access, row: str, lane: int) -> str:
    """Whether an element of a row lies in the buffer."""
    if not a.bounds or (bound := a.bounds[-1]) is None:
        return row
    return _both(e, row, e.inside(bound[0].plus(Linear(lane)), bound[1]))


def _places(e: Visit, a: Access, value: SSAValue) -> Iterator[tuple[Access, Register, int, str, int]]:
    """(access of its row, register, offset of its first element, row condition, first lane) of each register of a tile."""
    types, shape = e.layout(value.type), vector_shape(value.type)
    row_types = types[: len(e.pieces(shape[-1] if shape else 1))]
    stride = a.stride if a.strides else 0
    for index in e.rows(value.type):
        row = _row_condition(e, a, index) if a.bounds else "1"
        steps = list(zip(index, a.strides, strict=False))
        here = _moved(e, a, [(i, s) for i, s in steps if isinstance(s, Linear)])
        offset, start = sum(i * s for i, s in steps if isinstance(s, int)), 0
        for t in row_types:
            yield here, t, offset + start * stride, row, start
            start += t.width


def _moved(e: Visit, a: Access, steps: Sequence[tuple[int, Linear]]) -> Access:
    """The access some steps further along dimensions whose strides are known only when the kernel runs."""
    whole = a.whole
    for count, stride in steps:
        whole = whole.plus(stride, count)
    if whole == a.whole:
        return a
    pointer, form = e.address(a.view, whole)
    return a._replace(pointer=pointer, form=form, whole=whole)


def _read(e: Visit, a: Access, result: SSAValue, padding: str, default_hint: str) -> None:
    turned = e.read_turned(a, result)
    if turned is not None:
        e.bind(result, turned)
        return
    done: dict[object, str] = {}  # rows along broadcast dimensions are the same
    names: list[str] = []
    for (here, t, offset, row, start), hint in zip(_places(e, a, result), e.hints(result, default_hint), strict=False):
        key = (t.width, here.pointer, here.form, offset, row)
        if key not in done:
            done[key] = e.read_register(here, t, offset, row, start, padding, hint)
        names.append(done[key])
    e.bind(result, names)


def _write(e: Visit, a: Access, value: SSAValue) -> None:
    for name, (here, t, offset, row, start) in zip(e.regs(value), _places(e, a, value), strict=True):
        e.write_register(here, t, name, offset, row, start)


def _transfer(e: Visit, op: vector.TransferReadOp | vector.TransferWriteOp) -> Access:
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
    return access(e, op.source, op.indices, dims, [bool(b.value.data) for b in op.in_bounds])


def transfer_read(e: Visit, op: Operation) -> None:
    assert isinstance(op, vector.TransferReadOp)
    if not any(isinstance(use.operation, ShapeCastOp) and not _keeps_rows(use.operation) for use in op.result.uses):
        _read(e, _transfer(e, op), op.result, e.scalar(op.padding), "read")


def shape_cast(e: Visit, op: Operation) -> None:
    """vector.shape_cast: rows counted in another way, or a read that repeats each element of a row, done in that shape."""
    assert isinstance(op, ShapeCastOp)
    if _keeps_rows(op):
        e.bind(op.result, e.regs(op.source))
        return
    read, shape = op.source.owner, vector_shape(op.source.type)
    if not isinstance(read, vector.TransferReadOp) or vector_shape(op.result.type) != (*shape[:-2], shape[-2] * shape[-1]):
        raise UnsupportedError(f"kernel @{e.kernel}: only a read is cast to another shape, its last two axes to one")
    a = _transfer(e, read)
    apart, repeated = a.strides[-2:]
    if not isinstance(apart, int) or repeated != 0 or any(bound is not None for bound in a.bounds):
        raise UnsupportedError(f"kernel @{e.kernel}: only a read that repeats elements of a buffer is cast to another shape")
    before, rows = _elements_before(e, read, apart), a._replace(strides=(*a.strides[:-2], 0), bounds=())
    names: list[str] = []
    for (here, t, offset, _, start), hint in zip(_places(e, rows, op.result), e.hints(op.result, "read"), strict=False):
        elements = [offset + (start + lane) // shape[-1] * apart for lane in range(t.used)]
        first, last = elements[0], elements[-1]
        if first == last:
            names.append(e.read_register(here, t, first, "1", start, "", hint))
            continue
        piece = None if before is None else (first - before, last - first + apart)
        unused = [last] * (t.width - t.used)
        names.append(e.read_lanes(here, t, [*elements, *unused], piece, hint))
    e.bind(op.result, names)


def _keeps_rows(cast: ShapeCastOp) -> bool:
    """Whether a cast has the rows of what it casts."""
    return vector_shape(cast.source.type)[-1:] == vector_shape(cast.result.type)[-1:]


def _elements_before(e: Visit, read: vector.TransferReadOp, apart: int) -> int | None:
    """How many elements are in the buffer before each that is read, of as many as these are apart; None if not all are."""
    view, places = e.view(read.source), [e.linear(i) for i in read.indices]
    neighbours = (k for k, (n, stride) in enumerate(zip(view.shape, view.strides, strict=True)) if (n, stride) == (apart, 1))
    axis = next(neighbours, None)
    if apart == 1:
        return 0
    return None if axis is None or places[axis].terms else places[axis].constant


def transfer_write(e: Visit, op: Operation) -> None:
    assert isinstance(op, vector.TransferWriteOp)
    _write(e, _transfer(e, op), op.vector)


def load(e: Visit, op: Operation) -> None:
    assert isinstance(op, memref.LoadOp)
    _read(e, access(e, op.memref, op.indices), op.res, "", "element")


def store(e: Visit, op: Operation) -> None:
    assert isinstance(op, memref.StoreOp)
    _write(e, access(e, op.memref, op.indices), op.value)


HANDLERS: Handlers = {
    "memref.subview": subview,
    "memref.reinterpret_cast": reinterpret_cast,
    "memref.alloca": alloca,
    "memref.load": load,
    "memref.store": store,
    "vector.transfer_read": transfer_read,
    "vector.transfer_write": transfer_write,
    "vector.shape_cast": shape_cast,
}
