"""A context with every dialect that dlc parses and prints, and the ops of plug-ins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from dlc.dialects.compress import CompressOp
from dlc.dialects.dl import Dl
from dlc.dialects.host import Host
from dlc.dialects.ldexp import MathLdexpOp
from dlc.dialects.matrix_multiply import SubgroupMatmulOp
from dlc.dialects.prefetch import PrefetchOp
from dlc.dialects.remainder import RemFOp
from dlc.dialects.shape_cast import ShapeCastOp
from dlc.dialects.workgroup import WorkgroupMemory
from dlc.errors import UnsupportedError
from dlc.ir import Builtin, Context, Linalg, Operation, arith, func, gpu, math, memref, scf, tensor, vector
from dlc.plugins.tables import ExtensionTable

STANDARD = (
    Builtin, arith.Arith, func.Func, Linalg, math.Math, memref.MemRef, scf.Scf, tensor.Tensor, vector.Vector,
)  # fmt: skip
_SINGLE_OPS = (PrefetchOp, ShapeCastOp, CompressOp, MathLdexpOp, RemFOp, gpu.BarrierOp, SubgroupMatmulOp)


def _by_name(ops: Iterable[Any]) -> Mapping[str, type[Operation]]:
    """Return op classes by name. Raises UnsupportedError for other objects."""
    for op in ops:
        if not isinstance(op, type) or not issubclass(op, Operation):
            raise UnsupportedError(f"ops: {op!r:.60} is not an op class; derive one from an interface of dlc.extend.ops")
    return {op.name: op for op in ops}


_OPS: ExtensionTable[str, type[Operation]] = ExtensionTable(
    "ops", _by_name([*_SINGLE_OPS, *(op for dialect in (*STANDARD, Dl, Host) for op in dialect.operations)]), _by_name
)


def make_context() -> Context:
    """Return the context that parses the IR of every stage, with the ops of plug-ins."""
    return _context(tuple(op for name, op in _OPS.items() if name not in _OPS.builtin))


@lru_cache(maxsize=1)  # Each lowering has a context: its dialects are loaded once.
def _context(plugin_ops: tuple[type[Operation], ...]) -> Context:
    context = Context()
    for dialect in (*STANDARD, Dl, Host):
        context.load_dialect(dialect)
    for op in (*plugin_ops, *_SINGLE_OPS):
        context.load_op(op)
    context.load_attr_or_type(WorkgroupMemory)
    return context
