"""Contractions: sums of products over an iteration space of affine accesses.

Sums over 16-bit floats are kept in f32 and rounded once; integer sums wrap in the result's type.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import (
    Array,
    DlOp,
    Tensor,
    broadcast_shapes,
    element_type_of,
    ints,
    normalized_axes,
    of_equal_ops,
    rank_of,
    shape_of,
    tensor_type,
)
from dlc.dialects.dl.dtypes import is_float, is_integer, numpy_dtype
from dlc.dialects.dl.interfaces import Body, Contraction, Structure
from dlc.dialects.dl.narrow_numbers.words import DOTS, Dot, parts_of
from dlc.dialects.dl.scalar import wide_float
from dlc.dims import Size, UndecidableError, is_static
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    AffineExpr,
    AffineMap,
    Attribute,
    BoolAttr,
    DenseArrayBase,
    SSAValue,
    StringAttr,
    TensorType,
    i32,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)


def static(op: DlOp, *values: SSAValue) -> list[tuple[int, ...]]:
    """The shapes of values whose sizes are all known; raises UndecidableError naming the op otherwise."""
    shapes = [shape_of(v) for v in values]
    if not all(is_static(s) for s in shapes):
        raise UndecidableError(f"{op.name}: symbolic sizes in {shapes}; bind them (pass bind-dims) before it is decomposed")
    return cast(list[tuple[int, ...]], shapes)


def iteration_space(
    parallel: Sequence[Size],
    reduced: Sequence[Size],
    views: Sequence[Sequence[Size]],
    indices: Callable[..., Sequence[Sequence[AffineExpr]]],
) -> Structure:
    """The structure whose maps are what `indices` gives for the iterators: parallel ones first, then the reduced."""
    extents = (*parallel, *reduced)
    results = indices(*(AffineExpr.dimension(i) for i in range(len(extents))))
    return Structure(
        maps=tuple(AffineMap(len(extents), 0, tuple(r)) for r in results),
        extents=extents,
        reductions=tuple(i >= len(parallel) for i in range(len(extents))),
        views=tuple(tuple(v) for v in views),
    )


def differ(a: Size, b: Size) -> bool:
    """Whether two sizes are known to be different."""
    return isinstance(a, int) and isinstance(b, int) and a != b


def compatible(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Whether two shapes may be equal, as far as their sizes are known."""
    return len(a) == len(b) and not any(differ(m, n) for m, n in zip(a, b, strict=True))


def contract(compute: Callable[[Array, Array], Array], operands: Sequence[Array], result: np.dtype[np.generic]) -> Array:
    """`compute` on two operands, a sum of products, in a type where it is exact or rounded once, cast to `result`."""
    a, b = operands
    if result.kind not in "iu":
        wide = np.dtype(np.float32) if result.itemsize == 2 else result
        return compute(a.astype(wide, copy=False), b.astype(wide, copy=False)).astype(result, copy=False)
    # BLAS has floats only. Integers below 2⁵³ are exact in f64, so are sums that stay below.
    if a.size and b.size and _magnitude(a) * _magnitude(b) * min(a.size, b.size) < 2**53:
        return compute(a.astype(np.float64), b.astype(np.float64)).astype(np.int64).astype(result)
    return compute(a.astype(np.int64), b.astype(np.int64)).astype(result)


def _magnitude(a: Array) -> int:
    return max(abs(int(a.min())), abs(int(a.max())))


class ProductSum(Contraction):
    """A contraction whose products are those of numbers, or of words of narrow numbers.

    `result` is the type of the sum, where it is not the operands'. `dot` names the product of two words (`DOTS`): both operands
    are of words then, along the last axis that is summed over, and the result is of i32, or f32 where the numbers are floats.
    """

    result_element = opt_prop_def(Attribute, prop_name="result")
    dot_name = opt_prop_def(StringAttr, prop_name="dot")
    result = result_def(TensorType)

    @property
    def dot(self) -> Dot | None:
        """The product of two words; None where operands are numbers."""
        return None if self.dot_name is None else DOTS[self.dot_name.data]

    @property
    def word_product(self) -> StringAttr | None:
        return self.dot_name

    @property
    @abstractmethod
    def word_axes(self) -> tuple[int, int]:
        """The axes of the operands along which words lie."""

    def result_type(self) -> Attribute:
        """The element type of the result; raises DTypeError where there is none."""
        if self.dot_name is None:
            return _result_type(self, self.result_element)
        types = [element_type_of(v) for v in self.operands]
        if self.dot_name.data not in DOTS or types != [i32, i32] or self.result_element is not None:
            raise DTypeError(f"{self.name}: dot {self.dot_name} of {types}; expected words, by {', '.join(DOTS)}")
        return DOTS[self.dot_name.data].total

    def added(self, body: Body, total: SSAValue, *elements: SSAValue) -> SSAValue:
        if self.dot is not None:
            return self.dot.added(body, total, *elements)
        # The operands' own signs decide how they widen; a literal's is that of its type.
        types = map(element_type_of, self.operands)
        a, b = (scalar.convert(body, x, t, total.type) for x, t in zip(elements, types, strict=True))
        return scalar.add(body, scalar.multiply(body, a, b), total)

    def contracted(self, compute: Callable[[Array, Array], Array], operands: Sequence[Array]) -> Array:
        """`compute`, a sum of products, of the operands' numbers."""
        if (dot := self.dot) is not None:
            kinds = zip(operands, self.word_axes, (dot.data, dot.weights), strict=True)
            operands = [parts_of(words, axis, kind) for words, axis, kind in kinds]
        return contract(compute, operands, numpy_dtype(element_type_of(self.result)))


