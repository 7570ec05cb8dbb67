"""Results as large as the data has it: these rules take a symbol for that size first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.dialects import dl
from dlc.dims import Size
from dlc.errors import UnsupportedError
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import apply, apply_all, convert, refuse
from dlc.pytorch.rules import indexing
from dlc.pytorch.rules.table import Table

table = Table()


def _places(size: Size, mask: Any) -> list[Any]:
    """Where a mask is true: the places along each of its axes."""
    if not isinstance(mask, Tracer):
        return [np.asarray(places) for places in np.nonzero(mask)]
    found = apply(dl.NonzeroOp, mask, size=(size,))
    return [dnp.take(found, np.int64(axis), axis=0) for axis in range(mask.ndim)]


@table("nonzero")
def nonzero(size: Size, x: Any) -> Any:
    return dnp.stack(_places(size, convert(x, np.bool_)), 1)


@table("index.Tensor _unsafe_index.Tensor")
def index(size: Size, x: Any, indices: Sequence[Any]) -> Any:
    """A mask is the places where it is true."""
    masks = [i for i in indices if isinstance(i, Tracer) and i.dtype == np.bool_]
    if len(masks) > 1:
        refuse(UnsupportedError("several masks as indices of one array; index by one after the other"))
    places: list[Any] = []
    for i in indices:
        places += _places(size, i) if i is not None and i.dtype == np.bool_ else [i]
    return indexing.index(x, places)


@table("masked_select")
def masked_select(size: Size, x: Any, mask: Any) -> Any:
    x, mask = dnp.broadcast_arrays(x, mask)
    return index(size, dnp.ravel(x), [dnp.ravel(mask)])


@table("_unique2")
def unique(size: Size, x: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    values, _, inverse, counts = apply_all(dl.UniqueOp, dnp.ravel(x), size=(size,), keep_order=False)
    return values, dnp.reshape(inverse, x.shape), counts
