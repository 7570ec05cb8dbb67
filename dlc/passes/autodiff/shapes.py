"""What rules do to the shapes of terms: sums over what was repeated, zeros between and around; and sizes that must be known."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.places import place
from dlc.dims import Size, UndecidableError, is_static
from dlc.ir import SSAValue
from dlc.passes.autodiff.term import Term


def unbroadcast(ct: Term, shape: Sequence[Size]) -> Term:
    """The sum over what broadcasting to the shape of `ct` repeated."""
    lead = len(ct.shape) - len(shape)
    repeated = [a for a, s in enumerate(ct.shape) if a < lead or (shape[a - lead] == 1 != s)]
    return ct.sum(*repeated).reshape(*shape)


def zeros(b: Build, like: SSAValue) -> Term:
    """Zeros of a value's type."""
    return Term(b, b.scalar(0, like=like)).broadcast(*shape_of(like))


def static_shape(op: DlOp, value: SSAValue) -> tuple[int, ...]:
    """A value's shape, whose sizes must be known."""
    return tuple(known_sizes(op, shape_of(value)))


def known_sizes(op: DlOp, wanted: Sequence[Size]) -> list[int]:
    """Sizes that do not hang on what is open: differences of it, for one. Raises UndecidableError for others."""
    if not is_static(wanted):
        shown = ", ".join(map(str, wanted))
        problem = f"its transpose needs the sizes ({shown}) to be known; bind them (pass bind-dims)"
        raise UndecidableError(f"{place(op.location)}{op.name}: {problem}")
    return [int(size) for size in wanted]


def padded(x: Term, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> Term:
    """`x` with zeros between its elements and around them; negative numbers take elements away."""
    if any(interior):
        x = x.op(dl.DilateOp, 0, interior=interior)
    return x.op(dl.PadOp, 0, low=low, high=high) if any((*low, *high)) else x
