"""Insert `dl.vary` into a function that is differentiated, where values of ranks meet that vary along different mesh axes."""

from __future__ import annotations

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import is_float
from dlc.ir import Block, Operation, SSAValue
from dlc.passes.dl.rewriting import nested_blocks
from dlc.passes.sharding.varying_axes import VaryingAxes, varied_operands
from dlc.runtime.collectives.mesh import Mesh


def insert_vary(block: Block, varying: VaryingAxes) -> None:
    """Insert `dl.vary` for the operands of all ops in a block and its bodies; see Note [Varying axes].

        %p = dl.mul %w, %x        where %x varies along `data`, %w does not
    →   %v = dl.vary %w {axes = "data"};  %p = dl.mul %v, %x

    It follows the definition of the value, also if a loop reads it, so that the cotangents of all iterations are added before
    those of the ranks. Values from outside of the block are constants of its derivative.
    """
    blocks = list(nested_blocks([block]))
    inner, inserted = set(blocks), dict[tuple[SSAValue, frozenset[str]], SSAValue]()
    for op in [op for body in blocks for op in body.ops]:
        for k, axes in varied_operands(op, varying):
            value = op.operands[k]
            if not is_float(element_type_of(value)) or _block_of(value) not in inner:
                continue
            key = value, axes.difference(varying.of(value) or ())
            if key not in inserted:
                inserted[key] = _vary(value, key[1], varying.mesh)
                varying.record(inserted[key], axes)
            op.operands[k] = inserted[key]


def _block_of(value: SSAValue) -> Block | None:
    owner = value.owner
    return owner.parent if isinstance(owner, Operation) else owner


def _vary(value: SSAValue, axes: frozenset[str], mesh: Mesh) -> SSAValue:
    """Insert `dl.vary` after the definition of a value."""
    owner = value.owner
    following = owner.next_op if isinstance(owner, Operation) else owner.first_op
    assert following is not None
    location = owner.location if isinstance(owner, Operation) else following.location
    ordered = [name for name in mesh.sizes if name in axes]
    return DlBuilder(following, location)(dl.VaryOp, value, axes=" ".join(ordered), group_size=mesh.shard_count(ordered))
