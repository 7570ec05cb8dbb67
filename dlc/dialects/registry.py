"""A context with every dialect that dlc parses and prints, and the ops of plug-ins."""

from __future__ import annotations

from dlc.dialects.dl import Dl
from dlc.dialects.host import Host
from dlc.dialects.matrix_multiply import SubgroupMatmulOp
from dlc.dialects.prefetch import PrefetchOp
from dlc.dialects.remainder import RemFOp
from dlc.dialects.shape_cast import ShapeCastOp
from dlc.dialects.workgroup import WorkgroupMemory
from dlc.ir import Builtin, Context, Linalg, arith, func, gpu, math, memref, scf, tensor, vector
from dlc.plugins.registry import contributions

STANDARD = (
    Builtin, arith.Arith, func.Func, Linalg, math.Math, memref.MemRef, scf.Scf, tensor.Tensor, vector.Vector,
)  # fmt: skip


def make_context() -> Context:
    """Return a context that parses the IR of every stage, with the ops of plug-ins."""
    context = Context()
    for dialect in (*STANDARD, Dl, Host):
        context.load_dialect(dialect)
    for _, ops in contributions("ops"):
        for op in ops:
            context.load_op(op)
    context.load_op(PrefetchOp)
    context.load_op(ShapeCastOp)
    context.load_op(RemFOp)
    context.load_op(gpu.BarrierOp)
    context.load_op(SubgroupMatmulOp)
    context.load_attr_or_type(WorkgroupMemory)
    return context
