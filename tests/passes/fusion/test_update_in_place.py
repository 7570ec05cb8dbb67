"""In-place updates of loop states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.dialects import dl
from dlc.dialects.dl.programs.program import output_aliases
from dlc.dialects.registry import make_context
from dlc.ir import Context, parse_module, print_module
from dlc.passes.fusion.update_in_place import UpdateInPlacePass
from dlc.pipelines import stages_of
from dlc.target import resolve

T, ROW = "tensor<11x3xf32>", "tensor<3xf32>"
CHANGE = f"%n = dl.dispatch @change(%a, %i, %x) : ({T}, tensor<i64>, {ROW}) -> {T}"
READ = f"%r = dl.dispatch @read(%a) : ({T}) -> {ROW}"
KERNELS = f"""
  dl.kernel @change(%a: {T}, %i: tensor<i64>, %x: {ROW}) -> ({T}) {{
    %y = dl.scatter_rows %a, %i, %x {{mode = "none"}} : ({T}, tensor<i64>, {ROW}) -> {T}
    dl.yield %y : {T}
  }}
  dl.kernel @read(%a: {T}) -> ({ROW}) {{
    %y = dl.reduce_sum %a {{axes = array<i64: 0>, keepdims = false}} : ({T}) -> {ROW}
    dl.yield %y : {ROW}
  }}
"""
NEGATED = f"""
  dl.kernel @change(%a: {T}, %i: tensor<i64>, %x: {ROW}) -> ({T}) {{
    %b = dl.neg %a : ({T}) -> {T}
    %y = dl.scatter_rows %b, %i, %x {{mode = "none"}} : ({T}, tensor<i64>, {ROW}) -> {T}
    dl.yield %y : {T}
  }}
"""


BOTH = f"""
  dl.kernel @both(%a: {T}, %b: {T}) -> ({ROW}) {{
    %c = dl.sub %a, %b : ({T}, {T}) -> {T}
    %y = dl.reduce_sum %c {{axes = array<i64: 0>, keepdims = false}} : ({T}) -> {ROW}
    dl.yield %y : {ROW}
  }}
"""


def updated(body: str, next_x: str = "%x", kernels: str = KERNELS) -> tuple[list[str], list[dict[int, int]]]:
    """Return the names of the body's dispatches, in order, and the aliases of those that change rows."""
    module = parse_module(
        make_context(),
        f"""
func.func @main(%t: {T}, %i: tensor<i64>, %first: {ROW}) -> ({T}, {ROW}) {{
  %0, %1 = dl.scan %t, %first {{states = 2 : i64, length = array<i64: 11>}} : ({T}, {ROW}) -> ({T}, {ROW}) {{
  ^bb0(%a: {T}, %x: {ROW}):
    {body}
    dl.yield %n, {next_x} : {T}, {ROW}
  }}
  func.return %0, %1 : {T}, {ROW}
}}
{kernels}""",
    )
    UpdateInPlacePass().apply(make_context(), module)
    module = parse_module(make_context(), print_module(module))
    module.verify()
    dispatches = [op for op in module.walk() if isinstance(op, dl.program.DispatchOp)]
    kernels_by_name = {op.symbol: op for op in module.ops if isinstance(op, dl.program.KernelOp)}
    changes = [op for op in dispatches if op.symbol.startswith("change")]
    assert all(output_aliases(op) == output_aliases(kernels_by_name[op.symbol]) for op in changes)
    return [op.symbol for op in dispatches], [output_aliases(op) for op in changes]


def test_rows_are_updated_in_place() -> None:
    assert updated(CHANGE)[1] == [{0: 0}]
    assert updated(f"{READ}\n{CHANGE}", "%r")[1] == [{0: 0}]


def test_an_update_moves_after_the_readers_of_the_old_state() -> None:
    assert updated(f"{CHANGE}\n{READ}", "%r") == (["read", "change"], [{0: 0}])


def test_several_updates_in_one_step() -> None:
    first = CHANGE.replace("%n =", "%m =")
    second = CHANGE.replace("%a", "%m")
    names, aliases = updated(f"{first}\n{READ}\n{second}", "%r")
    assert names[0] == "read"
    assert aliases == [{0: 0}, {0: 0}]


@pytest.mark.parametrize(
    ("body", "kernels"),
    [
        (f"{CHANGE}\n%r = dl.dispatch @both(%a, %n) : ({T}, {T}) -> {ROW}", KERNELS + BOTH),
        (CHANGE, NEGATED),
        (
            f"{CHANGE.replace('%n =', '%m =')}\n{CHANGE.replace('@change(%a', '@all(%m')}",
            KERNELS + NEGATED.replace("@change", "@all"),
        ),
    ],
    ids=["old and new state are read together", "every row is changed", "the second update changes every row"],
)
def test_other_states_are_copied(body: str, kernels: str) -> None:
    assert updated(body, "%r" if "%r" in body else "%x", kernels)[1] == [{}]


