"""Collectives start after their last producer, and are awaited before the first op that accesses their memory."""

from __future__ import annotations

import pytest

from dlc.dialects import host
from dlc.dialects.entry import entry_of
from dlc.dialects.registry import make_context
from dlc.errors import CompileError
from dlc.ir import ModuleOp, Operation, parse_module
from dlc.passes.host.bufferize_host import BufferizeHostPass
from dlc.passes.host.overlap_collectives import OverlapCollectivesPass
from dlc.passes.host.plan_arena import PlanArenaPass, verify_pending_collectives

TYPE = "tensor<16xf32>"
REDUCE = 'dl.all_reduce %{x} {{axes = "data", group_size = 2 : i64, combine = "sum"}} : ({t}) -> {t}'


def run(*lines: str, result: str = "y", attributes: str = "") -> ModuleOp:
    """Return the planned program; `%b = f %a` is a dispatch, `%b = reduce %a` an all-reduce."""
    body: list[str] = []
    for line in lines:
        name, _, call = line.partition(" = ")
        function, *operands = call.split()
        names = ", ".join(operands)
        types = ", ".join([TYPE] * len(operands))
        dispatch = f"dl.dispatch @{function}({names}) : ({types}) -> {TYPE}"
        body.append(f"{name} = {REDUCE.format(x=operands[0][1:], t=TYPE) if function == 'reduce' else dispatch}")
    text = (
        f"func.func @main(%x: {TYPE}, %w: {TYPE}) -> ({TYPE}{attributes}) {{\n"
        + "\n".join(body)
        + f"\nfunc.return %{result} : {TYPE}\n}}"
    )
    return planned(text)


def planned(text: str) -> ModuleOp:
    """Return the planned program of a module."""
    module = parse_module(make_context(), text)
    for step in (BufferizeHostPass(), OverlapCollectivesPass(), PlanArenaPass()):
        step.apply(make_context(), module)
        module.verify()
    return module


def order(module: ModuleOp) -> list[str]:
    """Return the kernels and calls of a program in order, without progress calls."""

    def name(op: Operation) -> str | None:
        if isinstance(op, host.LaunchOp):
            return op.symbol
        if isinstance(op, host.IfOp):
            return "if"
        return op.function.data if isinstance(op, host.ComputeOp) and op.function.data != "progress" else None

    return [text for text in map(name, entry_of(module).body.block.ops) if text is not None]


def test_launches_run_while_a_collective_is_pending() -> None:
    module = run("%a = f %x", "%b = g %x", "%c = h %b", "%r = reduce %a", "%y = k %r %c")
    assert order(module) == ["f", "all_reduce", "g", "h", "wait", "k"]
    calls = [op for op in entry_of(module).body.block.ops if isinstance(op, host.ComputeOp)]
    assert [op.function.data for op in calls] == ["all_reduce", "progress", "progress", "wait"]


def test_a_collective_that_nothing_overlaps_stays_blocking() -> None:
    assert order(run("%a = f %x", "%r = reduce %a", "%y = k %r")) == ["f", "all_reduce", "k"]


def test_several_collectives_are_pending() -> None:
    lines = "%a = f %x", "%b = g %x", "%c = h %x", "%r = reduce %b", "%s = reduce %a", "%t = k %s %c", "%y = l %r %t"
    assert order(run(*lines)) == ["f", "all_reduce", "g", "all_reduce", "h", "wait", "k", "wait", "l"]


def test_results_are_complete_at_the_end() -> None:
    assert order(run("%y = reduce %x", "%a = f %x", "%b = g %a")) == ["all_reduce", "f", "g", "wait"]


def test_an_output_that_overwrites_an_operand_waits() -> None:
    lines = "%r = reduce %x", "%a = f %w", "%y = g %a"
    assert order(run(*lines)) == ["all_reduce", "f", "g", "wait"]
    assert order(run(*lines, attributes=" {dl.donor = 0 : i64}")) == ["all_reduce", "f", "wait", "g"]


