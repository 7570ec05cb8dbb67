"""A context with every dialect that dlc parses and prints, and the ops of plug-ins."""

from __future__ import annotations

from functools import lru_cache

from dlc.dialects.compress import CompressOp
from dlc.dialects.dl import Dl
from dlc.dialects.host import Host
from dlc.dialects.ldexp import MathLdexpOp
from dlc.dialects.matrix_multiply import SubgroupMatmulOp
from dlc.dialects.prefetch import PrefetchOp
from dlc.dialects.remainder import RemFOp
from dlc.dialects.shape_cast import ShapeCastOp
from dlc.dialects.workgroup import WorkgroupMemory
from dlc.ir import Builtin, Context, Linalg, Operation, arith, func, gpu, math, memref, scf, tensor, vector
from dlc.plugins.registry import contributions

STANDARD = (
    Builtin, arith.Arith, func.Func, Linalg, math.Math, memref.MemRef, scf.Scf, tensor.Tensor, vector.Vector,
)  # fmt: skip


def make_context() -> Context:
    """Return the context that parses the IR of every stage, with the ops of plug-ins."""
    return _context(tuple(op for _, ops in contributions("ops") for op in ops))


@lru_cache(maxsize=1)  # Each lowering has a context: its dialects are loaded once.
def _context(plugin_ops: tuple[type[Operation], ...]) -> Context:
    context = Context()
    for dialect in (*STANDARD, Dl, Host):
        context.load_dialect(dialect)
    for op in (*plugin_ops, PrefetchOp, ShapeCastOp, CompressOp, MathLdexpOp, RemFOp, gpu.BarrierOp, SubgroupMatmulOp):
        context.load_op(op)
    context.load_attr_or_type(WorkgroupMemory)
    return context
