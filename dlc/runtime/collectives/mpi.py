"""The `mpi` transport: ranks as processes that `mpiexec` started, with mpi4py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from dlc.errors import DlcError, UnsupportedError
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.transport import Array, Combinator, Transport

# Reductions that MPI defines, by kind of dtype. MPI's maximum and minimum of floats may drop NaN.
_MPI_OPERATIONS: dict[str, dict[Combinator, str]] = {
    "b": {"max": "LOR", "min": "LAND"},
    "i": {"sum": "SUM", "max": "MAX", "min": "MIN"},
    "u": {"sum": "SUM", "max": "MAX", "min": "MIN"},
    "f": {"sum": "SUM"},
}
_NAN_PROPAGATING = {"max": np.maximum, "min": np.minimum}
# The dtypes that mpi4py maps to MPI's, as NumPy's type characters.
_MPI_DTYPES = "?bBhHiIlLqQfd"
# The current collective of a process: the ranks of its group, and its number among the collectives of this group.
PendingCollective: TypeAlias = tuple[tuple[int, ...], int]


@dataclass
class _Group:
    communicator: Any
    ranks: tuple[int, ...]
    call_count: int = 0


class MpiProcesses:
    """The processes of the job, with a communicator per group of ranks.

    Attributes:
        mpi: The module `mpi4py.MPI`.
        world: A communicator of all processes.
        pending: The collective in which this process is; the job's monitor reads it.
        last_label: The label of the pending or last collective.
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
        self.pending: PendingCollective | None = None
        self.last_label = ""
        self._groups: dict[tuple[int, ...], _Group] = {}
        self._operations = {
            (kind, combine): getattr(self.mpi, name)
            for kind, names in _MPI_OPERATIONS.items()
            for combine, name in names.items()
        }

    def group(self, ranks: tuple[int, ...]) -> _Group:
        """Return the group of some ranks; the first call must be made by all of them."""
        group = self._groups.get(ranks)
        if group is None:
            communicator = self.world.Create_group(self.world.group.Incl(ranks))
            group = self._groups[ranks] = _Group(communicator, ranks)
        return group

    def operation(self, combine: Combinator, dtype: np.dtype[Any]) -> Any:
        """Return MPI's reduction for a dtype; None if it has none that propagates NaN."""
        return self._operations.get((dtype.kind, combine))

    def call(self, group: _Group, label: str, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the group's communicator, and record it for the monitor. Raises DlcError if MPI reports an error."""
        group.call_count += 1
        self.last_label = label
        self.pending = group.ranks, group.call_count
        try:
            result = method(*arguments)
        except self.mpi.Exception as error:
            raise DlcError(f"{label}: {error}") from error
        self.pending = None
        return result


class MpiTransport(Transport):
    """Moves data between the processes of a job; MPI reads and writes the arrays in place."""

    def __init__(self, mesh: Mesh, processes: MpiProcesses) -> None:
        super().__init__(mesh, processes.rank)
        self._processes = processes
        self._groups: dict[tuple[str, ...], _Group] = {}

    def _group(self, axes: Sequence[str]) -> _Group:
        key = tuple(axes)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = self._processes.group(self.group(axes).ranks)
        return group

    def all_reduce(self, x: Array, axes: Sequence[str], combine: Combinator, label: str) -> Array:
        group, operation = self._group(axes), self._processes.operation(combine, x.dtype)
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
        group, operation = self._group(axes), self._processes.operation(combine, parts.dtype)
        if operation is None:
            return np.asarray(_NAN_PROPAGATING[combine].reduce(self.all_to_all(parts, axes, label), axis=0))
        result = np.empty(parts.shape[1:], parts.dtype)
        self._processes.call(group, label, group.communicator.Reduce_scatter_block, parts, result, operation)
        return result

    def all_gather(self, x: Array, axes: Sequence[str], label: str) -> Array:
        group = self._group(axes)
        result = np.empty((len(group.ranks), *x.shape), x.dtype)
        self._processes.call(group, label, group.communicator.Allgather, _buffer(x), _buffer(result))
        return result

    def all_to_all(self, parts: Array, axes: Sequence[str], label: str) -> Array:
        group, result = self._group(axes), np.empty_like(parts)
        self._processes.call(group, label, group.communicator.Alltoall, _buffer(parts), _buffer(result))
        return result

    def permute(self, x: Array, axis: str, pairs: Sequence[tuple[int, int]], label: str) -> Array:
        group, result, nobody = self._group([axis]), np.zeros_like(x), self._processes.mpi.PROC_NULL
        position = self.group([axis]).position
        target = dict(pairs).get(position, nobody)
        source = {target: source for source, target in pairs}.get(position, nobody)
        send_receive = group.communicator.Sendrecv
        self._processes.call(group, label, send_receive, _buffer(x), target, 0, _buffer(result), source, 0)
        return result

    def exchange(self, message: bytes, label: str) -> list[bytes]:
        group = self._processes.group(tuple(range(self.mesh.size)))
        return self._processes.call(group, label, group.communicator.allgather, message)


def _buffer(x: Array) -> Array:
    """Return an array, or a view of it as bytes if MPI does not know its dtype."""
    return x if x.dtype.char in _MPI_DTYPES else x.reshape(-1).view(np.uint8)
