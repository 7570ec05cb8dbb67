"""Measure the peak rates of an OpenCL device: multiply-adds on registers, and bytes read from its cache and its memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from time import perf_counter

import numpy as np

from dlc.backends.limits import CACHED_BYTES, UNCACHED_BYTES, Limits
from dlc.runtime.opencl.array import allocate_buffer
from dlc.runtime.opencl.devices import Session
from dlc.runtime.opencl.driver import compiler_errors, opencl

# Enough independent accumulators to hide the latency of a multiply-add.
_NUM_ACCUMULATORS = 12
# A launch of this many seconds is dominated by the measured work.
_MEASUREMENT_SECONDS, _MEASUREMENT_ROUNDS = 0.02, 3
# On a device with work-groups: work-items per group, and groups per compute unit. Otherwise a group is one vectorized item.
_GROUP_ITEMS, _GROUPS_PER_UNIT = 256, 8
_VECTOR_LANES = (16, 8, 4, 2)


@lru_cache
def measured_limits(session: Session) -> Limits:
    """Measure the peak rates of a device; takes about half a second, once per process.

    Raises DeviceError if the kernels cannot be built or run.
    """
    cl, device = opencl(), session.device
    lanes = next((n for n in _VECTOR_LANES if n <= device.handle.native_vector_width_float), 1)
    has_groups = device.target.groups is not None
    items = min(_GROUP_ITEMS, device.group_items) if has_groups else 1
    units = device.handle.max_compute_units
    groups = units * (_GROUPS_PER_UNIT if has_groups else 1)
    step = 4 * items * lanes * 4
    with compiler_errors(device, ": measuring its limits", platform=device.platform):
        code = cl.Program(session.context, _text(lanes)).build()
        peak, read_kernel = cl.Kernel(code, "peak"), cl.Kernel(code, "read")
        sums = allocate_buffer(session, groups * items * 4)
        memory = allocate_buffer(session, max(groups * step, min(UNCACHED_BYTES, device.buffer_bytes)))
        for buffer in (sums, memory):
            # Uninitialized memory may hold denormals, which are slow to add.
            cl.enqueue_fill_buffer(session.queue, buffer, np.float32(1), 0, buffer.size // 4 * 4)

        def rate(kernel: object, amount: float, *arguments: object) -> float:
            """Return the amount of work per second of a kernel that does `amount` per iteration."""

            def seconds(iterations: int) -> float:
                session.queue.finish()
                start = perf_counter()
                kernel(session.queue, (groups * items,), (items,), *arguments, np.int32(iterations))  # pyright: ignore
                session.queue.finish()
                return perf_counter() - start

            seconds(1)  # Warm up: drivers may recompile for a work-group size.
            iterations = _choose_iterations(seconds)
            return amount * iterations / min(seconds(iterations) for _ in range(_MEASUREMENT_ROUNDS))

        def read_all(bytes: int) -> float:
            steps = max(1, bytes // (groups * step))
            return rate(read_kernel, steps * groups * step, memory, sums, np.int32(steps))

        return Limits(
            rate(peak, groups * items * lanes * _NUM_ACCUMULATORS * 2, sums),
            read_all(units * CACHED_BYTES),
            read_all(memory.size),
        )


def _choose_iterations(seconds: Callable[[int], float]) -> int:
    """Return the number of iterations whose run time is long enough to measure."""
    iterations = 1
    while seconds(iterations) < _MEASUREMENT_SECONDS:
        iterations *= 2
    return iterations


def _text(lanes: int) -> str:
    """Return two kernels: independent multiply-adds, and reads of four vectors per step with coalesced accesses."""
    vector = f"float{lanes}" if lanes > 1 else "float"
    total = f"total += a0{''.join(f' + a{k}' for k in range(1, _NUM_ACCUMULATORS))};"
    lane_sum = " + ".join(f"total.s{k:x}" for k in range(lanes)) if lanes > 1 else "total"
    return f"""
__kernel void peak(__global float *restrict sums, const int turns) {{
    const {vector} x = ({vector})(0.5f) * sums[get_global_id(0)];
    {vector} total = ({vector})(0.0f);
    {" ".join(f"{vector} a{k} = ({vector})({k}.0f);" for k in range(_NUM_ACCUMULATORS))}
    for (int t = 0; t < turns; t++) {{
        {" ".join(f"a{k} = mad(a{k}, x, x);" for k in range(_NUM_ACCUMULATORS))}
    }}
    {total}
    sums[get_global_id(0)] = {lane_sum};
}}

__kernel void read(__global const {vector} *restrict p, __global float *restrict sums, const int steps, const int turns) {{
    const size_t items = get_local_size(0), first = get_group_id(0) * steps * 4 * items + get_local_id(0);
    {vector} total = ({vector})(0.0f);
    {" ".join(f"{vector} a{k} = ({vector})(0.0f);" for k in range(4))}
    for (int t = 0; t < turns; t++) {{
        for (size_t i = first, last = first + steps * 4 * items; i < last; i += 4 * items) {{
            {" ".join(f"a{k} += p[i + {k} * items];" for k in range(4))}
        }}
    }}
    total = a0 + a1 + a2 + a3;
    sums[get_global_id(0)] = {lane_sum};
}}
"""
