"""The places of what is true, as many as data says."""

from __future__ import annotations

import numpy as np

from dlc.dialects import dl
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import Operand, apply


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
