"""Build kernels in separate processes: drivers build one program at a time, and may crash.

Each function of a batch is built and run once on zeros, since drivers finish compilation at the first run; only then is the
binary complete. Requests and responses are JSON and bytes, so that the child process starts without the compiler.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from dlc.errors import DeviceError, TooLargeError
from dlc.machine.threads import ThreadPool
from dlc.machine.workers import die_with_parent
from dlc.runtime.opencl.devices import Device, Session, all_devices, open_device
from dlc.runtime.opencl.driver import compiler_errors, driver_errors, opencl, set_i64_argument


@dataclass(frozen=True)
class FunctionRun:
    """A test run of a function.

    Attributes:
        kernel: The kernel to which the function belongs.
        groups: The number of work-groups.
        items: The number of work-items per group.
        sizes: The byte sizes of the arrays.
        size_values: The size arguments.
    """

    name: str
    kernel: str
    groups: int
    items: int
    sizes: Sequence[int]
    size_values: Sequence[int] = ()


@dataclass(frozen=True)
class KernelBatch:
    """Kernels that are built as one program: source text, compiler options, and a test run of each function."""

    text: str
    options: str
    runs: tuple[FunctionRun, ...]


def program_from_source(text: str, options: str, session: Session) -> Any:
    """Build a program from source text.

    Raises DeviceError, with the compiler's output, if it does not build.
    """
    with compiler_errors(session.device, ": its compiler fails", platform=session.device.platform):
        return opencl().Program(session.context, text).build(options, cache_dir=False)


def program_from_binary(binary: bytes, session: Session) -> Any:
    """Load a program from a binary.

    Raises DeviceError if the driver rejects it.
    """
    with compiler_errors(session.device, ": its driver rejects a binary", platform=session.device.platform):
        return opencl().Program(session.context, [session.device.handle], [binary]).build(cache_dir=False)


def program_binary(program: Any) -> bytes:
    """Return the binary of a program, for `program_from_binary`."""
    (binary,) = program.get_info(opencl().program_info.BINARIES)
    return bytes(binary)


def build_batch(batch: KernelBatch, session: Session) -> Any:
    """Build the program of a batch and run each of its functions once.

    Raises TooLargeError for kernels whose work-groups the device cannot run, and DeviceError for build errors.
    """
    program = program_from_source(batch.text, batch.options, session)
    problems = {run.kernel: problem for run in batch.runs if run.groups and (problem := _run_once(program, run, session))}
    if problems:
        raise TooLargeError(problems)
    return program


def _run_once(program: Any, run: FunctionRun, session: Session) -> str:
    """Run a function once; return the reason why the device cannot run it, or an empty string."""
    cl, info = opencl(), opencl().kernel_work_group_info
    device = session.device
    try:
        with driver_errors(run.name, platform=device.platform):
            kernel = cl.Kernel(program, run.name)
            items = kernel.get_work_group_info(info.WORK_GROUP_SIZE, device.handle)
            if items < run.items:
                return f"work-groups of {run.items} items, but the device supports at most {items} for this kernel"
            local = kernel.get_work_group_info(info.LOCAL_MEM_SIZE, device.handle)
            if local > device.local_bytes:
                return f"{local} bytes of local memory, but the device has {device.local_bytes}"
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
            zeros = [cl.Buffer(session.context, flags, hostbuf=np.zeros(max(1, size), np.uint8)) for size in run.sizes]
            for k, buffer in enumerate(zeros):
                kernel.set_arg(2 * k, buffer)
                set_i64_argument(kernel, 2 * k + 1, 0)
            for k, size_value in enumerate(run.size_values, 2 * len(zeros)):
                set_i64_argument(kernel, k, size_value)
            cl.enqueue_nd_range_kernel(session.queue, kernel, (run.groups * run.items,), (run.items,))
            session.queue.finish()
    except DeviceError as error:
        return str(error)
    return ""


def build_in_subprocesses(batches: Sequence[KernelBatch], device: Device) -> list[bytes]:
    """Return the binaries of batches, each built in a process of its own, in parallel.

    Raises what `build_batch` raises, and DeviceError if a process dies.
    """
    with ThreadPool(len(batches)) as threads:
        responses = list(threads.map(partial(_send_request, device), batches))
    problems = {name: problem for response in responses if isinstance(response, dict) for name, problem in response.items()}
    if problems:
        raise TooLargeError(problems)
    return [response for response in responses if isinstance(response, bytes)]


# The child uses the parent's module search path, which may differ from the default one.
_CHILD = "import sys; sys.path[:] = {path!r}; from dlc.runtime.opencl.isolated_build import serve_request; serve_request()"


def _send_request(device: Device, batch: KernelBatch) -> bytes | dict[str, str]:
    """Build a batch in another process; return its binary, or the kernels that are too large."""
    request = json.dumps({"device_index": device.device_index, "batch": asdict(batch)}).encode()
    process = subprocess.run([sys.executable, "-c", _CHILD.format(path=sys.path)], input=request, capture_output=True)
    kind, data = process.stdout[:1], process.stdout[1:]
    if kind == b"B":
        return data
    if kind == b"L":
        return dict(json.loads(data))
    message = data.decode() if kind == b"E" else process.stderr.decode(errors="replace")[-2000:]
    raise DeviceError(message or f"{device}: the build process ended with status {process.returncode}")


def serve_request() -> None:
    """Read a request from stdin; write the binary (B), the kernels that are too large (L), or an error (E) to stdout."""
    die_with_parent()
    request: dict[str, Any] = json.load(sys.stdin)
    batch: dict[str, Any] = request["batch"]
    try:
        (device,) = (d for d in all_devices() if list(d.device_index) == request["device_index"])
        runs = tuple(FunctionRun(**run) for run in batch["runs"])
        kind, data = b"B", program_binary(build_batch(KernelBatch(batch["text"], batch["options"], runs), open_device(device)))
    except TooLargeError as error:
        kind, data = b"L", json.dumps(error.kernels).encode()
    except DeviceError as error:
        kind, data = b"E", str(error).encode()
    sys.stdout.buffer.write(kind + data)
