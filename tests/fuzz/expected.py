"""What a whole program should compute, and how exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dlc.compiler import Program
from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp, element_type_of, shape_of
from dlc.dialects.dl.dtypes import element_type, numpy_dtype
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.entry import entry_of
from dlc.dims import Size, is_static
from dlc.ir import Block, Operation, SSAValue, func
from tests.fuzz.bounds import track
from tests.fuzz.tracked import Tracked


def expected_of(program: Program, inputs: Sequence[np.ndarray], precision: str = "f32") -> list[Tracked] | None:
    """What a program of `dl` ops should compute, its contractions of f32 with numbers of this precision.

    None for one of other ops, or with sizes that are open.
    """
    block = entry_of(program.module).body.block
    return _tracked(block, [Tracked(x, given=True) for x in inputs], {}, _Of(program.weights, precision))


@dataclass(frozen=True)
class _Of:
    """What all ops of a program share."""

    weights: Mapping[str, Array]
    precision: str = "f32"


def track_scan(op: dl.ScanOp, operands: Sequence[Tracked]) -> list[Tracked]:
    """The results of a loop over sequences that reads nothing around it."""
    made = _track_scan(op, operands, {}, _Of({}))
    assert made is not None
    return made


def _tracked(block: Block, arguments: Sequence[Tracked], above: Mapping[SSAValue, Tracked], of: _Of) -> list[Tracked] | None:
    """What a block yields, given what is known around it; None if that cannot be said."""
    known = {**above, **dict(zip(block.args, arguments, strict=True))}
    for op in block.ops:
        if isinstance(op, func.ReturnOp | dl.YieldOp):
            return [known[v] for v in op.operands]
        made = _results(op, known, of)
        if made is None:
            return None
        known.update(zip(op.results, made, strict=True))
    return None


def _results(op: Operation, known: Mapping[SSAValue, Tracked], of: _Of) -> list[Tracked] | None:
    operands = [known[v] for v in op.operands]
    match op:
        case dl.WeightOp():
            array = of.weights.get(op.symbol.string_value())
            if array is None or (array.shape, element_type(array.dtype)) != (shape_of(op.result), element_type_of(op.result)):
                return None
            return [Tracked(np.asarray(array), given=True)]
        case dl.ScanOp():
            return _track_scan(op, operands, known, of)
        case dl.WhileOp():
            return _track_while(op, operands, known, of)
        case dl.IfOp():
            return _track_if(op, operands[0], known, of)
        case DataDependent() if all(is_static(shape_of(v)) for v in (*op.operands, *op.results)):
            free = any(o.free.any() for o in operands)
            arrays = op.evaluate(*(o.array for o in operands))
            return [Tracked(a, np.full(a.shape, np.inf) if free else None) for a in arrays]
        case DlOp() if not isinstance(op, DataDependent):
            return track(op, *operands, precision=of.precision)
        case _:
            return None


def _track_scan(op: dl.ScanOp, operands: Sequence[Tracked], above: Mapping[SSAValue, Tracked], of: _Of) -> list[Tracked] | None:
    """The results of a loop over sequences, step by step."""
    count, length = op.state_count, int(op.steps)
    states, sequences = list(operands[:count]), operands[count:]
    made: list[list[Tracked]] = []
    for k in reversed(range(length)) if op.goes_back else range(length):
        yielded = _tracked(op.block, [*states, *(_element(s, k) for s in sequences)], above, of)
        if yielded is None:
            return None
        states = yielded[:count]
        made.append(yielded[count:])
    if op.goes_back:
        made.reverse()
    types = [(shape_of(r), numpy_dtype(element_type_of(r))) for r in op.results[count:]]
    # What no step has changed is computed all the same.
    return [
        *(replace(s, given=False) for s in states),
        *(_stacked([step[k] for step in made], *type_) for k, type_ in enumerate(types)),
    ]


def _track_while(
    op: dl.WhileOp, operands: Sequence[Tracked], above: Mapping[SSAValue, Tracked], of: _Of
) -> list[Tracked] | None:
    """The last states of a loop that data ends: anything if roundings do."""
    condition, *states = operands
    while condition.array and not condition.free.any():
        yielded = _tracked(op.block, states, above, of)
        if yielded is None:
            return None
        condition, *states = yielded
    if condition.free.any():
        return [Tracked(s.array, np.full(s.array.shape, np.inf)) for s in states]
    return [replace(s, given=False) for s in states]


def _track_if(op: dl.IfOp, condition: Tracked, above: Mapping[SSAValue, Tracked], of: _Of) -> list[Tracked] | None:
    """What the branch yields that is taken: anything if roundings pick it."""
    taken = op.then if condition.array.item() else op.otherwise
    yielded = _tracked(taken.block, [], above, of)
    if yielded is None or not condition.free.any():
        return yielded if yielded is None else [replace(y, given=False) for y in yielded]
    return [Tracked(y.array, np.full(y.array.shape, np.inf)) for y in yielded]


def _element(sequence: Tracked, k: int) -> Tracked:
    return Tracked(sequence.array[k], None if sequence.error is None else sequence.error[k], sequence.given)


def _stacked(steps: Sequence[Tracked], shape: Sequence[Size], dtype: np.dtype) -> Tracked:
    """A sequence of these elements."""
    if not steps:
        return Tracked(np.zeros([int(s) for s in shape], dtype))
    errors = np.stack([t.errors for t in steps])
    return Tracked(np.stack([t.array for t in steps]), errors if np.any(errors) else None)
