"""What an OpenCL device can do at most, measured: multiply-adds on registers, and bytes read from its cache and its memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from time import perf_counter

import numpy as np

from dlc.backends.limits import FAR, NEAR, Limits
from dlc.runtime.opencl.array import new_buffer
from dlc.runtime.opencl.devices import Session
from dlc.runtime.opencl.driver import compiling, opencl

# Enough independent sums to hide the latency of a multiply-add.
_SUMS = 12
# A launch that takes so long is little but what it measures.
_SECONDS, _ROUNDS = 0.02, 3
# On a device whose items are lanes: items of a group, and groups for each of its units; else a group is one item of vectors.
_ITEMS, _GROUPS = 256, 8
_VECTORS = (16, 8, 4, 2)


@lru_cache
def measured_limits(session: Session) -> Limits:
    """The limits of a device; takes half a second or so, once.

    Raises DeviceError for a device that refuses it.
    """
    cl, device = opencl(), session.device
    lanes = next((n for n in _VECTORS if n <= device.handle.native_vector_width_float), 1)
    on_lanes = device.target.groups is not None
    items = min(_ITEMS, device.group_items) if on_lanes else 1
    units = device.handle.max_compute_units
    groups = units * (_GROUPS if on_lanes else 1)
    step = 4 * items * lanes * 4
    with compiling(device, ": measuring its limits", platform=device.platform):
        code = cl.Program(session.context, _text(lanes)).build()
        peak, read = cl.Kernel(code, "peak"), cl.Kernel(code, "read")
        sums = new_buffer(session, groups * items * 4)
        memory = new_buffer(session, max(groups * step, min(FAR, device.buffer_bytes)))
        for buffer in (sums, memory):
            # What nobody wrote may be slow to add up: numbers below the least normal one.
            cl.enqueue_fill_buffer(session.queue, buffer, np.float32(1), 0, buffer.size // 4 * 4)

        def rate(kernel: object, amount: float, *arguments: object) -> float:
            """What it does in a second that does `amount` in a turn."""

            def seconds(turns: int) -> float:
                session.queue.finish()
                began = perf_counter()
                kernel(session.queue, (groups * items,), (items,), *arguments, np.int32(turns))  # pyright: ignore
                session.queue.finish()
                return perf_counter() - began

            seconds(1)  # drivers may compile once more for a size of groups
            turns = _enough(seconds)
            return amount * turns / min(seconds(turns) for _ in range(_ROUNDS))

        def read_all(bytes: int) -> float:
            steps = max(1, bytes // (groups * step))
            return rate(read, steps * groups * step, memory, sums, np.int32(steps))

        return Limits(
            rate(peak, groups * items * lanes * _SUMS * 2, sums),
            read_all(units * NEAR),
            read_all(memory.size),
        )


def _enough(seconds: Callable[[int], float]) -> int:
    """How many turns take long enough to be measured."""
    turns = 1
    while seconds(turns) < _SECONDS:
        turns *= 2
    return turns


def _text(lanes: int) -> str:
    """Two kernels: independent multiply-adds, and reading four vectors a step, group after group, item beside item."""
    vector = f"float{lanes}" if lanes > 1 else "float"
    total = f"total += a0{''.join(f' + a{k}' for k in range(1, _SUMS))};"
    parts = " + ".join(f"total.s{k:x}" for k in range(lanes)) if lanes > 1 else "total"
    return f"""
__kernel void peak(__global float *restrict sums, const int turns) {{
    const {vector} x = ({vector})(0.5f) * sums[get_global_id(0)];
    {vector} total = ({vector})(0.0f);
    {" ".join(f"{vector} a{k} = ({vector})({k}.0f);" for k in range(_SUMS))}
    for (int t = 0; t < turns; t++) {{
        {" ".join(f"a{k} = mad(a{k}, x, x);" for k in range(_SUMS))}
    }}
    {total}
    sums[get_global_id(0)] = {parts};
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
    sums[get_global_id(0)] = {parts};
}}
"""
