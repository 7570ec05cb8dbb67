"""The places of what is true, and numbers below another one: as many as data says."""

from __future__ import annotations

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of
from dlc.dims import Size
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import Operand, apply, convert


def known_if_empty(x: Operand) -> Operand:
    """`x`, in whose place a plain array stands if it has no elements: nothing is selected of it."""
    return np.empty(x.shape, x.dtype) if x.size == 0 else x


def places_of(mask: Operand) -> list[Operand]:
    """The places where an array of bools is true: along each of its axes."""
    mask = known_if_empty(mask)
    if not isinstance(mask, Tracer):
        return list(np.nonzero(mask))
    (found,) = mask.owner.select(dl.NonzeroOp, mask)
    return [apply(dl.GatherOp, found, np.asarray(axis), axis=0) for axis in range(mask.ndim)]


def known_count(flags: Tracer) -> Size | None:
    """How many elements of a vector of bools are true, as the size of what an equal one selected before; None if none did."""
    found = flags.owner.counts.made(dl.NonzeroOp, flags.value, {})
    return None if found is None else shape_of(found[0])[1]


def numbers_below(end: Operand, largest: Size | None = None) -> Operand:
    """0, 1, … before `end`, an integer without axes; none before one below 1. `largest`: what `end` is at most, if it is."""
    end = convert(end, np.int64)
    if not isinstance(end, Tracer):
        return np.arange(int(end))
    (found,) = end.owner.select(dl.NumbersOp, end, largest=None if largest is None else (largest,))
    return found
