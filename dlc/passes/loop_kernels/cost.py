"""Decide between one kernel for a whole loop and separate launches in each step."""

from __future__ import annotations

from math import prod

from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.interfaces import Contraction, DataMovement, ScatterLike
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.programs.control import ScanOp, WhileOp
from dlc.ir import Block, Operation
from dlc.passes.elementwise_costs import elementwise_cost
from dlc.passes.loop_kernels.elements import MAX_REGISTER_ELEMENTS, NotLowerableError, static_shape
from dlc.passes.loop_kernels.lanes import Lanes

# Time of a launch in a host loop, and of a scalar op in a kernel (Zen 4, one thread).
_LAUNCH_NS, _SCALAR_OP_NS = 30.0, 0.3
# Ops of a body that typically become one kernel.
_OPS_PER_LAUNCH = 4
# Maximum scalar ops of a step of one lane. Larger steps compile slowly and spill registers.
_MAX_LANE_OPS = 1000
# Maximum scalar ops of an unrolled body, which bounds the time to compile it.
_MAX_SCALAR_OPS = 20_000


def scalar_ops(op: Operation) -> int:
    """Return the approximate number of scalar ops in one execution of an op of a body."""
    match op:
        case ConstantOp() | ReshapeOp() | DataMovement():
            return 0
        case Contraction():
            return prod(n for n in op.structure().extents if isinstance(n, int))
        case ScatterLike():
            # A small array is selected from, or copied to memory and back.
            target, updates = (prod(static_shape(op.operands[k])) for k in (0, 2))
            return updates + (target if target <= MAX_REGISTER_ELEMENTS else 0)
        case DlOp():
            return int(elementwise_cost(op)) * max((prod(static_shape(v)) for v in op.results), default=0)
        case _:
            return sum(scalar_ops(inner) for region in op.regions for inner in region.block.ops)


def require_gain(loop: ScanOp | WhileOp) -> None:
    """Raise NotLowerableError if separate kernels are estimated to be faster than one with scalar code."""
    ops = [op for op in loop.block.walk() if isinstance(op, DlOp) and not isinstance(op, ConstantOp | ReshapeOp | DataMovement)]
    work = sum(scalar_ops(op) for op in loop.block.ops)
    launches = max(1, len(ops) // _OPS_PER_LAUNCH)
    if work > _MAX_SCALAR_OPS or work * _SCALAR_OP_NS > (1 + launches) * _LAUNCH_NS:
        raise NotLowerableError(f"a step has {work} scalar ops, more than {launches} launches cost")


def require_gain_of_lanes(block: Block, lanes: Lanes) -> None:
    """Raise NotLowerableError if a lane has so much work that its values would not stay in registers."""
    work = max(map(scalar_ops, block.ops)) // lanes.count
    if work > _MAX_LANE_OPS:
        raise NotLowerableError(f"a step of a lane has {work} scalar ops")
