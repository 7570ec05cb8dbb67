"""Contractions: sums of products over an iteration space with affine accesses.

16-bit floats accumulate in f32 and round once; integer sums wrap in the result's type.
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
    memoize_by_signature,
    normalized_axes,
    rank_of,
    shape_of,
    tensor_type,
)
from dlc.dialects.dl.dtypes import is_float, is_integer, numpy_dtype
from dlc.dialects.dl.interfaces import Body, Contraction, Structure
from dlc.dialects.dl.low_precision.packed_dot import PACKED_DOTS, PackedDot, unpack_words
from dlc.dialects.dl.scalar import wide_float
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    AffineExpr,
    AffineMap,
    Attribute,
    DenseArrayBase,
    IntegerAttr,
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
from dlc.shapes.dims import Size, UndecidableError, is_known_different, is_static


def static_shapes(op: DlOp, *values: SSAValue) -> list[tuple[int, ...]]:
    """Return the static shapes of values; raise UndecidableError naming the op if a size is symbolic."""
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
    """Return the structure whose maps are the results of `indices` for the iterators: parallel ones first, then reductions."""
    extents = (*parallel, *reduced)
    results = indices(*(AffineExpr.dimension(i) for i in range(len(extents))))
    return Structure(
        maps=tuple(AffineMap(len(extents), 0, tuple(r)) for r in results),
        extents=extents,
        reductions=tuple(i >= len(parallel) for i in range(len(extents))),
        views=tuple(tuple(v) for v in views),
    )


def contract(compute: Callable[[Array, Array], Array], operands: Sequence[Array], result: np.dtype[np.generic]) -> Array:
    """Apply `compute`, a sum of products of two operands, in a type where it is exact or rounded once; convert to `result`."""
    a, b = operands
    if result.kind not in "iu":
        wide = np.dtype(np.float32) if result.itemsize == 2 else result
        return compute(a.astype(wide, copy=False), b.astype(wide, copy=False)).astype(result, copy=False)
    # BLAS supports floats only. f64 is exact for integers below 2⁵³, and for sums that stay below.
    if a.size and b.size and _magnitude(a) * _magnitude(b) * min(a.size, b.size) < 2**53:
        return compute(a.astype(np.float64), b.astype(np.float64)).astype(np.int64).astype(result)
    return compute(a.astype(np.int64), b.astype(np.int64)).astype(result)


def _magnitude(a: Array) -> int:
    return max(abs(int(a.min())), abs(int(a.max())))


class ProductSum(Contraction):
    """A contraction of plain elements, or of packed dot-product operands.

    `result` is the element type of the sum if it differs from the operands'. `dot` names a packed dot product (`PACKED_DOTS`):
    both operands are then words of packed elements along the last reduction axis; the result is i32, or f32 for float elements.
    """

    result_element = opt_prop_def(Attribute, prop_name="result")
    dot_name = opt_prop_def(StringAttr, prop_name="dot")
    result = result_def(TensorType)

    @property
    def dot(self) -> PackedDot | None:
        """The packed dot product; None for plain elements."""
        return None if self.dot_name is None else PACKED_DOTS[self.dot_name.data]

    @property
    def packed_dot_name(self) -> StringAttr | None:
        return self.dot_name

    @property
    @abstractmethod
    def packed_axes(self) -> tuple[int, int]:
        """The axes of the operands along which elements are packed."""

    def result_type(self) -> Attribute:
        """Return the element type of the result; raise DTypeError for invalid element types."""
        if self.dot_name is None:
            return _result_type(self, self.result_element)
        types = [element_type_of(v) for v in self.operands]
        if self.dot_name.data not in PACKED_DOTS or types != [i32, i32] or self.result_element is not None:
            expected = f"operands of i32 and one of {', '.join(PACKED_DOTS)}"
            raise DTypeError(f"{self.name}: dot {self.dot_name} of operands of {types}; expected {expected}")
        return PACKED_DOTS[self.dot_name.data].total

    def accumulate(self, body: Body, total: SSAValue, *elements: SSAValue) -> SSAValue:
        if self.dot is not None:
            return self.dot.accumulate(body, total, *elements)
        # The element type of each operand determines its sign or zero extension.
        types = map(element_type_of, self.operands)
        a, b = (scalar.convert(body, x, t, total.type) for x, t in zip(elements, types, strict=True))
        return scalar.add(body, scalar.multiply(body, a, b), total)

    def evaluate_products(self, compute: Callable[[Array, Array], Array], operands: Sequence[Array]) -> Array:
        """Apply `compute`, a sum of products, to the unpacked operands."""
        if (dot := self.dot) is not None:
            kinds = zip(operands, self.packed_axes, (dot.data, dot.weights), strict=True)
            operands = [unpack_words(words, axis, kind) for words, axis, kind in kinds]
        return contract(compute, operands, numpy_dtype(element_type_of(self.result)))


def _result_type(op: DlOp, requested: Attribute | None) -> Attribute:
    """Return the element type of a contraction's result: the operands' type, or `requested`, which is allowed for integers."""
    a, b = (element_type_of(v) for v in op.operands)
    for t in (a, b):
        if not (is_float(t) or is_integer(t)):
            raise DTypeError(f"{op.name}: element type {t}; expected floats or integers, cast the operand")
    if requested is None and a == b:
        return a
    if requested is not None and is_integer(a) and is_integer(b) and is_integer(requested):
        return requested
    if requested is not None and a == b and requested == wide_float(a):
        return requested
    raise DTypeError(f"{op.name}: element types {a} and {b}, result type {requested}; cast one operand to the other's")


@irdl_op_definition
class MatmulOp(ProductSum):
    """`c[…, m, n] = Σₖ a[…, m, k] · b[…, k, n]`, as `numpy.matmul`.

    (C1) both operands have rank 1 or more; a rank-1 `a` is a row, a rank-1 `b` a column, and their axis is dropped from the
    result; (C2) the contracted sizes are equal; (C3) leading axes broadcast; (C4) element types are equal floats or integers;
    `result` selects another type of the sum, for integers or, as f32, for 16-bit floats; with `dot`, operands are i32 words of
    packed elements (`dl.view_as`), and `dot` names their dot product: i16, u8i8 or u8i7 with a sum of i32, bf16 or f16
    with a sum of f32. The weights of u8i7 are integers from -64 to 64. An empty contraction is 0.

    `min_lhs_bits` permits weight-only products to quantize the rows of `a` to integers of at least 8 or 16 bits; the
    reference does not.

        >>> build(MatmulOp, x, w)                  # f32[8, 4] · f32[4, 2] → f32[8, 2]
        >>> build(MatmulOp, x, w, result=i32)      # ui8[8, 4] · i8[4, 2] → i32[8, 2]
    """

    name = "dl.matmul"
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    min_lhs_bits = opt_prop_def(IntegerAttr)

    @property
    def packed_axes(self) -> tuple[int, int]:
        return -1, max(-2, -rank_of(self.rhs))

    def infer(self) -> Sequence[Tensor]:
        a, b = shape_of(self.lhs), shape_of(self.rhs)
        if not a or not b:
            raise ShapeError(f"dl.matmul: shapes {a} and {b}; expected rank 1 or more, multiply scalars with dl.mul")
        if is_known_different(a[-1], b[-2:][0]):
            raise ShapeError(f"dl.matmul: contracted sizes differ: lhs {a}, rhs {b}; transpose one operand")
        batch = broadcast_shapes("dl.matmul", a[:-2], b[:-2])
        return [tensor_type((*batch, *a[-2:-1], *b[-1:][len(b) == 1 :]), self.result_type())]

    def broadcast(self) -> Sequence[tuple[Sequence[Size], Sequence[Size]]]:
        batches = [shape_of(v)[:-2] for v in (self.lhs, self.rhs)]
        return [(batch, broadcast_shapes(self.name, *batches)) for batch in batches]

    def reference(self, *operands: Array) -> Array:
        return self.evaluate_products(np.matmul, operands)

    @memoize_by_signature
    def structure(self) -> Structure:
        a, b, c = map(shape_of, (self.lhs, self.rhs, self.result))
        has_rows, has_columns = len(a) > 1, len(b) > 1
        batch = c[: len(c) - has_rows - has_columns]

        def indices(*iterators: AffineExpr) -> Sequence[Sequence[AffineExpr]]:
            lead, (*free, k) = iterators[: len(batch)], iterators[len(batch) :]
            m, n = free[:has_rows], free[has_rows:]
            return (
                [*_aligned(lead, a[:-2], batch), *m, k],
                [*_aligned(lead, b[:-2], batch), k, *n],
                [*lead, *m, *n],
            )

        return iteration_space(c, a[-1:], (a, b, c), indices)


def _aligned(iterators: Sequence[AffineExpr], sizes: Sequence[Size], batch: Sequence[Size]) -> list[AffineExpr]:
    """Return the iterators by which axes of `sizes` read a broadcast `batch`: trailing axes aligned, broadcast axes at 0."""
    lead = len(batch) - len(sizes)
    return [AffineExpr.constant(0) if s == 1 != batch[lead + a] else iterators[lead + a] for a, s in enumerate(sizes)]


@irdl_op_definition
class DotGeneralOp(ProductSum):
    """Sum of products over paired axes; the result's axes are batch, then lhs free, then rhs free ones, each in order.

    (C1) paired axes of `lhs_batch` and `rhs_batch`, and of `lhs_contract` and `rhs_contract`, have equal sizes; (C2) no axis
    occurs twice; (C3) element types as in `dl.matmul`. An empty contraction is 0.
    """

    name = "dl.dot_general"
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    lhs_batch = prop_def(DenseArrayBase)
    rhs_batch = prop_def(DenseArrayBase)
    lhs_contract = prop_def(DenseArrayBase)
    rhs_contract = prop_def(DenseArrayBase)

    @property
    def packed_axes(self) -> tuple[int, int]:
        (_, _, a_sum), (_, _, b_sum) = self._axes()
        return a_sum[-1], b_sum[-1]

    def _axes(self) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
        """Return (batch, free, contracted) axes of lhs and of rhs."""

        def split(value: SSAValue, batch: Attribute, contracted: Attribute) -> tuple[tuple[int, ...], ...]:
            rank = len(shape_of(value))
            used_axes = normalized_axes("dl.dot_general", (*ints(batch), *ints(contracted)), rank)
            n = len(ints(batch))
            return used_axes[:n], tuple(a for a in range(rank) if a not in used_axes), used_axes[n:]

        return split(self.lhs, self.lhs_batch, self.lhs_contract), split(self.rhs, self.rhs_batch, self.rhs_contract)

    def infer(self) -> Sequence[Tensor]:
        a, b = shape_of(self.lhs), shape_of(self.rhs)
        (a_batch, a_free, a_sum), (b_batch, b_free, b_sum) = self._axes()
        for kind, left, right in (("batch", a_batch, b_batch), ("contracted", a_sum, b_sum)):
            if len(left) != len(right) or any(is_known_different(a[i], b[j]) for i, j in zip(left, right, strict=True)):
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

        return self.evaluate_products(compute, operands)

    @memoize_by_signature
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
