"""The targets that tests run on: where this machine has no device or processor for one, it is skipped with what is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dlc.machine.architectures import HOST
from dlc.runtime.opencl.devices import all_devices
from dlc.target import CPU_LEVELS, OPENCL_PROFILES, Target, host_lacks, host_supports

NATIVE = ["cpu", pytest.param("opencl", marks=pytest.mark.skipif(not all_devices(), reason="no OpenCL device"))]
TARGETS = ["reference", *NATIVE]
# This architecture's; code of the others runs in tests/deploy/test_elsewhere.py.
LEVELS = [name for name, target in CPU_LEVELS.items() if target.architecture == HOST]
# Where any level will do that has short vectors.
SHORT = "cpu:avx2" if host_supports(CPU_LEVELS["cpu:avx2"]) else "cpu:generic"


def level(name: str, value: Any = None) -> Any:
    """A parameter, the level's name or `value`, that is skipped where the processor does not run code for that level."""
    lacking = host_lacks(CPU_LEVELS[name])
    mark = pytest.mark.skipif(bool(lacking), reason=f"this processor lacks {', '.join(lacking)}")
    return pytest.param(name if value is None else value, id=name, marks=mark)


def gpu(units: int, team_items: int = 256) -> Target:
    """What is compiled for on a GPU of so many units, whose teams may have so many items."""
    target = OPENCL_PROFILES["opencl:gpu"]
    assert target.groups is not None
    return replace(target, groups=replace(target.groups, units=units, team_items=team_items))
