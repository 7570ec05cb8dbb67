"""Facts about `scf.for` loops with constant bounds."""

from __future__ import annotations

from math import prod

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.scalar import constant_integer
from dlc.ir import VectorType, scf
from dlc.passes.loops.formula import element_of


def constant_bounds(loop: scf.ForOp) -> tuple[int, int, int] | None:
    """Return lower bound, upper bound and step of a loop if all are constant, else None."""
    low, high, step = map(constant_integer, (loop.lb, loop.ub, loop.step))
    return None if low is None or high is None or step is None else (low, high, step)


def extent(loop: scf.ForOp) -> int:
    """Return the difference of the bounds of a loop; 0 if they are not constant."""
    low, high = constant_integer(loop.lb), constant_integer(loop.ub)
    return high - low if low is not None and high is not None else 0


def num_accumulator_rows(loop: scf.ForOp) -> int:
    """Return the number of rows of vectors that a loop accumulates; each uses the panel row that an iteration reads."""
    shapes = [t.get_shape() for v in loop.iter_args if isinstance(t := v.type, VectorType)]
    return sum(prod(shape[:-1]) for shape in shapes)


def accumulator_bytes(loop: scf.ForOp) -> int:
    """Return the size in bytes of the vectors that a loop accumulates."""
    total = 0
    for value in loop.iter_args:
        element = element_of(value.type)
        if isinstance(t := value.type, VectorType):
            total += prod(t.get_shape()) * numpy_dtype(element).itemsize
    return total
