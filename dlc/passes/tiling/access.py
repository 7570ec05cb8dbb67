"""Accesses: which element of which buffer a structured op touches at each iteration, as map ∘ strides.

An operand of a `linalg` op reads `buffer[map(iterators)]`. Composed with the buffer's strides that is one number,
`offset + Σ stride · ((iterator floordiv divisor) mod modulus)`, in elements of the root buffer below all views. Tiling,
collapsing of iterators and the linking of ops through temporaries are questions about these terms alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from dlc.dialects.sizes import offset_of, strides_of
from dlc.dims import Size, growth
from dlc.errors import UnsupportedError
from dlc.ir import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    BlockArgument,
    SSAValue,
    memref,
)


class Term(NamedTuple):
    """`stride · ((iterator floordiv divisor) mod modulus)`; modulus 0 means none."""

    iterator: int
    stride: Size
    divisor: int = 1
    modulus: int = 0

    @property
    def is_plain(self) -> bool:
        return self.divisor == 1 and self.modulus == 0


class Access(NamedTuple):
    """The elements of `root` that an operand touches."""

    root: SSAValue
    offset: Size
    terms: tuple[Term, ...]

    def stride(self, iterator: int) -> Size:
        """Elements from one iteration to the next; 0 when the iterator is not used (or only inside a division)."""
        total: Size = 0
        for t in self.terms:
            if t.iterator == iterator and t.divisor == 1:
                total = total + t.stride
        return total

    def distance(self, place: Mapping[int, int]) -> int:
        """Elements from the first one to that at `place`, with iterators that are not named at 0; strides are known."""
        found = 0
        for t in self.terms:
            steps = place.get(t.iterator, 0) // t.divisor
            found += int(t.stride) * (steps % t.modulus if t.modulus else steps)
        return found

    def uses(self, iterator: int) -> bool:
        return any(t.iterator == iterator for t in self.terms)


def root_of(buffer: SSAValue) -> tuple[SSAValue, Size]:
    """The buffer below all views, and the view's offset in elements, which does not depend on loops before tiling."""
    offset = offset_of(buffer)
    root = buffer
    while not isinstance(root, BlockArgument) and isinstance(root.owner, memref.SubviewOp | memref.ReinterpretCastOp):
        root = cast("SSAValue[Any]", root.owner.source)
    if offset is None:
        raise UnsupportedError(f"a view of {buffer.name_hint or buffer} at an offset that is known only at run time")
    return root, offset


def access(buffer: SSAValue, map_: AffineMap) -> Access:
    """The access of an operand with this indexing map."""
    root, offset = root_of(buffer)
    terms: dict[tuple[int, int, int], Size] = {}
    for expr, stride in zip(map_.results, strides_of(buffer), strict=True):
        offset = offset + stride * _linear(expr, stride, terms)
    return Access(root, offset, tuple(Term(i, s, d, m) for (i, d, m), s in terms.items() if s != 0))


def _linear(expr: AffineExpr, stride: Size, terms: dict[tuple[int, int, int], Size], factor: int = 1) -> int:
    """Adds an expression's terms, times `stride`, to `terms`; returns its constant part."""
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
            raise UnsupportedError(f"access by {expr}: sums of iterators, of dim floordiv c and of dim mod c are supported")


def _accumulate(terms: dict[tuple[int, int, int], Size], key: tuple[int, int, int], stride: Size) -> None:
    terms[key] = terms.get(key, 0) + stride


def view_order(terms: Sequence[Term]) -> list[Term]:
    """Terms from the largest stride to the smallest: the dimensions of a view of the access."""
    ordered = sorted(terms, key=lambda t: (t.iterator, -t.divisor))
    return sorted(ordered, key=lambda t: growth(t.stride), reverse=True)
