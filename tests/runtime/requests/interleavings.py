"""Systematic concurrency testing: run a program under every schedule of its threads, up to a number of preemptions.

As in CHESS (Musuvathi and Qadeer, 2007), one thread runs at a time, and switches happen at lock operations only. That is complete
for programs whose shared state is guarded by locks. Schedules are enumerated depth first; each is replayed from the start.
Time is simulated: it advances when a timed wait ends, which the scheduler may decide at any time at the cost of a preemption.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

# A program that takes more steps does not end.
_MAX_STEPS = 5000


class DeadlockError(AssertionError):
    """No thread can run, but some have not ended."""


@dataclass(eq=False)
class _Thread:
    number: int
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    # The lock that it waits for, and when it stops waiting.
    lock: ControlledLock | None = None
    until: float | None = None
    timed_out: bool = False
    ended: bool = False


class Schedule:
    """One run: the threads, the simulated time and the choices so far."""

    def __init__(self, prefix: list[int], max_preemptions: int) -> None:
        self.prefix, self.preemptions = prefix, max_preemptions
        # For each step, the chosen alternative and the number of alternatives.
        self.choices: list[tuple[int, int]] = []
        self.time = 0.0
        self.errors: list[BaseException] = []
        self._threads: list[_Thread] = []
        self._current: _Thread | None = None
        self._back = threading.Semaphore(0)
        self._of_system: dict[int, _Thread] = {}

    def lock(self) -> ControlledLock:
        return ControlledLock(self)

    def start(self, main: Callable[[], None], name: str = "") -> None:
        thread = _Thread(len(self._threads))
        self._threads.append(thread)

        def body() -> None:
            thread.turn.acquire()
            self._of_system[threading.get_ident()] = thread
            try:
                main()
            except BaseException as error:
                self.errors.append(error)
            thread.ended = True
            self._back.release()

        threading.Thread(target=body, daemon=True).start()

    def pause(self, lock: ControlledLock, until: float | None) -> bool:
        """Let the scheduler choose who runs next; return whether the lock became free for this thread in time."""
        thread = self._of_system.get(threading.get_ident())
        if thread is None:
            # The test itself, before it starts threads and after they have ended.
            assert lock.is_free
            return True
        thread.lock, thread.until, thread.timed_out = lock, until, False
        self._back.release()
        thread.turn.acquire()
        thread.lock = None
        return not thread.timed_out

    def run(self) -> None:
        """Run all threads to their end. Raises DeadlockError, or the first error of a thread."""
        while (live := [t for t in self._threads if not t.ended]) and not self.errors:
            free = [t for t in live if t.lock is None or t.lock.is_free]
            timed = [t for t in live if t not in free and t.until is not None]
            if not free and not timed:
                raise DeadlockError(f"threads {[t.number for t in live]} wait for each other")
            if free:
                # The current thread first: continuing it is free, everything else is a preemption if it could continue.
                free.sort(key=lambda t: (t is not self._current, t.number))
                could_continue = free[0] is self._current
                alternatives = [(t, False) for t in free] + [(t, True) for t in timed]
                if self.preemptions == 0:
                    alternatives = alternatives[:1] if could_continue else [(t, False) for t in free]
            else:
                could_continue, alternatives = False, [(t, True) for t in timed]
                alternatives.sort(key=lambda a: a[0].until or 0.0)
                alternatives = alternatives[:1]
            k = self.prefix[len(self.choices)] if len(self.choices) < len(self.prefix) else 0
            self.choices.append((k, len(alternatives)))
            assert len(self.choices) < _MAX_STEPS, "the program does not end"
            thread, timed_out = alternatives[k]
            self.preemptions -= k > 0 and bool(could_continue or timed_out)
            if timed_out:
                thread.timed_out = True
                self.time = max(self.time, thread.until or 0.0)
            self._current = thread
            thread.turn.release()
            self._back.acquire()
        if self.errors:
            raise self.errors[0]


class ControlledLock:
    """A lock whose operations are the scheduling points."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.is_free = True

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        until = None if timeout < 0 else self._schedule.time + timeout
        if self._schedule.pause(self, until):
            assert self.is_free
            self.is_free = False
            return True
        return False

    def release(self) -> None:
        assert not self.is_free, "release of a free lock"
        self.is_free = True

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


def explore(program: Callable[[Schedule], Callable[[], None]], max_preemptions: int) -> int:
    """Run a program under all schedules; return their number.

    `program(schedule)` starts the threads and returns a function that checks the result of a run.
    """
    return sum(1 for _ in _runs(program, max_preemptions))


def _runs(program: Callable[[Schedule], Callable[[], None]], max_preemptions: int) -> Iterator[Schedule]:
    prefix: list[int] = []
    while True:
        schedule = Schedule(prefix, max_preemptions)
        check = program(schedule)
        try:
            schedule.run()
            check()
        except BaseException as error:
            raise AssertionError(f"schedule {[k for k, _ in schedule.choices]}: {error!r}") from error
        yield schedule
        prefix = [k for k, _ in schedule.choices]
        while prefix and prefix[-1] + 1 == schedule.choices[len(prefix) - 1][1]:
            prefix.pop()
        if not prefix:
            return
        prefix[-1] += 1
