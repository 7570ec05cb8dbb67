"""Targets: backends, the description of a device, and C-like output languages (docs/extending.md)."""

from __future__ import annotations

from dlc.backends.base import Backend, KernelBackend, ModuleBackend
from dlc.cost_model import CostModel
from dlc.target import CPU_LEVELS, OPENCL_PROFILES, Target, WorkGroups

__all__ = [
    "Backend",
    "CPU_LEVELS",
    "CostModel",
    "KernelBackend",
    "ModuleBackend",
    "OPENCL_PROFILES",
    "Target",
    "WorkGroups",
]
