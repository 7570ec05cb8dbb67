"""Run blocks: each op is evaluated by the rule of its class, which the other files in this folder register."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from dlc.backends.reference.values import Array, MemrefView, Value, describe, rank
from dlc.errors import ModelError, UnsupportedError
from dlc.ir import Attribute, Block, Operation, SSAValue
from dlc.runtime.program.size_binding import OutOfDomainError
from dlc.shapes.dims import Size, is_symbol
from dlc.shapes.guards import Guard, violated_guard
from dlc.shapes.input_sizes import bind_sizes

# (op, frame) → results of the op; a rule for an op without results returns ().
Rule: TypeAlias = "Callable[[Any, Frame], Sequence[Value]]"
# Called with an op that has run, its frame and its results.
OpObserver: TypeAlias = "Callable[[Operation, Frame, Sequence[Value]], None]"
ValueAdapter: TypeAlias = Callable[[Value, Attribute], Value]
T = TypeVar("T")

_RULES: dict[type[Operation], Rule] = {}


def rule(*ops: type[Operation]) -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule of these op classes and their subclasses."""

    def register(function: Rule) -> Rule:
        for op in ops:
            _RULES[op] = function
        return function

    return register


def elementwise(table: Mapping[type[Operation], Callable[..., Any]]) -> None:
    """Register NumPy functions as rules of ops with one result."""

    def make(function: Callable[..., Any]) -> Rule:
        return lambda op, frame: (function(*(frame.array(v) for v in op.operands)),)

    for op, function in table.items():
        _RULES[op] = make(function)


def find_rule(op: Operation) -> Rule:
    """Return the rule of an op; raises UnsupportedError if there is none."""
    for cls in type(op).__mro__:
        if cls in _RULES:
            return _RULES[cls]
    raise UnsupportedError(f"{describe(op)}: no evaluation rule; add one in dlc/backends/reference")


class EvaluationContext:
    """State shared by all frames of an evaluation: functions, weights, memoized properties of ops, and data-dependent sizes.

    `rules` override the registered rules; `observer` is called after each op; `guards` are conditions on data-dependent sizes.
    """

    def __init__(
        self,
        functions: Mapping[str, Operation],
        weights: Mapping[str, Array],
        rules: Mapping[type[Operation], Rule] | None = None,
        observer: OpObserver | None = None,
        guards: Sequence[Guard] = (),
    ) -> None:
        self.functions = functions
        self.weights = weights
        self.guards = guards
        self.rules = rules or {}
        self.observer = observer
        self.arenas: dict[Operation, Array] = {}
        self.sizes: dict[str, int] = {}
        # The op that computes each data-dependent size first.
        self._size_sources: dict[str, Operation] = {}
        self._steps: dict[Block, tuple[list[tuple[Operation, Rule]], Operation | None]] = {}
        self._memoized: dict[Hashable, Any] = {}

    def steps(self, block: Block) -> tuple[list[tuple[Operation, Rule]], Operation | None]:
        """Return the ops of a block with their rules, and its terminator."""
        if block not in self._steps:
            *ops, last = block.ops
            self._steps[block] = [(op, self._observed(self.rules.get(type(op)) or find_rule(op))) for op in ops], last
        return self._steps[block]

    def _observed(self, rule: Rule) -> Rule:
        """Wrap a rule so that the observer is called after it."""
        observer = self.observer
        if observer is None:
            return rule

        def run(op: Operation, frame: Frame) -> Sequence[Value]:
            results = rule(op, frame)
            observer(op, frame, results)
            return results

        return run

    def bind_data_dependent_sizes(self, op: Operation, types: Sequence[tuple[Size, ...]], results: Sequence[Array]) -> None:
        """Bind the sizes in the `types` of an op's results.

        Raises OutOfDomainError for results of another static size, for different values of a size that two ops compute, and
        for sizes that violate a guard.
        """
        for type_sizes, result in zip(types, results, strict=True):
            for size, value in zip(type_sizes, result.shape, strict=True):
                expected = size if isinstance(size, int) else value
                if is_symbol(size) and self._size_sources.setdefault(str(size), op) is not op:
                    expected = self.sizes[str(size)]
                if expected != value:
                    raise OutOfDomainError(f"{describe(op)}: a data-dependent size is {value}; the program supports {expected}")
            bind_sizes(type_sizes, result.shape, self.sizes)
        if (guard := violated_guard(self.guards, self.sizes)) is not None:
            text = ", ".join(f"{symbol} = {self.sizes[symbol]}" for symbol in sorted(guard.size.symbols()))
            raise OutOfDomainError(f"{guard.description}; with {text}")

    def memoize(self, op: Operation, function: Callable[..., T], *arguments: Hashable) -> T:
        """Return `function(op, *arguments)`, memoized, since an op in a loop is evaluated many times."""
        key = (op, function, arguments)
        if key not in self._memoized:
            self._memoized[key] = function(op, *arguments)
        return cast(T, self._memoized[key])


