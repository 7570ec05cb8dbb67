"""Find accesses of a kernel that are provably data races between two points of a grid."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from dlc.ir import SSAValue
from dlc.kernels.index_ranges import LinearForm, Terms
from dlc.kernels.kernel_trace import LoopVariable, Scope

# Maximum loads and stores of equal index coefficients that are compared; unrolled kernels have many.
_MAX_COMPARED_LOADS_AND_STORES = 32


@dataclass(frozen=True)
class GridAccess:
    """A load or store of `widths` elements, the first one at `indices`; `scopes` are the grid and the scopes inside it."""

    indices: Sequence[LinearForm]
    widths: Sequence[int]
    scopes: Sequence[Scope]
    is_store: bool

    @property
    def is_certain(self) -> bool:
        """Return whether each point of the grid executes the access, in all iterations of the loops around it."""
        variables = {v.value for scope in self.scopes for v in scope.variables}
        used = {v for form in self.indices for v in form.coefficients}
        return used <= variables and all(s.kind != "when" and s.runs_once_or_more and not s.never_runs for s in self.scopes)

    def overlaps(self, other: GridAccess, shift: Sequence[int]) -> bool:
        """Return whether it accesses an element of `other`, whose indices have equal coefficients and are `shift` larger."""
        for index, width, other_index, other_width, offset in zip(
            self.indices, self.widths, other.indices, other.widths, shift, strict=True
        ):
            distance = other_index.constant - index.constant + offset
            if not isinstance(distance, int) or not -other_width < distance < width:
                return False
        return True


class GridAccesses:
    """The certain accesses to one result, by their grid and the coefficients of their indices."""

    def __init__(self) -> None:
        self._accesses: dict[tuple[Scope, tuple[Terms, ...]], list[GridAccess]] = defaultdict(list)

    def add(self, access: GridAccess) -> GridAccess | None:
        """Add an access; return an access, maybe itself, of another point of the grid that races with it, or None."""
        if not access.is_certain:
            return None
        similar = self._accesses[access.scopes[0], tuple(form.terms for form in access.indices)]
        if len(similar) == _MAX_COMPARED_LOADS_AND_STORES:
            return None
        similar.append(access)
        rivals = [other for other in similar if access.is_store or other.is_store]
        shifts = _shifts_between_points(access) if rivals else ()
        return next((other for shift in shifts for other in rivals if access.overlaps(other, shift)), None)


def _shifts_between_points(access: GridAccess) -> Iterator[tuple[int, ...]]:
    """Yield differences of the indices at neighboring points, and at equal or neighboring iterations of the loops."""
    points = _repeated_variables(access.scopes[:1])
    iterations = _repeated_variables(access.scopes[1:])
    used = {v for form in access.indices for v in form.coefficients}
    if not points.keys() <= used:
        yield (0,) * len(access.indices)
    steps = {v: step for v, step in {**points, **iterations}.items() if v in used}
    for signs in product((0, 1, -1), repeat=len(steps)):
        change = {v: sign * step for (v, step), sign in zip(steps.items(), signs, strict=True)}
        if any(change.get(v) for v in points):
            yield tuple(sum(c * change.get(v, 0) for v, c in form.coefficients.items()) for form in access.indices)


def _repeated_variables(scopes: Sequence[Scope]) -> Mapping[SSAValue, int]:
    """Return the steps of the variables that take two values or more, without those of symbolic trip counts."""
    variables: list[LoopVariable] = [v for scope in scopes for v in scope.variables]
    return {v.value: v.step for v in variables if isinstance(v.trip_count, int) and v.trip_count > 1}
