"""Planted miscompiles: each runs one pass, or another step of the compiler, and then modifies its result."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from dlc.backends.cpu import backend
from dlc.compiler import lowering
from dlc.dialects import dl
from dlc.dialects.dl.programs.program import DispatchOp
from dlc.dialects.host import ArenaOp, LaunchOp
from dlc.emission.llvm.kernel import LlvmKernel
from dlc.instrument.check import WEIGHT_EXPRESSIONS
from dlc.ir import FloatAttr, IntegerAttr, ModuleOp, Operation, arith, i64, linalg, memref
from dlc.passes.base import ReportingPass, kernels_of
from dlc.passes.structured import ConstantPool
from dlc.pipelines import PASSES
from dlc.weights import WeightStore

Corrupt = Callable[[ModuleOp], None]


def ops(module: ModuleOp, kind: type[Operation]) -> list[Any]:
    return [op for op in module.walk() if isinstance(op, kind)]


def replace(op: Operation, kind: type[Operation]) -> None:
    """Replace an op by another op on the same operands."""
    other = kind.create(operands=op.operands, result_types=[r.type for r in op.results], properties=op.properties)
    other.location = op.location
    op.parent.insert_op_before(other, op)
    op.results[0].replace_all_uses_with(other.results[0])
    op.detach()
    op.erase()


def instead(kind: type[Operation], other: type[Operation]) -> Corrupt:
    """Replace the first op of a kind; kernels without one stay correct."""

    def corrupt(module: ModuleOp) -> None:
        for op in ops(module, kind)[:1]:
            replace(op, other)

    return corrupt


def drop(kind: type[Operation]) -> Corrupt:
    """Replace the first op of a kind by its operand."""

    def corrupt(module: ModuleOp) -> None:
        op = ops(module, kind)[0]
        op.results[0].replace_all_uses_with(op.operands[0])
        op.detach()
        op.erase()

    return corrupt


def upside_down(module: ModuleOp) -> None:
    op = ops(module, dl.ConvOp)[0]
    reverse = dl.ReverseOp.make(op.operands[0], axes=(1,))
    op.parent.insert_op_before(reverse, op)
    op.operands[0] = reverse.result


def scale_weights(module: ModuleOp) -> None:
    op = ops(module, dl.ConvOp)[0]
    double = dl.AddOp.make(op.operands[1], op.operands[1])
    op.parent.insert_op_before(double, op)
    op.operands[1] = double.result


def pad_with_one(module: ModuleOp) -> None:
    op = ops(module, dl.PadOp)[0]
    one = dl.ReciprocalOp.make(dl.ExpOp.make(op.operands[1]).result)
    for new in (one.operands[0].owner, one):
        op.parent.insert_op_before(new, op)
    op.operands[1] = one.result


def same_argument(module: ModuleOp) -> None:
    """Let one kernel run read the argument of another run."""
    first: dict[Any, Any] = {}
    for op in ops(module, DispatchOp):
        value = op.arguments[-1]
        if first.setdefault((op.symbol, value.type), value) is not value:
            op.operands[len(op.arguments) - 1] = first[op.symbol, value.type]


def fill_with_one(module: ModuleOp) -> None:
    for kernel in kernels_of(module):
        for op in kernel.walk():
            if isinstance(op, linalg.FillOp):
                element = op.inputs[0].type
                op.operands[0] = ConstantPool(kernel).get(FloatAttr(1.0, element), element)
                return


def forget_offset(module: ModuleOp) -> None:
    """Always read the first tile."""
    for kernel in kernels_of(module):
        zero = ConstantPool(kernel).index(0)
        for op in reversed(ops(module, memref.SubviewOp)):
            if op.offsets and op.parent is not kernel.body.block:
                for k in range(len(op.offsets)):
                    op.operands[1 + k] = zero
        return


def drop_launch(module: ModuleOp) -> None:
    op = ops(module, LaunchOp)[-2]
    op.detach()
    op.erase()


def one_place(module: ModuleOp) -> None:
    for op in ops(module, ArenaOp):
        op.properties["offset"] = IntegerAttr(0, i64)


def after(name: str, corrupt: Corrupt) -> AbstractContextManager[Any]:
    """Run a pass, then break its result."""
    cls = PASSES[name][1]
    method = "report" if issubclass(cls, ReportingPass) else "apply"
    right = getattr(cls, method)

    def wrong(self: Any, context: Any, module: ModuleOp) -> Any:
        said = right(self, context, module)
        corrupt(module)
        return said

    return patch.object(cls, method, wrong)


def wrong_weights() -> AbstractContextManager[Any]:
    right = lowering.evaluate_weight_expressions

    def evaluate(module: ModuleOp, store: WeightStore) -> WeightStore:
        result = right(module, store)
        name = max(result, key=lambda n: result[n].size)
        result._arrays[name] = result[name] * 2
        return result

    return patch.object(lowering, "evaluate_weight_expressions", evaluate)


def wrong_code() -> AbstractContextManager[Any]:
    right = backend.emit_kernel

    def emit(kernel: Any, target: Any) -> LlvmKernel:
        made = right(kernel, target)
        return dataclasses.replace(made, text=made.text.replace(" fadd ", " fsub "))

    return patch.object(backend, "emit_kernel", emit)


# The step to break, and how.
PLANTED: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "simplify": lambda: after("simplify", drop(dl.ReluOp)),
    "channels-last": lambda: after("channels-last", upside_down),
    "fold-scales": lambda: after("fold-scales", scale_weights),
    "cse": lambda: after("cse", instead(dl.AddOp, dl.SubOp)),
    "form-kernels": lambda: after("form-kernels", drop(dl.ReluOp)),
    "assign-layouts": lambda: after("assign-layouts", pad_with_one),
    "dedupe-kernels": lambda: after("dedupe-kernels", same_argument),
    "lower-kernels-to-linalg": lambda: after("lower-kernels-to-linalg", instead(arith.MulfOp, arith.AddfOp)),
    "fuse-generics": lambda: after("fuse-generics", instead(arith.MaximumfOp, arith.MinimumfOp)),
    "bufferize-kernels": lambda: after("bufferize-kernels", fill_with_one),
    "tile-kernels": lambda: after("tile-kernels", forget_offset),
    "vectorize": lambda: after("vectorize", instead(arith.MaximumfOp, arith.MinimumfOp)),
    "forward-stores": lambda: after("forward-stores", instead(arith.AddfOp, arith.SubfOp)),
    "expand-math": lambda: after("expand-math", instead(arith.AddfOp, arith.MulfOp)),
    "cse-kernels": lambda: after("cse-kernels", instead(arith.MaximumfOp, arith.AddfOp)),
    WEIGHT_EXPRESSIONS: wrong_weights,
    "bufferize-host": lambda: after("bufferize-host", drop_launch),
    "plan-arena": lambda: after("plan-arena", one_place),
    "native code": wrong_code,
}
