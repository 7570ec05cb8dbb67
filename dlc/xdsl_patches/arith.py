"""`arith` ops on vectors and tensors: xDSL defines comparison, selection and conversion on scalars only.

MLIR defines these ops elementwise on vectors and tensors as well. The patch generalizes the constraints on operands and
results, the result type of a comparison, and the syntax of a selection with a vector of conditions.
"""

from __future__ import annotations

from typing import Any, cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    AnyFloat,
    ContainerType,
    FixedBitwidthType,
    IndexType,
    IntegerType,
    ShapedType,
    container_of,
    i1,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import AnyAttr, AttrConstraint, OperandDef, ResultDef
from xdsl.irdl.operations import get_accessors_from_op_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.type import get_element_type_or_self, have_compatible_shape


def shaped_like(value_type: Attribute, element_type: Attribute) -> Attribute:
    """Return `value_type`, a scalar or a container of static shape, with another element type."""
    if isinstance(value_type, ContainerType) and isinstance(value_type, ShapedType):
        return cast(Any, type(value_type))(element_type, value_type.get_shape())
    return element_type


_BOOL = arith.boolLike
_INTEGER = container_of(IntegerType)
_FLOAT = container_of(AnyFloat)
_INTEGER_OR_INDEX = container_of(IntegerType | IndexType)


def _redefine(
    op: type[Any], operands: list[AttrConstraint[Attribute]], result: AttrConstraint[Attribute], check: Any = None
) -> None:
    definition = op.get_irdl_definition()
    definition.operands = [(name, OperandDef(c)) for (name, _), c in zip(definition.operands, operands, strict=True)]
    definition.results = [(name, ResultDef(result)) for name, _ in definition.results]
    for name, value in get_accessors_from_op_def(definition, check).items():
        setattr(op, name, value)


def _check_same_shape(op: Operation) -> None:
    if not all(have_compatible_shape(v.type, op.results[0].type) for v in op.operands):
        raise VerifyException(f"{op.name}: operands and result must have the same shape")


def _width(value: SSAValue) -> int:
    return cast(FixedBitwidthType, get_element_type_or_self(value.type)).bitwidth


def _check_narrower(op: Operation) -> None:
    _check_same_shape(op)
    if _width(op.results[0]) >= _width(op.operands[0]):
        raise VerifyException("Destination bit-width must be smaller than the input bit-width")


def _check_wider(op: Operation) -> None:
    _check_same_shape(op)
    if _width(op.results[0]) <= _width(op.operands[0]):
        raise VerifyException("Destination bit-width must be larger than the input bit-width")


def _initialize_cmpi(self: arith.CmpiOp, operand1: SSAValue, operand2: SSAValue, arg: int | str) -> None:
    _scalar_cmpi(self, operand1, operand2, arg)
    cast(Any, self.result)._type = shaped_like(self.lhs.type, i1)


def _initialize_cmpf(
    self: arith.CmpfOp,
    operand1: SSAValue,
    operand2: SSAValue,
    arg: int | str,
    fastmath: arith.FastMathFlagsAttr = arith.FastMathFlagsAttr("none"),  # noqa: B008
) -> None:
    _scalar_cmpf(self, operand1, operand2, arg, fastmath)
    cast(Any, self.result)._type = shaped_like(self.lhs.type, i1)


def _print_select(self: arith.SelectOp, printer: Printer) -> None:
    printer.print_string(" ")
    printer.print_list(self.operands, printer.print_operand)
    printer.print_op_attributes(self.attributes)
    printer.print_string(" : ")
    if self.cond.type != i1:
        printer.print_attribute(self.cond.type)
        printer.print_string(", ")
    printer.print_attribute(self.result.type)


def _parse_select(cls: type[arith.SelectOp], parser: Parser) -> arith.SelectOp:
    operands = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
    attributes = parser.parse_optional_attr_dict()
    parser.parse_punctuation(":")
    types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
    condition = types[0] if len(types) == 2 else i1
    resolved = parser.resolve_operands(operands, [condition, types[-1], types[-1]], parser.pos)
    return cls.create(operands=resolved, result_types=[types[-1]], attributes=attributes)


def _check_select_types(op: arith.SelectOp) -> None:
    if op.lhs.type != op.result.type or op.rhs.type != op.result.type:
        raise VerifyException("arith.select: both values and the result must have the same type")
    if op.cond.type != i1 and not have_compatible_shape(op.cond.type, op.result.type):
        raise VerifyException("arith.select: conditions and values must have the same shape")


_scalar_cmpi = arith.CmpiOp.__init__
_scalar_cmpf = arith.CmpfOp.__init__


def patch_arith() -> None:
    """Generalize comparison, selection and conversion to vectors and tensors."""
    _redefine(arith.CmpiOp, [arith.signlessIntegerLike, arith.signlessIntegerLike], _BOOL, _check_same_shape)
    _redefine(arith.CmpfOp, [arith.floatingPointLike, arith.floatingPointLike], _BOOL, _check_same_shape)
    arith.CmpiOp.__init__ = cast(Any, _initialize_cmpi)
    arith.CmpfOp.__init__ = cast(Any, _initialize_cmpf)
    for op in (arith.FPToSIOp, arith.FPToUIOp):
        _redefine(op, [_FLOAT], _INTEGER, _check_same_shape)
    for op in (arith.SIToFPOp, arith.UIToFPOp):
        _redefine(op, [_INTEGER], _FLOAT, _check_same_shape)
    for op in (arith.ExtSIOp, arith.ExtUIOp):
        _redefine(op, [_INTEGER], _INTEGER, _check_wider)
    _redefine(arith.TruncIOp, [_INTEGER], _INTEGER, _check_narrower)
    _redefine(arith.IndexCastOp, [_INTEGER_OR_INDEX], _INTEGER_OR_INDEX, _check_same_shape)
    # The declarative syntax infers the type of the condition from its constraint; two possible types need a custom syntax.
    arith.SelectOp.get_irdl_definition().assembly_format = None
    _redefine(arith.SelectOp, [_BOOL, AnyAttr(), AnyAttr()], AnyAttr(), _check_select_types)
    arith.SelectOp.print = _print_select
    arith.SelectOp.parse = classmethod(_parse_select)  # pyright: ignore[reportAttributeAccessIssue]
