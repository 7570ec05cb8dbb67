"""Windows: reductions of them, and the gradient of their largest elements."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of, shape_of
from dlc.dialects.dl.dtypes import is_float
from dlc.ir import SSAValue
from dlc.stablehlo.bodies import of_windows
from dlc.stablehlo.node import Converter, Node, sizes_of
from dlc.stablehlo.sums import is_neutral, kind_of, pairs

_POOLS: dict[str, type[DlOp]] = {"maximum": dl.MaxPoolOp, "minimum": dl.MaxPoolOp, "add": dl.SumPoolOp}
_RUNNING: dict[str, type[DlOp]] = {"add": dl.CumsumOp, "multiply": dl.CumprodOp}


def reduce_window(node: Node) -> SSAValue | Sequence[SSAValue]:
    """Reduces each window to a number."""
    count = len(node.operands) // 2
    x, sizes = node.operands[0], sizes_of(node.operands[0])
    begins = [_scalar(begin) for begin in node.operands[count:]]
    kernel, ones = node.integers("window_dimensions"), [1] * len(sizes)
    strides, dilations = (node.integers(name, default=ones) for name in ("window_strides", "window_dilations"))
    kind, padding = kind_of(node, node.op.regions[0]), _padding(node, len(sizes))
    if node.integers("base_dilations", default=ones) != ones:
        raise node.unsupported("with holes in the operand")
    is_plain = count == 1 and kind != "" and is_neutral(begins[0], kind)
    axis = _running(sizes, kernel, padding)
    if is_plain and kind in _RUNNING and axis is not None and strides == dilations == ones:
        return node.b(_RUNNING[kind], x, axis=axis, exclusive=False, reverse=not padding[axis][0])
    if not is_plain or kind not in _POOLS:
        return of_windows(node, node.operands[:count], begins, [*zip(kernel, strides, dilations, padding, strict=True)])
    if any(any(pair) for pair in padding):
        low, high = (tuple(pair[side] for pair in padding) for side in range(2))
        x = node.b(dl.PadOp, x, begins[0], low=low, high=high, pad_mode="constant")
    settings, (x,) = _pooling(node, (x,), kernel, strides, dilations)
    return _inside(node, _turned(node, node.b(_POOLS[kind], _turned(node, x, kind), **settings), kind))


def _pooling(
    node: Node, values: Sequence[SSAValue], *settings: Sequence[int]
) -> tuple[dict[str, tuple[int, ...]], Sequence[SSAValue]]:
    """Kernel, strides and dilations of a pooling, and its operands, whose first and last axes have no windows."""
    if len(settings[0]) < 3 or any(s[0] != 1 or s[-1] != 1 for s in settings):
        values = [node.reshape(v, (1, *sizes_of(v), 1)) for v in values]
    else:
        settings = tuple(s[1:-1] for s in settings)
    return dict(zip(("kernel", "strides", "dilations"), map(tuple, settings), strict=True)), values


def _inside(node: Node, y: SSAValue) -> SSAValue:
    """What `_pooling` was given a part of, without the axes that it put around."""
    sizes = sizes_of(y)
    return node.reshape(y, sizes if len(sizes) == len(node.shape) else sizes[1:-1])


def _padding(node: Node, rank: int) -> list[list[int]]:
    return pairs(node, node.get("padding", default=[[0, 0]] * rank), rank)


def _running(sizes: Sequence[int], kernel: Sequence[int], padding: Sequence[Sequence[int]]) -> int | None:
    """The only axis along which a window has all elements up to its own, or from it on."""
    found = [a for a, n in enumerate(kernel) if n != 1]
    if len(found) != 1 or any(any(pair) for a, pair in enumerate(padding) if a != found[0]):
        return None
    (axis,) = found
    return axis if kernel[axis] == sizes[axis] and sorted(padding[axis]) == [0, sizes[axis] - 1] else None


def _turned(node: Node, x: SSAValue, kind: str) -> SSAValue:
    """The least elements are the largest of what falls as they rise."""
    if kind != "minimum":
        return x
    return node.b(dl.NegOp if is_float(element_type_of(x)) else dl.BitwiseNotOp, x)


def _scalar(value: SSAValue) -> SSAValue:
    """A constant before it was broadcast to no axes."""
    owner = value.owner
    if isinstance(owner, dl.BroadcastToOp | dl.ReshapeOp) and not shape_of(owner.operands[0]):
        return owner.operands[0]
    return value


def select_and_scatter(node: Node) -> SSAValue:
    """The gradient of the largest elements of windows: JAX's of a pooling, which selects by GE and adds."""
    (x, g, begin), (select, combine) = node.operands, node.op.regions
    compared = [op for op in select.ops if op.name == "stablehlo.compare"]
    words = str([op.attributes for op in compared])
    if len(select.ops) != 2 or "GE" not in words or kind_of(node, combine) != "add" or not is_neutral(_scalar(begin), "add"):
        raise node.unsupported("but of a sum, from 0 on, where windows are largest")
    rank = len(sizes_of(x))
    if any(any(pair) for pair in _padding(node, rank)):
        raise node.unsupported("with padding; JAX pads what it is of")
    strides = node.integers("window_strides", default=[1] * rank)
    settings, (x, g) = _pooling(node, (x, g), node.integers("window_dimensions"), strides, [1] * rank)
    y = node.b(dl.MaxPoolOp, x, **settings)
    return _inside(node, node.b(dl.MaxPoolGradientOp, x, y, g, **settings))


OPERATORS: dict[str, Converter] = {
    "stablehlo.reduce_window": reduce_window,
    "stablehlo.select_and_scatter": select_and_scatter,
}
