"""Selection: results with as many entries as the data has, which no type can know.

Their types have a symbolic size of their own, the property `size`, until the data is there. Kernels count how many entries
there are, and `dl.decide` makes the number a size of the program (`dlc/compiler/joining.py`). What is called so in
`dlc/runtime/python_ops/selection.py` is their definition.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from dlc.dialects.dl.arithmetic.activation import casted
from dlc.dialects.dl.arithmetic.elementwise import DivOp, MaximumOp, MulOp, SubOp
from dlc.dialects.dl.base import (
    Array,
    DimsAttr,
    Tensor,
    element_type_of,
    flag,
    rank_of,
    shape_of,
    sizes,
    tensor_type,
)
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.creation import IotaOp
from dlc.dialects.dl.dtypes import element_type
from dlc.dialects.dl.interfaces import DataDependent, Sequential
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ConcatOp, ReshapeOp, SliceOp
from dlc.dialects.dl.reductions.reduction import ReduceSumOp
from dlc.dims import Size, product
from dlc.errors import DTypeError
from dlc.ir import (
    BoolAttr,
    DenseArrayBase,
    IRDLOperation,
    ParsePropInAttrDict,
    SSAValue,
    TensorType,
    VerifyException,
    i1,
    i64,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from dlc.runtime.python_ops.selection import Setting


class Selection(DataDependent, ABC):
    """A data-dependent op whose results share one size that data decides: `size`, a symbol or what is known to come."""

    size = prop_def(DenseArrayBase | DimsAttr)

    @property
    def count(self) -> Size:
        """The size that the data decides."""
        return sizes(self.size)[0]

    @property
    @abstractmethod
    def most(self) -> Size | None:
        """What `size` is at most, if that is known before."""

    @abstractmethod
    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        """The same results from ops that kernels are made of; `places_of` among them says what the size is."""


@irdl_op_definition
class DecideOp(IRDLOperation):
    """What follows is as large as data says: `count`, an i64 without axes, is the size `size` from here on.

        dl.decide %count {size = #dl.dims<"k">} : tensor<i64>

    It cuts a program in two: no kernel has ops from before and from behind it.
    """

    name = "dl.decide"
    count = operand_def(TensorType)
    size = prop_def(DimsAttr)
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$count attr-dict `:` type($count)"

    def __init__(self, count: SSAValue, size: Size) -> None:
        super().__init__(operands=[count], properties={"size": DimsAttr.of((size,))})

    @property
    def symbol(self) -> str:
        """The name of the size."""
        return str(self.size.sizes[0])

    def verify_(self) -> None:
        if self.count.type != tensor_type((), i64):
            raise VerifyException(f"dl.decide: a count of {self.count.type}, expected an i64 without axes")


@irdl_op_definition
class PlacesOp(Sequential):
    """The places of the true elements in each row of `x` [a, n], ascending, as i64 [a, `size` + 1]; what is left of a row is n.

    Of more than `size` true elements the first count. (C1) `x` is bool of rank 2.
    """

    name = "dl.places"
    x = operand_def(TensorType)
    size = prop_def(DenseArrayBase | DimsAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        if element_type_of(self.x) != i1 or rank_of(self.x) != 2:
            raise DTypeError(f"dl.places: {self.x.type}; expected rows of bools (C1)")
        return [tensor_type((shape_of(self.x)[0], sizes(self.size)[0] + 1), i64)]

    def reference(self, *operands: Array) -> Array:
        (x,), size = operands, int(sizes(self.size)[0])
        result = np.full((len(x), size + 1), x.shape[1], np.int64)
        for places, row in zip(result, x, strict=True):
            found = np.flatnonzero(row)[:size]
            places[: len(found)] = found
        return result


def places_of(build: Build, flags: SSAValue, size: Size) -> SSAValue:
    """The places of the true elements of a vector, and behind them its size; `size` is decided by how many there are."""
    count = build(ReduceSumOp, casted(build, flags, i64), axes=(0,))
    build.insert(DecideOp(count, size))
    places = build(PlacesOp, build(ReshapeOp, flags, shape=(1, *shape_of(flags))), size=(size,))
    return build(ReshapeOp, places, shape=(size + 1,))


@irdl_op_definition
class NonzeroOp(Selection):
    """The places of the true elements of `x` in row-major order, one column each: NumPy's `stack(nonzero(x))`, as i64.

    (C1) `x` is bool; (C2) the result has the shape (rank of `x`, `size`). A rank-0 `x` that is true has one place, without
    coordinates.
    """

    name = "dl.nonzero"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        if element_type_of(self.x) != i1:
            raise DTypeError(f"dl.nonzero: element type {element_type_of(self.x)}; compare with 0 first (C1)")
        return [tensor_type((rank_of(self.x), self.count), i64)]

    @property
    def most(self) -> Size:
        return product(shape_of(self.x))

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build, (x,) = Build(self), operands
        shape, size = shape_of(x), self.count
        places = places_of(build, build(ReshapeOp, x, shape=(product(shape),)), size)
        rest = build(SliceOp, places, starts=(0,), limits=(size,), strides=(1,))
        rows: list[SSAValue] = []
        # rest is i·n + j along an axis whose steps are n apart: first i, then j.
        for axis in range(1, len(shape)):
            step = build.size(product(shape[axis:]), like=rest)
            rows.append(build(DivOp, rest, step))
            rest = build(SubOp, rest, build(MulOp, rows[-1], step))
        if not shape:
            return [build(BroadcastToOp, build.scalar(0, like=rest), shape=(0, size))]
        return [build(ConcatOp, *(build(ReshapeOp, row, shape=(1, size)) for row in (*rows, rest)), axis=0)]


@irdl_op_definition
class NumbersOp(Selection):
    """The numbers 0, 1, … below `number`, as i64: what makes a size of a number that data has.

    A number below 0 has none. (C1) `number` is an i64 without axes; (C2) the result is i64 [`size`]; (C3) `number` is at most
    `largest`, if that is said.
    """

    name = "dl.numbers"
    number = operand_def(TensorType)
    largest = opt_prop_def(DenseArrayBase | DimsAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        if self.number.type != tensor_type((), i64):
            raise DTypeError(f"{self.name}: a number of {self.number.type}; expected an i64 without axes (C1)")
        return [tensor_type((self.count,), i64)]

    @property
    def most(self) -> Size | None:
        return None if self.largest is None else sizes(self.largest)[0]

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build, (number,) = Build(self), operands
        build.insert(DecideOp(build(MaximumOp, number, build.scalar(0, like=number)), self.count))
        return [build(IotaOp, size=(self.count,), to=i64, start=0, step=1)]


@irdl_op_definition
class DecodePictureOp(DataDependent):
    """The pixels of a picture that is encoded as files are: `result[y, x, c]` of red, green and blue, or of gray alone.

    Which of the formats of files it is (PNG, JPEG, WebP, BMP, TIFF, PNM, …) its bytes say; transparency is dropped.
    (C1) `data` is ui8 of rank 1; (C2) the result is ui8 of the shape (`size`, 3), or (`size`, 1) if `gray`: `size` are the
    height and the width. Bytes that are no picture, and an empty `data`, are an error.
    """

    name = "dl.decode_picture"
    data = operand_def(TensorType)
    size = prop_def(DenseArrayBase | DimsAttr)
    gray = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        byte = element_type("uint8")
        if element_type_of(self.data) != byte or rank_of(self.data) != 1:
            raise DTypeError(f"{self.name}: {self.data.type}; expected bytes, ui8 of rank 1 (C1)")
        return [tensor_type((*sizes(self.size), 1 if flag(self.gray) else 3), byte)]

    @property
    def settings(self) -> Mapping[str, Setting]:
        return {"gray": flag(self.gray)}