def test_an_update_stays_before_the_update_of_what_it_reads() -> None:
    """The first state is updated in place; the update of the second one reads it, and may not move after that."""
    module = parse_module(
        make_context(),
        f"""
func.func @main(%t: {T}, %i: tensor<i64>, %x: {ROW}) -> ({T}, {T}) {{
  %0, %1, %2 = dl.scan %t, %t, %x {{states = 3 : i64, length = array<i64: 11>}} : ({T}, {T}, {ROW}) -> ({T}, {T}, {ROW}) {{
  ^bb0(%a: {T}, %b: {T}, %y: {ROW}):
    %d = dl.dispatch @other(%b, %i, %a) : ({T}, tensor<i64>, {T}) -> {T}
    {CHANGE}
    %r = dl.dispatch @read(%b) : ({T}) -> {ROW}
    dl.yield %n, %d, %r : {T}, {T}, {ROW}
  }}
  func.return %0, %1 : {T}, {T}
}}
dl.kernel @other(%b: {T}, %i: tensor<i64>, %a: {T}) -> ({T}) {{
  %x = dl.reduce_sum %a {{axes = array<i64: 0>, keepdims = false}} : ({T}) -> {ROW}
  %y = dl.scatter_rows %b, %i, %x {{mode = "none"}} : ({T}, tensor<i64>, {ROW}) -> {T}
  dl.yield %y : {T}
}}
{KERNELS}""".replace("%x)", "%y)", 1),
    )
    UpdateInPlacePass().apply(make_context(), module)
    dispatches = {op.symbol: op for op in module.walk() if isinstance(op, dl.program.DispatchOp)}
    assert dispatches["other"].is_before_in_block(dispatches["change"])
    assert output_aliases(dispatches["change"]) == {0: 0}
    assert output_aliases(dispatches["other"]) == {}


def test_nested_and_consecutive_loops_work_on_one_buffer() -> None:
    """An inner loop changes the state of the outer one, and a second loop continues with its result."""

    def rows(x: Any, w: Any) -> Any:
        def change(k: Any, x: Any) -> Any:
            return lax.fori_loop(0, 40, lambda t, x: x.at[(t + k) % 3].set(dnp.tanh(x[t % 3] @ w)), x)

        return lax.fori_loop(0, 50, change, lax.fori_loop(0, 45, change, x))

    x, w = np.random.default_rng(0).standard_normal((3, 64)), np.random.default_rng(1).standard_normal((64, 64)) * 0.1
    function = dlc.jit(rows, cache=False)
    module = function.lower(x, w).program.module.clone()
    for current in [p for stage in stages_of(resolve("cpu"))[:2] for p in stage.passes]:
        current.apply(Context(), module)
    aliases = [output_aliases(op) for op in module.walk() if isinstance(op, dl.ScanOp)]
    assert aliases == [{}, {0: 0}, {0: 0}, {0: 0}]
    expected = x.copy()
    for k in (*range(45), *range(50)):
        for t in range(40):
            expected[(t + k) % 3] = np.tanh(expected[t % 3] @ w)
    np.testing.assert_allclose(function(x, w), expected)


def test_a_state_that_is_read_after_an_inner_loop_is_copied() -> None:
    def rows(x: Any, w: Any) -> Any:
        def change(_: Any, x: Any) -> Any:
            changed = lax.fori_loop(0, 40, lambda t, x: x.at[t % 3].set(dnp.tanh(x[t % 3] @ w)), x)
            return changed + x

        return lax.fori_loop(0, 45, change, x)

    x, w = np.random.default_rng(0).standard_normal((3, 64)), np.random.default_rng(1).standard_normal((64, 64)) * 0.1
    expected = x
    for _ in range(45):
        changed = expected.copy()
        for t in range(40):
            changed[t % 3] = np.tanh(changed[t % 3] @ w)
        expected = changed + expected
    np.testing.assert_allclose(dlc.jit(rows, cache=False)(x, w), expected)


def test_gradient_of_rows_that_a_loop_writes() -> None:
    """The reverse loop clears the row of a step and adds to the row before it."""

    def total(x: Any) -> Any:
        last = dlc.lax.fori_loop(1, 40, lambda t, x: x.at[t].set(x[t - 1] * x[t - 1] + x[t] * x[t - 1]), x)
        return (last * last).sum()

    # Long rows, so that the loop stays in the host program.
    x, direction = np.random.default_rng(0).uniform(0.1, 0.4, (2, 40, 700))
    function = dlc.jit(total, cache=False)
    difference = (function(x + 1e-6 * direction) - function(x - 1e-6 * direction)) / 2e-6
    gradient = dlc.jit(dlc.grad(total), cache=False)(x)
    np.testing.assert_allclose((gradient * direction).sum(), difference, rtol=1e-6)
