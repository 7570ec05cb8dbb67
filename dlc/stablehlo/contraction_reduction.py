"""Contractions, convolutions and reductions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of
from dlc.dialects.dl.dtypes import is_bool
from dlc.dialects.dl.scalar import limits
from dlc.ir import Operation, SSAValue
from dlc.stablehlo.data_movement import pad_interior, pad_sides
from dlc.stablehlo.generic_reduction import reduce_by_halving
from dlc.stablehlo.node import Converter, StableHloNode, fields_of, sizes_of
from dlc.stablehlo.syntax import Dense, Region

_REDUCTIONS: dict[str, type[DlOp]] = {
    "add": dl.ReduceSumOp, "multiply": dl.ReduceProdOp, "maximum": dl.ReduceMaxOp, "minimum": dl.ReduceMinOp,
    "and": dl.ReduceAllOp, "or": dl.ReduceAnyOp,
}  # fmt: skip
_COMBINE: dict[str, type[DlOp]] = {
    "add": dl.AddOp, "multiply": dl.MulOp, "maximum": dl.MaximumOp, "minimum": dl.MinimumOp, "and": dl.AndOp, "or": dl.OrOp,
}  # fmt: skip


def dot_general(node: StableHloNode) -> SSAValue:
    batch: Sequence[Any] = node.get("batching_dims", default=[[], []])
    contracted: Sequence[Any] = node.get("contracting_dims", default=[[], []])
    if "dot_dimension_numbers" in node.op.attributes:
        fields = fields_of(node.get("dot_dimension_numbers"))
        batch, contracted = (
            [fields.get(f"{side}_{kind}_dimensions", []) for side in ("lhs", "rhs")] for kind in ("batching", "contracting")
        )
    lhs, rhs = (_cast_to_result(node, v) for v in node.operands)
    axes = {"lhs_batch": batch[0], "rhs_batch": batch[1], "lhs_contract": contracted[0], "rhs_contract": contracted[1]}
    return node.b(dl.DotGeneralOp, lhs, rhs, **{name: tuple(a) for name, a in axes.items()})


def _cast_to_result(node: StableHloNode, value: SSAValue) -> SSAValue:
    """Cast an operand to the element type of the result."""
    return value if element_type_of(value) == node.element else node.b(dl.CastOp, value, to=node.element)


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
    window: Any = node.op.attributes.get("window", {})

    def per_axis(short: str, long: str, default: int) -> list[int]:
        return list(window.get(short) or node.get(long, default=[default] * rank))

    strides, dilations = per_axis("stride", "window_strides", 1), per_axis("rhs_dilate", "rhs_dilation", 1)
    base_dilations, groups = per_axis("lhs_dilate", "lhs_dilation", 1), node.get("feature_group_count", default=1)
    reversed_axes = window.get("reverse") or node.get("window_reversal", default=[False] * rank)
    spatial = [str(k) for k in range(rank)]
    x = node.transpose(_cast_to_result(node, node[0]), [x_axes.index(a) for a in ("b", *spatial, "f")])
    w = node.transpose(_cast_to_result(node, node[1]), [w_axes.index(a) for a in (*spatial, "i", "o")])
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
        w = node.b(dl.ReverseOp, w, axes=tuple(k for k in range(rank) if reversed_axes[k]))
    y = node.b(dl.ConvOp, x, w, strides=tuple(strides), dilations=tuple(dilations), groups=groups)
    return node.transpose(y, [["b", *spatial, "f"].index(a) for a in y_axes])


def padding_pairs(node: StableHloNode, padding: Any, rank: int) -> list[list[int]]:
    """Return the padding before and after each axis, which the generic form stores as a constant."""
    if not isinstance(padding, Dense):
        return padding
    amounts = [int(n) for n in re.findall(r"-?\d+", padding.text)]
    amounts = amounts * (2 * rank) if len(amounts) == 1 else amounts
    if len(amounts) != 2 * rank:
        raise node.unsupported(f"padding {padding.text} does not match {rank} axes")
    return [amounts[2 * k : 2 * k + 2] for k in range(rank)]


def reduction_kind(node: StableHloNode, region: Region | None) -> str:
    """Return the reduction op, if it is the only op of the region and dlc supports it; else ""."""
    name = str(node.op.attributes.get("applies", "")) or (region.ops[0].name if region and len(region.ops) == 2 else "")
    kind = name.removeprefix("stablehlo.")
    return kind if kind in _REDUCTIONS else ""


def reduce(node: StableHloNode) -> SSAValue | Sequence[SSAValue]:
    axes = tuple(node.integers("dimensions"))
    region, count = node.op.regions[0] if node.op.regions else None, len(node.operands) // 2
    if count == 2 and region is not None and (results := _arg_extremum(node, region, axes)):
        return results
    kind = reduction_kind(node, region)
    if count > 1 or not kind:
        return reduce_by_halving(node, node.operands[:count], node.operands[count:], axes)
    x, init_value = node.operands
    y = node.b(_REDUCTIONS[kind], x, axes=axes) if axes else x
    return y if is_neutral(init_value, kind) else node.b(_COMBINE[kind], y, init_value)


def is_neutral(value: SSAValue, kind: str) -> bool:
    """Return whether a scalar is a constant that is neutral for a reduction."""
    owner = value.owner
    if not isinstance(owner, dl.ConstantOp):
        return False
    (number,) = owner.evaluate()[0].reshape(-1).tolist() or [None]
    element = element_type_of(value)
    low, high = (False, True) if is_bool(element) else limits(element)
    return number == {"add": 0, "multiply": 1, "maximum": low, "minimum": high, "and": True, "or": False}[kind]


def _arg_extremum(node: StableHloNode, region: Region, axes: Sequence[int]) -> Sequence[SSAValue]:
    """Convert a reduction of values and their indices to a maximum or minimum and its index, by the comparison in its body.

    Returns an empty list for other reductions.
    """
    x, indices = node.operands[:2]
    compare_op = next((op for op in region.ops if op.name == "stablehlo.compare"), None)
    comparison = str(compare_op.attributes) if compare_op is not None else ""
    is_max, is_min = ("GT" in comparison or "GE" in comparison), ("LT" in comparison or "LE" in comparison)
    is_iota = isinstance(_source(indices), dl.IotaOp)
    if len(axes) != 1 or is_max == is_min or not is_iota:
        return []
    extremum, arg_extremum = (dl.ReduceMaxOp, dl.ArgmaxOp) if is_max else (dl.ReduceMinOp, dl.ArgminOp)
    index = node.b(arg_extremum, x, axis=axes[0])
    return [node.b(extremum, x, axes=tuple(axes)), node.b(dl.CastOp, index, to=element_type_of(indices))]


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
