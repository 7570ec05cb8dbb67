"""Insert `dl.vary` into a differentiated function, where an op has per-rank operands that vary along different mesh axes."""

from __future__ import annotations

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.distributed.shard_map import VaryOp
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.programs.control import captured_values
from dlc.ir import Block, IntegerAttr, Operation, SSAValue, StringAttr, erase_op, i64
from dlc.passes.dl.rewriting import nested_blocks
from dlc.passes.sharding.varying_axes import VaryingAxes, condition_axes, varied_operands


def insert_vary(block: Block, entry: Block) -> None:
    """Insert `dl.vary` for the operands of all ops in a block and its bodies; see Note [Varying axes].

        %p = dl.mul %w, %x        where %x varies along `data`, %w does not
    →   %v = dl.vary %w {axes = "data"};  %p = dl.mul %v, %x

    It follows the definition of the value, also if a loop reads it, so that the cotangents of all iterations are added before
    those of the ranks are. `entry` contains the block. Values from outside of the block are constants of its derivative.
    """
    for op in [op for body in nested_blocks([block]) for op in body.ops if isinstance(op, dl.IfOp | dl.WhileOp)]:
        _vary_captured_values(op, block, VaryingAxes(entry))
    inserter = _Inserter(block, VaryingAxes(entry))
    for op in [op for body in nested_blocks([block]) for op in body.ops]:
        for k, axes in varied_operands(op, inserter.varying):
            op.operands[k] = inserter.varied(op.operands[k], axes)
    _remove_axes_that_vary(block, inserter.varying)


def _remove_axes_that_vary(block: Block, varying: VaryingAxes) -> None:
    """Remove from `dl.vary` the axes along which its operand varies: its transpose must sum cotangents over others only."""
    for op in [op for body in nested_blocks([block]) for op in body.ops if isinstance(op, VaryOp)]:
        own = varying.of(op.x) or frozenset[str]()
        axes = [name for name in op.axes.data.split() if name not in own]
        if axes:
            op.axes, op.group_size = StringAttr(" ".join(axes)), IntegerAttr(varying.mesh.shard_count(axes), i64)
        else:
            op.result.replace_all_uses_with(op.x)
            erase_op(op)


def _vary_captured_values(op: dl.IfOp | dl.WhileOp, block: Block, varying: VaryingAxes) -> None:
    """Insert `dl.vary` before a branch or loop that ranks execute differently, for the values that its bodies read.

    An all_reduce inside of a body would wait for ranks that do not execute it.
    """
    axes, inserter = condition_axes(op, varying), _Inserter(block, varying)
    inner = {nested for body in nested_blocks(op.blocks) for nested in body.ops}
    for value in dict.fromkeys(v for body in op.blocks for v in captured_values(body)) if axes else ():
        own = varying.of(value)
        if own is not None and not axes <= own:
            varied = inserter.varied(value, axes | own)
            value.replace_uses_with_if(varied, lambda use: use.operation in inner)


class _Inserter:
    """Inserts each `dl.vary` of a block once."""

    def __init__(self, block: Block, varying: VaryingAxes) -> None:
        self.varying = varying
        self._blocks = set(nested_blocks([block]))
        self._inserted: dict[tuple[SSAValue, frozenset[str]], SSAValue] = {}

    def varied(self, value: SSAValue, axes: frozenset[str]) -> SSAValue:
        """Return a value that varies along `axes`; itself if it is a constant of the derivative."""
        owner = value.owner
        if (
            not is_float(element_type_of(value))
            or (owner.parent if isinstance(owner, Operation) else owner) not in self._blocks
        ):
            return value
        added = axes.difference(self.varying.of(value) or ())
        if (value, added) not in self._inserted:
            following = owner.next_op if isinstance(owner, Operation) else owner.first_op
            assert following is not None
            ordered = [name for name in self.varying.mesh.sizes if name in added]
            build = DlBuilder(following, owner.location if isinstance(owner, Operation) else None)
            size = self.varying.mesh.shard_count(ordered)
            self._inserted[value, added] = result = build(VaryOp, value, axes=" ".join(ordered), group_size=size)
            self.varying.record(result, axes)
        return self._inserted[value, added]
