"""Shapes of vectors and tiles."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeGuard, cast

from dlc.errors import ShapeError
from dlc.kernels.kernel_trace import KernelTrace
from dlc.shapes.traced_dims import TracedDim, TracedSize

# Larger values would only spill registers.
_MAX_ROW_ELEMENTS, _MAX_TILE_ELEMENTS = 128, 4096


def require_shape(trace: KernelTrace, function: str, width: object) -> tuple[int, ...]:
    """Return the shape of a vector or tile; raise ShapeError for a vector above 128 elements, or a tile above 4096."""
    trace.require_elements(f"k.{function}")
    sizes = tuple(cast("Sequence[object]", width)) if isinstance(width, tuple | list) else (width,)
    if not sizes or not all(is_python_integer(n) and n >= 1 for n in sizes):
        raise trace.error(f"k.{function}: width {width!r:.60}; expected positive Python integers", ShapeError)
    shape = cast("tuple[int, ...]", sizes)
    if prod(shape) > _MAX_TILE_ELEMENTS or shape[-1] > _MAX_ROW_ELEMENTS:
        limits = f"a row of a value has at most {_MAX_ROW_ELEMENTS} elements, a tile {_MAX_TILE_ELEMENTS}"
        raise trace.error(f"k.{function}: width {width!r:.60}; {limits}", ShapeError)
    return shape


def is_size(x: object) -> TypeGuard[TracedSize]:
    """Return whether an argument is a size: a Python integer, or a size of a traced array."""
    return is_python_integer(x) or isinstance(x, TracedDim)


def is_python_integer(x: object) -> TypeGuard[int]:
    """Return whether an argument is an integer that is known while tracing; booleans are not integers."""
    return isinstance(x, int) and not isinstance(x, bool)
