"""Join an MPI job, report to its monitor, and end the job when one rank fails."""

from __future__ import annotations

import atexit
import json
import os
import secrets
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from dlc.errors import DlcError
from dlc.machine.cpus import cpu_affinity, share_cpus
from dlc.options import Environment
from dlc.runtime.collectives import monitor
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.mpi import MpiProcesses, MpiTransport
from dlc.runtime.collectives.threads import ThreadsTransport
from dlc.runtime.collectives.transport import Transport, find_transport, set_process_transport
from dlc.source_locations import format_error_line, format_line, is_user_frame

# MPI may not return from the call that ends the job if a network has failed.
_ABORT_SECONDS = 3.0
# The longest wait of a rank at its end for the monitor's check of the calls of all ranks.
_DONE_SECONDS = 5.0


class _Job:
    """This process as a rank of the job: its connection to the monitor, and hooks that end the job when it fails."""

    def __init__(self) -> None:
        self.processes = MpiProcesses()
        self.rank, self.size = self.processes.rank, self.processes.size
        self.failed = False
        self._main_thread = threading.main_thread().ident
        self._sending = threading.Lock()
        self._done = threading.Event()
        local = self.processes.world.Split_type(self.processes.mpi.COMM_TYPE_SHARED)
        self._share_cpus(local)
        self._monitor = self._connect(single_node=local.size == self.size)
        self._send(process=f"process {os.getpid()} on {socket.gethostname()}", **self._state())
        # Workers of this rank must not keep its connection open after its death.
        os.register_at_fork(after_in_child=self._monitor.close)
        # The monitor knows all ranks before one of them can end.
        self.processes.world.Barrier()
        threading.Thread(target=self._report, name="dlc rank state", daemon=True).start()
        self._previous_hook = sys.excepthook
        sys.excepthook = self._handle_exception
        atexit.register(self._finish)

    def _share_cpus(self, local: Any) -> None:
        """Divide the processors of the node among its ranks, unless MPI has bound them to different ones."""
        masks = local.allgather(cpu_affinity())
        share_cpus(sum(mask == masks[local.rank] for mask in masks))

    def _connect(self, single_node: bool) -> socket.socket:
        """Start the monitor on rank 0 and connect to it."""
        address: tuple[str, int, str] | None = None
        if self.rank == 0:
            with socket.create_server(("127.0.0.1" if single_node else "", 0), backlog=self.size) as listener:
                token = secrets.token_hex(16)
                _start_monitor(listener, token, self.size)
                host = "127.0.0.1" if single_node else socket.gethostname()
                address = host, listener.getsockname()[1], token
        host, port, token = self.processes.world.bcast(address)
        try:
            connection = socket.create_connection((host, port), timeout=30)
        except OSError as error:
            raise DlcError(f"rank {self.rank} cannot connect to the monitor of the job at {host}:{port}: {error}") from error
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(json.dumps({"token": token, "rank": self.rank}).encode() + b"\n")
        return connection

    def _send(self, **fields: object) -> None:
        with self._sending:
            try:
                self._monitor.sendall(json.dumps(fields).encode() + b"\n")
            except OSError:
                return  # The monitor ends when it has ended the job.

    def _state(self) -> dict[str, object]:
        """Return the fields of a report."""
        calls = self.processes.history.calls()
        # Between the two reads the process was in this collective, if they are equal.
        pending, now, pending_later = self.processes.pending, time.monotonic(), self.processes.pending
        return {
            "group": pending if pending == pending_later else None,
            "time": now,
            "last_label": self.processes.last_label,
            "line": self._current_line(),
            "calls": calls,
        }

    def _current_line(self) -> str:
        """Return the user's line that the main thread runs; empty if there is none."""
        frame = sys._current_frames().get(self._main_thread or 0)  # pyright: ignore[reportPrivateUsage]
        while frame is not None and not (is_user_frame(frame) and frame.f_code.co_filename[0] != "<"):
            frame = frame.f_back
        return "" if frame is None else format_line(frame.f_code.co_filename, frame.f_lineno)

    def _report(self) -> None:
        """Report changes of this rank's state, and collectives that continue, until the monitor orders the end of the job."""
        reported: dict[str, object] = {}
        while True:
            if select.select([self._monitor], [], [], monitor.REPORT_SECONDS)[0]:
                if self._monitor.recv(64).startswith(monitor.ABORT):
                    self.abort()
                # The job is done, or the monitor has ended.
                self._done.set()
                return
            state = self._state()
            if state != {**reported, "time": state["time"]} or state["group"] is not None:
                self._send(**state)
                reported = state

    def _handle_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self._previous_hook(kind, error, trace)
        line = format_error_line(error)
        reason = f"{kind.__name__}: {error}" if str(error) else kind.__name__
        self.fail(f"{line}: {reason}" if line else reason)

    def fail(self, reason: str) -> None:
        """Report the failure of this rank and end the job."""
        self._send(failed=True)
        print(f"dlc: rank {self.rank} of {self.size} failed: {reason}", file=sys.stderr)
        self.abort()

    def abort(self) -> None:
        """End all processes of the job with status 1."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        timer = threading.Timer(_ABORT_SECONDS, os._exit, [1])
        timer.daemon = True
        timer.start()
        self.processes.mpi.COMM_WORLD.Abort(1)

    def _finish(self) -> None:
        if self.failed and self.size > 1:
            self.fail("the command failed")
        self._send(finished=True, calls=self.processes.history.recent_calls())
        # The monitor compares the calls of all ranks; MPI waits for the other ranks as well.
        self._done.wait(_DONE_SECONDS)


def _start_monitor(listener: socket.socket, token: str, rank_count: int) -> None:
    timeout = Environment.read().collective_timeout_seconds
    command = [sys.executable, "-ES", str(Path(monitor.__file__)), str(listener.fileno()), str(rank_count), str(timeout)]
    # A session of its own, so that signals to the job's processes do not end it; it ends after them.
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[listener.fileno()], start_new_session=True
    )
    assert process.stdin is not None
    with process.stdin as stdin:
        stdin.write(token.encode() + b"\n")
    # Not awaited: the monitor outlives this process.
    process.returncode = 0


class _JobHolder:
    job: _Job | None = None


_holder = _JobHolder()


def start(mesh: Mesh) -> Transport:
    """Return this process's transport for a mesh, and use it for the process; the first call joins the MPI job.

    All ranks call it in the same order. From the first call on, an exception that ends a rank ends the job, and so does a rank
    that is killed, exits while others wait for it, or waits for others longer than `DLC_COLLECTIVE_TIMEOUT` seconds. The
    processors of a node are divided among its ranks. Raises DlcError if the job has another number of ranks than the mesh.
    """
    job = _join()
    if mesh.size != job.size:
        raise DlcError(f"mesh {mesh} has {mesh.size} ranks, the job has {job.size}: start it with `mpiexec -n {mesh.size} …`")
    transport = MpiTransport(mesh, job.processes)
    set_process_transport(transport)
    return transport


def _join() -> _Job:
    if _holder.job is None:
        _holder.job = _Job()
    return _holder.job


def start_on_all_ranks() -> Transport:
    """Join the MPI job and return a transport on the mesh of all its ranks, with one axis `ranks`."""
    return start(Mesh.of({"ranks": _join().size}))


def is_first_rank() -> bool:
    """Return whether this process prints and writes files: it is rank 0, or in no job."""
    return _holder.job is None or _holder.job.rank == 0


@contextmanager
def job_fails_on_error() -> Generator[None]:
    """Inside a `with` block: after an error, which the command line reports, end the job when this process exits.

    Interrupts do not end it, since they reach all ranks.
    """
    try:
        yield
    except Exception:
        if _holder.job is not None:
            _holder.job.failed = True
        raise


# The transports of this process, by mesh.
_transports: dict[Mesh, Transport] = {}


def transport_of(mesh: Mesh) -> Transport | None:
    """Return this rank's transport on a mesh; None for a mesh of one rank, which exchanges nothing.

    The first call of a process joins the MPI job. Raises DlcError if the job has another number of ranks.
    """
    transport = find_transport()
    if isinstance(transport, ThreadsTransport):
        return transport.on_mesh(mesh)
    if transport is not None and transport.mesh == mesh:
        return transport
    if mesh.size == 1:
        return None
    if mesh not in _transports:
        _transports[mesh] = start(mesh)
    return _transports[mesh]


def rank_on(mesh: Mesh) -> int:
    """Return the rank of this process or thread on a mesh. Raises DlcError as `transport_of` does."""
    transport = transport_of(mesh)
    return 0 if transport is None else transport.rank
