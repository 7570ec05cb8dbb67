"""OpenCL devices: selection by target name, and the targets to compile for. Most tests need no device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from dlc.cli import main
from dlc.errors import DeviceError
from dlc.options import Environment
from dlc.runtime.opencl import devices
from dlc.runtime.opencl.devices import Device, all_devices, fit_target, probe_device, select_device, target_of
from dlc.runtime.opencl.driver import driver_errors, opencl
from dlc.runtime.opencl.kernel import OpenCLKernel, matrix_unit_feature
from dlc.runtime.program.host_program import KernelSignature
from dlc.target import OPENCL_PROFILES, OpenCLName, Target, resolve

SMALL, GPU = OPENCL_PROFILES["opencl:small"], OPENCL_PROFILES["opencl:gpu"]
NVIDIA = "cl_khr_fp64 cl_nv_device_attribute_query"


def handle(kind: str = "GPU", **changes: Any) -> Any:
    """A stand-in for PyOpenCL's device."""
    said = {
        "type": getattr(opencl().device_type, kind),
        "extensions": "cl_khr_fp64 cl_khr_global_int32_base_atomics",
        "native_vector_width_float": 8,
        "max_work_group_size": 1024,
        "local_mem_size": 48 << 10,
        "max_compute_units": 20,
        "max_mem_alloc_size": 1 << 30,
        "name": "some device ",
        "version": "OpenCL 3.0",
        "driver_version": "7",
        "platform": SimpleNamespace(name="some platform"),
    }
    return SimpleNamespace(**(said | changes))


def device(*device_index: int, **changes: Any) -> Device:
    return devices._describe(handle(**changes), (device_index[0], device_index[1]) if device_index else (0, 0))


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two devices, the first of which does not work."""
    found = (device(0, 0, name="broken"), device(1, 2, name="sound"))
    monkeypatch.setattr(devices, "all_devices", lambda: found)
    monkeypatch.setattr(devices, "probe_device", lambda d: "broken" if d.name == "broken" else "")
    devices._first_working_device.cache_clear()
    yield
    devices._first_working_device.cache_clear()


@pytest.mark.parametrize(
    ("name", "device_index", "target"),
    [
        ("opencl", None, None),
        ("opencl:1", (1, 0), None),
        ("opencl:0:1", (0, 1), None),
        ("opencl:small", None, "opencl:small"),
        ("opencl:2:0:cpu256:nofp16", (2, 0), "opencl:cpu256:nofp16"),
    ],
)
def test_names(name: str, device_index: tuple[int, int] | None, target: str | None) -> None:
    assert OpenCLName.parse(name) == OpenCLName(device_index, target)


@pytest.mark.parametrize(
    "name", ["opencl:", "opencl:huge", "opencl:cpu256:mma", "opencl:gpu:mma:nofp16", "opencl:0:1:2", "opencl:gpu:0", "opencl0"]
)
def test_invalid_names(name: str) -> None:
    with pytest.raises(DeviceError, match="opencl:PLATFORM:DEVICE"):
        OpenCLName.parse(name)


def test_errors_report_missing_devices() -> None:
    target = resolve("opencl:gpu:nofp16:nofp64")
    assert (target.has_f16, target.has_f64, target.groups) == (False, False, GPU.groups)
    assert resolve(target.name) == target
    matrices = resolve("opencl:gpu:nofp16:nofp64:mma")
    assert (matrices.dot_products, resolve(matrices.name)) == (("bf16", "f16"), matrices)
    assert fit_target(matrices, device()).dot_products == ()
    assert fit_target(matrices, device(extensions=NVIDIA, compute_capability_major_nv=9)).dot_products == matrices.dot_products
    # Features that the profile does not use are not reported.
    assert fit_target(SMALL, device()).name == "opencl:small"


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ({"kind": "GPU"}, "opencl:gpu:nofp16"),
        ({"kind": "GPU", "extensions": "cl_khr_fp16"}, "opencl:gpu:nofp64"),
        ({"kind": "GPU", "max_work_group_size": 128}, "opencl:small"),
        ({"kind": "GPU", "extensions": NVIDIA, "compute_capability_major_nv": 8}, "opencl:gpu:nofp16:mma"),
        ({"kind": "GPU", "extensions": NVIDIA, "compute_capability_major_nv": 7}, "opencl:gpu:nofp16"),
        ({"kind": "ACCELERATOR", "local_mem_size": 16 << 10}, "opencl:small"),
        ({"kind": "CPU"}, "opencl:cpu256:nofp16"),
        ({"kind": "CPU", "native_vector_width_float": 16, "extensions": "cl_khr_fp16 cl_khr_fp64"}, "opencl:cpu512"),
        ({"kind": "CPU", "native_vector_width_float": 1}, "opencl:cpu128:nofp16"),
    ],
)
def test_the_target_of_a_device(said: dict[str, Any], name: str) -> None:
    assert device(**said).target.name == name


def test_missing_features_of_kernels() -> None:
    kernel = OpenCLKernel("k", (), (), KernelSignature(0, ()), (matrix_unit_feature("bf16"),))
    assert kernel.missing_features(device()) == "the device does not support matrices of bf16"
    assert not kernel.missing_features(device(extensions=NVIDIA, compute_capability_major_nv=9))


def test_missing_resources_of_profiles() -> None:
    tiny = device(max_work_group_size=32)
    with pytest.raises(DeviceError, match=r"opencl:gpu needs groups of 256 items, it has 32"):
        fit_target(GPU, tiny)
    with pytest.raises(DeviceError, match=r"16384 bytes of local memory, it has 8192"):
        fit_target(SMALL, device(local_mem_size=8 << 10))


def test_plans_use_the_compute_units_of_the_device() -> None:
    assert GPU.groups is not None and GPU.groups.units != 20
    for target in (device().target, fit_target(GPU, device())):
        assert target.groups is not None and target.groups.units == 20
    # Compile for the profile even if the device is a CPU.
    assert fit_target(GPU, device(kind="CPU")).groups == GPU.groups


@pytest.mark.parametrize(
    ("items", "profile", "teams"),
    [(256, GPU, 256), (1024, GPU, 512), (500, GPU, 256), (4096, GPU, 512), (64, SMALL, 64), (192, SMALL, 128)],
)
def test_cooperating_items_are_limited_by_the_work_group(items: int, profile: Target, teams: int) -> None:
    groups = device(max_work_group_size=items).target.groups
    assert groups is not None and profile.groups is not None
    assert (groups.items, groups.max_cooperating_items) == (profile.groups.items, teams)


@pytest.mark.usefixtures("two")
def test_opencl_is_the_first_that_works() -> None:
    assert select_device("opencl")[0].name == "sound"
    device, target = select_device("opencl:small")
    # What is compiled for a device is for its driver, and its units.
    assert SMALL.groups is not None
    own = replace(SMALL, version="sound, some platform, OpenCL 3.0, 7", groups=replace(SMALL.groups, units=20))
    assert device == select_device("opencl")[0] and target == own
    assert select_device("opencl:0:0")[0].name == select_device("opencl", "0")[0].name == "broken"
    assert select_device("opencl", "1:2")[0].name == "sound"
    assert select_device("opencl:0:0", "1:2")[0].name == "broken"


@pytest.mark.usefixtures("two")
def test_nonexistent_devices() -> None:
    with pytest.raises(DeviceError, match=r"no OpenCL device opencl:0:1; the devices are opencl:0:0 \(broken"):
        select_device("opencl:0:1")
    for wrong in ("first", "gpu", "0:1:2"):
        with pytest.raises(DeviceError, match=r"DLC_DEVICE=.*such as 0:1"):
            select_device("opencl", wrong)


def test_without_any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "all_devices", lambda: ())
    devices._first_working_device.cache_clear()
    for name in ("opencl", "opencl:small", "opencl:0:0"):
        with pytest.raises(DeviceError, match="apt install pocl-opencl-icd"):
            select_device(name)
    # Emitting kernel source needs no device.
    assert target_of("opencl:small") == SMALL


def test_a_driver_without_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example PoCL without a writable folder."""
    silent = SimpleNamespace(name="some driver ", get_devices=list)
    monkeypatch.setattr(opencl(), "get_platforms", lambda: [silent])
    devices._discover.cache_clear()
    devices._first_working_device.cache_clear()
    try:
        with pytest.raises(DeviceError, match=r"driver of some driver is installed, but has no devices.*POCL_CACHE_DIR"):
            select_device("opencl")
    finally:
        devices._discover.cache_clear()


