"""`memref.prefetch`, which MLIR has and xDSL lacks."""

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
    """Prefetches the cache line of `memref[indices]`, which may be out of bounds; it is a hint without other effects."""

    name = "memref.prefetch"
    memref = operand_def(MemRefType)
    indices = var_operand_def(IndexType)
    isWrite = prop_def(BoolAttr)
    localityHint = prop_def(IntegerAttr)
    isDataCache = prop_def(BoolAttr)


# A read into all cache levels.
L1_READ_HINTS = {
    "isWrite": BoolAttr.from_bool(False),
    "localityHint": IntegerAttr(3, i32),
    "isDataCache": BoolAttr.from_bool(True),
}
# A read into all cache levels except L1.
L2_READ_HINTS = {**L1_READ_HINTS, "localityHint": IntegerAttr(2, i32)}
