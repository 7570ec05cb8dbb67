"""Which device a target's name means, and what is compiled for it; whether there is a device only matters at the end."""

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
from dlc.runtime.opencl.devices import Device, all_devices, choose, fitted, problem_of, target_of
from dlc.runtime.opencl.driver import opencl, reported
from dlc.runtime.opencl.kernel import KernelText, matrices_of
from dlc.runtime.program.host_program import OpenKernel
from dlc.target import OPENCL_PROFILES, OpenCLName, Target, resolve

SMALL, GPU = OPENCL_PROFILES["opencl:small"], OPENCL_PROFILES["opencl:gpu"]
NVIDIA = "cl_khr_fp64 cl_nv_device_attribute_query"


def handle(kind: str = "GPU", **changes: Any) -> Any:
    """What PyOpenCL says of a device."""
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


def device(*place: int, **changes: Any) -> Device:
    return devices._describe(handle(**changes), (place[0], place[1]) if place else (0, 0))


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two devices, the first of which does not work."""
    found = (device(0, 0, name="broken"), device(1, 2, name="sound"))
    monkeypatch.setattr(devices, "all_devices", lambda: found)
    monkeypatch.setattr(devices, "problem_of", lambda d: "broken" if d.name == "broken" else "")
    devices._first.cache_clear()
    yield
    devices._first.cache_clear()


@pytest.mark.parametrize(
    ("name", "place", "target"),
    [
        ("opencl", None, None),
        ("opencl:1", (1, 0), None),
        ("opencl:0:1", (0, 1), None),
        ("opencl:small", None, "opencl:small"),
        ("opencl:2:0:cpu256:nofp16", (2, 0), "opencl:cpu256:nofp16"),
    ],
)
def test_names(name: str, place: tuple[int, int] | None, target: str | None) -> None:
    assert OpenCLName.parse(name) == OpenCLName(place, target)


@pytest.mark.parametrize(
    "name", ["opencl:", "opencl:huge", "opencl:cpu256:mma", "opencl:gpu:mma:nofp16", "opencl:0:1:2", "opencl:gpu:0", "opencl0"]
)
def test_names_that_mean_nothing(name: str) -> None:
    with pytest.raises(DeviceError, match="opencl:PLATFORM:DEVICE"):
        OpenCLName.parse(name)


def test_a_name_says_what_is_missing() -> None:
    target = resolve("opencl:gpu:nofp16:nofp64")
    assert (target.halves, target.doubles, target.groups) == (False, False, GPU.groups)
    assert resolve(target.name) == target
    matrices = resolve("opencl:gpu:nofp16:nofp64:mma")
    assert (matrices.dots, resolve(matrices.name)) == (("bf16", "f16"), matrices)
    assert fitted(matrices, device()).dots == ()
    assert fitted(matrices, device(extensions=NVIDIA, compute_capability_major_nv=9)).dots == matrices.dots
    # What a profile lacks anyway is not said again.
    assert fitted(SMALL, device()).name == "opencl:small"


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
def test_what_a_device_is_compiled_for(said: dict[str, Any], name: str) -> None:
    assert device(**said).target.name == name


def test_a_kernel_says_what_a_device_lacks() -> None:
    kernel = KernelText("k", (), (), OpenKernel(0, ()), (matrices_of("bf16"),))
    assert kernel.lacking(device()) == "it computes in matrices of bf16, which the device does not"
    assert not kernel.lacking(device(extensions=NVIDIA, compute_capability_major_nv=9))


def test_a_device_is_asked_for_what_a_profile_needs() -> None:
    tiny = device(max_work_group_size=32)
    with pytest.raises(DeviceError, match=r"opencl:gpu needs groups of 256 items, it has 32"):
        fitted(GPU, tiny)
    with pytest.raises(DeviceError, match=r"16384 bytes of local memory, it has 8192"):
        fitted(SMALL, device(local_mem_size=8 << 10))


def test_plans_are_for_the_units_that_a_device_has() -> None:
    assert GPU.groups is not None and GPU.groups.units != 20
    for target in (device().target, fitted(GPU, device())):
        assert target.groups is not None and target.groups.units == 20
    # As if the device were like that: a processor that runs groups says nothing of it.
    assert fitted(GPU, device(kind="CPU")).groups == GPU.groups


@pytest.mark.parametrize(
    ("items", "profile", "teams"),
    [(256, GPU, 256), (1024, GPU, 512), (500, GPU, 256), (4096, GPU, 512), (64, SMALL, 64), (192, SMALL, 128)],
)
def test_items_that_share_rows_are_as_many_as_a_group_may_have(items: int, profile: Target, teams: int) -> None:
    groups = device(max_work_group_size=items).target.groups
    assert groups is not None and profile.groups is not None
    assert (groups.items, groups.team_items) == (profile.groups.items, teams)


@pytest.mark.usefixtures("two")
def test_opencl_is_the_first_that_works() -> None:
    assert choose("opencl")[0].name == "sound"
    device, target = choose("opencl:small")
    # What is compiled for a device is for its driver, and its units.
    assert SMALL.groups is not None
    own = replace(SMALL, version="sound, some platform, OpenCL 3.0, 7", groups=replace(SMALL.groups, units=20))
    assert device == choose("opencl")[0] and target == own
    assert choose("opencl:0:0")[0].name == choose("opencl", "0")[0].name == "broken"
    assert choose("opencl", "1:2")[0].name == "sound"
    assert choose("opencl:0:0", "1:2")[0].name == "broken"


@pytest.mark.usefixtures("two")
def test_devices_that_are_not_there() -> None:
    with pytest.raises(DeviceError, match=r"no OpenCL device opencl:0:1; there are opencl:0:0 \(broken"):
        choose("opencl:0:1")
    for wrong in ("first", "gpu", "0:1:2"):
        with pytest.raises(DeviceError, match=r"DLC_DEVICE=.*such as 0:1"):
            choose("opencl", wrong)


def test_without_any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "all_devices", lambda: ())
    devices._first.cache_clear()
    for name in ("opencl", "opencl:small", "opencl:0:0"):
        with pytest.raises(DeviceError, match="apt install pocl-opencl-icd"):
            choose(name)
    # The text of kernels needs none.
    assert target_of("opencl:small") == SMALL


def test_a_driver_without_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as PoCL without a folder to write to."""
    silent = SimpleNamespace(name="some driver ", get_devices=list)
    monkeypatch.setattr(opencl(), "get_platforms", lambda: [silent])
    devices._found.cache_clear()
    devices._first.cache_clear()
    try:
        with pytest.raises(DeviceError, match=r"driver of some driver is installed, and gives none.*POCL_CACHE_DIR"):
            choose("opencl")
    finally:
        devices._found.cache_clear()


