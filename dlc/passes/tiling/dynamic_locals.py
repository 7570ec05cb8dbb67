"""Store local tensors of dynamic size in the buffer of a later result."""

from __future__ import annotations

from dlc.dialects.dl.base import shape_of
from dlc.ir import Block, BlockArgument, SSAValue, linalg, tensor
from dlc.shapes.dims import is_static


def place_dynamic_locals(block: Block) -> None:
    """Store a local tensor of symbolic size in the destination of the elementwise op that reads it last.

        %e = linalg.generic ins(%x) outs(%empty) { exp }
        %s = linalg.generic ins(%e) outs(%zero) { addf }
        %y = linalg.generic ins(%e, %s) outs(%out) { divf }
      →
        %e = linalg.generic ins(%x) outs(%out) { exp };  …;  %y = linalg.generic ins(%e, %s) outs(%e) { divf }

    A kernel cannot allocate memory of dynamic size. An iteration of the last op overwrites only the element that it has
    read before.
    """
    position = {op: k for k, op in enumerate(block.ops)}
    for last in reversed(list(block.ops)):
        if not isinstance(last, linalg.GenericOp) or len(last.outputs) != 1 or last.body.block.args[-1].first_use:
            continue
        (out,) = last.outputs
        if is_static(shape_of(out)) or not isinstance(out, BlockArgument) or len(list(out.uses)) != 1:
            continue
        for value in last.inputs:
            if (producer := _producer(value, last)) is None:
                continue
            readers = [use.operation for use in value.uses]
            if all(isinstance(reader, linalg.GenericOp) and position[reader] <= position[last] for reader in readers):
                producer.operands[len(producer.operands) - 1] = out
                last.operands[len(last.operands) - 1] = value
                break


def _producer(value: SSAValue, last: linalg.GenericOp) -> linalg.GenericOp | None:
    """Return the op that computes `value` in a local tensor, if `last` reads it with the index of its own output."""
    producer, (out,) = value.owner, last.outputs
    if not isinstance(producer, linalg.GenericOp) or value.type != out.type or len(producer.outputs) != 1:
        return None
    if not isinstance(producer.outputs[0].owner, tensor.EmptyOp) or producer.body.block.args[-1].first_use:
        return None
    maps = [m.data for m in last.indexing_maps]
    read_maps = [m for operand, m in zip(last.inputs, maps, strict=False) if operand is value]
    return producer if read_maps == [maps[-1]] else None
