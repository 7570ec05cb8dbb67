"""`dlc doctor`: whether what dlc needs of this machine is there and works, and what to install where it is not."""

from __future__ import annotations

import json
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click
from rich.markup import escape

from dlc.caching.cache import Cache
from dlc.cli.shared import json_option, out, reports_errors
from dlc.errors import DeviceError
from dlc.options import Environment
from dlc.runtime.opencl.devices import Device, all_devices, problem_of, what_to_do
from dlc.target import resolve

PACKAGES = ("dlc", "xdsl", "llvmlite", "numpy", "onnx", "pyopencl")
# The library of the wheel intel-opencl-rt, which no loader finds by itself.
INTEL = "libintelocl.so"


@click.command("doctor")
@json_option
@reports_errors
def doctor_command(as_json: bool) -> None:
    """Says what this machine has, and what is missing.

    It looks at the processor, the OpenCL platforms and devices, and the cache, and runs a small kernel on each device.
    """
    cpu, devices = _cpu(), [_device(d) for d in all_devices()]
    environment, cache = Environment.read(), Cache.standard()
    advice = _advice(devices, cache)
    state: dict[str, Any] = {
        "packages": {name: _version(name) for name in PACKAGES},
        "cpu": cpu,
        "opencl": devices,
        "cache": str(cache.folder) if cache.folder else None,
        "advice": advice,
    }
    if as_json:
        click.echo(json.dumps(state, indent=2))
        return
    out.print(escape(", ".join(f"{name} {number}" for name, number in state["packages"].items())))
    out.print(escape(f"cpu: {cpu}" + (", as DLC_CPU says" if environment.cpu else "")))
    for device in devices:
        verdict = device["problem"] or f"works; compiled for as {device['as']}"
        out.print(escape(f"{device['target']}: {device['name']} ({device['platform']}, {device['driver']}): {verdict}"))
    out.print(escape(f"cache: {state['cache'] or 'none'}"))
    for line in advice:
        out.print(escape(line))


def _cpu() -> str:
    try:
        return resolve("cpu").name
    except DeviceError as error:
        return str(error)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _device(device: Device) -> dict[str, Any]:
    return {
        "target": f"opencl:{device.place[0]}:{device.place[1]}",
        "name": device.name,
        "platform": device.platform,
        "driver": device.driver,
        "kind": device.kind,
        "as": device.target.name,
        "group_items": device.group_items,
        "local_bytes": device.local_bytes,
        "buffer_bytes": device.buffer_bytes,
        "problem": problem_of(device) or None,
    }


def _advice(devices: list[dict[str, Any]], cache: Cache) -> list[str]:
    """What to do about what is missing."""
    advice: list[str] = []
    if not devices:
        advice.append(f"There is no OpenCL device: {what_to_do()}.")
    library = Path(sys.prefix) / "lib" / INTEL
    if library.exists() and not any("Intel" in device["platform"] for device in devices):
        advice.append(
            f"Intel's runtime is installed, and OpenCL's loader does not know of it: with OCL_ICD_VENDORS={library} in the "
            "environment it is the platform."
        )
    if problem := cache.problem():
        advice.append(f"{problem[0].upper()}{problem[1:]}.")
    return advice
