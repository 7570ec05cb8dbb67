"""Variables inside kernels: mutable scalars, vectors and indices, in registers."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.errors import DTypeError, ShapeError
from dlc.kernels.functions import index
from dlc.kernels.index_ranges import Interval
from dlc.kernels.kernel_trace import KernelTrace, current_kernel_trace
from dlc.kernels.references import WithoutOperators
from dlc.kernels.values import Value, ValueLike, constant, element_type_of_dtype, require_uniform
from dlc.passes.kernel_builder import Cell
from dlc.shapes.traced_dims import TracedSize


class Variable(WithoutOperators):
    """A mutable scalar or vector: `best.value` reads it, and assignments change it."""

    def __init__(self, trace: KernelTrace, initial: Value, size: TracedSize | None = None) -> None:
        self.trace = trace
        self._size = size
        self._scope = trace.scope
        self._lanes = trace.lanes
        self._element = initial.element
        if trace.lanes is not None and not initial.shape and not initial.is_index:
            initial = initial.derived(initial.kernel_value.splat((trace.lanes.width,)))
        self._shape = initial.shape
        self._cell: Cell = trace.builder.cell(initial.kernel_value)

    def __repr__(self) -> str:
        return "a k.variable; read and assign its .value"

    __getitem__ = __setitem__ = WithoutOperators.misused

    @property
    def dtype(self) -> np.dtype[Any]:
        assert self._element is not None
        return numpy_dtype(self._element)

    @property
    def value(self) -> Value:
        """Its value at this point."""
        self.trace.require_open(self._scope, "a variable")
        if self._shape and self.trace.lanes is not self._lanes:
            raise self.trace.error(
                f"a vector of an enclosing loop is read in {self.trace.lanes}, in which values are single elements; "
                "remove vectorize"
            )
        value = Value(self.trace, self._cell.value, self._element, self.trace.scope)
        return value if self._size is None else value.index_of(value.kernel_value, Interval(0, self._size - 1))

    @value.setter
    def value(self, value: ValueLike) -> None:
        self.trace.require_open(self._scope, "a variable")
        if self.trace.lanes is not self._lanes:
            hint = "its iterations run in lanes; accumulate vectors of k.strips, or do not vectorize"
            raise self.trace.error(f"a variable of an enclosing loop is assigned in {self.trace.lanes}; {hint}")
        if self._size is not None:
            self._cell.value = require_below(self.trace, value, self._size).kernel_value
            return
        if not isinstance(value, Value):
            assert self._element is not None
            value = constant(self.trace, value, self._element, self._shape)
        value.require_usable()
        if self.trace.lanes is not None and not value.shape and self._shape:
            value = value.derived(value.kernel_value.splat(self._shape))
        if value.element != self._element:
            problem = f"a value of dtype {value.dtype_name} is assigned to a variable of dtype {self.dtype}"
            raise self.trace.error(f"{problem}; convert it with .astype", DTypeError)
        if value.shape != self._shape:
            problem = f"a value of shape {value.shape} is assigned to a variable of shape {self._shape}"
            raise self.trace.error(f"{problem}; use k.full, or reduce the vector", ShapeError)
        self._cell.value = value.kernel_value


def require_below(trace: KernelTrace, value: ValueLike, size: TracedSize) -> Value:
    """Return an index; raise ShapeError unless it is provably in 0 … size - 1."""
    result = index(value)
    require_uniform("an assignment to a k.variable of indices", result)
    if not trace.never_runs and not Interval(0, size - 1).contains(result.range):
        hint = f"limit it by k.clip(index, {size}), or by k.assume_index(index, {size}) if it always is"
        raise trace.error(f"an index {result.range} is assigned to a k.variable of size {size}; {hint}", ShapeError)
    return result


def variable(value: ValueLike, dtype: Any = None, *, size: TracedSize | None = None) -> Variable:
    """Return a mutable variable with this initial value; the dtype of a Python number must be given.

    With `size`, it is an index of 0 … size - 1. Every value assigned to it must provably be in this range.
    """
    trace = current_kernel_trace("variable")
    trace.require_grid("k.variable")
    if size is not None:
        return Variable(trace, require_below(trace, value, size), size)
    if isinstance(value, Value):
        value.require_usable()
        if value.is_index:
            problem = "k.variable of an index; give its range, k.variable(index, size=n), or convert it with .astype(np.int64)"
            raise trace.error(problem, DTypeError)
        return Variable(trace, value if dtype is None else value.astype(dtype))
    if dtype is None:
        raise trace.error(f"k.variable({value!r:.60}) needs a dtype; write k.variable({value!r:.60}, x.dtype)", DTypeError)
    return Variable(trace, constant(trace, value, element_type_of_dtype(trace, dtype)))
