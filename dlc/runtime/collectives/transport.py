"""The interface of transports, which move data between ranks, and the transport of the calling thread."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import DlcError
from dlc.runtime.collectives.mesh import Mesh, RankGroup

Array: TypeAlias = "NDArray[Any]"
# How a reduction combines elements; `max` and `min` propagate NaN.
Combinator: TypeAlias = Literal["sum", "max", "min"]


@dataclass(frozen=True)
class CollectiveCall:
    """A collective of a program.

    Attributes:
        op: Its name in `native_calls.COLLECTIVES`.
        settings: The keyword arguments of its function in `operations.py`.
        shape, dtype: The type of its operand; unspecified if there is none.
        result_bytes: The size of its result.
    """

    op: str
    settings: Mapping[str, Any]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    result_bytes: int

    @property
    def axes(self) -> list[str]:
        """The mesh axes."""
        return cast(str, self.settings["axes"]).split()

    @property
    def bytes(self) -> int:
        """The size of its operand."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class NativeCall:
    """A C function that runs a collective, with the fields of %Collective (backends/cpu/runtime.ll): integers and addresses."""

    function: int
    state: int
    group: int
    label: int
    result_index: int
    arguments: tuple[int, ...]


class Transport(ABC):
    """Moves data between the ranks of a mesh, as seen from one rank.

    A collective involves a group: the ranks that differ in their coordinates along `axes` only, in row-major order with the
    first of `axes` outermost (`group`). All ranks of a group call the same methods in the same order with arrays of the same
    shape and dtype. Arrays are C-contiguous, and the caller may overwrite them as soon as the method returns; results are new
    arrays. Reductions take bool (max, min), integers, float32 and float64: callers convert other dtypes. Other methods move
    elements of any dtype as bytes. All ranks of a group receive bitwise equal results of an all-reduce.

    Every method takes a `label` for messages and for the monitor: the op, the source line and its array, such as
    `dl.all_reduce at train.py:9: float32[64, 10] over "data"`. A method raises DlcError with this label when other ranks
    fail or do not arrive.
    """

    # Whether all ranks are threads of this process, which run the same compiled program.
    in_one_process: ClassVar[bool] = False

    def __init__(self, mesh: Mesh, rank: int) -> None:
        """Create the transport of one rank; `mesh.size` is the number of ranks."""
        self.mesh = mesh
        self.rank = rank

    def group(self, axes: Sequence[str]) -> RankGroup:
        """Return the ranks that a collective along `axes` involves, and the position of this rank among them."""
        return self.mesh.group(self.rank, axes)

    def record_call(self, label: str) -> None:
        """Record the call of a program, to find ranks that call different programs. Its label is the same on all ranks.

        Threads run the same compiled programs: they record nothing.
        """
        return

    def raise_stored_error(self, label: str) -> None:
        """Raise DlcError if native code has stored an error, which the message calls by `label`."""
        return

    def completion(self, call: CollectiveCall, request: int) -> tuple[int, ...]:
        """Return a C function that completes a nonblocking collective, or tests it, and its arguments.

        `call` is a wait or a progress call, `request` the address of the request. A transport whose `native_call` returns
        functions overrides it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no native collectives")

    def native_call(self, call: CollectiveCall, request: int) -> NativeCall | None:
        """Return the C function that runs a collective, for native code; None if the methods of this class run it. It is
        nonblocking if `call` has the setting `request`; then it stores the request at the address `request`.

        All ranks of the group call this, since it may create the group. The function computes what the methods compute.
        """
        return None

    @abstractmethod
    def all_reduce(self, x: Array, axes: Sequence[str], combine: Combinator, label: str) -> Array:
        """Return the elements of all ranks combined; the result has the shape of `x`."""

    @abstractmethod
    def reduce_scatter(self, parts: Array, axes: Sequence[str], combine: Combinator, label: str) -> Array:
        """Return `parts[p]` of all ranks combined, where p is the position of this rank; axis 0 has the size of the group."""

    @abstractmethod
    def all_gather(self, x: Array, axes: Sequence[str], label: str) -> Array:
        """Return the arrays of all ranks by position, along a new axis 0."""

    @abstractmethod
    def all_to_all(self, parts: Array, axes: Sequence[str], label: str) -> Array:
        """Send `parts[p]` to the rank at position p, and return the received parts by position of their senders.

        Axis 0 of `parts` and of the result has the size of the group.
        """

    @abstractmethod
    def permute(self, x: Array, axis: str, pairs: Sequence[tuple[int, int]], label: str) -> Array:
        """Send `x` along one mesh axis: for each pair (source, target) of positions, the target receives the source's array.

        No two pairs share a source or a target. A rank that is not a target receives zeros.
        """

    @abstractmethod
    def exchange(self, message: bytes, label: str) -> list[bytes]:
        """Return the messages of all ranks of the mesh, by rank; it is a barrier. The check that programs are equal uses it."""


class _ThreadState(threading.local):
    transport: Transport | None = None


class _ProcessState:
    transport: Transport | None = None


_thread_state = _ThreadState()
_process_state = _ProcessState()


def current_transport() -> Transport:
    """Return the transport of the calling thread, else of the process; raises DlcError if there is none."""
    transport = find_transport()
    if transport is None:
        raise DlcError(
            "a program on a mesh runs on all ranks: compile it with mesh=, and start `mpiexec -n RANKS python -m mpi4py SCRIPT`"
        )
    return transport


def find_transport() -> Transport | None:
    """Return the transport of the calling thread, else of the process; None if there is none."""
    return _thread_state.transport or _process_state.transport


def set_process_transport(transport: Transport | None) -> None:
    """Use a transport in all threads of this process that have none of their own."""
    _process_state.transport = transport


@contextmanager
def use_transport(transport: Transport) -> Generator[None]:
    """Use a transport in the calling thread inside a `with` block."""
    previous, _thread_state.transport = _thread_state.transport, transport
    try:
        yield
    finally:
        _thread_state.transport = previous
