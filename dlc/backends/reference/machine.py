"""Running a block: one rule per op class, looked up in a registry that the files beside this one fill."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from dlc.backends.reference.values import Array, Value, View, describe, rank
from dlc.errors import UnsupportedError
from dlc.ir import Attribute, Block, Operation, SSAValue

# Computes an op's results; a rule for an op without results returns ().
Rule: TypeAlias = "Callable[[Any, Frame], Sequence[Value]]"
# Told of an op that has run, the frame that it ran in, and its results.
Watch: TypeAlias = "Callable[[Operation, Frame, Sequence[Value]], None]"
Adapt: TypeAlias = Callable[[Value, Attribute], Value]
T = TypeVar("T")

_RULES: dict[type[Operation], Rule] = {}


def rule(*ops: type[Operation]) -> Callable[[Rule], Rule]:
    """Registers the decorated function as the rule of these op classes (and their subclasses)."""

    def register(function: Rule) -> Rule:
        for op in ops:
            _RULES[op] = function
        return function

    return register


def elementwise(table: Mapping[type[Operation], Callable[..., Any]]) -> None:
    """Registers NumPy functions as rules of ops with one result."""

    def make(function: Callable[..., Any]) -> Rule:
        return lambda op, frame: (function(*(frame.array(v) for v in op.operands)),)

    for op, function in table.items():
        _RULES[op] = make(function)


def rule_of(op: Operation) -> Rule:
    """The rule of an op; raises UnsupportedError for an op that has none."""
    for cls in type(op).__mro__:
        if cls in _RULES:
            return _RULES[cls]
    raise UnsupportedError(f"{describe(op)}: no evaluation rule; add one in dlc/backends/reference")


class Machine:
    """What all frames of one evaluation share: the functions by name, the weights, facts derived once per op, and the sizes
    that data has decided so far.

    `rules` are instead of the registered ones; `watch` is told of each op.
    """

    def __init__(
        self,
        functions: Mapping[str, Operation],
        weights: Mapping[str, Array],
        rules: Mapping[type[Operation], Rule] | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.functions = functions
        self.weights = weights
        self.rules = rules or {}
        self.watch = watch
        self.arenas: dict[Operation, Array] = {}
        self.sizes: dict[str, int] = {}
        self._steps: dict[Block, tuple[list[tuple[Operation, Rule]], Operation | None]] = {}
        self._facts: dict[Hashable, Any] = {}

    def steps(self, block: Block) -> tuple[list[tuple[Operation, Rule]], Operation | None]:
        """The ops of a block with their rules, and its last op."""
        if block not in self._steps:
            *ops, last = block.ops
            self._steps[block] = [(op, self._watched(self.rules.get(type(op)) or rule_of(op))) for op in ops], last
        return self._steps[block]

    def _watched(self, rule: Rule) -> Rule:
        watch = self.watch
        if watch is None:
            return rule

        def run(op: Operation, frame: Frame) -> Sequence[Value]:
            results = rule(op, frame)
            watch(op, frame, results)
            return results

        return run

    def fact(self, op: Operation, derive: Callable[..., T], *details: Hashable) -> T:
        """`derive(op, *details)`, computed once: an op in a loop is met many times."""
        key = (op, derive, details)
        if key not in self._facts:
            self._facts[key] = derive(op, *details)
        return cast(T, self._facts[key])


class Frame:
    """Values by SSA name, for code that runs for the same points.

    `points` is how many run in lockstep, None outside a grid. `adapt` turns a value of the enclosing frame into one of
    this frame: the entries of some of its points, say.
    """

    def __init__(self, machine: Machine, points: int | None = None, outer: Frame | None = None, adapt: Adapt | None = None):
        self.machine = machine
        self.points = points
        self.outer = outer
        self.adapt = adapt
        self.values: dict[SSAValue, Value] = {}
        # Where the points are items: the group of each, and how many items a group has.
        self.groups: Array | None = None
        self.items = 1

    def __getitem__(self, name: SSAValue) -> Value:
        value = self.values.get(name)
        if value is None:
            if self.outer is None:
                raise KeyError(name)
            value = self.outer[name]
            if self.adapt is not None:
                value = self.adapt(value, name.type)
            self.values[name] = value
        return value

    def __setitem__(self, name: SSAValue, value: Value) -> None:
        self.values[name] = value

    def array(self, name: SSAValue) -> Array:
        """The value of a scalar, vector or tensor."""
        return cast(Array, self[name])

    def view(self, name: SSAValue) -> View:
        """The value of a memref."""
        return cast(View, self[name])

    def run(self, block: Block, arguments: Sequence[Value] = (), skip: frozenset[Operation] = frozenset()) -> list[Value]:
        """Runs a block, but for the ops in `skip`; the operands of its terminator."""
        for name, value in zip(block.args, arguments, strict=True):
            self.values[name] = value
        steps, last = self.machine.steps(block)
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
        """A frame for some of this frame's points, given by number."""
        inner = Frame(self.machine, len(points), self, lambda value, t: select_points(value, t, points))
        if self.groups is not None:
            inner.groups, inner.items = self.groups[points], self.items
        return inner

    def items_of(self, groups: int, items: int) -> Frame:
        """A frame for the items of this frame's points, which are `groups`."""
        numbers = np.repeat(np.arange(groups), items)
        inner = self.subset(numbers)
        inner.groups, inner.items = numbers, items
        return inner

    @property
    def has_whole_groups(self) -> bool:
        """Whether the points are all the items of some groups."""
        return self.groups is None or len(self.groups) == self.items * len(np.unique(self.groups))


def varies(value: Value, t: Attribute) -> bool:
    """Whether a value has an entry for each point in lockstep."""
    return np.ndim(value.offset) > 0 or np.ndim(value.origin) > 0 if isinstance(value, View) else value.ndim > rank(t)


def select_points(value: Value, t: Attribute, points: Array) -> Value:
    """The entries of some points."""
    if not varies(value, t):
        return value
    return value.per_point(lambda x: x[points]) if isinstance(value, View) else value[points]
