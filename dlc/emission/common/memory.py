"""Memrefs: views, local arrays, and reads and writes of scalars and vectors through any projected permutation.

With static strides each register of a tile is at a constant distance from the first element of the tile, so that an access
computes a single pointer (Note [Linear indices]). Dimensions with a dynamic stride need one pointer per row. The language
decides how to read or write a register that is partly used, has strided elements, or may exceed the buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd, prod

from dlc.dialects.shape_cast import ShapeCastOp
from dlc.dialects.sizes import sizes_of, strides_of
from dlc.dialects.workgroup import is_workgroup
from dlc.emission.common.emitter import Handlers, KernelEmitter
from dlc.emission.common.linear_expression import LinearExpression
from dlc.emission.common.records import TileAccess
from dlc.emission.common.registers import MemrefAddress, Register, element_bytes, memref_type, vector_shape
from dlc.errors import CompileError, UnsupportedError
from dlc.ir import AffineConstantExpr, AffineDimExpr, DenseArrayBase, Operation, SSAValue, memref, vector

_DYNAMIC = -(1 << 63)
ARRAY_ALIGN = 64


# Views


def memref_address(
    emitter: KernelEmitter, base: str, align: int, value: SSAValue, offset: LinearExpression | None = None
) -> MemrefAddress:
    """Return the address of a memref value: its elements begin at `base`, or `offset` elements after it."""
    type = memref_type(value)
    strides = tuple(s if isinstance(s, int) else emitter.size(s) for s in strides_of(value))
    return MemrefAddress(base, align, emitter.kind(type.element_type), type.get_shape(), strides, offset or LinearExpression(0))


def _offsets(emitter: KernelEmitter, op: Operation, operands: Sequence[SSAValue]) -> list[LinearExpression]:
    """Return the static and dynamic offsets of a view as linear expressions."""
    static = op.properties["static_offsets"]
    assert isinstance(static, DenseArrayBase)
    dynamic = iter(operands)
    return [emitter.linear(next(dynamic)) if v == _DYNAMIC else LinearExpression(int(v)) for v in static.get_values()]


def subview(emitter: KernelEmitter, op: Operation) -> None:
    """Emit `memref.subview`: only address arithmetic, no code."""
    assert isinstance(op, memref.SubviewOp)
    source, offset = emitter.view(op.source), emitter.view(op.source).offset
    for index, stride in zip(_offsets(emitter, op, op.offsets), source.strides, strict=True):
        offset = offset.plus(emitter.scale_expression(index, stride))
    emitter.views[op.result] = memref_address(emitter, source.base, source.align, op.result, offset)


def reinterpret_cast(emitter: KernelEmitter, op: Operation) -> None:
    """Emit `memref.reinterpret_cast`: only address arithmetic, no code."""
    assert isinstance(op, memref.ReinterpretCastOp)
    # As in MLIR, the offset is relative to the start of the buffer even if the source is a view.
    (offset,) = _offsets(emitter, op, op.offsets)
    source = emitter.view(op.source)
    emitter.views[op.result] = memref_address(emitter, source.base, source.align, op.result, offset)


def alloca(emitter: KernelEmitter, op: Operation) -> None:
    """Emit `memref.alloca`: an array that is private, or in the local memory of the work-group."""
    (result,) = op.results
    type = memref_type(result)
    kind, count, workgroup = emitter.kind(type.element_type), prod(type.get_shape()), is_workgroup(result)
    if not workgroup:
        emitter.local_bytes += count * element_bytes(kind)
        if emitter.local_bytes > emitter.target.costs.stack_bytes:
            raise CompileError(
                f"kernel @{emitter.kernel} needs {emitter.local_bytes} bytes of local buffers; its tile plan is too large"
            )
    emitter.views[result] = memref_address(
        emitter, emitter.allocate_local(result, kind, count, workgroup=workgroup), ARRAY_ALIGN, result
    )


# Loads and stores


def tile_access(
    emitter: KernelEmitter,
    buffer: SSAValue,
    indices: Sequence[SSAValue],
    dims: Sequence[int | None] = (),
    in_bounds: Sequence[bool] = (),
) -> TileAccess:
    """Return the access of the tile that starts at `indices`.

    Vector dimension k runs along dimension `dims[k]` of the buffer; None means that it does not advance (broadcast).
    """
    view, index_expressions = emitter.view(buffer), [emitter.linear(i) for i in indices]
    total = view.offset
    for index, stride in zip(index_expressions, view.strides, strict=True):
        total = total.plus(emitter.scale_expression(index, stride))
    strides = tuple(0 if d is None else view.strides[d] for d in dims)
    bounds = tuple(
        None if is_in_bounds or d is None else (index_expressions[d], emitter.size(sizes_of(buffer)[d]))
        for d, is_in_bounds in zip(dims, in_bounds, strict=True)
    )
    return TileAccess(view, *emitter.address(view, total), _alignment(emitter, view, total), strides, total, bounds)


def _alignment(emitter: KernelEmitter, view: MemrefAddress, offset: LinearExpression) -> int:
    """Return the alignment in bytes of the terms of an offset."""
    return gcd(view.align, *(emitter.constant_divisor(name, c) * element_bytes(view.kind) for _, name, c in offset.terms))


def _conjunction(emitter: KernelEmitter, a: str, b: str) -> str:
    """Return the conjunction of two conditions, folding the constants "0" and "1"."""
    if "0" in (a, b):
        return "0"
    return b if a == "1" else a if b == "1" else emitter.conjunction(a, b)


def _row_in_bounds(emitter: KernelEmitter, access: TileAccess, index: tuple[int, ...]) -> str:
    """Return the condition that the row at these leading indices is inside the buffer."""
    condition = "1"
    for bound, i in zip(access.bounds[:-1], index, strict=True):
        if bound is not None:
            condition = _conjunction(emitter, condition, emitter.in_bounds(bound[0].plus(LinearExpression(i)), bound[1]))
    return condition


def lane_in_bounds(emitter: KernelEmitter, access: TileAccess, row_in_bounds: str, lane: int) -> str:
    """Return the condition that one element of a row is inside the buffer; `row_in_bounds` is the condition of the row."""
    if not access.bounds or (bound := access.bounds[-1]) is None:
        return row_in_bounds
    return _conjunction(emitter, row_in_bounds, emitter.in_bounds(bound[0].plus(LinearExpression(lane)), bound[1]))


def _tile_registers(
    emitter: KernelEmitter, access: TileAccess, value: SSAValue
) -> Iterator[tuple[TileAccess, Register, int, str, int]]:
    """Yield the registers of a tile.

    Each is (access of its row, type, offset of its first element, condition of the row, first lane).
    """
    types, shape = emitter.layout(value.type), vector_shape(value.type)
    row_types = types[: len(emitter.row_registers(shape[-1] if shape else 1))]
    for index in emitter.rows(value.type):
        row_in_bounds = _row_in_bounds(emitter, access, index) if access.bounds else "1"
        steps = list(zip(index, access.strides, strict=False))
        row_access = _advance_access(emitter, access, [(i, s) for i, s in steps if isinstance(s, LinearExpression)])
        offset, start = sum(i * s for i, s in steps if isinstance(s, int)), 0
        for t in row_types:
            register_access, register_offset = lane_access(emitter, row_access, offset, start)
            yield register_access, t, register_offset, row_in_bounds, start
            start += t.width


def lane_access(emitter: KernelEmitter, access: TileAccess, offset: int, lane: int) -> tuple[TileAccess, int]:
    """Return the access and the offset of an element that is `lane` elements after `offset` in its row."""
    if isinstance(access.stride, int):
        return access, offset + lane * access.stride
    return _advance_access(emitter, access, [(lane, access.stride)]), offset


def _advance_access(emitter: KernelEmitter, access: TileAccess, steps: Sequence[tuple[int, LinearExpression]]) -> TileAccess:
    """Return the access after `steps` along dimensions with dynamic strides."""
    offset = access.offset
    for count, stride in steps:
        offset = offset.plus(stride, count)
    if offset == access.offset:
        return access
    pointer, displacement = emitter.address(access.view, offset)
    align = _alignment(emitter, access.view, offset)
    return access._replace(pointer=pointer, displacement=displacement, align=align, offset=offset)


def _read(emitter: KernelEmitter, access: TileAccess, result: SSAValue, padding: str, default_hint: str) -> None:
    """Emit the reads of all registers of a tile and bind `result` to them."""
    transposed = emitter.read_transposed(access, result, padding)
    if transposed is not None:
        emitter.bind(result, transposed)
        return
    read_rows: dict[object, str] = {}  # Rows along broadcast dimensions are equal and are read once.
    names: list[str] = []
    for (row_access, t, offset, row, start), hint in zip(
        _tile_registers(emitter, access, result), emitter.hints(result, default_hint), strict=False
    ):
        key = (t.width, row_access.pointer, row_access.displacement, offset, row)
        if key not in read_rows:
            read_rows[key] = emitter.read_register(row_access, t, offset, row, start, padding, hint)
        names.append(read_rows[key])
    emitter.bind(result, names)


def _write(emitter: KernelEmitter, access: TileAccess, value: SSAValue) -> None:
    """Emit the writes of all registers of a tile."""
    for name, (row_access, t, offset, row, start) in zip(
        emitter.regs(value), _tile_registers(emitter, access, value), strict=True
    ):
        emitter.write_register(row_access, t, name, offset, row, start)


def _transfer(emitter: KernelEmitter, op: vector.TransferReadOp | vector.TransferWriteOp) -> TileAccess:
    """Return the access of a `vector.transfer_read` or `vector.transfer_write`."""
    if op.mask is not None:
        raise UnsupportedError(f"kernel @{emitter.kernel}: {op.name} with a mask cannot be emitted; use in_bounds instead")
    dims: list[int | None] = []
    for expression in op.permutation_map.data.results:
        if isinstance(expression, AffineDimExpr):
            dims.append(expression.position)
        elif isinstance(expression, AffineConstantExpr) and expression.value == 0:
            dims.append(None)
        else:
            raise CompileError(
                f"kernel @{emitter.kernel}: {op.name} with {op.permutation_map.data}, not a projected permutation"
            )
    return tile_access(emitter, op.source, op.indices, dims, [bool(b.value.data) for b in op.in_bounds])


def transfer_read(emitter: KernelEmitter, op: Operation) -> None:
    """Emit `vector.transfer_read`, unless a `vector.shape_cast` of its result emits it in another shape."""
    assert isinstance(op, vector.TransferReadOp)
    if not any(isinstance(use.operation, ShapeCastOp) and not _preserves_rows(use.operation) for use in op.result.uses):
        _read(emitter, _transfer(emitter, op), op.result, emitter.scalar(op.padding), "read")


def shape_cast(emitter: KernelEmitter, op: Operation) -> None:
    """Emit `vector.shape_cast`: regrouped rows, or a read that repeats each element of a row."""
    assert isinstance(op, ShapeCastOp)
    if _preserves_rows(op):
        emitter.bind(op.result, emitter.regs(op.source))
        return
    read_op, shape = op.source.owner, vector_shape(op.source.type)
    if not isinstance(read_op, vector.TransferReadOp) or vector_shape(op.result.type) != (*shape[:-2], shape[-2] * shape[-1]):
        raise UnsupportedError(
            f"kernel @{emitter.kernel}: vector.shape_cast from {op.source.type} to {op.result.type}; "
            "expected a vector.transfer_read whose last two axes are collapsed"
        )
    access = _transfer(emitter, read_op)
    stride, inner_stride = access.strides[-2:]
    if not isinstance(stride, int) or inner_stride != 0 or any(bound is not None for bound in access.bounds):
        raise UnsupportedError(
            f"kernel @{emitter.kernel}: vector.shape_cast of a read that does not broadcast along its last axis, "
            "or that may exceed the buffer"
        )
    run_offset, rows = _elements_before(emitter, read_op, stride), access._replace(strides=(*access.strides[:-2], 0), bounds=())
    names: list[str] = []
    for (row_access, t, offset, _, start), hint in zip(
        _tile_registers(emitter, rows, op.result), emitter.hints(op.result, "read"), strict=False
    ):
        elements = [offset + (start + lane) // shape[-1] * stride for lane in range(t.used)]
        first, last = elements[0], elements[-1]
        if first == last:
            names.append(emitter.read_register(row_access, t, first, "1", start, "", hint))
            continue
        contiguous_range = None if run_offset is None else (first - run_offset, last - first + stride)
        unused_lanes = [last] * (t.width - t.used)
        names.append(emitter.read_lanes(row_access, t, [*elements, *unused_lanes], contiguous_range, hint))
    emitter.bind(op.result, names)


def _preserves_rows(cast: ShapeCastOp) -> bool:
    """Return whether a cast leaves the last axis unchanged."""
    return vector_shape(cast.source.type)[-1:] == vector_shape(cast.result.type)[-1:]


def _elements_before(emitter: KernelEmitter, read: vector.TransferReadOp, run_length: int) -> int | None:
    """Return the offset of the read elements within runs of `run_length` consecutive buffer elements.

    None if a run exceeds the buffer or the offset is not constant.
    """
    view, indices = emitter.view(read.source), [emitter.linear(i) for i in read.indices]
    run_axes = (k for k, (n, stride) in enumerate(zip(view.shape, view.strides, strict=True)) if (n, stride) == (run_length, 1))
    axis = next(run_axes, None)
    if run_length == 1:
        return 0
    return None if axis is None or indices[axis].terms else indices[axis].constant


def transfer_write(emitter: KernelEmitter, op: Operation) -> None:
    """Emit `vector.transfer_write`."""
    assert isinstance(op, vector.TransferWriteOp)
    _write(emitter, _transfer(emitter, op), op.vector)


def load(emitter: KernelEmitter, op: Operation) -> None:
    """Emit `memref.load`."""
    assert isinstance(op, memref.LoadOp)
    _read(emitter, tile_access(emitter, op.memref, op.indices), op.res, "", "element")


def store(emitter: KernelEmitter, op: Operation) -> None:
    """Emit `memref.store`."""
    assert isinstance(op, memref.StoreOp)
    _write(emitter, tile_access(emitter, op.memref, op.indices), op.value)


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