def _result_type(op: DlOp, given: Attribute | None) -> Attribute:
    """The element type of a contraction's result: the operands' own, or the one given for integers."""
    a, b = (element_type_of(v) for v in op.operands)
    for t in (a, b):
        if not (is_float(t) or is_integer(t)):
            raise DTypeError(f"{op.name}: element type {t}; operands must be numbers, cast them")
    if given is None and a == b:
        return a
    if given is not None and is_integer(a) and is_integer(b) and is_integer(given):
        return given
    if given is not None and a == b and given == wide_float(a):
        return given
    raise DTypeError(f"{op.name}: element types {a}, {b} and result {given or 'not given'}; cast one operand to the other's")


@irdl_op_definition
class MatmulOp(ProductSum):
    """`c[…, m, n] = Σₖ a[…, m, k] · b[…, k, n]`, as `numpy.matmul`.

    (C1) both operands have rank 1 or more; a rank-1 `a` is a row, a rank-1 `b` a column, and their axis is dropped from the
    result; (C2) the contracted sizes are equal; (C3) leading axes broadcast; (C4) element types are equal numbers, or
    integers with the type of the sum in `result`, which may be f32 for floats of 16 bits, or words (`dl.words`) whose product
    `dot` names: of integers, i16 or u8i8, with a sum of i32, or of bf16 with one of f32. An empty contraction is 0.

    `rounds_rows` allows whoever computes the product with dequantised weights to make integers of rows as well, of 8 bits or
    more; the reference does not.

        >>> b(MatmulOp, x, w)                  # f32[8, 4] · f32[4, 2] → f32[8, 2]
        >>> b(MatmulOp, x, w, result=i32)      # ui8[8, 4] · i8[4, 2] → i32[8, 2]
    """

    name = "dl.matmul"
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    rounds_rows = opt_prop_def(BoolAttr)

    @property
    def word_axes(self) -> tuple[int, int]:
        return -1, max(-2, -rank_of(self.rhs))

    def infer(self) -> Sequence[Tensor]:
        a, b = shape_of(self.lhs), shape_of(self.rhs)
        if not a or not b:
            raise ShapeError(f"dl.matmul: operands of shapes {a} and {b}; scalars have no rows, use dl.mul")
        if differ(a[-1], b[-2:][0]):
            raise ShapeError(f"dl.matmul: contracted sizes differ: lhs {a}, rhs {b}; transpose one operand or check K")
        batch = broadcast_shapes("dl.matmul", a[:-2], b[:-2])
        return [tensor_type((*batch, *a[-2:-1], *b[-1:][len(b) == 1 :]), self.result_type())]

    def broadcast(self) -> Sequence[tuple[Sequence[Size], Sequence[Size]]]:
        batches = [shape_of(v)[:-2] for v in (self.lhs, self.rhs)]
        return [(batch, broadcast_shapes(self.name, *batches)) for batch in batches]

    def reference(self, *operands: Array) -> Array:
        return self.contracted(np.matmul, operands)

    @of_equal_ops
    def structure(self) -> Structure:
        a, b, c = map(shape_of, (self.lhs, self.rhs, self.result))
        row, column = len(a) > 1, len(b) > 1
        batch = c[: len(c) - row - column]

        def indices(*iterators: AffineExpr) -> Sequence[Sequence[AffineExpr]]:
            lead, (*free, k) = iterators[: len(batch)], iterators[len(batch) :]
            m, n = free[:row], free[row:]
            return (
                [*_aligned(lead, a[:-2], batch), *m, k],
                [*_aligned(lead, b[:-2], batch), k, *n],
                [*lead, *m, *n],
            )

        return iteration_space(c, a[-1:], (a, b, c), indices)


