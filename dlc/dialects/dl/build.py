"""An op builder: write a `dl` program as calls on values.

`build(AddOp, x, y)` inserts an op at the insertion point and returns its result; `build.scalar(2.0, like=x)` inserts a
constant.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import numpy as np

from dlc.dialects.dl.base import Array, DlOp, PropertyValue, element_type_of, tensor_type
from dlc.dialects.dl.creation import ConstantOp, SizeOp
from dlc.dialects.dl.dtypes import dense_attribute, numpy_dtype
from dlc.ir import Attribute, Block, LocationAttr, Operation, SSAValue
from dlc.shapes.dims import Size


class DlBuilder:
    """Inserts `dl` ops at an insertion point: at the end of a block, or before an op, with that op's location."""

    def __init__(self, insertion_point: Block | Operation, location: LocationAttr | None = None) -> None:
        self.insertion_point = insertion_point
        if location is None and isinstance(insertion_point, Operation):
            location = insertion_point.location
        self.location = location

    def insert(self, op: Operation) -> Operation:
        """Insert any op and give it the builder's location."""
        if self.location is not None:
            op.location = self.location
        if isinstance(self.insertion_point, Block):
            self.insertion_point.add_op(op)
        else:
            block = self.insertion_point.parent
            if block is None:
                raise ValueError(f"{self.insertion_point.name} is not in a block")
            block.insert_op_before(op, self.insertion_point)
        return op

    def __call__(self, op: type[DlOp], *operands: SSAValue, **properties: PropertyValue | None) -> SSAValue:
        """Insert a new op and return its first result."""
        return self.insert(op.make(*operands, **properties)).results[0]

    def constant(self, value: Array, element_type: Attribute) -> SSAValue:
        """Insert a small constant tensor; large arrays belong in the weights store."""
        array = np.asarray(value, numpy_dtype(element_type))
        return self(ConstantOp, value=dense_attribute(array, tensor_type(array.shape, element_type)))

    def scalar(self, value: int | float, like: SSAValue | Attribute) -> SSAValue:
        """Insert a rank-0 constant with the element type of `like` (a tensor value or type)."""
        return self.constant(np.asarray(value), element_type_of(like))

    def size(self, size: Size, like: SSAValue | Attribute) -> SSAValue:
        """Insert a size as a rank-0 tensor with the element type of `like`."""
        return self.scalar(size, like) if isinstance(size, int) else self(SizeOp, size=(size,), to=element_type_of(like))

    @contextmanager
    def at_location(self, location: LocationAttr) -> Generator[None]:
        """Give the ops that are inserted in the `with` block the location `location`."""
        previous_location, self.location = self.location, location
        try:
            yield
        finally:
            self.location = previous_location
