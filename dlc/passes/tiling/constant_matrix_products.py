"""Compute products with small constant matrices in few additions: rows share common subexpressions.

  y₁ = -4·x₁ - 4·x₂ + x₃ + x₄,  y₂ = 4·x₁ - 4·x₂ - x₃ + x₄
→
  a = x₃ - 4·x₁,  b = x₄ - 4·x₂,  y₁ = b + a,  y₂ = b - a
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import Any, cast

import numpy as np

from dlc.dialects.dl.dtypes import array_of, numpy_dtype
from dlc.ir import (
    Attribute,
    Block,
    DenseIntOrFPElementsAttr,
    FastMathFlag,
    Region,
    SSAValue,
    arith,
    linalg,
)
from dlc.passes.structured import CONSTANT_MATRIX, ConstantPool, OpBuilder
from dlc.passes.tiling.buffer_views import BufferView, copy, generic
from dlc.passes.tiling.iteration_ranges import Tile
from dlc.passes.tiling.loop_nests import NestOp, SizedLoopNest, initial_fill
from dlc.passes.types import scalar_attribute, zero_attribute

# Pairs (index of a value, coefficient): inputs are numbered first, then the shared subexpressions.
LinearCombination = tuple[tuple[int, Fraction], ...]


@dataclass(frozen=True)
class ConstantMatrixProduct:
    """An op that multiplies a constant matrix by its first operand.

    The rows of the matrix are along dimension `row`, its columns along `column`.
    """

    matrix: DenseIntOrFPElementsAttr
    row: int
    column: int

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.matrix.get_shape()
        return rows, columns

    @property
    def element(self) -> Attribute:
        return self.matrix.get_element_type()


def match_constant_matrix_product(nest_op: NestOp, nest: SizedLoopNest) -> ConstantMatrixProduct | None:
    """Return the product of an op that sums, from 0, an operand times a finite constant matrix; else None."""
    constant, initial = nest_op.op.attributes.get(CONSTANT_MATRIX), initial_fill(nest_op, nest)
    if not isinstance(constant, DenseIntOrFPElementsAttr) or initial is None or len(nest_op.accesses) != 3:
        return None
    matrix = cast("DenseIntOrFPElementsAttr[Any]", constant)
    rows, columns = matrix.get_shape()
    start, element = initial.op.operands[0].owner, cast(Attribute, matrix.get_element_type())
    if not isinstance(start, arith.ConstantOp) or start.value != zero_attribute(element) or min(rows, columns) < 2:
        return None
    op_types = [type(op) for op in nest_op.body.ops]
    if not np.isfinite(array_of(matrix).astype(np.float64)).all():
        return None
    if op_types not in ([arith.MulfOp, arith.AddfOp, linalg.YieldOp], [arith.MuliOp, arith.AddiOp, linalg.YieldOp]):
        return None
    # The matrix is the second operand; the strides of the first one may be the same, so they cannot identify it.
    a = nest_op.input_accesses.get(1)
    strides = {t.iterator: t.stride for t in a.terms} if a is not None and a.is_plain else {}
    if sorted(strides.values(), key=str) != sorted((columns, 1), key=str):
        return None
    row, column = sorted(strides, key=lambda d: strides[d] != columns)
    if set(nest_op.reductions) != {column} or (nest.extents[row], nest.extents[column]) != (rows, columns):
        return None
    return ConstantMatrixProduct(matrix, row, column)


@lru_cache(maxsize=256)
def factor_common_terms(matrix: DenseIntOrFPElementsAttr) -> tuple[Sequence[LinearCombination], Sequence[LinearCombination]]:
    """Return common subexpressions of two terms each, in order, and each row as a sum of inputs and subexpressions.

    Repeatedly, the pair of terms that most rows share, up to a factor, becomes a subexpression. After Hartley,
    Subexpression Sharing in Filters (1996). All coefficients are exact in the matrix's type.
    """
    coefficients = array_of(matrix)
    rows = [{k: Fraction(n.item()) for k, n in enumerate(row) if n} for row in coefficients]
    subexpressions: list[LinearCombination] = []
    while (best_pair := _most_shared(rows, _is_exact_in(coefficients.dtype))) is not None:
        pair, readers = best_pair
        subexpression = len(coefficients[0]) + len(subexpressions)
        subexpressions.append(pair)
        for r, factor in readers.items():
            for k, _ in pair:
                del rows[r][k]
            rows[r][subexpression] = factor
    return subexpressions, [tuple(row.items()) for row in rows]


def _most_shared(
    rows: Sequence[Mapping[int, Fraction]], is_exact: Callable[[Fraction], bool]
) -> tuple[LinearCombination, Mapping[int, Fraction]] | None:
    """Return the pair of terms that most rows share (at least two), and its factor in each of these rows; else None."""
    shared: dict[LinearCombination, dict[int, Fraction]] = {}
    for r, row in enumerate(rows):
        for a, b in combinations(sorted(row), 2):
            # One of the two terms gets the coefficient 1.
            for factor in dict.fromkeys((row[a], row[b])):
                pair = (a, row[a] / factor), (b, row[b] / factor)
                if all(is_exact(n) for _, n in pair):
                    shared.setdefault(pair, {})[r] = factor
    # Prefer pairs that rows add or subtract without a multiplication.
    best = max(shared.items(), key=lambda f: (len(f[1]), sum(abs(n) == 1 for n in f[1].values())), default=None)
    return best if best is not None and len(best[1]) > 1 else None


def _is_exact_in(dtype: np.dtype[Any]) -> Callable[[Fraction], bool]:
    """Return a predicate: whether a dtype represents a value exactly."""
    if dtype.kind == "f":
        maximum = Fraction(np.finfo(dtype).max.item())
        return lambda n: abs(n) <= maximum and Fraction(dtype.type(float(n)).item()) == n
    minimum, maximum = np.iinfo(dtype).min, np.iinfo(dtype).max
    return lambda n: n.denominator == 1 and minimum <= n <= maximum


def linear_combination_body(terms: LinearCombination, element: Attribute, constants: ConstantPool) -> Region:
    """Return the scalar body of a linear combination, with one argument per term and one for the output."""
    block = Block(arg_types=[element] * (len(terms) + 1))
    is_float = numpy_dtype(element).kind == "f"
    fast_math = {"flags": arith.FastMathFlagsAttr([FastMathFlag.ALLOW_CONTRACT])} if is_float else {}
    add, subtract, multiply = (
        (arith.AddfOp, arith.SubfOp, arith.MulfOp) if is_float else (arith.AddiOp, arith.SubiOp, arith.MuliOp)
    )

    def constant(n: Fraction) -> SSAValue:
        return constants.get(scalar_attribute(float(n) if is_float else int(n), element), element)

    def insert(op_class: Any, a: SSAValue, b: SSAValue) -> SSAValue:
        op = op_class(a, b, **fast_math)
        block.add_op(op)
        return op.result

    total: SSAValue | None = None
    # A term with coefficient 1 comes first: it starts the sum without a multiplication.
    for (_, n), value in sorted(zip(terms, block.args, strict=False), key=lambda term: term[0][1] != 1):
        if total is None:
            total = value if n == 1 else insert(multiply, value, constant(n))
        elif abs(n) == 1:
            total = insert(add if n > 0 else subtract, total, value)
        else:
            total = insert(add, insert(multiply, value, constant(n)), total)
    block.add_op(linalg.YieldOp(constant(Fraction(0)) if total is None else total))
    return Region(block)


def emit_constant_matrix_product(
    builder: OpBuilder,
    product: ConstantMatrixProduct,
    tile: Tile,
    dims: Sequence[int],
    input_view: Callable[[Tile], BufferView],
    output_view: Callable[[Tile], BufferView],
) -> None:
    """Emit a product with a constant matrix for all elements of `dims`: first the common subexpressions, then the rows.

    `input_view` and `output_view` return the view of an operand that a tile covers. Subexpressions are stored in buffers of the
    tile's size; store forwarding turns these into registers.
    """
    subexpressions, rows = factor_common_terms(product.matrix)
    shape = tuple(tile[d].size for d in dims)
    read_values = {k for terms in (*subexpressions, *rows) for k, _ in terms}
    values: dict[int, SSAValue] = {}

    def add_up(terms: LinearCombination, destination: BufferView) -> None:
        body = linear_combination_body(terms, product.element, builder.constants)
        generic(builder, [*((values[k], dims) for k, _ in terms), destination], dims, body)

    def buffer(k: int) -> BufferView:
        values[k] = builder.alloca(product.element, shape, f"x{k}")
        return values[k], dims

    for k in range(product.shape[1]):
        if k in read_values:
            product_tile = {**tile, product.column: tile[product.column].subrange(builder, k, 1)}
            copy(builder, input_view(product_tile), buffer(k))
    for k, terms in enumerate(subexpressions, product.shape[1]):
        add_up(terms, buffer(k))
    for r, terms in enumerate(rows):
        product_tile = {**tile, product.row: tile[product.row].subrange(builder, r, 1)}
        add_up(terms, output_view(product_tile))
