"""Find which values are batched. A loop state that any step makes batched is batched from the first step on."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dlc.dialects.dl.programs.control import FailOp, IfOp, ScanOp, WhileOp, captured_values
from dlc.dialects.dl.programs.identities import AddDependencyOp
from dlc.ir import Block, Operation, SSAValue


def find_batched_values(loop: ScanOp | WhileOp, batched_outside: Collection[SSAValue]) -> set[SSAValue]:
    """Return the batched values among those outside and in the body of a loop, given the batched ones outside."""
    batched = set(batched_outside)
    _loop(loop, batched)
    return batched


def _loop(loop: ScanOp | WhileOp, batched: set[SSAValue]) -> None:
    states = loop.block.args[: loop.state_count] if isinstance(loop, ScanOp) else loop.block.args
    batched.update(a for v, a in zip(loop.arguments, loop.block.args, strict=True) if v in batched)
    previous_count = -1
    while previous_count != len(batched):
        previous_count = len(batched)
        _body(loop.block, batched)
        next_states = loop.yielded
        if isinstance(loop, WhileOp):
            condition, *next_states = next_states
            # Batch elements run different numbers of iterations, so every state that an iteration changes is batched.
            if condition in batched or loop.condition in batched:
                batched.update(a for a, v in zip(states, next_states, strict=True) if v is not a)
        batched.update(a for a, v in zip(states, next_states, strict=False) if v in batched)
    batched.update(r for r, a in zip(loop.results, states, strict=False) if a in batched)
    if isinstance(loop, ScanOp):
        outputs = zip(loop.results[len(states) :], loop.yielded[len(states) :], strict=True)
        batched.update(r for r, v in outputs if v in batched)


def _body(block: Block, batched: set[SSAValue]) -> None:
    """Add to `batched` the values of a body that are computed from batched ones."""
    for op in block.ops:
        match op:
            case ScanOp() | WhileOp():
                _loop(op, batched)
            case IfOp():
                for inner in op.blocks:
                    _body(inner, batched)
                yields = [b.last_op.operands for b in op.blocks if b.last_op and not isinstance(b.last_op, FailOp)]
                for k, result in enumerate(op.results):
                    if op.condition in batched or any(values[k] in batched for values in yields):
                        batched.add(result)
            case _:
                if any(v in batched for v in computed_from(op)):
                    batched.update(op.results)


def computed_from(op: Operation) -> Sequence[SSAValue]:
    """Return the values that an op's results are computed from, including those that its bodies capture."""
    # The second operand of `dl.add_dependency` only orders execution.
    data_operands = op.operands[:1] if isinstance(op, AddDependencyOp) else op.operands
    return [*data_operands, *(v for region in op.regions for v in captured_values(region.block))]
