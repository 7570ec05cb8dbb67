"""Affine accesses: the buffer element that an operand of a structured op accesses at each iteration.

An operand of a `linalg` op reads `buffer[map(iterators)]`. The map composed with the buffer's strides is one linear
form, `offset + Σ stride · ((iterator floordiv divisor) mod modulus)`, in elements of the root buffer, from which all
views derive. Tiling, collapsing of iterators and the linking of ops through temporaries use only these terms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dlc.dialects.sizes import offset_of, strides_of
from dlc.errors import UnsupportedError
from dlc.ir import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    SSAValue,
)
from dlc.passes.types import viewed_buffer
from dlc.shapes.dims import Size
from dlc.shapes.polynomials import asymptotic_key


class AffineTerm(NamedTuple):
    """`stride · ((iterator floordiv divisor) mod modulus)`; a modulus of 0 means none."""

    iterator: int
    stride: Size
    divisor: int = 1
    modulus: int = 0

    @property
    def is_plain(self) -> bool:
        return self.divisor == 1 and self.modulus == 0

    def index_expression(self, iterator: int) -> AffineExpr:
        """Return the term without its stride as an index expression of an iterator."""
        expr: AffineExpr = AffineDimExpr(iterator)
        if self.divisor > 1:
            expr = AffineBinaryOpExpr(AffineBinaryOpKind.FloorDiv, expr, AffineConstantExpr(self.divisor))
        if self.modulus:
            expr = AffineBinaryOpExpr(AffineBinaryOpKind.Mod, expr, AffineConstantExpr(self.modulus))
        return expr

    def num_values(self, extent: Size) -> Size:
        """Return the number of values of the term without its stride, for an iterator of this extent."""
        steps = -(-extent // self.divisor)
        return min(steps, self.modulus) if self.modulus else steps


class AffineAccess(NamedTuple):
    """The elements of the buffer `root` that an operand accesses."""

    root: SSAValue
    offset: Size
    terms: tuple[AffineTerm, ...]

    @property
    def is_plain(self) -> bool:
        """True if the access neither divides iterators nor takes remainders of them."""
        return all(t.is_plain for t in self.terms)

    def stride(self, iterator: int) -> Size:
        """Return the distance in elements between consecutive iterations of an iterator.

        It is 0 if the access does not use the iterator, or only divides it.
        """
        total: Size = 0
        for t in self.terms:
            if t.iterator == iterator and t.divisor == 1:
                total = total + t.stride
        return total

    def distance(self, coordinates: Mapping[int, int]) -> int:
        """Return the distance in elements from the first iteration to the one at `coordinates`.

        Missing iterators are at 0. Requires static strides.
        """
        total = 0
        for t in self.terms:
            steps = coordinates.get(t.iterator, 0) // t.divisor
            total += int(t.stride) * (steps % t.modulus if t.modulus else steps)
        return total

    def renumber(self, numbers: Mapping[int, int]) -> AffineAccess:
        """Return the access with other numbers of the iterators."""
        return self._replace(terms=tuple(t._replace(iterator=numbers[t.iterator]) for t in self.terms))

    def uses(self, iterator: int) -> bool:
        return any(t.iterator == iterator for t in self.terms)


def root_of(buffer: SSAValue) -> tuple[SSAValue, Size]:
    """Return the buffer from which a view derives, and the view's offset in it, in elements.

    Raises UnsupportedError for a dynamic offset.
    """
    offset = offset_of(buffer)
    if offset is None:
        raise UnsupportedError(
            f"the view {buffer.name_hint or buffer} has a dynamic offset; its offset must be static or symbolic"
        )
    return viewed_buffer(buffer), offset


def access(buffer: SSAValue, map_: AffineMap) -> AffineAccess:
    """Return the access of an operand with this indexing map."""
    root, offset = root_of(buffer)
    terms: dict[tuple[int, int, int], Size] = {}
    for expr, stride in zip(map_.results, strides_of(buffer), strict=True):
        offset = offset + stride * _linear(expr, stride, terms)
    return AffineAccess(root, offset, tuple(AffineTerm(i, s, d, m) for (i, d, m), s in terms.items() if s != 0))


def _linear(expr: AffineExpr, stride: Size, terms: dict[tuple[int, int, int], Size], factor: int = 1) -> int:
    """Add the terms of an expression, times `stride`, to `terms`; return its constant part."""
    match expr:
        case AffineConstantExpr(value):
            return value * factor
        case AffineDimExpr(position):
            _accumulate(terms, (position, 1, 0), stride * factor)
            return 0
        case AffineBinaryOpExpr(AffineBinaryOpKind.Add, lhs, rhs):
            return _linear(lhs, stride, terms, factor) + _linear(rhs, stride, terms, factor)
        case AffineBinaryOpExpr(AffineBinaryOpKind.Mul, lhs, AffineConstantExpr(value)):
            return _linear(lhs, stride, terms, factor * value)
        case AffineBinaryOpExpr(AffineBinaryOpKind.Mul, AffineConstantExpr(value), rhs):
            return _linear(rhs, stride, terms, factor * value)
        case AffineBinaryOpExpr(AffineBinaryOpKind.FloorDiv, AffineDimExpr(position), AffineConstantExpr(value)):
            _accumulate(terms, (position, value, 0), stride * factor)
            return 0
        case AffineBinaryOpExpr(AffineBinaryOpKind.Mod, AffineDimExpr(position), AffineConstantExpr(value)):
            _accumulate(terms, (position, 1, value), stride * factor)
            return 0
        case _:
            raise UnsupportedError(f"index expression {expr}: only sums of `d`, `d floordiv c` and `d mod c` are supported")


def _accumulate(terms: dict[tuple[int, int, int], Size], key: tuple[int, int, int], stride: Size) -> None:
    terms[key] = terms.get(key, 0) + stride


def view_order(terms: Sequence[AffineTerm]) -> list[AffineTerm]:
    """Sort terms from the largest stride to the smallest, the order of dimensions in a view of the access."""
    ordered = sorted(terms, key=lambda t: (t.iterator, -t.divisor))
    return sorted(ordered, key=lambda t: asymptotic_key(t.stride), reverse=True)
