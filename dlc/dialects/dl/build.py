"""Constructors: write a `dl` program as calls on values.

`build(AddOp, x, y)` inserts an op at the builder's place and returns its result; `build.scalar(2.0, like=x)` a constant.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import numpy as np

from dlc.dialects.dl.base import Array, DlOp, PropertyValue, element_type_of, tensor_type
from dlc.dialects.dl.creation import ConstantOp, SizeOp
from dlc.dialects.dl.dtypes import dense_attribute, numpy_dtype
from dlc.dims import Size
from dlc.ir import Attribute, Block, LocationAttr, Operation, SSAValue


class Build:
    """Inserts `dl` ops at one place: at the end of a block, or before an op (whose location they take)."""

    def __init__(self, place: Block | Operation, location: LocationAttr | None = None) -> None:
        self.place = place
        self.location = location if location is not None else (place.location if isinstance(place, Operation) else None)

    def insert(self, op: Operation) -> Operation:
        """Inserts any op, giving it the builder's location."""
        if self.location is not None:
            op.location = self.location
        if isinstance(self.place, Block):
            self.place.add_op(op)
        else:
            block = self.place.parent
            if block is None:
                raise ValueError(f"{self.place.name} is in no block")
            block.insert_op_before(op, self.place)
        return op

    def __call__(self, op: type[DlOp], *operands: SSAValue, **properties: PropertyValue | None) -> SSAValue:
        """The first result of a new op."""
        return self.insert(op.make(*operands, **properties)).results[0]

    def constant(self, value: Array, element_type: Attribute) -> SSAValue:
        """A small constant tensor; weights go to the store instead."""
        array = np.asarray(value, numpy_dtype(element_type))
        return self(ConstantOp, value=dense_attribute(array, tensor_type(array.shape, element_type)))

    def scalar(self, value: int | float, like: SSAValue | Attribute) -> SSAValue:
        """A rank-0 constant with the element type of `like` (a tensor value or type)."""
        return self.constant(np.asarray(value), element_type_of(like))

    def size(self, size: Size, like: SSAValue | Attribute) -> SSAValue:
        """A size as a rank-0 number with the element type of `like`."""
        return self.scalar(size, like) if isinstance(size, int) else self(SizeOp, size=(size,), to=element_type_of(like))

    @contextmanager
    def at(self, location: LocationAttr) -> Generator[None]:
        """Ops made inside carry `location`."""
        before, self.location = self.location, location
        try:
            yield
        finally:
            self.location = before