def _aligned(iterators: Sequence[AffineExpr], sizes: Sequence[Size], batch: Sequence[Size]) -> list[AffineExpr]:
    """The iterators that axes of these sizes read a broadcast `batch` with: trailing ones aligned, repeated ones at 0."""
    lead = len(batch) - len(sizes)
    return [AffineExpr.constant(0) if s == 1 != batch[lead + a] else iterators[lead + a] for a, s in enumerate(sizes)]


@irdl_op_definition
class DotGeneralOp(ProductSum):
    """Sum of products over paired axes; the result's axes are batch, then lhs free, then rhs free ones, each in order.

    (C1) `lhs_batch` and `rhs_batch` pair axes of equal size, so do `lhs_contract` and `rhs_contract`; (C2) no axis occurs
    twice; (C3) element types as in `dl.matmul`. An empty contraction is 0.
    """

    name = "dl.dot_general"
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    lhs_batch = prop_def(DenseArrayBase)
    rhs_batch = prop_def(DenseArrayBase)
    lhs_contract = prop_def(DenseArrayBase)
    rhs_contract = prop_def(DenseArrayBase)

    @property
    def word_axes(self) -> tuple[int, int]:
        (_, _, a_sum), (_, _, b_sum) = self._axes()
        return a_sum[-1], b_sum[-1]

    def _axes(self) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
        """(batch, free, contracted) axes of lhs and of rhs."""

        def split(value: SSAValue, batch: Attribute, contracted: Attribute) -> tuple[tuple[int, ...], ...]:
            rank = len(shape_of(value))
            used = normalized_axes("dl.dot_general", (*ints(batch), *ints(contracted)), rank)
            n = len(ints(batch))
            return used[:n], tuple(a for a in range(rank) if a not in used), used[n:]

        return split(self.lhs, self.lhs_batch, self.lhs_contract), split(self.rhs, self.rhs_batch, self.rhs_contract)

    def infer(self) -> Sequence[Tensor]:
        a, b = shape_of(self.lhs), shape_of(self.rhs)
        (a_batch, a_free, a_sum), (b_batch, b_free, b_sum) = self._axes()
        for kind, left, right in (("batch", a_batch, b_batch), ("contracted", a_sum, b_sum)):
            if len(left) != len(right) or any(differ(a[i], b[j]) for i, j in zip(left, right, strict=True)):
                raise ShapeError(f"dl.dot_general: {kind} axes {left} of {a} and {right} of {b} do not pair up")
        result = (*(a[i] for i in a_batch), *(a[i] for i in a_free), *(b[j] for j in b_free))
        return [tensor_type(result, self.result_type())]

    def reference(self, *operands: Array) -> Array:
        (a_batch, a_free, a_sum), (b_batch, b_free, b_sum) = self._axes()

        def compute(a: Array, b: Array) -> Array:
            lead = [a.shape[i] for i in a_batch]
            k = int(np.prod([a.shape[i] for i in a_sum], dtype=np.int64))
            m = int(np.prod([a.shape[i] for i in a_free], dtype=np.int64))
            n = int(np.prod([b.shape[i] for i in b_free], dtype=np.int64))
            rows = a.transpose(a_batch + a_free + a_sum).reshape(*lead, m, k)
            columns = b.transpose(b_batch + b_sum + b_free).reshape(*lead, k, n)
            return (rows @ columns).reshape((*lead, *(a.shape[i] for i in a_free), *(b.shape[i] for i in b_free)))

        return self.contracted(compute, operands)

    @of_equal_ops
    def structure(self) -> Structure:
        a, b, c = map(shape_of, (self.lhs, self.rhs, self.result))
        (a_batch, a_free, a_sum), (b_batch, b_free, b_sum) = self._axes()

        def indices(*iterators: AffineExpr) -> Sequence[Sequence[AffineExpr]]:
            lhs = dict(zip(a_batch + a_free, iterators, strict=False))
            rhs = dict(zip(b_batch, iterators, strict=False))
            rhs |= dict(zip(b_free, iterators[len(a_batch + a_free) :], strict=False))
            lhs |= dict(zip(a_sum, iterators[len(c) :], strict=True))
            rhs |= dict(zip(b_sum, iterators[len(c) :], strict=True))
            return [lhs[i] for i in range(len(a))], [rhs[i] for i in range(len(b))], iterators[: len(c)]

        return iteration_space(c, [a[i] for i in a_sum], (a, b, c), indices)
