"""Programs of one kernel, lowered to `linalg` and run by the reference evaluator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dlc.backends.reference import evaluate
from dlc.dialects.dl.base import tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import element_type
from dlc.dialects.dl.programs.program import KernelOp, YieldOp
from dlc.ir import Attribute, Block, Context, FunctionType, ModuleOp, Region, SSAValue, func, linalg
from dlc.passes.base import kernels_of
from dlc.passes.linalg.fuse_generics import FuseGenericsPass
from dlc.passes.linalg.lower_kernels_to_linalg import LowerKernelsToLinalgPass


def kernel_of(types: Sequence[Attribute], body: Callable[..., SSAValue | Sequence[SSAValue]]) -> ModuleOp:
    """Return a module with the kernel @k whose block `body(build, *arguments)` emits; it returns what the kernel yields."""
    block = Block(arg_types=types)
    results = body(DlBuilder(block), *block.args)
    results = [results] if isinstance(results, SSAValue) else list(results)
    block.add_op(YieldOp(results))
    return ModuleOp([KernelOp("k", FunctionType.from_lists(types, [r.type for r in results]), Region(block))])


def types_of(*arrays: np.ndarray) -> list[Attribute]:
    return [tensor_type(a.shape, element_type(a.dtype)) for a in arrays]


def lowered(module: ModuleOp, *, fuse: bool = True) -> ModuleOp:
    """Return the verified module at the `linalg` stage."""
    context = Context()
    LowerKernelsToLinalgPass().apply(context, module)
    module.verify()
    if fuse:
        FuseGenericsPass().apply(context, module)
        module.verify()
    return module


def kernel(module: ModuleOp) -> func.FuncOp:
    (function,) = kernels_of(module)
    return function


def op_names(module: ModuleOp) -> list[str]:
    """Return the ops of the kernel in order, without constants and the return."""
    names = [op.name for op in kernel(module).body.block.ops]
    return [n for n in names if n not in ("arith.constant", "func.return")]


def generics(module: ModuleOp) -> list[linalg.GenericOp]:
    return [op for op in kernel(module).body.block.ops if isinstance(op, linalg.GenericOp)]


def run(module: ModuleOp, *inputs: np.ndarray) -> list[np.ndarray]:
    return evaluate(module, inputs, function="k")
