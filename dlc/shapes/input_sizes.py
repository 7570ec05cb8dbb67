"""Solve for the symbols in input shapes, and match the inputs of a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dlc.arrays import TensorInfo, format_type
from dlc.errors import DTypeError, ShapeError
from dlc.shapes.dims import Dim, Size, is_symbol, substitute
from dlc.shapes.size_code import size_function


@dataclass(frozen=True)
class LinearSize:
    """The size `factor * symbol + offset`, which determines its symbol."""

    symbol: str
    factor: int
    offset: int

    @staticmethod
    def of(size: Size) -> LinearSize | None:
        """Return a size in this form with a positive factor; None if it has another form."""
        terms = dict(size.terms) if isinstance(size, Dim) else {}
        offset = terms.pop((), 0)
        match [*terms.items()]:
            case [((str(symbol),), factor)] if factor > 0:
                return LinearSize(symbol, factor, offset)
            case _:
                return None

    def solve(self, size: int) -> int:
        """Return the value of the symbol for a value of the size, rounded down."""
        return (size - self.offset) // self.factor


def solvable_axes(shapes: Sequence[Sequence[Size]]) -> dict[str, tuple[int, int, LinearSize]]:
    """Return for each symbol the index of a shape, an axis that determines it, and the size there: the symbol if possible."""
    sizes = ((k, axis, LinearSize.of(size)) for k, shape in enumerate(shapes) for axis, size in enumerate(shape))
    axes = [(k, axis, linear) for k, axis, linear in sizes if linear is not None]
    solved: dict[str, tuple[int, int, LinearSize]] = {}
    for is_wanted_symbol in (True, False):
        for k, axis, linear in axes:
            if is_wanted_symbol == ((linear.factor, linear.offset) == (1, 0)):
                solved.setdefault(linear.symbol, (k, axis, linear))
    return solved


def bind_sizes(shape: Sequence[Size], sizes: Sequence[int], bindings: dict[str, int]) -> None:
    """Record in `bindings` the value of each symbol that a size of `shape` determines, from `sizes`, the shape of an array."""
    for size, value in zip(shape, sizes, strict=True):
        if is_symbol(size):
            bindings[str(size)] = value
        elif (linear := LinearSize.of(size)) is not None:
            bindings.setdefault(linear.symbol, linear.solve(value))


class TypedArray(Protocol):
    """An array, or a placeholder for one."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...


def require_matching_inputs(name: str, infos: Sequence[TensorInfo], arrays: Sequence[TypedArray]) -> dict[str, int]:
    """Return the sizes of symbols for arrays that match the inputs of the program called `name`.

    Raises ShapeError or DTypeError, listing every array that does not match.
    """
    # Axes whose size is a symbol determine it before axes with other sizes do, the first one of several.
    sizes: dict[str, int] = {}
    for array, info in reversed(list(zip(arrays, infos, strict=True))):
        if len(array.shape) == len(info.shape):
            bind_sizes(info.shape, array.shape, sizes)
    problems: list[str] = []
    dtype_fits = True
    for array, info in zip(arrays, infos, strict=True):
        expected = tuple(substitute(size, sizes) for size in info.shape)
        # A size stays symbolic if its symbol is not the size of any axis: it cannot be checked here.
        shape_fits = len(array.shape) == len(expected) and all(
            isinstance(size, Dim) or size == got for size, got in zip(expected, array.shape, strict=True)
        )
        if shape_fits and array.dtype == info.dtype:
            continue
        bound = {n: size for n, size in sizes.items() if any(n in Dim.lift(s).symbols() for s in info.shape)}
        where = f" with {', '.join(f'{n} = {s}' for n, s in bound.items())}" if bound and not shape_fits else ""
        problems.append(f"input {info}{where}; got {format_type(array.dtype, array.shape)}")
        if array.dtype != info.dtype:
            dtype_fits = False
            problems[-1] += f", convert it with .astype({info.dtype.name!r})"
    if problems:
        raise (ShapeError if dtype_fits else DTypeError)(f"{name}: expected {'; expected '.join(problems)}")
    return sizes


class InputSizes:
    """The symbols of a program's inputs, ordered by the first axis that determines the symbol (see `solvable_axes`)."""

    def __init__(self, inputs: Sequence[TensorInfo]) -> None:
        axes = solvable_axes([info.shape for info in inputs])
        self.symbols = tuple(axes)
        self._axes = tuple((k, axis) for k, axis, _ in axes.values())
        # None if each size is a symbol.
        linear = tuple(linear for *_, linear in axes.values())
        self._linear = linear if any((size.factor, size.offset) != (1, 0) for size in linear) else None
        is_solvable = all(Dim.lift(size).symbols() <= axes.keys() for info in inputs for size in info.shape)
        self._shapes = size_function(self.symbols, [info.shape for info in inputs]) if is_solvable else None

    def of(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Return the values of the symbols for these shapes. Raises IndexError for an input with too few axes."""
        sizes = tuple([shapes[k][axis] for k, axis in self._axes])
        if self._linear is None:
            return sizes
        return tuple([linear.solve(size) for linear, size in zip(self._linear, sizes, strict=True)])

    def fit(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Return whether shapes match the inputs; False also if a symbol is not the size of any axis."""
        try:
            return self._shapes is not None and self._shapes(*self.of(shapes)) == tuple(shapes)
        except (IndexError, ZeroDivisionError):
            return False
