"""What a whole program should compute, and how exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from dlc.compiler import Program
from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of, shape_of
from dlc.dialects.dl.dtypes import element_type, numpy_dtype
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.entry import entry_of
from dlc.dims import Size
from dlc.ir import SSAValue, func
from tests.fuzz.bounds import track
from tests.fuzz.tracked import Tracked


def expected_of(program: Program, inputs: Sequence[np.ndarray]) -> list[Tracked] | None:
    """What a program of `dl` ops should compute; None for one of other ops, or with sizes that are data."""
    block = entry_of(program.module).body.block
    known: dict[SSAValue, Tracked] = dict(zip(block.args, (Tracked(x, given=True) for x in inputs), strict=True))
    for op in block.ops:
        if isinstance(op, func.ReturnOp):
            return [known[v] for v in op.operands]
        if isinstance(op, dl.WeightOp):
            name = op.symbol.string_value()
            array = program.weights.get(name)
            if array is None or (array.shape, element_type(array.dtype)) != (shape_of(op.result), element_type_of(op.result)):
                return None
            made = [Tracked(np.asarray(array), given=True)]
        elif isinstance(op, dl.ScanOp) and all(isinstance(inner, DlOp | dl.YieldOp) for inner in op.block.ops):
            made = track_scan(op, [known[v] for v in op.operands], known)
        elif isinstance(op, DlOp) and not isinstance(op, DataDependent):
            made = track(op, *(known[v] for v in op.operands))
        else:
            return None
        known.update(zip(op.results, made, strict=True))
    return None


def track_scan(op: dl.ScanOp, operands: Sequence[Tracked], above: Mapping[SSAValue, Tracked]) -> list[Tracked]:
    """The results of a loop over sequences, step by step; `above` is what is known around it."""
    count, length = op.state_count, int(op.steps)
    states, sequences = list(operands[:count]), operands[count:]
    made: list[list[Tracked]] = []
    for k in reversed(range(length)) if op.goes_back else range(length):
        known = {**above, **dict(zip(op.block.args, (*states, *(_element(s, k) for s in sequences)), strict=True))}
        for inner in op.block.ops:
            if isinstance(inner, DlOp):
                known.update(zip(inner.results, track(inner, *(known[v] for v in inner.operands)), strict=True))
        yielded = [known[v] for v in op.yielded]
        states = yielded[:count]
        made.append(yielded[count:])
    if op.goes_back:
        made.reverse()
    types = [(shape_of(r), numpy_dtype(element_type_of(r))) for r in op.results[count:]]
    # What no step has changed is computed all the same.
    return [
        *(replace(s, given=False) for s in states),
        *(_stacked([step[k] for step in made], *of) for k, of in enumerate(types)),
    ]


def _element(sequence: Tracked, k: int) -> Tracked:
    return Tracked(sequence.array[k], None if sequence.error is None else sequence.error[k], sequence.given)


def _stacked(steps: Sequence[Tracked], shape: Sequence[Size], dtype: np.dtype) -> Tracked:
    """A sequence of these elements."""
    if not steps:
        return Tracked(np.zeros([int(s) for s in shape], dtype))
    errors = np.stack([t.errors for t in steps])
    return Tracked(np.stack([t.array for t in steps]), errors if np.any(errors) else None)
