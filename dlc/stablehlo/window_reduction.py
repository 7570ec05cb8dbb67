"""Window reductions, and scatters to selected elements of windows: the gradient of max pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of, shape_of
from dlc.dialects.dl.dtypes import is_float
from dlc.ir import SSAValue, i64
from dlc.shapes.dims import Size
from dlc.stablehlo.body_numbering import BodyNumbering, binary_op, returned
from dlc.stablehlo.contraction_reduction import is_neutral, neutral_number, padding_pairs
from dlc.stablehlo.data_movement import pad_interior, pad_sides
from dlc.stablehlo.gather_scatter import scatter_elements
from dlc.stablehlo.generic_reduction import combine_with_init, cumulative_reduce, reduce_windows
from dlc.stablehlo.node import Converter, StableHloNode, flatten_complex, shape_in, sizes_of
from dlc.stablehlo.syntax import Region

_POOLS: dict[str, type[DlOp]] = {"maximum": dl.MaxPoolOp, "minimum": dl.MaxPoolOp, "add": dl.SumPoolOp}
_CUMULATIVE: dict[str, type[DlOp]] = {"add": dl.CumsumOp, "multiply": dl.CumprodOp}


@dataclass(frozen=True)
class _WindowParameters:
    """Window size, stride, dilation and padding of each axis."""

    kernel: Sequence[Size]
    strides: Sequence[int]
    dilations: Sequence[int]
    padding: Sequence[Sequence[int]]

    def cumulative_axis(self, sizes: Sequence[int]) -> int | None:
        """Return the only axis along which windows cover all elements up to, or from, each index; None if there is none."""
        windowed_axes = [a for a, n in enumerate(self.kernel) if n != 1]
        if len(windowed_axes) != 1 or any(n != 1 for n in (*self.strides, *self.dilations)):
            return None
        (axis,), last = windowed_axes, sizes[windowed_axes[0]] - 1
        other_padding = [n for a, pair in enumerate(self.padding) if a != axis for n in pair]
        is_cumulative = self.kernel[axis] == sizes[axis] and list(self.padding[axis]) in ([0, last], [last, 0])
        return axis if is_cumulative and all(n == 0 for n in other_padding) else None


def reduce_window(node: StableHloNode) -> SSAValue | Sequence[SSAValue]:
    """Reduce each window to one element."""
    rank, kernel = len(sizes_of(node[0])), node.integers("window_dimensions")
    ones = [1] * rank
    strides, dilations, base_dilations = (
        node.integers(name, default=ones) for name in ("window_strides", "window_dilations", "base_dilations")
    )
    return _reduce(node, node.operands, _WindowParameters(kernel, strides, dilations, _padding(node, rank)), base_dilations)


def dynamic_reduce_window(node: StableHloNode) -> SSAValue | Sequence[SSAValue]:
    """Reduce each window to one element; the window parameters are the last operands."""
    kernel, strides, base_dilations, dilations = (shape_in(node, k) for k in range(-5, -1))
    padding = shape_in(node, -1)
    windows = _WindowParameters(kernel, strides, dilations, [padding[k : k + 2] for k in range(0, len(padding), 2)])
    return _reduce(node, node.operands[:-5], windows, base_dilations)


def _reduce(
    node: StableHloNode, operands: Sequence[SSAValue], windows: _WindowParameters, base_dilations: Sequence[int]
) -> SSAValue | Sequence[SSAValue]:
    count = len(operands) // 2
    init_values = [_scalar(init_value) for init_value in operands[count:]]
    kind = binary_op(node.op.regions[0]) if count == 1 else ""
    neutral = neutral_number(kind, element_type_of(init_values[0]))
    # The initial value counts once for each window, so windows are padded with the neutral element of the op, if it has one.
    padding_values = init_values if neutral is None else [node.scalar(neutral, init_values[0])]
    arrays = [_dilate_base(node, array, value, base_dilations) for array, value in zip(operands, padding_values, strict=False)]
    x = arrays[0]

    def with_init(reduced: Sequence[SSAValue]) -> Sequence[SSAValue]:
        return reduced if is_neutral(init_values[0], kind) else combine_with_init(node, init_values, reduced)

    axis = windows.cumulative_axis(sizes_of(x))
    if axis is not None:
        reverse = windows.padding[axis][0] == 0
        if kind in _CUMULATIVE:
            return with_init([node.build(_CUMULATIVE[kind], x, axis=axis, exclusive=False, reverse=reverse)])
        if not isinstance(windows.kernel[axis], int):
            return cumulative_reduce(node, arrays, init_values, axis, reverse=reverse)
    kernel = [n for n in windows.kernel if isinstance(n, int)]
    if len(kernel) < len(windows.kernel):
        raise node.unsupported("windows with a symbolic size are supported for cumulative reductions only")
    if axis is not None or kind not in _POOLS:
        windows_by_axis = [*zip(kernel, windows.strides, windows.dilations, windows.padding, strict=True)]
        reduced = reduce_windows(node, arrays, padding_values, windows_by_axis)
    else:
        x = pad_sides(node, x, padding_values[0], *([pair[side] for pair in windows.padding] for side in range(2)))
        properties, (x,) = _pooling(node, (x,), kernel, windows.strides, windows.dilations)
        y = _negate_for_minimum(node, node.build(_POOLS[kind], _negate_for_minimum(node, x, kind), **properties), kind)
        reduced = [_drop_outer_axes(node, y)]
    return with_init(reduced)


def _dilate_base(node: StableHloNode, x: SSAValue, init_value: SSAValue, base_dilations: Sequence[int]) -> SSAValue:
    """Insert the initial value between the elements of an array (base dilation)."""
    for axis, distance in enumerate(base_dilations):
        x = pad_interior(node, x, init_value, axis, distance - 1)
    return x


def _pooling(
    node: StableHloNode, values: Sequence[SSAValue], *parameters: Sequence[int]
) -> tuple[dict[str, tuple[int, ...]], Sequence[SSAValue]]:
    """Return kernel, strides and dilations of a pooling, and its operands with outer axes without windows."""
    if len(parameters[0]) < 3 or any(s[0] != 1 or s[-1] != 1 for s in parameters):
        values = [node.reshape(v, (1, *sizes_of(v), 1)) for v in values]
    else:
        parameters = tuple(s[1:-1] for s in parameters)
    return dict(zip(("kernel", "strides", "dilations"), map(tuple, parameters), strict=True)), values


def _drop_outer_axes(node: StableHloNode, y: SSAValue) -> SSAValue:
    """Remove the outer axes that `_pooling` added."""
    sizes = sizes_of(y)
    return node.reshape(y, sizes if len(sizes) == len(node.shape) else sizes[1:-1])


def _padding(node: StableHloNode, rank: int) -> list[list[int]]:
    return padding_pairs(node, node.get("padding", default=[[0, 0]] * rank), rank)


def _negate_for_minimum(node: StableHloNode, x: SSAValue, kind: str) -> SSAValue:
    """Negate for a minimum, which is computed as a maximum."""
    if kind != "minimum":
        return x
    return node.build(dl.NegOp if is_float(element_type_of(x)) else dl.BitwiseNotOp, x)


def _scalar(value: SSAValue) -> SSAValue:
    """Return a constant without redundant broadcasts to rank 0."""
    owner = value.owner
    if isinstance(owner, dl.BroadcastToOp | dl.ReshapeOp) and not shape_of(owner.operands[0]):
        return owner.operands[0]
    return value


def select_and_scatter(node: StableHloNode) -> SSAValue:
    """Select an element of each window, and combine the elements of the second operand there with the initial value."""
    (x, g, init_value), (select, combine) = node.operands, node.op.regions
    rank = len(sizes_of(x))
    kernel, padding = node.integers("window_dimensions"), _padding(node, rank)
    strides = node.integers("window_strides", default=[1] * rank)
    kind = _selected_extremum(select)
    is_sum = binary_op(combine) == "add" and is_neutral(init_value, "add")
    if kind and is_sum and is_float(node.element) and not any(map(any, padding)):
        # The gradient of max or min pooling.
        properties, (x, g) = _pooling(node, (x, g), kernel, strides, [1] * rank)
        x = _negate_for_minimum(node, x, kind)
        y = node.build(dl.MaxPoolOp, x, **properties)
        return _drop_outer_axes(node, node.build(dl.MaxPoolGradientOp, x, y, g, **properties))
    count = prod(sizes_of(x))
    indices = node.reshape(node.build(dl.IotaOp, size=(count,), to=i64, start=0, step=1), sizes_of(x))
    padding_index = node.number(count)

    def select_one(node: StableHloNode, first: Sequence[SSAValue], second: Sequence[SSAValue]) -> list[SSAValue]:
        """Select one of two elements, and its index; padding is not selected."""
        (is_selected,) = flatten_complex(node.inline(select, [first[0], second[0]]))
        is_element, is_padding = (
            node.build(op, values[1], padding_index) for op, values in ((dl.NotEqualOp, first), (dl.EqualOp, second))
        )
        is_first = node.build(dl.OrOp, is_padding, node.build(dl.AndOp, is_element, is_selected))
        return [node.build(dl.SelectOp, is_first, a, b) for a, b in zip(first, second, strict=True)]

    windows = [*zip(kernel, strides, [1] * rank, padding, strict=True)]
    _, selected = reduce_windows(node, [x, indices], [init_value, padding_index], windows, select_one)
    num_windows = prod(sizes_of(selected))
    result = node.broadcast(init_value, (count,))
    # Windows of padding only have an index out of bounds, which is dropped.
    selected, g = node.reshape(selected, (num_windows, 1)), node.reshape(g, (num_windows,))
    return node.reshape(scatter_elements(node, result, selected, g, combine), sizes_of(x))


def _selected_extremum(region: Region) -> str:
    """Return which extremum a selection body keeps, the first one in ties: "maximum", "minimum", or "" for another body."""
    numbering = BodyNumbering()
    names, (a, b) = numbering.body(region), map(numbering.argument, range(2))
    kinds = {numbering.compare("GE", a, b): "maximum", numbering.compare("LE", a, b): "minimum"}
    (result,) = returned(region)
    return kinds.get(names.get(result, -1), "")


OPERATORS: dict[str, Converter] = {
    "stablehlo.reduce_window": reduce_window,
    "stablehlo.custom_call @stablehlo.dynamic_reduce_window": dynamic_reduce_window,
    "stablehlo.select_and_scatter": select_and_scatter,
}
