"""Convolution by Winograd's algorithm: tiles of an image, transformed, multiplied and transformed back.

A 3×3 convolution of stride 1 as m×m results at a time, with t = m + 2:

    V[i, j, p, c] = Σₖₗ Bᵀ[i, k] · Bᵀ[j, l] · x[tile p at (k, l), c]        t×t numbers per tile and channel
    M[i, j, p, o] = Σ_c V[i, j, p, c] · U[i, j, c, o]                       one product of matrices per (i, j)
    y[tile p at (a, b), o] = Σᵢⱼ Aᵀ[a, i] · Aᵀ[b, j] · M[i, j, p, o]

with U = G·w·Gᵀ. That is t² multiplications where 9·m² were. After Lavin and Gray, Fast Algorithms for Convolutional Neural
Networks (2015). The gradient by w is the transpose of this: tiles of ȳ with A, t×t numbers each, times V, summed over tiles,
and Gᵀ of that. Windows of a weight are one tile of 3×3, whose channels are those of both sides.
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
    element_type_of,
    number,
    of_equal_ops,
    rank_of,
    shape_of,
    tensor_type,
)
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.contraction import compatible, contract, differ, iteration_space
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.dtypes import dense_attribute, is_float, is_integer, numpy_dtype
from dlc.dialects.dl.interfaces import Body, Contraction, Staged, Structure
from dlc.dialects.dl.movement.shaping import ReshapeOp, WindowsOp
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


@irdl_op_definition
class ModeProductOp(Contraction):
    """`x` times a matrix along one axis, and that axis in another place: `y[…, r, …] = Σₖ x[…, k, …] · matrix[r, k]`.

    k is axis `axis` of `x`, r is axis `to` of the result; the other axes keep their order. (C1) `matrix` has rank 2 and as
    many columns as `x` has elements along `axis`; (C2) both places are in range; (C3) element types are equal
    floats or integers; sums of integers wrap; (C4) `numbers`, where they are given, are what is in `matrix`: nothing is
    multiplied by zeros among them then, and sums are made in the order that takes fewest operations.
    """

    name = "dl.mode_product"
    x = operand_def(TensorType)
    matrix = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    to = prop_def(IntegerAttr)
    numbers = opt_prop_def(DenseIntOrFPElementsAttr)
    result = result_def(TensorType)

    @property
    def known_factor(self) -> DenseIntOrFPElementsAttr | None:
        return self.numbers

    @property
    def places(self) -> tuple[int, int]:
        return number(self.axis), number(self.to)

    def infer(self) -> Sequence[Tensor]:
        shape, matrix, (axis, to) = shape_of(self.x), shape_of(self.matrix), self.places
        if not (0 <= axis < len(shape) and 0 <= to < len(shape)):
            raise ShapeError(f"dl.mode_product: axis {axis} to {to} of {shape} (C2)")
        if len(matrix) != 2 or differ(matrix[1], shape[axis]):
            raise ShapeError(f"dl.mode_product: matrix {matrix} for axis {axis} of {shape} (C1)")
        element = element_type_of(self.x)
        if element != element_type_of(self.matrix) or not (is_float(element) or is_integer(element)):
            raise DTypeError(f"dl.mode_product: element types {element} and {element_type_of(self.matrix)} (C3)")
        _require_known(self)
        rest = [s for a, s in enumerate(shape) if a != axis]
        return [tensor_type((*rest[:to], matrix[0], *rest[to:]), element)]

    def reference(self, *operands: Array) -> Array:
        axis, to = self.places

        def compute(x: Array, matrix: Array) -> Array:
            # Not np.tensordot, which scales by a matrix of one element: 0 times infinity is 0 there.
            moved = np.moveaxis(x, axis, 0)
            rows = matrix @ moved.reshape(len(moved), prod(moved.shape[1:]))
            return np.moveaxis(rows.reshape(len(matrix), *moved.shape[1:]), 0, to)

        return contract(compute, operands, numpy_dtype(element_type_of(self.result)))

    def added(self, body: Body, total: SSAValue, *elements: SSAValue) -> SSAValue:
        a, b = (scalar.convert(body, x, element_type_of(self.x), total.type) for x in elements)
        return scalar.add(body, scalar.multiply(body, a, b), total)

    @of_equal_ops
    def structure(self) -> Structure:
        x, matrix, y = map(shape_of, (self.x, self.matrix, self.result))
        axis, to = self.places

        def indices(*iterators: AffineExpr) -> Sequence[Sequence[AffineExpr]]:
            *result, k = iterators
            rest = [*result[:to], *result[to + 1 :]]
            return [*rest[:axis], k, *rest[axis:]], [result[to], k], result

        return iteration_space(y, matrix[1:], (x, matrix, y), indices)


@irdl_op_definition
class WinogradInputOp(Staged):
    """The transformed tiles of an image.

    `v[i, j, n, p, q, c] = Σₖₗ matrix[i, k] · matrix[j, l] · x[n, p·step + k, q·step + l, c]`. (C1) `x` has
    rank 4, `matrix` rank 2, both are of one type of floats or integers; (C2) tiles of as many numbers along each axis as the
    matrix has columns, `step` apart, cover the image's height and width exactly; (C3) `numbers` as in `dl.mode_product`.
    """

    name = "dl.winograd_input"
    x = operand_def(TensorType)
    matrix = operand_def(TensorType)
    step = prop_def(IntegerAttr)
    numbers = opt_prop_def(DenseIntOrFPElementsAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        _require_numbers(self)
        shape, (rows, t), step = shape_of(self.x), shape_of(self.matrix), number(self.step)
        if len(shape) != 4:
            raise ShapeError(f"{self.name}: an image {shape} (C1)")
        n, height, width, c = shape
        if step < 1 or any(differ((size - t) // step * step, size - t) for size in (height, width)):
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
        b, (x, matrix), step = Build(self), operands, number(self.step)
        t = shape_of(matrix)[1]
        tiles = b(WindowsOp, x, axes=(1, 2), sizes=(t, t), strides=(step, step))
        rows = b(ModeProductOp, tiles, matrix, axis=0, to=0, numbers=self.numbers)
        return [b(ModeProductOp, rows, matrix, axis=1, to=1, numbers=self.numbers)]


@irdl_op_definition
class WinogradOutputOp(Staged):
    """The image that transformed tiles make up.

    `y[n, p·m + a, q·m + b, c] = Σᵢⱼ matrix[a, i] · matrix[b, j] · v[i, j, n, p, q, c]`; m is the number of rows of
    `matrix`. (C1) `v` has rank 6, and its first two axes the size of the matrix's rows; both are of one type of floats or
    integers; (C2) `numbers` as in `dl.mode_product`.
    """

    name = "dl.winograd_output"
    x = operand_def(TensorType)
    matrix = operand_def(TensorType)
    numbers = opt_prop_def(DenseIntOrFPElementsAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        shape, (m, t) = shape_of(self.x), shape_of(self.matrix)
        _require_numbers(self)
        if len(shape) != 6 or differ(shape[0], t) or differ(shape[1], t):
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
        b, (v, matrix) = Build(self), operands
        rows = b(ModeProductOp, v, matrix, axis=0, to=3, numbers=self.numbers)  # j, n, p, a, q, c
        tiles = b(ModeProductOp, rows, matrix, axis=0, to=4, numbers=self.numbers)  # n, p, a, q, b, c
        return [b(ReshapeOp, tiles, shape=shape_of(self.result))]


def of_known(
    b: Build, kind: type[WinogradInputOp | WinogradOutputOp], x: SSAValue, matrix: Array, **properties: PropertyValue
) -> SSAValue:
    """An op that transforms by a matrix of known numbers."""
    numbers = dense_attribute(
        np.asarray(matrix, numpy_dtype(element_type_of(x))), tensor_type(matrix.shape, element_type_of(x))
    )
    return b(kind, x, b(ConstantOp, value=numbers), numbers=numbers, **properties)


def _require_numbers(op: WinogradInputOp | WinogradOutputOp) -> None:
    types = [element_type_of(v) for v in op.operands]
    if not (is_float(types[0]) or is_integer(types[0])) or types[0] != types[1] or rank_of(op.matrix) != 2:
        raise DTypeError(
            f"{op.name}: element types {types[0]} and {types[1]}; one type of numbers and a matrix are wanted (C1)"
        )
    _require_known(op)


def _require_known(op: ModeProductOp | WinogradInputOp | WinogradOutputOp) -> None:
    if op.numbers is None:
        return
    like, shape = element_type_of(op.numbers.type) == element_type_of(op.matrix), shape_of(op.matrix)
    if not like or not compatible(shape_of(op.numbers.type), shape):
        raise ShapeError(f"{op.name}: numbers {op.numbers.type} of a matrix {op.matrix.type}; they are what is in it")
