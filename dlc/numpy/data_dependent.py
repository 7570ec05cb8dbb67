"""Data-dependent results: the indices of true elements, and `arange` with a traced end."""

from __future__ import annotations

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import Operand, apply, convert
from dlc.shapes.dims import Size
from dlc.shapes.traced_dims import untraced


def constant_if_empty(x: Operand) -> Operand:
    """Replace an `x` without elements by an empty plain array, since no element can be selected from it."""
    return np.empty(x.shape, x.dtype) if untraced(x.size) == 0 else x


def true_indices(mask: Operand) -> list[Operand]:
    """Return the indices of the true elements of a mask: one array for each axis."""
    mask = constant_if_empty(mask)
    if not isinstance(mask, Tracer):
        return list(np.nonzero(mask))
    (coordinates,) = mask.owner.select(dl.NonzeroOp, mask)
    return [apply(dl.GatherOp, coordinates, np.asarray(axis), axis=0) for axis in range(mask.ndim)]


def selected_count(flags: Tracer) -> Size | None:
    """Return the data-dependent size of an earlier selection by an equal mask; None if there was none."""
    nonzero_results = flags.owner.data_dependent_sizes.find(dl.NonzeroOp, flags.value, {})
    return None if nonzero_results is None else shape_of(nonzero_results[0])[1]


def dynamic_arange(end: Operand, largest: int | None = None) -> Operand:
    """Return 0, 1, … end - 1 for an integer `end` of rank 0; empty if `end` is not positive.

    `largest` is an upper bound of `end`; None if there is none.
    """
    end = convert(end, np.int64)
    if not isinstance(end, Tracer):
        return np.arange(int(end))
    (indices,) = end.owner.select(dl.DynamicIotaOp, end, max_number=None if largest is None else (largest,))
    return indices
