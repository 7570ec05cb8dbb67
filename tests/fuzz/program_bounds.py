"""Expected results of whole programs, with error bounds."""

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
from dlc.ir import Block, Operation, SSAValue, func
from dlc.shapes.dims import Size, is_static
from tests.fuzz.bounded_value import BoundedArray
from tests.fuzz.bounds import track


def expected_results(program: Program, inputs: Sequence[np.ndarray], precision: str = "f32") -> list[BoundedArray] | None:
    """Evaluate a program of `dl` ops with error bounds, for a precision of f32 contractions with weights.

    Returns None if it has other ops or symbolic sizes.
    """
    block = entry_of(program.module).body.block
    return _evaluate_block(block, [BoundedArray(x, is_source=True) for x in inputs], {}, _Context(program.weights, precision))


@dataclass(frozen=True)
class _Context:
    """Weights and precision of a program."""

    weights: Mapping[str, Array]
    precision: str = "f32"


def track_scan(op: dl.ScanOp, operands: Sequence[BoundedArray]) -> list[BoundedArray]:
    """Evaluate a scan that captures no values, with error bounds."""
    results = _evaluate_scan(op, operands, {}, _Context({}))
    assert results is not None
    return results


def _evaluate_block(
    block: Block, arguments: Sequence[BoundedArray], outer: Mapping[SSAValue, BoundedArray], context: _Context
) -> list[BoundedArray] | None:
    """Return the results of a block, given the values of outer blocks; None if an op is not supported."""
    values = {**outer, **dict(zip(block.args, arguments, strict=True))}
    for op in block.ops:
        if isinstance(op, func.ReturnOp | dl.YieldOp):
            return [values[v] for v in op.operands]
        results = _evaluate_op(op, values, context)
        if results is None:
            return None
        values.update(zip(op.results, results, strict=True))
    return None


def _evaluate_op(op: Operation, values: Mapping[SSAValue, BoundedArray], context: _Context) -> list[BoundedArray] | None:
    operands = [values[v] for v in op.operands]
    match op:
        case dl.WeightOp():
            array = context.weights.get(op.symbol.string_value())
            if array is None or (array.shape, element_type(array.dtype)) != (shape_of(op.result), element_type_of(op.result)):
                return None
            return [BoundedArray(np.asarray(array), is_source=True)]
        case dl.ScanOp():
            return _evaluate_scan(op, operands, values, context)
        case dl.WhileOp():
            return _evaluate_while(op, operands, values, context)
        case dl.IfOp():
            return _evaluate_if(op, operands[0], values, context)
        case DataDependent() if all(is_static(shape_of(v)) for v in (*op.operands, *op.results)):
            unbounded = any(o.unbounded.any() for o in operands)
            arrays = op.evaluate(*(o.array for o in operands))
            return [BoundedArray(a, np.full(a.shape, np.inf) if unbounded else None) for a in arrays]
        case DlOp() if not isinstance(op, DataDependent):
            return track(op, *operands, precision=context.precision)
        case _:
            return None


def _evaluate_scan(
    op: dl.ScanOp, operands: Sequence[BoundedArray], outer: Mapping[SSAValue, BoundedArray], context: _Context
) -> list[BoundedArray] | None:
    """Evaluate a scan, iteration by iteration."""
    count, length = op.state_count, int(op.steps)
    states, sequences = list(operands[:count]), operands[count:]
    collected: list[list[BoundedArray]] = []
    for k in reversed(range(length)) if op.is_reverse else range(length):
        results = _evaluate_block(op.block, [*states, *(_element(s, k) for s in sequences)], outer, context)
        if results is None:
            return None
        states = results[:count]
        collected.append(results[count:])
    if op.is_reverse:
        collected.reverse()
    types = [(shape_of(r), numpy_dtype(element_type_of(r))) for r in op.results[count:]]
    # A state that no iteration changes still counts as computed.
    return [
        *(replace(s, is_source=False) for s in states),
        *(_stack([step[k] for step in collected], *type_) for k, type_ in enumerate(types)),
    ]


def _evaluate_while(
    op: dl.WhileOp, operands: Sequence[BoundedArray], outer: Mapping[SSAValue, BoundedArray], context: _Context
) -> list[BoundedArray] | None:
    """Evaluate a while loop; if rounding may change the condition, the results are unbounded."""
    condition, *states = operands
    while condition.array and not condition.unbounded.any():
        results = _evaluate_block(op.block, states, outer, context)
        if results is None:
            return None
        condition, *states = results
    if condition.unbounded.any():
        return [BoundedArray(s.array, np.full(s.array.shape, np.inf)) for s in states]
    return [replace(s, is_source=False) for s in states]


def _evaluate_if(
    op: dl.IfOp, condition: BoundedArray, outer: Mapping[SSAValue, BoundedArray], context: _Context
) -> list[BoundedArray] | None:
    """Evaluate the branch taken; if rounding may change the condition, the results are unbounded."""
    branch = op.then if condition.array.item() else op.otherwise
    results = _evaluate_block(branch.block, [], outer, context)
    if results is None or not condition.unbounded.any():
        return results if results is None else [replace(y, is_source=False) for y in results]
    return [BoundedArray(y.array, np.full(y.array.shape, np.inf)) for y in results]


def _element(sequence: BoundedArray, k: int) -> BoundedArray:
    return BoundedArray(sequence.array[k], None if sequence.error is None else sequence.error[k], sequence.is_source)


def _stack(steps: Sequence[BoundedArray], shape: Sequence[Size], dtype: np.dtype) -> BoundedArray:
    """Stack elements along a new leading axis."""
    if not steps:
        return BoundedArray(np.zeros([int(s) for s in shape], dtype))
    errors = np.stack([t.errors for t in steps])
    return BoundedArray(np.stack([t.array for t in steps]), errors if np.any(errors) else None)
