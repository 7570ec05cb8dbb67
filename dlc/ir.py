"""The part of xDSL that dlc uses, in one place: xDSL renames and removes between releases.

Everything else in dlc imports IR classes from here. Dialects keep their module names (`arith.AddfOp`).
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
from dlc.xdsl_changes import change_xdsl
from dlc.xdsl_changes.arith import shaped_like
from dlc.xdsl_changes.contents import Derived, all_of, contains, holds_any, kinds_in, op_count, ops_of, with_regions
from dlc.xdsl_changes.copying import Kept, forget
from dlc.xdsl_changes.operations import give_results
from dlc.xdsl_changes.remembered import forget_much, remembered

__all__ = [
    "AffineBinaryOpExpr", "AffineBinaryOpKind", "AffineConstantExpr", "AffineDimExpr", "AffineExpr", "AffineMap",
    "AffineMapAttr", "ArgSpec", "ArrayAttr", "AttrParser", "AttrSizedOperandSegments", "Attribute", "BFloat16Type", "Block",
    "BlockArgument", "BoolAttr", "Builtin", "Context", "DYNAMIC_INDEX", "DenseArrayBase", "DenseIntOrFPElementsAttr",
    "Derived", "Dialect", "DictionaryAttr", "DominanceInfo", "FastMathFlag", "FileLineColLoc", "Float16Type",
    "Float4E2M1FNType", "Float8E4M3FNType", "Float8E4M3FNUZType", "Float8E5M2FNUZType", "Float8E5M2Type", "Float8E8M0FNUType",
    "Float32Type",
    "Float64Type", "FloatAttr", "FunctionType", "FusedLoc", "IRDLOperation", "IndexType", "IntAttr", "IntegerAttr",
    "IntegerType", "IsTerminator", "IsolatedFromAbove", "IteratorTypeAttr", "Kept", "Linalg", "LocationAttr", "MemRefType",
    "ModuleOp", "ModulePass", "NameLoc", "NoMemoryEffect", "NoTerminator", "NoneAttr", "OpResult", "Operation",
    "ParametrizedAttribute", "ParseError", "ParsePropInAttrDict", "Parser", "Printer", "Pure", "Region", "SSAValue",
    "Signedness", "StridedLayoutAttr", "StringAttr", "SymbolNameConstraint", "SymbolOpInterface", "SymbolRefAttr",
    "SymbolTable", "SymbolUserOpInterface", "TensorType", "TypeAttribute", "UnitAttr", "UnknownLoc", "VectorType",
    "VerifyException", "all_of", "arith", "attr_def", "bf16", "contains", "f16", "f32", "f64", "forget", "forget_much", "func",
    "give_results", "gpu", "holds_any", "i1", "i16", "i32", "i64", "i8", "index", "irdl_attr_definition", "irdl_op_definition",
    "kinds_in", "linalg", "math", "memref", "op_count", "operand_def", "ops_of", "opt_attr_def", "opt_operand_def",
    "opt_prop_def", "param_def", "parse_module", "parse_pass_specs", "print_module", "prop_def", "region_def", "remembered",
    "result_def", "scf", "shaped_like", "tensor", "traits_def", "var_operand_def", "var_result_def", "vector", "with_regions",
]  # fmt: skip

change_xdsl()

index = IndexType()


def print_module(op: Operation, *, generic: bool = False, locations: bool = True) -> str:
    """The text of `op`, with its source locations; `generic` is the form that other MLIR tools read."""
    out = StringIO()
    Printer(stream=out, print_generic_format=generic, print_debuginfo=locations).print_op(op)
    # An unknown place is the default when none is written.
    return out.getvalue().replace(" loc(unknown)", "") + "\n"


def parse_module(context: Context, text: str, name: str = "<text>") -> ModuleOp:
    """The module that `text` holds.

    Raises xDSL's ParseError with the place of a mistake, VerifyException for types and attributes that do not fit.
    """
    parser = Parser(context, text, name)
    try:
        return parser.parse_module()
    except (ParseError, VerifyException, DlcError):
        raise
    except Exception as error:  # constructors of ops, which take parsed parts for whole ones, raise anything
        parser.raise_error(f"{type(error).__name__} in what ends here: {error}")


def parse_pass_specs(text: str) -> tuple[ArgSpec, ...]:
    """The passes and options that `"a,b{k=1}"` names; raises ValueError for text that is no such list."""
    try:
        return tuple(parse_pipeline(text))
    except ArgSpecParseError as error:
        raise ValueError(str(error)) from error
