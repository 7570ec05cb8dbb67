"""The trace of one kernel: open loops, and what is known about indices inside of them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from dlc.errors import DlcError
from dlc.frontend.trace import with_user_line
from dlc.ir import Block, SSAValue
from dlc.kernels.index_ranges import Fact, Interval, LinearForm
from dlc.kernels.index_sets import IndexSet
from dlc.kernels.run_time_checks import PointChecks
from dlc.passes.library_kernels.builder import KernelBuilder

_INT64 = Interval(-(1 << 63), (1 << 63) - 1)


@dataclass(frozen=True)
class LoopVariable:
    """A variable of a loop over static bounds: `first + step · t` for t below `trip_count`."""

    value: SSAValue
    first: int
    step: int
    trip_count: int


@dataclass(frozen=True, eq=False)
class Scope:
    """A block that is being traced: the kernel itself, a grid, a loop or a branch.

    Attributes:
        kind: `kernel`, `grid`, `range` or `when`.
        line: The user's line that opens it.
        variables: The variables of a loop whose bounds are static.
        facts: The conditions on indices that hold inside.
        runs_once_or_more: Whether its body certainly runs.
        never_runs: Whether its body certainly does not run.
        index_set: The exact set of points at which a branch runs, if known.
    """

    kind: str
    line: str = ""
    variables: Sequence[LoopVariable] = ()
    facts: Sequence[Fact] = ()
    runs_once_or_more: bool = True
    never_runs: bool = False
    index_set: IndexSet | None = None


@dataclass
class KernelTrace:
    """The trace of a kernel. `builder` inserts into the innermost scope.

    With `checked`, indices that are not provably in bounds are checked at run time.
    """

    name: str
    builder: KernelBuilder
    body: Block
    checked: bool = False
    scopes: list[Scope] = field(default_factory=lambda: [Scope("kernel")])
    checks: list[PointChecks] = field(default_factory=list[PointChecks])
    _ranges: dict[SSAValue, Interval] = field(default_factory=dict[SSAValue, Interval])

    @property
    def scope(self) -> Scope:
        return self.scopes[-1]

    @property
    def is_in_grid(self) -> bool:
        return any(scope.kind == "grid" for scope in self.scopes)

    @property
    def never_runs(self) -> bool:
        """Return whether the code being traced certainly does not run, so that its indices may be anything."""
        return any(scope.never_runs for scope in self.scopes)

    def open(self, scope: Scope) -> None:
        self.scopes.append(scope)

    def close(self, scope: Scope) -> None:
        """Close the innermost scope. Raises DlcError if Python left a loop inside of it."""
        self.require_innermost(scope)
        self.scopes.pop()

    def require_innermost(self, scope: Scope) -> None:
        """Raise DlcError if Python left a loop inside of a scope."""
        if self.scopes[-1] is not scope:
            left = self.scopes[-1]
            raise DlcError(
                f"{left.line}: kernel {self.name}: the loop over k.{left.kind} was left by break, return or an exception; "
                "its body runs once while it is traced, so use k.when, or a bound that is computed before the loop"
            )

    def require_open(self, scope: Scope, noun: str) -> None:
        """Raise DlcError for a value, variable or buffer of a scope that is closed."""
        if not any(scope is s for s in self.scopes):
            raise self.error(
                f"{noun} of the k.{scope.kind} at {scope.line} is used outside of it; "
                "create a k.variable before the loop and assign to its .value"
            )

    def require_grid(self, action: str) -> None:
        """Raise DlcError outside of a grid."""
        if not self.is_in_grid:
            raise self.error(f"{action} outside of a grid; put it into `for i in k.grid(n):`")

    def add_checks(self, sizes: Sequence[int]) -> PointChecks:
        """Add the checks of a grid; their result becomes the last argument of the body."""
        self.checks.append(PointChecks(self.builder, self.body, sizes))
        return self.checks[-1]

    def error(self, problem: str, kind: type[DlcError] = DlcError) -> DlcError:
        """Return an error about the running user line."""
        return with_user_line(kind(f"kernel {self.name}: {problem}"))

    # Ranges of indices

    def set_range(self, variable: SSAValue, interval: Interval) -> None:
        self._ranges[variable] = interval

    def range_of(self, form: LinearForm) -> Interval:
        """Return the range of a linear form, from the ranges of its variables and the conditions of the open scopes."""
        total = Interval(0, 0)
        for variable, coefficient in form.coefficients.items():
            interval = self._ranges[variable] & self._fact_range(LinearForm.of(variable))
            if interval.is_empty:
                return interval
            total += interval * Interval(coefficient, coefficient)
        return (total & self._fact_range(form)) + Interval(form.constant, form.constant)

    def _fact_range(self, form: LinearForm) -> Interval:
        """Return the range of a form without its constant that the conditions of the open scopes imply."""
        result = _UNBOUNDED
        for scope in self.scopes:
            for fact in scope.facts:
                if fact.terms == form.terms:
                    result &= fact.range
        return result

    def require_no_overflow(self, form: LinearForm) -> None:
        """Raise DlcError if index arithmetic may exceed 64 bits, so that its range would be wrong."""
        interval = self.range_of(form)
        if not _INT64.contains(interval):
            raise self.error(f"an index of {interval} may overflow; limit it by k.clip(index, n) first")


# Larger than the sums of all ranges of indices.
_UNBOUNDED = Interval(-(1 << 200), 1 << 200)
_current: ContextVar[KernelTrace | None] = ContextVar("kernel_trace", default=None)


def current_kernel_trace(function: str) -> KernelTrace:
    """Return the trace of the kernel that is being traced; raise DlcError in a call of `function` outside of a kernel."""
    trace = _current.get()
    if trace is None:
        raise with_user_line(DlcError(f"k.{function}: called outside of a kernel; use it in a function of @dlc.kernel"))
    return trace


@contextmanager
def tracing_kernel(trace: KernelTrace) -> Generator[None]:
    """Make `trace` the current trace inside the context."""
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)
