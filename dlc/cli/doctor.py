"""`dlc doctor`: check that the CPU, OpenCL devices, packages and cache work, and advise on what is missing."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click
from rich.markup import escape

from dlc.caching.cache import Cache
from dlc.cli.common import examples, json_option, reports_errors
from dlc.cli.console import out
from dlc.errors import DeviceError
from dlc.measure.network import measure_network
from dlc.options import Environment
from dlc.runtime.collectives.start import is_first_rank, job_fails_on_error, start_on_all_ranks
from dlc.runtime.opencl.devices import Device, all_devices, installation_hint, probe_device
from dlc.target import resolve

PACKAGES = ("dlc", "xdsl", "llvmlite", "numpy", "onnx", "pyopencl")
# The library of the wheel intel-opencl-rt, which OpenCL loaders do not find by default.
INTEL_OPENCL_LIBRARY = "libintelocl.so"


@click.command("doctor", epilog=examples("dlc doctor"))
@click.option("--mpi", is_flag=True, help="Measure messages between the ranks of `mpiexec -n RANKS dlc doctor --mpi`.")
@json_option
@reports_errors
@job_fails_on_error()
def doctor_command(mpi: bool, as_json: bool) -> None:
    """Checks this machine: CPU, OpenCL devices, packages, cache.

    It runs a small kernel on each OpenCL device, and prints what to install or set where something is missing.
    """
    if mpi:
        _report_network(as_json)
        return
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
    out.print(escape(", ".join(f"{name} {version}" for name, version in state["packages"].items())))
    out.print(escape(f"cpu: {cpu}" + (", set by DLC_CPU" if environment.cpu else "")))
    for device in devices:
        verdict = device["problem"] or f"works; code is generated for {device['as']}"
        out.print(escape(f"{device['target']}: {device['name']} ({device['platform']}, {device['driver']}): {verdict}"))
    out.print(escape(f"cache: {state['cache'] or 'none'}"))
    for line in advice:
        out.print(escape(line))


def _report_network(as_json: bool) -> None:
    """Measure messages between ranks and print the options of `dlc explain-sharding` for them, on the first rank."""
    transport = start_on_all_ranks()
    if transport.mesh.size == 1:
        raise click.UsageError("--mpi measures messages between ranks: mpiexec -n 2 dlc doctor --mpi")
    rates = measure_network(transport)
    if not is_first_rank():
        return
    if as_json:
        click.echo(json.dumps({"ranks": transport.mesh.size, **asdict(rates)}))
        return
    options = f"--latency {1e6 * rates.latency_seconds:.2f}us --bandwidth {1e-9 * rates.bytes_per_second:.2f}GB/s"
    out.print(f"{transport.mesh.size} ranks: dlc explain-sharding MODEL --mesh … {options}")


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
        "target": f"opencl:{device.device_index[0]}:{device.device_index[1]}",
        "name": device.name,
        "platform": device.platform,
        "driver": device.driver,
        "kind": device.kind,
        "as": device.target.name,
        "group_items": device.group_items,
        "local_bytes": device.local_bytes,
        "buffer_bytes": device.buffer_bytes,
        "problem": probe_device(device) or None,
    }


def _advice(devices: list[dict[str, Any]], cache: Cache) -> list[str]:
    """Return advice on what is missing."""
    advice: list[str] = []
    if not devices:
        advice.append(f"There is no OpenCL device: {installation_hint()}.")
    library = Path(sys.prefix) / "lib" / INTEL_OPENCL_LIBRARY
    if library.exists() and not any("Intel" in device["platform"] for device in devices):
        advice.append(
            f"Intel's OpenCL runtime is installed, but the OpenCL loader does not find it; "
            f"set OCL_ICD_VENDORS={library} in the environment to use it."
        )
    if problem := cache.problem():
        advice.append(f"{problem[0].upper()}{problem[1:]}.")
    return advice
