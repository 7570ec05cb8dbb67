"""Calls of `edge_values` on arrays of up to four axes: broadcasting, axes, keepdims, dtypes of results, and memory layouts.

Elements are small integers, also in float dtypes, so that sums and products are exact in every order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc.dialects.dl.base import Array

_DTYPES = ("bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
# C does not define the conversion of a negative float to an unsigned integer.
_RESULT_DTYPES = ("int8", "int16", "int32", "int64", "float16", "float32", "float64")
_SIZES = (0, 1, 1, 2, 3, 4)
_MAX_RANK = 4
_REDUCTIONS = "sum prod max min any all mean var std count_nonzero ptp amax nansum nanmax median"
_ALONG_AN_AXIS = "cumsum cumprod argmax argmin sort flip diff roll repeat expand_dims take delete moveaxis"
_ELEMENTWISE = (
    "add subtract multiply divide floor_divide remainder maximum minimum fmax equal less greater_equal not_equal logical_and "
    "logical_xor bitwise_and bitwise_or hypot arctan2 copysign power matmul left_shift"
)
Function = Callable[..., Any]

LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "contiguous": lambda x: x,
    "reversed": lambda x: np.flip(np.ascontiguousarray(np.flip(x))),
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "strided": lambda x: np.repeat(x, 2, -1)[..., ::2] if x.ndim else x,
    "offset": lambda x: np.concatenate([x[:1], x])[1:] if x.ndim and x.shape[0] else x,
    "repeated": lambda x: np.broadcast_to(x[:1], x.shape) if x.ndim and x.shape[0] else x,
    "read-only": lambda x: _read_only(x),
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
}


def _read_only(x: Array) -> Array:
    y = x.copy()
    y.flags.writeable = False
    return y


def random_shape(draw: random.Random) -> tuple[int, ...]:
    return tuple(draw.choice(_SIZES) for _ in range(draw.randint(0, _MAX_RANK)))


def broadcast_shape(draw: random.Random, shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape that broadcasts with `shape`: without leading axes, and with sizes of 1."""
    return tuple(1 if draw.random() < 0.3 else size for size in shape[draw.randint(0, len(shape)) :])


def random_array(draw: random.Random, shape: Sequence[int]) -> Array:
    dtype = np.dtype(draw.choice(_DTYPES))
    low = 0 if dtype.kind in "ub" else -3
    values = [draw.randint(low, 1 if dtype.kind == "b" else 4) for _ in range(int(np.prod(shape)))]
    return LAYOUTS[draw.choice(list(LAYOUTS))](np.array(values, dtype).reshape(shape))


def _axis(draw: random.Random, rank: int) -> Any:
    """Return None, an axis, or a tuple of axes, counted from either end."""
    axes = [k - rank * (draw.random() < 0.5) for k in range(rank)]
    return draw.choice([None, *axes, *axes, tuple(draw.sample(axes, draw.randint(0, rank)))])


def _reduction(draw: random.Random, rank: int) -> tuple[str, Function]:
    name = draw.choice(_REDUCTIONS.split())
    settings: dict[str, Any] = {"axis": _axis(draw, rank)}
    if draw.random() < 0.5:
        settings["keepdims"] = True
    if name in ("sum", "prod", "mean", "nansum") and draw.random() < 0.4:
        settings["dtype"] = draw.choice(_RESULT_DTYPES if name != "mean" else _RESULT_DTYPES[-2:])
    if name in ("sum", "prod", "max", "min") and draw.random() < 0.3:
        settings["initial"] = 1
    return f"{name}{settings}", lambda n, x: getattr(n, name)(x, **settings)


def _along_an_axis(draw: random.Random, rank: int) -> tuple[str, Function]:
    axis = draw.choice([k - rank * (draw.random() < 0.5) for k in range(rank)] or [0])
    name = draw.choice(_ALONG_AN_AXIS.split())
    further = {"roll": (2,), "repeat": (2,), "take": ([0],), "delete": (0,), "moveaxis": (-1,)}.get(name, ())
    return f"{name}{further}, axis {axis}", lambda n, x: getattr(n, name)(x, *further, axis)


def _movement(draw: random.Random, rank: int) -> tuple[str, Function]:
    axes = draw.sample(range(-rank, 0), rank)
    name, function = draw.choice([
        ("ravel", lambda n, x: n.ravel(x)),
        ("transpose", lambda n, x: n.transpose(x, axes)),
        ("squeeze", lambda n, x: n.squeeze(x)),
        ("reshape", lambda n, x: n.reshape(x, (x.size, 1))),
        ("tile", lambda n, x: n.tile(x, (2, 1))),
        ("reverse", lambda n, x: x[::-1] if x.ndim else x),
        ("ellipsis", lambda n, x: x[..., None, -1:] if x.ndim else x[...]),
        ("where", lambda n, x: n.where(x > 1, x, 0)),
        ("concatenate", lambda n, x: n.concatenate([x, x], axis=None)),
        ("astype", lambda n, x: x.astype("float32")),
    ])  # fmt: skip
    return name, function


def _elementwise(draw: random.Random, rank: int) -> tuple[str, Function]:
    del rank
    name = draw.choice(_ELEMENTWISE.split())
    return name, lambda n, x, y: getattr(n, name)(x, y)


def random_axis_call(draw: random.Random) -> tuple[str, Function, list[Array]]:
    """Return the name, the function of a library and arrays, and the arrays of a call."""
    shape = random_shape(draw)
    name, function = draw.choice([_reduction, _along_an_axis, _movement, _elementwise, _elementwise])(draw, len(shape))
    arrays = [random_array(draw, shape)]
    if function.__code__.co_argcount == 3:
        arrays.append(random_array(draw, broadcast_shape(draw, shape)))
        draw.shuffle(arrays)
    return name, function, arrays
