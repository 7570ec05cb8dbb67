"""Measure the overhead of running a program: fork-join of the thread pool, and a call from Python.

    python benchmarks/fork_join.py [--threads N] [--hogs N]

`--hogs N` starts N busy processes, to measure the pool on a loaded machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from dlc.arrays import TensorInfo
from dlc.backends.cpu.llvm import compile_text
from dlc.backends.cpu.runtime_code import runtime_object
from dlc.machine.cpus import usable_cpus
from dlc.runtime.cpu.code.loader import load_object
from dlc.runtime.cpu.code.native import runtime
from dlc.runtime.cpu.program import LoadedKernel, NativeProgram
from dlc.runtime.cpu.record_table import assemble_records
from dlc.runtime.models.model import Model
from dlc.runtime.program.host_program import NULL_SLOT, HostProgram, Launch
from dlc.shapes.size_code import MIN_PARALLEL_BYTES
from dlc.target import CPU_LEVELS

EMPTY_KERNEL = "define void @empty(ptr %arguments, i64 %task) {\n  ret void\n}"
LAUNCHES_PER_RUN = 1000


def measure_microseconds(run: Callable[[], None], repeats: int, idle: float = 0.0) -> np.ndarray:
    """Return the microseconds of `repeats` calls, with `idle` seconds of sleep before each."""
    times = np.empty(repeats)
    for i in range(repeats):
        if idle:
            time.sleep(idle)
        start = time.perf_counter()
        run()
        times[i] = (time.perf_counter() - start) * 1e6
    return times


def print_row(label: str, times: np.ndarray) -> None:
    print(f"{label:52} {np.median(times):8.2f} {times.min():8.2f} {times.max():8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=usable_cpus(), help="threads of the pool (default: usable processors)")
    parser.add_argument("--hogs", type=int, default=0, help="number of busy processes to start (default: 0)")
    arguments = parser.parse_args()
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.hogs)]
    try:
        measure(arguments.threads)
    finally:
        for hog in hogs:
            hog.kill()


def launch_records(kernel: int, tasks: int) -> np.ndarray:
    """Return bytecode that launches the kernel at this address LAUNCHES_PER_RUN times."""
    launch = Launch("empty", (), (MIN_PARALLEL_BYTES,))
    table = assemble_records([launch] * LAUNCHES_PER_RUN, NULL_SLOT + 1, {"empty": [tasks]})
    records = np.empty(len(table.words), np.int64)
    records[:] = table.relocate(records.ctypes.data, lambda task: kernel)
    return records


def measure(threads: int) -> None:
    code = load_object(compile_text(EMPTY_KERNEL, CPU_LEVELS["cpu:generic"]))
    native = runtime(runtime_object())
    execute, pool, slots = native.execute, native.pool(threads), np.zeros(NULL_SLOT + 1, np.int64)
    print(f"{'µs, ' + str(threads) + ' threads':52} {'median':>8} {'min':>8} {'max':>8}")
    for tasks in (2, threads, 16, 256):
        for label, pool_address in (("back to back", pool), ("one thread", 0)):
            records = launch_records(code.address("empty"), tasks)
            records_address, slots_address = records.ctypes.data, slots.ctypes.data

            def run(records: int = records_address, pool: int = pool_address, slots: int = slots_address) -> None:
                execute(records, LAUNCHES_PER_RUN, slots, pool)

            print_row(f"launch of {tasks} empty tasks, {label}", measure_microseconds(run, 100)[5:] / LAUNCHES_PER_RUN)
    run_one = partial(execute, records_address, 1, slots_address, pool)
    print_row("launch of 256 tasks after 2 ms idle", measure_microseconds(run_one, 200, idle=0.002))
    info = TensorInfo("x", (1, 16), np.dtype(np.float32))
    host = HostProgram((info,), (info,), (), (Launch("empty", ((2, 0), (3, 0)), (64, 64)),))
    program = NativeProgram(host, {"empty": LoadedKernel(((code.address("empty"), 1),), code)}, {}, native, threads)
    model = Model(program.inputs, program.outputs, program.run)
    x = np.ones((1, 16), np.float32)
    print_row(
        "NativeProgram.run, one input and output",
        measure_microseconds(lambda: [program.run([x]) for _ in range(100)], 100) / 100,
    )
    print_row("Model call", measure_microseconds(lambda: [model(x=x) for _ in range(100)], 100) / 100)


if __name__ == "__main__":
    main()
