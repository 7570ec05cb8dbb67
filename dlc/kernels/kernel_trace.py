"""The trace of one kernel: its arguments, the enclosing loops, and proven facts about indices."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import cast

from dlc.dialects.sizes import argument_size_attributes, symbol
from dlc.errors import DlcError
from dlc.frontend.trace import Error, with_user_line
from dlc.ir import ArrayAttr, Attribute, BlockArgument, DictionaryAttr, FunctionType, SSAValue, func, i64, index
from dlc.kernels.index_ranges import INT64_RANGE, Bound, Fact, Interval, LinearForm
from dlc.kernels.index_sets import RANGES, IndexSet
from dlc.kernels.lanes import LoopLanes
from dlc.kernels.run_time_checks import PointChecks
from dlc.passes.kernel_builder import Buffer, KernelBuilder
from dlc.passes.kernel_values import KernelValue
from dlc.passes.types import memref_type
from dlc.shapes.dims import Atom, Dim, Monomial, Size, UndecidableError, is_nonnegative
from dlc.shapes.traced_dims import TracedSize, untraced

# Sizes are below this limit: no array has as many elements.
_MAX_SIZE_BITS = 40


@dataclass(frozen=True)
class LoopVariable:
    """A variable of a loop whose bounds are sizes: `first + step · t` for t below `trip_count`."""

    value: SSAValue
    first: TracedSize
    step: int
    trip_count: TracedSize


@dataclass(frozen=True, eq=False)
class Scope:
    """A block that is being traced: the kernel itself, a grid, a loop or a branch.

    Attributes:
        kind: `kernel`, `grid`, `range` or `when`.
        line: The user's line that opens it.
        variables: The variables of a loop whose bounds are sizes.
        facts: The conditions on indices that hold inside.
        runs_once_or_more: Whether its body certainly runs.
        never_runs: Whether its body certainly does not run.
        index_set: The exact set of points at which a branch runs, if known.
        conditions: Sizes that are not negative if the body runs.
    """

    kind: str
    line: str = ""
    variables: Sequence[LoopVariable] = ()
    facts: Sequence[Fact] = ()
    runs_once_or_more: bool = True
    never_runs: bool = False
    index_set: IndexSet | None = None
    conditions: Sequence[TracedSize] = ()


@dataclass
class KernelTrace:
    """The trace of a kernel. `builder` inserts into the innermost scope.

    With `checked`, indices that are not provably in bounds are checked at run time. With `is_trusted`, results and buffers
    may be read before all of their elements are provably written.
    """

    function: func.FuncOp
    builder: KernelBuilder
    checked: bool = False
    is_trusted: bool = False
    lanes: LoopLanes | None = None
    scopes: list[Scope] = field(default_factory=lambda: [Scope("kernel")])
    checks: list[PointChecks] = field(default_factory=list[PointChecks])
    _shapes: list[Sequence[Size]] = field(default_factory=list[Sequence[Size]])
    _size_names: dict[Atom, str] = field(default_factory=dict[Atom, str])
    _ranges: dict[SSAValue, Interval] = field(default_factory=dict[SSAValue, Interval])
    # Variables that are a constant plus a multiple of another constant: (remainder, modulus).
    _residues: dict[SSAValue, tuple[int, int]] = field(default_factory=dict[SSAValue, tuple[int, int]])

    @property
    def name(self) -> str:
        return self.function.sym_name.data

    # Arguments

    def add_buffer(self, name: str, element: Attribute, shape: Sequence[TracedSize], *, signed: bool = True) -> Buffer:
        """Add a buffer after the other buffers, before the sizes; return it."""
        sizes = untraced(tuple(shape))
        argument = self.function.body.block.insert_arg(memref_type(element, sizes), len(self._shapes))
        argument.name_hint = name
        self._shapes.append(sizes)
        return Buffer(self.builder, argument, signed)

    def shape_of(self, buffer: Buffer) -> Sequence[Size]:
        """Return the sizes of a buffer that is an argument."""
        return self._shapes[cast(BlockArgument, buffer.memref).index]

    def local_size(self, size: TracedSize | Size) -> Size:
        """Return a size as a polynomial in the size arguments of the body, which are its last arguments."""
        plain: Size = untraced(size)
        if isinstance(plain, int):
            return plain
        block = self.function.body.block
        for atom in plain.atoms():
            if atom not in self._size_names:
                self._size_names[atom] = symbol(len(self._size_names))
                argument: BlockArgument = block.insert_arg(index, len(block.args))
                argument.name_hint = self._size_names[atom]
        return plain.rename_atoms(self._size_names)

    def size_value(self, size: TracedSize | Size) -> KernelValue:
        """Return a size as an index."""
        return self.builder.index(self.builder.size(self.local_size(size)))

    def finish(self) -> Sequence[Size]:
        """Emit the end of the function and declare the sizes of its buffers; return the sizes that are its last arguments."""
        self.builder.op_builder.insert(func.ReturnOp())
        attributes = [argument_size_attributes(list(map(self.local_size, shape))) for shape in self._shapes]
        if self._size_names:
            attributes += [DictionaryAttr({}) for _ in self._size_names]
            self.function.properties["arg_attrs"] = ArrayAttr(attributes)
        types = [a.type for a in self.function.body.block.args]
        self.function.properties["function_type"] = FunctionType.from_lists(types, [])
        return [Dim({(atom,): 1}) for atom in self._size_names]

    # Scopes

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

    def add_checks(self, sizes: Sequence[TracedSize]) -> PointChecks:
        """Add the checks of a grid; their result becomes the last buffer of the body."""
        self.checks.append(PointChecks(self.add_buffer("check", i64, (*sizes, 2))))
        return self.checks[-1]

    def error(self, problem: str, kind: type[Error] = DlcError) -> Error:
        """Return an error about the running user line."""
        return with_user_line(kind(f"kernel {self.name}: {problem}"))

    def require_elements(self, action: str) -> None:
        """Raise DlcError in a vectorized loop, whose values have one element per lane."""
        if self.lanes is not None:
            raise self.error(
                f"{action} in {self.lanes}, in which values are single elements; load elements, or remove vectorize"
            )

    # Ranges of indices

    def set_range(self, variable: SSAValue, interval: Interval) -> None:
        self._ranges[variable] = interval

    def set_residue(self, variable: SSAValue, remainder: int, modulus: int) -> None:
        """Declare that a variable is `remainder` plus a multiple of `modulus`."""
        self._residues[variable] = remainder, modulus

    def residue_of(self, form: LinearForm, modulus: int) -> int | None:
        """Return the remainder of a linear form modulo a constant; None if it is not known."""
        if not isinstance(form.constant, int):
            return None
        total = form.constant
        for variable, coefficient in form.coefficients.items():
            remainder, step = self._residues.get(variable, (0, 1))
            if coefficient * step % modulus:
                return None
            total += coefficient * remainder
        return total % modulus

    def range_of(self, form: LinearForm) -> Interval:
        """Return the range of a linear form, from the ranges of its variables and the conditions of the open scopes."""
        if not form.coefficients:
            return Interval(form.constant, form.constant)
        total = Interval(0, 0)
        for variable, coefficient in form.coefficients.items():
            interval = self._ranges[variable].limited(self._fact_range(LinearForm.of(variable)))
            if interval.is_empty:
                return interval
            total += interval.scaled(coefficient)
        return total.limited(self._fact_range(form)) - -form.constant

    def _fact_range(self, form: LinearForm) -> Interval:
        """Return the range of a form without its constant that the conditions of the open scopes imply."""
        result = Interval()
        for scope in self.scopes:
            for fact in scope.facts:
                if fact.terms == form.terms:
                    result = result.limited(fact.range)
        return result

    def comparison_facts(self, predicate: str, a: LinearForm, b: LinearForm) -> list[Fact]:
        """Return the conditions on indices that follow from a comparison."""
        if predicate not in RANGES:
            return []
        difference, interval = a - b, RANGES[predicate]
        facts = [
            Fact(difference.terms, interval - difference.constant),
            # a = (a - b) + b, and b = a - (a - b)
            Fact(a.terms, interval + self.range_of(b) - a.constant),
            Fact(b.terms, -interval + self.range_of(a) - b.constant),
        ]
        return [f for fact in facts for f in ((fact, fact.negated()) if fact.terms else (fact,))]

    def size_conditions(self) -> list[Dim]:
        """Return symbolic sizes that are not negative in the open scopes."""
        conditions: list[Bound] = []
        for scope in self.scopes:
            # A condition without indices is one on sizes: its range contains 0.
            ranges = (fact.range for fact in scope.facts if not fact.terms)
            conditions += [*scope.conditions, *(end for r in ranges for end in (-r.low, r.high))]
        return list({size for size in map(untraced, conditions) if isinstance(size, Dim)})

    def require_no_overflow(self, form: LinearForm) -> None:
        """Raise DlcError if index arithmetic may exceed 64 bits, so that its range would be wrong."""
        interval = self.range_of(form)
        if not all(map(self._fits_int64, (interval.low, interval.high))):
            raise self.error(f"an index of {interval} may overflow; limit it by k.clip(index, n) first")

    def _fits_int64(self, end: Bound) -> bool:
        """Return whether an end of a range fits in 64 bits, for all possible sizes of arrays."""
        if isinstance(end, int | float):
            return INT64_RANGE.low <= end <= INT64_RANGE.high
        terms = cast(Dim, untraced(end)).terms
        if sum(abs(c) << self._size_bits(monomial) for monomial, c in terms.items()) > INT64_RANGE.high:
            raise UndecidableError(f"does an index of {end} fit 64 bits?")
        return True

    def _size_bits(self, monomial: Monomial) -> int:
        """Return the number of bits of a product of sizes, which are those of one size if an axis is at least as long."""
        is_below_axis = any(is_nonnegative(size - Dim({monomial: 1})) for shape in self._shapes for size in shape)
        return _MAX_SIZE_BITS * (1 if is_below_axis else len(monomial))


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
