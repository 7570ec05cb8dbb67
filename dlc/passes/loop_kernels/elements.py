"""Values of a loop inside its kernel: elements in registers, or an array in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias, cast

import numpy as np

from dlc.dialects.dl.base import element_type_of, shape_of
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.interfaces import storage_type
from dlc.ir import Attribute, SSAValue, memref
from dlc.passes.kernel_builder import Buffer, KernelBuilder
from dlc.passes.kernel_values import Index as KernelIndex
from dlc.passes.structured import Index
from dlc.passes.types import memref_of

# Maximum elements of a tensor in registers.
MAX_REGISTER_ELEMENTS = 64
# The bytes that a copy loads at once.
_COPY_BYTES = 64
# An array of SSA values of an element type, with the shape of a tensor.
ElementArray: TypeAlias = Any


class NotLowerableError(Exception):
    """A loop cannot become one kernel; the message says why."""


@dataclass(frozen=True, eq=False)
class Elements:
    """A small tensor in registers: an array of SSA values."""

    array: ElementArray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape


@dataclass(frozen=True, eq=False)
class ArrayInMemory:
    """A tensor in memory: the part of a row-major buffer at the index `prefix` of its leading axes.

    If `lane` is given, the tensor is that of one lane: the index of `lane_axis` of the buffer is always `lane`.
    """

    buffer: SSAValue
    prefix: tuple[Index, ...] = ()
    lane_axis: int = 0
    lane: SSAValue | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        shape = list(memref_of(self.buffer).get_shape())
        if self.lane is not None:
            shape[self.lane_axis] = 1
        return tuple(shape[len(self.prefix) :])

    def at(self, index: Index) -> ArrayInMemory:
        """Return the part at an index of the first axis."""
        return replace(self, prefix=(*self.prefix, index))

    def positions(self, builder: KernelBuilder, indices: Sequence[Index]) -> list[SSAValue]:
        """Return the indices of an element in the buffer."""
        positions = [builder.op_builder.value(i) for i in (*self.prefix, *indices)]
        if self.lane is not None:
            positions[self.lane_axis] = self.lane
        return positions


LoopValue: TypeAlias = "Elements | ArrayInMemory"


def static_shape(value: SSAValue | Attribute) -> tuple[int, ...]:
    """Return the shape of a tensor; raise NotLowerableError if it is symbolic."""
    shape = shape_of(value)
    if not all(isinstance(n, int) for n in shape):
        raise NotLowerableError("it has symbolic sizes")
    return cast("tuple[int, ...]", shape)


def is_small_constant(value: SSAValue) -> bool:
    """Return whether a value is a constant that a kernel computes, and does not read from memory."""
    return isinstance(value.owner, ConstantOp) and prod(static_shape(value)) <= MAX_REGISTER_ELEMENTS


def element_storage(value: SSAValue) -> Attribute:
    """Return the type of the elements of a tensor inside kernels."""
    return storage_type(element_type_of(value))


def new_elements(shape: Sequence[int]) -> ElementArray:
    """Return an uninitialized array for the elements of a tensor."""
    return np.empty(tuple(shape), object)


def load(builder: KernelBuilder, array: ArrayInMemory, indices: Sequence[Index]) -> SSAValue:
    """Load one element."""
    positions, element = array.positions(builder, indices), memref_of(array.buffer).element_type
    return builder.op_builder.op(memref.LoadOp.create(operands=[array.buffer, *positions], result_types=[element]))


def store(builder: KernelBuilder, value: SSAValue, array: ArrayInMemory, indices: Sequence[Index]) -> None:
    """Store one element."""
    positions = array.positions(builder, indices)
    builder.op_builder.insert(memref.StoreOp.create(operands=[value, array.buffer, *positions]))


def load_all(builder: KernelBuilder, array: ArrayInMemory) -> Elements:
    """Load all elements of an array into registers."""
    elements = new_elements(array.shape)
    for position in np.ndindex(*array.shape):
        elements[position] = load(builder, array, position)
    return Elements(elements)


def store_all(builder: KernelBuilder, value: Elements, array: ArrayInMemory) -> None:
    """Store all elements to an array."""
    for position in np.ndindex(*value.shape):
        store(builder, value.array[position], array, position)


def copy_buffer(builder: KernelBuilder, source: SSAValue, target: SSAValue) -> None:
    """Copy a whole row-major buffer, by vectors unless its elements are booleans."""
    size, bits = prod(memref_of(source).get_shape()), cast(Any, memref_of(source).element_type).bitwidth
    flat = [Buffer(builder, builder.op_builder.reinterpret(b, 0, (size,), (1,))) for b in (source, target)]
    if bits < 8:
        with builder.loop(0, size) as i:
            flat[1][i] = flat[0][i]
        return
    width = _COPY_BYTES * 8 // bits
    whole = size // width * width

    def copy_vector(start: KernelIndex, width: int) -> None:
        flat[1].set_block((start,), (0,), flat[0].block((start,), (width,), (0,)))

    if whole:
        with builder.loop(0, whole, width) as start:
            copy_vector(start, width)
    if size > whole:
        copy_vector(whole, size - whole)
