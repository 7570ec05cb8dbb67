"""Prove that a store in a loop nest writes every element of an array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc.ir import SSAValue
from dlc.kernels.index_ranges import LinearForm
from dlc.kernels.kernel_trace import LoopVariable, Scope


def covers_all_elements(
    shape: Sequence[int], indices: Sequence[LinearForm], axis: int, width: int, scopes: Sequence[Scope]
) -> bool:
    """Return whether a store at `indices`, of `width` elements along `axis`, certainly writes all elements of an array.

    It does if it runs for all combinations of its loop variables, no variable is an index of two axes, and the variables of
    each axis are the digits of a mixed-radix number below its size:

        y[i, 8 * j + l] of shape (4, 32), for i in range(4), j in range(4), l in range(8)
    """
    if 0 in shape:
        return True
    if not all(scope.runs_once_or_more for scope in scopes):
        return False
    variables = {v.value: v for scope in scopes for v in scope.variables}
    used = [v for form in indices for v in form.coefficients]
    if len(set(used)) < len(used) or any(v not in variables for v in used):
        return False
    return all(
        _covers_axis(size, form, width if k == axis else 1, variables)
        for k, (size, form) in enumerate(zip(shape, indices, strict=True))
    )


def _covers_axis(size: int, form: LinearForm, width: int, variables: Mapping[SSAValue, LoopVariable]) -> bool:
    """Return whether the variables of an index reach all elements of an axis, `width` elements at a time."""
    first, digits = form.constant, list[tuple[int, int]]()
    for v, coefficient in form.coefficients.items():
        variable = variables[v]
        step, last = coefficient * variable.step, variable.trip_count - 1
        # A negative coefficient counts from the end.
        first += coefficient * variable.first + min(step * last, 0)
        if last:
            digits.append((abs(step), variable.trip_count))
    reached = width
    for step, trip_count in sorted(digits):
        if step != reached:
            return False
        reached *= trip_count
    return first == 0 and reached == size
