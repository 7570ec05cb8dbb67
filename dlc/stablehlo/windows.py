"""Windows: reductions of them, and the gradient of their largest elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of, shape_of
from dlc.dialects.dl.dtypes import is_float
from dlc.dims import Size
from dlc.ir import SSAValue
from dlc.stablehlo.bodies import of_windows, running
from dlc.stablehlo.moving import spaced, surrounded
from dlc.stablehlo.node import Converter, Node, shape_in, sizes_of
from dlc.stablehlo.sums import is_neutral, kind_of, pairs

_POOLS: dict[str, type[DlOp]] = {"maximum": dl.MaxPoolOp, "minimum": dl.MaxPoolOp, "add": dl.SumPoolOp}
_RUNNING: dict[str, type[DlOp]] = {"add": dl.CumsumOp, "multiply": dl.CumprodOp}


@dataclass(frozen=True)
class _Windows:
    """Of each axis the size, the step, the distance of elements and the padding of windows."""

    kernel: Sequence[Size]
    strides: Sequence[int]
    dilations: Sequence[int]
    padding: Sequence[Sequence[int]]

    def running(self, sizes: Sequence[int]) -> int | None:
        """The only axis of an array along which a window has all elements up to its own, or from it on."""
        found = [a for a, n in enumerate(self.kernel) if n != 1]
        if len(found) != 1 or any(n != 1 for n in (*self.strides, *self.dilations)):
            return None
        (axis,), last = found, sizes[found[0]] - 1
        elsewhere = [n for a, pair in enumerate(self.padding) if a != axis for n in pair]
        is_running = self.kernel[axis] == sizes[axis] and list(self.padding[axis]) in ([0, last], [last, 0])
        return axis if is_running and all(n == 0 for n in elsewhere) else None


def reduce_window(node: Node) -> SSAValue | Sequence[SSAValue]:
    """Reduces each window to a number."""
    rank, kernel = len(sizes_of(node[0])), node.integers("window_dimensions")
    ones = [1] * rank
    strides, dilations, holes = (
        node.integers(name, default=ones) for name in ("window_strides", "window_dilations", "base_dilations")
    )
    return _reduced(node, node.operands, _Windows(kernel, strides, dilations, _padding(node, rank)), holes)


def dynamic_reduce_window(node: Node) -> SSAValue | Sequence[SSAValue]:
    """The same, with what says how windows lie as the last operands."""
    kernel, strides, holes, dilations = (shape_in(node, k) for k in range(-5, -1))
    padding = shape_in(node, -1)
    windows = _Windows(kernel, strides, dilations, [padding[k : k + 2] for k in range(0, len(padding), 2)])
    return _reduced(node, node.operands[:-5], windows, holes)


def _reduced(
    node: Node, operands: Sequence[SSAValue], windows: _Windows, holes: Sequence[int]
) -> SSAValue | Sequence[SSAValue]:
    count = len(operands) // 2
    begins = [_scalar(begin) for begin in operands[count:]]
    arrays = [_with_holes(node, array, begin, holes) for array, begin in zip(operands, begins, strict=False)]
    x = arrays[0]
    kind = kind_of(node, node.op.regions[0])
    is_plain = count == 1 and kind != "" and is_neutral(begins[0], kind)
    axis = windows.running(sizes_of(x))
    if axis is not None:
        reverse = windows.padding[axis][0] == 0
        if is_plain and kind in _RUNNING:
            return node.b(_RUNNING[kind], x, axis=axis, exclusive=False, reverse=reverse)
        if not isinstance(windows.kernel[axis], int):
            return running(node, arrays, begins, axis, reverse=reverse)
    kernel = [n for n in windows.kernel if isinstance(n, int)]
    if len(kernel) < len(windows.kernel):
        raise node.unsupported("of windows of an open size, but for those of all up to an element")
    if axis is not None or not is_plain or kind not in _POOLS:
        along = [*zip(kernel, windows.strides, windows.dilations, windows.padding, strict=True)]
        return of_windows(node, arrays, begins, along)
    x = surrounded(node, x, begins[0], *([pair[side] for pair in windows.padding] for side in range(2)))
    settings, (x,) = _pooling(node, (x,), kernel, windows.strides, windows.dilations)
    return _inside(node, _turned(node, node.b(_POOLS[kind], _turned(node, x, kind), **settings), kind))


def _with_holes(node: Node, x: SSAValue, begin: SSAValue, holes: Sequence[int]) -> SSAValue:
    """The first value of a reduction between the elements of an array, as often as they lie apart."""
    for axis, distance in enumerate(holes):
        x = spaced(node, x, begin, axis, distance - 1)
    return x


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
    if any(map(any, _padding(node, rank))):
        raise node.unsupported("with padding; JAX pads what it is of")
    strides = node.integers("window_strides", default=[1] * rank)
    settings, (x, g) = _pooling(node, (x, g), node.integers("window_dimensions"), strides, [1] * rank)
    y = node.b(dl.MaxPoolOp, x, **settings)
    return _inside(node, node.b(dl.MaxPoolGradientOp, x, y, g, **settings))


OPERATORS: dict[str, Converter] = {
    "stablehlo.reduce_window": reduce_window,
    "stablehlo.custom_call @stablehlo.dynamic_reduce_window": dynamic_reduce_window,
    "stablehlo.select_and_scatter": select_and_scatter,
}
