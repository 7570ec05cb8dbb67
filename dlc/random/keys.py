"""Keys: where random numbers come from, and how one key becomes several."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import element_type
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.frontend.trace import Tracer, current_trace, is_number, user_place
from dlc.numpy import bitwise_right_shift, stack
from dlc.numpy.apply import AnyDType, ArrayLike, Operand, apply, convert, operand, refuse, sizes_of
from dlc.numpy.functions.creation import Shape

__all__ = ["Stream", "fold_in", "key", "split"]


def key(seed: ArrayLike, /) -> Any:
    """The key of a seed, an integer without axes taken as one of 64 bits: its high and its low word."""
    return _words(_counter("dlc.random.key: seed", seed))


def split(key: ArrayLike, num: Shape = 2, /, *, reuse: bool = False) -> Any:
    """`num` independent keys of one, along the axes before the last: `first, second = split(key)`."""
    return keys_of(used("split", key, reuse), shape_of(num))


def fold_in(key: ArrayLike, data: ArrayLike, /) -> Any:
    """The key for the number `data`, an integer without axes of which 32 bits count: of a step, or of a layer."""
    counter = convert(_counter("dlc.random.fold_in: data", data), np.uint32)
    return _words(_bits(_checked("fold_in", key), convert(counter, np.uint64), (), np.uint64))


class Stream:
    """Keys one after another, for scripts: `keys = Stream(0)`, then `next(keys)` wherever one is needed."""

    def __init__(self, seed: int) -> None:
        self._key = key(seed)
        self._count = 0

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        self._count += 1
        return fold_in(self._key, self._count - 1)


def used(name: str, key: ArrayLike, reuse: bool) -> Operand:
    """The key as an array, drawn from by `name`; raises DlcError if it is the second time and not said to be."""
    array = _checked(name, key)
    if not reuse and (trace := current_trace()) is not None:
        problem = trace.key_uses.draw(array.value if isinstance(array, Tracer) else array, user_place())
        if problem:
            repair = "draw from keys made of it by dlc.random.split or fold_in, or say reuse=True"
            refuse(DlcError(f"dlc.random.{name}: the key {problem}; {repair}"))
    return array


def bits_of(key: Operand, shape: tuple[int, ...], dtype: AnyDType) -> Operand:
    """Random bits as unsigned integers."""
    return _bits(key, np.zeros((), np.uint64), shape, dtype)


def keys_of(key: Operand, shape: tuple[int, ...]) -> Any:
    """Independent keys along these axes."""
    return _words(bits_of(key, shape, np.uint64))


def shape_of(shape: Shape) -> tuple[int, ...]:
    """A shape that may be given as its only size; raises DTypeError or ShapeError for what is none."""
    return cast("tuple[int, ...]", sizes_of("shape", shape))


def _checked(name: str, key: ArrayLike) -> Operand:
    """The key as an array; raises DTypeError or ShapeError for what is none."""
    array = operand(key)
    repair = "make one by dlc.random.key(seed)"
    if array.dtype != np.uint32:
        refuse(DTypeError(f"dlc.random.{name}: a key of {array.dtype}, expected uint32; {repair}"))
    if array.shape != (2,):
        refuse(ShapeError(f"dlc.random.{name}: a key of shape {array.shape}, expected (2,); {repair}, or take one of several"))
    return array


def _bits(key: Operand, first: Operand, shape: tuple[int, ...], dtype: Any) -> Operand:
    if math.prod(shape) == 0:
        return np.zeros(shape, dtype)
    return apply(dl.RandomBitsOp, key, first, shape=shape, to=element_type(np.dtype(dtype)))


def _counter(what: str, x: ArrayLike) -> Operand:
    """An integer without axes as uint64, negative ones by their two's complement."""
    array = np.asarray(x % (1 << 64), np.uint64) if is_number(x) and isinstance(x, int) else operand(x)
    if array.shape or array.dtype.kind not in "iu":
        refuse(DTypeError(f"{what} is of {array.dtype} and shape {array.shape}; expected an integer without axes"))
    return convert(array, np.uint64)


def _words(wide: Operand) -> Any:
    """Numbers of 64 bits as words of 32 along a new last axis, the high one first."""
    high = bitwise_right_shift(wide, np.uint64(32))
    return stack([convert(high, np.uint32), convert(wide, np.uint32)], axis=-1)
