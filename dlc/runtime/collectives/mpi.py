"""The `mpi` transport: ranks as processes that `mpiexec` started, with mpi4py."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np

from dlc.arrays import address_of
from dlc.errors import DlcError, UnsupportedError
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.mpi_functions import MpiFunctions, mpi_call
from dlc.runtime.collectives.transport import Array, CollectiveCall, Combinator, NativeCall, Transport

_COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum}
# The dtypes that mpi4py maps to MPI's, as NumPy's type characters.
_MPI_DTYPES = "?bBhHiIlLqQfd"
# The current collective of a process: the ranks of its group, and its number among the collectives of this group.
PendingCollective: TypeAlias = tuple[tuple[int, ...], int]
_RecordedCall: TypeAlias = tuple[int, int, str]


# The words of the state: the number of the group (0 between collectives), that of the label, and the error of native code.
_GROUP, _LABEL, _ERROR = range(3)


class _Group:
    """A group of ranks and its communicator.

    Attributes:
        words: Its number in the state of the process, and the number of its collectives so far; native code counts them too.
    """

    def __init__(self, ranks: tuple[int, ...], number: int) -> None:
        self.ranks = ranks
        self.communicator: Any = None
        self.words = np.array([number, 0], np.int64)


class CallHistory:
    """The calls of this process that exchange data, which must be the same on all ranks, as the monitor compares them.

    A call has a number, the digest of all calls until it, and a label. The monitor compares those of equal numbers. Some calls
    stay visible for longer, since ranks report at different times.
    """

    _INTERVALS = 64, 8192
    _MAX_RECENT_CALLS = 64

    def __init__(self) -> None:
        self._count = self._digest = 0
        self._recent = deque[_RecordedCall](maxlen=self._MAX_RECENT_CALLS)
        self._last: dict[int, _RecordedCall] = {}

    def record(self, label: str) -> None:
        """Record a call."""
        self._count += 1
        self._digest = crc32(label.encode(), self._digest)
        call = self._count, self._digest, label
        self._recent.append(call)
        for interval in self._INTERVALS:
            if self._count % interval:
                break
            self._last[interval] = call

    def calls(self) -> list[_RecordedCall]:
        """Return the last call, and earlier ones."""
        return [*self._last.values(), *list(self._recent)[-1:]]

    def recent_calls(self) -> list[_RecordedCall]:
        """Return more calls, for the end of the process: other ranks may have made a different number of calls."""
        return [*self._last.values(), *self._recent]


class MpiProcesses:
    """The processes of the job, with a communicator per group of ranks.

    Attributes:
        mpi: The module `mpi4py.MPI`.
        world: A communicator of all processes.
        functions: The C functions of the library.
        state: What this process does, as three words; native code writes it and the job's monitor reads it.
        history: The calls of programs.
    """

    def __init__(self) -> None:
        """Initialize MPI. Raises UnsupportedError without mpi4py or an MPI library."""
        try:
            self.mpi: Any = import_module("mpi4py.MPI")
        except (ImportError, RuntimeError) as error:
            raise UnsupportedError(f"a mesh of processes needs MPI: pip install 'dlc[dist]' ({error})") from error
        self.world: Any = self.mpi.COMM_WORLD.Dup()
        self.rank: int = self.world.rank
        self.size: int = self.world.size
        self.functions = MpiFunctions(self.mpi)
        self.state = np.zeros(3, np.int64)
        self.history = CallHistory()
        self._groups: dict[tuple[int, ...], _Group] = {}
        self._groups_by_number: list[_Group] = []
        self._labels = [""]
        self._label_numbers: dict[str, int] = {}

    @property
    def pending(self) -> PendingCollective | None:
        """The collective in which this process is; the job's monitor reads it."""
        number = int(self.state[_GROUP])
        if not number:
            return None
        group = self._groups_by_number[number - 1]
        return group.ranks, int(group.words[1])

    @property
    def last_label(self) -> str:
        """The label of the pending or last collective."""
        return self._labels[int(self.state[_LABEL])]

    def group(self, ranks: tuple[int, ...], label: str) -> _Group:
        """Return the group of some ranks; the first call must be made by all of them."""
        group = self._groups.get(ranks)
        if group is None:
            group = _Group(ranks, len(self._groups_by_number) + 1)
            self._groups_by_number.append(group)
            group.communicator = self.call(group, label, self.world.Create_group, self.world.group.Incl(ranks))
            self._groups[ranks] = group
        return group

    def label_number(self, label: str) -> int:
        """Return the number of a label in the state."""
        number = self._label_numbers.get(label)
        if number is None:
            number = self._label_numbers[label] = len(self._labels)
            self._labels.append(label)
        return number

    def raise_stored_error(self, label: str) -> None:
        """Raise DlcError if native code has stored an error."""
        if error := int(self.state[_ERROR]):
            self.state[_ERROR] = 0
            raise DlcError(f"{label}: {self.mpi.Get_error_string(error)}")

    def call(self, group: _Group, label: str, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of a communicator of the group, and record it for the monitor.

        Raises DlcError if MPI reports an error, or native code has stored one.
        """
        self.raise_stored_error(label)
        state = self.state
        group.words[1] += 1
        state[_LABEL] = self.label_number(label)
        state[_GROUP] = group.words[0]
        try:
            result = method(*arguments)
        except self.mpi.Exception as error:
            raise DlcError(f"{label}: {error}") from error
        state[_GROUP] = 0
        return result


class MpiTransport(Transport):
    """Moves data between the processes of a job; MPI reads and writes the arrays in place."""

    def __init__(self, mesh: Mesh, processes: MpiProcesses) -> None:
        super().__init__(mesh, processes.rank)
        self._processes = processes
        self._groups: dict[tuple[str, ...], _Group] = {}

    def _group(self, axes: Sequence[str], label: str) -> _Group:
        key = tuple(axes)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = self._processes.group(self.group(axes).ranks, label)
        return group

    def record_call(self, label: str) -> None:
        self._processes.history.record(label)

    def raise_stored_error(self, label: str) -> None:
        self._processes.raise_stored_error(label)

    def completion(self, call: CollectiveCall, request: int) -> tuple[int, ...]:
        return self._processes.functions.completion(call.op, request)

    def native_call(self, call: CollectiveCall, request: int) -> NativeCall | None:
        processes, label, functions = self._processes, str(call.settings["label"]), self._processes.functions
        group = self._group(call.axes, label)
        function_and_arguments = mpi_call(functions, group.communicator, self.group(call.axes), call)
        if function_and_arguments is None:
            return None
        name, result_index, arguments = function_and_arguments
        function, state, words = functions.address(name), address_of(processes.state), address_of(group.words)
        if "request" in call.settings:
            functions.store_null_request(request)
            # Libraries before MPI 4 lack the nonblocking form of permutations; waiting for a null request returns at once.
            nonblocking = functions.address(f"MPI_I{name.removeprefix('MPI_').lower()}")
            if nonblocking:
                function, arguments = nonblocking, functions.with_request(name, arguments, request)
        return NativeCall(function, state, words, processes.label_number(label), result_index, arguments) if function else None

    def all_reduce(self, x: Array, axes: Sequence[str], combine: Combinator, label: str) -> Array:
        group, operation = self._group(axes, label), self._processes.functions.reduction(combine, x.dtype)
        if operation is not None:
            result = np.empty_like(x)
            self._processes.call(group, label, group.communicator.Allreduce, x, result, operation)
            return result
        # One rank combines each part, so that all ranks receive the same signs of zero and NaN.
        count = len(group.ranks)
        parts = np.zeros((count, -(-x.size // count)), x.dtype)
        parts.reshape(-1)[: x.size] = x.reshape(-1)
        own_part = self.reduce_scatter(parts, axes, combine, label)
        return self.all_gather(own_part, axes, label).reshape(-1)[: x.size].reshape(x.shape)

    def reduce_scatter(self, parts: Array, axes: Sequence[str], combine: Combinator, label: str) -> Array:
        group, operation = self._group(axes, label), self._processes.functions.reduction(combine, parts.dtype)
        if operation is None:
            received = self.all_to_all(parts, axes, label)
            return np.asarray(_COMBINE[combine].reduce(received, axis=0, dtype=parts.dtype))
        result = np.empty(parts.shape[1:], parts.dtype)
        self._processes.call(group, label, group.communicator.Reduce_scatter_block, parts, result, operation)
        return result

    def all_gather(self, x: Array, axes: Sequence[str], label: str) -> Array:
        group = self._group(axes, label)
        result = np.empty((len(group.ranks), *x.shape), x.dtype)
        self._processes.call(group, label, group.communicator.Allgather, _buffer(x), _buffer(result))
        return result

    def all_to_all(self, parts: Array, axes: Sequence[str], label: str) -> Array:
        group, result = self._group(axes, label), np.empty_like(parts)
        self._processes.call(group, label, group.communicator.Alltoall, _buffer(parts), _buffer(result))
        return result

    def permute(self, x: Array, axis: str, pairs: Sequence[tuple[int, int]], label: str) -> Array:
        group, result, null_rank = self._group([axis], label), np.zeros_like(x), self._processes.mpi.PROC_NULL
        position = self.group([axis]).position
        target = dict(pairs).get(position, null_rank)
        source = {target: source for source, target in pairs}.get(position, null_rank)
        send_receive = group.communicator.Sendrecv
        self._processes.call(group, label, send_receive, _buffer(x), target, 0, _buffer(result), source, 0)
        return result

    def exchange(self, message: bytes, label: str) -> list[bytes]:
        group = self._processes.group(tuple(range(self.mesh.size)), label)
        return self._processes.call(group, label, group.communicator.allgather, message)


def _buffer(x: Array) -> Array:
    """Return an array, or a view of it as bytes if MPI does not know its dtype."""
    return x if x.dtype.char in _MPI_DTYPES else x.reshape(-1).view(np.uint8)
