"""Compare an OpenCL device that is a processor with dlc's `cpu` target: processor time per call.

    taskset -c 0 python benchmarks/opencl.py [MODEL …] [--target opencl] [--calls N]

Processor time excludes other load on the machine; on one core (taskset), threads do not spin while they wait for each other.
Calls of the two targets are interleaved; the fastest of each counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from models import load, model_name

from dlc.compiler import Program, compile
from dlc.frontend.onnx import import_model
from dlc.options import Options


def seconds(call: Callable[[], object]) -> float:
    """Return the processor time of a call, over all threads."""
    start = time.process_time()
    call()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=model_name, default=["resnet18", "bert_base_128"])
    parser.add_argument("--target", default="opencl")
    parser.add_argument("--calls", type=int, default=12)
    arguments = parser.parse_args()
    print(f"{'model':16} {arguments.target + ' ms':>20} {'cpu ms':>9} {'relative speed':>19}")
    for name in arguments.models:
        model, feeds = load(name)
        imported = import_model(model, {key: value.shape for key, value in feeds.items()})
        program = Program(imported.module, imported.weights, name)
        models = [compile(program, target, Options(num_threads=1)) for target in (arguments.target, "cpu")]
        calls = [lambda m=m, f=feeds: [np.asarray(output) for output in m(f).values()] for m in models]
        for call in calls:
            call()
        times = [[seconds(call) for call in calls] for _ in range(arguments.calls)]
        device, cpu = (min(column) * 1e3 for column in zip(*times, strict=True))
        print(f"{name:16} {device:20.1f} {cpu:9.1f} {cpu / device:18.0%}", flush=True)


if __name__ == "__main__":
    main()
