"""The `threads` transport: ranks as threads of one process, for tests and for meshes without MPI."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, ClassVar, TypeVar

import numpy as np

from dlc.errors import DlcError
from dlc.runtime.collectives.mesh import Mesh, RankGroup
from dlc.runtime.collectives.transport import Array, Combinator, Transport, use_transport

Result = TypeVar("Result")

_COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum}
_TIMEOUT_SECONDS = 60.0


class _Exchange:
    """The values that threads post for one another: by group and number of the collective, then by position."""

    def __init__(self, timeout_seconds: float) -> None:
        self.changed = threading.Condition()
        self.posted: dict[tuple[tuple[int, ...], int], dict[int, Any]] = {}
        self.taken: dict[tuple[tuple[int, ...], int], int] = {}
        self.failed_rank: int | None = None
        self.timeout_seconds = timeout_seconds

    def fail(self, rank: int) -> None:
        """Wake all waiting threads, whose collectives raise errors."""
        with self.changed:
            if self.failed_rank is None:
                self.failed_rank = rank
            self.changed.notify_all()

    def all_values(self, group: RankGroup, number: int, value: Any, label: str) -> list[Any]:
        """Post a value and return those of all ranks of the group, by position."""
        key = group.ranks, number
        with self.changed:
            values = self.posted.setdefault(key, {})
            values[group.position] = value
            self.changed.notify_all()
            self.changed.wait_for(lambda: len(values) == group.size or self.failed_rank is not None, self.timeout_seconds)
            if len(values) < group.size:
                if self.failed_rank is not None:
                    raise DlcError(f"{label}: rank {self.failed_rank} failed")
                missing = [rank for k, rank in enumerate(group.ranks) if k not in values]
                raise DlcError(f"{label}: no call on ranks {missing} within {self.timeout_seconds:g} s")
            self.taken[key] = self.taken.get(key, 0) + 1
            if self.taken[key] == group.size:
                del self.posted[key], self.taken[key]
            return [values[position] for position in range(group.size)]


class ThreadsTransport(Transport):
    """The transport of one thread; `run_ranks` creates those of a mesh."""

    in_one_process: ClassVar[bool] = True

    def __init__(self, mesh: Mesh, rank: int, exchange: _Exchange) -> None:
        super().__init__(mesh, rank)
        self._exchange = exchange
        self._call_counts: dict[tuple[int, ...], int] = {}

    def on_mesh(self, mesh: Mesh) -> ThreadsTransport:
        """Return the transport of the same rank on another mesh. Raises DlcError for a mesh of another number of ranks."""
        if mesh == self.mesh:
            return self
        if mesh.size != self.mesh.size:
            raise DlcError(f"the mesh {mesh} has {mesh.size} ranks, {self.mesh.size} threads run: use a mesh of that size")
        other = ThreadsTransport(mesh, self.rank, self._exchange)
        # Groups of the same ranks number their calls together.
        other._call_counts = self._call_counts
        return other

    def _all_values(self, value: Any, axes: Sequence[str], label: str) -> tuple[list[Any], int]:
        group = self.group(axes)
        number = self._call_counts[group.ranks] = self._call_counts.get(group.ranks, 0) + 1
        return self._exchange.all_values(group, number, value, label), group.position

    def all_reduce(self, x: Array, axes: Sequence[str], combine: Combinator, label: str) -> Array:
        arrays, _ = self._all_values(x.copy(), axes, label)
        return np.asarray(reduce(_COMBINE[combine], arrays))

    def reduce_scatter(self, parts: Array, axes: Sequence[str], combine: Combinator, label: str) -> Array:
        arrays, position = self._all_values(parts.copy(), axes, label)
        return np.asarray(reduce(_COMBINE[combine], [array[position] for array in arrays]))

    def all_gather(self, x: Array, axes: Sequence[str], label: str) -> Array:
        return np.stack(self._all_values(x.copy(), axes, label)[0])

    def all_to_all(self, parts: Array, axes: Sequence[str], label: str) -> Array:
        arrays, position = self._all_values(parts.copy(), axes, label)
        return np.stack([array[position] for array in arrays])

    def permute(self, x: Array, axis: str, pairs: Sequence[tuple[int, int]], label: str) -> Array:
        arrays, position = self._all_values(x.copy(), [axis], label)
        sources = {target: source for source, target in pairs}
        return arrays[sources[position]] if position in sources else np.zeros_like(x)

    def exchange(self, message: bytes, label: str) -> list[bytes]:
        return self._all_values(message, [name for name, _ in self.mesh.axes], label)[0]


def run_ranks(mesh: Mesh, function: Callable[[int], Result], timeout_seconds: float = _TIMEOUT_SECONDS) -> list[Result]:
    """Call `function(rank)` for all ranks of a mesh, each in its own thread with its transport; return the results by rank.

    Raises the first exception of a rank, which ends the collectives that wait for it. A collective raises DlcError when other
    ranks do not arrive within the timeout.
    """
    exchange = _Exchange(timeout_seconds)
    results: dict[int, Result] = {}
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            with use_transport(ThreadsTransport(mesh, rank, exchange)):
                results[rank] = function(rank)
        except BaseException as error:
            errors.append(error)
            exchange.fail(rank)

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}") for rank in range(mesh.size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[rank] for rank in range(mesh.size)]
