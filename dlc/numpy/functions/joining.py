"""Joining arrays, taking them apart, and padding."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np

from dlc.dialects import dl
from dlc.dims import is_static
from dlc.errors import DTypeError, ShapeError, UnsupportedError
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import AnyDType, ArrayLike, Operand, apply, axis_of, by_numpy, convert, listed, operand, promote, refuse
from dlc.numpy.by_parts import by_parts
from dlc.numpy.functions.shaping import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    broadcast_to,
    expand_dims,
    flip,
    part,
    ravel,
    reshape,
    squeeze,
)

__all__ = [
    "append", "array_split", "column_stack", "concat", "dsplit", "dstack", "hsplit", "hstack", "pad", "split", "stack",
    "unstack", "vsplit", "vstack",
]  # fmt: skip

# Each part is an array of its own: more are a mistake.
_MOST_PARTS = 1 << 20
Arrays = Sequence[ArrayLike] | Tracer


@by_parts("arrays")
def concat(arrays: Arrays, /, axis: int | None = 0, *, dtype: AnyDType = None) -> Any:
    """The arrays one after the other along `axis`; flattened first if it is None."""
    given = listed("concat", arrays)
    if not given:
        refuse(ShapeError("concat: no arrays; expected at least one"))
    operands = promote(*given) if dtype is None else [convert(x, dtype) for x in given]
    if axis is None:
        operands, axis = [ravel(x) for x in operands], 0
    if operands[0].ndim == 0:
        refuse(ShapeError("concat: arrays of rank 0 have no axis; use stack"))
    axis = axis_of("concat", operands[0], axis)
    return apply(dl.ConcatOp, *operands, axis=axis) if len(operands) > 1 else operands[0]


@by_parts("arrays")
def stack(arrays: Arrays, /, axis: int = 0) -> Any:
    """The arrays side by side along a new axis."""
    given = [operand(x) for x in listed("stack", arrays)]
    shapes = {x.shape for x in given}
    if len(shapes) != 1:
        refuse(ShapeError(f"stack: arrays of shapes {', '.join(map(str, sorted(shapes)))}; expected one shape"))
    place = axis_of("stack", np.empty((1,) * (given[0].ndim + 1)), axis)
    return concat([expand_dims(x, place) for x in given], axis=place)


@by_parts("arrays")
def hstack(arrays: Arrays, /) -> Any:
    """The arrays one after the other along the second axis; vectors along their only one."""
    given = [atleast_1d(x) for x in listed("hstack", arrays)]
    return concat(given, axis=0 if given and given[0].ndim == 1 else 1)


@by_parts("arrays")
def vstack(arrays: Arrays, /) -> Any:
    """The arrays one below the other; vectors are rows."""
    return concat([atleast_2d(x) for x in listed("vstack", arrays)], axis=0)


@by_parts("arrays")
def dstack(arrays: Arrays, /) -> Any:
    """The arrays one behind the other along the third axis."""
    return concat([atleast_3d(x) for x in listed("dstack", arrays)], axis=2)


@by_parts("arrays")
def column_stack(arrays: Arrays, /) -> Any:
    """The arrays side by side; vectors are columns."""
    given = [operand(x) for x in listed("column_stack", arrays)]
    return concat([x if x.ndim > 1 else reshape(x, (x.size, 1)) for x in given], axis=1)


@by_parts("x", "values")
def append(x: ArrayLike, values: ArrayLike, /, axis: int | None = None) -> Any:
    """`values` after `x` along `axis`; both flattened if it is None."""
    return concat([x, values], axis=axis)


@by_parts("x")
def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The slices of `x` along `axis`, without that axis."""
    x = operand(x)
    axis = axis_of("unstack", x, axis)
    return tuple(squeeze(p, axis) for p in split(x, x.shape[axis], axis)) if x.shape[axis] else ()


@by_parts("x")
def split(x: ArrayLike, parts: int | Sequence[int], /, axis: int = 0) -> list[Any]:
    """`x` in so many equal parts along `axis`, or cut before these places."""
    size = operand(x).shape[axis_of("split", operand(x), axis)]
    if np.ndim(parts) == 0 and (int(cast(int, parts)) < 1 or size % int(cast(int, parts))):
        refuse(ShapeError(f"split: size {size} in {parts} equal parts; use array_split"))
    return array_split(x, parts, axis)


