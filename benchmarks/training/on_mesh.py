"""Compare losses of training steps on a mesh with those of one process.

    PYTHONPATH=benchmarks mpiexec -n 2 python -m mpi4py -m training.on_mesh resnet18 gpt lstm --steps 20

The batch is split over all ranks, which use one thread each. Prints the first and the last loss, and the largest
difference of the losses relative to the first; exits with status 1 if one is larger than `--tolerance`.
"""

from __future__ import annotations

import argparse
import sys
from time import perf_counter

import numpy as np
from mpi4py import MPI

import dlc
from dlc import P
from training.in_dlc import training
from training.models import MODELS, Draw


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["resnet18", "gpt", "lstm"])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    arguments = parser.parse_args()
    mesh, is_wrong = dlc.make_mesh({"data": MPI.COMM_WORLD.size}), False
    for name in arguments.models:
        model = MODELS[name]
        x, labels = model.batch()
        # The LSTM has its steps first.
        axis = x.shape.index(labels.shape[0]) if model.tokens == 0 else 0
        specs = (P(), None, P(*[None] * axis, "data"), P("data"))
        placement = {"mesh": mesh, "in_shardings": specs, "out_shardings": (P(), None, P())}
        losses, seconds = list[list[float]](), list[float]()
        for options in ({}, placement):
            run = training(model, model.parameters(Draw()), x, labels, threads=1, **options)
            first, start = run(), perf_counter()
            losses.append([first, *(run() for _ in range(arguments.steps - 1))])
            seconds.append((perf_counter() - start) / max(arguments.steps - 1, 1))
        expected, found = map(np.array, losses)
        difference = float(np.max(np.abs(found - expected)) / expected[0])
        is_wrong |= not difference <= arguments.tolerance
        if MPI.COMM_WORLD.rank == 0:
            times = f"{1e3 * seconds[0]:.0f} ms per step, on the mesh {1e3 * seconds[1]:.0f}"
            print(f"{name}: losses {expected[0]:.4f} … {expected[-1]:.4f}, difference {difference:.1e}; {times}", flush=True)
    sys.exit(int(is_wrong))


main()
