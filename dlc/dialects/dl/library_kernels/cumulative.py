"""Cumulative sums and products along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dlc.dialects.dl.arithmetic.activation import cast_to, widen_floats
from dlc.dialects.dl.base import Array, Tensor, element_type_of, flag, normalized_axes, number, rank_of, shape_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import is_bool
from dlc.dialects.dl.interfaces import Composite
from dlc.dialects.dl.library_kernels.axis_scans import AccumulateOp, accumulate
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.reductions.composite import in_wide_type
from dlc.errors import DTypeError
from dlc.ir import (
    BoolAttr,
    IntegerAttr,
    SSAValue,
    TensorType,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from dlc.shapes.dims import product


class CumulativeOp(Composite):
    """A cumulative reduction along `axis`, from the end if `reverse`; the element itself is not included if `exclusive`.

    (C1) `axis` is an axis of `x`; (C2) `x` has a float or integer type. Float operations are reassociated;
    16-bit floats are computed in f32, integers wrap around.
    """

    # The combination: `kind` of `dl.accumulate`.
    KIND: ClassVar[str]

    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    exclusive = opt_prop_def(BoolAttr)
    reverse = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    @property
    def cumulative_axis(self) -> int:
        return normalized_axes(self.name, [number(self.axis)], rank_of(self.x))[0]

    def infer(self) -> Sequence[Tensor]:
        _ = self.cumulative_axis
        if is_bool(element_type_of(self.x)):
            raise DTypeError(f"{self.name}: element type i1; expected integers or floats, cast the operand (C2)")
        return [tensor_type(shape_of(self.x), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        def accumulated(x: Array) -> Array:
            return accumulate(x, self.cumulative_axis, self.KIND, exclusive=flag(self.exclusive), reverse=flag(self.reverse))

        return in_wide_type(self, accumulated, operands)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build, axis = DlBuilder(self), self.cumulative_axis
        x = widen_floats(build, operands[0])
        size = shape_of(x)[axis]
        outer_size, inner_size = (product(sizes) for sizes in (shape_of(x)[:axis], shape_of(x)[axis + 1 :]))
        rows = build(ReshapeOp, x, shape=(outer_size, size, inner_size))
        settings = {"exclusive": flag(self.exclusive), "reverse": flag(self.reverse)}
        total = build(ReshapeOp, build(AccumulateOp, rows, kind=self.KIND, **settings), shape=shape_of(x))
        return [cast_to(build, total, element_type_of(operands[0]))]


@irdl_op_definition
class CumsumOp(CumulativeOp):
    """`y[…, j, …] = Σ x[…, k, …]` for `k ≤ j` along `axis`; `k < j` if `exclusive`, from the other end if `reverse`."""

    name = "dl.cumsum"
    KIND: ClassVar[str] = "add"


@irdl_op_definition
class CumprodOp(CumulativeOp):
    """`y[…, j, …] = Π x[…, k, …]` for `k ≤ j` along `axis`; `k < j` if `exclusive`, from the other end if `reverse`."""

    name = "dl.cumprod"
    KIND: ClassVar[str] = "mul"
