"""Load a model, run it once on one thread, and print the seconds and the peak memory of the process in MB.

    python benchmarks/load_and_run.py RUNTIME MODEL INPUTS.npz      RUNTIME: dlc (for a compiled model), or another runtime

Imports are not timed but count as memory, so only modules that the runtime needs are imported. `models.py` runs this program.
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
    arguments = parser.parse_args()
    runtime, model, inputs = arguments.runtime, arguments.model, dict(np.load(arguments.inputs))
    if runtime == "dlc":
        from dlc import load

        start = time.perf_counter()
        load(model, num_threads=1)(inputs)
    else:
        from dlc.measure.other_runtimes import PEERS

        __import__(PEERS[runtime].package)
        start = time.perf_counter()
        PEERS[runtime].open(model, inputs, 1)()
    seconds = time.perf_counter() - start
    status = Path("/proc/self/status").read_text()
    print(seconds, int(status.split("VmHWM:")[1].split()[0]) / 1024)


if __name__ == "__main__":
    main()
