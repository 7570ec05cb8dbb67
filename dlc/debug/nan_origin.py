"""Find the origin of a NaN: the first op that produces one from non-NaN operands, among those whose NaN reaches a result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc.compiler import Program
from dlc.dialects.dl.base import Array, DlOp
from dlc.dialects.dl.creation import WeightOp
from dlc.dialects.dl.interfaces import Elementwise
from dlc.dialects.dl.programs.control import Control, captured_values
from dlc.dialects.entry import entry_of
from dlc.instrument.capture import EvaluationTrace, Evaluator, OpEvaluation
from dlc.instrument.provenance import origins
from dlc.ir import Operation, SSAValue
from dlc.just_in_time.decorator import jit
from dlc.just_in_time.jit_function import JitFunction
from dlc.passes.transformations.expand_transformations import expand_for_evaluation

# Prefix of the locations of derivative ops.
_DERIVATIVE = "∂ "


@dataclass(frozen=True)
class FirstNan:
    """The origin of a NaN in a result. `str` of it is a message.

    Attributes:
        op: The name of the op, such as `dl.log`; `argument` or `weight` if the NaN is in one of these.
        location: The user's line, such as `model.py:12`, the ONNX node, or the name of the argument or weight.
        in_derivative: Whether the op belongs to the derivative of that line.
        count: The number of elements that are NaN.
        size: The number of elements.
        operands: A description of the operands of the first NaN.
    """

    op: str
    location: str
    in_derivative: bool
    count: int
    size: int
    operands: str = ""

    def __str__(self) -> str:
        elements = f"{self.count} of {self.size} elements" if self.size > 1 else "its value"
        if self.op in ("argument", "weight"):
            return f"{self.op} {self.location} contains NaN: {elements}"
        location_text = (
            (f" in the derivative of {self.location}" if self.in_derivative else f" at {self.location}")
            if self.location
            else ""
        )
        return f"{self.op}{location_text} produces the first NaN: {elements}" + (f"; {self.operands}" if self.operands else "")


def first_nan(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> FirstNan | None:
    """Find the origin of the first NaN in the result of a function; None if it contains no NaN.

        print(dlc.debug.first_nan(dlc.grad(loss), params, x))
        dl.div in the derivative of model.py:12 produces the first NaN: 1 of 8 elements; operands 0 and 0 at [3]

    The function, including derivatives, is traced and evaluated op by op with NumPy, without optimization. A NaN that does not
    reach a result, such as one that `where` discards, is not reported. Raises the errors of tracing the function.
    """
    traced = fun if isinstance(fun, JitFunction) else jit(fun)
    lowered = traced.lower(*args, **kwargs)
    return find_first_nan(lowered.program, traced.arrays(*args, **kwargs))


def find_first_nan(program: Program, arrays: Sequence[Array]) -> FirstNan | None:
    """Find the origin of the first NaN in an output of a program with static sizes; None if there is none."""
    module = expand_for_evaluation(program.module)
    main = entry_of(module)
    trace = Evaluator(arrays).trace(module, program.weights)
    values: dict[SSAValue, Array] = {**trace.values, **dict(zip(main.args, arrays, strict=True))}
    assert main.body.block.last_op is not None
    search = _NanSearch(trace, values, {a: info.name for a, info in zip(main.args, program.inputs, strict=True)})
    return search.find_origin(v for v in main.body.block.last_op.operands if search.has_nan(v))


class _NanSearch:
    """Search backward from values with NaN through the operands that propagate it."""

    def __init__(self, trace: EvaluationTrace, values: Mapping[SSAValue, Array], arguments: Mapping[SSAValue, str]) -> None:
        self.values = values
        self.arguments = arguments
        # Evaluations that produce NaN from operands without NaN, in order; an op in a loop is evaluated several times.
        self.producers = [s for s in trace.steps if _any_nan(s.results) and not _any_nan(s.operands)]
        self.order = {step.op: k for k, step in reversed(list(enumerate(self.producers)))}

    def has_nan(self, value: SSAValue) -> bool:
        """Return whether a value contains NaN."""
        return value in self.values and _count_nans(self.values[value]) > 0

    def find_origin(self, values: Iterable[SSAValue]) -> FirstNan | None:
        """Return the origin of the NaN in these values: the op that was evaluated first."""
        pending, visited = list(values), set[SSAValue]()
        origins_found: list[tuple[int, FirstNan]] = []
        while pending:
            value = pending.pop()
            if value in visited:
                continue
            visited.add(value)
            if value in self.arguments:
                origins_found.append((-1, _nan_in_constant("argument", self.arguments[value], self.values[value])))
            elif isinstance(value.owner, WeightOp):
                origins_found.append((-1, _nan_in_constant("weight", _locate(value.owner)[0], self.values[value])))
            elif isinstance(value.owner, Operation):
                evaluation = self._first_evaluation(value.owner)
                if evaluation is not None:
                    origins_found.append((evaluation, _nan_in_evaluation(self.producers[evaluation])))
                else:
                    pending.extend(self._sources(value.owner))
        return min(origins_found, key=lambda pair: pair[0])[1] if origins_found else None

    def _first_evaluation(self, op: Operation) -> int | None:
        """Return the index of the first evaluation in which an op, or one in its bodies, produced a NaN."""
        return min((self.order[inner] for inner in op.walk() if inner in self.order), default=None)

    def _sources(self, op: Operation) -> list[SSAValue]:
        """Return the operands that propagate NaN to an op: without their NaN, the result has fewer."""
        captures = [v for region in op.regions for v in captured_values(region.block)] if isinstance(op, Control) else []
        nan_operands = [v for v in (*op.operands, *captures) if self.has_nan(v)]
        if not isinstance(op, DlOp) or len(op.operands) == 1:
            return nan_operands
        count = sum(map(_count_nans, (self.values[r] for r in op.results)))
        return [v for v in nan_operands if self._count_nans_without(op, v) < count] or nan_operands

    def _count_nans_without(self, op: DlOp, value: SSAValue) -> int:
        """Return the number of NaN in the results of an op if the NaN of one operand are replaced."""
        operands = [np.nan_to_num(self.values[v]) if v is value else self.values[v] for v in op.operands]
        with np.errstate(all="ignore"):
            return sum(map(_count_nans, op.evaluate(*operands)))


def _any_nan(values: Iterable[Any]) -> bool:
    return any(_count_nans(value.array) > 0 for value in values)


def _count_nans(array: Array) -> int:
    return 0 if array.dtype.kind in "biu" else int(np.isnan(array).sum())


def _nan_in_constant(kind: str, name: str, array: Array) -> FirstNan:
    return FirstNan(kind, name, False, _count_nans(array), array.size)


def _locate(op: Operation) -> tuple[str, bool]:
    """Return the location of an op, and whether it belongs to a derivative."""
    names = origins(op.location)
    name = names[0] if names else ""
    return name.lstrip(_DERIVATIVE), name.startswith(_DERIVATIVE)


def _nan_in_evaluation(step: OpEvaluation) -> FirstNan:
    location, in_derivative = _locate(step.op)
    result = next(v.array for v in step.results if _count_nans(v.array))
    operands = [v.array for v in step.operands]
    description = _describe_elements(result, operands) if isinstance(step.op, Elementwise) else _describe_ranges(operands)
    return FirstNan(step.op.name, location, in_derivative, _count_nans(result), result.size, description)


def _describe_elements(result: Array, operands: Sequence[Array]) -> str:
    """Describe the operands' elements at the position of the first NaN."""
    index = tuple(int(i) for i in np.argwhere(np.isnan(result))[0])
    elements = [np.broadcast_to(a, result.shape)[index] for a in operands]
    values = " and ".join(f"{float(element):g}" for element in elements)
    return f"operand{'s' * (len(elements) > 1)} {values}" + (f" at {list(index)}" if index else "")


def _describe_ranges(operands: Sequence[Array]) -> str:
    """Describe the operands and their ranges of values."""
    if not operands:
        return ""
    return f"operand{'s' * (len(operands) > 1)} " + " and ".join(map(_describe_range, operands))


def _describe_range(array: Array) -> str:
    kind = f"{array.dtype}{list(array.shape)}"
    return f"{kind} from {array.min():g} to {array.max():g}" if array.size else kind
