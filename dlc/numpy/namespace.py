"""What the Array API standard asks of a namespace about itself: https://data-apis.org/array-api/2024.12."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc.errors import DeviceError
from dlc.numpy.apply import refuse
from dlc.numpy.functions import dtypes

VERSION = "2024.12"
DEVICE = "cpu"


def check_device(device: str | None) -> None:
    """Raises DeviceError for a device on which no arrays are made: a compiled function moves them to where it runs."""
    if device not in (None, DEVICE):
        problem = f"device {device!r}: arrays are made on {DEVICE!r}"
        refuse(DeviceError(f"{problem}; a compiled function takes them to its target: dlc.jit(target=…)"))


class NamespaceInfo:
    """What `__array_namespace_info__()` answers; a device is None or "cpu"."""

    def capabilities(self) -> dict[str, Any]:
        """Which optional parts there are, for plain arrays, and how many axes an array may have."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        return DEVICE

    def devices(self) -> list[str]:
        return [DEVICE]

    def default_dtypes(self, *, device: str | None = None) -> dict[str, np.dtype[Any]]:
        """The dtypes of arrays made from nothing, by kind."""
        check_device(device)
        kinds = {"real floating": np.float32, "integral": np.int64, "indexing": np.int64}
        return {kind: np.dtype(dtype) for kind, dtype in kinds.items()}

    def dtypes(self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, np.dtype[Any]]:
        """The dtypes of the standard that there are, by name; of one kind, or of some, if `kind` says so."""
        check_device(device)
        named = {name: np.dtype(getattr(dtypes, name)) for name in dtypes.STANDARD}
        return {name: dtype for name, dtype in named.items() if kind is None or dtypes.isdtype(dtype, kind)}
