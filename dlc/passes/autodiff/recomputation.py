"""Choose which values of a loop's step are saved for its reverse, and which are recomputed."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from dlc.dialects import dl
from dlc.dialects.dl.interfaces import Contraction, DataMovement, Elementwise, Reduction
from dlc.ir import Operation, SSAValue
from dlc.passes.autodiff.minimum_cut import MinimumCut
from dlc.passes.autodiff.shapes import itemsize, num_bytes, static_size
from dlc.passes.elementwise_costs import elementwise_cost
from dlc.shapes.dims import Size

# Note [Recomputation by a minimum cut]
#
# The reverse of a step needs some values of the step. Each is saved, or recomputed from values for which the same holds. With
# the variables a(v), value v is available in the reverse, and r(op), the reverse repeats the op, the cost is
#
#     Σ save(v) · a(v) · (1 - r(op of v)) + Σ compute(op) · r(op),    where r(op) implies a(u) for each operand u.
#
# This is a minimum cut. Variables of value 0 are on the source's side; the edges source → r(op) have the capacity compute(op),
# the edges r(op) → a(v) the capacity save(v), and a(u) → r(op) and a(required) → sink no limit. PyTorch's partitioner of joint
# graphs minimizes the saved bytes by such a cut.
#
# The unit of the costs is a vectorized addition per byte: its relations hold for all vector lengths and dtypes.

# A value costs at least as much as a vector of this size: each scalar needs an instruction.
_VECTOR_BYTES = 64
# Write and read a saved byte: in a cache a store and a load, in memory 12 bytes of traffic for 4, at 10 to 15
# GB/s per core (Zen 5: 3 to 5 cycles, in which 32 to 64 elements of f32 are added).
_CACHED_COST, _MEMORY_COST = 3.0, 32.0
# Saved values of all steps up to this size stay in a core's caches (second level and a share of the third).
_MAX_CACHED_BYTES = 1 << 22


def choose_saved_values(
    required: Sequence[SSAValue], candidates: Collection[SSAValue], forward: Sequence[Operation], steps: Size
) -> tuple[list[SSAValue], list[Operation]]:
    """Return the values to save in each step, and the ops to repeat in the reverse, in order.

    `required` are values of the step that the reverse reads, of `candidates`: states, and results of the ops `forward`. All
    other values are available in the reverse without costs. See Note [Recomputation by a minimum cut].
    """
    producers: dict[SSAValue, Operation] = {result: op for op in forward for result in op.results}
    in_memory = static_size(steps) * sum(map(num_bytes, required)) > _MAX_CACHED_BYTES
    cut, pending, values = MinimumCut(), list(required), dict.fromkeys(required)
    operations = set[Operation]()
    for value in required:
        cut.add_edge(value, cut.SINK)
    while pending:
        value = pending.pop()
        op, saving = producers.get(value), _CACHED_COST * _vector_bytes(value)
        if in_memory:
            saving = max(saving, _MEMORY_COST * num_bytes(value))
        if op is None:
            cut.add_edge(cut.SOURCE, value, saving)
            continue
        cut.add_edge(op, value, saving)
        if op in operations:
            continue
        operations.add(op)
        cost = _computing_cost(op)
        cut.add_edge(cut.SOURCE, op, cost)
        for operand in op.operands if cost < math.inf else ():
            if operand in candidates:
                cut.add_edge(operand, op)
                if operand not in values:
                    values[operand] = None
                    pending.append(operand)
    source_side = cut.source_side()
    repeated = [op for op in forward if op in operations and op not in source_side]
    recomputed = {result for op in repeated for result in op.results}
    saved = [v for v in values if v not in source_side and v not in recomputed]
    return saved, repeated


def _computing_cost(op: Operation) -> float:
    """Return the cost of repeating an op; infinite for those with bodies, indices from data, or loops of their own."""
    match op:
        case dl.GatherOp():
            return math.inf
        case Contraction():
            return max(_VECTOR_BYTES, math.prod(map(static_size, op.structure().extents)) * itemsize(op.results[0]))
        case Reduction():
            return _vector_bytes(op.operands[0])
        case Elementwise():
            return elementwise_cost(op) * _vector_bytes(op.results[0])
        case DataMovement() | dl.ReshapeOp() | dl.ConcatOp() | dl.PadOp():
            return _vector_bytes(op.results[0])
        case _:
            return math.inf


def _vector_bytes(value: SSAValue) -> float:
    return max(_VECTOR_BYTES, num_bytes(value))
