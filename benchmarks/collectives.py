"""Collectives of compiled programs against the same calls of mpi4py, in microseconds.

`mpiexec -n 2 python -m mpi4py benchmarks/collectives.py`

A program scans over rows and exchanges each of them; mpi4py exchanges the same rows in a Python loop, and writes to the memory
of the program's last result: times of large messages depend on the memory. A call of a program without collectives is timed as
well, after an exchange by mpi4py, which evicts the caches. Calls are interleaved, and the shortest of many counts: with fewer
free processors than ranks, other calls wait for the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from mpi4py import MPI

import dlc
from dlc import P, lax

_COUNTS = 1, 64, 1024, 16384, 65536, 262144, 1048576
# Elements per call, and the largest number of collectives.
_MAX_ELEMENTS, _MAX_ROWS = 1 << 20, 64
_ROUNDS, _MAX_SECONDS = 2000, 0.2


def _program(name: str, size: int) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any], int]:
    """Return a collective of dlc and of mpi4py, and the size of its operand as a multiple of the element count."""
    world, ring = MPI.COMM_WORLD, [(k, (k + 1) % size) for k in range(size)]
    target, source = (world.rank + 1) % size, (world.rank - 1) % size
    match name:
        case "all_reduce":
            return lambda x: lax.psum(x, "data"), lambda x, y: world.Allreduce(x, y, MPI.SUM), 1
        case "reduce_scatter":
            scatter = world.Reduce_scatter_block
            return lambda x: lax.psum_scatter(x, "data", tiled=True), lambda x, y: scatter(x, y, MPI.SUM), size
        case "all_gather":
            return lambda x: lax.all_gather(x, "data", tiled=True), world.Allgather, 1
        case "all_to_all":
            return lambda x: lax.all_to_all(x, "data", 0, 0, tiled=True), world.Alltoall, size
        case _:
            return lambda x: lax.ppermute(x, "data", ring), lambda x, y: world.Sendrecv(x, target, 0, y, source, 0), 1


def _shortest_seconds(calls: list[Callable[[], Any]]) -> list[float]:
    """Return the shortest time of each call, which all ranks begin together."""
    world, shortest, start = MPI.COMM_WORLD, [float("inf")] * len(calls), perf_counter()
    for round_number in range(_ROUNDS):
        for k, call in enumerate(calls):
            world.Barrier()
            before = perf_counter()
            call()
            shortest[k] = min(shortest[k], perf_counter() - before)
        if round_number % 8 == 7 and world.bcast(perf_counter() - start > _MAX_SECONDS):
            break
    return shortest


def main() -> None:
    """Print the time of each collective, by number of elements that a rank sends to each other one."""
    world = MPI.COMM_WORLD
    mesh = dlc.make_mesh({"data": world.size})
    on_mesh = dlc.jit(mesh=mesh, num_threads=1)

    def increment(x: Any) -> Any:
        return x + 1

    empty, element = on_mesh(increment), dlc.distribute(np.ones(world.size, np.float32), P("data"), mesh)
    for name in ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "permute"):
        own, library, operand_factor = _program(name, world.size)
        for count in _COUNTS:
            rows = min(_MAX_ROWS, max(1, _MAX_ELEMENTS // count))
            x = np.ones((world.size, rows, count * operand_factor), np.float32)

            def scan(shards: Any, own: Callable[[Any], Any] = own) -> Any:
                return lax.scan(lambda state, row: (state, lax.pvary(own(row), "data")), None, shards[0])[1][None]

            program = on_mesh(dlc.shard_map(scan, in_specs=P("data"), out_specs=P("data")))
            operand = dlc.distribute(x, P("data"), mesh)
            results = [program(operand)]

            def by_library(x: Any = operand, results: Any = results, library: Callable[[Any, Any], Any] = library) -> None:
                for row, result in zip(x.shard[0], results[0].shard[0], strict=True):
                    library(row, result)

            def by_program(program: Any = program, operand: Any = operand, results: Any = results) -> None:
                # The next result takes the memory of the last one.
                results.clear()
                results.append(program(operand))

            # The second call of mpi4py evicts the caches before the call without collectives.
            mpi, compiled, _, call = _shortest_seconds([by_library, by_program, by_library, lambda: empty(element)])
            if world.rank == 0:
                per_collective = f"mpi4py {1e6 * mpi / rows:9.2f} µs, dlc {1e6 * compiled / rows:9.2f} µs"
                print(f"{name:<15}{count:>8} elements: {per_collective}; call {1e6 * call:6.2f} µs", flush=True)


main()
