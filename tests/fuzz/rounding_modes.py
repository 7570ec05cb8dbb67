"""Rounding modes of the processor, to find results that rounding decides."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Generator
from contextlib import contextmanager

# Arguments of fesetround other than to nearest: downward, upward, toward zero.
_MODES = {"x86_64": (0x400, 0x800, 0xC00), "aarch64": (0x800000, 0x400000, 0xC00000)}
_TO_NEAREST = 0
ROUNDING_MODES = _MODES.get(platform.machine(), ())
_fesetround = ctypes.CDLL(None).fesetround


@contextmanager
def rounding(mode: int) -> Generator[None]:
    """Round in another mode inside the context, in this thread."""
    _fesetround(mode)
    try:
        yield
    finally:
        _fesetround(_TO_NEAREST)
