"""Mixed load on the executor and on the server: `python -m tests.serve.mixed_load --seconds 600`.

Clients in this process submit, cancel, chain and map calls of several models, with priorities, deadlines and errors. Clients in
other processes send requests to `dlc serve` and disconnect; some of them are killed, and the model is replaced while they run.
Every result is compared with that of its own request, every request must end, and memory, threads and open files must not grow.
"""

from __future__ import annotations

import argparse
import gc
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import dlc
from dlc.errors import DeadlineError, ShapeError
from dlc.runtime.models.model import Model
from dlc.runtime.requests.threading_primitives import IDLE_SECONDS
from tests.serve.load_client import COLUMNS, FACTORS, TOKEN

# Growth of the resident memory that caches, allocators and the number of concurrent calls explain.
MAX_GROWTH_BYTES = 24 << 20
_WIDE_ROWS = 2048
_PROCESS_CLIENTS, _THREAD_CLIENTS = 3, 6
# Requests end within this time.
_TIMEOUT_SECONDS = 120


@dataclass(frozen=True)
class Usage:
    """The resident memory in bytes, the threads and the open files of a process."""

    memory: int
    threads: int
    files: int

    @staticmethod
    def of(pid: int) -> Usage:
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
        files = len(os.listdir(f"/proc/{pid}/fd"))
        return Usage(int(fields["VmRSS"].split()[0]) << 10, int(fields["Threads"]), files)

    def require_no_growth(self, later: Usage, idle_files: int = 0) -> None:
        """Raise AssertionError if a later usage of the same process exceeds this one."""
        assert later.memory <= self.memory + MAX_GROWTH_BYTES, (self, later)
        assert later.threads <= self.threads and later.files <= self.files + idle_files, (self, later)


def scale_model(factor: float, streams: int = 2) -> Model:
    """Return the model y = factor · x on 1 to 64 rows."""
    function = dlc.jit(lambda x: x * np.float32(factor), dynamic={"x": {0: "N:1..64"}}, num_threads=1, streams=streams)
    return function.lower(np.zeros((2, COLUMNS), np.float32)).compile()


def wide_model() -> Model:
    """Return the model y = 2 · x on enough rows for two threads."""
    function = dlc.jit(lambda x: x * 2, num_threads=2)
    return function.lower(np.zeros((_WIDE_ROWS, COLUMNS), np.float32)).compile()


