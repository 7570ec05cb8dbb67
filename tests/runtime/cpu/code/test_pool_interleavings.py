"""The thread pool of `runtime.ll` in every interleaving: each task runs once, calls return after their tasks, nobody sleeps forever."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dlc import backends
from dlc.runtime.cpu.record_table import assemble_records
from dlc.runtime.program.host_program import NULL_SLOT, Instruction, Launch, Parallel
from dlc.shapes.size_code import MIN_PARALLEL_BYTES
from tests.runtime.cpu.code.ir_interleavings import Program, State, explore, load, store

RUNTIME = (Path(backends.__file__).parent / "cpu" / "runtime.ll").read_text()
# Memory: the number of runs of each task, the words of programs, slots, the number of threads that have ended, and pools.
RECORDS, SLOTS, ENDED, POOLS, RUNS = 1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 18
MAX_TASKS, MAX_REPEATS, FUTEX_WAIT = 512, 2, 128
# Numbers of system calls.
ARCHITECTURE = """
define i64 @futex() {
  ret i64 1
}
define i64 @sched_setaffinity() {
  ret i64 2
}
define i64 @sched_getaffinity() {
  ret i64 3
}
define void @pause() {
  ret void
}
define i64 @ticks() {
  ret i64 0
}
define void @call(ptr %records, ptr %slots, ptr %pool, i64 %repeats, ptr %ended) {
entry:
  br label %next

next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %code = call i64 @dlc_execute(ptr %records, i64 1000, ptr %slots, ptr %pool)
  call void @returned(ptr %records, i64 %k)
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, %repeats
  br i1 %more, label %next, label %end

end:
  %before = atomicrmw add ptr %ended, i64 1 seq_cst
  ret void
}
define void @end(ptr %ended, i64 %callers, ptr %pool, ptr %sibling) {
entry:
  call void @wait_for(ptr %ended, i64 %callers)
  call void @dlc_pool_end(ptr %pool)
  %single = icmp eq ptr %pool, %sibling
  br i1 %single, label %end, label %second

second:
  call void @dlc_pool_end(ptr %sibling)
  br label %end

end:
  ret void
}
define void @link(ptr %pool, ptr %sibling, ptr %ended) {
  call void @dlc_pool_link(ptr %pool, ptr %sibling)
  %before = atomicrmw add ptr %ended, i64 1 seq_cst
  ret void
}
define void @limit(ptr %pool, i64 %first, i64 %second, ptr %ended) {
  call void @dlc_pool_limit(ptr %pool, i64 %first)
  call void @dlc_pool_limit(ptr %pool, i64 %second)
  %before = atomicrmw add ptr %ended, i64 1 seq_cst
  ret void
}
"""


class Scenario:
    """Threads that call programs of kernels, each with a number of tasks, and those of pools.

    Pools have `threads` threads, some of which may never be scheduled: only the `workers` of each run.
    """

    def __init__(
        self,
        workers: Sequence[int] = (1,),
        runtime: str = RUNTIME,
        limit: int | None = None,
        threads: int | None = None,
        **kernels: int,
    ) -> None:
        self.kernels, self.called = kernels, dict[int, list[str]]()
        names = {name: k for k, name in enumerate(kernels)}
        externals = {
            f"kernel_{name}": lambda state, k, arguments, number=number: self._run_task(state, k, number, arguments[1])
            for name, number in names.items()
        }
        externals |= {"syscall": system_call, "getcpu": lambda state, k, arguments: k, "returned": self._returned}
        externals |= {
            "wait_for": lambda state, k, arguments: 0 if load(state.memory, arguments[0], 8) == arguments[1] else None
        }
        self.program = Program(runtime + ARCHITECTURE, externals)
        self.state, self.callers, self.numbers = State(self.program, {}), 0, names
        # Threads that must not run tasks.
        self.idle = range(0)
        addresses = self.program.addresses
        self.pools = [POOLS + k * 4096 for k in range(len(workers))]
        for pool, count in zip(self.pools, workers, strict=True):
            self._run("dlc_pool_init", pool, threads or max(workers) + 1, addresses["@syscall"], addresses["@getcpu"])
            if limit is not None:
                self._run("dlc_pool_limit", pool, limit)
                self.idle = range(limit - 1, count)
            for _ in range(count):
                self.state.start("dlc_pool_worker", pool)

    def _run(self, function: str, *arguments: int) -> None:
        """Run a function to its end."""
        self.state.start(function, *arguments)
        while self.state.threads[-1]:
            (self.state,) = self.state.step(len(self.state.threads) - 1)
        self.state.threads.pop()
        self.state.thread_keys.pop()

    def call(self, *instructions: Instruction, repeats: int = 1) -> None:
        """Add a thread that runs a program on the first pool."""
        grids = {name: [tasks] for name, tasks in self.kernels.items()}
        table = assemble_records(instructions, NULL_SLOT + 1, grids)
        records = RECORDS + 1024 * self.callers
        words = table.relocate(records, lambda task: self.program.addresses[f"@kernel_{task[0]}"])
        for k, word in enumerate(words):
            store(self.state.memory, records + 8 * k, 8, word)
        launches = [launch for i in instructions for launch in (i.launches if isinstance(i, Parallel) else [i])]
        self.called[records] = [launch.kernel for launch in launches]
        self.state.start("call", records, SLOTS + 1024 * self.callers, self.pools[0], repeats, ENDED)
        self.callers += 1

    def link(self) -> None:
        """Add a thread that appends the second pool to the chain of the first one."""
        self.state.start("link", *self.pools, ENDED)
        self.callers += 1

    def limit_threads(self, first: int, second: int) -> None:
        """Add a thread that sets the limit of the first pool twice."""
        self.state.start("limit", self.pools[0], first, second, ENDED)
        self.callers += 1

    def explore(self) -> int:
        """Visit all states, with a thread that ends the pools after the callers; return the number of states."""
        self.state.start("end", ENDED, self.callers, self.pools[0], self.pools[-1])
        return explore(self.state)

    def _run_task(self, state: State, k: int, kernel: int, task: int) -> int:
        assert k not in self.idle, "a thread above the limit"
        name = list(self.kernels)[kernel]
        assert task < self.kernels[name], (name, task)
        address = RUNS + 8 * (kernel * MAX_TASKS + task)
        runs = load(state.memory, address, 8)
        assert runs < MAX_REPEATS, (name, task, runs)
        store(state.memory, address, 8, runs + 1)
        return 0

    def _returned(self, state: State, k: int, arguments: list[int]) -> int:
        """Require that each task has run once in each call."""
        records, index = arguments
        for name in self.called[records]:
            kernel = self.numbers[name]
            runs = [load(state.memory, RUNS + 8 * (kernel * MAX_TASKS + t), 8) for t in range(self.kernels[name])]
            assert runs == [index + 1] * len(runs), (name, runs)
        return 0


def system_call(state: State, k: int, arguments: list[int]) -> int:
    if arguments[0] != 1:
        return 0
    address, operation, value = arguments[1:4]
    if operation == FUTEX_WAIT:
        # Compare and sleep are one step.
        if load(state.memory, address, 4) == value & 0xFFFFFFFF:
            state.waits[k] = address
    else:
        for sleeper in [t for t, waits in sorted(state.waits.items()) if waits == address][:value]:
            del state.waits[sleeper]
    return 0


def launch(kernel: str) -> Launch:
    return Launch(kernel, (), (MIN_PARALLEL_BYTES,))


def two_launches(runtime: str = RUNTIME) -> Scenario:
    scenario = Scenario(runtime=runtime, a=2, b=2)
    scenario.call(launch("a"), launch("b"))
    return scenario


def test_launches_and_calls_in_sequence() -> None:
    assert two_launches().explore() > 1000
    scenario = Scenario(a=2)
    scenario.call(launch("a"), repeats=2)
    assert scenario.explore() > 1000


def test_several_workers() -> None:
    scenario = Scenario(workers=[2], a=2)
    scenario.call(launch("a"))
    assert scenario.explore() > 1000


@pytest.mark.parametrize("tasks", [127, 128, 255, 256, 383, 512])
def test_shares_of_many_tasks_are_claimed_in_blocks(tasks: int) -> None:
    """The caller claims from both ends: from the front of its own share, and from the back of the other one."""
    scenario = Scenario(workers=[0], threads=2, a=tasks)
    scenario.call(launch("a"))
    assert scenario.explore() > 10


def test_threads_claim_from_both_ends_of_a_share() -> None:
    scenario = Scenario(a=5)
    scenario.call(launch("a"))
    assert scenario.explore() > 1000


def more_shares_than_before(runtime: str = RUNTIME) -> Scenario:
    scenario = Scenario(runtime=runtime, threads=3, a=2, b=3)
    scenario.call(launch("a"), launch("b"))
    return scenario


def test_shares_without_tasks_in_earlier_launches() -> None:
    """A thread that is late for a launch of two tasks must not claim the third share of the next launch."""
    assert more_shares_than_before().explore() > 1000


def test_sections() -> None:
    """Tasks of one section are run by one thread; sections without a pool of their own run in sequence."""
    scenario = Scenario(a=2, b=1, c=2)
    scenario.call(Parallel(((launch("a"), launch("b")), (launch("c"),)), 2))
    assert scenario.explore() > 1000


def test_a_pool_in_use() -> None:
    """The second of two callers runs its tasks itself."""
    scenario = Scenario(a=2, b=2)
    scenario.call(launch("a"))
    scenario.call(launch("b"))
    assert scenario.explore() > 1000


def test_a_pool_that_is_linked_during_calls() -> None:
    scenario = Scenario(workers=[0, 0], a=2, b=2)
    scenario.call(launch("a"))
    scenario.call(launch("b"))
    scenario.link()
    assert scenario.explore() > 1000


def limited(runtime: str = RUNTIME) -> Scenario:
    scenario = Scenario(runtime=runtime, limit=1, a=2)
    scenario.call(launch("a"))
    return scenario


def test_threads_above_the_limit_run_no_tasks() -> None:
    assert limited().explore() > 10


def test_limits_that_change_during_calls() -> None:
    scenario = Scenario(a=2)
    scenario.call(launch("a"))
    scenario.limit_threads(1, 2)
    assert scenario.explore() > 1000
    scenario = Scenario(a=2)
    scenario.call(launch("a"))
    scenario.limit_threads(2, 1)
    assert scenario.explore() > 1000


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ("%excess = icmp uge i32 %index, %limit", "%excess = icmp ugt i32 %index, %limit", "above the limit"),
        ("  call void @dlc_pool_limit(ptr %pool, i64 4294967295)\n", "", "deadlock"),
    ],
    ids=["one too many", "no end"],
)
def test_faults_of_limits_are_found(before: str, after: str, error: str) -> None:
    assert RUNTIME.count(before) == 1
    with pytest.raises(AssertionError, match=error):
        limited(RUNTIME.replace(before, after)).explore()


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ("%wanted = icmp ne i32 %asleep, 0", "%wanted = icmp eq i32 %asleep, 7", "deadlock"),
        ("%seen = trunc i64 %generation to i32", "%seen = load i32, ptr %pool", "deadlock"),
        ("%all = icmp eq i32 %done, %narrow", "%all = icmp ule i32 1, %done", "'b'"),
        ("  store atomic i32 0, ptr %done.at monotonic, align 4\n", "", "deadlock"),
        ("%raised = add i64 %current, %claim", "%raised = add i64 %current, 0", "'a'"),
        (
            "%newer = icmp ugt i64 %word.generation, %generation",
            "%newer = icmp ugt i64 %word.generation, -1",
            "'[ab]'|deadlock",
        ),
        ("%outdated = icmp ne i64 %tag, %low.half", "%outdated = icmp ne i64 %tag, %tag", "'[ab]'|deadlock"),
    ],
    ids=["no wake", "sleep without check", "early return", "old count", "claim without effect", "late thread", "late tasks"],
)
def test_faults_are_found(before: str, after: str, error: str) -> None:
    assert RUNTIME.count(before) == 1
    runtime = RUNTIME.replace(before, after)
    with pytest.raises(AssertionError, match=error):
        two_launches(runtime).explore()
        more_shares_than_before(runtime).explore()
