"""Import of torch, which is optional."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dlc.errors import UnsupportedError


def torch_module(name: str) -> Any:
    """Import a module of torch. Raises UnsupportedError if PyTorch is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"PyTorch models need PyTorch: pip install torch ({error})") from error


torch: Any = torch_module("torch")
