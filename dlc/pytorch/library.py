"""torch itself, for who asked for it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dlc.errors import UnsupportedError


def library(name: str) -> Any:
    """A module of torch. Raises UnsupportedError where PyTorch is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"reading models of PyTorch takes PyTorch: pip install torch ({error})") from error


torch: Any = library("torch")
