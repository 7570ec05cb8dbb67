"""Kernels' text to binaries, in processes of their own: drivers compile one program at a time, or crash.

A part of a program is built and each of its functions is run once, on zeros, since drivers finish their compilation when a
function first runs; only then is its binary all there is to know. What a process is told and answers is JSON and bytes, so
that it starts without the compiler.
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
from dlc.machine.threads import Threads
from dlc.machine.workers import die_with_parent
from dlc.runtime.opencl.devices import Device, Session, all_devices, open_device
from dlc.runtime.opencl.driver import compiling, opencl, reported, set_number


@dataclass(frozen=True)
class FunctionRun:
    """How a function is run: `groups` groups of `items` items, on arrays of these sizes in bytes, and on numbers; `kernel` has
    it."""

    name: str
    kernel: str
    groups: int
    items: int
    sizes: Sequence[int]
    numbers: Sequence[int] = ()


@dataclass(frozen=True)
class Part:
    """Some kernels as one program: its text, the compiler's options, and how its functions are run."""

    text: str
    options: str
    runs: tuple[FunctionRun, ...]


def from_text(text: str, options: str, session: Session) -> Any:
    """The program of this text.

    Raises DeviceError, with what the compiler says, for one that does not build.
    """
    with compiling(session.device, ": its compiler fails", platform=session.device.platform):
        return opencl().Program(session.context, text).build(options, cache_dir=False)


def from_binary(binary: bytes, session: Session) -> Any:
    """The program of this binary.

    Raises DeviceError when the driver does not take it.
    """
    with compiling(session.device, ": its driver refuses a binary", platform=session.device.platform):
        return opencl().Program(session.context, [session.device.handle], [binary]).build(cache_dir=False)


def binary_of(program: Any) -> bytes:
    """What `from_binary` makes the program of again."""
    (binary,) = program.get_info(opencl().program_info.BINARIES)
    return bytes(binary)


def built(part: Part, session: Session) -> Any:
    """The program of a part, each of its functions run once.

    Raises TooLargeError for kernels whose groups the device cannot run, DeviceError for what does not build.
    """
    program = from_text(part.text, part.options, session)
    problems = {run.kernel: problem for run in part.runs if run.groups and (problem := _run_once(program, run, session))}
    if problems:
        raise TooLargeError(problems)
    return program


def _run_once(program: Any, run: FunctionRun, session: Session) -> str:
    """Why the device does not run a function; empty if it does."""
    cl, info = opencl(), opencl().kernel_work_group_info
    device = session.device
    try:
        with reported(run.name, platform=device.platform):
            kernel = cl.Kernel(program, run.name)
            items = kernel.get_work_group_info(info.WORK_GROUP_SIZE, device.handle)
            if items < run.items:
                return f"groups of {run.items} items, and the device runs at most {items} of this kernel"
            local = kernel.get_work_group_info(info.LOCAL_MEM_SIZE, device.handle)
            if local > device.local_bytes:
                return f"{local} bytes of local memory, and the device has {device.local_bytes}"
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
            zeros = [cl.Buffer(session.context, flags, hostbuf=np.zeros(max(1, size), np.uint8)) for size in run.sizes]
            for k, buffer in enumerate(zeros):
                kernel.set_arg(2 * k, buffer)
                set_number(kernel, 2 * k + 1, 0)
            for k, number in enumerate(run.numbers, 2 * len(zeros)):
                set_number(kernel, k, number)
            cl.enqueue_nd_range_kernel(session.queue, kernel, (run.groups * run.items,), (run.items,))
            session.queue.finish()
    except DeviceError as error:
        return str(error)
    return ""


def built_apart(parts: Sequence[Part], device: Device) -> list[bytes]:
    """The binaries of parts, each built in a process of its own, all at once.

    Raises what `built` raises, and DeviceError when a process dies.
    """
    with Threads(len(parts)) as threads:
        answers = list(threads.map(partial(_ask, device), parts))
    problems = {name: problem for answer in answers if isinstance(answer, dict) for name, problem in answer.items()}
    if problems:
        raise TooLargeError(problems)
    return [answer for answer in answers if isinstance(answer, bytes)]


# The parent's path, for it need not be the one that the interpreter starts with.
_CHILD = "import sys; sys.path[:] = {path!r}; from dlc.runtime.opencl.build_apart import answer; answer()"


def _ask(device: Device, part: Part) -> bytes | dict[str, str]:
    """A part's binary, or the kernels that are too large."""
    job = json.dumps({"place": device.place, "part": asdict(part)}).encode()
    done = subprocess.run([sys.executable, "-c", _CHILD.format(path=sys.path)], input=job, capture_output=True)
    kind, data = done.stdout[:1], done.stdout[1:]
    if kind == b"B":
        return data
    if kind == b"L":
        return dict(json.loads(data))
    said = data.decode() if kind == b"E" else done.stderr.decode(errors="replace")[-2000:]
    raise DeviceError(said or f"{device}: a process that compiles for it ended with status {done.returncode}")


def answer() -> None:
    """Reads a job, and writes the binary (B), the kernels that are too large (L), or an error (E)."""
    die_with_parent()
    job: dict[str, Any] = json.load(sys.stdin)
    part: dict[str, Any] = job["part"]
    try:
        (device,) = (d for d in all_devices() if list(d.place) == job["place"])
        runs = tuple(FunctionRun(**run) for run in part["runs"])
        kind, data = b"B", binary_of(built(Part(part["text"], part["options"], runs), open_device(device)))
    except TooLargeError as error:
        kind, data = b"L", json.dumps(error.kernels).encode()
    except DeviceError as error:
        kind, data = b"E", str(error).encode()
    sys.stdout.buffer.write(kind + data)
