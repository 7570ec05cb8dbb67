"""`dedupe-kernels`: equal kernels are merged, and the names of those that remain are unique."""

from __future__ import annotations

from dlc.dialects.dl.programs.program import DispatchOp, KernelOp
from dlc.dialects.registry import make_context
from dlc.ir import parse_module, walk_ops
from dlc.passes.fusion.dedupe_kernels import DedupeKernelsPass

CALLS = {"k": "abs", "k_1": "neg", "k_1_1": "exp", "k_2": "neg", "k_1_2": "floor"}


def test_names_with_several_numbers_stay_unique() -> None:
    kernels = "\n".join(
        f"dl.kernel @{name}(%x: tensor<4xf32>) -> (tensor<4xf32>) {{ %y = dl.{op} %x : (tensor<4xf32>) -> tensor<4xf32> "
        "dl.yield %y : tensor<4xf32> }"
        for name, op in CALLS.items()
    )
    calls = "\n".join(f"%{k} = dl.dispatch @{name} (%x) : (tensor<4xf32>) -> tensor<4xf32>" for k, name in enumerate(CALLS))
    main = f"func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{ {calls} func.return %0 : tensor<4xf32> }}"
    module = parse_module(make_context(), f"{main}\n{kernels}")
    DedupeKernelsPass().apply(make_context(), module)
    ops = {kernel.symbol: next(iter(kernel.body.block.ops)).name for kernel in module.ops if isinstance(kernel, KernelOp)}
    assert list(ops) == ["k", "k_1", "k_2", "k_3"]
    assert [ops[dispatch.symbol] for dispatch in walk_ops(module, DispatchOp)] == [f"dl.{op}" for op in CALLS.values()]
