"""The monitor's conclusions from the states of ranks, and its protocol."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import pytest

from dlc.runtime.collectives.monitor import ABORT, JobState, serve
from dlc.runtime.collectives.mpi import CallHistory


def job(*states: dict[str, Any]) -> JobState:
    """Return a job whose ranks reported these states at time 0."""
    state = JobState(len(states), timeout_seconds=300)
    # Only reports after the end of a rank show that others wait for it.
    for rank, fields in sorted(enumerate(states), key=lambda entry: "finished" not in entry[1]):
        state.report(rank, {"process": f"process {rank}", "line": f"train.py:{rank}", "group": None, "time": 0.0, **fields})
    return state


def waits(label: str, *ranks: int, number: int = 1) -> dict[str, Any]:
    return {"group": [ranks, number], "last_label": label}


def test_killed_rank() -> None:
    state = job({"last_label": "dl.all_reduce at train.py:9"}, {"finished": True}, {})
    assert state.lost(1) is None
    assert (
        state.lost(0)
        == "rank 0 of 3 (process 0) was killed or crashed at train.py:0; its last collective: dl.all_reduce at train.py:9"
    )
    state.report(2, {"failed": True})
    assert state.lost(0) is None  # a consequence


WAITS = waits("dl.all_reduce at train.py:9", 0, 1)


def test_finished_ranks_do_not_wait() -> None:
    """The last report of a rank may say that it is in a collective, though it has left it and finished."""
    state = job(WAITS, {"finished": True})
    state.report(0, {**WAITS, "time": 10.0})
    state.report(0, {"finished": True})
    assert state.fault() is None


def test_ranks_wait_after_the_end_of_the_missing_rank() -> None:
    """A rank that waited for another one may leave the collective, and report that after the other one has finished."""
    state = job(WAITS, {})
    state.report(0, {**WAITS, "time": 10.0})
    state.report(1, {"finished": True})
    assert state.fault() is None
    state.report(0, {**WAITS, "time": 11.0})
    assert state.fault() is None
    state.report(0, {**WAITS, "time": 14.0})
    assert state.fault() is not None


def test_times_are_those_of_the_waiting_rank() -> None:
    """Reports that arrive late do not make a wait longer."""
    state = job(WAITS, {"finished": True})
    state.report(1, {"time": 10.0, "group": None})
    state.report(0, {**WAITS, "time": 1.0})
    assert state.fault() is None


def test_different_orders_of_calls() -> None:
    """Ranks report at different times: calls are compared by their numbers."""
    state = job({"calls": [[1, 7, "f"], [2, 8, "g"]]}, {"calls": [[2, 8, "g"]]})
    assert state.fault() is None
    state.report(0, {"calls": [[3, 9, "f"]]})
    state.report(1, {"calls": [[4, 11, "f"]]})
    assert state.fault() is None
    state.report(0, {"finished": True, "calls": [[4, 10, "g"]]})
    expected = (
        "ranks 1 and 0 called different programs, so that results are wrong or ranks wait forever; call 4: "
        "rank 1 f near train.py:1, rank 0 g near train.py:0"
    )
    assert state.fault() == expected


def test_different_numbers_of_calls() -> None:
    """The last calls of finished ranks are compared, though one of them made more calls."""
    histories = CallHistory(), CallHistory()
    for history, labels in zip(histories, ("fffgfff", "ffffff"), strict=True):
        for label in labels:
            history.record(label)
    state = job(*({"calls": history.calls()} for history in histories))
    assert state.fault() is None
    for rank, history in enumerate(histories):
        state.report(rank, {"finished": True, "calls": history.recent_calls()})
    assert "a call before call 6: rank 1 f near train.py:1, rank 0 f near train.py:0" in (state.fault() or "")


@pytest.mark.parametrize(
    ("states", "seconds", "message"),
    [
        ([waits("a", 0, 1), {}], 299, None),
        ([waits("a", 0, 1), {}], 300, "a: rank 0 waited 300 s for rank 1: rank 1 is at train.py:1"),
        ([waits("a", 0, 1), {"finished": True}], 3, "a: rank 0 waited 3 s for rank 1: rank 1 has exited"),
        ([waits("a", 0, 1), waits("b", 0, 1)], 3, "a: rank 0 waited 3 s for rank 1: rank 1 is in b"),
        ([waits("a", 0, 1), waits("b", 0, 1)], 1, None),
        ([waits("a", 0, 1), waits("b", 0, 1, number=2)], 3, None),  # rank 0 will continue
        ([waits("a", 0, 1), waits("b", 1, 2), {}], 3, None),  # rank 2 may arrive
        ([waits("a", 0, 1), waits("b", 1, 2), waits("c", 0, 2)], 3, "a: rank 0 waited 3 s for rank 1: rank 1 is in b"),
        (
            [waits("a", 0, 1), waits("a", 0, 1)],
            300,
            "a: ranks 0, 1 waited 300 s, and all ranks have arrived: MPI does not make progress",
        ),
    ],
)
def test_waiting_ranks(states: list[dict[str, Any]], seconds: float, message: str | None) -> None:
    state = job(*states)
    for rank, fields in enumerate(states):
        if "finished" not in fields:
            state.report(rank, {"group": None, **fields, "time": seconds})
    assert state.fault() == message


def test_rank_that_has_not_started() -> None:
    state = JobState(2, timeout_seconds=300)
    for seconds in (0.0, 300.0):
        state.report(0, {**waits("a", 0, 1), "time": seconds})
    assert state.fault() == "a: rank 0 waited 300 s for rank 1: rank 1 is at its start"


def test_protocol() -> None:
    messages: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener, JobState(2, 300), "secret", messages.append))
        server.start()
        ranks = [socket.create_connection(listener.getsockname()) for _ in range(2)]
        with socket.create_connection(listener.getsockname()) as stranger:
            stranger.sendall(b'{"token": "wrong", "rank": 0}\n')
            assert stranger.recv(1) == b""
        for rank, connection in enumerate(ranks):
            connection.sendall(json.dumps({"token": "secret", "rank": rank, "process": "process"}).encode() + b"\n")
        ranks[1].sendall(b'{"line": "train.py:9"}\n')
        ranks[1].close()
        assert ranks[0].recv(16) == ABORT
        ranks[0].close()
        server.join()
    assert messages == ["rank 1 of 2 (process) was killed or crashed at train.py:9"]


def test_a_failure_is_reported_before_the_ranks_that_it_ends() -> None:
    messages: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener, JobState(2, 300), "secret", messages.append))
        ranks = [socket.create_connection(listener.getsockname()) for _ in range(2)]
        for rank, connection in enumerate(ranks):
            connection.sendall(json.dumps({"token": "secret", "rank": rank, "process": "process"}).encode() + b"\n")
        # The monitor reads the end of rank 0 and the report of rank 1 in the same round.
        ranks[1].sendall(b'{"failed": true}\n')
        ranks[0].close()
        ranks[1].close()
        server.start()
        server.join()
    assert not messages
