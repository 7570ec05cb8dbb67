"""Elements of `dl` ops, by the interfaces of the ops: each result element is computed by scalar code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TypeAlias, cast

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import DlOp, element_type_of
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.interfaces import (
    Contraction,
    DataMovement,
    Elementwise,
    GatherLike,
    Reduction,
    ScatterLike,
    Structure,
    Window,
    broadcast_map,
)
from dlc.dialects.dl.movement.shaping import ConcatOp, ReshapeOp
from dlc.dialects.dl.programs.identities import AddDependencyOp
from dlc.ir import AffineDimExpr, AffineMap, SSAValue, tensor
from dlc.passes.kernel_builder import KernelBuilder
from dlc.passes.linalg.linalg_builder import dense_tensor_type
from dlc.passes.loop_kernels.element_body import ElementBody, IntegerRanges, Read
from dlc.passes.loop_kernels.elements import (
    MAX_REGISTER_ELEMENTS,
    ArrayInMemory,
    ElementArray,
    Elements,
    LoopValue,
    NotLowerableError,
    element_storage,
    load,
    load_all,
    new_elements,
    static_shape,
    store,
    store_all,
)
from dlc.passes.structured import Index

Shape: TypeAlias = "Callable[[SSAValue], tuple[int, ...]]"
# The row of each index of a scatter, and whether it is in bounds (None: always).
_Rows: TypeAlias = "Mapping[tuple[int, ...], tuple[SSAValue, SSAValue | None]]"
# Maximum multiply-adds of a contraction or window that are unrolled.
MAX_UNROLLED_PRODUCTS = 1024
# Maximum selects of a scatter to registers at runtime indices; larger arrays are updated in memory. There is one per index
# and element, and LLVM's time grows at least quadratically with their number: 0.13 s for 1,056 selects, 0.8 s for 3,363, and
# 51 s for 9,975 (processor time of code generation on Zen 5).
_MAX_SELECT_OPS = 256


class ElementOps:
    """Lowers `dl` ops on values of a loop to scalar code."""

    def __init__(self, builder: KernelBuilder, values: dict[SSAValue, LoopValue], shape: Shape) -> None:
        self.builder = builder
        self.values = values
        # Returns the shape of a value, or of one lane of it.
        self.shape = shape
        self.ranges = IntegerRanges()
        # Buffers with copies of register values that are read at runtime indices.
        self.spilled: dict[SSAValue, ArrayInMemory] = {}

    def reader(self, value: SSAValue) -> Read:
        """Return a function that reads an element of a value."""

        def read(indices: Sequence[Index]) -> SSAValue:
            source = self.values[value]
            if isinstance(source, ArrayInMemory):
                return load(self.builder, source, indices)
            if all(isinstance(i, int) for i in indices):
                return source.array[tuple(indices)]
            if value not in self.spilled:
                buffer = self.builder.op_builder.alloca(element_storage(value), source.shape)
                self.spilled[value] = ArrayInMemory(buffer)
                store_all(self.builder, source, self.spilled[value])
            return load(self.builder, self.spilled[value], indices)

        return read

    def lower(self, op: DlOp, *, in_place: bool = False) -> None:
        """Compute the results of an op; `in_place` allows a scatter to overwrite its first operand in memory."""
        if isinstance(op, ScatterLike):
            self.values[op.results[0]] = self._scatter(op, in_place)
            return
        if isinstance(op, ReshapeOp | AddDependencyOp) and self.shape(op.results[0]) == self.shape(op.operands[0]):
            value = self.values[op.operands[0]]
            if isinstance(value, ArrayInMemory) and prod(self.shape(op.results[0])) > MAX_REGISTER_ELEMENTS:
                # A second name of the array: the schedule of updates in place would not know its readers.
                raise NotLowerableError(f"{op.name} is another view of a large array")
            self.values[op.results[0]] = value
            return
        if len(op.results) != 1:
            raise NotLowerableError(f"{op.name} has {len(op.results)} results")
        result = op.results[0]
        shape = self.shape(result)
        if prod(shape) > MAX_REGISTER_ELEMENTS:
            raise NotLowerableError(f"{op.name} has {prod(shape)} elements")
        elements = self._elements(op, shape)
        self.values[result] = Elements(elements)

    def _elements(self, op: DlOp, shape: tuple[int, ...]) -> ElementArray:
        match op:
            case ConstantOp():
                return self._constant(op)
            case Elementwise():
                return self._elementwise(op, shape)
            case DataMovement():
                map_, read = op.source_map(), self.reader(op.operands[0])
                return _by_position(shape, lambda position: read(_evaluate(map_, position)))
            case ReshapeOp() | AddDependencyOp():
                return self._reshape(op, shape)
            case ConcatOp():
                return self._concat(op)
            case Reduction():
                return self._reduction(op)
            case Contraction():
                return self._contraction(op, shape)
            case Window():
                return self._window(op, shape)
            case GatherLike():
                return self._gather(op, shape)
            case _:
                raise NotLowerableError(f"{op.name} has no scalar code")

    def body(self) -> ElementBody:
        """Return a body that inserts at the builder's insertion point."""
        return ElementBody(self.builder, self.ranges)

    def _constant(self, op: ConstantOp) -> ElementArray:
        data, type_ = np.asarray(op.reference()), element_storage(op.results[0])
        return _by_position(
            self.shape(op.results[0]), lambda position: scalar.constant(self.body(), data[position].item(), type_)
        )

    def _elementwise(self, op: Elementwise, shape: tuple[int, ...]) -> ElementArray:
        body = self.body()
        operands = [(self.reader(v), broadcast_map(v, op.results[0])) for v in op.operands]
        return _by_position(
            shape, lambda position: op.scalar(body, *(read(_evaluate(map_, position)) for read, map_ in operands))
        )

    def _reshape(self, op: DlOp, shape: tuple[int, ...]) -> ElementArray:
        (x, *_), read = op.operands, self.reader(op.operands[0])
        source = _by_position(self.shape(x), read)
        return source.reshape(shape)

    def _concat(self, op: ConcatOp) -> ElementArray:
        parts = [_by_position(self.shape(v), self.reader(v)) for v in op.operands]
        return np.concatenate(parts, op.concat_axis)

    def _reduction(self, op: Reduction) -> ElementArray:
        (x,), body, read = op.operands, self.body(), self.reader(op.operands[0])
        shape, element = self.shape(x), element_type_of(x)
        if prod(shape) > MAX_UNROLLED_PRODUCTS:
            raise NotLowerableError(f"{op.name} reduces {prod(shape)} elements")
        accumulator = scalar.wide_float(element_storage(x))
        outer = [1 if a in op.reduction_axes else n for a, n in enumerate(shape)]
        totals = _by_position(outer, lambda _: scalar.constant(body, op.identity(), accumulator))
        for position in np.ndindex(*shape):
            target = tuple(0 if a in op.reduction_axes else i for a, i in enumerate(position))
            totals[target] = op.combine(body, totals[target], scalar.convert(body, read(position), element, accumulator))
        return self._narrow(totals, op).reshape(self.shape(op.results[0]))

    def _contraction(self, op: Contraction, shape: tuple[int, ...]) -> ElementArray:
        structure, body = op.structure(), ElementBody(self.builder, self.ranges, contracts=True)
        extents = self._extents(op, structure)
        if structure.repeated_operands or op.packed_dot_name is not None or op.dequantizes_weights:
            raise NotLowerableError(f"{op.name} is packed")
        if any(tuple(view) != static_shape(v) for view, v in zip(structure.views, (*op.operands, op.results[0]), strict=True)):
            raise NotLowerableError(f"{op.name} regroups its operands")
        *maps, result_map = structure.maps
        reads = [(self.reader(v), map_) for v, map_ in zip(op.operands, maps, strict=True)]
        accumulator = scalar.wide_float(element_storage(op.results[0]))
        totals = _by_position(shape, lambda _: scalar.constant(body, 0, accumulator))
        for point in np.ndindex(*extents):
            target = tuple(_evaluate(result_map, point))
            factors = [read(_evaluate(map_, point)) for read, map_ in reads]
            totals[target] = op.accumulate(body, totals[target], *factors)
        return self._narrow(totals, op)

    def _window(self, op: Window, shape: tuple[int, ...]) -> ElementArray:
        structure, body, (x,) = op.structure(), self.body(), op.operands
        extents, element, read = self._extents(op, structure), element_type_of(x), self.reader(x)
        accumulator = scalar.wide_float(element_storage(x))
        totals = _by_position(shape, lambda _: scalar.constant(body, op.identity(), accumulator))
        for point in np.ndindex(*extents):
            target = tuple(_evaluate(structure.maps[-1], point))
            value = scalar.convert(body, read(_evaluate(structure.maps[0], point)), element, accumulator)
            totals[target] = op.combine(body, totals[target], value)
        return self._narrow(totals, op)

    def _extents(self, op: Contraction | Window, structure: Structure) -> tuple[int, ...]:
        """Return the extents of the iterators; that of the lane axis, if any, is 1."""
        extents = list(structure.extents)
        for size, expression in zip(self.shape(op.results[0]), structure.maps[-1].results, strict=True):
            if isinstance(expression, AffineDimExpr):
                extents[expression.position] = size
        if not all(isinstance(n, int) for n in extents):
            raise NotLowerableError(f"{op.name} has symbolic sizes")
        static_extents = cast("list[int]", extents)
        if prod(static_extents) > MAX_UNROLLED_PRODUCTS:
            raise NotLowerableError(f"{op.name} has {prod(static_extents)} multiply-adds")
        return tuple(static_extents)

    def _narrow(self, totals: ElementArray, op: DlOp) -> ElementArray:
        """Round totals that were accumulated in a wider type."""
        body, stored = self.body(), element_storage(op.results[0])
        return _by_position(
            totals.shape,
            lambda position: (
                scalar.convert(body, totals[position], totals[position].type, stored)
                if totals[position].type != stored
                else totals[position]
            ),
        )

    def _gather(self, op: GatherLike, shape: tuple[int, ...]) -> ElementArray:
        stand_ins = [
            tensor.EmptyOp.create(result_types=[dense_tensor_type(static_shape(v), element_storage(v))]).results[0]
            for v in op.operands
        ]
        body = ElementBody(self.builder, self.ranges, {s: self.reader(v) for s, v in zip(stand_ins, op.operands, strict=True)})
        index = self.builder.op_builder.constants.index
        return _by_position(shape, lambda position: op.gather(body, stand_ins, [index(i) for i in position]))

    def _scatter(self, op: ScatterLike, in_place: bool) -> LoopValue:
        x, indices, _ = op.operands
        target, read_index, body = self.values[x], self.reader(indices), self.body()
        if isinstance(target, ArrayInMemory) and not in_place:
            raise NotLowerableError(f"{op.name} updates an array that is read later, or that is not a state")
        rows = {i: op.row(body, read_index(i)) for i in np.ndindex(*self.shape(indices))}
        if isinstance(target, ArrayInMemory):
            self._scatter_to_memory(op, rows, target)
            return target
        num_runtime_rows = sum(scalar.constant_integer(row) is None for row, _ in rows.values())
        if num_runtime_rows * prod(target.shape) <= _MAX_SELECT_OPS:
            return self._scatter_to_registers(op, rows, target)
        array = ArrayInMemory(self.builder.op_builder.alloca(element_storage(x), target.shape))
        store_all(self.builder, target, array)
        self._scatter_to_memory(op, rows, array)
        return load_all(self.builder, array)

    def _scatter_to_registers(self, op: ScatterLike, rows: _Rows, target: Elements) -> Elements:
        """Select each element, for each index, from its old value and its update."""
        read_update, elements, body = self.reader(op.operands[2]), target.array.copy(), self.body()
        for i, (row, in_bounds) in rows.items():
            static_row = scalar.constant_integer(row)
            for r in range(target.shape[0]) if static_row is None else (static_row,):
                here = scalar.compare(body, "eq", row, scalar.constant(body, r, row.type), row.type)
                condition = here if in_bounds is None else scalar.bit_and(body, here, in_bounds)
                for s in np.ndindex(*target.shape[1:]):
                    old = elements[(r, *s)]
                    elements[(r, *s)] = scalar.select(body, condition, op.combine(body, old, read_update((*i, *s))), old)
        return Elements(elements)

    def _scatter_to_memory(self, op: ScatterLike, rows: _Rows, target: ArrayInMemory) -> None:
        updates = op.operands[2]
        if prod(self.shape(updates)) > MAX_UNROLLED_PRODUCTS:
            raise NotLowerableError(f"{op.name} writes {prod(self.shape(updates))} elements")
        read_update, body = self.reader(updates), self.body()
        for i, (row, in_bounds) in rows.items():
            outer = self.builder.op_builder
            if in_bounds is not None:
                self.builder.op_builder = outer.branch(in_bounds)
            for s in np.ndindex(*target.shape[1:]):
                update = read_update((*i, *s))
                old = load(self.builder, target, (row, *s))
                store(self.builder, op.combine(body, old, update), target, (row, *s))
            self.builder.op_builder = outer


def _by_position(shape: Sequence[int], element: Callable[[tuple[int, ...]], SSAValue]) -> ElementArray:
    """Return an array with the element that a function returns for each position."""
    elements = new_elements(shape)
    for position in np.ndindex(*shape):
        elements[position] = element(position)
    return elements


def _evaluate(map_: AffineMap, position: Sequence[int]) -> list[int]:
    return list(map_.eval(position, []))
