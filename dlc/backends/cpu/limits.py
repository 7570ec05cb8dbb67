"""Measure the peak rates of this machine: multiply-adds on registers, and bytes read from the cache and from memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from time import perf_counter

import numpy as np

from dlc.arrays import aligned_empty
from dlc.backends.cpu.llvm import compile_text
from dlc.backends.limits import CACHED_BYTES, UNCACHED_BYTES, Limits
from dlc.emission.llvm.kernel import function_attributes
from dlc.machine.threads import ThreadPool
from dlc.runtime.cpu.code.loader import load_object
from dlc.target import Target

# Enough independent accumulators to hide the latency of a multiply-add.
_NUM_ACCUMULATORS = 12
# Rounds of about a millisecond: on a shared machine some of them run without an interruption.
_STEPS_PER_ROUND = 200_000
_NUM_ROUNDS, _CACHED_READS_PER_ROUND = 60, 100


@lru_cache
def measured_limits(target: Target, threads: int = 1) -> Limits:
    """Measure `threads` threads of this machine with a CPU target's instructions; takes about a second, once per process."""
    code = load_object(compile_text(peak_text(target) + _read_text(target), target))
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    peak, read_bandwidth = function(code.address("peak")), function(code.address("read"))
    scratch = [aligned_empty((4096,), np.dtype(np.float32)) for _ in range(threads)]
    for array in scratch:
        array.fill(0)  # arbitrary bits may be denormals or NaN, which slow multiply-adds down
    memory = np.ones(UNCACHED_BYTES // 4, np.float32)
    step = 4 * target.vector_bytes
    with ThreadPool(threads) as pool:

        def rate(amount: float, run: Callable[[int], None]) -> float:
            def measure_seconds() -> float:
                start = perf_counter()
                list(pool.map(run, range(threads)))
                return perf_counter() - start

            return amount / min(measure_seconds() for _ in range(_NUM_ROUNDS))

        def read_all(bytes_read: int, times: int) -> Callable[[int], None]:
            def run(i: int) -> None:
                for _ in range(times):
                    read_bandwidth(memory.ctypes.data + i * bytes_read, bytes_read // step)

            return run

        bytes_per_thread = UNCACHED_BYTES // threads // step * step
        return Limits(
            rate(threads * peak_flops(target, _STEPS_PER_ROUND), lambda i: peak(scratch[i].ctypes.data, _STEPS_PER_ROUND)),
            rate(threads * CACHED_BYTES * _CACHED_READS_PER_ROUND, read_all(CACHED_BYTES, _CACHED_READS_PER_ROUND)),
            rate(threads * bytes_per_thread, read_all(bytes_per_thread, 1)),
        )


def peak_flops(target: Target, steps: int) -> int:
    """Return the floating-point operations in this many steps of `peak_text`."""
    return steps * _NUM_ACCUMULATORS * target.lanes(4) * 2


def peak_text(target: Target) -> str:
    """Return a loop of independent fused multiply-adds, `void @peak(ptr, i64 steps)`; it stores the accumulators at the end."""
    vector, suffix = f"<{target.lanes(4)} x float>", f"v{target.lanes(4)}f32"
    multiply_add = (
        "  %n{i} = call {v} @llvm.fma.{s}({v} %a{i}, {v} %x, {v} %x)"
        if target.has_fma
        else "  %m{i} = fmul {v} %a{i}, %x\n  %n{i} = fadd {v} %m{i}, %x"
    )
    return _loop(
        target,
        "peak",
        f"  %x = load {vector}, ptr %p, align 4",
        _NUM_ACCUMULATORS,
        [multiply_add.format(i=i, v=vector, s=suffix) for i in range(_NUM_ACCUMULATORS)],
        [f"  %p{i} = getelementptr {vector}, ptr %p, i64 {i}" for i in range(_NUM_ACCUMULATORS)],
    )


def _read_text(target: Target) -> str:
    """Return a loop that reads four vectors per step, `void @read(ptr, i64 steps)`; it stores their sums to the start."""
    vector = f"<{target.lanes(4)} x float>"
    body: list[str] = []
    for i in range(4):
        body += [
            f"  %q{i} = getelementptr [4 x {vector}], ptr %p, i64 %i, i64 {i}",
            f"  %v{i} = load {vector}, ptr %q{i}, align 4",
            f"  %n{i} = fadd {vector} %a{i}, %v{i}",
        ]
    return _loop(target, "read", "", 4, body, [f"  %p{i} = getelementptr {vector}, ptr %p, i64 {i}" for i in range(4)])


def _loop(target: Target, name: str, entry: str, accumulator_count: int, body: list[str], addresses: list[str]) -> str:
    """Return a function that repeats `body`, which maps the accumulators `%a<i>` to `%n<i>`, and stores these at `%p<i>`."""
    vector = f"<{target.lanes(4)} x float>"
    lines = [
        f"define void @{name}(ptr %p, i64 %steps) {function_attributes(target)} {{",
        "entry:",
        entry,
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %j, %loop ]",
        *(f"  %a{i} = phi {vector} [ splat (float {i}.0), %entry ], [ %n{i}, %loop ]" for i in range(accumulator_count)),
        *body,
        "  %j = add i64 %i, 1",
        "  %more = icmp ult i64 %j, %steps",
        "  br i1 %more, label %loop, label %done",
        "done:",
        *addresses,
        *(f"  store {vector} %n{i}, ptr %p{i}, align 4" for i in range(accumulator_count)),
        "  ret void",
        "}",
    ]
    return "\n".join(line for line in lines if line) + "\n"
