"""Facts about `scf.for` loops, most with constant bounds, and their splitting."""

from __future__ import annotations

from math import prod

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.scalar import constant_integer
from dlc.ir import Block, Operation, VectorType, scf
from dlc.passes.kernel_values import element_of
from dlc.passes.structured import ConstantPool


def constant_range(loop: scf.ForOp) -> range | None:
    """Return the values of the induction variable of a loop with constant bounds and step; None for other loops."""
    low, high, step = map(constant_integer, (loop.lb, loop.ub, loop.step))
    return None if low is None or high is None or step is None else range(low, high, step)


def is_inside(owner: Operation | Block, loop: scf.ForOp) -> bool:
    """Return whether an op or block is in the body of a loop."""
    op = owner.parent_op() if isinstance(owner, Block) else owner
    while op is not None and op is not loop:
        op = op.parent_op()
    return op is loop


def split_loop(loop: scf.ForOp, middle: int, constants: ConstantPool) -> scf.ForOp:
    """Split a loop at an index; return the first part. `loop` becomes the second one."""
    assert loop.parent is not None
    head = loop.clone()
    head.operands = [head.lb, constants.index(middle), head.step, *loop.iter_args]
    loop.parent.insert_op_before(head, loop)
    loop.operands = [constants.index(middle), loop.ub, loop.step, *head.results]
    return head


def num_accumulator_rows(loop: scf.ForOp) -> int:
    """Return the number of rows of vectors that a loop accumulates; each uses the panel row that an iteration reads."""
    shapes = [t.get_shape() for v in loop.iter_args if isinstance(t := v.type, VectorType)]
    return sum(prod(shape[:-1]) for shape in shapes)


def accumulator_bytes(loop: scf.ForOp) -> int:
    """Return the size in bytes of the vectors that a loop accumulates."""
    total = 0
    for value in loop.iter_args:
        element = element_of(value.type)
        if isinstance(t := value.type, VectorType):
            total += prod(t.get_shape()) * numpy_dtype(element).itemsize
    return total
