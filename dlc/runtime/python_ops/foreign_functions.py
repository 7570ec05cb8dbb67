"""User functions that programs call: `dl.foreign_call` refers to one by its name in a table of this process.

Python functions take and return NumPy arrays; native functions (`native_functions.py`) read and write memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import format_type, to_numpy
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.shapes.dims import Size, substitute
from dlc.shapes.input_sizes import bind_sizes

Array: TypeAlias = "NDArray[Any]"
# The shape and dtype of an array; symbols of a result's shape are sizes of operands.
ArrayType: TypeAlias = "tuple[tuple[Size, ...], np.dtype[Any]]"
# The name of the op in the tables of ops that are implemented in Python.
FOREIGN_CALL = "foreign_call"


@dataclass(frozen=True)
class ForeignFunction(ABC):
    """A function from arrays to arrays.

    Attributes:
        label: The call in messages, such as `dlc.pure_callback(f)`.
        operands: The types of its operands.
        results: The types of its results.
    """

    label: str
    operands: tuple[ArrayType, ...]
    results: tuple[ArrayType, ...]

    @property
    @abstractmethod
    def key(self) -> Hashable:
        """A value that is equal for equal functions."""

    @property
    @abstractmethod
    def has_batched_form(self) -> bool:
        """Return whether one call can compute a whole batch."""

    @abstractmethod
    def run(self, operands: Sequence[Array], results: Sequence[ArrayType]) -> Sequence[Array]:
        """Return the results, which have these types; raise what the function raises."""

    @abstractmethod
    def run_batched(self, operands: Sequence[Array], results: Sequence[ArrayType]) -> Sequence[Array]:
        """Return the results of a batch, which is axis 0 of all operands and results."""

    def __call__(self, operands: Sequence[Array], batch_axes: int = 0) -> tuple[Array, ...]:
        """Return the results for operands with `batch_axes` leading batch axes, which the results have as well.

        Raises DlcError for an exception of the function, ShapeError and DTypeError for results of other types.
        """
        sizes: dict[str, int] = {}
        for array, (shape, _) in zip(operands, self.operands, strict=True):
            bind_sizes(shape, array.shape[batch_axes:], sizes)
        types = [(tuple(int(substitute(n, sizes)) for n in shape), dtype) for shape, dtype in self.results]
        if not batch_axes:
            return self._checked(self.run, operands, types)
        batch = operands[0].shape[:batch_axes]
        flat = [np.ascontiguousarray(x).reshape(prod(batch), *x.shape[batch_axes:]) for x in operands]
        batched_types = [((prod(batch), *shape), dtype) for shape, dtype in types]
        if not prod(batch):
            results = tuple(np.empty(shape, dtype) for shape, dtype in batched_types)
        elif self.has_batched_form:
            results = self._checked(self.run_batched, flat, batched_types)
        else:
            entries = [self._checked(self.run, entry, types) for entry in zip(*flat, strict=True)]
            results = tuple(map(np.stack, zip(*entries, strict=True)))
        return tuple(y.reshape(*batch, *y.shape[1:]) for y in results)

    def _checked(
        self,
        run: Callable[[Sequence[Array], Sequence[ArrayType]], Sequence[Array]],
        operands: Sequence[Array],
        types: Sequence[ArrayType],
    ) -> tuple[Array, ...]:
        try:
            results = run(operands, types)
        except DlcError as error:
            raise type(error)(f"{self.label}: {error}") from error
        except Exception as error:
            raise DlcError(f"{self.label}: {type(error).__name__}: {error}") from error
        for k, (result, (shape, dtype)) in enumerate(zip(results, types, strict=True)):
            kind = ShapeError if result.shape != shape else DTypeError
            if result.shape != shape or result.dtype != dtype:
                got, expected = format_type(result.dtype, result.shape), format_type(dtype, shape)
                raise kind(f"{self.label}: result {k} is {got}; expected {expected}, as result_shapes specifies")
        return tuple(results)


@dataclass(frozen=True)
class PythonFunction(ForeignFunction):
    """A Python function of NumPy arrays.

    Attributes:
        function: Takes one array per operand and returns one array per result.
        batched: The same for a batch along axis 0 of all arrays; None: `function` is called for each batch entry.
    """

    function: Callable[..., Sequence[Any]]
    batched: Callable[..., Sequence[Any]] | None = None
    identity: Hashable = None

    @property
    def key(self) -> Hashable:
        return self.identity, self.operands, self.results

    @property
    def has_batched_form(self) -> bool:
        return self.batched is not None

    def run(self, operands: Sequence[Array], results: Sequence[ArrayType]) -> Sequence[Array]:
        return _call_python(self.function, operands, results)

    def run_batched(self, operands: Sequence[Array], results: Sequence[ArrayType]) -> Sequence[Array]:
        assert self.batched is not None
        return _call_python(self.batched, operands, results)


def _call_python(
    function: Callable[..., Sequence[Any]], operands: Sequence[Array], results: Sequence[ArrayType]
) -> Sequence[Array]:
    # Copies: the function may keep its arguments, whose memory the program reuses.
    values = function(*map(np.array, operands))
    if len(values) != len(results):
        raise ShapeError(f"it returned {len(values)} arrays; expected {len(results)}, as result_shapes specifies")
    # Python numbers have no dtype of their own.
    return [
        np.asarray(value, dtype)
        if isinstance(value, bool | int | float) and not isinstance(value, np.generic)
        else to_numpy(value)
        for value, (_, dtype) in zip(values, results, strict=True)
    ]


_FUNCTIONS: dict[str, ForeignFunction] = {}
_NAMES: dict[Hashable, str] = {}


def register(function: ForeignFunction, name: str) -> str:
    """Return the name by which programs of this process call a function; it starts with `name`. Equal functions share one."""
    known = _NAMES.get(function.key)
    if known is None:
        known = _NAMES[function.key] = f"{name}_{len(_NAMES)}"
        _FUNCTIONS[known] = function
    return known


def foreign_call(*operands: Array, function: str, batch_axes: int = 0) -> tuple[Array, ...]:
    """`dl.foreign_call`."""
    if function not in _FUNCTIONS:
        raise DlcError(f"the function {function!r} does not exist in this process; trace the program again")
    return _FUNCTIONS[function](operands, batch_axes)


def label_of(function: str) -> str:
    """Return the label of a function for messages."""
    return _FUNCTIONS[function].label if function in _FUNCTIONS else function
