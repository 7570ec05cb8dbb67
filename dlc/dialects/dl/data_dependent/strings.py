"""String ops: a string tensor is an i64 tensor of ids in the string pool, to which calls add strings.

Equal strings have equal ids, so that the integer ops copy, compare and look up strings. Ops that create or parse strings are
computed in Python (`dlc/runtime/python_ops/string_ops.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc.dialects.dims_attribute import DimsAttr
from dlc.dialects.dl.base import (
    Tensor,
    broadcast_shapes,
    element_type_of,
    flag,
    number,
    rank_of,
    shape_of,
    sizes,
    tensor_type,
)
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import DataDependent
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    Attribute,
    BoolAttr,
    DenseArrayBase,
    IntegerAttr,
    SSAValue,
    TensorType,
    i1,
    i64,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from dlc.runtime.python_ops.registry import OpSetting
from dlc.shapes.dims import product


class StringOp(DataDependent):
    """An op with strings among its operands or results."""

    def require_strings(self, *operands: SSAValue) -> None:
        """Raise DTypeError for operands that cannot be strings."""
        if any(element_type_of(v) != i64 for v in operands):
            types = [str(element_type_of(v)) for v in operands]
            raise DTypeError(f"{self.name}: element types {types}; expected strings, which are i64")


@irdl_op_definition
class StringConcatOp(StringOp):
    """Elementwise concatenation of strings: `result = x + y`, as in Python.

    (C1) `x` and `y` are strings; (C2) they broadcast to the shape of the result.
    """

    name = "dl.string_concat"
    x = operand_def(TensorType)
    y = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        self.require_strings(self.x, self.y)
        return [tensor_type(broadcast_shapes(self.name, shape_of(self.x), shape_of(self.y)), i64)]


@irdl_op_definition
class StringSplitOp(StringOp):
    """Splits each string of `x` at a delimiter, as Python's `str.split`; results `parts` and their number, `counts`.

    An empty `delimiter` means any run of white space; leading and trailing white space is dropped then. `max_splits` limits the
    number of splits, from the left. Strings with fewer parts than the maximum are padded with empty strings.

    (C1) both operands are strings, `delimiter` of rank 0; (C2) `parts` has the shape of `x` followed by the axis `size`; (C3)
    `counts` is i64 of the shape of `x`. The size is 0 for an empty `x`.
    """

    name = "dl.string_split"
    x = operand_def(TensorType)
    delimiter = operand_def(TensorType)
    size = prop_def(DenseArrayBase | DimsAttr)
    max_splits = opt_prop_def(IntegerAttr)
    parts = result_def(TensorType)
    counts = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        self.require_strings(*self.operands)
        if rank_of(self.delimiter):
            raise ShapeError(f"{self.name}: delimiter of shape {shape_of(self.delimiter)}; expected rank 0 (C1)")
        shape = shape_of(self.x)
        return [tensor_type((*shape, *sizes(self.size)), i64), tensor_type(shape, i64)]

    @property
    def settings(self) -> Mapping[str, OpSetting]:
        return {"max_splits": None if self.max_splits is None else number(self.max_splits)}


@irdl_op_definition
class StringNormalizeOp(StringOp):
    """The strings of `x` that are not in `stopwords`, in lower case if `lower`, in upper case if `upper`.

    Stopwords are compared case-sensitively if `match_case`, else ignoring case. If none is left, the result is one empty
    string.
    (C1) operands are strings; (C2) `x` is [n] or [1, n], and the result has `size` instead of n; (C3) `stopwords` has rank 1.
    """

    name = "dl.string_normalize"
    x = operand_def(TensorType)
    stopwords = operand_def(TensorType)
    size = prop_def(DenseArrayBase | DimsAttr)
    match_case = opt_prop_def(BoolAttr)
    lower = opt_prop_def(BoolAttr)
    upper = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        self.require_strings(*self.operands)
        shape = shape_of(self.x)
        if shape[:-1] not in ((), (1,)) or not shape or rank_of(self.stopwords) != 1:
            shapes = f"x {shape} and stopwords {shape_of(self.stopwords)}"
            raise ShapeError(f"{self.name}: {shapes}; expected [n] or [1, n], and rank 1 (C2, C3)")
        return [tensor_type((*shape[:-1], *sizes(self.size)), i64)]

    @property
    def settings(self) -> Mapping[str, OpSetting]:
        return {"match_case": flag(self.match_case), "lower": flag(self.lower), "upper": flag(self.upper)}


@irdl_op_definition
class RegexFullMatchOp(StringOp):
    """Full match of the regular expression `pattern` with each string of `x`, as bool.

    Expressions are those of Python's `re`. (C1) both operands are strings, `pattern` of rank 0; (C2) the result is bool of the
    shape of `x`.
    """

    name = "dl.regex_full_match"
    x = operand_def(TensorType)
    pattern = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        self.require_strings(*self.operands)
        if rank_of(self.pattern):
            raise ShapeError(f"{self.name}: pattern of shape {shape_of(self.pattern)}; expected rank 0 (C1)")
        return [tensor_type(shape_of(self.x), i1)]


@irdl_op_definition
class StringUniqueOp(StringOp):
    """The distinct strings of `x`: as `dl.unique` without an axis, in the order of their code points.

    (C1) `x` is strings; (C2) the four results are `dl.unique`'s.
    """

    name = "dl.string_unique"
    x = operand_def(TensorType)
    size = prop_def(DenseArrayBase | DimsAttr)
    keep_order = opt_prop_def(BoolAttr)
    y = result_def(TensorType)
    first = result_def(TensorType)
    inverse = result_def(TensorType)
    counts = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        self.require_strings(self.x)
        per_string = tensor_type(sizes(self.size), i64)
        return [per_string, per_string, tensor_type((product(shape_of(self.x)),), i64), per_string]

    @property
    def settings(self) -> Mapping[str, OpSetting]:
        return {"keep_order": flag(self.keep_order)}


@irdl_op_definition
class NumberToStringOp(StringOp):
    """Formats each element as a string: integers and bools by their digits, floats by up to eight, NaN, INF and -INF by name.

    `1 → "1"`, `1.0 → "1"`, `1e-7 → "1e-07"`. (C1) the result has the shape of `x`.
    """

    name = "dl.number_to_string"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        return [tensor_type(shape_of(self.x), i64)]


@irdl_op_definition
class StringToNumberOp(StringOp):
    """Parses each string of `x` as a value: plain or scientific notation, or INF or NaN in any case.

    Surrounding white space and the fraction of an integer are dropped. A string that is not a value, or whose value does not
    fit `to`, is an error. (C1) `x` is strings; (C2) the result has the shape of `x` and the element type `to`.
    """

    name = "dl.string_to_number"
    x = operand_def(TensorType)
    to = prop_def(Attribute)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        self.require_strings(self.x)
        return [tensor_type(shape_of(self.x), self.to)]

    @property
    def settings(self) -> Mapping[str, OpSetting]:
        return {"to": numpy_dtype(self.to).name}
