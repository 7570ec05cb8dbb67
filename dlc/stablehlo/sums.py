"""Products, convolutions and reductions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of
from dlc.dialects.dl.dtypes import is_bool
from dlc.dialects.dl.scalar import limits
from dlc.ir import Operation, SSAValue
from dlc.stablehlo.bodies import reduced
from dlc.stablehlo.moving import spaced, surrounded
from dlc.stablehlo.node import Converter, Node, fields_of, sizes_of
from dlc.stablehlo.syntax import Dense, Region

_REDUCTIONS: dict[str, type[DlOp]] = {
    "add": dl.ReduceSumOp, "multiply": dl.ReduceProdOp, "maximum": dl.ReduceMaxOp, "minimum": dl.ReduceMinOp,
    "and": dl.ReduceAllOp, "or": dl.ReduceAnyOp,
}  # fmt: skip
_COMBINE: dict[str, type[DlOp]] = {
    "add": dl.AddOp, "multiply": dl.MulOp, "maximum": dl.MaximumOp, "minimum": dl.MinimumOp, "and": dl.AndOp, "or": dl.OrOp,
}  # fmt: skip


def dot_general(node: Node) -> SSAValue:
    batch: Sequence[Any] = node.get("batching_dims", default=[[], []])
    contracted: Sequence[Any] = node.get("contracting_dims", default=[[], []])
    if "dot_dimension_numbers" in node.op.attributes:
        fields = fields_of(node.get("dot_dimension_numbers"))
        batch, contracted = (
            [fields.get(f"{side}_{kind}_dimensions", []) for side in ("lhs", "rhs")] for kind in ("batching", "contracting")
        )
    lhs, rhs = (_as(node, v) for v in node.operands)
    axes = {"lhs_batch": batch[0], "rhs_batch": batch[1], "lhs_contract": contracted[0], "rhs_contract": contracted[1]}
    return node.b(dl.DotGeneralOp, lhs, rhs, **{name: tuple(a) for name, a in axes.items()})


def _as(node: Node, value: SSAValue) -> SSAValue:
    """A factor in the element type of the product."""
    return value if element_type_of(value) == node.element else node.b(dl.CastOp, value, to=node.element)


def _axes(text: str) -> list[list[str]]:
    """The axes of the input, the filter and the result of a convolution: a letter, or the number of a spatial axis."""
    return [re.findall(r"\w+", part) for part in re.findall(r"\[([^\]]*)\]", text)]


def convolution(node: Node) -> SSAValue:
    rank = len(sizes_of(node[0])) - 2
    window: Any = node.op.attributes.get("window", {})
    return convolved(node, window.get("pad") or pairs(node, node.get("padding", default=[[0, 0]] * rank), rank))


def convolved(node: Node, padding: Sequence[Sequence[int]]) -> SSAValue:
    """A convolution of the first two operands, with so many zeros before and behind each spatial axis."""
    numbers: Any = node.get("dim_numbers", "dimension_numbers")
    x_axes, w_axes, y_axes = _axes(numbers) if isinstance(numbers, str) else [[str(a) for a in part] for part in numbers]
    rank = len(x_axes) - 2
    window: Any = node.op.attributes.get("window", {})

    def setting(short: str, long: str, default: int) -> list[int]:
        return list(window.get(short) or node.get(long, default=[default] * rank))

    strides, dilations = setting("stride", "window_strides", 1), setting("rhs_dilate", "rhs_dilation", 1)
    holes, groups = setting("lhs_dilate", "lhs_dilation", 1), node.get("feature_group_count", default=1)
    turned = window.get("reverse") or node.get("window_reversal", default=[False] * rank)
    spatial = [str(k) for k in range(rank)]
    x = node.transpose(_as(node, node[0]), [x_axes.index(a) for a in ("b", *spatial, "f")])
    w = node.transpose(_as(node, node[1]), [w_axes.index(a) for a in (*spatial, "i", "o")])
    if (parts := node.get("batch_group_count", default=1)) != 1:
        # Groups of the batch are groups of features that all results share.
        n, *between, c = sizes_of(x)
        x = node.transpose(node.reshape(x, (parts, n // parts, *between, c)), [*range(1, rank + 2), 0, rank + 2])
        x, groups = node.reshape(x, (n // parts, *between, parts * c)), groups * parts
    zero = node.scalar(0, x)
    for k in range(rank):
        x = spaced(node, x, zero, k + 1, holes[k] - 1)
    x = surrounded(node, x, zero, *((0, *(pair[side] for pair in padding), 0) for side in range(2)))
    if any(turned):
        w = node.b(dl.ReverseOp, w, axes=tuple(k for k in range(rank) if turned[k]))
    y = node.b(dl.ConvOp, x, w, strides=tuple(strides), dilations=tuple(dilations), groups=groups)
    return node.transpose(y, [["b", *spatial, "f"].index(a) for a in y_axes])


def pairs(node: Node, padding: Any, rank: int) -> list[list[int]]:
    """Padding before and after each axis, which the generic form has as a constant."""
    if not isinstance(padding, Dense):
        return padding
    numbers = [int(n) for n in re.findall(r"-?\d+", padding.text)]
    numbers = numbers * (2 * rank) if len(numbers) == 1 else numbers
    if len(numbers) != 2 * rank:
        raise node.unsupported(f"padding {padding.text} of {rank} axes")
    return [numbers[2 * k : 2 * k + 2] for k in range(rank)]


def kind_of(node: Node, region: Region | None) -> str:
    """What a reduction combines by, if that is the only op of its region and one of those that dlc has; "" else."""
    name = str(node.op.attributes.get("applies", "")) or (region.ops[0].name if region and len(region.ops) == 2 else "")
    kind = name.removeprefix("stablehlo.")
    return kind if kind in _REDUCTIONS else ""


def reduce(node: Node) -> SSAValue | Sequence[SSAValue]:
    axes = tuple(node.integers("dimensions"))
    region, count = node.op.regions[0] if node.op.regions else None, len(node.operands) // 2
    if count == 2 and region is not None and (found := _place(node, region, axes)):
        return found
    kind = kind_of(node, region)
    if count > 1 or not kind:
        return reduced(node, node.operands[:count], node.operands[count:], axes)
    x, begin = node.operands
    y = node.b(_REDUCTIONS[kind], x, axes=axes) if axes else x
    return y if is_neutral(begin, kind) else node.b(_COMBINE[kind], y, begin)


def is_neutral(value: SSAValue, kind: str) -> bool:
    """Whether a scalar is known to change nothing: most are constants."""
    owner = value.owner
    if not isinstance(owner, dl.ConstantOp):
        return False
    (number,) = owner.evaluate()[0].reshape(-1).tolist() or [None]
    element = element_type_of(value)
    low, high = (False, True) if is_bool(element) else limits(element)
    return number == {"add": 0, "multiply": 1, "maximum": low, "minimum": high, "and": True, "or": False}[kind]


def _place(node: Node, region: Region, axes: Sequence[int]) -> Sequence[SSAValue]:
    """An extremum and where it is: what a reduction of numbers and their places is, by the first comparison in its body.

    Nothing for another reduction.
    """
    x, places = node.operands[:2]
    compared = next((op for op in region.ops if op.name == "stablehlo.compare"), None)
    said = str(compared.attributes) if compared is not None else ""
    largest, smallest = ("GT" in said or "GE" in said), ("LT" in said or "LE" in said)
    is_iota = isinstance(_source(places), dl.IotaOp)
    if len(axes) != 1 or largest == smallest or not is_iota:
        return []
    extremum, place = (dl.ReduceMaxOp, dl.ArgmaxOp) if largest else (dl.ReduceMinOp, dl.ArgminOp)
    found = node.b(place, x, axis=axes[0])
    return [node.b(extremum, x, axes=tuple(axes)), node.b(dl.CastOp, found, to=element_type_of(places))]


def _source(value: SSAValue) -> Operation | None:
    """What made a value that was only reshaped or repeated since."""
    owner = value.owner
    while isinstance(owner, dl.ReshapeOp | dl.BroadcastToOp):
        owner = owner.operands[0].owner
    return owner if isinstance(owner, Operation) else None


OPERATORS: dict[str, Converter] = {
    "stablehlo.dot_general": dot_general,
    "stablehlo.convolution": convolution,
    "stablehlo.reduce": reduce,
}
