"""`memref.prefetch`, which MLIR has and xDSL lacks: a hint that an element will be read soon."""

from __future__ import annotations

from dlc.ir import (
    BoolAttr,
    IndexType,
    IntegerAttr,
    IRDLOperation,
    MemRefType,
    i32,
    irdl_op_definition,
    operand_def,
    prop_def,
    var_operand_def,
)


@irdl_op_definition
class PrefetchOp(IRDLOperation):
    """Brings the cache line of `memref[indices]` near; the place may lie outside the buffer, and nothing is computed."""

    name = "memref.prefetch"
    memref = operand_def(MemRefType)
    indices = var_operand_def(IndexType)
    isWrite = prop_def(BoolAttr)
    localityHint = prop_def(IntegerAttr)
    isDataCache = prop_def(BoolAttr)


# Of a read into all levels of the cache.
READ = {
    "isWrite": BoolAttr.from_bool(False),
    "localityHint": IntegerAttr(3, i32),
    "isDataCache": BoolAttr.from_bool(True),
}
# Of a read into all levels but the nearest.
NEAR = {**READ, "localityHint": IntegerAttr(2, i32)}
