"""Test targets; targets that this machine cannot run are skipped with the reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dlc.machine.architectures import HOST
from dlc.runtime.opencl.devices import all_devices
from dlc.target import CPU_LEVELS, OPENCL_PROFILES, Target, host_lacks, host_supports

NATIVE = ["cpu", pytest.param("opencl", marks=pytest.mark.skipif(not all_devices(), reason="no OpenCL device"))]
TARGETS = ["reference", *NATIVE]
# The levels of this architecture; tests/deploy/test_other_architectures.py runs code for the others.
LEVELS = [name for name, target in CPU_LEVELS.items() if target.architecture == HOST]
# A level with short vectors, for tests that do not depend on which.
SHORT = "cpu:avx2" if host_supports(CPU_LEVELS["cpu:avx2"]) else "cpu:generic"


def level(name: str, value: Any = None) -> Any:
    """A pytest parameter, the level's name or `value`, that is skipped if the processor does not support the level."""
    lacking = host_lacks(CPU_LEVELS[name])
    mark = pytest.mark.skipif(bool(lacking), reason=f"this processor lacks {', '.join(lacking)}")
    return pytest.param(name if value is None else value, id=name, marks=mark)


def gpu(units: int, max_cooperating_items: int = 256) -> Target:
    """A target record of a GPU with this many compute units and cooperating work-items."""
    target = OPENCL_PROFILES["opencl:gpu"]
    assert target.groups is not None
    return replace(target, groups=replace(target.groups, units=units, max_cooperating_items=max_cooperating_items))
