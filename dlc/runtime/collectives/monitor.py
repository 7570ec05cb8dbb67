"""The monitor of a job: a process, started by rank 0, that reports killed, missing and deadlocked ranks.

Each rank sends its state to it, as lines of JSON. The monitor is a separate process because any rank may be killed, and MPI
then kills the others within milliseconds: the connection that closes first is that of the rank to report. It runs as a script
without dlc, so that it starts in milliseconds.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

# Ranks report at this interval in collectives, and if their state has changed; a fault must persist over several reports.
REPORT_SECONDS = 0.25
_PERSISTENCE_SECONDS = 2.0
_START_SECONDS = 60.0
_ABORT_SECONDS = 5.0
# Calls whose digests the monitor remembers, so that ranks may report the same call at different times.
_MAX_REMEMBERED_CALLS = 4096
ABORT, DONE = b"abort\n", b"done\n"


@dataclass
class RankState:
    """The last report of a rank.

    Attributes:
        process: The process, for messages.
        line: The user's current source line, such as `train.py:9`; empty if unknown.
        last_label: The label of the last collective.
        group: The ranks of the current collective, and its number among their collectives; None between collectives.
        since, seen: The times of the first report with this collective, and of the last report, on the clock of the rank: a
            report may arrive late. A rank that does not report may have left the collective: its threads wait for each other,
            or for a processor.
        finished: Whether the rank has ended normally.
    """

    process: str = ""
    line: str = ""
    last_label: str = ""
    group: tuple[tuple[int, ...], int] | None = None
    since: float = 0.0
    seen: float = 0.0
    finished: bool = False

    @property
    def waited_seconds(self) -> float:
        """The time that the rank has spent in its collective, as far as it has reported."""
        return self.seen - self.since


@dataclass
class JobState:
    """The states of all ranks, and the faults that follow from them. Times are in seconds."""

    rank_count: int
    timeout_seconds: float
    ranks: dict[int, RankState] = field(default_factory=dict[int, RankState])
    failed: bool = False
    # For the number of a call the digest of all calls until then, its label and a rank that reported it.
    calls: dict[int, tuple[int, str, int]] = field(default_factory=dict[int, tuple[int, str, int]])
    different_calls: str | None = None

    def report(self, rank: int, fields: dict[str, Any]) -> None:
        """Record a report of a rank. `group` comes with `time`, at which the rank was in this collective."""
        state = self.ranks.setdefault(rank, RankState())
        self.failed |= fields.pop("failed", False)
        calls = fields.pop("calls", ())
        if "group" in fields:
            ranks_and_number, state.seen = fields.pop("group"), fields.pop("time")
            group = None if ranks_and_number is None else (tuple(ranks_and_number[0]), ranks_and_number[1])
            if group != state.group:
                state.group, state.since = group, state.seen
        for name, value in fields.items():
            setattr(state, name, value)
        for number, digest, label in calls:
            self._compare_calls(rank, number, digest, label)
        if state.finished:
            # Ranks that waited for this one may have left their collective: only later reports count.
            for other in self.ranks.values():
                other.group = None

    def _compare_calls(self, rank: int, number: int, digest: int, label: str) -> None:
        """Compare the calls of a rank up to a number with those of the ranks that have reported it."""
        other_digest, other_label, other = self.calls.setdefault(number, (digest, label, rank))
        if digest != other_digest and self.different_calls is None:
            place = f"call {number}" if label != other_label else f"a call before call {number}"
            lines = {r: self._state(r).line or "an unknown line" for r in (other, rank)}
            self.different_calls = (
                f"ranks {other} and {rank} called different programs, so that results are wrong or ranks wait forever; "
                f"{place}: rank {other} {other_label} near {lines[other]}, rank {rank} {label} near {lines[rank]}"
            )
        if len(self.calls) > _MAX_REMEMBERED_CALLS:
            del self.calls[min(self.calls)]

    def all_finished(self) -> bool:
        """Return whether all ranks have ended normally."""
        return len(self.ranks) == self.rank_count and all(state.finished for state in self.ranks.values())

    def lost(self, rank: int) -> str | None:
        """Return the message for a closed connection; None if the rank has finished, or another one failed before."""
        state = self.ranks[rank]
        if state.finished or self.failed:
            return None
        at = f" at {state.line}" if state.line else ""
        last = f"; its last collective: {state.last_label}" if state.last_label else ""
        return f"rank {rank} of {self.rank_count} ({state.process}) was killed or crashed{at}{last}"

    def fault(self) -> str | None:
        """Return the message for different calls, or a collective that cannot complete or takes too long; None without one."""
        if self.different_calls is not None:
            return self.different_calls
        waiting = {rank: state for rank, state in self.ranks.items() if state.group is not None and not state.finished}
        persistent = {rank: state for rank, state in waiting.items() if state.waited_seconds >= _PERSISTENCE_SECONDS}
        for rank, state in persistent.items():
            missing = self._missing(state)
            finished = any(self._state(other).finished for other in missing)
            peers = [r for r in self._arrived(state) if r in persistent]
            differs = any(self.ranks[r].last_label != state.last_label for r in peers)
            if finished or differs or self._waits_for_itself(rank, persistent) or state.waited_seconds >= self.timeout_seconds:
                return self._waiting_message(state)
        return None

    def _state(self, rank: int) -> RankState:
        return self.ranks.get(rank, RankState(line="its start"))

    def _arrived(self, state: RankState) -> list[int]:
        """Return the ranks that are in the same collective."""
        assert state.group is not None
        return [rank for rank in state.group[0] if self._state(rank).group == state.group]

    def _missing(self, state: RankState) -> list[int]:
        """Return the ranks that have not entered this collective, nor a later one of the same group."""
        assert state.group is not None
        ranks, number = state.group
        groups = {rank: self._state(rank).group for rank in ranks}
        return [rank for rank, group in groups.items() if group is None or group[0] != ranks or group[1] < number]

    def _waits_for_itself(self, rank: int, persistent: dict[int, RankState]) -> bool:
        """Return whether a rank is in a deadlock: through other ranks, it waits for itself."""
        seen: set[int] = set()
        stack = self._missing(persistent[rank])
        while stack:
            other = stack.pop()
            if other == rank:
                return True
            if other not in seen and other in persistent:
                seen.add(other)
                stack.extend(self._missing(persistent[other]))
        return False

    def _waiting_message(self, state: RankState) -> str:
        arrived, missing = self._arrived(state), self._missing(state)
        waiting = [rank for rank in arrived if self.ranks[rank].last_label == state.last_label]
        others = [rank for rank in (*arrived, *missing) if rank not in waiting]
        head = f"{state.last_label}: {_ranks(waiting)} waited {state.waited_seconds:.0f} s"
        if not others:
            return f"{head}, and all ranks have arrived: MPI does not make progress"
        return f"{head} for {_ranks(others)}: " + "; ".join(f"rank {rank} {self._position(rank)}" for rank in others)

    def _position(self, rank: int) -> str:
        state = self._state(rank)
        if state.finished:
            return "has exited"
        return f"is in {state.last_label}" if state.group is not None else f"is at {state.line or 'an unknown line'}"


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, sorted(ranks)))}"


class _Connection:
    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self.rank: int | None = None
        self._unread = b""

    def lines(self) -> list[bytes] | None:
        """Return the lines that have arrived; None at the end of the connection."""
        try:
            received = self.socket.recv(1 << 16)
        except OSError:
            received = b""
        if not received:
            return None
        *lines, self._unread = (self._unread + received).split(b"\n")
        return lines


def serve(listener: socket.socket, job: JobState, token: str, write: Callable[[str], None]) -> None:
    """Accept the connections of all ranks, report the first fault and end the job; return when all ranks have ended."""
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    connections: set[_Connection] = set()
    deadline = time.monotonic() + _START_SECONDS

    def send_all(command: bytes) -> None:
        for connection in connections:
            try:
                connection.socket.sendall(command)
            except OSError:
                continue  # The rank has ended.

    def end_job(message: str | None) -> None:
        nonlocal deadline
        if message is None:
            return
        job.failed, deadline = True, time.monotonic() + _ABORT_SECONDS
        write(message)
        send_all(ABORT)

    started = is_done = False
    while time.monotonic() < deadline and (connections or not started):
        closed: list[_Connection] = []
        for key, _ in selector.select(REPORT_SECONDS):
            if key.data is None:
                connection = _Connection(listener.accept()[0])
                selector.register(connection.socket, selectors.EVENT_READ, connection)
                connections.add(connection)
                continue
            connection: _Connection = key.data
            lines = connection.lines()
            for line in lines or []:
                fields = json.loads(line)
                if connection.rank is None:
                    if fields.pop("token", None) != token:
                        lines = None
                        break
                    connection.rank = fields.pop("rank")
                    started, deadline = True, float("inf")
                assert connection.rank is not None
                job.report(connection.rank, fields)
            if lines is None:
                closed.append(connection)
        # After all reports, since a rank that fails ends the others. The selector returns events in their order: the rank that
        # died first comes first.
        for connection in closed:
            selector.unregister(connection.socket)
            connections.discard(connection)
            connection.socket.close()
            if connection.rank is not None:
                end_job(job.lost(connection.rank))
        if not job.failed:
            end_job(job.fault())
        if not job.failed and not is_done and job.all_finished():
            send_all(DONE)
            is_done = True


def main() -> None:
    """Run the monitor: arguments are the listening socket, the number of ranks and the timeout; the token is on stdin."""
    descriptor, rank_count, timeout_seconds = sys.argv[1:]
    job = JobState(int(rank_count), float(timeout_seconds))
    serve(
        socket.socket(fileno=int(descriptor)),
        job,
        sys.stdin.readline().strip(),
        lambda message: print(f"dlc: {message}", file=sys.stderr, flush=True),
    )


if __name__ == "__main__":
    main()
