"""OpenCL C kernels, as stored in artifacts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc.runtime.opencl.devices import Device
from dlc.runtime.program.host_program import KernelSignature
from dlc.runtime.program.kernel_text import Grid, program_text
from dlc.shapes.dims import Size


def matrix_unit_feature(dot: str) -> str:
    """Return the feature name of matrix instructions for packed dot-product operands (see `PACKED_DOTS`)."""
    return f"matrices of {dot}"


@dataclass(frozen=True)
class OpenCLKernel:
    """A kernel as functions `<name>_<g>`, one per grid.

    The functions take each array as a buffer and a byte offset, followed by sizes.

    Attributes:
        chunks: The source text in chunks, definitions first; kernels of a program may share chunks.
        signature: The number of size parameters, and the byte sizes of the arrays.
        required_features: Features that not every device has: f16, f64, `matrix_unit_feature` of packed operands.
        origins, flops, results: As in `KernelObject`.
    """

    name: str
    chunks: tuple[str, ...]
    grids: tuple[Grid, ...]
    signature: KernelSignature
    required_features: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    flops: Size = 0
    results: tuple[np.dtype[Any], ...] = ()

    @property
    def text(self) -> str:
        """The source of a program with this kernel only."""
        return program_text([self])

    @property
    def size(self) -> int:
        """The size of its source in bytes."""
        return len(self.text.encode())

    def missing_features(self, device: Device) -> str:
        """Return the features that the kernel needs and a device lacks; empty if none."""
        return "; ".join(self._missing_features(device))

    def _missing_features(self, device: Device) -> Iterator[str]:
        target = device.target
        has_feature = {
            "f16": target.has_f16,
            "f64": target.has_f64,
            **{matrix_unit_feature(dot): True for dot in target.dot_products},
        }
        yield from (
            f"the device does not support {feature}"
            for feature in self.required_features
            if not has_feature.get(feature, False)
        )
        if (items := max((grid.items for grid in self.grids), default=0)) > device.group_items:
            yield f"work-groups of {items} items, but the device supports at most {device.group_items}"
        if (local := max((grid.local_bytes for grid in self.grids), default=0)) > device.local_bytes:
            yield f"{local} bytes of local memory, but the device has {device.local_bytes}"
