"""Loads a model, runs it once on one thread, and prints the seconds and the most memory in MB that the process held.

    python benchmarks/one_run.py RUNTIME MODEL INPUTS.npz      RUNTIME: dlc (a compiled model), or another runtime's name

Imports are not timed; they count as memory, so nothing is imported that the runtime does not need.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runtime")
    parser.add_argument("model", type=Path)
    parser.add_argument("inputs", type=Path)
    chosen = parser.parse_args()
    runtime, model, inputs = chosen.runtime, chosen.model, dict(np.load(chosen.inputs))
    if runtime == "dlc":
        from dlc import load

        began = time.perf_counter()
        load(model, num_threads=1)(inputs)
    else:
        from dlc.measure.peers import PEERS

        __import__(PEERS[runtime].package)
        began = time.perf_counter()
        PEERS[runtime].open(model, inputs, 1)()
    seconds = time.perf_counter() - began
    status = Path("/proc/self/status").read_text()
    print(seconds, int(status.split("VmHWM:")[1].split()[0]) / 1024)


if __name__ == "__main__":
    main()
