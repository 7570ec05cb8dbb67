"""Products with small matrices of known numbers, as few sums: what several rows have in common is made once.

y₁ = -4·x₁ - 4·x₂ + x₃ + x₄,  y₂ = 4·x₁ - 4·x₂ - x₃ + x₄   →   a = x₃ - 4·x₁,  b = x₄ - 4·x₂,  y₁ = b + a,  y₂ = b - a
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
from dlc.ir import Attribute, Block, DenseIntOrFPElementsAttr, FastMathFlag, Region, SSAValue, arith, linalg
from dlc.passes.structured import MATRIX, Constants
from dlc.passes.tiling.nests import Nest, Stage, initial_of
from dlc.passes.types import number_attribute, zero_attribute

# Numbers times values, which are counted: those that are given first, then each that is made.
Terms = tuple[tuple[int, Fraction], ...]


@dataclass(frozen=True)
class KnownProduct:
    """A stage that is a known matrix times what its first factor has along `column`; the matrix's rows are along `row`."""

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


def known_product(stage: Stage, nest: Nest) -> KnownProduct | None:
    """What a stage is the product of, if it is the sum from 0 on of a factor times a matrix of known, finite numbers."""
    known, initial = stage.op.attributes.get(MATRIX), initial_of(stage, nest)
    if not isinstance(known, DenseIntOrFPElementsAttr) or initial is None or len(stage.accesses) != 3:
        return None
    matrix = cast("DenseIntOrFPElementsAttr[Any]", known)
    rows, columns = matrix.get_shape()
    start, element = initial.op.operands[0].owner, cast(Attribute, matrix.get_element_type())
    if not isinstance(start, arith.ConstantOp) or start.value != zero_attribute(element) or min(rows, columns) < 2:
        return None
    kinds = [type(op) for op in stage.op.regions[0].block.ops]
    if not np.isfinite(array_of(matrix).astype(np.float64)).all():
        return None
    if kinds not in ([arith.MulfOp, arith.AddfOp, linalg.YieldOp], [arith.MuliOp, arith.AddiOp, linalg.YieldOp]):
        return None
    # The first factor may have the strides of such a matrix as well.
    a = stage.accesses[1]
    strides = {t.iterator: t.stride for t in a.terms} if a is not None and all(t.is_plain for t in a.terms) else {}
    if sorted(strides.values(), key=str) != sorted((columns, 1), key=str):
        return None
    row, column = sorted(strides, key=lambda d: strides[d] != columns)
    if set(stage.reductions) != {column} or (nest.extents[row], nest.extents[column]) != (rows, columns):
        return None
    return KnownProduct(matrix, row, column)


@lru_cache(maxsize=256)
def shared_forms(matrix: DenseIntOrFPElementsAttr) -> tuple[Sequence[Terms], Sequence[Terms]]:
    """Sums of two terms that several rows have in common, each of what is given and made before; and the rows, of all these.

    The pair of terms that most rows have, but for a factor, becomes a value, until each is in one row alone. After Hartley,
    Subexpression Sharing in Filters (1996). All factors are numbers of the matrix's type.
    """
    numbers = array_of(matrix)
    rows = [{k: Fraction(n.item()) for k, n in enumerate(row) if n} for row in numbers]
    made: list[Terms] = []
    while (best := _most_shared(rows, _is_number_of(numbers.dtype))) is not None:
        pair, readers = best
        new = len(numbers[0]) + len(made)
        made.append(pair)
        for r, factor in readers.items():
            for k, _ in pair:
                del rows[r][k]
            rows[r][new] = factor
    return made, [tuple(row.items()) for row in rows]


def _most_shared(
    rows: Sequence[Mapping[int, Fraction]], is_number: Callable[[Fraction], bool]
) -> tuple[Terms, Mapping[int, Fraction]] | None:
    """The pair of terms that most rows have, two at least, and what each of these has it times."""
    found: dict[Terms, dict[int, Fraction]] = {}
    for r, row in enumerate(rows):
        for a, b in combinations(sorted(row), 2):
            # One of both is added as it is.
            for by in dict.fromkeys((row[a], row[b])):
                pair = (a, row[a] / by), (b, row[b] / by)
                if all(is_number(n) for _, n in pair):
                    found.setdefault(pair, {})[r] = by
    # Where rows have it as it is, or less it, nothing is multiplied.
    best = max(found.items(), key=lambda f: (len(f[1]), sum(abs(n) == 1 for n in f[1].values())), default=None)
    return best if best is not None and len(best[1]) > 1 else None


def _is_number_of(dtype: np.dtype[Any]) -> Callable[[Fraction], bool]:
    """Whether a number is one of a type, without rounding."""
    if dtype.kind == "f":
        most = Fraction(np.finfo(dtype).max.item())
        return lambda n: abs(n) <= most and Fraction(dtype.type(float(n)).item()) == n
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    return lambda n: n.denominator == 1 and least <= n <= most


def form_body(terms: Terms, element: Attribute, constants: Constants) -> Region:
    """The scalar code of a sum of terms, of as many arguments and the result's."""
    block = Block(arg_types=[element] * (len(terms) + 1))
    floats = arith.FastMathFlagsAttr([FastMathFlag.ALLOW_CONTRACT])
    is_float = numpy_dtype(element).kind == "f"

    def number(n: Fraction) -> SSAValue:
        return constants.get(number_attribute(float(n) if is_float else int(n), element), element)

    def made(op: arith.AddfOp | arith.SubfOp | arith.MulfOp | arith.AddiOp | arith.SubiOp | arith.MuliOp) -> SSAValue:
        block.add_op(op)
        return op.result

    total: SSAValue | None = None
    # What is added as it is comes first, for all others to be added to.
    for (_, n), value in sorted(zip(terms, block.args, strict=False), key=lambda term: term[0][1] != 1):
        if total is None:
            times = arith.MulfOp(value, number(n), flags=floats) if is_float else arith.MuliOp(value, number(n))
            total = value if n == 1 else made(times)
        elif abs(n) == 1:
            if is_float:
                total = made((arith.AddfOp if n > 0 else arith.SubfOp)(total, value, flags=floats))
            else:
                total = made((arith.AddiOp if n > 0 else arith.SubiOp)(total, value))
        elif is_float:
            total = made(arith.AddfOp(made(arith.MulfOp(value, number(n), flags=floats)), total, flags=floats))
        else:
            total = made(arith.AddiOp(made(arith.MuliOp(value, number(n))), total))
    block.add_op(linalg.YieldOp(number(Fraction(0)) if total is None else total))
    return Region(block)
