"""Benchmark data-parallel training steps with and without overlap of collectives and computation.

`mpiexec -n 2 python -m mpi4py benchmarks/overlap.py [ROUNDS]` prints the shortest and the median wall time of a step, and the
median processor time of rank 0. Steps of both programs are interleaved.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter, process_time
from typing import Any
from unittest.mock import patch

import numpy as np
from mpi4py import MPI

import dlc
import dlc.numpy as dnp
from dlc import P
from dlc.passes.host.overlap_collectives import OverlapCollectivesPass

# The number of layers, their width, and the batch of both ranks.
_CASES = (6, 1024, 2048), (12, 512, 2048)


def loss(layers: Any, x: Any) -> Any:
    for w in layers:
        x = dnp.tanh(x @ w)
    return dnp.mean(x**2)


def step(layers: Any, x: Any) -> Any:
    value, gradients = dlc.value_and_grad(loss)(layers, x)
    return value, [w - 0.1 * gradient for w, gradient in zip(layers, gradients, strict=True)]


def compiled(layers: Any, x: Any, *, overlaps: bool) -> Callable[..., Any]:
    """Return the step after its first call."""
    mesh = dlc.make_mesh({"data": MPI.COMM_WORLD.size})
    options = {"in_shardings": (P(), P("data")), "out_shardings": P(), "num_threads": 1, "cache": False}
    function = dlc.jit(mesh=mesh, **options)(step)
    with patch.object(OverlapCollectivesPass, "apply", OverlapCollectivesPass.apply if overlaps else lambda *arguments: None):
        function(layers, x)
    return function


def main() -> None:
    world, rounds, rng = MPI.COMM_WORLD, int(sys.argv[1]) if len(sys.argv) > 1 else 25, np.random.default_rng(0)
    for count, width, batch in _CASES:
        layers = [(rng.normal(size=(width, width)) / 32).astype(np.float32) for _ in range(count)]
        x = rng.normal(size=(batch, width)).astype(np.float32)
        functions = {name: compiled(layers, x, overlaps=name == "overlapped") for name in ("overlapped", "blocking")}
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in functions}
        for k in range(rounds):
            for name in list(functions)[:: 1 if k % 2 else -1]:
                world.Barrier()
                processor, wall = process_time(), perf_counter()
                functions[name](layers, x)
                times[name].append((perf_counter() - wall, process_time() - processor))
        for name, measured in times.items() if world.rank == 0 else ():
            walls, processors = ([1e3 * t for t in column] for column in zip(*measured, strict=True))
            print(
                f"{count} layers of {width} × {width}, batch {batch}, {name}: shortest {min(walls):.1f} ms, median "
                f"{median(walls):.1f} ms; processor {median(processors):.1f} ms",
                flush=True,
            )


main()
