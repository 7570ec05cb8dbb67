"""Keys: create, derive and validate random keys."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import element_type
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.frontend.trace import Tracer, current_trace, is_python_scalar, user_line_text
from dlc.numpy import bitwise_right_shift, stack
from dlc.numpy.apply import AnyDType, ArrayLike, Operand, apply, as_shape, convert, operand, refuse
from dlc.numpy.functions.creation import Shape
from dlc.shapes.traced_dims import untraced

__all__ = ["Stream", "fold_in", "key", "split"]


def key(seed: ArrayLike, /) -> Any:
    """Return the key of a seed, an integer of rank 0 taken modulo 2⁶⁴: its high and its low word."""
    return _words(_counter("dlc.random.key: seed", seed))


def split(key: ArrayLike, num: Shape = 2, /, *, reuse: bool = False) -> Any:
    """Return `num` independent keys derived from a key, along leading axes: `first, second = split(key)`."""
    return derive_keys(checked_key("split", key, reuse), as_int_shape(num))


def fold_in(key: ArrayLike, data: ArrayLike, /) -> Any:
    """Return the key derived from a key and an integer of rank 0, taken modulo 2³²: for a step or a layer."""
    counter = convert(_counter("dlc.random.fold_in: data", data), np.uint32)
    return _words(_bits(_validate_key("fold_in", key), convert(counter, np.uint64), (), np.uint64))


class Stream:
    """Iterator over keys, for scripts: `keys = Stream(0)`, then `next(keys)` wherever a key is needed."""

    def __init__(self, seed: int) -> None:
        self._key = key(seed)
        self._count = 0

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        self._count += 1
        return fold_in(self._key, self._count - 1)


def checked_key(name: str, key: ArrayLike, reuse: bool) -> Operand:
    """Validate a key and record that `name` consumes it. Raises DlcError if it was consumed before, unless `reuse`."""
    array = _validate_key(name, key)
    if not reuse and (trace := current_trace()) is not None:
        problem = trace.key_uses.draw(array.value if isinstance(array, Tracer) else array, user_line_text())
        if problem:
            hint = "derive new keys with dlc.random.split or fold_in, or pass reuse=True"
            refuse(DlcError(f"dlc.random.{name}: the key {problem}; {hint}"))
    return array


def random_bits(key: Operand, shape: tuple[int, ...], dtype: AnyDType) -> Operand:
    """Return random bits as unsigned integers."""
    return _bits(key, np.zeros((), np.uint64), shape, dtype)


def derive_keys(key: Operand, shape: tuple[int, ...]) -> Any:
    """Return independent keys along these axes."""
    return _words(random_bits(key, shape, np.uint64))


def as_int_shape(shape: Shape) -> tuple[int, ...]:
    """Return a shape as a tuple; an integer n is the shape (n,). Raises DTypeError or ShapeError for an invalid shape."""
    return as_shape("shape", shape)


def _validate_key(name: str, key: ArrayLike) -> Operand:
    """Validate a key. Raises DTypeError or ShapeError."""
    array = operand(key)
    hint = "create one with dlc.random.key(seed)"
    if array.dtype != np.uint32:
        refuse(DTypeError(f"dlc.random.{name}: a key of dtype {array.dtype}; expected uint32: {hint}"))
    if array.shape != (2,):
        refuse(ShapeError(f"dlc.random.{name}: a key of shape {array.shape}; expected (2,): {hint}, or index an array of keys"))
    return array


def _bits(key: Operand, counter: Operand, shape: tuple[int, ...], dtype: Any) -> Operand:
    if untraced(math.prod(shape)) == 0:
        return np.zeros(shape, dtype)
    return apply(dl.RandomBitsOp, key, counter, shape=shape, to=element_type(np.dtype(dtype)))


def _counter(what: str, x: ArrayLike) -> Operand:
    """Return an integer of rank 0 as uint64; negative values wrap."""
    array = np.asarray(x % (1 << 64), np.uint64) if is_python_scalar(x) and isinstance(x, int) else operand(x)
    if array.shape or array.dtype.kind not in "iu":
        refuse(DTypeError(f"{what} has dtype {array.dtype} and shape {array.shape}; expected an integer scalar, without axes"))
    return convert(array, np.uint64)


def _words(integers: Operand) -> Any:
    """Split 64-bit integers into 32-bit words along a new last axis, high word first."""
    high = bitwise_right_shift(integers, np.uint64(32))
    return stack([convert(high, np.uint32), convert(integers, np.uint32)], axis=-1)
