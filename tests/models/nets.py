"""Networks as code, in the form in which exporters write them, with random weights of realistic scale.

    python -m tests.models.nets densenet121 densenet121.onnx      writes one

`Graph` collects nodes; each network is a function with size parameters, so that tests can make it small.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Array = NDArray[Any]


class Value(NamedTuple):
    """A tensor with its number of channels or features."""

    name: str
    width: int


class Graph:
    """The nodes and weights of a model under construction."""

    def __init__(self, name: str, **inputs: Sequence[int]) -> None:
        self.name, self.inputs = name, inputs
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, Array] = {}
        self.random = np.random.default_rng(0)

    def input(self, name: str, axis: int = 1) -> Value:
        return Value(name, self.inputs[name][axis])

    def weight(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(array)
        return name

    def normal(self, shape: Sequence[int], scale: float, mean: float = 0.0) -> str:
        return self.weight(self.random.standard_normal(shape, np.float32) * np.float32(scale) + np.float32(mean))

    def node(self, op: str, *inputs: str | Value, width: int = 0, **attributes: Any) -> Value:
        """Add a node; its result has as many channels as its first input, unless stated."""
        names = [given.name if isinstance(given, Value) else given for given in inputs]
        output = f"/{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [output], name=output, **attributes))
        return Value(output, width or (inputs[0].width if isinstance(inputs[0], Value) else 0))

    def conv(
        self, x: Value, width: int, size: int = 3, stride: int = 1, groups: int = 1, dims: int = 2, bias: bool = False
    ) -> Value:
        """A convolution with "same" padding."""
        kernel, fan_in = [size] * dims, x.width // groups * size**dims
        weights = [self.normal((width, x.width // groups, *kernel), (2 / fan_in) ** 0.5)]
        weights += [self.normal((width,), 0.02)] if bias else []
        pads, steps = [size // 2] * 2 * dims, [stride] * dims
        return self.node("Conv", x, *weights, width=width, kernel_shape=kernel, pads=pads, strides=steps, group=groups)

    def up_conv(self, x: Value, width: int, gain: float = 1.0) -> Value:
        """Upsample by two with a 2×2 transposed convolution."""
        weights = self.normal((x.width, width, 2, 2), gain * (2 / x.width) ** 0.5), self.normal((width,), 0.02)
        return self.node("ConvTranspose", x, *weights, width=width, kernel_shape=[2, 2], strides=[2, 2])

    def batch_norm(self, x: Value) -> Value:
        scale, mean = self.normal((x.width,), 0.1, 0.9), self.normal((x.width,), 0.1)
        spread = self.weight(self.random.uniform(0.8, 1.2, x.width).astype(np.float32))
        return self.node("BatchNormalization", x, scale, self.normal((x.width,), 0.1), mean, spread)

    def conv_norm(self, x: Value, width: int, size: int = 3, stride: int = 1, groups: int = 1, act: str = "Relu") -> Value:
        y = self.batch_norm(self.conv(x, width, size, stride, groups))
        return self.node(act, y) if act else y

    def pool(self, op: str, x: Value, size: int, stride: int, pad: int = 0) -> Value:
        return self.node(op, x, kernel_shape=[size] * 2, strides=[stride] * 2, pads=[pad] * 4)

    def enlarged(self, x: Value, factor: int) -> Value:
        """Nearest-neighbor upsampling, as `nn.functional.interpolate` exports it."""
        form: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self.node("Resize", x, "", self.weight(np.array([1, 1, factor, factor], np.float32)), **form)

    def concat(self, *parts: Value, axis: int = 1) -> Value:
        return self.node("Concat", *parts, width=sum(part.width for part in parts), axis=axis)

    def linear(self, x: Value, width: int, bias: bool = True) -> Value:
        y = self.node("MatMul", x, self.normal((x.width, width), x.width**-0.5), width=width)
        return self.node("Add", self.normal((width,), 0.02), y, width=width) if bias else y

    def gemm(self, x: Value, width: int) -> Value:
        weights = self.normal((width, x.width), (2 / x.width) ** 0.5), self.normal((width,), 0.02)
        return self.node("Gemm", x, *weights, width=width, transB=1)

    def scalar(self, number: float) -> str:
        return self.weight(np.float32(number))

    def gelu(self, x: Value) -> Value:
        """GELU in the form before opset 20."""
        erf = self.node("Erf", self.node("Div", x, self.scalar(2**0.5)))
        return self.node("Mul", self.node("Mul", x, self.node("Add", erf, self.scalar(1))), self.scalar(0.5))

    def layer_norm(self, x: Value) -> Value:
        return self.node(
            "LayerNormalization", x, self.normal((x.width,), 0.05, 1), self.normal((x.width,), 0.05), axis=-1, epsilon=1e-5
        )

    def layer_norm_in_parts(self, x: Value) -> Value:
        """Layer normalization in the form before opset 17."""
        centred = self.node("Sub", x, self.node("ReduceMean", x, axes=[-1]))
        variance = self.node("ReduceMean", self.node("Pow", centred, self.scalar(2)), axes=[-1])
        y = self.node("Div", centred, self.node("Sqrt", self.node("Add", variance, self.scalar(1e-5))))
        return self.node("Add", self.node("Mul", y, self.normal((x.width,), 0.05, 1)), self.normal((x.width,), 0.05))

    def reshaped(self, x: Value, *shape: int) -> Value:
        return self.node("Reshape", x, self.weight(np.array(shape)))

    def attention(self, x: Value, length: int, heads: int) -> Value:
        """Multi-head `scaled_dot_product_attention`, with scaled queries and keys; keys have no bias, as in Whisper."""
        depth = x.width // heads

        def split(part: Value, *order: int) -> Value:
            return self.node("Transpose", self.reshaped(part, 1, length, heads, depth), perm=order)

        query, key, value = (self.linear(x, x.width, bias=k != 1) for k in range(3))
        scale = self.scalar(depth**-0.25)
        query, key = self.node("Mul", split(query, 0, 2, 1, 3), scale), self.node("Mul", split(key, 0, 2, 3, 1), scale)
        weights = self.node("Softmax", self.node("MatMul", query, key), axis=-1)
        mixed = self.node("Transpose", self.node("MatMul", weights, split(value, 0, 2, 1, 3)), perm=[0, 2, 1, 3])
        return self.linear(self.reshaped(mixed, 1, length, x.width)._replace(width=x.width), x.width)

    def model(self, *outputs: Value, opset: int = 17) -> ModelProto:
        def info(name: str, shape: Sequence[int] | None = None) -> Any:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

        graph = helper.make_graph(
            self.nodes,
            self.name,
            [info(name, shape) for name, shape in self.inputs.items()],
            [info(output.name) for output in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _audio_layers(g: Graph, frames: int, width: int, heads: int, layers: int) -> Value:
    """Whisper's encoder: two 1-D convolutions, position embeddings, pre-norm layers."""
    x = g.gelu(g.conv(g.input("features"), width, dims=1, bias=True))
    x = g.node("Transpose", g.gelu(g.conv(x, width, stride=2, dims=1, bias=True)), perm=[0, 2, 1])
    x = g.node("Add", x, g.normal((frames // 2, width), 0.5))
    for _ in range(layers):
        x = g.node("Add", x, g.attention(g.layer_norm(x), frames // 2, heads))
        x = g.node("Add", x, g.linear(g.gelu(g.linear(g.layer_norm(x), 4 * width)), width))
    return g.layer_norm(x)


def whisper_encoder(frames: int = 3000, width: int = 384, heads: int = 6, layers: int = 4) -> ModelProto:
    g = Graph("whisper_encoder", features=(1, 80, frames))
    return g.model(_audio_layers(g, frames, width, heads, layers))


def audio_turns(frames: int = 800, width: int = 384, heads: int = 6, layers: int = 4) -> ModelProto:
    """Turn detection: whether a speaker has finished. Whisper's encoder, attention pooling, a classifier."""
    g = Graph("audio_turns", features=(1, 80, frames))
    x = _audio_layers(g, frames, width, heads, layers)
    weights = g.node("Softmax", g.linear(g.node("Tanh", g.linear(x, 256)), 1), axis=1)
    x = g.node("ReduceSum", g.node("Mul", x, weights), g.weight(np.array([1])), keepdims=0)
    x = g.gelu(g.gemm(g.gelu(g.layer_norm(g.gemm(x, 256))), 64))
    return g.model(g.node("Sigmoid", g.gemm(x, 1)))


def encoder_1024(length: int = 1024, width: int = 512, heads: int = 8, layers: int = 4) -> ModelProto:
    """A post-norm transformer encoder, in the form before opset 17."""
    g = Graph("encoder_1024", x=(1, length, width))
    x = g.input("x", axis=2)
    for _ in range(layers):
        x = g.layer_norm_in_parts(g.node("Add", x, g.attention(x, length, heads)))
        x = g.layer_norm_in_parts(g.node("Add", x, g.linear(g.gelu(g.linear(x, 4 * width)), width)))
    return g.model(x, opset=14)


def _text_map(g: Graph, levels: Sequence[Value], width: int) -> ModelProto:
    """A text detection head: a feature pyramid, and a map of the size of the image."""
    inner = [g.conv(level, width, 1) for level in levels]
    for k in range(len(inner) - 2, -1, -1):
        inner[k] = g.node("Add", inner[k], g.enlarged(inner[k + 1], 2))
    parts = [g.conv(level, width // 4) for level in inner]
    x = g.concat(*(g.enlarged(part, 2**k) if k else part for k, part in reversed([*enumerate(parts)])))
    x = g.conv_norm(x, width // 4)
    x = g.node("Relu", g.batch_norm(g.up_conv(x, width // 4)))
    return g.model(g.node("Sigmoid", g.up_conv(x, 1, gain=0.1)))


def ocr_detector(size: int = 640, width: int = 32) -> ModelProto:
    """Differentiable binarization with a ResNet-18 backbone of half width."""
    g = Graph("ocr_detector", x=(1, 3, size, size))
    x = g.pool("MaxPool", g.conv_norm(g.input("x"), width, 7, 2), 3, 2, 1)
    levels: list[Value] = []
    for k in range(4):
        for block in range(2):
            stride, wide = 2 if k and not block else 1, width << k
            y = g.conv_norm(g.conv_norm(x, wide, stride=stride), wide, act="")
            x = g.conv_norm(x, wide, 1, stride, act="") if stride == 2 else x
            x = g.node("Relu", g.node("Add", y, x))
        levels.append(x)
    return _text_map(g, levels, 4 * width)


def ocr_detector_mobile(size: int = 640, width: int = 96) -> ModelProto:
    """Differentiable binarization with a MobileNetV3 backbone of half width."""
    g = Graph("ocr_detector_mobile", x=(1, 3, size, size))
    x, levels = g.conv_norm(g.input("x"), 8, stride=2, act="HardSwish"), list[Value]()
    blocks = [(8, 8, 1), (32, 16, 2), (40, 16, 1), (40, 24, 2), (64, 24, 1), (64, 24, 1), (120, 40, 2), (104, 40, 1)]
    for wide, out, stride in [*blocks, (96, 40, 1), (240, 56, 1), (336, 56, 1), (336, 80, 2), (480, 80, 1), (480, 80, 1)]:
        levels += [x] if stride == 2 and x.width > 8 else []
        act = "Relu" if out < 40 else "HardSwish"
        y = g.conv_norm(g.conv_norm(x, wide, 1, act=act), wide, 5 if out in (24, 80) else 3, stride, wide, act=act)
        y = g.conv_norm(y, out, 1, act="")
        x = g.node("Add", x, y) if stride == 1 and out == x.width else y
    return _text_map(g, [*levels, g.conv_norm(x, 480, 1, act="HardSwish")], width)


def speech_quality(frames: int = 900, bands: int = 120, width: int = 32) -> ModelProto:
    """Three quality scores of a recording, from convolutions of its spectrogram."""
    g = Graph("speech_quality", x=(1, 1, frames, bands))
    x = g.input("x")
    for wide, pooled in ((4, False), (2, False), (2, False), (1, True), (1, True), (1, True), (2, False)):
        x = g.conv_norm(x, wide * width)
        x = g.pool("MaxPool", x, 2, 2) if pooled else x
    x = g.node("Flatten", g.node("GlobalMaxPool", x))
    return g.model(g.gemm(g.node("Relu", g.gemm(g.node("Relu", g.gemm(x, 128)), 64)), 3))


def unet(size: int = 256, width: int = 32, depth: int = 4) -> ModelProto:
    """Image segmentation: an encoder and decoder with skip connections."""
    g = Graph("unet", x=(1, 3, size, size))

    def twice(x: Value, width: int) -> Value:
        return g.conv_norm(g.conv_norm(x, width), width)

    x, skips = g.input("x"), list[Value]()
    for k in range(depth):
        skips.append(twice(x, width << k))
        x = g.pool("MaxPool", skips[-1], 2, 2)
    x = twice(x, width << depth)
    for skip in reversed(skips):
        x = twice(g.concat(g.up_conv(x, skip.width), skip), skip.width)
    return g.model(g.node("Sigmoid", g.conv(x, 1, 1, bias=True)))


def densenet121(size: int = 224, blocks: Sequence[int] = (6, 12, 24, 16)) -> ModelProto:
    g = Graph("densenet121", x=(1, 3, size, size))
    x = g.pool("MaxPool", g.conv_norm(g.input("x"), 64, 7, 2), 3, 2, 1)
    for k, layers in enumerate(blocks):
        parts = [x]
        for _ in range(layers):
            y = g.concat(*parts) if len(parts) > 1 else x
            y = g.conv_norm(g.node("Relu", g.batch_norm(y)), 128, 1)
            parts.append(g.conv(y, 32))
        x = g.node("Relu", g.batch_norm(g.concat(*parts)))
        x = g.pool("AveragePool", g.conv(x, x.width // 2, 1), 2, 2) if k < len(blocks) - 1 else x
    return g.model(g.gemm(g.node("Flatten", g.node("GlobalAveragePool", x)), 1000))


def vgg16(size: int = 224, width: int = 64, hidden: int = 4096) -> ModelProto:
    g = Graph("vgg16", x=(1, 3, size, size))
    x = g.input("x")
    for k, convolutions in enumerate((2, 2, 3, 3, 3)):
        for _ in range(convolutions):
            x = g.node("Relu", g.conv(x, width << min(k, 3), bias=True))
        x = g.pool("MaxPool", x, 2, 2)
    x = g.node("Flatten", x)._replace(width=x.width * (size // 32) ** 2)
    return g.model(g.gemm(g.node("Relu", g.gemm(g.node("Relu", g.gemm(x, hidden)), hidden)), 1000))


NETS: dict[str, Callable[[], ModelProto]] = {
    net.__name__: net
    for net in (
        *(whisper_encoder, audio_turns, encoder_1024, ocr_detector, ocr_detector_mobile),
        *(speech_quality, unet, densenet121, vgg16),
    )
}


if __name__ == "__main__":
    onnx.save(NETS[sys.argv[1]](), sys.argv[2])
