"""Sections of independent launches: which are formed, that they are correct, and that they share no memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.cost_model import SectionCosts
from dlc.dialects import host
from dlc.dialects.registry import make_context
from dlc.errors import CompileError
from dlc.ir import IntegerAttr, ModuleOp, i64, parse_module
from dlc.passes.host.bufferize_host import BufferizeHostPass
from dlc.passes.host.choose_sections import Access, LaunchCost, choose_groups, find_predecessors
from dlc.passes.host.form_sections import FormSectionsPass
from dlc.passes.host.plan_arena import PlanArenaPass, require_disjoint_sections
from dlc.runtime.program.host_program import Parallel

T = "tensor<64xf32>"


def chains(count: int, length: int) -> str:
    """Return a program of `count` chains of `length` launches, whose results are the operands of one launch."""
    lines = []
    for c in range(count):
        for k in range(length):
            source = "x" if k == 0 else f"v{c}_{k - 1}"
            lines.append(f"%v{c}_{k} = dl.dispatch @k(%{source}) : ({T}) -> {T}")
    ends = [f"%v{c}_{length - 1}" for c in range(count)]
    lines.append(f"%y = dl.dispatch @join({', '.join(ends)}) : ({', '.join([T] * count)}) -> {T}")
    return f"func.func @main(%x: {T}) -> {T} {{\n  " + "\n  ".join(lines) + f"\n  func.return %y : {T}\n}}"


def planned(text: str, mode: str = "auto") -> ModuleOp:
    module = parse_module(make_context(), text)
    for step in (BufferizeHostPass(), FormSectionsPass(mode=mode), PlanArenaPass()):
        step.apply(make_context(), module)
        module.verify()
    return module


def parallel_ops(module: ModuleOp) -> list[host.ParallelOp]:
    return [op for op in module.walk() if isinstance(op, host.ParallelOp)]


def memory(launch: Any) -> set[int]:
    """Return the arena offsets of a launch's arguments."""
    return {v.owner.offset.value.data for v in launch.operands if isinstance(v.owner, host.ArenaOp)}


def test_independent_chains_become_sections() -> None:
    (parallel,) = parallel_ops(planned(chains(4, 6), "on"))
    assert [len(section) for section in parallel.sections] == [6] * 4
    assert "4 sections take about" in parallel.reason.data
    assert not parallel_ops(planned(chains(4, 6), "off"))


def test_sections_use_disjoint_memory_and_reuse_their_own() -> None:
    (parallel,) = parallel_ops(planned(chains(3, 8), "on"))
    used = [set[int]().union(*map(memory, section)) for section in parallel.sections]
    assert all(len(offsets) <= 3 for offsets in used)
    assert not used[0] & used[1] and not used[0] & used[2] and not used[1] & used[2]


def test_a_chain_is_left_alone() -> None:
    for length in (1, 2, 30):
        assert not parallel_ops(planned(chains(1, length), "on"))


def test_the_planner_refuses_sections_that_share_memory() -> None:
    (parallel,) = parallel_ops(planned(chains(2, 20), "on"))
    require_disjoint_sections(parallel)
    # Within a section, memory is reused: split it into two.
    for k, launch in enumerate(parallel.sections[0]):
        launch.attributes[host.SECTION] = IntegerAttr(0 if k < 10 else 7, i64)
    with pytest.raises(CompileError, match="share memory"):
        require_disjoint_sections(parallel)


def launch(reads: list[Any], writes: list[Any], bytes: int = 1024, flops: int = 0) -> LaunchCost:
    accesses = [Access(root, 0, 8, False) for root in reads] + [Access(root, 0, 8, True) for root in writes]
    return LaunchCost(tuple(accesses), bytes, flops, bytes >= 32 << 10)


