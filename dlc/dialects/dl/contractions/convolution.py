"""Convolution, and sliding windows, which pooling uses as well."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dlc.dialects.dl.base import Array, DlOp, Tensor, ints, memoize_by_signature, number, shape_of, tensor_type
from dlc.dialects.dl.contractions.contraction import ProductSum, iteration_space
from dlc.dialects.dl.interfaces import Structure
from dlc.errors import ShapeError
from dlc.ir import AffineExpr, DenseArrayBase, IntegerAttr, TensorType, irdl_op_definition, operand_def, prop_def
from dlc.shapes.dims import Size, is_known_different, is_known_less


def window_sizes(
    op: DlOp, spatial: Sequence[Size], kernel: Sequence[Size], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[Size, ...]:
    """Return the number of windows along each axis, without padding: `(s - (k - 1)·dilation - 1) // stride + 1`."""
    if not len(spatial) == len(kernel) == len(strides) == len(dilations) or min((*strides, *dilations), default=1) < 1:
        raise ShapeError(
            f"{op.name}: kernel {tuple(kernel)}, strides {tuple(strides)} and dilations {tuple(dilations)} "
            f"for {len(spatial)} spatial axes; each needs one positive entry per axis"
        )
    result: list[Size] = []
    for s, k, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True):
        extent = (k - 1) * dilation + 1
        if is_known_less(extent, 1) or is_known_less(s, extent):
            raise ShapeError(f"{op.name}: a window of {extent} does not fit in {s}; pad the operand (dl.pad)")
        result.append((s - extent) // stride + 1)
    return tuple(result)


def windows_of(x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Array:
    """Return channels-last `x` [N, *S, C] as a view [N, *S', C, *K]: the window at each output position."""
    extents = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, extents, tuple(range(1, x.ndim - 1)))
    steps = tuple(slice(None, None, s) for s in strides)
    taps = tuple(slice(None, None, d) for d in dilations)
    return view[(slice(None), *steps, slice(None), *taps)]


def convolve(x: Array, w: Array, strides: Sequence[int], dilations: Sequence[int], groups: int) -> Array:
    """Compute a channels-last convolution in the operands' dtype, with views and BLAS."""
    *kernel, depth, outputs = w.shape
    spatial = len(kernel)
    taps = windows_of(x, kernel, strides, dilations)
    n, *positions = taps.shape[: spatial + 1]
    if depth == 1 and outputs == groups:
        result = np.zeros((n, *positions, outputs), x.dtype)
        for tap in np.ndindex(*kernel):
            result += taps[(..., *tap)] * w[(*tap, 0)]
        return result
    rows = taps.reshape(n, *positions, groups, depth, *kernel)
    # [G, rows, (K, C/G)] · [G, (K, C/G), O/G]
    order = (spatial + 1, *range(spatial + 1), *range(spatial + 3, rows.ndim), spatial + 2)
    reduced = math.prod(kernel) * depth
    rows = rows.transpose(order).reshape(groups, n * math.prod(positions), reduced)
    columns = w.reshape(reduced, groups, outputs // groups).transpose(1, 0, 2)
    product = (rows @ columns).transpose(1, 0, 2)
    return product.reshape(n, *positions, outputs)


@irdl_op_definition
class ConvOp(ProductSum):
    """Convolution of channels-last `x` [N, *S, C] with `w` [*K, C/groups, O], without padding.

    `y[n, s, o] = Σ_{k, c} x[n, s·stride + k·dilation, g·C/groups + c] · w[k, c, o]` with `g = o // (O/groups)`.

    (C1) `strides` and `dilations` have a positive entry per spatial axis; (C2) `groups` divides C and O, and w has C/groups
    channels; (C3) the dilated window fits; (C4) element types as in `dl.matmul`. Padding is a `dl.pad` before it.

        >>> build(ConvOp, x, w, strides=(2, 2), dilations=(1, 1), groups=1)   # [1, 9, 9, 3], [3, 3, 3, 8] → [1, 4, 4, 8]
    """

    name = "dl.conv"
    x = operand_def(TensorType)
    w = operand_def(TensorType)
    strides = prop_def(DenseArrayBase)
    dilations = prop_def(DenseArrayBase)
    groups = prop_def(IntegerAttr)

    @property
    def packed_axes(self) -> tuple[int, int]:
        return -1, -2

    def infer(self) -> Sequence[Tensor]:
        x, w, groups = shape_of(self.x), shape_of(self.w), number(self.groups)
        if len(x) < 3 or len(w) != len(x):
            raise ShapeError(f"dl.conv: x {x} must be [N, *spatial, C] and w {w} [*kernel, C/groups, O], of equal rank")
        if groups < 1 or is_known_different(x[-1], w[-2] * groups) or is_known_different(w[-1] % groups, 0):
            raise ShapeError(
                f"dl.conv: channels of x {x} and w {w} do not fit {groups} groups; w must be [*kernel, C/groups, O]"
            )
        spatial = window_sizes(self, x[1:-1], w[:-2], ints(self.strides), ints(self.dilations))
        return [tensor_type((x[0], *spatial, w[-1]), self.result_type())]

    def reference(self, *operands: Array) -> Array:
        strides, dilations, groups = ints(self.strides), ints(self.dilations), number(self.groups)
        return self.evaluate_products(lambda x, w: convolve(x, w, strides, dilations, groups), operands)

    @memoize_by_signature
    def structure(self) -> Structure:
        x, w, y = map(shape_of, (self.x, self.w, self.result))
        groups, spatial = number(self.groups), len(x) - 2
        depth, outputs = w[-2], w[-1] // groups
        # Unit axes inside a group are dropped: depthwise convolution iterates over (n, *s, c, *k) only.
        group = (groups,) if groups > 1 else ()
        channel = (depth,) if depth != 1 or groups == 1 else ()
        output = (outputs,) if outputs != 1 or groups == 1 else ()
        views = ((*x[:-1], *group, *channel), (*w[:-2], *channel, *group, *output), (*y[:-1], *group, *output))

        def indices(*iterators: AffineExpr) -> Sequence[Sequence[AffineExpr]]:
            n, s, kernel_iterators = iterators[0], iterators[1 : spatial + 1], list(iterators[spatial + 1 :])
            g, o = kernel_iterators[: len(group)], kernel_iterators[len(group) : len(group) + len(output)]
            k, c = (
                kernel_iterators[len(group) + len(output) :][:spatial],
                kernel_iterators[len(kernel_iterators) - len(channel) :] if channel else [],
            )
            positions = [
                a * stride + tap * dilation
                for a, tap, stride, dilation in zip(s, k, ints(self.strides), ints(self.dilations), strict=True)
            ]
            return [n, *positions, *g, *c], [*k, *c, *g, *o], [n, *s, *g, *o]

        return iteration_space(views[2], (*w[:-2], *channel), views, indices)
