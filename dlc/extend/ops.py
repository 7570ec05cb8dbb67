"""Op classes of plug-ins: a class per op, decorated with `irdl_op_definition`, derived from the interface of its kind.

    @irdl_op_definition
    class SoftSignOp(Unary):
        "`x / (1 + |x|)`."

        name = "acme.soft_sign"

        def numpy(self, x): return x / (1 + np.abs(x))
        def emit(self, body, x): …

`apply` inserts an op in a traced function, and computes it at once for arrays.
"""

from __future__ import annotations

from dlc.dialects import dl
from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.pointwise import Binary, Unary
from dlc.dialects.dl.base import (
    Array,
    DlOp,
    PropertyValue,
    Tensor,
    broadcast_shapes,
    element_type_of,
    flag,
    ints,
    normalized_axes,
    number,
    rank_of,
    shape_of,
    sizes,
    tensor_type,
)
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import element_type, is_float, is_integer, numpy_dtype
from dlc.dialects.dl.interfaces import (
    Body,
    Composite,
    Contraction,
    DataMovement,
    Elementwise,
    GatherLike,
    LibraryKernel,
    Reduction,
    RowComposite,
    RowwiseKernel,
    ScatterLike,
    Structure,
    Window,
    broadcast_map,
    storage_type,
)
from dlc.errors import DTypeError, ShapeError, UnsupportedError
from dlc.ir import (
    AffineExpr,
    AffineMap,
    Attribute,
    BoolAttr,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    SSAValue,
    StringAttr,
    TensorType,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    var_operand_def,
    var_result_def,
)
from dlc.numpy.apply import apply, apply_all, operand, promote

__all__ = [
    "AffineExpr",
    "AffineMap",
    "Array",
    "Attribute",
    "Binary",
    "Body",
    "BoolAttr",
    "Composite",
    "Contraction",
    "DTypeError",
    "DataMovement",
    "DenseArrayBase",
    "DlBuilder",
    "DlOp",
    "Elementwise",
    "FloatAttr",
    "GatherLike",
    "IntegerAttr",
    "LibraryKernel",
    "PropertyValue",
    "Reduction",
    "RowComposite",
    "RowwiseKernel",
    "SSAValue",
    "ScatterLike",
    "ShapeError",
    "StringAttr",
    "Structure",
    "Tensor",
    "TensorType",
    "Unary",
    "UnsupportedError",
    "Window",
    "apply",
    "apply_all",
    "broadcast_map",
    "broadcast_shapes",
    "dl",
    "element_type",
    "element_type_of",
    "flag",
    "ints",
    "irdl_op_definition",
    "is_float",
    "is_integer",
    "normalized_axes",
    "number",
    "numpy_dtype",
    "operand_def",
    "operand",
    "opt_prop_def",
    "promote",
    "prop_def",
    "rank_of",
    "result_def",
    "scalar",
    "shape_of",
    "sizes",
    "storage_type",
    "tensor_type",
    "var_operand_def",
    "var_result_def",
]
