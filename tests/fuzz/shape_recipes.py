"""Operators of random graphs with symbolic sizes: windows, images, indexed accesses, attention, quantization, recurrences, caches.

Each recipe appends nodes to a graph of `random_shapes.py`, unless it has no suitable value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

Array = NDArray[Any]


class Graph(Protocol):
    """A graph that grows: its values for the drawn sizes, and a source of random numbers."""

    random: Random
    values: dict[str, Array]

    def value(self, condition: Callable[[Array], bool] = ...) -> str | None: ...

    def constant(self, array: Any, dtype: Any = ...) -> str: ...

    def append(
        self, op: str, inputs: Sequence[str], outputs: int = 1, captured: Sequence[str] = (), **attributes: Any
    ) -> Sequence[str] | None: ...


def _first(names: Sequence[str] | None) -> str:
    """Return the first result of a node; "" if it was not appended, which no other node accepts."""
    return names[0] if names else ""


def _size(graph: Graph, x: str, axis: int) -> str:
    """Append the size of an axis, as a vector of one element."""
    axis %= graph.values[x].ndim
    return _first(graph.append("Shape", [x], start=axis, end=axis + 1))


def dilated_pool(graph: Graph) -> None:
    """A pool with dilations, results rounded up, or automatic padding."""
    if (x := graph.value(lambda v: v.ndim in (3, 4))) is None:
        return
    rank, draw = graph.values[x].ndim - 2, graph.random
    kernel = [draw.choice([1, 2, 3]) for _ in range(rank)]
    settings: dict[str, Any] = {"kernel_shape": kernel, "strides": [draw.choice([1, 2, 3]) for _ in kernel]}
    if draw.random() < 0.3:
        settings["auto_pad"] = draw.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
    else:
        settings |= {"pads": [draw.choice([0, min(1, k - 1)]) for k in kernel] * 2, "ceil_mode": draw.choice([0, 1])}
    op = draw.choice(["MaxPool", "AveragePool", "LpPool"])
    if op == "MaxPool":
        settings["dilations"] = [draw.choice([1, 2]) for _ in kernel]
    if op == "AveragePool":
        settings["count_include_pad"] = draw.choice([0, 1])
    graph.append(op, [x], **settings)


def transposed_conv(graph: Graph) -> None:
    """A transposed convolution, or a dilated one with groups."""
    if (x := graph.value(lambda v: v.ndim in (3, 4))) is None:
        return
    rank, channels, draw = graph.values[x].ndim - 2, graph.values[x].shape[1], graph.random
    kernel = [draw.choice([1, 2, 3]) for _ in range(rank)]
    strides, dilations = ([draw.choice([1, 2]) for _ in kernel] for _ in range(2))
    pads = [draw.choice([0, 1]) for _ in kernel] * 2
    if draw.random() < 0.5:
        weight = graph.constant(np.ones((channels, 2, *kernel)), np.float32)
        extra = [draw.choice([0, s - 1]) for s in strides]
        graph.append("ConvTranspose", [x, weight], strides=strides, dilations=dilations, pads=pads, output_padding=extra)
    else:
        weight = graph.constant(np.ones((channels, 1, *kernel)), np.float32)
        graph.append("Conv", [x, weight], strides=strides, dilations=dilations, pads=pads, group=channels)


def global_pool(graph: Graph) -> None:
    if (x := graph.value(lambda v: v.ndim in (3, 4))) is not None:
        graph.append(graph.random.choice(["GlobalAveragePool", "GlobalMaxPool"]), [x])


def resize(graph: Graph) -> None:
    """An image of scaled, given or computed sizes."""
    if (x := graph.value(lambda v: v.ndim in (3, 4) and 0 not in v.shape)) is None:
        return
    draw, rank = graph.random, graph.values[x].ndim
    mode = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    if draw.random() < 0.4:
        mode = {"mode": "linear", "coordinate_transformation_mode": draw.choice(["half_pixel", "asymmetric", "align_corners"])}
    if draw.random() < 0.5:
        scales = [1.0, 1.0, *(draw.choice([0.5, 1.0, 2.0, 3.0]) for _ in range(rank - 2))]
        graph.append("Resize", [x, "", graph.constant(scales, np.float32)], **mode)
        return
    dims = _first(graph.append("Shape", [x]))
    op, amount = draw.choice([("Mul", 2), ("Div", 2), ("Add", 1)])
    factors = [amount if axis > 1 else {"Add": 0}.get(op, 1) for axis in range(rank)]
    computed = _first(graph.append(op, [dims, graph.constant(factors)]))
    graph.append("Resize", [x, "", "", computed], **mode)


def depth_to_space(graph: Graph) -> None:
    if (x := graph.value(lambda v: v.ndim == 4)) is not None:
        graph.append(graph.random.choice(["DepthToSpace", "SpaceToDepth"]), [x], blocksize=graph.random.choice([1, 2, 3]))


def indexed(graph: Graph) -> None:
    """Elements gathered or scattered at constant positions, or at all positions of an axis."""
    if (x := graph.value(lambda v: v.ndim > 0 and 0 not in v.shape)) is None:
        return
    shape, draw = graph.values[x].shape, graph.random
    axis = draw.randrange(len(shape))
    kind = draw.choice(["elements", "scatter", "nd", "scatter_nd", "range"])
    if kind in ("elements", "scatter"):
        indices = graph.constant(np.full([*shape[:axis], 2, *shape[axis + 1 :]], draw.choice([0, -1, shape[axis] - 1])))
        if kind == "elements":
            graph.append("GatherElements", [x, indices], axis=axis)
        else:
            updates = graph.constant(np.ones([*shape[:axis], 2, *shape[axis + 1 :]]), np.float32)
            graph.append("ScatterElements", [x, indices, updates], axis=axis, reduction=draw.choice(["none", "add", "max"]))
        return
    indexed_shape = shape[: draw.randint(1, len(shape))]
    positions = graph.constant([[draw.choice([0, n - 1, -1]) for n in indexed_shape] for _ in range(2)])
    if kind == "nd":
        graph.append("GatherND", [x, positions])
    elif kind == "scatter_nd":
        if updates := graph.append("GatherND", [x, positions]):
            graph.append("ScatterND", [x, positions, updates[0]], reduction=draw.choice(["none", "add"]))
    else:
        size = _first(graph.append("Squeeze", [_size(graph, x, axis), graph.constant([0])]))
        last = _first(graph.append("Sub", [size, graph.constant(draw.choice([0, 1, 2]))]))
        numbers = _first(graph.append("Range", [graph.constant(0), last, graph.constant(draw.choice([1, 2]))]))
        graph.append("Gather", [x, numbers], axis=axis)


def one_hot(graph: Graph) -> None:
    """One row per position of an axis, with as many columns as another axis has elements."""
    if (x := graph.value(lambda v: v.ndim > 0)) is None or (y := graph.value(lambda v: v.ndim > 0)) is None:
        return
    size = _first(graph.append("Squeeze", [_size(graph, x, 0), graph.constant([0])]))
    numbers = _first(graph.append("Range", [graph.constant(0), size, graph.constant(1)]))
    values = graph.constant([0, 1], np.float32)
    graph.append("OneHot", [numbers, _size(graph, y, -1), values], axis=graph.random.choice([0, -1]))


def sized_slice(graph: Graph) -> None:
    """A slice, split or pad by a computed size, such as the last rows of a cache to which rows are appended."""
    if (x := graph.value(lambda v: v.ndim > 0)) is None or (y := graph.value(lambda v: v.ndim > 0)) is None:
        return
    draw, axis = graph.random, graph.random.randrange(graph.values[x].ndim)
    kind = draw.choice(["cache", "end", "start", "top_k", "pad", "split"])
    size = _size(graph, y, draw.randrange(graph.values[y].ndim))
    limit = graph.constant([1 << 40])
    at = graph.constant([axis])
    if kind == "cache":
        grown = _first(graph.append("Concat", [x, x if draw.random() < 0.5 else y], axis=axis))
        negative = _first(graph.append("Neg", [size]))
        graph.append("Slice", [grown, negative, limit, at])
    elif kind == "end":
        half = _first(graph.append("Div", [size, graph.constant([draw.choice([1, 2, 3])])]))
        graph.append("Slice", [x, graph.constant([0]), half, at])
    elif kind == "start":
        start = _first(graph.append("Sub", [size, graph.constant([draw.choice([1, 3, 6])])]))
        graph.append("Slice", [x, start, limit, at, graph.constant([draw.choice([1, 2])])])
    elif kind == "top_k":
        smaller = _first(graph.append("Div", [size, graph.constant([2])]))
        graph.append("TopK", [x, smaller], 2, axis=axis)
    elif kind == "pad":
        zeros = graph.constant([0])
        amounts = _first(graph.append("Concat", [zeros, size], axis=0))
        graph.append("Pad", [x, amounts, "", at], mode="constant")
    else:
        own = _size(graph, x, axis)
        first = _first(graph.append("Div", [own, graph.constant([2])]))
        second = _first(graph.append("Sub", [own, first]))
        both = _first(graph.append("Concat", [first, second], axis=0))
        graph.append("Split", [x, both], 2, axis=axis)


def sized_reshape(graph: Graph) -> None:
    """A reshape to sizes that are computed from sizes of the value: halves, products, one axis moved into another."""
    if (x := graph.value(lambda v: v.ndim > 1 and v.size > 0)) is None:
        return
    draw = graph.random
    axis = draw.randrange(graph.values[x].ndim)
    own = _size(graph, x, axis)
    rest = graph.constant([-1])
    part = _first(graph.append(draw.choice(["Div", "Mul"]), [own, graph.constant([draw.choice([1, 2, 3])])]))
    order = draw.choice([[part, rest], [rest, part], [graph.constant([2]), part, rest], [own, rest, graph.constant([2])]])
    graph.append("Reshape", [x, _first(graph.append("Concat", order, axis=0))])


def attention(graph: Graph) -> None:
    """Attention of a value with itself; the last axis is split into heads of a static size, or of a static number."""
    if (x := graph.value(lambda v: v.ndim == 2 and v.shape[1] % 2 == 0 and v.size > 0)) is None:
        return
    shape = graph.random.choice([[0, -1, 2], [0, 2, -1]])
    heads = _first(graph.append("Reshape", [x, graph.constant(shape)]))
    queries = _first(graph.append("Transpose", [heads], perm=[1, 0, 2]))
    keys = _first(graph.append("Transpose", [heads], perm=[1, 2, 0]))
    weights = _first(graph.append("Softmax", [_first(graph.append("MatMul", [queries, keys]))], axis=-1))
    merged = _first(graph.append("Transpose", [_first(graph.append("MatMul", [weights, queries]))], perm=[1, 0, 2]))
    graph.append("Reshape", [merged, graph.random.choice([graph.constant([0, -1]), _first(graph.append("Shape", [x]))])])


def normalize(graph: Graph) -> None:
    """A normalization, activation or cumulative function over an axis, or a triangle of a matrix."""
    if (x := graph.value(lambda v: v.ndim > 1)) is None:
        return
    draw, shape = graph.random, graph.values[x].shape
    axis = draw.randrange(len(shape))
    kind = draw.choice(["softmax", "layer", "cumsum", "triangle", "instance", "argmax", "mean_variance"])
    if kind == "softmax":
        graph.append(draw.choice(["Softmax", "LogSoftmax", "Hardmax"]), [x], axis=axis)
    elif kind == "layer":
        graph.append("LayerNormalization", [x, graph.constant(np.ones(shape[-1]), np.float32)], axis=-1)
    elif kind == "cumsum":
        settings = {"exclusive": draw.choice([0, 1]), "reverse": draw.choice([0, 1])}
        graph.append("CumSum", [x, graph.constant(axis)], **settings)
    elif kind == "triangle":
        graph.append("Trilu", [x, graph.constant(draw.choice([-1, 0, 2]))], upper=draw.choice([0, 1]))
    elif kind == "instance" and len(shape) > 2:
        scale = graph.constant(np.ones(shape[1]), np.float32)
        graph.append("InstanceNormalization", [x, scale, scale])
    elif kind == "mean_variance":
        graph.append("MeanVarianceNormalization", [x], axes=[axis])
    elif kind == "argmax":
        positions = _first(graph.append(draw.choice(["ArgMax", "ArgMin"]), [x], axis=axis, keepdims=draw.choice([0, 1])))
        graph.append("Cast", [positions], to=TensorProto.FLOAT)


def quantize(graph: Graph) -> None:
    """Values quantized to 8 bits and back, with a scale per tensor or per element of an axis; or their integer product."""
    if (x := graph.value(lambda v: v.ndim > 1)) is None:
        return
    draw, shape = graph.random, graph.values[x].shape
    axis = draw.randrange(len(shape))
    scale = graph.constant(np.full(() if draw.random() < 0.6 else shape[axis], 0.5), np.float32)
    if draw.random() < 0.3:
        quantized, own_scale, zero = graph.append("DynamicQuantizeLinear", [x], 3) or ["", "", ""]
        graph.append("DequantizeLinear", [quantized, own_scale, zero])
        return
    quantized = _first(graph.append("QuantizeLinear", [x, scale], axis=axis))
    if draw.random() < 0.6:
        graph.append("DequantizeLinear", [quantized, scale], axis=axis)
    else:
        weight = graph.constant(np.ones((shape[-1], 3)), np.uint8)
        graph.append("Cast", [_first(graph.append("MatMulInteger", [quantized, weight]))], to=TensorProto.FLOAT)


def recurrence(graph: Graph) -> None:
    """A recurrent layer over [steps, batch, features]."""
    if (x := graph.value(lambda v: v.ndim == 3 and 0 not in v.shape)) is None:
        return
    op, gates = graph.random.choice([("RNN", 1), ("GRU", 3), ("LSTM", 4)])
    features, hidden = graph.values[x].shape[-1], 2
    weights = graph.constant(np.full((1, gates * hidden, features), 0.1), np.float32)
    recurrent = graph.constant(np.full((1, gates * hidden, hidden), 0.1), np.float32)
    graph.append(op, [x, weights, recurrent], 2, hidden_size=hidden)


def nested_branch(graph: Graph) -> None:
    """A branch on a size inside of a branch on data, or the reverse."""
    if (x := graph.value(lambda v: v.ndim > 0)) is None:
        return
    draw = graph.random
    limits = [graph.constant([draw.choice([0, 3, 6])]) for _ in range(2)]
    sizes = [_size(graph, x, axis) for axis in (0, -1)]
    outer = _first(graph.append("Greater", [sizes[0], limits[0]]))

    def body(name: str, op: str, inner: Sequence[Any] = ()) -> Any:
        nodes = [*inner, *([] if inner else [helper.make_node(op, [x], [f"{name}_result"])])]
        return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(f"{name}_result")])

    inner = [
        helper.make_node("Less", [sizes[1], limits[1]], ["is_small"]),
        helper.make_node(
            "If",
            ["is_small"],
            ["outer_then_result"],
            then_branch=body("inner_then", "Neg"),
            else_branch=body("inner_else", "Abs"),
        ),
    ]
    graph.append(
        "If", [outer], 1, [x, sizes[1], limits[1]], then_branch=body("outer_then", "", inner), else_branch=body("other", "Relu")
    )


def growing_loop(graph: Graph) -> None:
    """A loop that collects slices of a captured value, as many as one of its axes has elements."""
    if (x := graph.value(lambda v: v.ndim > 0 and v.shape[0] > 0)) is None:
        return
    size = _first(graph.append("Squeeze", [_size(graph, x, 0), graph.constant([0])]))
    limit = _first(graph.append("Div", [size, graph.constant(graph.random.choice([1, 2]))]))
    nodes = [
        helper.make_node("Identity", ["going"], ["continues"]),
        helper.make_node("Gather", [x, "number"], ["row"], axis=0),
        helper.make_node("Add", ["state", "row"], ["next"]),
        helper.make_node("Identity", ["next"], ["collected"]),
    ]
    names = ("number", "going", "state", "continues", "next", "collected")
    infos = [helper.make_empty_tensor_value_info(n) for n in names]
    body = helper.make_graph(nodes, "body", infos[:3], infos[3:])
    initial = graph.constant(np.zeros(graph.values[x].shape[1:]), np.float32)
    graph.append("Loop", [limit, "", initial], 2, [x], body=body)


def unique(graph: Graph) -> None:
    """Distinct elements, then an operation on their data-dependent number: reshape, concatenation, split or broadcast."""
    if (x := graph.value(lambda v: v.ndim > 0)) is None:
        return
    distinct = _first(graph.append("Unique", [x], 1, sorted=1))
    kind = graph.random.choice(["", "reshape", "concat", "pad", "broadcast", "product"])
    if kind == "reshape":
        graph.append("Reshape", [distinct, graph.constant(graph.random.choice([[-1, 1], [1, -1], [-1, 2]]))])
    elif kind == "concat":
        graph.append("Concat", [distinct, distinct], axis=0)
    elif kind == "pad":
        graph.append("Pad", [distinct, graph.constant([1, 2])])
    elif kind == "broadcast":
        column = _first(graph.append("Unsqueeze", [distinct, graph.constant([1])]))
        graph.append("Mul", [column, distinct])
    elif kind == "product":
        column = _first(graph.append("Reshape", [distinct, graph.constant([-1, 1])]))
        graph.append("MatMul", [distinct, column])


def computed_count(graph: Graph) -> None:
    """Numbers, rows, repetitions, largest elements or iterations, as many as a computed size, which may be negative."""
    if (x := graph.value(lambda v: v.ndim > 0)) is None:
        return
    draw, rank = graph.random, graph.values[x].ndim
    axis = draw.randrange(rank)
    scaled = _first(graph.append("Mul", [_size(graph, x, axis), graph.constant([draw.choice([1, 1, 2])])]))
    count = _first(graph.append("Sub", [scaled, graph.constant([draw.choice([0, 1, 4])])]))
    if draw.random() < 0.4:
        count = _first(graph.append("Div", [count, graph.constant([draw.choice([2, 3])])]))
    kind = draw.choice(["range", "rows", "tile", "largest", "loop"])
    if kind == "rows":
        graph.append("ConstantOfShape", [count])
    elif kind == "tile":
        graph.append("Tile", [x, _first(graph.append("Concat", [*[graph.constant([1])] * (rank - 1), count], axis=0))])
    elif kind == "largest":
        graph.append("TopK", [x, count], 2, axis=axis)
    else:
        number = _first(graph.append("Squeeze", [count, graph.constant([0])]))
        if kind == "range":
            numbers = _first(graph.append("Range", [graph.constant(0), number, graph.constant(draw.choice([1, 2]))]))
            graph.append("Cast", [numbers], to=TensorProto.FLOAT)
            return
        nodes = [helper.make_node("Identity", ["going"], ["continues"]), helper.make_node("Neg", ["state"], ["next"])]
        infos = [helper.make_empty_tensor_value_info(n) for n in ("number", "going", "state", "continues", "next")]
        graph.append("Loop", [number, "", x], 1, body=helper.make_graph(nodes, "body", infos[:3], infos[3:]))


def equal_sizes(graph: Graph) -> None:
    """A branch on whether derived sizes are equal, or operands of derived sizes that must be: 2N == M + 1, N * K == M."""
    draw = graph.random
    x, y = (graph.value(lambda v: v.ndim > 0) for _ in range(2))
    if x is None or y is None:
        return
    if draw.random() < 0.5:
        flat, other = (_first(graph.append("Reshape", [v, graph.constant([-1])])) for v in (x, y))
        doubled = _first(graph.append("Concat", [flat, flat], axis=0))
        longer = _first(graph.append("Pad", [other, graph.constant([draw.choice([0, 1]), draw.choice([0, 1])])]))
        graph.append("Add", [draw.choice([flat, doubled]), longer])
        return
    doubled = _first(graph.append("Mul", [_size(graph, x, 0), graph.constant([2])]))
    next_size = _first(graph.append("Add", [_size(graph, y, -1), graph.constant([1])]))
    condition = _first(graph.append(draw.choice(["Equal", "Less"]), [doubled, next_size]))
    bodies = [
        helper.make_graph(
            [helper.make_node(op, [x], [f"{op}_result"])], op, [], [helper.make_empty_tensor_value_info(f"{op}_result")]
        )
        for op in ("Neg", "Abs")
    ]
    graph.append("If", [condition], 1, [x], then_branch=bodies[0], else_branch=bodies[1])


def composed(graph: Graph) -> None:
    """A product with a bias, a selection, a reversal, a crop, a matrix of ones, or a normalization of channels."""
    if (x := graph.value(lambda v: v.ndim > 1)) is None or (y := graph.value()) is None:
        return
    draw, shape = graph.random, graph.values[x].shape
    axis = draw.randrange(len(shape))
    ones = graph.constant(np.ones(shape[1]), np.float32)
    match draw.choice(
        ["gemm", "where", "reverse", "split", "crop", "eye", "group", "batch", "lrn", "logsumexp", "dft", "prelu"]
    ):
        case "gemm":
            graph.append("Gemm", [x, y], transA=draw.choice([0, 1]), transB=draw.choice([0, 1]), alpha=0.5)
        case "where":
            graph.append("Where", [_first(graph.append("Greater", [x, y])), x, y])
        case "reverse":
            lengths = graph.constant([draw.randint(1, max(shape[0], 1)) for _ in range(shape[1])])
            graph.append("ReverseSequence", [x, lengths], batch_axis=1, time_axis=0)
        case "split":
            graph.append("Split", [x], count := draw.choice([2, 3]), axis=axis, num_outputs=count)
        case "crop":
            graph.append(
                "CenterCropPad", [x, _size(graph, y, -1) if graph.values[y].ndim else graph.constant([4])], axes=[axis]
            )
        case "eye":
            graph.append("EyeLike", [x], k=draw.choice([-1, 0, 2]))
        case "group":
            count = draw.choice([1, shape[1] or 1])
            scale = graph.constant(np.ones(count), np.float32)
            graph.append("GroupNormalization", [x, scale, scale], num_groups=count)
        case "batch":
            graph.append("BatchNormalization", [x, ones, ones, ones, ones])
        case "lrn":
            graph.append("LRN", [x], size=3)
        case "logsumexp":
            graph.append("ReduceLogSumExp", [x, graph.constant([axis])], keepdims=draw.choice([0, 1]))
        case "dft":
            signal = _first(graph.append("Unsqueeze", [x, graph.constant([-1])]))
            spectrum = _first(graph.append("DFT", [signal], axis=len(shape) - 1, onesided=draw.choice([0, 1])))
            graph.append("ReduceSum", [spectrum, graph.constant([-1, -2])])
        case _:
            graph.append("PRelu", [x, graph.constant(np.full(shape[-1], 0.5), np.float32)])


RECIPES = (
    dilated_pool, transposed_conv, global_pool, resize, depth_to_space, indexed, one_hot, sized_slice, sized_reshape, attention,
    normalize, quantize, recurrence, nested_branch, growing_loop, unique, computed_count, equal_sizes,
    composed,
)  # fmt: skip
