"""What a timeline says of launches."""

import numpy as np
import pytest

from dlc.measure.timeline import Timed
from dlc.runtime.program.host_program import Launch


def timed(tasks: list[tuple[int, int, int]], first: list[int]) -> Timed:
    """Tasks as thread, nanoseconds at the begin and at the end."""
    rows = np.array([(1, k, *task) for k, task in enumerate(tasks)], np.int64).reshape(-1, 5)
    return Timed([Launch("f", (), ()) for _ in first[1:]], rows, first)


def test_what_is_between_tasks_is_none_of_theirs() -> None:
    # Four tasks of 100 ns and one of 400, each with 20 ns of the clock, and 30 to 70 between them.
    quarters = [(1, 0, 120), (1, 150, 270), (1, 340, 460), (1, 480, 600)]
    run = timed([*quarters, (1, 650, 1070)], [0, 4, 5])
    assert run.of_tasks == pytest.approx([400e-9, 400e-9])
    assert run.of_launches == pytest.approx([600e-9, 420e-9])


def test_tasks_of_all_threads_count() -> None:
    run = timed([(1, 0, 120), (2, 10, 130), (1, 140, 260), (2, 160, 280)], [0, 4])
    assert run.of_tasks == pytest.approx([400e-9])


def test_a_launch_without_tasks_takes_no_time() -> None:
    assert timed([(1, 0, 120)], [0, 0, 1]).of_tasks == pytest.approx([0, 120e-9])
    assert timed([], [0, 0]).of_tasks == [0]
