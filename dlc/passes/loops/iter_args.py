"""Add loop-carried values to a loop."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.ir import SSAValue, erase_op, scf


def add_iter_args(loop: scf.ForOp, values: Sequence[SSAValue]) -> scf.ForOp:
    """Rebuild a loop with more iter_args, initially `values`, which its body does not yield yet."""
    body = loop.detach_region(loop.body)
    for value in values:
        body.block.insert_arg(value.type, len(body.block.args)).name_hint = value.name_hint
    new_loop = scf.ForOp.create(
        operands=[*loop.operands, *values],
        result_types=[*(r.type for r in loop.results), *(v.type for v in values)],
        properties=loop.properties,
        attributes=loop.attributes,
        regions=[body],
    )
    new_loop.location = loop.location
    block = loop.parent
    assert block is not None
    block.insert_op_before(new_loop, loop)
    for old, result in zip(loop.results, new_loop.results, strict=False):
        old.replace_all_uses_with(result)
    erase_op(loop)
    return new_loop