def test_pending_memory_is_not_reused() -> None:
    """The operand and the result keep their memory until the wait; a program that violates this is refused."""
    module = run("%a = f %x", "%r = reduce %a", "%b = g %x", "%c = h %b", "%d = g %c", "%y = k %r %d")
    block = entry_of(module).body.block
    arenas = [op for op in block.ops if isinstance(op, host.ArenaOp)]
    assert len({op.offset.value.data for op in arenas}) == len(arenas) - 1  # %d takes the memory of %b.
    wait = next(op for op in block.ops if isinstance(op, host.ComputeOp) and op.function.data == "wait")
    last = next(op for op in block.ops if isinstance(op, host.LaunchOp) and op.symbol == "k")
    wait.detach()
    block.insert_op_after(wait, last)
    with pytest.raises(CompileError, match="accesses the memory of a collective that has started"):
        verify_pending_collectives(block)


BRANCH = """
func.func @main(%x: tensor<16xf32>, %w: tensor<16xf32>, %c: tensor<i1>) -> (tensor<16xf32>, tensor<16xf32>) {
  %a = dl.dispatch @f(%x) : (tensor<16xf32>) -> tensor<16xf32>
  %b = dl.if %c : (tensor<i1>) -> tensor<16xf32> {
    %g = dl.dispatch @g(%w) : (tensor<16xf32>) -> tensor<16xf32>
    dl.yield %g : tensor<16xf32>
  } {
    OTHER
  }
  %r = dl.permute %a {axes = "data", group_size = 2 : i64, pairs = array<i64: 0, 1, 1, 0>} : (tensor<16xf32>) -> tensor<16xf32>
  %y = dl.dispatch @k(%r) : (tensor<16xf32>) -> tensor<16xf32>
  func.return %y, %b : tensor<16xf32>, tensor<16xf32>
}
"""


@pytest.mark.parametrize("other", ["dl.yield %w : tensor<16xf32>", 'dl.fail "no"'], ids=["values", "failure"])
def test_branches_run_while_a_permutation_is_pending(other: str) -> None:
    """MPI makes progress inside the branch as well; one that fails leaves the permutation pending."""
    module = planned(BRANCH.replace("OTHER", other))
    assert order(module) == ["f", "permute", "if", "wait", "k"]
    branch = next(op for op in entry_of(module).body.block.ops if isinstance(op, host.IfOp))
    assert [op.function.data for op in branch.walk() if isinstance(op, host.ComputeOp)][:1] == ["progress"]


def test_branches_that_exchange_data_wait() -> None:
    reduced = REDUCE.format(x="w", t=TYPE)
    module = planned(BRANCH.replace("OTHER", f"%s = {reduced}\n    dl.yield %s : {TYPE}"))
    assert order(module) == ["f", "if", "permute", "k"]


def test_a_collective_ends_in_its_iteration() -> None:
    """The result of a collective is an element of the stack: no op of the body reads it."""
    module = planned(f"""
func.func @main(%x: {TYPE}, %xs: tensor<5x16xf32>) -> ({TYPE}, tensor<5x16xf32>) {{
  %y, %ys = dl.scan %x, %xs {{states = 1 : i64, length = array<i64: 5>}} : ({TYPE}, tensor<5x16xf32>) -> ({TYPE}, tensor<5x16xf32>) {{
  ^bb0(%state: {TYPE}, %e: {TYPE}):
    %r = {REDUCE.format(x="e", t=TYPE)}
    %g = dl.dispatch @g(%state) : ({TYPE}) -> {TYPE}
    dl.yield %g, %r : {TYPE}, {TYPE}
  }}
  func.return %y, %ys : {TYPE}, tensor<5x16xf32>
}}""")
    loop = next(op for op in entry_of(module).body.block.ops if isinstance(op, host.LoopOp))
    calls = [op.function.data for op in loop.walk() if isinstance(op, host.ComputeOp)]
    requests = [op.settings.data.count('"request"') for op in loop.walk() if isinstance(op, host.ComputeOp)]
    assert calls == ["all_reduce", "progress", "wait"] and requests == [1, 1, 1]
