"""In-place updates of loop states."""

from __future__ import annotations

import pytest

from dlc.dialects import dl
from dlc.dialects.dl.programs.program import output_aliases
from dlc.dialects.registry import make_context
from dlc.ir import parse_module, print_module
from dlc.passes.fusion.update_in_place import UpdateInPlacePass

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


def marked(body: str, next_x: str = "%x", kernels: str = KERNELS) -> dict[int, int]:
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
    again = parse_module(make_context(), print_module(module))
    (dispatch,) = (op for op in again.walk() if isinstance(op, dl.program.DispatchOp) and op.symbol == "change")
    (kernel,) = (op for op in again.ops if isinstance(op, dl.program.KernelOp) and op.symbol == "change")
    assert output_aliases(kernel) == output_aliases(dispatch)
    return output_aliases(dispatch)


def test_rows_are_updated_in_place() -> None:
    assert marked(CHANGE) == {0: 0}
    assert marked(f"{READ}\n{CHANGE}", "%r") == {0: 0}


@pytest.mark.parametrize(
    ("body", "kernels"),
    [(f"{CHANGE}\n{READ}", KERNELS), (CHANGE, NEGATED)],
    ids=["what it was is read later", "what it was is changed everywhere"],
)
def test_a_state_that_is_read_later_is_copied(body: str, kernels: str) -> None:
    assert marked(body, "%r" if "%r" in body else "%x", kernels) == {}
