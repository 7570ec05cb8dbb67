"""Contractions, convolutions and reductions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp, element_type_of, number, shape_of
from dlc.dialects.dl.dtypes import is_bool
from dlc.dialects.dl.scalar import limits
from dlc.ir import Attribute, Operation, SSAValue, i32
from dlc.stablehlo.body_numbering import BodyNumbering, binary_op, returned
from dlc.stablehlo.data_movement import pad_interior, pad_sides
from dlc.stablehlo.generic_reduction import combine_with_init, reduce_by_halving
from dlc.stablehlo.node import Converter, StableHloNode, parse_fields, sizes_of
from dlc.stablehlo.syntax import Dense, Region

_REDUCTIONS: dict[str, type[DlOp]] = {
    "add": dl.ReduceSumOp, "multiply": dl.ReduceProdOp, "maximum": dl.ReduceMaxOp, "minimum": dl.ReduceMinOp,
}  # fmt: skip
_REDUCTIONS_OF_BOOLS: dict[str, type[DlOp]] = {"and": dl.ReduceAllOp, "or": dl.ReduceAnyOp}


def dot_general(node: StableHloNode) -> SSAValue:
    batch: Sequence[Any] = node.get("batching_dims", default=[[], []])
    contracted: Sequence[Any] = node.get("contracting_dims", default=[[], []])
    if "dot_dimension_numbers" in node.op.attributes:
        fields = parse_fields(node.get("dot_dimension_numbers"))
        batch, contracted = (
            [fields.get(f"{side}_{kind}_dimensions", []) for side in ("lhs", "rhs")] for kind in ("batching", "contracting")
        )
    # Booleans are added by `or`: an element is true if the sum of the integer products is not 0.
    element = i32 if is_bool(node.element) else node.element
    lhs, rhs = (_cast(node, v, element) for v in node.operands)
    axes = {"lhs_batch": batch[0], "rhs_batch": batch[1], "lhs_contract": contracted[0], "rhs_contract": contracted[1]}
    product = node.build(dl.DotGeneralOp, lhs, rhs, **{name: tuple(a) for name, a in axes.items()})
    return node.build(dl.NotEqualOp, product, node.scalar(0, product)) if is_bool(node.element) else product


def _cast(node: StableHloNode, value: SSAValue, element: Attribute) -> SSAValue:
    return value if element_type_of(value) == element else node.build(dl.CastOp, value, to=element)


def _axes(text: str) -> list[list[str]]:
    """Return the axes of the input, the filter and the result of a convolution: a letter, or the index of a spatial axis."""
    return [re.findall(r"\w+", part) for part in re.findall(r"\[([^\]]*)\]", text)]


def convolution(node: StableHloNode) -> SSAValue:
    rank = len(sizes_of(node[0])) - 2
    window: Any = node.op.attributes.get("window", {})
    return convolve(node, window.get("pad") or padding_pairs(node, node.get("padding", default=[[0, 0]] * rank), rank))


def convolve(node: StableHloNode, padding: Sequence[Sequence[int]]) -> SSAValue:
    """Convolve the first two operands, with padding before and after each spatial axis."""
    dimension_numbers: Any = node.get("dim_numbers", "dimension_numbers")
    x_axes, w_axes, y_axes = (
        _axes(dimension_numbers)
        if isinstance(dimension_numbers, str)
        else [[str(a) for a in axes_of_operand] for axes_of_operand in dimension_numbers]
    )
    rank = len(x_axes) - 2
    if 0 in node.shape:
        # The window is larger than the operand.
        return node.broadcast(node.scalar(0, _cast(node, node[0], node.element)), node.shape)
    window: Any = node.op.attributes.get("window", {})

    def per_axis(short: str, long: str, default: int) -> list[int]:
        return list(window.get(short) or node.get(long, default=[default] * rank))

    strides, dilations = per_axis("stride", "window_strides", 1), per_axis("rhs_dilate", "rhs_dilation", 1)
    base_dilations, groups = per_axis("lhs_dilate", "lhs_dilation", 1), node.get("feature_group_count", default=1)
    reversed_axes = window.get("reverse") or node.get("window_reversal", default=[False] * rank)
    spatial = [str(k) for k in range(rank)]
    x = node.transpose(_cast(node, node[0], node.element), [x_axes.index(a) for a in ("b", *spatial, "f")])
    w = node.transpose(_cast(node, node[1], node.element), [w_axes.index(a) for a in (*spatial, "i", "o")])
    if (batch_groups := node.get("batch_group_count", default=1)) != 1:
        # Convert batch groups to feature groups.
        n, *spatial_sizes, c = sizes_of(x)
        x = node.transpose(
            node.reshape(x, (batch_groups, n // batch_groups, *spatial_sizes, c)), [*range(1, rank + 2), 0, rank + 2]
        )
        x, groups = node.reshape(x, (n // batch_groups, *spatial_sizes, batch_groups * c)), groups * batch_groups
    zero = node.scalar(0, x)
    for k in range(rank):
        x = pad_interior(node, x, zero, k + 1, base_dilations[k] - 1)
    x = pad_sides(node, x, zero, *((0, *(pair[side] for pair in padding), 0) for side in range(2)))
    if any(reversed_axes):
        w = node.build(dl.ReverseOp, w, axes=tuple(k for k in range(rank) if reversed_axes[k]))
    y = node.build(dl.ConvOp, x, w, strides=tuple(strides), dilations=tuple(dilations), groups=groups)
    return node.transpose(y, [["b", *spatial, "f"].index(a) for a in y_axes])


def padding_pairs(node: StableHloNode, padding: Any, rank: int) -> list[list[int]]:
    """Return the padding before and after each axis, which the generic form stores as a constant."""
    if not isinstance(padding, Dense):
        return padding
    padding_sizes = [int(n) for n in re.findall(r"-?\d+", padding.text)]
    padding_sizes = padding_sizes * (2 * rank) if len(padding_sizes) == 1 else padding_sizes
    if len(padding_sizes) != 2 * rank:
        raise node.unsupported(f"padding {padding.text} does not match {rank} axes")
    return [padding_sizes[2 * k : 2 * k + 2] for k in range(rank)]


def reduce(node: StableHloNode) -> Sequence[SSAValue]:
    axes, region, count = tuple(node.integers("dimensions")), node.op.regions[0], len(node.operands) // 2
    arrays, init_values = node.operands[:count], node.operands[count:]
    shape = [n for a, n in enumerate(sizes_of(arrays[0])) if a not in axes]
    if 0 in [n for a, n in enumerate(shape_of(arrays[0])) if a in axes and isinstance(n, int)]:
        return [node.broadcast(value, shape) for value in init_values]
    if arg_extremum := _arg_extremum(node, region, axes):
        return arg_extremum
    kind = binary_op(region)
    reductions = _REDUCTIONS_OF_BOOLS if is_bool(element_type_of(arrays[0])) else _REDUCTIONS
    if count == 1 and axes and kind in reductions:
        reduced: Sequence[SSAValue] = [node.build(reductions[kind], arrays[0], axes=axes)]
    else:
        reduced = reduce_by_halving(node, arrays, axes)
    return reduced if count == 1 and is_neutral(init_values[0], kind) else combine_with_init(node, init_values, reduced)


def neutral_number(kind: str, element: Attribute) -> int | float | bool | None:
    """Return the neutral number of an op; None for an unknown op."""
    low, high = (False, True) if is_bool(element) else limits(element)
    all_bits = -1 if low < 0 else high
    return {"add": 0, "multiply": 1, "maximum": low, "minimum": high, "and": all_bits, "or": 0, "xor": 0}.get(kind)


def is_neutral(value: SSAValue, kind: str) -> bool:
    """Return whether a value is a constant that is neutral for an op; False for an unknown op."""
    number = constant_number(value)
    return number is not None and number == neutral_number(kind, element_type_of(value))


def constant_number(value: SSAValue) -> int | float | bool | None:
    """Return the number that a constant holds in all elements; None for other values."""
    owner = _source(value)
    elements = owner.evaluate()[0].reshape(-1).tolist() if isinstance(owner, dl.ConstantOp) else []
    return elements[0] if len(elements) == 1 else None


def _arg_extremum(node: StableHloNode, region: Region, axes: Sequence[int]) -> Sequence[SSAValue]:
    """Convert a reduction of values and their indices to a maximum or minimum and its first index; NaN is the extremum.

    Returns an empty list for another body, other initial values, or other indices than 0, 1, … along the axis.
    """
    if len(node.operands) != 4 or len(axes) != 1:
        return []
    x, indices, init_value, init_index = node.operands
    for direction, kind, extremum, arg_extremum in (
        ("GT", "maximum", dl.ReduceMaxOp, dl.ArgmaxOp),
        ("LT", "minimum", dl.ReduceMinOp, dl.ArgminOp),
    ):
        if (
            _is_arg_extremum_body(region, direction)
            and is_neutral(init_value, kind)
            and constant_number(init_index) == 0
            and _is_iota_along(indices, axes[0])
        ):
            index = node.build(arg_extremum, x, axis=axes[0])
            return [node.build(extremum, x, axes=tuple(axes)), node.build(dl.CastOp, index, to=element_type_of(indices))]
    return []


def _is_arg_extremum_body(region: Region, direction: str) -> bool:
    """Return whether a body takes (x, i) or (y, j): x if it compares in this direction or is NaN; of equal ones the first."""
    numbering = BodyNumbering()
    names = numbering.body(region)
    x, i, y, j = map(numbering.argument, range(4))
    is_first = numbering.number("stablehlo.or", numbering.compare(direction, x, y), numbering.compare("NE", x, x))
    is_before = numbering.number("stablehlo.and", numbering.compare("EQ", x, y), numbering.compare("LT", i, j))
    index = numbering.select(numbering.number("stablehlo.or", is_first, is_before), i, j)
    return [names.get(name) for name in returned(region)] == [numbering.select(is_first, x, y), index]


def _is_iota_along(indices: SSAValue, axis: int) -> bool:
    """Return whether a value holds 0, 1, … along an axis, repeated along the other axes."""
    shape, owner = shape_of(indices), indices.owner
    if isinstance(owner, dl.ConstantOp):
        elements: Array = np.moveaxis(owner.evaluate()[0], axis, -1)
        return bool((elements[..., :1] == 0).all() and (np.diff(elements) == 1).all())
    value, iota = owner.operands[0] if isinstance(owner, dl.BroadcastToOp) else indices, _source(indices)
    return (
        isinstance(iota, dl.IotaOp)
        and (number(iota.start), number(iota.step)) == (0, 1)
        and shape_of(value) == tuple(size if a == axis else 1 for a, size in enumerate(shape))
        and shape_of(iota.results[0]) == (shape[axis],)
    )


def _source(value: SSAValue) -> Operation | None:
    """Return the op that produced a value before reshapes and broadcasts."""
    owner = value.owner
    while isinstance(owner, dl.ReshapeOp | dl.BroadcastToOp):
        owner = owner.operands[0].owner
    return owner if isinstance(owner, Operation) else None


OPERATORS: dict[str, Converter] = {
    "stablehlo.dot_general": dot_general,
    "stablehlo.convolution": convolution,
    "stablehlo.reduce": reduce,
}
