"""Einstein summation: `einsum("ij,jk->ik", a, b)`."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence, Set
from string import ascii_letters
from typing import Any

import numpy as np

from dlc.errors import ArgumentError, DTypeError, ShapeError
from dlc.numpy.apply import AnyDType, Operand, convert, promote, refuse
from dlc.numpy.functions.matrix_products import contract
from dlc.numpy.functions.reductions import any, sum
from dlc.numpy.functions.shape_manipulation import broadcast_to, diagonal, moveaxis, permute_dims
from dlc.shapes.traced_dims import untraced

__all__ = ["einsum"]


def einsum(*operands: Any, dtype: AnyDType = None) -> Any:
    """Return the sum of products in Einstein notation: an equation and arrays, or arrays that each precede a list of labels.

    `einsum("ij,jk->ik", a, b)` or `einsum(a, [0, 1], b, [1, 2], [0, 2])`. `...` denotes broadcast axes. Without `->` the result
    has the labels that occur once, in alphabetical order. Products are evaluated from left to right, in `dtype` if given.
    """
    equation, arrays = equation_of(operands)
    arrays = promote(*arrays) if dtype is None else [convert(x, dtype) for x in arrays]
    terms, result_labels = _terms(equation, arrays)
    operands_with_labels = [_diagonals(x, term, equation) for x, term in zip(arrays, terms, strict=True)]
    sizes = _sizes(equation, operands_with_labels)
    value, labels = operands_with_labels[0]
    for k in range(1, len(operands_with_labels)):
        required_labels = set(result_labels).union(*(term for _, term in operands_with_labels[k + 1 :]))
        value, labels = _product((value, labels), operands_with_labels[k], required_labels)
    value, labels = _sum_out(value, labels, set(result_labels))
    value = permute_dims(value, [labels.index(c) for c in result_labels])
    return broadcast_to(value, [sizes[c] for c in result_labels])


def equation_of(operands: Sequence[Any]) -> tuple[str, list[Any]]:
    """Return the equation and the arrays of a call of einsum in either notation."""
    if operands and isinstance(operands[0], str):
        return operands[0], list(operands[1:])
    if len(operands) < 2:
        refuse(ArgumentError('einsum: expected an equation, such as "ij,jk->ik", and arrays'))
    terms = [_term(labels) for labels in operands[1::2]]
    equation = ",".join(terms)
    return (f"{equation}->{_term(operands[-1])}" if len(operands) % 2 else equation), list(operands[: 2 * len(terms) : 2])


def _term(labels: Any) -> str:
    """Return a list of labels from 0, and an Ellipsis, as letters."""
    try:
        return "".join("..." if label is Ellipsis else ascii_letters[operator.index(label)] for label in labels)
    except (TypeError, IndexError) as error:
        problem = f"einsum: the labels {labels!r:.60}; expected a list of integers from 0 to {len(ascii_letters) - 1}"
        return refuse(ArgumentError(problem) if isinstance(error, IndexError) else DTypeError(problem))


def _terms(equation: str, arrays: list[Operand]) -> tuple[list[str], str]:
    """Return the labels of each operand and of the result.

    The axes of an ellipsis are labelled by digits, the last one by 0.
    """
    operand_labels, arrow, result_labels = equation.replace(" ", "").partition("->")
    terms = operand_labels.split(",")
    if len(terms) != len(arrays):
        refuse(ShapeError(f"einsum: the equation {equation!r} has {len(terms)} terms, but there are {len(arrays)} operands"))
    max_ellipsis_rank = 0
    for k, (term, x) in enumerate(zip(terms, arrays, strict=True)):
        ellipsis_rank = x.ndim - len(term.replace("...", ""))
        if ellipsis_rank < 0 or (ellipsis_rank and "..." not in term):
            refuse(ShapeError(f"einsum: the term {term!r} of {equation!r} does not match an operand of shape {x.shape}"))
        terms[k] = term.replace("...", _digits(ellipsis_rank))
        max_ellipsis_rank = max(max_ellipsis_rank, ellipsis_rank)
    if not arrow:
        count = Counter("".join(terms))
        result_labels = "..." + "".join(sorted(c for c in count if count[c] == 1 and not c.isdigit()))
    result_labels = result_labels.replace("...", _digits(max_ellipsis_rank))
    invalid_labels = [c for c in set("".join(terms) + result_labels) if not (c.isalpha() or c.isdigit())]
    if invalid_labels or set(result_labels) - set("".join(terms)) or len(set(result_labels)) < len(result_labels):
        refuse(ShapeError(f"einsum: the equation {equation!r}: the result must name labels of the operands, each once"))
    return terms, result_labels


def _digits(num_digits: int) -> str:
    return "".join(map(str, reversed(range(num_digits))))


def _diagonals(x: Operand, labels: str, equation: str) -> tuple[Operand, str]:
    """Take the diagonal of axes with equal labels, so that every label names one axis."""
    for label in sorted({c for c in labels if labels.count(c) > 1}):
        while labels.count(label) > 1:
            first, last = labels.index(label), labels.rindex(label)
            if x.shape[first] != x.shape[last]:
                refuse(ShapeError(f"einsum: {label!r} of {equation!r} has sizes {x.shape[first]} and {x.shape[last]}"))
            x = moveaxis(diagonal(x, 0, first, last), -1, first)
            labels = labels[:last] + labels[last + 1 :]
    return x, labels


def _sizes(equation: str, operands_with_labels: list[tuple[Operand, str]]) -> dict[str, int]:
    """Return the size of each label. A size of 1 broadcasts."""
    sizes: dict[str, int] = {}
    for x, labels in operands_with_labels:
        for label, size in zip(labels, x.shape, strict=True):
            previous = sizes.get(label, 1)
            if 1 not in untraced((previous, size)) and previous != size:
                refuse(ShapeError(f"einsum: {label!r} of {equation!r} has sizes {previous} and {size}"))
            sizes[label] = size if untraced(previous) == 1 else previous
    return sizes


def _product(lhs: tuple[Operand, str], rhs: tuple[Operand, str], needed: Set[str]) -> tuple[Any, str]:
    """Return the product of two labelled arrays, summed over the labels that are not needed later."""
    a, a_labels = _sum_out(*lhs, needed | set(rhs[1]))
    b, b_labels = _sum_out(*rhs, needed | set(a_labels))
    shared = [c for c in a_labels if c in b_labels]
    a, b = _broadcast_shared(a, a_labels, b, b_labels), _broadcast_shared(b, b_labels, a, a_labels)
    batch, contracted = [c for c in shared if c in needed], [c for c in shared if c not in needed]
    axes = [[[t.index(c) for c in group] for t in (a_labels, b_labels)] for group in (contracted, batch)]
    product = contract(a, b, *axes[0], batch=(axes[1][0], axes[1][1]))
    return product, "".join((*batch, *(c for c in a_labels + b_labels if c not in shared)))


def _broadcast_shared(x: Operand, labels: str, other: Operand, other_labels: str) -> Any:
    """Broadcast the axes of size 1 of `x` to the size that the other operand has for the same label."""
    sizes = dict(zip(other_labels, other.shape, strict=True))
    return broadcast_to(x, [sizes.get(c, s) if untraced(s) == 1 else s for c, s in zip(labels, x.shape, strict=True)])


def _sum_out(value: Operand, labels: str, needed: Set[str]) -> tuple[Any, str]:
    axes = tuple(k for k, c in enumerate(labels) if c not in needed)
    if not axes:
        return value, labels
    total = any(value, axes) if value.dtype == np.bool_ else sum(value, axes, value.dtype)
    return total, "".join(c for c in labels if c in needed)
