"""Results as large as the data has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.numpy.apply import convert
from dlc.pytorch.rules.table import Table

table = Table()


@table("nonzero")
def nonzero(x: Any) -> Any:
    return dnp.argwhere(x)


@table("index.Tensor _unsafe_index.Tensor")
def index(x: Any, indices: Sequence[Any]) -> Any:
    """A mask is the places where it is true."""
    named = [k for k, i in enumerate(indices) if i is not None]
    if len(named) == 1 and indices[named[0]].dtype != np.bool_:
        return dnp.take(x, indices[named[0]], axis=named[0])
    return x[tuple(np.s_[:] if i is None else i if i.dtype == np.bool_ else convert(i, np.int64) for i in indices)]


@table("masked_select")
def masked_select(x: Any, mask: Any) -> Any:
    x, mask = dnp.broadcast_arrays(x, mask)
    return x[mask]


@table("_unique2")
def unique(x: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    return dnp.unique(x, return_inverse=True, return_counts=True)
