"""Where a NaN comes from: the first op that makes one of numbers, among those whose NaN reaches a result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc.compiler import Program
from dlc.dialects.dl.base import Array, DlOp
from dlc.dialects.dl.creation import WeightOp
from dlc.dialects.dl.interfaces import Elementwise
from dlc.dialects.dl.programs.control import Control, captured
from dlc.dialects.entry import entry_of
from dlc.instrument.capture import Evaluator, Step, Trace
from dlc.instrument.provenance import origins
from dlc.ir import Operation, SSAValue
from dlc.just_in_time import JitFunction, jit
from dlc.passes.transformations.expand_transformations import expanded

# How places of derivatives begin.
_DERIVATIVE = "∂ "


@dataclass(frozen=True)
class FirstNan:
    """Where a NaN of a result was made: `str` of it is a message.

    `op` is `dl.log`; or `argument` or `weight` for what held a NaN already. `place` is the user's line, `model.py:12`, or the
    ONNX node, and the name of an argument or weight; `in_derivative`: not there, but in what is derived from it. `count` of
    `size` elements are NaN; `why` says of which numbers the first one was made.
    """

    op: str
    place: str
    in_derivative: bool
    count: int
    size: int
    why: str = ""

    def __str__(self) -> str:
        elements = f"{self.count} of {self.size} elements" if self.size > 1 else "its value"
        if self.op in ("argument", "weight"):
            return f"{self.op} {self.place} holds NaN: {elements}"
        where = (f" in the derivative of {self.place}" if self.in_derivative else f" at {self.place}") if self.place else ""
        return f"{self.op}{where} makes the first NaN: {elements}" + (f"; {self.why}" if self.why else "")


def first_nan(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> FirstNan | None:
    """Where the first NaN comes from that a function's result holds; None if it holds none.

        print(dlc.debug.first_nan(dlc.grad(loss), params, x))
        dl.div in the derivative of model.py:12 makes the first NaN: 1 of 8 elements; of 0 and 0 at [3]

    The function is traced and evaluated with NumPy, op by op, as it was written: its derivatives too, if it is a gradient.
    NaN that does not reach a result, in what `where` does not choose, is not reported.
    Raises what tracing the function raises.
    """
    traced = fun if isinstance(fun, JitFunction) else jit(fun)
    lowered = traced.lower(*args, **kwargs)
    return first_nan_of(lowered.program, traced.arrays(*args, **kwargs))


def first_nan_of(program: Program, arrays: Sequence[Array]) -> FirstNan | None:
    """Where the first NaN comes from that an output of a program of known sizes holds, for these inputs; None if none does."""
    module = expanded(program.module)
    main = entry_of(module)
    trace = Evaluator(arrays).trace(module, program.weights)
    values: dict[SSAValue, Array] = {**trace.values, **dict(zip(main.args, arrays, strict=True))}
    assert main.body.block.last_op is not None
    search = _Search(trace, values, {a: info.name for a, info in zip(main.args, program.inputs, strict=True)})
    return search.behind(v for v in main.body.block.last_op.operands if search.has_nan(v))


class _Search:
    """Goes back from values with NaN, through the operands that they have it from."""

    def __init__(self, trace: Trace, values: Mapping[SSAValue, Array], arguments: Mapping[SSAValue, str]) -> None:
        self.values = values
        self.arguments = arguments
        # Steps whose NaN is their own, in the order in which they were taken: in a loop an op takes many.
        self.makers = [s for s in trace.steps if _any_nan(s.results) and not _any_nan(s.operands)]
        self.order = {step.op: k for k, step in reversed(list(enumerate(self.makers)))}

    def has_nan(self, value: SSAValue) -> bool:
        return value in self.values and _nans(self.values[value]) > 0

    def behind(self, values: Iterable[SSAValue]) -> FirstNan | None:
        """What made the NaN of these values: the op that was computed first."""
        pending, seen = list(values), set[SSAValue]()
        found: list[tuple[int, FirstNan]] = []
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            if value in self.arguments:
                found.append((-1, _held("argument", self.arguments[value], self.values[value])))
            elif isinstance(value.owner, WeightOp):
                found.append((-1, _held("weight", _place(value.owner)[0], self.values[value])))
            elif isinstance(value.owner, Operation):
                own = self._made_in(value.owner)
                if own is not None:
                    found.append((own, _made(self.makers[own])))
                else:
                    pending.extend(self._sources(value.owner))
        return min(found, key=lambda pair: pair[0])[1] if found else None

    def _made_in(self, op: Operation) -> int | None:
        """The first step that an op, or one in its bodies, took and in which it made a NaN; by number."""
        return min((self.order[inner] for inner in op.walk() if inner in self.order), default=None)

    def _sources(self, op: Operation) -> list[SSAValue]:
        """The operands with NaN that an op has its NaN from: without theirs it would have fewer."""
        outside = [v for region in op.regions for v in captured(region.block)] if isinstance(op, Control) else []
        suspects = [v for v in (*op.operands, *outside) if self.has_nan(v)]
        if not isinstance(op, DlOp) or len(op.operands) == 1:
            return suspects
        count = sum(map(_nans, (self.values[r] for r in op.results)))
        return [v for v in suspects if self._nans_without(op, v) < count] or suspects

    def _nans_without(self, op: DlOp, value: SSAValue) -> int:
        operands = [np.nan_to_num(self.values[v]) if v is value else self.values[v] for v in op.operands]
        with np.errstate(all="ignore"):
            return sum(map(_nans, op.evaluate(*operands)))


def _any_nan(values: Iterable[Any]) -> bool:
    return any(_nans(value.array) > 0 for value in values)


def _nans(array: Array) -> int:
    return 0 if array.dtype.kind in "biu" else int(np.isnan(array).sum())


def _held(what: str, name: str, array: Array) -> FirstNan:
    return FirstNan(what, name, False, _nans(array), array.size)


def _place(op: Operation) -> tuple[str, bool]:
    """Where an op comes from, and whether it is of a derivative."""
    names = origins(op.location)
    name = names[0] if names else ""
    return name.lstrip(_DERIVATIVE), name.startswith(_DERIVATIVE)


def _made(step: Step) -> FirstNan:
    place, in_derivative = _place(step.op)
    result = next(v.array for v in step.results if _nans(v.array))
    operands = [v.array for v in step.operands]
    why = _elements(result, operands) if isinstance(step.op, Elementwise) else _ranges(operands)
    return FirstNan(step.op.name, place, in_derivative, _nans(result), result.size, why)


def _elements(result: Array, operands: Sequence[Array]) -> str:
    """The operands' elements where the first NaN is."""
    index = tuple(int(i) for i in np.argwhere(np.isnan(result))[0])
    numbers = [np.broadcast_to(a, result.shape)[index] for a in operands]
    return "of " + " and ".join(f"{float(n):g}" for n in numbers) + (f" at {list(index)}" if index else "")


def _ranges(operands: Sequence[Array]) -> str:
    """What the operands are, and how far they go."""
    return "of " + " and ".join(_range(a) for a in operands) if operands else ""


def _range(array: Array) -> str:
    kind = f"{array.dtype}{list(array.shape)}"
    return f"{kind} from {array.min():g} to {array.max():g}" if array.size else kind
