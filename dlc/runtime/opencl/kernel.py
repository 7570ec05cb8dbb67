"""A kernel in OpenCL C, as compiled models keep it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc.dims import Size
from dlc.runtime.opencl.devices import Device
from dlc.runtime.program.host_program import OpenKernel
from dlc.runtime.program.kernel_text import Grid, program_text


def matrices_of(dot: str) -> str:
    """What a kernel computes with that multiplies matrices of words (`DOTS`)."""
    return f"matrices of {dot}"


@dataclass(frozen=True)
class KernelText:
    """A kernel as functions `<name>_<g>`, one for each of its grids.

    The functions take each array as a buffer and the byte at which it begins there, then sizes. `pieces`: the text, definitions
    first; several kernels of a program have some in common. `shape`: the sizes that it takes, and the bytes of its arrays.
    `computes`: the kinds of numbers in it that not every device computes with (f16, f64, `matrices_of` pairs of such).
    `origins`, `flops`, `results`: as of a KernelObject.
    """

    name: str
    pieces: tuple[str, ...]
    grids: tuple[Grid, ...]
    shape: OpenKernel
    computes: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    flops: Size = 0
    results: tuple[np.dtype[Any], ...] = ()

    @property
    def text(self) -> str:
        """A program of this kernel alone."""
        return program_text([self])

    @property
    def size(self) -> int:
        """The bytes of its code."""
        return len(self.text.encode())

    def lacking(self, device: Device) -> str:
        """What the kernel needs that a device does not have; empty if nothing."""
        return "; ".join(self._lacking(device))

    def _lacking(self, device: Device) -> Iterator[str]:
        target = device.target
        has = {"f16": target.halves, "f64": target.doubles, **{matrices_of(dot): True for dot in target.dots}}
        yield from (f"it computes in {kind}, which the device does not" for kind in self.computes if not has.get(kind, False))
        if (items := max((grid.items for grid in self.grids), default=0)) > device.group_items:
            yield f"groups of {items} items, and the device has {device.group_items} at most"
        if (local := max((grid.local_bytes for grid in self.grids), default=0)) > device.local_bytes:
            yield f"{local} bytes of local memory, and the device has {device.local_bytes}"