class Frame:
    """The values of SSA values in one execution of a block, for points that run in lockstep.

    `points` is the number of points in lockstep, None outside a grid. `adapt` converts a value of the enclosing frame to this
    frame, for example to a subset of its points.
    """

    def __init__(
        self,
        context: EvaluationContext,
        points: int | None = None,
        outer: Frame | None = None,
        adapt: ValueAdapter | None = None,
    ):
        self.context = context
        self.points = points
        self.outer = outer
        self.adapt = adapt
        self.values: dict[SSAValue, Value] = {}
        # The work-group of each point, if points are work-items.
        self.groups: Array | None = None
        # The number of work-items per group.
        self.items = 1

    def __getitem__(self, name: SSAValue) -> Value:
        value = self.values.get(name)
        if value is None:
            if self.outer is None:
                owner = name.owner.name if isinstance(name.owner, Operation) else "a block"
                raise ModelError(f"a result of {owner} is used before it is computed; the module is damaged")
            value = self.outer[name]
            if self.adapt is not None:
                value = self.adapt(value, name.type)
            self.values[name] = value
        return value

    def __setitem__(self, name: SSAValue, value: Value) -> None:
        self.values[name] = value

    def array(self, name: SSAValue) -> Array:
        """Return the value of a scalar, vector or tensor."""
        return cast(Array, self[name])

    def view(self, name: SSAValue) -> MemrefView:
        """Return the value of a memref."""
        return cast(MemrefView, self[name])

    def run(self, block: Block, arguments: Sequence[Value] = (), skip: frozenset[Operation] = frozenset()) -> list[Value]:
        """Run a block except for the ops in `skip`; return the operands of its terminator."""
        for name, value in zip(block.args, arguments, strict=True):
            self.values[name] = value
        steps, last = self.context.steps(block)
        for op, execute in steps:
            if op in skip:
                continue
            results = execute(op, self)
            for name, value in zip(op.results, results, strict=True):
                self.values[name] = value
        if last is None or last in skip:
            return []
        return [self[v] for v in last.operands]

    def subset(self, points: Array) -> Frame:
        """Return a frame for a subset of this frame's points; `points` are their indices."""
        inner = Frame(self.context, len(points), self, lambda value, t: select_points(value, t, points))
        if self.groups is not None:
            inner.groups, inner.items = self.groups[points], self.items
        return inner

    def work_item_frame(self, groups: int, items: int) -> Frame:
        """Return a frame for the work-items of this frame's points, each of which is a work-group."""
        group_indices = np.repeat(np.arange(groups), items)
        inner = self.subset(group_indices)
        inner.groups, inner.items = group_indices, items
        return inner

    @property
    def has_whole_groups(self) -> bool:
        """Return whether the points consist of complete work-groups."""
        return self.groups is None or len(self.groups) == self.items * len(np.unique(self.groups))


def varies(value: Value, type: Attribute) -> bool:
    """Return whether a value has one entry per point in lockstep."""
    return np.ndim(value.offset) > 0 or np.ndim(value.origin) > 0 if isinstance(value, MemrefView) else value.ndim > rank(type)


def select_points(value: Value, type: Attribute, points: Array) -> Value:
    """Return the entries of some points."""
    if not varies(value, type):
        return value
    return value.per_point(lambda x: x[points]) if isinstance(value, MemrefView) else value[points]
