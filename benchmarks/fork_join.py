"""What running a program costs beside its kernels: fork-joins of the thread pool, and a call from Python.

    python benchmarks/fork_join.py [--threads N] [--hogs N]

`--hogs` starts processes that only burn time, to see what the pool does when the processors are not its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from dlc.arrays import TensorInfo
from dlc.backends.cpu.llvm import compile_text
from dlc.backends.cpu.runtime_code import runtime_object
from dlc.machine.cpus import usable_cpus
from dlc.runtime.cpu.code.loader import load_object
from dlc.runtime.cpu.code.native import runtime
from dlc.runtime.cpu.program import KernelImage, NativeProgram
from dlc.runtime.models.model import Model
from dlc.runtime.program.host_program import HostProgram, Launch
from dlc.target import CPU_LEVELS

EMPTY = "define void @empty(ptr %arguments, i64 %task) {\n  ret void\n}"
LAUNCHES = 1000


def samples(run: Callable[[], None], repeats: int, idle: float = 0.0) -> np.ndarray:
    """Microseconds of each of `repeats` calls, with a pause before each."""
    times = np.empty(repeats)
    for i in range(repeats):
        if idle:
            time.sleep(idle)
        start = time.perf_counter()
        run()
        times[i] = (time.perf_counter() - start) * 1e6
    return times


def report(what: str, times: np.ndarray) -> None:
    print(f"{what:52} {np.median(times):8.2f} {times.min():8.2f} {times.max():8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=usable_cpus())
    parser.add_argument("--hogs", type=int, default=0)
    arguments = parser.parse_args()
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.hogs)]
    try:
        measure(arguments.threads)
    finally:
        for hog in hogs:
            hog.kill()


def measure(threads: int) -> None:
    code = load_object(compile_text(EMPTY, CPU_LEVELS["cpu:generic"]))
    native = runtime(runtime_object())
    execute, pool, bases = native.execute, native.pool(threads), np.zeros(1, np.int64)
    print(f"{'µs, ' + str(threads) + ' threads':52} {'median':>8} {'min':>8} {'max':>8}")
    for tasks in (2, threads, 16, 256):
        for where, address in (("in a row", pool), ("one thread", 0)):
            table = np.array([code.address("empty"), 0, tasks, 0] * LAUNCHES, np.int64)
            place, bases_place = table.ctypes.data, bases.ctypes.data

            def run(place: int = place, address: int = address, bases_place: int = bases_place) -> None:
                execute(place, LAUNCHES, bases_place, address)

            report(f"launch of {tasks} empty tasks, {where}", samples(run, 100)[5:] / LAUNCHES)
    place, bases_place = table.ctypes.data, bases.ctypes.data
    report("launch of 256 tasks after 2 ms idle", samples(lambda: execute(place, 1, bases_place, pool), 200, idle=0.002))
    info = TensorInfo("x", (1, 16), np.dtype(np.float32))
    host = HostProgram((info,), (info,), (), 4096, 4, (Launch("empty", ((2, 0), (3, 0)), (64, 64)),))
    program = NativeProgram(host, {"empty": KernelImage(((code.address("empty"), 1),), code)}, {}, native, threads)
    model = Model(program.inputs, program.outputs, program.run)
    x = np.ones((1, 16), np.float32)
    report("NativeProgram.run, one input and output", samples(lambda: [program.run([x]) for _ in range(100)], 100) / 100)
    report("Model call", samples(lambda: [model(x=x) for _ in range(100)], 100) / 100)


if __name__ == "__main__":
    main()
