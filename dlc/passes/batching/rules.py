"""How ops are computed for all lanes at once: those that treat elements, axes or rows by themselves, and what moves elements.

A rule gives the results with lanes along axis 0, or None where the op's decomposition is to be batched instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from dlc.dialects.dl.arithmetic.activation import Activation, PreluOp
from dlc.dialects.dl.arithmetic.elementwise import SelectOp
from dlc.dialects.dl.arithmetic.random import RandomBitsOp
from dlc.dialects.dl.base import DlOp, ints, normalized_axes, number, rank_of, shape_of, sizes, tensor_type
from dlc.dialects.dl.interfaces import Elementwise, Procedure, Reduction, Sequential
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ConcatOp, ReshapeOp, ReverseOp, SliceOp, TransposeOp, WindowsOp
from dlc.dialects.dl.narrow_numbers.quantization import Scaled
from dlc.dialects.dl.procedures.running import Running
from dlc.dialects.dl.procedures.sorted import Searched
from dlc.dialects.dl.procedures.sorting import ArgsortOp, SortOp
from dlc.dialects.dl.procedures.trees import ForestOp
from dlc.dialects.dl.programs.identities import AfterOp
from dlc.dialects.dl.reductions.composite import CompositeReduction
from dlc.dialects.dl.reductions.extreme_places import ArgExtremum
from dlc.dialects.dl.reductions.normalization import BatchNormOp, LrnOp, Softmaxes, TrailingNorm
from dlc.ir import SSAValue, i1
from dlc.passes.batching.lanes import Lanes

Rule: TypeAlias = Callable[[Lanes, Any], "Sequence[SSAValue] | None"]


def elementwise(lanes: Lanes, op: Elementwise) -> Sequence[SSAValue]:
    """Lanes are one more axis in front, after which others are aligned."""
    rank = rank_of(op.results[0])
    return lanes.again(op, *(lanes.aligned(v, rank) for v in op.operands))


def beside_axes(lanes: Lanes, op: DlOp) -> Sequence[SSAValue]:
    """Ops on operands of one rank that treat the axes which they do not name each place by itself: lanes are one more."""
    return lanes.again(op, *map(lanes.all, op.operands), **axes_behind_lanes(op))


def beside_axes_of_first(lanes: Lanes, op: DlOp) -> Sequence[SSAValue] | None:
    """The same of the first operand, while others, which belong to its axes, are the same in all lanes."""
    first, *rest = op.operands
    if any(map(lanes.differs, rest)):
        return None
    return lanes.again(op, lanes.all(first), *map(lanes.read, rest), **axes_behind_lanes(op))


def scaled(lanes: Lanes, op: Scaled) -> Sequence[SSAValue] | None:
    """Parameters of blocks have all axes of the first operand: its definition is what lanes go through."""
    return None if op.block_count is not None else beside_axes_of_first(lanes, op)


def axes_behind_lanes(op: DlOp) -> Mapping[str, Any]:
    """The properties `axis` and `axes` of an op, of the first operand's axes, when lanes lie before these."""
    rank, changed = rank_of(op.operands[0]), dict[str, Any]()
    if "axis" in op.properties:
        # What has one scale for all elements names an axis also where there is none.
        changed["axis"] = normalized_axes(op.name, [number(op.properties["axis"])], rank)[0] + 1 if rank else 0
    if "axes" in op.properties:
        changed["axes"] = tuple(a + 1 for a in normalized_axes(op.name, ints(op.properties["axes"]), rank))
    return changed


def rows(lanes: Lanes, op: DlOp) -> Sequence[SSAValue]:
    """Ops whose operands have common leading axes."""
    return lanes.again(op, *map(lanes.all, op.operands))


def more_rows(lanes: Lanes, op: Sequential) -> Sequence[SSAValue]:
    """Ops of any number of rows along their first axis."""
    b, (rows, *rest) = lanes.build, shape_of(op.operands[0])
    made = lanes.again(op, b(ReshapeOp, lanes.all(op.operands[0]), shape=(lanes.size * rows, *rest)))
    return [b(ReshapeOp, y, shape=(lanes.size, *shape_of(r))) for y, r in zip(made, op.results, strict=True)]