class Load:
    """The clients of this process, and what became of their requests."""

    def __init__(self) -> None:
        self.outcomes, self.submitted, self.lock = Counter[str](), 0, threading.Lock()
        self.scale, self.wide = scale_model(2), wide_model()
        self.batched = dlc.batched(scale_model(2), max_batch=16, max_delay_ms=0.2, max_pending=64)
        self.errors: list[BaseException] = []

    def run(self, seconds: float) -> None:
        """Run the clients. Raises the error of a client that got a wrong result."""
        end = time.monotonic() + seconds
        threads = [threading.Thread(target=self._client, args=(end, seed)) for seed in range(_THREAD_CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds + _TIMEOUT_SECONDS)
            assert not thread.is_alive(), "a request did not end"
        if self.errors:
            raise self.errors[0]
        assert sum(self.outcomes.values()) == self.submitted, (self.outcomes, self.submitted)
        until = time.monotonic() + _TIMEOUT_SECONDS
        while any(model.num_pending or model.requests.running for model in (self.scale, self.wide, self.batched)):
            assert time.monotonic() < until, "requests are left"
            time.sleep(0.01)

    def _client(self, end: float, seed: int) -> None:
        random = np.random.default_rng([seed, int(time.time())])
        try:
            while time.monotonic() < end and not self.errors:
                self._request(random)
        except BaseException as error:
            self.errors.append(error)

    def _request(self, random: np.random.Generator) -> None:
        model = (self.scale, self.batched, self.wide)[int(random.integers(3))]
        rows, is_wrong = int(random.integers(1, 17)), random.random() < 0.05
        x = random.standard_normal((_WIDE_ROWS if model is self.wide else rows, COLUMNS + is_wrong), np.float32)
        deadline = float(random.random()) * 2e-3 if random.random() < 0.2 else None
        priority, chained = int(random.integers(3)), random.random() < 0.2
        if random.random() < 0.05 and not is_wrong:
            results = [*model.map([x, x + 1, x + 2], in_flight=2)]
            for k, result in enumerate(results):
                np.testing.assert_array_equal(result["result"], 2 * (x + k))
            self._count("mapped", 3)
            return
        future = model.submit(x, priority=priority, deadline=deadline)
        last = self.scale.submit(future["result"]) if chained and model is not self.wide else future
        expected = 2 * x if last is future else 2 * (2 * x)
        if random.random() < 0.15:
            last.cancel()
        try:
            np.testing.assert_array_equal(last.result(_TIMEOUT_SECONDS)["result"], expected)
            assert not is_wrong
            self._count("result")
        except CancelledError:
            self._count("cancelled")
        except DeadlineError:
            assert deadline is not None
            self._count("late")
        except ShapeError:
            assert is_wrong, "an error of another request"
            self._count("error")

    def _count(self, outcome: str, requests: int = 1) -> None:
        with self.lock:
            self.outcomes[outcome] += requests
            self.submitted += requests


class ServedLoad:
    """A server process, and client processes that are restarted when they end or are killed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.outcomes = folder, Counter[str]()
        self.versions: list[bytes] = []
        for factor in FACTORS:
            scale_model(factor).save(folder / "version")
            self.versions.append((folder / "version").read_bytes())
        (folder / "version").unlink()
        self.models = folder / "models"
        self.models.mkdir()
        self._replace(0)
        command = ["-m", "dlc", "serve", "--models", str(self.models), "--port", "0", "--token", TOKEN, "--max-batch", "8"]
        limits = ["--max-pending", "32", "--deadline-ms", "2000", "--streams", "2"]
        self.server = subprocess.Popen([sys.executable, *command, *limits], stderr=subprocess.PIPE, text=True)
        assert self.server.stderr is not None
        line = next(line for line in self.server.stderr if line.startswith("serving "))
        self.port = int(line.rpartition(":")[2])
        self.stderr: list[str] = []
        self._reader = threading.Thread(target=lambda: self.stderr.extend(self.server.stderr or ()))
        self._reader.start()

    def _replace(self, k: int) -> None:
        (self.folder / "next").write_bytes(self.versions[k % len(self.versions)])
        (self.folder / "next").rename(self.models / "scale.dlc")

    def run(self, seconds: float) -> None:
        """Run client processes; kill one of them, and replace the model, about every second."""
        random, end, step = np.random.default_rng(0), time.monotonic() + seconds, 0
        clients: list[subprocess.Popen[str]] = []
        while time.monotonic() < end:
            while len(clients) < _PROCESS_CLIENTS:
                clients.append(self._start_client(step * _PROCESS_CLIENTS + len(clients), min(3.0, end - time.monotonic())))
            time.sleep(min(1.0, max(0.0, end - time.monotonic())))
            step += 1
            self._replace(step)
            victim = clients[int(random.integers(len(clients)))]
            victim.send_signal(signal.SIGKILL)
            for client in [client for client in clients if client.poll() is not None]:
                clients.remove(client)
                self._end(client)
        for client in clients:
            self._end(client)

    def _start_client(self, seed: int, seconds: float) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.serve.load_client", str(self.port), str(seed), str(seconds)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def _end(self, client: subprocess.Popen[str]) -> None:
        out, error = client.communicate(timeout=_TIMEOUT_SECONDS)
        if client.returncode == -signal.SIGKILL:
            self.outcomes["killed"] += 1
            return
        assert client.returncode == 0, error
        self.outcomes.update(json.loads(out))

    def require_idle(self) -> None:
        """Wait until no request is pending or running."""
        until = time.monotonic() + _TIMEOUT_SECONDS
        while True:
            lines = [line for line in self._metrics().splitlines() if line.startswith(("dlc_pending", "dlc_running"))]
            busy = [line for line in lines if not line.endswith(" 0")]
            if not busy:
                return
            assert time.monotonic() < until, busy
            time.sleep(0.05)

    def _metrics(self) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        return connection.getresponse().read().decode()

    def stop(self) -> None:
        """Stop the server, which must end by itself and have logged no error."""
        self.server.send_signal(signal.SIGTERM)
        code = self.server.wait(_TIMEOUT_SECONDS)
        self._reader.join(_TIMEOUT_SECONDS)
        unexpected = [line for line in self.stderr if ": loaded, version" not in line]
        assert code in (0, -signal.SIGTERM) and not unexpected, (code, unexpected[:100])


def measure(run: Callable[[float], None], pid: int, seconds: float, settle: Callable[[], object]) -> tuple[Usage, Usage]:
    """Run a load for a fifth of the time, and then for the rest; return the usage after both."""
    run(seconds / 5)
    settle()
    first = Usage.of(pid)
    run(seconds * 4 / 5)
    settle()
    until = time.monotonic() + 2 * IDLE_SECONDS
    while Usage.of(pid).threads > first.threads and time.monotonic() < until:
        # Idle threads of replaced models have not ended yet.
        time.sleep(0.1)
    return first, Usage.of(pid)


def process_load(seconds: float) -> str:
    load = Load()
    first, last = measure(load.run, os.getpid(), seconds, gc.collect)
    first.require_no_growth(last)
    return f"executor: {dict(load.outcomes)}, {first} -> {last}"


def served_load(seconds: float) -> str:
    with TemporaryDirectory() as folder:
        load = ServedLoad(Path(folder))
        try:
            first, last = measure(load.run, load.server.pid, seconds, load.require_idle)
        finally:
            load.stop()
        first.require_no_growth(last, idle_files=2 * _PROCESS_CLIENTS)
        return f"server: {dict(load.outcomes)}, {first} -> {last}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="executor, server; default: both")
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    parts = {"executor": process_load, "server": served_load}
    for name in options.parts or [*parts]:
        print(parts[name](options.seconds / len(options.parts or parts)), flush=True)


if __name__ == "__main__":
    main()
