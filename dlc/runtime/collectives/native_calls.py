"""Collectives that native code runs without Python: tables of calls, which the bytecode of a program refers to.

A table has an entry for each collective of a program, in the layout of %Collective (backends/cpu/runtime.ll). A transport
provides the calls of its ranks; Python runs the collectives for which it has none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import address_of
from dlc.runtime.collectives.transport import CollectiveCall, NativeCall, Transport

COLLECTIVES = frozenset({"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "permute", "axis_index"})
_ARGUMENT_COUNT = 12
COLLECTIVE_BYTES = 8 * (5 + _ARGUMENT_COUNT)
# The state and the group of calls that the monitor does not report.
_UNREPORTED_STATE, _UNREPORTED_GROUP = np.zeros(3, np.int64), np.zeros(2, np.int64)


def native_calls(transport: Transport, calls: Sequence[CollectiveCall], store_index: int) -> NDArray[np.int64]:
    """Return the table of a program's collectives on a rank; `store_index` is the address of `dlc_store_index`.

    The first call of a program on a mesh must be made by all ranks, since it creates groups.
    """
    table = np.zeros((len(calls), COLLECTIVE_BYTES // 8), np.int64)
    for entry, call in zip(table, calls, strict=True):
        if call.op == "axis_index":
            arguments = 0, 0, transport.group(call.axes).position
            native = NativeCall(store_index, address_of(_UNREPORTED_STATE), address_of(_UNREPORTED_GROUP), 0, 1, arguments)
        else:
            native = transport.native_call(call)
        if native is not None:
            words = native.function, native.state, native.group, native.label, native.result_index, *native.arguments
            entry[: len(words)] = words
    return table
