"""Collectives of the `mpi` transport against the same calls of mpi4py.

`mpiexec -n 2 python -m mpi4py benchmarks/collectives.py`; without mpiexec, one rank shows the overhead of the transport alone.

Calls are interleaved, and the shortest of many counts: with fewer free cores than ranks, other calls wait for the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np

from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.mpi import MpiProcesses, MpiTransport

_ROUNDS = 500


def main() -> None:
    """Print microseconds per call, by number of elements."""
    processes = MpiProcesses()
    transport = MpiTransport(Mesh.of({"data": processes.size}), processes)
    communicator, operation = processes.world, processes.mpi.SUM
    for count in (1, 1 << 10, 1 << 16):
        x, result = np.ones(count, np.float32), np.empty(count, np.float32)
        gathered, label = np.empty((processes.size, count), np.float32), "benchmark"
        pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "all_reduce": (
                lambda: communicator.Allreduce(x, result, operation),  # noqa: B023
                lambda: transport.all_reduce(x, ["data"], "sum", label),  # noqa: B023
            ),
            "all_gather": (
                lambda: communicator.Allgather(x, gathered),  # noqa: B023
                lambda: transport.all_gather(x, ["data"], label),  # noqa: B023
            ),
        }
        for name, pair in pairs.items():
            shortest = [float("inf"), float("inf")]
            for _ in range(_ROUNDS):
                for k, call in enumerate(pair):
                    start = perf_counter()
                    call()
                    shortest[k] = min(shortest[k], perf_counter() - start)
            if processes.rank == 0:
                library, own = (1e6 * seconds for seconds in shortest)
                print(f"{name:<12}{count:>8} elements: mpi4py {library:7.2f} µs, transport {own:7.2f} µs, +{own - library:.2f}")


main()
