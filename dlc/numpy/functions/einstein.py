"""Einstein's notation for sums of products: `einsum("ij,jk->ik", a, b)`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from typing import Any

import numpy as np

from dlc.errors import ShapeError, UnsupportedError
from dlc.numpy.apply import ArrayLike, Operand, promote, refuse
from dlc.numpy.functions.linear import contract
from dlc.numpy.functions.reductions import any, sum
from dlc.numpy.functions.shaping import broadcast_to, diagonal, moveaxis, permute_dims

__all__ = ["einsum"]


def einsum(equation: str, /, *operands: ArrayLike, optimize: object = None) -> Any:
    """The products of elements of equal indices, summed over the letters that the result lacks; `...` are axes that broadcast.

    Without `->` the result has the letters that occur once, in alphabetical order. Products are taken from left to right.
    """
    if not isinstance(equation, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        refuse(UnsupportedError('einsum: operands with lists of axes; give an equation, such as "ij,jk->ik"'))
    arrays = promote(*operands) if operands else []
    terms, wanted = _terms(equation, arrays)
    labelled = [_diagonals(x, term, equation) for x, term in zip(arrays, terms, strict=True)]
    sizes = _sizes(equation, labelled)
    value, labels = labelled[0]
    for k in range(1, len(labelled)):
        needed = set(wanted).union(*(term for _, term in labelled[k + 1 :]))
        value, labels = _product((value, labels), labelled[k], needed)
    value, labels = _summed(value, labels, set(wanted))
    value = permute_dims(value, [labels.index(c) for c in wanted])
    return broadcast_to(value, [sizes[c] for c in wanted])


def _terms(equation: str, arrays: list[Operand]) -> tuple[list[str], str]:
    """The labels of each operand and of the result; the axes of an ellipsis are digits, the last of them 0."""
    left, arrow, wanted = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(arrays):
        refuse(ShapeError(f"einsum: the equation {equation!r} has {len(terms)} terms for {len(arrays)} operands"))
    most = 0
    for k, (term, x) in enumerate(zip(terms, arrays, strict=True)):
        extra = x.ndim - len(term.replace("...", ""))
        if extra < 0 or (extra and "..." not in term):
            refuse(ShapeError(f"einsum: the term {term!r} of {equation!r} does not fit an operand of shape {x.shape}"))
        terms[k] = term.replace("...", _digits(extra))
        most = max(most, extra)
    if not arrow:
        count = Counter("".join(terms))
        wanted = "..." + "".join(sorted(c for c in count if count[c] == 1 and not c.isdigit()))
    wanted = wanted.replace("...", _digits(most))
    unknown = [c for c in set("".join(terms) + wanted) if not (c.isalpha() or c.isdigit())]
    if unknown or set(wanted) - set("".join(terms)) or len(set(wanted)) < len(wanted):
        refuse(ShapeError(f"einsum: the equation {equation!r}: the result names letters of the operands, each once"))
    return terms, wanted


def _digits(count: int) -> str:
    return "".join(map(str, reversed(range(count))))


def _diagonals(x: Operand, labels: str, equation: str) -> tuple[Operand, str]:
    """A tensor whose repeated labels are one axis each: the elements with equal indices."""
    for label in sorted({c for c in labels if labels.count(c) > 1}):
        while labels.count(label) > 1:
            first, last = labels.index(label), labels.rindex(label)
            if x.shape[first] != x.shape[last]:
                refuse(ShapeError(f"einsum: {label!r} of {equation!r} has sizes {x.shape[first]} and {x.shape[last]}"))
            x = moveaxis(diagonal(x, 0, first, last), -1, first)
            labels = labels[:last] + labels[last + 1 :]
    return x, labels


def _sizes(equation: str, labelled: list[tuple[Operand, str]]) -> dict[str, int]:
    """The size of each label. A size of 1 broadcasts."""
    sizes: dict[str, int] = {}
    for x, labels in labelled:
        for label, size in zip(labels, x.shape, strict=True):
            known = sizes.get(label, 1)
            if known != size and 1 not in (known, size):
                refuse(ShapeError(f"einsum: {label!r} of {equation!r} has sizes {known} and {size}"))
            sizes[label] = size if known == 1 else known
    return sizes


def _product(lhs: tuple[Operand, str], rhs: tuple[Operand, str], needed: Set[str]) -> tuple[Any, str]:
    """The product of two labelled tensors, summed over the labels that nobody needs."""
    a, a_labels = _summed(*lhs, needed | set(rhs[1]))
    b, b_labels = _summed(*rhs, needed | set(a_labels))
    shared = [c for c in a_labels if c in b_labels]
    a, b = _repeated(a, a_labels, b, b_labels), _repeated(b, b_labels, a, a_labels)
    batch, summed = [c for c in shared if c in needed], [c for c in shared if c not in needed]
    places = [[[t.index(c) for c in group] for t in (a_labels, b_labels)] for group in (summed, batch)]
    product = contract(a, b, *places[0], batch=(places[1][0], places[1][1]))
    return product, "".join((*batch, *(c for c in a_labels + b_labels if c not in shared)))


def _repeated(x: Operand, labels: str, other: Operand, other_labels: str) -> Any:
    """`x`, its axes of size 1 repeated to the size that the other operand has for them."""
    sizes = dict(zip(other_labels, other.shape, strict=True))
    return broadcast_to(x, [sizes.get(c, s) if s == 1 else s for c, s in zip(labels, x.shape, strict=True)])


def _summed(value: Operand, labels: str, needed: Set[str]) -> tuple[Any, str]:
    axes = tuple(k for k, c in enumerate(labels) if c not in needed)
    if not axes:
        return value, labels
    total = any(value, axes) if value.dtype == np.bool_ else sum(value, axes, value.dtype)
    return total, "".join(c for c in labels if c in needed)
