"""Array API inspection of the namespace: https://data-apis.org/array-api/2024.12."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc.errors import DeviceError
from dlc.numpy.apply import refuse
from dlc.numpy.functions import dtypes

VERSION = "2024.12"
DEVICE = "cpu"


def check_device(device: str | None) -> None:
    """Raise DeviceError for a device other than the CPU.

    Arrays are created on the CPU, and a compiled function copies them to its target.
    """
    if device not in (None, DEVICE):
        problem = f"device {device!r}: arrays are created on {DEVICE!r}"
        refuse(DeviceError(f"{problem}; a compiled function copies them to its target: dlc.jit(target=…)"))


class NamespaceInfo:
    """Result of `__array_namespace_info__()`. A device is None or "cpu"."""

    def capabilities(self) -> dict[str, Any]:
        """Return which optional features plain arrays support, and the maximum number of axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        return DEVICE

    def devices(self) -> list[str]:
        return [DEVICE]

    def default_dtypes(self, *, device: str | None = None) -> dict[str, np.dtype[Any]]:
        """Return the default dtype of new arrays for each kind."""
        check_device(device)
        kinds = {"real floating": np.float32, "complex floating": np.complex64, "integral": np.int64, "indexing": np.int64}
        return {kind: np.dtype(dtype) for kind, dtype in kinds.items()}

    def dtypes(self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, np.dtype[Any]]:
        """Return the supported dtypes of the standard by name, restricted to the kinds that `kind` names."""
        check_device(device)
        dtype_by_name = {name: np.dtype(getattr(dtypes, name)) for name in dtypes.STANDARD}
        return {name: dtype for name, dtype in dtype_by_name.items() if kind is None or dtypes.isdtype(dtype, kind)}
