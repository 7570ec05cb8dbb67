"""Pytrees of floats as vectors, in which solvers compute."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np

from dlc import tree
from dlc.errors import ArgumentError, DTypeError, ShapeError
from dlc.numpy import concat, reshape
from dlc.numpy.apply import convert, operand, promote_to_float, refuse


def ravel(api_name: str, pytree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return the leaves of a pytree as one vector of floats, and the function that converts vectors to such pytrees.

    Raises ShapeError for a pytree without leaves, and DTypeError for a leaf that is not a number or an array of real numbers.
    """
    leaves, structure = tree.flatten(pytree)
    if not leaves:
        refuse(ShapeError(f"{api_name}: got {structure}, which has no arrays; expected at least one float"))
    arrays = [operand(leaf) for leaf in leaves]
    for array in arrays:
        if array.dtype.kind == "b":
            refuse(DTypeError(f"{api_name}: got an array of dtype {array.dtype}; expected floats"))
    floats = promote_to_float(*leaves, min_dtype=np.float32)
    shapes, counts = [array.shape for array in arrays], [math.prod(array.shape) for array in arrays]

    def unravel(vector: Any) -> Any:
        ends = itertools.accumulate(counts)
        parts = [vector[end - count : end] for end, count in zip(ends, counts, strict=True)]
        return tree.unflatten(structure, [reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)])

    return concat([reshape(x, (-1,)) for x in floats]), unravel


def ravel_like(api_name: str, result: Any, unknowns: Any, dtype: np.dtype[Any]) -> Any:
    """Return the result of a function of `unknowns`, a pytree like these, as one vector of this dtype.

    Raises ShapeError for another structure or another shape of an array.
    """
    returned, expected = tree.flatten(result), tree.flatten(unknowns)
    if returned[1] != expected[1]:
        refuse(ShapeError(f"{api_name}: the function returned {returned[1]}; expected {expected[1]}, as the unknowns"))
    for leaf, unknown in zip(returned[0], expected[0], strict=True):
        if operand(leaf).shape != unknown.shape:
            shape = operand(leaf).shape
            refuse(ShapeError(f"{api_name}: the function returned shape {shape}; expected {unknown.shape}, as the unknowns"))
    return convert(ravel(api_name, result)[0], dtype)


def flat(api_name: str, function: Callable[[Any], Any], unravel: Callable[[Any], Any], like: Any) -> Callable[[Any], Any]:
    """Return a function of pytrees, whose results are pytrees like its argument, as a function of vectors like `like`."""

    def call(vector: Any) -> Any:
        unknowns = unravel(vector)
        return ravel_like(api_name, function(unknowns), unknowns, like.dtype)

    return call


def require_kind(api_name: str, name: str, value: object, *kinds: type) -> None:
    """Raise DTypeError for a value of the parameter `name`, such as a solver, that is none of these.

    Raises ArgumentError for one with a negative tolerance.
    """
    if not isinstance(value, kinds):
        names = ", ".join(kind.__name__ for kind in kinds)
        call = f"; call it: {value.__name__}()" if callable(value) and hasattr(value, "__name__") else ""
        refuse(DTypeError(f"{api_name}: {name} is a {type(value).__name__}; expected one of {names}{call}"))
    require_tolerances(api_name, **{name: getattr(value, name) for name in ("rtol", "atol", "gtol") if hasattr(value, name)})


def require_tolerances(api_name: str, **tolerances: Any) -> None:
    """Raise ArgumentError for a negative or undefined number; the values of traced tolerances are unknown."""
    for name, value in tolerances.items():
        if isinstance(value, Real) and not float(value) >= 0:
            refuse(ArgumentError(f"{api_name}: {name} = {value}; expected a number >= 0"))
