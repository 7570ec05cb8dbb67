"""Memrefs as C's pointers: views, local arrays, and where a tile starts."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import NamedTuple, cast

from dlc.emission.c.core import Emitter, Handlers, View
from dlc.emission.c.vocabulary import element_bytes
from dlc.emission.visit.linear import Linear
from dlc.errors import CompileError, UnsupportedError
from dlc.ir import Attribute, DenseArrayBase, MemRefType, NoneAttr, Operation, SSAValue, memref

_DYNAMIC = -(1 << 63)
# What an item's private memory surely holds.
_PRIVATE_BYTES = 4 << 20
_BUFFER_ALIGN = 64


class Access(NamedTuple):
    """One tile in memory: where it starts, and per vector dimension the stride and the test whether an index is inside."""

    view: View
    pointer: str
    form: Linear  # elements from `pointer` on
    align: int  # of pointer + form's terms, in bytes
    strides: tuple[int, ...]
    # (index of the first element, size of the dimension) where the access may leave the buffer
    bounds: tuple[tuple[Linear, int] | None, ...]


# Views


def memref_type(value: SSAValue) -> MemRefType[Attribute]:
    assert isinstance(value.type, MemRefType)
    return cast("MemRefType[Attribute]", value.type)


def view_of(e: Emitter, source: tuple[str, str, int], value: SSAValue, offset: Linear) -> View:
    """A value of memref type as elements `offset` elements from the (base, pointer type, alignment) on."""
    type = memref_type(value)
    strides = type.get_strides()
    if strides is None or None in strides:
        raise UnsupportedError(f"kernel @{e.kernel}: strides must be constants, not {type}")
    return View(*source, e.kind(type.element_type), type.get_shape(), tuple(s for s in strides if s is not None), offset)


def argument_view(e: Emitter, name: str, value: SSAValue, written: bool) -> View:
    kind = e.kind(memref_type(value).element_type)
    pointer = f"{e.syntax.spaces['global']}{'' if written else 'const '}{e.memory_type(kind)} *"
    return view_of(e, (name, pointer, _BUFFER_ALIGN), value, Linear(0))


def _mixed(e: Emitter, op: Operation, operands: Sequence[SSAValue]) -> list[Linear]:
    """The static and dynamic offsets of a view, as linear forms."""
    static = op.properties["static_offsets"]
    assert isinstance(static, DenseArrayBase)
    dynamic = iter(operands)
    return [e.linear(next(dynamic)) if v == _DYNAMIC else Linear(int(v)) for v in static.get_values()]


def subview(e: Emitter, op: Operation) -> None:
    assert isinstance(op, memref.SubviewOp)
    source, offset = e.view(op.source), e.view(op.source).offset
    for form, stride in zip(_mixed(e, op, op.offsets), source.strides, strict=True):
        offset = offset.plus(form, stride)
    e.views[op.result] = view_of(e, source[:3], op.result, offset)


def reinterpret_cast(e: Emitter, op: Operation) -> None:
    assert isinstance(op, memref.ReinterpretCastOp)
    # As in MLIR the offset counts from the buffer's start, not from the start of a source that is a view.
    (offset,) = _mixed(e, op, op.offsets)
    e.views[op.result] = view_of(e, e.view(op.source)[:3], op.result, offset)


def alloca(e: Emitter, op: Operation) -> None:
    """An array of the item's, or of the group's if its memory space says so."""
    type = memref_type(op.results[0])
    kind, count = e.kind(type.element_type), prod(type.get_shape())
    space = "private" if isinstance(type.memory_space, NoneAttr) else "local"
    if space == "private":
        e.private_bytes += count * element_bytes(kind)
        if e.private_bytes > _PRIVATE_BYTES:
            raise CompileError(f"kernel @{e.kernel} needs {e.private_bytes} bytes of local buffers; its tile plan is too large")
    name = e.name(op.results[0].name_hint or "local")
    start, text = e.syntax.spaces[space], e.memory_type(kind)
    e.declarations.append(f"{start}{text} {name}[{max(1, count)}] {e.syntax.aligned.format(bytes=_BUFFER_ALIGN)};")
    e.views[op.results[0]] = view_of(e, (name, f"{start}{text} *", _BUFFER_ALIGN), op.results[0], Linear(0))


# Addresses


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
    align = gcd(view.align, *(e.multiple(name, c) * element_bytes(view.kind) for _, name, c in total.terms))
    strides = tuple(0 if d is None else view.strides[d] for d in dims)
    bounds = tuple(
        None if inside or d is None else (forms[d], view.shape[d]) for d, inside in zip(dims, in_bounds, strict=True)
    )
    pointer, rest = _pointer(e, view, total)
    return Access(view, pointer, rest, align, strides, bounds)


def _pointer(e: Emitter, view: View, form: Linear) -> tuple[str, Linear]:
    """A pointer to the part of `view.base[form]` that is known outside the current region, and the rest of the form."""
    pointer, terms, here = view.base, form.terms, len(e.scopes) - 1
    start = 0
    for i in range(1, len(terms) + 1):
        if i == len(terms) or terms[i][0] != terms[start][0]:
            if (depth := terms[start][0]) == here:
                break
            group, source = Linear(0, terms[start:i]), pointer
            pointer = e.at_depth(
                depth, (view.base, terms[:i]),
                lambda g=group, p=source: e.define(view.pointer, f"{p} + {e.index(g)}", view.base, movable=True),
            )  # fmt: skip
            start = i
    return pointer, Linear(form.constant, terms[start:])


HANDLERS: Handlers = {
    "memref.subview": subview,
    "memref.reinterpret_cast": reinterpret_cast,
    "memref.alloca": alloca,
}