def test_an_environment_variable_selects_the_device() -> None:
    assert Environment.read({"DLC_DEVICE": "0:1"}).device == "0:1"
    assert Environment.read({}).device is None


def test_doctor_and_targets() -> None:
    state = json.loads(CliRunner().invoke(main, ["doctor", "--json"]).stdout)
    targets = json.loads(CliRunner().invoke(main, ["targets", "--json"]).stdout)
    places = [f"opencl:{d.device_index[0]}:{d.device_index[1]}" for d in all_devices()]
    assert [d["target"] for d in state["opencl"]] == places
    assert [t["target"] for t in targets if t["target"].startswith("opencl")] == places
    assert places or any("apt install pocl-opencl-icd" in line for line in state["advice"])
    assert CliRunner().invoke(main, ["doctor"]).exit_code == 0


@pytest.mark.skipif(not all_devices(), reason="no OpenCL device")
def test_a_real_device() -> None:
    found, target = select_device("opencl")
    assert not probe_device(found)
    assert replace(target, version=None) == found.target == resolve(target.name)
    assert target.version == f"{found.name}, {found.platform}, {found.driver}"
    assert str(found).startswith(f"opencl:{found.device_index[0]}:{found.device_index[1]} (")


def test_a_driver_without_disk_space(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """PoCL reports only that the build failed; nothing is known of other drivers."""
    cl = pytest.importorskip("pyopencl")

    def said(folder: Path, platform: str) -> str:
        monkeypatch.setenv("POCL_CACHE_DIR", str(folder))
        with pytest.raises(DeviceError, match=r"^a kernel: .*failed") as caught, driver_errors("a kernel", platform=platform):
            raise cl.Error("failed")
        return str(caught.value)

    (tmp_path / "file").write_text("")
    expected = f"the driver's cache folder {tmp_path / 'file'} cannot be written: File exists; free disk space"
    assert expected in said(tmp_path / "file", "Portable Computing Language")
    for folder, platform in ((tmp_path / "file", "some driver"), (tmp_path / "pocl", "Portable Computing Language")):
        assert "cannot be written" not in said(folder, platform)


@pytest.mark.skipif(not all_devices(), reason="no OpenCL device")
def test_a_missing_home_directory(tmp_path: Path) -> None:
    code = "from dlc.runtime.opencl.devices import all_devices, probe_device; print(probe_device(all_devices()[0]))"
    (tmp_path / "home").write_text("a file, which no folder can be made in")
    home = {"HOME": str(tmp_path / "home"), "POCL_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    kept = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"}
    done = subprocess.run([sys.executable, "-c", code], env=kept | home, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("\n", "")
