"""Nodes of arithmetic: activations, normalizations, products, losses, quantization, recurrent layers, transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.attribute_nodes import AttributeNode, Draw, NodeDraw

_ACTIVATIONS: dict[str, tuple[int, dict[str, tuple[Any, ...]]]] = {
    "Elu": (6, {"alpha": (0.5, -1.0, 2.0, 0.0)}),
    "LeakyRelu": (6, {"alpha": (0.5, -0.5, 0.0, 1.5)}),
    "HardSigmoid": (6, {"alpha": (0.5, -0.2, 0.0), "beta": (0.5, 1.5, -1.0)}),
    "Selu": (6, {"alpha": (1.0, -1.0), "gamma": (2.0, -0.5)}),
    "ThresholdedRelu": (10, {"alpha": (0.5, 0.0, -1.0)}),
    "Celu": (12, {"alpha": (0.5, 2.0, 1.0)}),
    "Shrink": (9, {"lambd": (0.0, 0.7, 1.5), "bias": (0.5, -0.5)}),
    "Gelu": (20, {"approximate": ("none", "tanh")}),
    "HardSwish": (14, {}),
    "Mish": (18, {}),
    "Softplus": (1, {}),
    "Softsign": (1, {}),
    "IsInf": (10, {"detect_negative": (0, 1), "detect_positive": (0, 1)}),
}


# The default alpha of ThresholdedRelu is 1 in the specification and 0 in ONNX Runtime; unbounded activations overflow.
_RECURRENT_ACTIVATIONS = ("Sigmoid", "Tanh", "Relu", "Softsign", "HardSigmoid", "Elu", "LeakyRelu", "ScaledTanh")


def _activation(d: Draw) -> AttributeNode:
    op = d.choice(*_ACTIVATIONS)
    opset, choices = _ACTIVATIONS[op]
    x = d.floats(d.shape(d.size(0, 3)), scale=2)
    if op == "IsInf":
        x = np.where(d.rng.random(x.shape) < 0.5, np.float32(np.inf) * np.sign(x), x).astype(np.float32)
    attributes = {name: d.maybe(d.choice(*values), 0.7) for name, values in choices.items()}
    return AttributeNode(op, attributes, [x], max(opset, 13))


def _softmax(d: Draw) -> AttributeNode:
    rank, op, opset = d.size(1, 4), d.choice("Softmax", "LogSoftmax", "Hardmax"), d.choice(11, 13)
    x = d.floats(d.shape(rank)) if op != "Hardmax" else d.integers(d.shape(rank), -1, 1, np.float32)
    return AttributeNode(op, {"axis": d.maybe(d.axis(rank), 0.8)}, [x], opset)


def _gemm(d: Draw) -> AttributeNode:
    m, k, n = d.shape(3)
    attributes = {
        "transA": d.maybe(d.flag()),
        "transB": d.maybe(d.flag()),
        "alpha": d.maybe(d.choice(0.0, 0.5, -2.0)),
        "beta": d.maybe(d.choice(0.0, 0.5, -2.0)),
    }
    a, b = ([k, m] if attributes["transA"] else [m, k]), ([n, k] if attributes["transB"] else [k, n])
    c = d.maybe(d.floats(d.choice([n], [m, n], [1, n], [m, 1], [1], [])), 0.7)
    return AttributeNode("Gemm", attributes, [d.floats(a), d.floats(b), c], 13, constants=d.choice((), (1,), (1, 2)))


def _matmul(d: Draw) -> AttributeNode:
    k, batch = d.size(), d.shape(d.size(0, 2), 1, 3)
    a = d.choice([k], [d.size(), k], [*batch, d.size(), k])
    b = d.choice([k], [k, d.size()], [*[n if d.flag() else 1 for n in batch][d.flag() :], k, d.size()])
    return AttributeNode("MatMul", {}, [d.floats(a), d.floats(b)], 13, constants=d.choice((), (1,)))


def _einsum(d: Draw) -> AttributeNode:
    equation, count = d.choice(
        ("ij,jk->ik", 2), ("...ij,...jk->...ik", 2), ("ij->ji", 1), ("ii->i", 1), ("ii", 1), ("ij,ij", 2), ("i,j->ji", 2),
        ("bij,bjk,bkl->bil", 3), ("i j , j k -> k i", 2), ("...i->...", 1), ("ij->", 1), ("iij->j", 1), ("ik,jk->", 2),
    )  # fmt: skip
    size = d.size(1, 4)
    terms = equation.replace(" ", "").split("->")[0].split(",")
    inputs = [d.floats([size] * (len(t.replace("...", "")) + (1 if "..." in t else 0))) for t in terms]
    assert len(inputs) == count
    return AttributeNode("Einsum", {"equation": equation}, inputs, 12)


def _normalization(d: Draw) -> AttributeNode:
    # A scale that must be broadcast crashes ONNX Runtime.
    op = d.choice(
        "BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization", "LpNormalization",
        "MeanVarianceNormalization", "RMSNormalization",
    )  # fmt: skip
    shape, epsilon = [d.size(1, 3), 4, *d.shape(d.size(1, 3))], d.maybe(d.choice(1e-3, 0.5))
    x, channel = d.floats(shape), lambda: d.floats([4])
    if op == "BatchNormalization":
        inputs = [x, channel(), channel(), channel(), np.abs(channel()) + np.float32(0.1)]
        return AttributeNode(
            op, {"epsilon": epsilon, "momentum": d.maybe(0.5)}, inputs, 15, constants=d.choice((), (1, 2, 3, 4))
        )
    if op == "InstanceNormalization":
        return AttributeNode(op, {"epsilon": epsilon}, [x, channel(), channel()], 6, tolerance=1e-4)
    if op in ("LayerNormalization", "RMSNormalization"):
        axis = d.axis(len(shape))
        scale = shape[axis:]
        outputs = d.choice(1, 3) if op[0] == "L" else 1
        attributes = {"axis": axis if axis != -1 else d.maybe(-1), "epsilon": epsilon, "stash_type": d.maybe(1)}
        inputs = [x, d.floats(scale), *([d.maybe(d.floats(scale))] if op[0] == "L" else [])]
        return AttributeNode(op, attributes, inputs, 17 if op[0] == "L" else 23, outputs, tolerance=1e-4)
    if op == "GroupNormalization":
        attributes = {"num_groups": d.choice(1, 2, 4), "epsilon": epsilon}
        return AttributeNode(op, attributes, [x, channel(), channel()], 21, tolerance=1e-4)
    if op == "LpNormalization":
        return AttributeNode(op, {"axis": d.maybe(d.axis(len(shape))), "p": d.maybe(d.choice(1, 2))}, [x], 1 + 12)
    return AttributeNode(op, {"axes": d.maybe(d.axes(4))}, [d.floats([2, 4, 3, 3])], 13, tolerance=1e-4)


def _loss(d: Draw) -> AttributeNode:
    classes, rest = d.size(2, 5), d.shape(d.size(0, 2))
    shape = [d.size(1, 4), classes, *rest]
    labels = d.integers([shape[0], *rest], 0, classes - 1, d.choice(np.int32, np.int64))
    ignored = d.maybe(d.choice(0, 1, -1, 255))
    if ignored is not None and ignored not in range(classes):
        labels[d.rng.random(labels.shape) < 0.4] = ignored
        labels.reshape(-1)[0] = 0
    attributes = {"reduction": d.maybe(d.choice("none", "sum", "mean")), "ignore_index": ignored}
    weights = d.maybe(np.abs(d.floats([classes])) + np.float32(0.1))
    op = d.choice("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
    return AttributeNode(op, attributes, [d.floats(shape), labels, weights], 13, d.choice(1, 2) if op[0] == "S" else 1)


def _quantize(d: Draw) -> AttributeNode:
    rank, op = d.size(1, 3), d.choice("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
    shape, dtype = d.shape(rank), d.choice(np.uint8, np.int8, np.uint16, np.int16)
    if op == "DynamicQuantizeLinear":
        return AttributeNode(op, {}, [d.floats(shape)], 11, 3, tolerance=1e-6)
    axis, form = d.axis(rank), d.choice("tensor", "axis", "block")
    size, block = [], None
    if form == "axis":
        size = [shape[axis]]
    elif form == "block":
        block = d.size(1, 3)
        size = list(shape)
        size[axis] = -(-shape[axis] // block)
    scale = (2.0 ** d.integers(size, -3, 1)).astype(np.float32)
    zero = d.maybe(d.array(size, dtype), 0.8)
    x = d.floats(shape, scale=5) if op[0] == "Q" else d.array(shape, np.uint8 if zero is None and op[0] == "Q" else dtype)
    attributes = {"axis": axis if form != "tensor" else d.maybe(axis), "block_size": block}
    return AttributeNode(
        op, attributes, [x, scale, zero], 21, constants=d.choice((), (1, 2)), tolerance=0 if op[0] == "Q" else 1e-6
    )


def _integer_product(d: Draw) -> AttributeNode:
    m, k, n = d.shape(3)
    a, b = d.choice(np.uint8, np.int8), d.choice(np.uint8, np.int8)
    if d.flag():
        shape = d.choice([m, k], [2, m, k])
        zeros = [d.maybe(d.array(d.choice([], [1]), a)), d.maybe(d.array(d.choice([], [n]), b))]
        return AttributeNode(
            "MatMulInteger", {}, [d.array(shape, a), d.array([k, n], b), *zeros], 10, constants=(1, 3), tolerance=0
        )
    pads, strides = d.maybe(d.sizes(4, 0, 1)), d.maybe(d.shape(2, 1, 2))
    inputs = [d.array([1, 2, 6, 5], a), d.array([3, 2, *d.shape(2, 1, 3)], b)]
    inputs += [d.maybe(d.array([], a)), d.maybe(d.array([], b))]
    return AttributeNode("ConvInteger", {"pads": pads, "strides": strides}, inputs, 10, constants=(1, 3), tolerance=0)


def _recurrent(d: Draw) -> AttributeNode:
    op, direction = d.choice("LSTM", "GRU", "RNN"), d.choice(None, "forward", "reverse", "bidirectional")
    directions, layout = 2 if direction == "bidirectional" else 1, d.maybe(0)
    steps, batch, size, hidden = d.size(1, 4), d.size(1, 3), d.size(1, 4), d.size(1, 4)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    names = {"LSTM": 3, "GRU": 2, "RNN": 1}[op]
    activations = [d.choice(*_RECURRENT_ACTIVATIONS) for _ in range(names)] * directions
    with_parameters = d.flag()
    attributes = {
        "hidden_size": hidden,
        "direction": direction,
        "activations": activations if with_parameters else d.maybe(activations, 0.4),
        "activation_alpha": [d.choice(0.5, 0.25) for _ in activations] if with_parameters else None,
        "activation_beta": [d.choice(0.5, 0.75) for _ in activations] if with_parameters else None,
        "clip": d.maybe(0.5, 0.3),
        "layout": layout,
        "linear_before_reset": d.maybe(d.flag()) if op == "GRU" else None,
        "input_forget": d.maybe(d.flag(), 0.3) if op == "LSTM" else None,
    }
    state = [directions, batch, hidden]
    inputs = [
        d.floats([steps, batch, size]),
        d.floats([directions, gates * hidden, size], scale=0.5),
        d.floats([directions, gates * hidden, hidden], scale=0.5),
        d.maybe(d.floats([directions, 2 * gates * hidden])),
        d.maybe(d.integers([batch], 1, steps, np.int32), 0.4),
        d.maybe(d.floats(state)),
    ]
    if op == "LSTM":
        inputs += [d.maybe(d.floats(state)), d.maybe(d.floats([directions, 3 * hidden]))]
    return AttributeNode(
        op, attributes, inputs, 14, 3 if op == "LSTM" else 2, constants=d.choice((), (1, 2, 3)), tolerance=1e-4
    )


def _elementwise(d: Draw) -> AttributeNode:
    op = d.choice("Mod", "BitShift", "PRelu", "Clip", "Pow", "Cast", "Range")
    if op == "Mod":
        fmod = d.flag()
        dtype = d.choice(np.float32, np.int32, np.int8) if fmod else d.choice(np.int32, np.int64, np.uint8, np.int8)
        divisor = d.array([4], dtype)
        divisor[divisor == 0] = 3
        return AttributeNode(op, {"fmod": fmod or d.maybe(0)}, [d.array([3, 4], dtype), divisor], 13, tolerance=1e-5)
    if op == "BitShift":
        dtype = d.choice(np.uint8, np.uint32, np.uint64)
        inputs = [d.integers([4], 0, 200, dtype), d.integers([4], 0, 7, dtype)]
        return AttributeNode(op, {"direction": d.choice("LEFT", "RIGHT")}, inputs, 11, tolerance=0)
    if op == "PRelu":
        shape = d.shape(3)
        return AttributeNode(op, {}, [d.floats(shape), d.floats(d.choice(shape, shape[1:], shape[2:], [1], [shape[1], 1]))], 16)
    if op == "Clip":
        dtype = d.choice(np.float32, np.int32, np.int64, np.uint8)
        bounds = [d.maybe(np.array(b, dtype)) for b in d.choice((1, 4), (4, 1), (2, 2))]
        return AttributeNode(op, {}, [d.array([5], dtype), *bounds], 13, constants=d.choice((), (1, 2)), tolerance=0)
    if op == "Pow":
        base, exponent = d.choice(
            (np.float32, np.int32), (np.int32, np.int32), (np.int64, np.float32), (np.float32, np.float32)
        )
        return AttributeNode(op, {}, [np.abs(d.array([3, 4], base)), np.abs(d.array([4], exponent))], 15)
    if op == "Cast":
        source, to = (
            d.choice(*[np.float32, np.int32, np.uint8, np.bool_, np.int64, np.float64]),
            d.choice(1, 2, 3, 6, 7, 9, 10, 11),
        )
        return AttributeNode(
            op,
            {"to": to, "saturate": d.maybe(1)},
            [np.abs(d.array([5], source)) if source != np.bool_ else d.array([5], source)],
            19,
            tolerance=1e-3,
        )
    dtype = d.choice(np.int32, np.int64, np.float32, np.int16, np.float64)
    values = d.choice((0, 5, 1), (5, 0, -1), (1, 8, 3), (3, 3, 1), (5, 1, 2), (-3, 4, 2))
    return AttributeNode(op, {}, [np.array(v, dtype) for v in values], 11, constants=d.choice((), (0, 1, 2)))


def _transform(d: Draw) -> AttributeNode:
    op = d.choice("DFT", "DFT", "HannWindow", "HammingWindow", "BlackmanWindow", "STFT", "MelWeightMatrix")
    if op.endswith("Window"):
        size = np.array(d.size(1, 9), d.choice(np.int32, np.int64))
        attributes = {"periodic": d.maybe(d.flag()), "output_datatype": d.maybe(d.choice(1, 11))}
        return AttributeNode(op, attributes, [size], 17, constants=(0,))
    if op == "MelWeightMatrix":
        values = [np.array(v, np.int64) for v in (d.size(2, 8), d.choice(16, 32), 8000)]
        values += [np.array(0.0, np.float32), np.array(d.choice(2000.0, 4000.0), np.float32)]
        return AttributeNode(op, {"output_datatype": d.maybe(d.choice(1, 11))}, values, 17, constants=range(5), tolerance=1e-4)
    if op == "STFT":
        step, length = d.size(1, 4), d.size(2, 6)
        inputs = [
            d.floats([2, d.size(8, 12), 1]),
            np.array(step, np.int64),
            d.maybe(d.floats([length])),
            np.array(length, np.int64),
        ]
        return AttributeNode(op, {"onesided": d.maybe(d.flag())}, inputs, 17, constants=(1, 3), tolerance=1e-4)
    rank, opset = d.size(1, 2), d.choice(17, 20)
    parts, inverse = d.choice(1, 2), d.flag()
    onesided = d.flag() if parts == 1 and not inverse else 0
    x, length = d.floats([2, *d.shape(rank, 2, 7), parts]), d.maybe(np.array(d.size(2, 9), np.int64))
    axis = d.choice(*range(1, rank + 1), *range(-rank - 1, -1))
    attributes = {"inverse": inverse or d.maybe(0), "onesided": onesided or d.maybe(0)}
    if opset == 17:
        return AttributeNode(op, {**attributes, "axis": axis}, [x, length], 17, constants=(1,), tolerance=1e-4)
    return AttributeNode(op, attributes, [x, length, np.array(axis, np.int64)], 20, constants=(1, 2), tolerance=1e-4)


def _attention(d: Draw) -> AttributeNode:
    # Causal masks with past keys: ONNX Runtime aligns them at the first key, unlike the specification.
    batch, groups, heads, length, keys, size = (
        d.size(1, 2),
        d.size(1, 2),
        d.size(1, 2),
        d.size(1, 4),
        d.size(1, 5),
        d.size(1, 4),
    )
    queries = heads * groups
    value_size, past = d.choice(size, d.size(1, 4)), d.maybe(d.size(1, 3), 0.3)
    attributes = {
        "is_causal": None if past else d.maybe(d.flag()),
        "scale": d.maybe(d.choice(0.5, 1.5)),
        "softcap": d.maybe(d.choice(0.0, 2.0)),
        "softmax_precision": d.maybe(1),
    }
    q, k, v = (
        d.floats([batch, queries, length, size]),
        d.floats([batch, heads, keys, size]),
        d.floats([batch, heads, keys, value_size]),
    )
    mask_shape = d.choice([length, keys], [1, 1, length, keys], [batch, 1, length, keys], [batch, queries, length, keys])
    mask = None if past else d.maybe(d.choice(d.floats(mask_shape), d.rng.random(mask_shape) < 0.8))
    if d.flag():
        # Rank 3: heads are part of the last axis.
        q, k, v = (x.transpose(0, 2, 1, 3).reshape(batch, x.shape[2], -1) for x in (q, k, v))
        attributes |= {"q_num_heads": queries, "kv_num_heads": heads}
    inputs = [q, k, v, mask]
    if past:
        inputs += [d.floats([batch, heads, past, size]), d.floats([batch, heads, past, value_size])]
    return AttributeNode("Attention", attributes, inputs, 23, 3 if past else 1, tolerance=1e-4)


def _rotary(d: Draw) -> AttributeNode:
    batch, heads, length, size = d.size(1, 2), d.size(1, 3), d.size(1, 4), d.choice(2, 4, 8)
    rotated = d.maybe(d.choice(*[r for r in (2, 4, 8) if r <= size]), 0.4)
    half = (rotated or size) // 2
    x, positions = d.floats([batch, heads, length, size]), d.maybe(d.integers([batch, length], 0, 5))
    cache = [6, half] if positions is not None else [batch, length, half]
    attributes: dict[str, Any] = {"interleaved": d.maybe(d.flag()), "rotary_embedding_dim": rotated}
    if d.flag():
        x, attributes["num_heads"] = x.transpose(0, 2, 1, 3).reshape(batch, length, -1), heads
    return AttributeNode("RotaryEmbedding", attributes, [x, d.floats(cache), d.floats(cache), positions], 23)


ARITHMETIC: tuple[NodeDraw, ...] = (
    _activation, _activation, _softmax, _gemm, _matmul, _einsum, _normalization, _normalization, _loss, _quantize, _quantize,
    _integer_product, _recurrent, _recurrent, _elementwise, _elementwise, _transform, _attention, _rotary,
)  # fmt: skip
