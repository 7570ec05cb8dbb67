"""Programs in which data decides a size, or how often a loop runs, as steps: plain data, and what executes it.

    values 0 x: f32[n] · 1 m: bool[n] · 2 p: i64[1, k] · 3 y: f32[k]
    segment (0) → (1)      select nonzero (1) → (2)      segment (0, 2) → (3)

Values are numbered: inputs first, then what the steps make. A segment is a compiled part; what data decides the sizes of is
computed with NumPy between segments, and so are the turns of a loop, or the choice of a branch, with such steps inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.dims import Dim, Range, Size, bind_sizes, require_in_range, substitute
from dlc.errors import DlcError, ShapeError
from dlc.runtime.control import RunBody, repeat, scan
from dlc.runtime.domain import Domain
from dlc.runtime.input_sizes import InputSizes
from dlc.runtime.kept import Kept
from dlc.runtime.model import Model
from dlc.runtime.open_program import OutsideError
from dlc.runtime.parts import Condition, Conditions
from dlc.runtime.selection import Setting, select

Numbers: TypeAlias = "tuple[int, ...]"


@dataclass(frozen=True)
class Served:
    """The model that one compilation made for the sizes of a domain; unless it `is_sure`, data may decide others."""

    model: Model
    domain: Domain = field(default_factory=Domain)
    is_sure: bool = True

    @property
    def is_all(self) -> bool:
        """Whether it is all that any call takes."""
        return self.domain.is_whole and self.is_sure


@dataclass(frozen=True)
class Segment:
    """A compiled part: what serves its sizes, and one model for each set of `symbols` that it does not serve."""

    inputs: Numbers
    outputs: Numbers
    served: Served | None
    symbols: tuple[str, ...]
    models: Kept[Numbers]


@dataclass(frozen=True)
class Select:
    """An op whose results are as large as data decides, by its name in selection.py; `where` is its place in the model."""

    inputs: Numbers
    outputs: Numbers
    op: str
    settings: Mapping[str, Setting]
    where: str


@dataclass(frozen=True)
class Body:
    """What a loop or branch runs: takes what it is given, then values from outside."""

    steps: Steps
    captured: Numbers


@dataclass(frozen=True)
class Scan:
    """Runs its body `length` times and hands `states` on; see `dl.scan`."""

    inputs: Numbers
    outputs: Numbers
    states: int
    length: Size
    body: Body
    reverse: bool = False


@dataclass(frozen=True)
class While:
    """Runs its body while it says so; see `dl.while`."""

    inputs: Numbers
    outputs: Numbers
    body: Body


@dataclass(frozen=True)
class If:
    """Runs one of two bodies; one that cannot be run is a message."""

    inputs: Numbers
    outputs: Numbers
    then: Body | str
    otherwise: Body | str


Step: TypeAlias = "Segment | Select | Scan | While | If"


@dataclass(frozen=True)
class Steps:
    """A program as steps. `values` says what each value is, `returned` which ones are the outputs."""

    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    values: tuple[TensorInfo, ...]
    steps: tuple[Step, ...]
    returned: Numbers
    ranges: Mapping[str, Range] = field(default_factory=dict[str, Range])

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """The outputs for inputs that fit.

        Raises ShapeError for a size outside of its range, or that is not what the program expects, and DlcError where a
        branch is taken that cannot be run.
        """
        known: dict[int, Any] = dict(enumerate(arrays))
        sizes = dict(zip(self._sizes.symbols, self._sizes.of([array.shape for array in arrays]), strict=True))
        for info in self.inputs if self.ranges else ():
            require_in_range(f"input {info}", info.shape, sizes, self.ranges)
        for step in self.steps:
            if isinstance(step, Segment):
                made = self._run_part(step, [known[v] for v in step.inputs], sizes)
                known.update(zip(step.outputs, made, strict=True))
                continue
            results = self._computed(step, [np.asarray(known[v]) for v in step.inputs], known, sizes)
            for v, result in zip(step.outputs, results, strict=True):
                known[v] = result
                bind_sizes(self.values[v].shape, result.shape, sizes)
        results = [known[v] for v in self.returned]
        return results if self._results_are_own else _own(results, arrays)

    @property
    def alone(self) -> Segment | None:
        """The only step, if it is all that the program is: each of its models serves calls of some sizes by itself."""
        step = self.steps[0] if len(self.steps) == 1 else None
        if not isinstance(step, Segment):
            return None
        return step if (step.inputs, step.outputs) == (tuple(range(len(self.inputs))), self.returned) else None

    def conditions(self, segment: Segment, key: Numbers) -> Conditions:
        """What holds of the calls for which `segment`, which is alone, has the model of a key."""
        sizes = dict(zip(segment.symbols, key, strict=True))
        decided = [info for info in self.inputs if sizes.keys() & {s for size in info.shape for s in Dim.lift(size).symbols()}]
        shapes = [(info.name, tuple(int(substitute(size, sizes)) for size in info.shape)) for info in decided]
        return tuple(Condition(name, shape, str([*shape])) for name, shape in shapes)

    @cached_property
    def _sizes(self) -> InputSizes:
        return InputSizes(self.inputs)

    @cached_property
    def _results_are_own(self) -> bool:
        """Whether each result is another one of compiled parts, whose memory nothing else is in."""
        made = {v for step in self.steps if isinstance(step, Segment) for v in step.outputs}
        return made.issuperset(self.returned) and len(set(self.returned)) == len(self.returned)

    def _run_part(self, segment: Segment, arrays: Sequence[Any], sizes: Mapping[str, int]) -> Sequence[Any]:
        """The results of a segment: by what serves sizes like these, unless data decides others."""
        missing = [s for s in segment.symbols if s not in sizes]
        if missing:
            raise ShapeError(f"{self.name}: the size {missing[0]} follows from no shape; {self.takes}")
        if segment.served is not None and segment.served.domain.holds(sizes):
            with suppress(OutsideError):
                return segment.served.model.run_fitting(arrays)
        return segment.models[tuple(sizes[s] for s in segment.symbols)].run_fitting(arrays)

    def _computed(
        self, step: Select | Scan | While | If, operands: list[NDArray[Any]], known: Mapping[int, Any], sizes: Mapping[str, int]
    ) -> Sequence[Any]:
        """The results of what the host runs."""

        def body(of: Body) -> RunBody:
            captured = [known[v] for v in of.captured]
            return lambda arguments: of.steps.run([*map(np.asarray, arguments), *captured])

        match step:
            case Select():
                return self._selected(step, operands)
            case Scan():
                length, made = int(substitute(step.length, sizes)), [self.values[v] for v in step.outputs[step.states :]]

                def empty() -> list[NDArray[Any]]:
                    return [np.zeros([0, *(_size(s, sizes) for s in info.shape[1:])], info.dtype) for info in made]

                return scan(operands, step.states, length, empty, body(step.body), step.reverse)
            case While():
                return repeat(operands, body(step.body))
            case If():
                taken = step.then if operands[0] else step.otherwise
                if isinstance(taken, str):
                    raise DlcError(taken)
                return body(taken)(())

    def _selected(self, step: Select, operands: list[NDArray[Any]]) -> Sequence[Any]:
        """The results of an op; sizes that its types know must be those of its results."""
        try:
            results = select(step.op, operands, step.settings)
        except DlcError as error:
            raise type(error)(f"dl.{step.op} at {step.where}: {error}") from error
        for v, array in zip(step.outputs, results, strict=True):
            wanted = self.values[v].shape
            if len(wanted) != array.ndim or any(
                isinstance(size, int) and size != got for size, got in zip(wanted, array.shape, strict=True)
            ):
                raise ShapeError(f"dl.{step.op} at {step.where}: a result of shape {array.shape}, expected {wanted}")
        return results

    @property
    def takes(self) -> str:
        """The inputs in words."""
        return f"inputs: {', '.join(map(str, self.inputs))}"


def _size(size: Size, sizes: Mapping[str, int]) -> int:
    """A size of elements that are not there; one that only they would have told is 0."""
    known = substitute(size, sizes)
    return known if isinstance(known, int) else 0


def _own(results: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """The results, copied where they are an input or another result; arrays on a device, which nobody writes to, are not."""
    own: list[Any] = []
    for result in results:
        others = [a for a in (*inputs, *own) if _is_host(a)] if _is_host(result) else []
        shared = any(np.may_share_memory(result, other) for other in others)
        own.append(result.copy() if shared else result)
    return own


def _is_host(array: Any) -> bool:
    return isinstance(array, np.ndarray)
