"""Moves reshapes out of chains of elementwise ops, so that each chain is one kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlc.arrays import ALIGNMENT
from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.interfaces import Elementwise
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dims import Size
from dlc.ir import Context, ModuleOp, ModulePass, Operation, SSAValue, contains
from dlc.passes.dl.rewriting import defining, program_blocks, reshaped, rewrite_forward, users
from dlc.passes.views import is_view


@dataclass(frozen=True)
class SinkReshapesPass(ModulePass):
    """`sink-reshapes`: an elementwise op on a reshaped value becomes one on the value itself.

        %m = dl.matmul %x, %w;  %r = dl.reshape %m;  %y = dl.add %r, %bias
    →   %m = dl.matmul %x, %w;  %a = dl.add %m, %bias;  %y = dl.reshape %a

    Reshapes cost nothing, but they end a kernel. An op moves where its other operands have the result's shape, or repeat
    along axes that the reshape leaves alone; unless its value goes several ways that do not meet again, as a gradient does in
    an optimiser: the kernel that makes it has one result and takes none of them. So does a border around what has gained or
    lost axes of size 1.
    """

    name = "sink-reshapes"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        constant = WeightExpressions()
        for block in program_blocks(op) if contains(op, ReshapeOp) else ():
            rewrite_forward(block, _Sinker(constant).sink)


class _Sinker:
    def __init__(self, constant: WeightExpressions) -> None:
        self.constant = constant
        # An op on two reshaped values moves to one of them, and stays there.
        self.moved: set[DlOp] = set()

    def sink(self, op: DlOp) -> Sequence[SSAValue] | None:
        """The result of an elementwise op as a reshape of what it computes from the values before a reshape."""
        if isinstance(op, ReshapeOp) and defining(op.x, ReshapeOp) is not None:
            return [reshaped(Build(op), op.x, shape_of(op.result))]
        if isinstance(op, PadOp):
            return self.padded(op)
        if not isinstance(op, Elementwise) or op in self.moved:
            return None
        for value in op.operands:
            reshape = defining(value, ReshapeOp)
            if reshape is None or shape_of(value) != shape_of(op.results[0]) or not self.cuts_a_chain(reshape):
                continue
            b = Build(op)
            operands = [_seen_before(b, v, reshape) for v in op.operands]
            moved = [v for v in operands if v is not None]
            if len(moved) == len(operands):
                inner = type(op).make(*moved, **op.properties)
                self.moved.add(inner)
                return [b(ReshapeOp, b.insert(inner).results[0], shape=shape_of(op.results[0]))]
        return None

    def padded(self, op: PadOp) -> Sequence[SSAValue] | None:
        """A border around what has gained or lost axes of size 1, as a border before that."""
        reshape = defining(op.x, ReshapeOp)
        if reshape is None or not self.cuts_a_chain(reshape):
            return None
        edges = _edges_before(op.padding, shape_of(op.x), shape_of(reshape.x))
        if not edges:
            return None
        b, (low, high) = Build(op), zip(*edges, strict=True)
        inner = b(PadOp, reshape.x, op.value, **{**op.properties, "low": low, "high": high})
        return [b(ReshapeOp, inner, shape=shape_of(op.result))]

    def cuts_a_chain(self, reshape: ReshapeOp) -> bool:
        """Whether the reshape keeps nothing but elementwise ops and borders from the kernel that makes its operand."""
        source = reshape.x
        if not isinstance(source.owner, DlOp) or source in self.constant or is_view(source.owner, ALIGNMENT):
            return False
        readers = _readers(source)
        return all(isinstance(r, Elementwise | PadOp) for r in readers) and (len(readers) == 1 or _meet(readers))


def _readers(value: SSAValue) -> set[Operation]:
    """The ops that read a value, as it is or reshaped."""
    found: set[Operation] = set()
    for user in users(value):
        found |= _readers(user.result) if isinstance(user, ReshapeOp) else {user}
    return found


def _meet(ops: Iterable[Operation]) -> bool:
    """Whether all that elementwise ops make of the results of some is one value in the end."""
    pending, met, ends = list(ops), set(ops), 0
    while pending and ends < 2:
        readers = _readers(pending.pop().results[0])
        inner = {r for r in readers if isinstance(r, Elementwise)}
        ends += not inner or len(inner) < len(readers)
        pending += inner - met
        met |= inner
    return ends < 2


def _seen_before(b: Build, value: SSAValue, reshape: ReshapeOp) -> SSAValue | None:
    """An operand as it broadcasts to the shape before the reshape; None if it does not."""
    before, after, shape = shape_of(reshape.x), shape_of(reshape.result), shape_of(value)
    if shape == after:
        return reshaped(b, value, before)
    repeated = next((a for a, s in enumerate(shape) if s != 1), len(shape))
    kept = shape[repeated:]
    return reshaped(b, value, kept) if len(kept) <= _common_tail(before, after) else None


def _edges_before(
    edges: Sequence[tuple[int, int]], after: Sequence[Size], before: Sequence[Size]
) -> list[tuple[int, int]] | None:
    """The edges of a pad before a reshape that adds or leaves out axes of size 1; None before another one, and where such an
    axis has edges itself."""
    long = [a for a, size in enumerate(after) if size != 1]
    if [size for size in before if size != 1] != [after[a] for a in long]:
        return None
    if any(edges[a] != (0, 0) for a in range(len(after)) if a not in long):
        return None
    own = iter([edges[a] for a in long])
    return [(0, 0) if size == 1 else next(own) for size in before]


def _common_tail(x: Sequence[Size], y: Sequence[Size]) -> int:
    """How many last axes two shapes have in common."""
    tail = 0
    while tail < min(len(x), len(y)) and x[-1 - tail] == y[-1 - tail]:
        tail += 1
    return tail
