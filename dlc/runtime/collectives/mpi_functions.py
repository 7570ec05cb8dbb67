"""The C functions of the MPI library that mpi4py has loaded, and their arguments.

Libraries differ in the C types of handles: integers in MPICH, pointers in Open MPI. mpi4py knows their values.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from dlc.arrays import address_of
from dlc.runtime.collectives.mesh import RankGroup
from dlc.runtime.collectives.operations import permute_routes
from dlc.runtime.collectives.transport import CollectiveCall, Combinator

# Reductions that MPI defines, by kind of dtype. MPI's maximum and minimum of floats may drop NaN.
_REDUCTIONS: dict[str, dict[Combinator, str]] = {
    "b": {"max": "LOR", "min": "LAND"},
    "i": {"sum": "SUM", "max": "MAX", "min": "MIN"},
    "u": {"sum": "SUM", "max": "MAX", "min": "MIN"},
    "f": {"sum": "SUM"},
}
# The size of the smallest elements that MPI adds as NumPy does.
_MIN_SUM_BYTES = 4
# Counts of elements are an int of C.
_MAX_MESSAGE_BYTES = 2**31 - 1


class MpiFunctions:
    """The functions that collectives call, by address, and their arguments without those of the arrays."""

    def __init__(self, mpi: Any) -> None:
        self._mpi = mpi
        self._library = ctypes.CDLL(mpi.__file__)
        # Functions ignore the status of a message, but need memory for it.
        self._status = np.zeros(-(-mpi._sizeof(mpi.Status) // 8) + 1, np.int64)

    def address(self, name: str) -> int:
        """Return the address of a function, such as `MPI_Allreduce`; 0 if the library does not export it."""
        function: Any = getattr(self._library, name, None)
        return ctypes.cast(function, ctypes.c_void_p).value or 0

    def value(self, handle: Any) -> int:
        """Return the C value of a communicator, a datatype or a reduction, sign-extended to 64 bits."""
        value: int = self._mpi._handleof(handle)
        return value - (1 << 64) if value >> 63 else value

    def reduction(self, combine: Combinator, dtype: np.dtype[Any]) -> Any:
        """Return MPI's reduction for a dtype, an object of mpi4py; None if it has none with NumPy's results.

        MPI does not add half-precision floats, and Open MPI's sums of integers with 8 and 16 bits saturate.
        """
        is_small = combine == "sum" and dtype.itemsize < _MIN_SUM_BYTES
        name = None if is_small else _REDUCTIONS.get(dtype.kind, {}).get(combine)
        return None if name is None else getattr(self._mpi, name)

    def reduce_arguments(self, communicator: Any, count: int, dtype: np.dtype[Any], operation: Any) -> tuple[int, ...]:
        """Return the arguments of MPI_Allreduce and MPI_Reduce_scatter_block."""
        return 0, 0, count, *map(self.value, (self._mpi.Datatype.fromcode(dtype.char), operation, communicator))

    def exchange_arguments(self, communicator: Any, byte_count: int) -> tuple[int, ...]:
        """Return the arguments of MPI_Allgather and MPI_Alltoall, for messages of `byte_count` bytes."""
        byte = self.value(self._mpi.BYTE)
        return 0, byte_count, byte, 0, byte_count, byte, self.value(communicator)

    def send_receive_arguments(self, communicator: Any, byte_count: int, target: int, source: int) -> tuple[int, ...]:
        """Return the arguments of MPI_Sendrecv, for messages of `byte_count` bytes."""
        byte, tag, status = self.value(self._mpi.BYTE), 0, address_of(self._status)
        return 0, byte_count, byte, target, tag, 0, byte_count, byte, source, tag, self.value(communicator), status

    def with_request(self, name: str, arguments: tuple[int, ...], request: int) -> tuple[int, ...]:
        """Return the arguments of the nonblocking form of a function, which has a request instead of a status, if any."""
        return *(arguments[:-1] if name == "MPI_Sendrecv" else arguments), request

    def store_null_request(self, request: int) -> None:
        """Store a request that is complete at an address."""
        ctypes.c_int64.from_address(request).value = self.value(self._mpi.REQUEST_NULL)

    def completion(self, op: str, request: int) -> tuple[int, ...]:
        """Return MPI_Wait or MPI_Test and its arguments; the request is stored at the address `request`, the flag after it."""
        status = address_of(self._status)
        if op == "wait":
            return self.address("MPI_Wait"), request, status, 0
        return self.address("MPI_Test"), request, request + 8, status

    def null_rank(self) -> int:
        """Return MPI_PROC_NULL, the rank that sends and receives nothing."""
        return self._mpi.PROC_NULL


def mpi_call(
    functions: MpiFunctions, communicator: Any, group: RankGroup, call: CollectiveCall
) -> tuple[str, int, tuple[int, ...]] | None:
    """Return the function of a collective, the index of the argument that is the address of its result, and its arguments.

    None if MPI has no function that computes it from its operand alone: parts along an axis other than 0, numbers that MPI does
    not combine, or counts that do not fit a C int.
    """
    settings, size = call.settings, group.size
    axes = [settings[name] for name in ("axis", "split_axis", "concat_axis") if name in settings]
    if settings["group_size"] != size or any(axes) or call.bytes > _MAX_MESSAGE_BYTES or call.result_bytes > _MAX_MESSAGE_BYTES:
        return None
    match call.op:
        case "all_reduce" | "reduce_scatter":
            operation = functions.reduction(settings["combine"], call.dtype)
            result_bytes = call.bytes if call.op == "all_reduce" else call.bytes // size
            if operation is None or call.result_bytes != result_bytes:
                return None
            name = "MPI_Allreduce" if call.op == "all_reduce" else "MPI_Reduce_scatter_block"
            count = result_bytes // call.dtype.itemsize
            return name, 1, functions.reduce_arguments(communicator, count, call.dtype, operation)
        case "all_gather" if call.result_bytes == size * call.bytes:
            return "MPI_Allgather", 3, functions.exchange_arguments(communicator, call.bytes)
        case "all_to_all" if call.result_bytes == call.bytes:
            return "MPI_Alltoall", 3, functions.exchange_arguments(communicator, call.bytes // size)
        case "permute" if call.result_bytes == call.bytes:
            routes = permute_routes(settings["pairs"])
            source = {target: source for source, target in routes}.get(group.position)
            target = dict(routes).get(group.position, functions.null_rank())
            # A rank that is not a target gets zeros.
            return None if source is None else _send_receive(functions, communicator, call.bytes, target, source)
        case _:
            return None


def _send_receive(
    functions: MpiFunctions, communicator: Any, byte_count: int, target: int, source: int
) -> tuple[str, int, tuple[int, ...]]:
    return "MPI_Sendrecv", 5, functions.send_receive_arguments(communicator, byte_count, target, source)
