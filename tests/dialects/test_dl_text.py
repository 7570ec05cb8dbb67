"""Round trips of `dl` programs through text: symbolic sizes, literals and kernels."""

from __future__ import annotations

import pytest

from dlc.dialects import dl
from dlc.ir import Builtin, Context, ModuleOp, ParseError, VerifyException, func, parse_module, print_module

PROGRAM = """\
builtin.module {
  func.func @main(%x: tensor<?x3xf32, #dl.dims<"batch size", 3>>) -> tensor<?x3xf32, #dl.dims<"batch size", 3>> {
    %0 = dl.constant {value = dense<[1.000000e+00, -2.500000e+00, 0x7f800000]> : tensor<3xf32>} : () -> tensor<3xf32>
    %1 = dl.weight {symbol = @w7, type = tensor<3xf32>} : () -> tensor<3xf32>
    %2 = dl.mul %0, %1 : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
    %3 = dl.dispatch @add(%x, %2) : (tensor<?x3xf32, #dl.dims<"batch size", 3>>, tensor<3xf32>) -> tensor<?x3xf32, #dl.dims<"batch size", 3>>
    func.return %3 : tensor<?x3xf32, #dl.dims<"batch size", 3>>
  }
  dl.kernel @add(%0: tensor<?x3xf32, #dl.dims<"batch size", 3>>, %1: tensor<3xf32>) -> (tensor<?x3xf32, #dl.dims<"batch size", 3>>) {
    %2 = dl.add %0, %1 : (tensor<?x3xf32, #dl.dims<"batch size", 3>>, tensor<3xf32>) -> tensor<?x3xf32, #dl.dims<"batch size", 3>>
    dl.yield %2 : tensor<?x3xf32, #dl.dims<"batch size", 3>>
  }
}
"""


def parse(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, func.Func, dl.Dl):
        context.load_dialect(dialect)
    return parse_module(context, text)


def test_round_trip() -> None:
    module = parse(PROGRAM)
    module.verify()
    assert print_module(module) == PROGRAM
    again = parse(print_module(module, generic=True))
    again.verify()
    assert print_module(again) == PROGRAM


def test_a_dispatch_in_a_kernel_is_refused() -> None:
    (kernel,) = (op for op in parse(PROGRAM).ops if isinstance(op, dl.KernelOp))
    block = kernel.body.block
    again = dl.DispatchOp("add", block.args, [v.type for v in kernel.yielded])
    block.insert_op_before(again, block.first_op)
    with pytest.raises(VerifyException, match=r"@add: .*\(C3\)"):
        kernel.verify()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('dl.yield %2 : tensor<?x3xf32, #dl.dims<"batch size", 3>>', "dl.yield %1 : tensor<3xf32>"),
        ("-> tensor<3xf32>\n    %3", "-> tensor<3xf64>\n    %3"),
    ],
)
def test_mismatching_types_are_refused(right: str, wrong: str) -> None:
    assert right in PROGRAM
    with pytest.raises((VerifyException, ParseError)) as raised:
        parse(PROGRAM.replace(right, wrong)).verify()
    assert "type" in str(raised.value)
