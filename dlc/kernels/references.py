"""Memory inside kernels: references to operands and results, and local buffers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NoReturn, cast

import numpy as np

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import is_unsigned, storage_type
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.ir import Attribute
from dlc.kernels.coverage import Coverage
from dlc.kernels.functions import index
from dlc.kernels.index_ranges import Interval, LinearForm
from dlc.kernels.kernel_trace import KernelTrace, Scope, current_kernel_trace
from dlc.kernels.lanes import LaneAccess, LoopLanes
from dlc.kernels.races import GridAccess, GridAccesses
from dlc.kernels.shapes import is_python_integer, require_shape
from dlc.kernels.values import Value, ValueLike, absent, constant, element_type_of_dtype
from dlc.numpy.apply import as_shape
from dlc.passes.kernel_builder import Buffer
from dlc.shapes.traced_dims import TracedSize

# The stack of a thread of a task has this much room for the buffers of one kernel.
_MAX_BUFFER_BYTES = 1 << 16


class WithoutOperators:
    """Operators are errors: comparisons too, which Python would compute by identity."""

    trace: KernelTrace

    def misused(self, *_: object) -> NoReturn:
        raise self.trace.error(f"an operator with {self!r}", DTypeError)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = __mod__ = misused
    __rfloordiv__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __neg__ = __abs__ = __and__ = __or__ = __invert__ = misused
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __bool__ = misused  # pyright: ignore[reportAssignmentType]
    __hash__ = object.__hash__


@dataclass(eq=False)
class ArrayReference(WithoutOperators):
    """An operand, a result or a local buffer: `x[i, j]` is an element, `x.load` and `x.store` move vectors.

    Indices are Python integers and indices of loops. Every index must be provably in bounds. With fewer indices than axes,
    `x[i]` is a reference to the array at these indices of the first axes.

    Attributes:
        name: Its name for messages.
        whole_shape: The sizes of the whole array; `shape` are those of the referenced part.
        kind: `operand`, `result` or `buffer`.
        is_initialized: Whether all elements have values: those of a result without an initial value do not.
        outer_indices: The indices of the first axes, for a reference to a part of an array.
        coverage: The elements that stores certainly write.
        grid_accesses: The accesses to a result.
    """

    trace: KernelTrace
    name: str
    whole_shape: tuple[TracedSize, ...]
    element: Attribute
    memory: Buffer
    kind: str
    scope: Scope
    is_initialized: bool = True
    outer_indices: tuple[Value, ...] = ()
    coverage: Coverage = field(default_factory=Coverage)
    grid_accesses: GridAccesses = field(default_factory=GridAccesses)

    @staticmethod
    def of_argument(
        trace: KernelTrace, name: str, kind: str, shape: Sequence[TracedSize], element: Attribute
    ) -> ArrayReference:
        """Add an operand or a result to the arguments of a kernel; return a reference to it."""
        memory = trace.add_buffer(name, storage_type(element), shape, signed=not is_unsigned(element))
        return ArrayReference(trace, name, tuple(shape), element, memory, kind, trace.scope)

    @property
    def shape(self) -> tuple[TracedSize, ...]:
        return self.whole_shape[len(self.outer_indices) :]

    @property
    def dtype(self) -> np.dtype[Any]:
        return numpy_dtype(self.element)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> TracedSize:
        """The number of elements."""
        return cast(TracedSize, prod(cast(Any, self.shape)))

    def __getitem__(self, indices: Any) -> Any:
        positions = self._positions(indices, may_be_fewer=True)
        if len(positions) < len(self.whole_shape):
            return replace(self, outer_indices=tuple(positions))
        if axes := self._lane_axes(positions):
            return self._load(positions, (cast(LoopLanes, self.trace.lanes).width,), axes, None)
        widths = (1,) * len(positions)
        indices_in_bounds = self._checked(positions, widths)
        self._require_readable()
        self._record_access(positions, widths, is_store=False)
        return self._value(self.memory[tuple(indices_in_bounds)])

    def __setitem__(self, indices: Any, value: ValueLike) -> None:
        positions = self._positions(indices)
        element = self._stored(value)
        if axes := self._lane_axes(positions):
            width = cast(LoopLanes, self.trace.lanes).width
            vector = element if element.shape else element.derived(element.kernel_value.splat((width,)))
            self._store(positions, vector, axes, masked=False)
            return
        widths = (1,) * len(positions)
        indices_in_bounds = self._checked(positions, widths)
        if element.shape:
            raise self._error(f"a vector of shape {element.shape} is stored to one element; use {self.name}.store", ShapeError)
        self.memory[tuple(indices_in_bounds)] = element.kernel_value
        self._record_access(positions, widths, is_store=True)
        self._record_store(positions, widths)

    def load(
        self,
        *indices: Any,
        width: int | Sequence[int],
        axis: int | Sequence[int] | None = None,
        fill: float | None = None,
    ) -> Value:
        """Return the vector of `width` elements that starts at these indices, or the tile if `width` has several sizes.

        `axis` is the axis of a vector, or those of a tile; by default the last ones. With `fill`, elements outside of the
        array are `fill`; without, all must be provably in bounds.
        """
        self.trace.require_elements(f"{self.name}.load")
        shape = require_shape(self.trace, "load", width)
        return self._load(self._positions(indices), shape, self._axes(axis, len(shape)), fill)

    def _load(self, positions: Sequence[Value], shape: tuple[int, ...], axes: tuple[int, ...], fill: float | None) -> Value:
        start, block_shape, block_axes, masked_dims = self._block(positions, shape, axes, is_masked=fill is not None)
        self._require_readable()
        if not masked_dims:
            self._record_access(positions, self._widths(axes, shape), is_store=False)
        padding = None if fill is None else constant(self.trace, fill, self.element).kernel_value
        result = self._value(self.memory.block(start, block_shape, block_axes, padding, masked_dims))
        for _ in range(len(block_shape) - len(shape)):
            result = result[0]
        return result

    def _block(
        self, positions: Sequence[Value], shape: tuple[int, ...], axes: tuple[int, ...], *, is_masked: bool
    ) -> tuple[list[Any], tuple[int, ...], tuple[int, ...], list[int]]:
        """Return the indices, shape, axes and masked dimensions of the transfer of a vector or tile.

        A masked axis that is not an axis of the vector is a leading one of size 1.
        """
        widths = self._widths(axes, shape)
        masked = self._masked_axes(positions, widths) if is_masked else []
        self._require_static_mask(masked)
        outer = tuple(k for k in masked if k not in axes)
        block_axes = (*outer, *axes)
        masked_dims = [d for d, k in enumerate(block_axes) if k in masked]
        return self._checked(positions, widths, masked), (*(1 for _ in outer), *shape), block_axes, masked_dims

    def store(self, *indices: Any, value: Value, axis: int | Sequence[int] | None = None, masked: bool = False) -> None:
        """Store a vector or tile along its axes, by default the last ones, starting at these indices.

        If `masked`, elements outside of the array are not stored; otherwise all must be provably in bounds.
        """
        self.trace.require_elements(f"{self.name}.store")
        vector = self._stored(value)
        if not vector.shape:
            raise self._error(f"{self.name}.store of a scalar; use {self.name}[…] = value", ShapeError)
        self._store(self._positions(indices), vector, self._axes(axis, len(vector.shape)), masked=masked)

    def _store(self, positions: Sequence[Value], vector: Value, axes: tuple[int, ...], *, masked: bool) -> None:
        start, block_shape, block_axes, masked_dims = self._block(positions, vector.shape, axes, is_masked=masked)
        stored = vector.kernel_value if block_shape == vector.shape else vector.kernel_value.splat(block_shape)
        self.memory.set_block(start, block_axes, stored, masked_dims)
        widths = self._widths(axes, vector.shape)
        if not masked_dims:
            self._record_access(positions, widths, is_store=True)
        self._record_store(positions, widths)

    def __repr__(self) -> str:
        name = self.name if self.kind == "buffer" else f"the {self.kind} {self.name}"
        return f"{name} of shape {self.shape}"

    def __len__(self) -> int:
        if not self.shape:
            raise self._error("len() of a reference of rank 0", ShapeError)
        return int(self.shape[0])

    def __iter__(self) -> Any:
        raise self._error(f"iteration over {self.name}; use `for i in k.range(len({self.name})):`", DlcError)

    def _value(self, kernel_value: Any) -> Value:
        return Value(self.trace, kernel_value, self.element, self.trace.scope)

    def _error(self, problem: str, kind: type[DlcError]) -> DlcError:
        return self.trace.error(problem, kind)

    def _lane_axes(self, positions: Sequence[Value]) -> tuple[int, ...]:
        """Return the axis whose index depends on the lane of a vectorized loop; () if there is none."""
        strides = [(k, p.lane_stride) for k, p in enumerate(positions) if p.lane_stride]
        if len(strides) > 1 or any(stride != 1 for _, stride in strides):
            hint = "the vectorized index must be that of one axis, plus a value"
            raise self._error(f"this access to {self.name} cannot be vectorized by {self.trace.lanes}; {hint}", DlcError)
        return tuple(k for k, _ in strides)

    def _axes(self, axis: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
        """Return the axes of a vector or tile."""
        axes = tuple(range(-rank, 0)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
        if any(not -self.ndim <= a < self.ndim for a in axes):
            raise self._error(f"axis {axes} of {self.name}, which has {self.ndim} axes", ShapeError)
        normalized = tuple(a % self.ndim + len(self.outer_indices) for a in axes)
        if len(axes) != rank or len(set(normalized)) < rank:
            raise self._error(f"axis {axes} of {self.name} for {rank} sizes; expected one axis per size", ShapeError)
        return normalized

    def _widths(self, axes: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
        """Return the number of elements along each axis of the array."""
        return tuple(shape[axes.index(k)] if k in axes else 1 for k in range(len(self.whole_shape)))

    def _positions(self, indices: Any, *, may_be_fewer: bool = False) -> list[Value]:
        """Return one index per axis of the whole array."""
        self.trace.require_grid(f"{self.name} is accessed")
        self.trace.require_open(self.scope, f"the buffer {self.name}")
        given = cast("Sequence[Any]", indices if isinstance(indices, tuple) else (indices,))
        if len(given) > self.ndim or (len(given) < self.ndim and not (may_be_fewer and given)):
            hint = "elements have one index per axis; use .load and .store for vectors"
            raise self._error(f"{len(given)} indices of {self.name}, which has shape {self.shape}; {hint}", ShapeError)
        return [*self.outer_indices, *(self._position(k, i) for k, i in enumerate(given))]

    def _position(self, axis: int, given: Any) -> Value:
        if isinstance(given, slice) or given is None or given is Ellipsis:
            hint = f"a slice of elements is {self.name}.load(i, width=8)"
            raise self._error(f"index {axis} of {self.name} is {given!r}; expected an integer or an index; {hint}", DTypeError)
        if is_python_integer(given) and given < 0 and -self.shape[axis] <= given:
            given += self.shape[axis]
        return index(given)

    def _allowed(self, axis: int, widths: Sequence[int]) -> Interval:
        """Return the range of the first index of an access in bounds."""
        return Interval(0, self.whole_shape[axis] - widths[axis])

    def _masked_axes(self, positions: Sequence[Value], widths: Sequence[int]) -> list[int]:
        """Return the axes along which a masked access may leave the array, for any sizes."""
        if self.trace.never_runs:
            return []
        return [k for k, p in enumerate(positions) if not self._allowed(k, widths).contains_for_all_sizes(p.range)]

    def _require_static_mask(self, masked: Sequence[int]) -> None:
        """Raise DlcError for a mask along the symbolic axis of a local buffer, whose memory has room for more elements."""
        if self.kind == "buffer" and 0 in masked and not isinstance(self.whole_shape[0], int):
            raise self._error(f"a masked access along axis 0 of {self.name}, whose size is symbolic; use k.strips", DlcError)

    def _checked(self, positions: Sequence[Value], widths: Sequence[int], masked: Sequence[int] = ()) -> list[Any]:
        """Return the indices of an access in the IR.

        Raises ShapeError unless they are provably in bounds along all axes but the masked ones; with checks at run time only if
        they are certainly out of bounds.
        """
        indices: list[Any] = [position.kernel_value for position in positions]
        for axis, position in enumerate(positions):
            allowed = self._allowed(axis, widths)
            if axis in masked or self.trace.never_runs or allowed.contains(position.range):
                continue
            last = self.whole_shape[axis] - widths[axis]
            if self.trace.checked and not (position.range & allowed).is_empty:
                message = f"{self._error(self._out_of_bounds(axis, widths, '{}'), ShapeError)}"
                indices[axis] = self.trace.checks[-1].clamp(indices[axis], self.trace.size_value(last), message)
                continue
            end = max(last + 1, 1)
            hint = f"limit it by k.clip(index, {end}), or by `with k.when((index >= 0) & (index < {end})):`"
            hint += "" if widths[axis] == 1 else ", or mask it by .load(…, fill=0) or .store(…, masked=True)"
            hint += ", or check it at run time by @dlc.kernel(…, checked=True)"
            raise self._error(f"{self._out_of_bounds(axis, widths, str(position.range))}; {hint}", ShapeError)
        return indices

    def _out_of_bounds(self, axis: int, widths: Sequence[int], index: str) -> str:
        size, width = self.whole_shape[axis], widths[axis]
        elements = "" if width == 1 else f" with {width} elements from there"
        allowed = f"is not within 0..{size - width}" if size >= width else "exceeds the axis"
        return f"index {index} of {self.name}{elements} {allowed}: axis {axis} of shape {self.whole_shape}"

    def _require_readable(self) -> None:
        """Raise DlcError for a read of an element that may have no value."""
        if self.is_initialized or self.trace.is_trusted:
            return
        if self.kind == "result":
            raise self._error(
                f"the result {self.name} is read, but it has no initial value; give one: k.Result(shape, dtype, fill=0)",
                DlcError,
            )
        if not self.coverage.is_complete(self.whole_shape, self._inner_scopes()):
            raise self._error(f"{self.name} with fill=None is read before all of its elements are provably written", DlcError)

    def _stored(self, value: ValueLike) -> Value:
        """Return a value with this dtype. Raises DTypeError for another dtype, and for an operand."""
        if self.kind == "operand":
            raise self._error(f"{self.name} is an operand, which a kernel only reads; store to a result", DlcError)
        if not isinstance(value, Value):
            return constant(self.trace, value, self.element)
        value.require_usable()
        if value.element != self.element:
            problem = f"a value of dtype {value.dtype_name} is stored to {self.name} of dtype {self.dtype}"
            raise self._error(f"{problem}; convert it with .astype({self.name}.dtype)", DTypeError)
        return value

    def _record_access(self, positions: Sequence[Value], widths: Sequence[int], *, is_store: bool) -> None:
        """Raise DlcError for an access to an element of a result that provably races with another point of the grid.

        The accesses in a vectorized loop are recorded for the test at its end.
        """
        indices = [p.form or LinearForm() for p in positions]
        if self.trace.lanes is not None:
            self.trace.lanes.accesses[self.memory.memref].append(LaneAccess(self.name, indices, is_store))
        if self.kind != "result":
            return
        access = GridAccess(indices, widths, self._inner_scopes(), is_store)
        if rival := self.grid_accesses.add(access):
            conflict = "two points write" if rival.is_store and is_store else "one point reads, and another one writes,"
            hint = "the points of a grid run in parallel; iterate over dependent ones by k.range"
            raise self._error(
                f"{conflict} the same element of {self.name} in the k.grid at {access.scopes[0].line}; {hint}", DlcError
            )

    def _record_store(self, positions: Sequence[Value], widths: Sequence[int]) -> None:
        self.coverage.add([p.form or LinearForm() for p in positions], widths, self._inner_scopes())

    def _inner_scopes(self) -> Sequence[Scope]:
        """Return the open scopes inside of the one that creates the array."""
        depth = next(d for d, scope in enumerate(self.trace.scopes) if scope is self.scope)
        return self.trace.scopes[depth + 1 :]


def _attribute(reference: ArrayReference, name: str) -> NoReturn:
    raise absent(reference.trace, f"{reference!r}", name)


ArrayReference.__getattr__ = _attribute  # pyright: ignore[reportAttributeAccessIssue]


def buffer(shape: int | Sequence[int], dtype: Any, fill: float | None = 0) -> ArrayReference:
    """Return a local buffer of one grid point, with all elements `fill`. Only its first size may be symbolic.

    With fill=None its elements have no initial values: all must provably be written before one is read. A buffer of symbolic
    size takes 64 KiB, and a guard requires that it fits.
    """
    trace = current_kernel_trace("buffer")
    trace.require_grid("k.buffer")
    trace.require_elements("k.buffer")
    first, *others = cast("tuple[TracedSize, ...]", as_shape("k.buffer", shape))
    inner, element = tuple(map(int, others)), element_type_of_dtype(trace, dtype)
    row_bytes = prod(inner) * numpy_dtype(element).itemsize
    if first * row_bytes > _MAX_BUFFER_BYTES:
        raise trace.error(f"k.buffer: {first * row_bytes} bytes; a local buffer has at most {_MAX_BUFFER_BYTES}", ShapeError)
    sizes = (first, *inner)
    rows = first if isinstance(first, int) else _MAX_BUFFER_BYTES // max(row_bytes, 1)
    # Memory of an empty buffer has one element, since an array of C has at least one.
    scratch = trace.builder.scratch(*(max(n, 1) for n in (rows, *inner)), element=storage_type(element))
    memory = Buffer(trace.builder, scratch.memref, not is_unsigned(element))
    reference = ArrayReference(trace, "the buffer", sizes, element, memory, "buffer", trace.scope, fill is not None)
    if fill is None:
        return reference
    with ExitStack() as stack:
        ends = (trace.builder.size(trace.local_size(n)) for n in sizes)
        indices = tuple(stack.enter_context(trace.builder.loop(0, end)) for end in ends)
        reference.memory[indices] = constant(trace, fill, element).kernel_value
    return reference