def test_random_schedules_respect_all_dependences() -> None:
    """Launches of different sections of a group are independent, and every launch follows those that it depends on."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        buffers = [object() for _ in range(int(rng.integers(2, 12)))]

        def some() -> list[Any]:
            return [buffers[k] for k in rng.integers(0, len(buffers), int(rng.integers(1, 3)))]  # noqa: B023

        launches = [launch(some(), some(), int(rng.integers(1, 1 << 18)), int(rng.integers(0, 1 << 20))) for _ in range(25)]
        groups = choose_groups(launches, SectionCosts(), always=bool(rng.integers(2)))
        assert sorted(k for group in groups for k in group.launches) == [*range(25)]
        pairs = [{j for j in range(k) if launches[j].conflicts_with(launches[k])} for k in range(25)]
        assert find_predecessors(launches) == pairs
        position = {k: (g, s) for g, group in enumerate(groups) for s, section in enumerate(group.sections) for k in section}
        for group in groups:
            assert all(section == sorted(section) for section in group.sections)
        for j in range(25):
            for k in range(j):
                if launches[k].conflicts_with(launches[j]):
                    assert position[k] <= position[j] and (position[k][0] < position[j][0] or position[k] == position[j])


def test_large_launches_are_not_grouped() -> None:
    x, ends = object(), [object() for _ in range(2)]
    large = [launch([x], [end], 64 << 20, 10**9) for end in ends]
    (group,) = choose_groups(large, SectionCosts())
    # Each uses all threads well: sections of two launches gain nothing on two threads.
    assert group.max_threads == 0 and "2 sections take about" in group.reason
    (group,) = choose_groups(large, SectionCosts(), always=True)
    assert group.max_threads > 2


def test_long_launches_run_alone_between_sections() -> None:
    """Branches of unequal times: the long launch of one uses all threads, and the others run in sections before it."""
    x, ends = object(), [object() for _ in range(4)]
    short = [launch([x], [end], 64 << 10, 10**6) for end in ends]
    long = [launch([ends[0]], [object()], 64 << 10, 10**8)]
    groups = choose_groups([*short, *long], SectionCosts())
    assert [group.sections for group in groups] == [[[0], [1], [2], [3]], [[4]]]
    assert groups[0].max_threads >= 2 and groups[1].max_threads == 0


def test_windows_of_one_buffer_are_independent() -> None:
    x, y = object(), object()
    parts = [LaunchCost((Access(x, 0, 64, False), Access(y, 64 * k, 64 * k + 64, True)), 2048, 0, False) for k in range(4)]
    (group,) = choose_groups(parts, SectionCosts(), always=True)
    assert len(group.sections) == 4
    unknown = LaunchCost((Access(None, 0, 8, True),), 64, 0, False)
    assert [len(g.sections) for g in choose_groups([*parts, unknown], SectionCosts(), always=True)] == [4, 1]


def ensemble(x: Any, weights: Any) -> Any:
    outputs = []
    for layers in weights:
        y = x
        for w in layers:
            y = dnp.tanh(y @ w)
        outputs.append(y)
    return sum(outputs[1:], outputs[0])


@pytest.mark.parametrize("threads", [1, 2, 3, 200])
def test_results_are_those_of_the_sequence(threads: int, tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    weights = [[rng.standard_normal((48, 48), np.float32) / 7 for _ in range(4)] for _ in range(8)]
    x = rng.standard_normal((4, 48), np.float32)
    models = {}
    for mode in ("off", "on", "auto"):
        compiled = dlc.jit(lambda x: ensemble(x, weights), inter_op=mode, num_threads=threads)
        models[mode] = compiled.lower(x).compile()
        has_sections = any(isinstance(i, Parallel) for i in models[mode].artifact.host.instructions)
        assert has_sections == (mode != "off")
    (expected,) = models["off"](x).values()
    models["on"].save(tmp_path / "m.dlc")
    for model in (models["on"], models["auto"], dlc.load(tmp_path / "m.dlc", num_threads=threads)):
        for _ in range(50):
            (result,) = model(x).values()
            np.testing.assert_array_equal(result, expected)
    (reference,) = dlc.jit(lambda x: ensemble(x, weights), inter_op="on", target="reference").lower(x).compile()(x).values()
    np.testing.assert_allclose(expected, reference, rtol=1e-4, atol=1e-5)


def test_branches_between_joins_are_sections() -> None:
    """In a sequence of modules with branches, every module has a group, whether or not its branches start at one launch."""
    launches: list[LaunchCost] = []
    state = object()
    for _ in range(3):
        ends = [object() for _ in range(4)]
        launches += [launch([state], [end]) for end in ends]
        state = object()
        launches.append(launch(ends, [state]))
    groups = choose_groups(launches, SectionCosts(), always=True)
    assert [len(group.sections) for group in groups] == [4, 1, 4, 1, 4, 1]


@pytest.mark.parametrize("kind", ["scan", "while", "branch"])
def test_sections_of_loops_and_branches(kind: str) -> None:
    """Towers whose states a loop exchanges between iterations are independent; a launch that reads both states is not."""
    rng = np.random.default_rng(0)
    first, second, mixed = (rng.standard_normal((64, 64), np.float32) / 8 for _ in range(3))
    x = rng.standard_normal((3, 2, 64), np.float32)

    def step(states: Any, row: Any) -> Any:
        a, b = states
        for _ in range(3):
            a, b = dnp.tanh((a + row) @ first), dnp.tanh((b - row) @ second)
        return (a, b + dnp.tanh(a @ mixed)), a

    def function(x: Any) -> Any:
        states = dnp.zeros((2, 64), np.float32), dnp.ones((2, 64), np.float32)
        if kind == "scan":
            return dlc.lax.scan(step, states, x)
        if kind == "while":
            body = lambda s: (*step(s[:2], x[0])[0], s[2] + 1)  # noqa: E731
            return dlc.lax.while_loop(lambda s: s[2] < 5, body, (*states, dnp.zeros((), np.int32)))
        return dlc.lax.cond(dnp.sum(x) < 1e9, lambda: step(states, x[0])[0], lambda: states)

    models = {mode: dlc.jit(function, inter_op=mode, num_threads=2).lower(x).compile() for mode in ("off", "on")}
    found = [i for i in nested(models["on"].artifact.host.instructions) if isinstance(i, Parallel)]
    assert any(len(launch.arguments) > 2 for parallel in found for launch in parallel.launches)
    for _ in range(20):
        for result, right in zip(models["on"](x).values(), models["off"](x).values(), strict=True):
            np.testing.assert_array_equal(result, right)


def nested(instructions: Any) -> list[Any]:
    """Return instructions, and those of loops and branches inside."""
    found = []
    for instruction in instructions:
        bodies = [getattr(instruction, name, ()) for name in ("body", "then", "otherwise")]
        found += [instruction, *(inner for body in bodies for inner in nested(body))]
    return found
