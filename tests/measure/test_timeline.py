"""Durations of launches and tasks in a timeline."""

import numpy as np
import pytest

from dlc.measure.timeline import TimedRun
from dlc.runtime.program.host_program import Launch


def timed(tasks: list[tuple[int, int, int]], first: list[int]) -> TimedRun:
    """Return a run with these tasks: thread, start and end in nanoseconds."""
    rows = np.array([(1, k, *task) for k, task in enumerate(tasks)], np.int64).reshape(-1, 5)
    return TimedRun([Launch("f", (), ()) for _ in first[1:]], rows, first)


def test_gaps_between_tasks_are_excluded() -> None:
    # Four tasks of 100 ns and one of 400 ns, each including 20 ns for reading the clock, with gaps of 30 to 70 ns.
    quarters = [(1, 0, 120), (1, 150, 270), (1, 340, 460), (1, 480, 600)]
    run = timed([*quarters, (1, 650, 1070)], [0, 4, 5])
    quick, slow = run.task_seconds
    assert quick == pytest.approx(np.full(4, 100e-9)) and slow == pytest.approx([400e-9])
    assert run.launch_seconds == pytest.approx([600e-9, 420e-9])


def test_tasks_of_all_threads_are_included() -> None:
    run = timed([(1, 0, 120), (2, 10, 130), (1, 140, 260), (2, 160, 280)], [0, 4])
    (seconds,) = run.task_seconds
    assert seconds == pytest.approx(np.full(4, 100e-9))


def test_a_launch_without_tasks_takes_no_time() -> None:
    assert [s.tolist() for s in timed([(1, 0, 120)], [0, 0, 1]).task_seconds] == [[], pytest.approx([120e-9])]
    assert [s.tolist() for s in timed([], [0, 0]).task_seconds] == [[]]
