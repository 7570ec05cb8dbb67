"""Formulas of Resize: positions on the axis of the operand, rounding, and the cubic kernel.

They use only operators and NumPy ufuncs, so that they apply to arrays and to runtime values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class AxisGeometry:
    """The sizes of an axis in f32: the indices of the result, both sizes with their last indices, and the scale.

    `result_last` is at least 1.
    """

    indices: Any
    size: Any
    last: Any
    result_size: Any
    result_last: Any
    scale: Any


def _half_pixel(axis: AxisGeometry) -> Any:
    return (axis.indices + np.float32(0.5)) / axis.scale - np.float32(0.5)


def _pytorch_half_pixel(axis: AxisGeometry) -> Any:
    """Return half-pixel positions; 0 if the result has one element."""
    return _half_pixel(axis) * np.minimum(axis.result_size - np.float32(1), np.float32(1))


POSITIONS: dict[str, Callable[[AxisGeometry], Any]] = {
    "half_pixel": _half_pixel,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": lambda axis: axis.indices * axis.last / axis.result_last,
    "asymmetric": lambda axis: axis.indices / axis.scale,
    "tf_half_pixel_for_nn": lambda axis: (axis.indices + np.float32(0.5)) / axis.scale,
}

ROUNDINGS: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda p: np.ceil(p - np.float32(0.5)),
    "round_prefer_ceil": lambda p: np.floor(p + np.float32(0.5)),
    "floor": np.floor,
    "ceil": np.ceil,
}


# Keys' kernel ("Cubic convolution interpolation for digital image processing", 1981), for distances up to 1 and from 1 to 2.


def cubic_near(d: Any, a: float) -> Any:
    return ((a + 2) * d - (a + 3)) * d * d + 1


def cubic_far(d: Any, a: float) -> Any:
    return ((d - 5) * d + 8) * d * a - 4 * a
