"""Cotangents before they are one value: with a mask, or of a slice."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import dl
from dlc.passes.autodiff.term import Term, where


@dataclass(frozen=True)
class Cotangent:
    """`value` where `mask` holds, else 0; see Note [Masked cotangents]."""

    value: Term
    mask: Term | None = None

    def term(self) -> Term:
        """As one value."""
        return self.value if self.mask is None else where(self.mask, self.value, 0)

    def masked(self, condition: Term) -> Cotangent:
        """Only where a condition holds as well."""
        return Cotangent(self.value, condition if self.mask is None else self.mask & condition)


def added(parts: Sequence[Cotangent]) -> Cotangent:
    """The sum of cotangents; where the masks of all say 0, so does its own."""
    if len(parts) == 1:
        return parts[0]
    terms, masks = [part.term() for part in parts], [part.mask for part in parts if part.mask is not None]
    mask = functools.reduce(lambda a, b: a | b, masks) if len(masks) == len(parts) else None
    return Cotangent(sum(terms[1:], terms[0]), mask)


@dataclass(frozen=True)
class Piece:
    """The cotangent of a slice of a value, which begins at `starts`; of the rest it is 0."""

    value: Term
    starts: tuple[int, ...]


def joined(pieces: Sequence[Piece], shape: tuple[int, ...]) -> Term:
    """The sum of pieces, each at its place in this shape; they are joined where they lie side by side along one axis."""
    axes = {a for piece in pieces for a, size in enumerate(piece.value.shape) if size != shape[a]}
    if len(pieces) == 1 or len(axes) != 1:
        return _sum(pieces, shape)
    (axis,) = axes
    ordered = sorted(pieces, key=lambda piece: piece.starts[axis])
    ends = [piece.starts[axis] + int(piece.value.shape[axis]) for piece in ordered]
    if any(piece.starts[axis] < end for piece, end in zip(ordered[1:], ends, strict=False)):
        return _sum(pieces, shape)
    parts: list[Term] = []
    for k, (piece, before) in enumerate(zip(ordered, [0, *ends], strict=False)):
        # Zeros fill what is between them, and after the last.
        gaps = piece.starts[axis] - before, shape[axis] - ends[-1] if k == len(ordered) - 1 else 0
        low, high = ([n if a == axis else 0 for a in range(len(shape))] for n in gaps)
        parts.append(piece.value.op(dl.PadOp, 0, low=low, high=high) if any(gaps) else piece.value)
    return parts[0].op(dl.ConcatOp, *parts[1:], axis=axis)


def _sum(pieces: Sequence[Piece], shape: tuple[int, ...]) -> Term:
    """The sum of pieces, each with zeros around it."""
    placed = [_placed(piece, shape) for piece in pieces]
    return sum(placed[1:], placed[0])


def _placed(piece: Piece, shape: tuple[int, ...]) -> Term:
    """A piece with zeros around it."""
    high = [n - start - int(size) for n, start, size in zip(shape, piece.starts, piece.value.shape, strict=True)]
    return piece.value.op(dl.PadOp, 0, low=piece.starts, high=high) if any((*piece.starts, *high)) else piece.value


# Note [Masked cotangents]
#
# What a select does not choose gets a cotangent of zero, and the product of that zero with an infinite or undefined partial
# derivative of what was not chosen would be NaN: sqrt in `where(x > 0, sqrt(x), 0)` at 0. The zero is structural, so it must
# win. A cotangent therefore carries the condition along: elementwise ops act on the value alone, and where something else
# reads it the condition is applied last. A sum of cotangents that all carry one is zero by structure where none of them holds.
