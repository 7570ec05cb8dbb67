"""What this machine can do at most, measured: multiply-adds on registers, and bytes read from the cache and from memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from time import perf_counter

import numpy as np

from dlc.arrays import aligned_empty
from dlc.backends.cpu.llvm import compile_text
from dlc.backends.limits import FAR, NEAR, Limits
from dlc.emission.llvm.kernel import attributes
from dlc.machine.threads import Threads
from dlc.runtime.cpu.code.loader import load_object
from dlc.target import Target

# Enough independent sums to hide the latency of a multiply-add.
_SUMS = 12
_STEPS = 2_000_000
_ROUNDS, _TIMES = 5, 50


@lru_cache
def measured_limits(target: Target, threads: int = 1) -> Limits:
    """The limits of `threads` threads of this machine with a CPU target's instructions; takes a second or so, once."""
    code = load_object(compile_text(peak_text(target) + _read_text(target), target))
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    peak, read = function(code.address("peak")), function(code.address("read"))
    scratch = [aligned_empty((4096,), np.dtype(np.float32)) for _ in range(threads)]
    memory = np.ones(FAR // 4, np.float32)
    step = 4 * target.vector_bytes
    with Threads(threads) as pool:

        def rate(amount: float, run: Callable[[int], None]) -> float:
            def seconds() -> float:
                began = perf_counter()
                list(pool.map(run, range(threads)))
                return perf_counter() - began

            return amount / min(seconds() for _ in range(_ROUNDS))

        def read_all(part: int, times: int) -> Callable[[int], None]:
            def run(i: int) -> None:
                for _ in range(times):
                    read(memory.ctypes.data + i * part, part // step)

            return run

        far = FAR // threads // step * step
        return Limits(
            rate(threads * peak_flops(target, _STEPS), lambda i: peak(scratch[i].ctypes.data, _STEPS)),
            rate(threads * NEAR * _TIMES, read_all(NEAR, _TIMES)),
            rate(threads * far, read_all(far, 1)),
        )


def peak_flops(target: Target, steps: int) -> int:
    """The floating-point operations of so many steps of `peak_text`."""
    return steps * _SUMS * target.lanes(4) * 2


def peak_text(target: Target) -> str:
    """A loop of independent fused multiply-adds: `void @peak(ptr, i64 steps)`; writes its sums to the pointer."""
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
        _SUMS,
        [multiply_add.format(i=i, v=vector, s=suffix) for i in range(_SUMS)],
        [f"  %p{i} = getelementptr {vector}, ptr %p, i64 {i}" for i in range(_SUMS)],
    )


def _read_text(target: Target) -> str:
    """Reads four vectors a step: `void @read(ptr, i64 steps)`; writes their sums back to the start."""
    vector = f"<{target.lanes(4)} x float>"
    body: list[str] = []
    for i in range(4):
        body += [
            f"  %q{i} = getelementptr [4 x {vector}], ptr %p, i64 %i, i64 {i}",
            f"  %v{i} = load {vector}, ptr %q{i}, align 4",
            f"  %n{i} = fadd {vector} %a{i}, %v{i}",
        ]
    return _loop(target, "read", "", 4, body, [f"  %p{i} = getelementptr {vector}, ptr %p, i64 {i}" for i in range(4)])


def _loop(target: Target, name: str, entry: str, sums: int, body: list[str], places: list[str]) -> str:
    """A function that runs `body` a number of times, which makes `%n<i>` of the sums `%a<i>`, and stores them at `places`."""
    vector = f"<{target.lanes(4)} x float>"
    lines = [
        f"define void @{name}(ptr %p, i64 %steps) {attributes(target)} {{",
        "entry:",
        entry,
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %j, %loop ]",
        *(f"  %a{i} = phi {vector} [ splat (float {i}.0), %entry ], [ %n{i}, %loop ]" for i in range(sums)),
        *body,
        "  %j = add i64 %i, 1",
        "  %more = icmp ult i64 %j, %steps",
        "  br i1 %more, label %loop, label %done",
        "done:",
        *places,
        *(f"  store {vector} %n{i}, ptr %p{i}, align 4" for i in range(sums)),
        "  ret void",
        "}",
    ]
    return "\n".join(line for line in lines if line) + "\n"
