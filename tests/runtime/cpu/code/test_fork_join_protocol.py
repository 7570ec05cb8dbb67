"""The pool's protocol as a model, checked in every interleaving: claiming, joining, sleeping and waking (see runtime.ll).

Each thread is a generator that yields before every access to shared memory, with sequentially consistent memory. The states of a
generator are its local variables and its position, so that the search visits every reachable state once.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TypeAlias

import pytest

Thread: TypeAlias = "Generator[None, None, None]"


@dataclass
class Pool:
    """The shared memory, with the names of %Pool; `waits` has the futex at which each thread sleeps."""

    num_tasks: tuple[int, ...]
    generation: int = 0
    left: int = 0
    task: int = -1
    tasks: int = 0
    done: int = 0
    asleep: bool = False
    sleepers: int = 0
    ends: bool = False
    waits: dict[int, str] = field(default_factory=dict[int, str])
    runs: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def sleep(self, me: int, futex: str, expected: int) -> None:
        """FUTEX_WAIT: compare and sleep are one atomic step."""
        if (self.generation if futex == "generation" else self.done) == expected:
            self.waits[me] = futex

    def wake(self, futex: str, count: int) -> None:
        for k in [k for k, f in sorted(self.waits.items()) if f == futex][:count]:
            del self.waits[k]


def work(pool: Pool) -> Thread:
    """`@work`: claim single tasks until none is left."""
    while True:
        yield
        seen = pool.generation, pool.left
        if not seen[1]:
            return
        yield
        task, tasks = pool.task, pool.tasks
        yield
        if (pool.generation, pool.left) != seen:
            continue
        pool.left -= 1
        yield
        pool.runs.append((task, tasks - seen[1]))
        yield
        pool.done += 1
        if pool.done == tasks:
            yield
            if pool.asleep:
                yield
                pool.wake("done", 1)


def worker(pool: Pool, me: int) -> Thread:
    """`@dlc_pool_worker`, which does not spin."""
    while True:
        yield
        generation, left = pool.generation, pool.left
        if left:
            yield from work(pool)
            continue
        yield
        if pool.ends:
            return
        yield
        pool.sleepers += 1
        yield
        pool.sleep(me, "generation", generation)
        yield
        pool.sleepers -= 1


def caller(pool: Pool, me: int) -> Thread:
    """`@fork_join` for each entry of `num_tasks`, then `@dlc_pool_end`."""
    for task, tasks in enumerate(pool.num_tasks):
        yield
        pool.task, pool.tasks, pool.done = task, tasks, 0
        yield
        pool.generation, pool.left = pool.generation + 1, tasks
        yield
        sleepers = pool.sleepers
        if sleepers:
            yield
            pool.wake("generation", min(sleepers, tasks - 1))
        yield from work(pool)
        yield
        if pool.done != tasks:
            yield
            pool.asleep = True
            while True:
                yield
                done = pool.done
                if done == tasks:
                    break
                yield
                pool.sleep(me, "done", done)
            yield
            pool.asleep = False
        assert sorted(run for run in pool.runs if run[0] == task) == [(task, k) for k in range(tasks)]
    yield
    pool.ends = True
    yield
    pool.generation += 1
    yield
    pool.wake("generation", len(pool.num_tasks) + 9)


def start(num_workers: int, num_tasks: tuple[int, ...]) -> tuple[Pool, list[Thread]]:
    pool = Pool(num_tasks)
    return pool, [caller(pool, 0), *(worker(pool, k) for k in range(1, num_workers + 1))]


def position(thread: Thread) -> tuple[object, ...]:
    """Return the state of a generator: its positions and local variables, except for the pool."""
    state: list[object] = []
    while thread is not None:
        frame = thread.gi_frame
        if frame is None:
            return ("end",)
        state += [thread.gi_code.co_name, frame.f_lasti, *(v for v in frame.f_locals.values() if not isinstance(v, Pool))]
        thread = thread.gi_yieldfrom  # pyright: ignore[reportAssignmentType]
    return tuple(state)


def replay(schedule: tuple[int, ...], num_workers: int, num_tasks: tuple[int, ...]) -> tuple[Pool, list[Thread]]:
    pool, threads = start(num_workers, num_tasks)
    for k in schedule:
        next(threads[k], None)
    return pool, threads


def explore(num_workers: int, num_tasks: tuple[int, ...]) -> int:
    """Visit all reachable states; return their number. Raises AssertionError for a deadlock or a task that runs twice."""
    seen, frontier = set[object](), [()]
    while frontier:
        schedule = frontier.pop()
        pool, threads = replay(schedule, num_workers, num_tasks)
        positions = [position(t) for t in threads]
        shared = (pool.generation, pool.left, pool.task, pool.tasks, pool.done, pool.asleep, pool.sleepers, pool.ends)
        state = shared, tuple(sorted(pool.waits.items())), tuple(sorted(pool.runs)), tuple(map(str, positions))
        if state in seen:
            continue
        seen.add(state)
        live = [k for k, p in enumerate(positions) if p != ("end",)]
        able = [k for k in live if k not in pool.waits]
        assert able or not live, f"deadlock: {positions}"
        frontier += [(*schedule, k) for k in able]
    return len(seen)


@pytest.mark.parametrize(("num_workers", "num_tasks", "min_states"), [(1, (2, 2), 500), (2, (2,), 1000)])
def test_every_task_runs_once_and_nobody_sleeps_forever(num_workers: int, num_tasks: tuple[int, ...], min_states: int) -> None:
    assert explore(num_workers, num_tasks) > min_states
