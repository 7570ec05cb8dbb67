"""Sink reshapes below chains of elementwise ops, so that each chain is one kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlc.arrays import ALIGNMENT_BYTES
from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.interfaces import Elementwise
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.ir import Context, ModuleOp, ModulePass, Operation, SSAValue, contains
from dlc.passes.dl.rewriting import defining_op, program_blocks, reshaped, rewrite_forward, users
from dlc.passes.views import is_view
from dlc.shapes.dims import Size


@dataclass(frozen=True)
class SinkReshapesPass(ModulePass):
    """`sink-reshapes`: f(reshape(x)) = reshape(f(x)) for elementwise f.

        %m = dl.matmul %x, %w;  %r = dl.reshape %m;  %y = dl.add %r, %bias
    →   %m = dl.matmul %x, %w;  %a = dl.add %m, %bias;  %y = dl.reshape %a

    Reshapes cost nothing at run time, but they end a kernel. An op moves where its other operands have the result's shape, or
    broadcast along trailing axes that the reshape keeps. It stays where the value has several consumer chains that do not
    converge, as a gradient in an optimizer has: the kernel that computes the value has one result and fuses none of them. A
    pad moves too, where the reshape only adds or removes unit axes.
    """

    name = "sink-reshapes"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        constant = WeightExpressions()
        for block in program_blocks(op) if contains(op, ReshapeOp) else ():
            rewrite_forward(block, _ReshapeSinker(constant).sink)


class _ReshapeSinker:
    def __init__(self, constant: WeightExpressions) -> None:
        self.constant = constant
        # An op on two reshaped values moves above one of the reshapes only, so that it does not alternate between them.
        self.sunk: set[DlOp] = set()

    def sink(self, op: DlOp) -> Sequence[SSAValue] | None:
        """Return an elementwise op's result as a reshape of the op on values before the reshape; None to leave it."""
        if isinstance(op, ReshapeOp) and defining_op(op.x, ReshapeOp) is not None:
            return [reshaped(DlBuilder(op), op.x, shape_of(op.result))]
        if isinstance(op, PadOp):
            return self.sink_through_pad(op)
        if not isinstance(op, Elementwise) or op in self.sunk:
            return None
        for value in op.operands:
            reshape = defining_op(value, ReshapeOp)
            if reshape is None or shape_of(value) != shape_of(op.results[0]) or not self.splits_a_chain(reshape):
                continue
            build = DlBuilder(op)
            operands = [_before_reshape(build, v, reshape) for v in op.operands]
            source_operands = [v for v in operands if v is not None]
            if len(source_operands) == len(operands):
                inner = type(op).make(*source_operands, **op.properties)
                self.sunk.add(inner)
                return [build(ReshapeOp, build.insert(inner).results[0], shape=shape_of(op.results[0]))]
        return None

    def sink_through_pad(self, op: PadOp) -> Sequence[SSAValue] | None:
        """Return a pad after a reshape that adds or removes unit axes as a reshape of a pad; None to leave it."""
        reshape = defining_op(op.x, ReshapeOp)
        if reshape is None or not self.splits_a_chain(reshape):
            return None
        padding = _padding_before_reshape(op.padding, shape_of(op.x), shape_of(reshape.x))
        if not padding:
            return None
        build, (low, high) = DlBuilder(op), zip(*padding, strict=True)
        inner = build(PadOp, reshape.x, op.value, **{**op.properties, "low": low, "high": high})
        return [build(ReshapeOp, inner, shape=shape_of(op.result))]

    def splits_a_chain(self, reshape: ReshapeOp) -> bool:
        """Return whether only the reshape prevents elementwise ops and pads from fusing with the producer of its operand."""
        source = reshape.x
        if not isinstance(source.owner, DlOp) or source in self.constant or is_view(source.owner, ALIGNMENT_BYTES):
            return False
        consumers = _users_through_reshapes(source)
        return all(isinstance(consumer, Elementwise | PadOp) for consumer in consumers) and (
            len(consumers) == 1 or _converge(consumers)
        )


def _users_through_reshapes(value: SSAValue) -> set[Operation]:
    """Return the users of a value, looking through reshapes."""
    consumers: set[Operation] = set()
    for user in users(value):
        consumers |= _users_through_reshapes(user.result) if isinstance(user, ReshapeOp) else {user}
    return consumers


def _converge(ops: Iterable[Operation]) -> bool:
    """Return whether elementwise chains from these ops converge to a single value."""
    pending, visited, num_ends = list(ops), set(ops), 0
    while pending and num_ends < 2:
        consumers = _users_through_reshapes(pending.pop().results[0])
        inner = {consumer for consumer in consumers if isinstance(consumer, Elementwise)}
        num_ends += not inner or len(inner) < len(consumers)
        pending += inner - visited
        visited |= inner
    return num_ends < 2


def _before_reshape(build: DlBuilder, value: SSAValue, reshape: ReshapeOp) -> SSAValue | None:
    """Return an operand that broadcasts to the shape before the reshape; None if there is none."""
    source_shape, result_shape, shape = shape_of(reshape.x), shape_of(reshape.result), shape_of(value)
    if shape == result_shape:
        return reshaped(build, value, source_shape)
    num_broadcast_axes = next((a for a, s in enumerate(shape) if s != 1), len(shape))
    trailing = shape[num_broadcast_axes:]
    return reshaped(build, value, trailing) if len(trailing) <= _common_tail(source_shape, result_shape) else None


def _padding_before_reshape(
    padding: Sequence[tuple[int, int]], result_shape: Sequence[Size], source_shape: Sequence[Size]
) -> list[tuple[int, int]] | None:
    """Return the padding of each axis before a reshape that only adds or removes unit axes.

    None for other reshapes, and where a unit axis is padded.
    """
    long_axes = [a for a, size in enumerate(result_shape) if size != 1]
    if [size for size in source_shape if size != 1] != [result_shape[a] for a in long_axes]:
        return None
    if any(padding[a] != (0, 0) for a in range(len(result_shape)) if a not in long_axes):
        return None
    long_axis_padding = iter([padding[a] for a in long_axes])
    return [(0, 0) if size == 1 else next(long_axis_padding) for size in source_shape]


def _common_tail(x: Sequence[Size], y: Sequence[Size]) -> int:
    """Return the number of equal trailing sizes of two shapes."""
    count = 0
    while count < min(len(x), len(y)) and x[-1 - count] == y[-1 - count]:
        count += 1
    return count