@by_parts("x")
def array_split(x: ArrayLike, parts: int | Sequence[int], /, axis: int = 0) -> list[Any]:
    """`x` in so many parts along `axis`, the first ones larger by one if need be, or cut before these places."""
    x = operand(x)
    axis = axis_of("array_split", x, axis)
    size = x.shape[axis]
    if np.ndim(parts):
        cuts = [0, *(slice(start, None).indices(size)[0] for start in cast("Sequence[int]", parts)), size]
    else:
        number = int(cast(int, parts))
        if not 1 <= number <= _MOST_PARTS:
            refuse(ShapeError(f"array_split: {number} parts; expected from 1 to {_MOST_PARTS}"))
        cuts = [k * (size // number) + min(k, size % number) for k in range(number + 1)]
    return [part(x, axis, start, max(start, stop)) for start, stop in pairwise(cuts)]


@by_parts("x")
def hsplit(x: ArrayLike, parts: int | Sequence[int], /) -> list[Any]:
    """`split` along the second axis, of a vector along its only one."""
    return split(x, parts, 0 if operand(x).ndim == 1 else 1)


@by_parts("x")
def vsplit(x: ArrayLike, parts: int | Sequence[int], /) -> list[Any]:
    """`split` along the first axis."""
    return split(x, parts, 0)


@by_parts("x")
def dsplit(x: ArrayLike, parts: int | Sequence[int], /) -> list[Any]:
    """`split` along the third axis."""
    return split(x, parts, 2)


PAD_MODES = "constant", "edge", "reflect", "symmetric", "wrap"


@by_parts("x", "constant_values")
def pad(x: ArrayLike, /, pad_width: Any, mode: str = "constant", *, constant_values: ArrayLike = 0) -> Any:
    """New elements around `x`: `(before, after)` for each axis, or for all; mode constant, edge, reflect, symmetric or wrap."""
    x = operand(x)
    if mode not in PAD_MODES:
        refuse(UnsupportedError(f"pad: mode {mode!r}; expected one of {', '.join(PAD_MODES)}"))
    try:
        widths = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2))
    except ValueError:
        return refuse(ShapeError(f"pad: widths {pad_width} for {x.shape}; give (before, after) for each axis"))
    if widths.dtype.kind not in "iu":
        refuse(DTypeError(f"pad: widths {pad_width!r}; expected whole numbers, (before, after) for each axis"))
    low, high = ([operator.index(w) for w in side] for side in widths.T)
    if mode == "constant":
        value = convert(constant_values, x.dtype)
        if value.ndim:
            refuse(UnsupportedError("pad: different constants for the sides; pad side by side, or use concat"))
        return apply(dl.PadOp, x, value, low=low, high=high, pad_mode=mode)
    if mode != "symmetric" and not is_static(x.shape):
        return apply(dl.PadOp, x, convert(0, x.dtype), low=low, high=high, pad_mode=mode)
    for axis, width in enumerate(zip(low, high, strict=True)):
        if any(width):
            if x.shape[axis] == 0:
                refuse(ShapeError(f"pad: mode {mode!r} needs an element along axis {axis} of {x.shape}"))
            x = operand(_in_runs(x, by_numpy("pad", np.pad, np.arange(x.shape[axis]), width, mode), axis))
    return x


def _in_runs(x: Operand, places: np.ndarray, axis: int) -> Any:
    """`take(x, places, axis)` for places that mostly go up or down one by one, or stay: each such run is a slice."""
    steps = np.diff(places)
    runs: list[Any] = []
    start = 0
    while start < len(places):
        step = int(steps[start]) if start < len(steps) and abs(steps[start]) < 2 else 0
        same = steps[start:] == step
        stop = start + 1 + (len(same) if same.all() else int(np.argmin(same)))
        first, last = sorted((int(places[start]), int(places[stop - 1])))
        run = part(x, axis, first, last + 1)
        if step == 0:
            run = broadcast_to(run, [stop - start if a == axis else s for a, s in enumerate(x.shape)])
        runs.append(flip(run, axis) if step < 0 else run)
        start = stop
    return concat(runs, axis=axis)