def forest(lanes: Lanes, op: ForestOp) -> Sequence[SSAValue]:
    """Rows of all lanes at once where they walk by the same tables; else one lane after the other."""
    b, tables = lanes.build, op.operands[1:]
    if not any(map(lanes.differs, tables)):
        rows, columns = shape_of(op.x)
        (y,) = lanes.again(op, b(ReshapeOp, lanes.all(op.x), shape=(lanes.size * rows, columns)), *map(lanes.read, tables))
        return [b(ReshapeOp, y, shape=(lanes.size, *shape_of(op.result)))]

    def one(value: SSAValue, lane: int) -> SSAValue:
        shape = shape_of(value)
        starts, limits = (lane, *(0 for _ in shape)), (lane + 1, *shape)
        return b(ReshapeOp, b(SliceOp, lanes.all(value), starts=starts, limits=limits, strides=(1,) * len(limits)), shape=shape)

    made = [lanes.again(op, *(one(v, lane) for v in op.operands))[0] for lane in range(lanes.size)]
    return [b(ConcatOp, *(b(ReshapeOp, y, shape=(1, *shape_of(y))) for y in made), axis=0)]


def transpose(lanes: Lanes, op: TransposeOp) -> Sequence[SSAValue]:
    return lanes.again(op, lanes.all(op.x), permutation=(0, *(a + 1 for a in op.axes)))


def broadcast_to(lanes: Lanes, op: BroadcastToOp) -> Sequence[SSAValue]:
    shape = sizes(op.shape)
    return lanes.again(op, lanes.aligned(op.x, len(shape)), shape=(lanes.size, *shape))


def reshape(lanes: Lanes, op: ReshapeOp) -> Sequence[SSAValue]:
    return lanes.again(op, lanes.all(op.x), shape=(lanes.size, *sizes(op.shape)))


def slice_(lanes: Lanes, op: SliceOp) -> Sequence[SSAValue]:
    return lanes.again(
        op,
        lanes.all(op.x),
        starts=(0, *sizes(op.starts)),
        limits=(lanes.size, *sizes(op.limits)),
        strides=(1, *ints(op.strides)),
    )


def windows(lanes: Lanes, op: WindowsOp) -> Sequence[SSAValue]:
    (y,) = lanes.again(op, lanes.all(op.x), **axes_behind_lanes(op))
    return [lanes.moved(y, len(op.slides), 0)]


def pad(lanes: Lanes, op: PadOp) -> Sequence[SSAValue]:
    """A value of each lane's own goes where padding would place one."""
    around = {"low": (0, *ints(op.low)), "high": (0, *ints(op.high))}
    if not lanes.differs(op.value):
        return lanes.again(op, lanes.all(op.x), lanes.read(op.value), **around)
    b = lanes.build
    (y,) = lanes.again(op, lanes.all(op.x), b.scalar(0, like=op.value), **around)
    if op.mode != "constant":
        return [y]
    true, false = (b.scalar(k, like=tensor_type((), i1)) for k in (1, 0))
    inside = b(PadOp, b(BroadcastToOp, true, shape=shape_of(op.x)), false, low=op.low, high=op.high)
    return [b(SelectOp, inside, y, lanes.aligned(op.value, rank_of(op.x)))]


def after(lanes: Lanes, op: AfterOp) -> Sequence[SSAValue]:
    return lanes.again(op, lanes.read(op.x), lanes.read(op.y))


RULES: dict[type, Rule] = {
    Elementwise: elementwise,
    **dict.fromkeys(
        (
            Reduction,
            CompositeReduction,
            ArgExtremum,
            Softmaxes,
            LrnOp,
            Activation,
            Running,
            ArgsortOp,
            SortOp,
            ReverseOp,
            ConcatOp,
        ),
        beside_axes,
    ),
    **dict.fromkeys((TrailingNorm, BatchNormOp, PreluOp), beside_axes_of_first),
    Scaled: scaled,
    **dict.fromkeys((Searched, RandomBitsOp, Procedure), rows),
    Sequential: more_rows,
    ForestOp: forest,
    TransposeOp: transpose,
    BroadcastToOp: broadcast_to,
    ReshapeOp: reshape,
    SliceOp: slice_,
    WindowsOp: windows,
    PadOp: pad,
    AfterOp: after,
}
