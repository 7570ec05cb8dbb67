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

# Calls that complete or test a collective that has started; the setting `request` identifies it.
COMPLETIONS = frozenset({"wait", "progress"})
EXCHANGES = frozenset({"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "permute"})
COLLECTIVES = EXCHANGES | COMPLETIONS | {"axis_index"}
_ARGUMENT_COUNT = 12
_HEADER_WORDS = 5
COLLECTIVE_BYTES = 8 * (_HEADER_WORDS + _ARGUMENT_COUNT)
# A request of a nonblocking collective, and the flag of its completion.
_REQUEST_WORDS = 2
# The state and the group of calls that the monitor does not report.
_UNREPORTED_STATE, _UNREPORTED_GROUP = np.zeros(3, np.int64), np.zeros(2, np.int64)
_UNREPORTED = address_of(_UNREPORTED_STATE), address_of(_UNREPORTED_GROUP), 0


def native_calls(transport: Transport, calls: Sequence[CollectiveCall], store_index: int, complete: int) -> NDArray[np.int64]:
    """Return the table of a program's collectives on a rank.

    `store_index` and `complete` are the addresses of `dlc_store_index` and `dlc_complete`. All ranks call this: it creates
    groups. The requests of nonblocking collectives are stored after the table.
    """
    size, words = len(calls), COLLECTIVE_BYTES // 8
    memory = np.zeros(size * (words + _REQUEST_WORDS), np.int64)
    table, requests = memory[: size * words].reshape(size, words), memory[size * words :].reshape(size, _REQUEST_WORDS)
    started: dict[int, tuple[NativeCall | None, int]] = {}
    for entry, call, request_words in zip(table, calls, requests, strict=True):
        request = address_of(request_words)
        if call.op == "axis_index":
            native = NativeCall(store_index, *_UNREPORTED, 1, (0, 0, transport.group(call.axes).position))
        elif call.op in COMPLETIONS:
            start, its_request = started[call.settings["request"]]
            native = None if start is None else _completion(transport, call, start, its_request, complete)
        else:
            native = transport.native_call(call, request)
            if "request" in call.settings:
                started[call.settings["request"]] = native, request
        if native is not None:
            words = native.function, native.state, native.group, native.label, native.result_index, *native.arguments
            entry[: len(words)] = words
    return table


def _completion(transport: Transport, call: CollectiveCall, start: NativeCall, request: int, complete: int) -> NativeCall:
    """Return the call that waits for a collective, which the monitor reports, or makes progress on it."""
    reported = (start.state, start.group, start.label) if call.op == "wait" else _UNREPORTED
    return NativeCall(complete, *reported, 1, (0, 0, *transport.completion(call, request)))
