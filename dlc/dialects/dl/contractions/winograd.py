"""Winograd convolution: image tiles are transformed, multiplied and transformed back.

A 3×3 convolution with stride 1 computes m×m results at a time, with t = m + 2:

    V[i, j, p, c] = Σₖₗ Bᵀ[i, k] · Bᵀ[j, l] · x[tile p at (k, l), c]        t×t values per tile and channel
    M[i, j, p, o] = Σ_c V[i, j, p, c] · U[i, j, c, o]                       one matrix product per (i, j)
    y[tile p at (a, b), o] = Σᵢⱼ Aᵀ[a, i] · Aᵀ[b, j] · M[i, j, p, o]

with U = G·w·Gᵀ. It takes t² multiplications instead of 9·m². After Lavin and Gray, Fast Algorithms for Convolutional Neural
Networks (2015). The gradient with respect to w is the transpose: tiles of ȳ transformed by A, t×t values each, times V, summed
over tiles, then transformed by Gᵀ. A weight is transformed as a single 3×3 tile, whose channels are all pairs of input and
output channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import (
    Array,
    PropertyValue,
    Tensor,
    compatible,
    element_type_of,
    memoize_by_signature,
    number,
    rank_of,
    shape_of,
    tensor_type,
)
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.contraction import contract, iteration_space
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.dtypes import dense_attribute, is_float, is_integer, numpy_dtype
from dlc.dialects.dl.interfaces import Body, Contraction, StagedComposite, Structure
from dlc.dialects.dl.movement.shaping import ReshapeOp, SlidingWindowsOp
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    AffineExpr,
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    SSAValue,
    TensorType,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from dlc.shapes.dims import is_known_different


@irdl_op_definition
class ModeProductOp(Contraction):
    """The tensor-matrix mode product: `x` times a matrix along one axis, `y[…, r, …] = Σₖ x[…, k, …] · matrix[r, k]`.

    k is axis `axis` of `x`, r is axis `to` of the result; the other axes keep their order. (C1) `matrix` has rank 2,
    and its column count is the size of `axis`; (C2) both axes are in range; (C3) element types are equal floats or integers;
    sums of integers wrap; (C4) `matrix_values`, if given, are the constant values of `matrix`: the generated code
    then skips products with zeros and sums in the order with the fewest operations.
    """

    name = "dl.mode_product"
    x = operand_def(TensorType)
    matrix = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    to = prop_def(IntegerAttr)
    matrix_values = opt_prop_def(DenseIntOrFPElementsAttr)
    result = result_def(TensorType)

    @property
    def constant_matrix(self) -> DenseIntOrFPElementsAttr | None:
        return self.matrix_values

    @property
    def axes(self) -> tuple[int, int]:
        """The summed axis of `x`, and the axis of the result that replaces it."""
        return number(self.axis), number(self.to)

    def infer(self) -> Sequence[Tensor]:
        shape, matrix, (axis, to) = shape_of(self.x), shape_of(self.matrix), self.axes
        if not (0 <= axis < len(shape) and 0 <= to < len(shape)):
            raise ShapeError(f"dl.mode_product: axis {axis} to {to} of {shape} (C2)")
        if len(matrix) != 2 or is_known_different(matrix[1], shape[axis]):
            raise ShapeError(f"dl.mode_product: matrix {matrix} for axis {axis} of {shape} (C1)")
        element = element_type_of(self.x)
        if element != element_type_of(self.matrix) or not (is_float(element) or is_integer(element)):
            raise DTypeError(f"dl.mode_product: element types {element} and {element_type_of(self.matrix)} (C3)")
        _require_matrix_values(self)
        other_sizes = [s for a, s in enumerate(shape) if a != axis]
        return [tensor_type((*other_sizes[:to], matrix[0], *other_sizes[to:]), element)]

    def reference(self, *operands: Array) -> Array:
        axis, to = self.axes

        def compute(x: Array, matrix: Array) -> Array:
            # np.tensordot scales by a one-element matrix, where 0 times infinity is 0.
            leading = np.moveaxis(x, axis, 0)
            rows = matrix @ leading.reshape(len(leading), prod(leading.shape[1:]))
            return np.moveaxis(rows.reshape(len(matrix), *leading.shape[1:]), 0, to)

        return contract(compute, operands, numpy_dtype(element_type_of(self.result)))

    def accumulate(self, body: Body, total: SSAValue, *elements: SSAValue) -> SSAValue:
        a, b = (scalar.convert(body, x, element_type_of(self.x), total.type) for x in elements)
        return scalar.add(body, scalar.multiply(body, a, b), total)

    @memoize_by_signature
    def structure(self) -> Structure:
        x, matrix, y = map(shape_of, (self.x, self.matrix, self.result))
        axis, to = self.axes

        def indices(*iterators: AffineExpr) -> Sequence[Sequence[AffineExpr]]:
            *result, k = iterators
            other_indices = [*result[:to], *result[to + 1 :]]
            return [*other_indices[:axis], k, *other_indices[axis:]], [result[to], k], result

        return iteration_space(y, matrix[1:], (x, matrix, y), indices)


@irdl_op_definition
class WinogradInputOp(StagedComposite):
    """Extracts and transforms the tiles of an image for Winograd convolution.

    `v[i, j, n, p, q, c] = Σₖₗ matrix[i, k] · matrix[j, l] · x[n, p·step + k, q·step + l, c]`. (C1) `x` has rank 4, `matrix`
    rank 2, both have the same float or integer type; (C2) tiles whose sides are the number of columns of `matrix`, at distances
    of `step`, cover the image's height and width exactly; (C3) `matrix_values` as in `dl.mode_product`.
    """

    name = "dl.winograd_input"
    x = operand_def(TensorType)
    matrix = operand_def(TensorType)
    step = prop_def(IntegerAttr)
    matrix_values = opt_prop_def(DenseIntOrFPElementsAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        _require_transform_operands(self)
        shape, (rows, t), step = shape_of(self.x), shape_of(self.matrix), number(self.step)
        if len(shape) != 4:
            raise ShapeError(f"{self.name}: an image {shape} (C1)")
        n, height, width, c = shape
        if step < 1 or any(is_known_different((size - t) // step * step, size - t) for size in (height, width)):
            raise ShapeError(f"{self.name}: tiles of {t} every {step} do not cover {(height, width)} (C2)")
        tiles = ((size - t) // step + 1 for size in (height, width))
        return [tensor_type((rows, rows, n, *tiles, c), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        def compute(x: Array, matrix: Array) -> Array:
            t, step = matrix.shape[1], number(self.step)
            windows = np.lib.stride_tricks.sliding_window_view(x, (t, t), (1, 2))[:, ::step, ::step]
            return np.einsum("ik,jl,npqckl->ijnpqc", matrix, matrix, windows, optimize=True)

        return contract(compute, operands, numpy_dtype(element_type_of(self.result)))

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build, (x, matrix), step = DlBuilder(self), operands, number(self.step)
        t = shape_of(matrix)[1]
        tiles = build(SlidingWindowsOp, x, axes=(1, 2), sizes=(t, t), strides=(step, step))
        rows = build(ModeProductOp, tiles, matrix, axis=0, to=0, matrix_values=self.matrix_values)
        return [build(ModeProductOp, rows, matrix, axis=1, to=1, matrix_values=self.matrix_values)]


@irdl_op_definition
class WinogradOutputOp(StagedComposite):
    """Transforms Winograd tiles back and assembles the image.

    `y[n, p·m + a, q·m + b, c] = Σᵢⱼ matrix[a, i] · matrix[b, j] · v[i, j, n, p, q, c]`; m is the number of rows of `matrix`.
    (C1) `v` has rank 6, and its first two axes have the size of the matrix's rows; both have the same float or integer type;
    (C2) `matrix_values` as in `dl.mode_product`.
    """

    name = "dl.winograd_output"
    x = operand_def(TensorType)
    matrix = operand_def(TensorType)
    matrix_values = opt_prop_def(DenseIntOrFPElementsAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        shape, (m, t) = shape_of(self.x), shape_of(self.matrix)
        _require_transform_operands(self)
        if len(shape) != 6 or is_known_different(shape[0], t) or is_known_different(shape[1], t):
            raise ShapeError(f"{self.name}: tiles {shape} and a matrix {(m, t)} (C1)")
        _, _, n, p, q, c = shape
        return [tensor_type((n, p * m, q * m, c), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        def compute(v: Array, matrix: Array) -> Array:
            tiles = np.einsum("ai,bj,ijnpqc->npaqbc", matrix, matrix, v, optimize=True)
            n, p, a, q, b, c = tiles.shape
            return tiles.reshape(n, p * a, q * b, c)

        return contract(compute, operands, numpy_dtype(element_type_of(self.result)))

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build, (v, matrix) = DlBuilder(self), operands
        rows = build(ModeProductOp, v, matrix, axis=0, to=3, matrix_values=self.matrix_values)  # j, n, p, a, q, c
        tiles = build(ModeProductOp, rows, matrix, axis=0, to=4, matrix_values=self.matrix_values)  # n, p, a, q, b, c
        return [build(ReshapeOp, tiles, shape=shape_of(self.result))]


def with_constant_matrix(
    build: DlBuilder, kind: type[WinogradInputOp | WinogradOutputOp], x: SSAValue, matrix: Array, **properties: PropertyValue
) -> SSAValue:
    """Insert an op that transforms by a constant matrix, whose values are also stored in the op."""
    matrix_values = dense_attribute(
        np.asarray(matrix, numpy_dtype(element_type_of(x))), tensor_type(matrix.shape, element_type_of(x))
    )
    return build(kind, x, build(ConstantOp, value=matrix_values), matrix_values=matrix_values, **properties)


def _require_transform_operands(op: WinogradInputOp | WinogradOutputOp) -> None:
    types = [element_type_of(v) for v in op.operands]
    if not (is_float(types[0]) or is_integer(types[0])) or types[0] != types[1] or rank_of(op.matrix) != 2:
        raise DTypeError(
            f"{op.name}: element types {types[0]} and {types[1]}, matrix of rank {rank_of(op.matrix)}; expected one float or "
            "integer type and rank 2 (C1)"
        )
    _require_matrix_values(op)


def _require_matrix_values(op: ModeProductOp | WinogradInputOp | WinogradOutputOp) -> None:
    if op.matrix_values is None:
        return
    has_same_element_type, shape = element_type_of(op.matrix_values.type) == element_type_of(op.matrix), shape_of(op.matrix)
    if not has_same_element_type or not compatible(shape_of(op.matrix_values.type), shape):
        raise ShapeError(
            f"{op.name}: matrix_values of type {op.matrix_values.type}; expected the matrix's type {op.matrix.type}"
        )
