"""The targets that tests run on: OpenCL where this machine has a device for it."""

from __future__ import annotations

import pytest

from dlc.runtime.opencl.devices import all_devices

NATIVE = ["cpu", pytest.param("opencl", marks=pytest.mark.skipif(not all_devices(), reason="no OpenCL device"))]
TARGETS = ["reference", *NATIVE]