def test_the_environment_names_a_device() -> None:
    assert Environment.read({"DLC_DEVICE": "0:1"}).device == "0:1"
    assert Environment.read({}).device is None


def test_doctor_and_targets() -> None:
    state = json.loads(CliRunner().invoke(main, ["doctor", "--json"]).stdout)
    targets = json.loads(CliRunner().invoke(main, ["targets", "--json"]).stdout)
    places = [f"opencl:{d.place[0]}:{d.place[1]}" for d in all_devices()]
    assert [d["target"] for d in state["opencl"]] == places
    assert [t["target"] for t in targets if t["target"].startswith("opencl")] == places
    assert places or any("apt install pocl-opencl-icd" in line for line in state["advice"])
    assert CliRunner().invoke(main, ["doctor"]).exit_code == 0


@pytest.mark.skipif(not all_devices(), reason="no OpenCL device")
def test_a_real_device() -> None:
    found, target = choose("opencl")
    assert not problem_of(found)
    assert replace(target, version=None) == found.target == resolve(target.name)
    assert target.version == f"{found.name}, {found.platform}, {found.driver}"
    assert str(found).startswith(f"opencl:{found.place[0]}:{found.place[1]} (")


def test_a_driver_without_room_for_what_it_compiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of which PoCL says no more than that it failed; of other drivers nothing is known."""
    cl = pytest.importorskip("pyopencl")

    def said(folder: Path, platform: str) -> str:
        monkeypatch.setenv("POCL_CACHE_DIR", str(folder))
        with pytest.raises(DeviceError, match=r"^a kernel: .*failed") as caught, reported("a kernel", platform=platform):
            raise cl.Error("failed")
        return str(caught.value)

    (tmp_path / "file").write_text("")
    told = f"{tmp_path / 'file'}, where its driver keeps what it compiles, cannot be written: File exists; make room there"
    assert told in said(tmp_path / "file", "Portable Computing Language")
    for folder, platform in ((tmp_path / "file", "some driver"), (tmp_path / "pocl", "Portable Computing Language")):
        assert "cannot be written" not in said(folder, platform)


@pytest.mark.skipif(not all_devices(), reason="no OpenCL device")
def test_a_home_that_is_not_there(tmp_path: Path) -> None:
    code = "from dlc.runtime.opencl.devices import all_devices, problem_of; print(problem_of(all_devices()[0]))"
    (tmp_path / "home").write_text("a file, which no folder can be made in")
    home = {"HOME": str(tmp_path / "home"), "POCL_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    kept = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"}
    done = subprocess.run([sys.executable, "-c", code], env=kept | home, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("\n", "")
