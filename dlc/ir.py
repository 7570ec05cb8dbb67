"""The xDSL API that dlc uses, in one module, because xDSL renames and removes names between releases.

All other modules of dlc import IR classes from here. Dialects keep their module names (`arith.AddfOp`).
"""

from __future__ import annotations

from io import StringIO

from xdsl.context import Context
from xdsl.dialects import arith, func, gpu, math, memref, scf, tensor, vector
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AffineMapAttr,
    ArrayAttr,
    BFloat16Type,
    BoolAttr,
    Builtin,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    FileLineColLoc,
    Float4E2M1FNType,
    Float8E4M3FNType,
    Float8E4M3FNUZType,
    Float8E5M2FNUZType,
    Float8E5M2Type,
    Float8E8M0FNUType,
    Float16Type,
    Float32Type,
    Float64Type,
    FloatAttr,
    FunctionType,
    FusedLoc,
    IndexType,
    IntAttr,
    IntegerAttr,
    IntegerType,
    LocationAttr,
    MemRefType,
    ModuleOp,
    NameLoc,
    NoneAttr,
    Signedness,
    StridedLayoutAttr,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    TensorType,
    UnitAttr,
    UnknownLoc,
    VectorType,
    bf16,
    f16,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
)
from xdsl.dialects.linalg import Linalg
from xdsl.dialects.linalg import ops as linalg
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.dialects.utils.fast_math import FastMathFlag
from xdsl.ir import (
    Attribute,
    Block,
    BlockArgument,
    Data,
    Dialect,
    Operation,
    OpResult,
    ParametrizedAttribute,
    Region,
    SSAValue,
    TypeAttribute,
)
from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineConstantExpr, AffineDimExpr, AffineExpr, AffineMap
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    attr_def,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_attr_def,
    opt_operand_def,
    opt_prop_def,
    opt_region_def,
    param_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.irdl.dominance import DominanceInfo
from xdsl.parser import AttrParser, Parser
from xdsl.passes import ModulePass
from xdsl.printer import Printer
from xdsl.traits import (
    IsolatedFromAbove,
    IsTerminator,
    NoMemoryEffect,
    NoTerminator,
    Pure,
    SymbolOpInterface,
    SymbolTable,
    SymbolUserOpInterface,
)
from xdsl.utils.arg_spec import ArgSpec, parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError, ParseError, VerifyException

from dlc.errors import DlcError
from dlc.xdsl_patches import patch_xdsl
from dlc.xdsl_patches.arith import shaped_like
from dlc.xdsl_patches.memo_tables import clear_large_memo_tables, memo_table
from dlc.xdsl_patches.op_cloning import OpOwner, erase_op, release_op
from dlc.xdsl_patches.op_construction import attach_results
from dlc.xdsl_patches.op_counts import (
    SubclassTest,
    contains,
    contains_any,
    op_classes_in,
    op_count,
    ops_of,
    ops_with_regions,
    walk_ops,
)

__all__ = [
    "AffineBinaryOpExpr", "AffineBinaryOpKind", "AffineConstantExpr", "AffineDimExpr", "AffineExpr", "AffineMap",
    "AffineMapAttr", "ArgSpec", "ArrayAttr", "AttrParser", "AttrSizedOperandSegments", "Attribute", "BFloat16Type", "Block",
    "BlockArgument", "BoolAttr", "Builtin", "Context", "DYNAMIC_INDEX", "Data", "DenseArrayBase", "DenseIntOrFPElementsAttr",
    "Dialect", "DictionaryAttr", "DominanceInfo", "FastMathFlag", "FileLineColLoc", "Float16Type", "Float32Type",
    "Float4E2M1FNType", "Float64Type", "Float8E4M3FNType", "Float8E4M3FNUZType", "Float8E5M2FNUZType", "Float8E5M2Type",
    "Float8E8M0FNUType", "FloatAttr", "FunctionType", "FusedLoc", "IRDLOperation", "IndexType", "IntAttr", "IntegerAttr",
    "IntegerType", "IsTerminator", "IsolatedFromAbove", "IteratorTypeAttr", "Linalg", "LocationAttr", "MemRefType", "ModuleOp",
    "ModulePass", "NameLoc", "NoMemoryEffect", "NoTerminator", "NoneAttr", "OpOwner", "OpResult", "Operation",
    "ParametrizedAttribute", "ParseError", "ParsePropInAttrDict", "Parser", "Printer", "Pure", "Region", "SSAValue",
    "Signedness", "StridedLayoutAttr", "StringAttr", "SubclassTest", "SymbolNameConstraint", "SymbolOpInterface",
    "SymbolRefAttr", "SymbolTable", "SymbolUserOpInterface", "TensorType", "TypeAttribute", "UnitAttr", "UnknownLoc",
    "VectorType", "VerifyException", "arith", "attach_results", "attr_def", "bf16", "clear_large_memo_tables", "contains",
    "contains_any", "erase_op", "f16", "f32", "f64", "func", "gpu", "i1", "i16", "i32", "i64", "i8", "index",
    "irdl_attr_definition", "irdl_op_definition", "linalg", "math", "memo_table", "memref", "op_classes_in", "op_count",
    "operand_def", "ops_of", "ops_with_regions", "opt_attr_def", "opt_operand_def", "opt_prop_def", "opt_region_def",
    "param_def", "parse_module", "parse_pass_specs", "print_module", "prop_def", "region_def", "release_op", "result_def",
    "scf", "shaped_like", "tensor", "traits_def", "var_operand_def", "var_result_def", "vector", "walk_ops",
]  # fmt: skip

patch_xdsl()

index = IndexType()


def print_module(op: Operation, *, generic: bool = False, locations: bool = True) -> str:
    """Return the text of `op` with its source locations; `generic` is the syntax that other MLIR tools read."""
    stream = StringIO()
    Printer(stream=stream, print_generic_format=generic, print_debuginfo=locations).print_op(op)
    # An unknown location is the default and is not printed.
    return stream.getvalue().replace(" loc(unknown)", "") + "\n"


def parse_module(context: Context, text: str, name: str = "<text>") -> ModuleOp:
    """Parse a module from text.

    Raises xDSL's ParseError with the location of a syntax error, VerifyException for types and attributes that do not match.
    """
    parser = Parser(context, text, name)
    try:
        return parser.parse_module()
    except (ParseError, VerifyException, DlcError):
        raise
    except Exception as error:  # Constructors of ops raise arbitrary exceptions for invalid operands and attributes.
        parser.raise_error(f"{type(error).__name__} in the op that ends here: {error}")


def parse_pass_specs(text: str) -> tuple[ArgSpec, ...]:
    """Parse the passes and options of `"a,b{k=1}"`; raise ValueError for text in another format."""
    try:
        return tuple(parse_pipeline(text))
    except ArgSpecParseError as error:
        raise ValueError(str(error)) from error
