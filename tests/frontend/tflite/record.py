"""Records what LiteRT computes, for tests without it: `python -m tests.frontend.tflite.record [NAME…]`, where tensorflow,
tf_keras, torch and ai-edge-litert are installed; of names only those files are made anew.

Functions of TensorFlow that its converter makes every operator of, as floats and as integers, small nets, and operators that
it does not make: each file with inputs and what LiteRT's own kernels make of them (its delegate for floats is another program)
goes to recorded.npz.xz. Several operators share a file, so that few are compiled.
"""

from __future__ import annotations

import io
import lzma
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
# Its LSTM converts to one operator.
os.environ["TF_USE_LEGACY_KERAS"] = "1"

import flatbuffers
import numpy as np
import tensorflow as tf
import torch
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from flatbuffers import flexbuffers

from dlc.frontend.tflite.schema import read_file

RECORDED = Path(__file__).parent / "recorded.npz.xz"
random = np.random.default_rng(0)
layers = tf.keras.layers
tf.keras.utils.set_random_seed(0)


def weights(*shape: int) -> Any:
    return tf.constant((random.standard_normal(shape) / 2).astype(np.float32))


# Functions, by name: a function, and the shapes of its arguments.
FUNCTIONS: dict[str, tuple[Callable[..., Any], Sequence[Any]]] = {}
KINDS = {**dict.fromkeys(("windows", "pointwise", "moving", "products"), ("float", "int8")), "weight_only": ("dynamic",)}


def of(*shapes: Sequence[int | None], dtype: Any = tf.float32) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS[function.__name__] = function, [tf.TensorSpec(s, dtype) for s in shapes]
        return function

    return register


@of((1, 6, 6, 4))
def windows(x: Any) -> Any:
    nn, grouped = tf.nn, weights(3, 3, 2, 4)
    up = weights(3, 3, 3, 4)
    each = weights(3, 3, 4, 2)
    return (
        nn.relu6(nn.bias_add(nn.conv2d(x, weights(3, 3, 4, 5), 2, "SAME"), weights(5))),
        nn.conv2d(x, weights(2, 2, 4, 3), 1, "VALID", dilations=2),
        nn.conv2d(x, grouped, 1, "SAME"),
        nn.relu(nn.depthwise_conv2d(x, each, [1, 1, 1, 1], "SAME")),
        nn.depthwise_conv2d(x, each, [1, 2, 2, 1], "VALID"),
        nn.depthwise_conv2d(x, each, [1, 1, 1, 1], "SAME", dilations=[2, 2]),
        nn.bias_add(nn.conv2d_transpose(x, up, [1, 12, 12, 3], 2, "SAME"), weights(3)),
        nn.conv2d_transpose(x, up, [1, 13, 13, 3], 2, "VALID"),
        nn.conv2d_transpose(x, up, [1, 11, 12, 3], 2, "SAME"),
        nn.max_pool2d(x, 3, 2, "SAME"),
        nn.max_pool2d(x, 2, 2, "VALID"),
        nn.avg_pool2d(x, 3, 2, "SAME"),
        nn.avg_pool2d(x, 2, 2, "VALID"),
    )


@of((2, 3, 4), (2, 3, 4))
def pointwise(x: Any, y: Any) -> Any:
    nn = tf.nn
    some = [x + y, x - y, x * y, nn.relu(x + y), x + weights(4), tf.maximum(x, y), tf.minimum(x, y)]
    more = [tf.tanh(x), tf.sigmoid(x), nn.relu(x), nn.relu6(x), nn.leaky_relu(x, 0.1), nn.elu(x), tf.exp(x), tf.abs(x), -x]
    hard = x * nn.relu6(x + 3.0) * (1 / 6.0)
    rows = [nn.softmax(x), hard, nn.relu(x) + weights(4) * -nn.relu(-x), tf.math.squared_difference(x, y)]
    return [*some, *more, *rows]


@of((1, 4, 6, 4), (1, 4, 6, 4))
def moving(x: Any, y: Any) -> Any:
    resize, v1 = tf.image.resize, tf.compat.v1.image
    amounts = [[0, 0], [1, 2], [2, 0], [0, 0]]
    return (
        tf.reshape(x, [4, -1]), tf.transpose(x, [0, 3, 1, 2]), tf.expand_dims(x, 2), tf.squeeze(x, 0), tf.tile(x, [1, 2, 1, 3]),
        tf.pad(x, amounts), tf.pad(x, amounts, "REFLECT"), tf.pad(x, amounts, "SYMMETRIC"), tf.pad(x, amounts, constant_values=-1.5),
        tf.concat([x, y], -1), tf.stack([x, y], 1), *tf.split(x, 2, -1), *tf.split(x, [1, 3, 2], 2), *tf.unstack(x, axis=1)[:2],
        x[:, 1:4:2, ::-1], x[0, ..., 2], x[:, -3:], x[..., tf.newaxis, 1:3], tf.slice(x, [0, 2, 1, 0], [1, 2, -1, 2]),
        tf.reverse(x, [1]), tf.gather(x, [3, 1, 1], axis=2), tf.gather_nd(x, [[0, 1], [0, 3]]),
        resize(x, [8, 5]), v1.resize_bilinear(x, [7, 11], align_corners=True), v1.resize_bilinear(x, [5, 9]),
        resize(x, [8, 5], "nearest"), v1.resize_nearest_neighbor(x, [7, 11], align_corners=True),
        v1.resize_nearest_neighbor(x, [5, 9]),
        tf.nn.space_to_depth(x, 2), tf.nn.depth_to_space(x, 2), tf.space_to_batch_nd(x, [2, 2], [[0, 0], [2, 0]]),
        tf.batch_to_space(tf.tile(x, [4, 1, 1, 1]), [2, 2], [[1, 0], [0, 1]]),
    )  # fmt: skip


@of((2, 3, 4), (2, 4, 5))
def products(x: Any, y: Any) -> Any:
    return (
        tf.matmul(x, y), tf.matmul(y, x, True, True), tf.nn.relu(tf.matmul(x[0], weights(4, 3)) + weights(3)),
        tf.einsum("abc,cd->abd", x, weights(4, 3)),
        tf.reduce_mean(x, [1, 2]), tf.reduce_sum(x, -1, keepdims=True), tf.reduce_max(x, [1]), tf.reduce_min(x, 2),
        tf.argmax(x, -1), tf.argmin(x, 1, output_type=tf.int32),
    )  # fmt: skip


@of((2, 3, 4), (2, 3, 4))
def floats(x: Any, y: Any) -> Any:
    m, positive = tf.math, tf.abs(x) + 0.1
    image = tf.reshape(x, [1, 2, 3, 4])
    return (
        x / (y * y + 1), m.floordiv(x, y), m.floormod(x, y), tf.pow(positive, y), m.log(positive), tf.sqrt(positive),
        m.rsqrt(positive), tf.square(x), tf.sin(x), tf.cos(x), tf.floor(x), m.ceil(x), tf.round(x), tf.sign(x),
        tf.nn.gelu(x, True), tf.clip_by_value(x, 0.0, 1.0), tf.clip_by_value(x, -1.0, 1.0), tf.nn.log_softmax(x),
        tf.nn.l2_normalize(x, -1), tf.nn.local_response_normalization(image, 1, 1.0, 0.1, 0.75), tf.add_n([x, y, x]),
        tf.nn.conv3d(tf.reshape(x, [1, 2, 2, 3, 2]), weights(2, 2, 2, 2, 3), [1, 1, 2, 2, 1], "SAME"),
        tf.reduce_prod(x, 1), tf.cumsum(x, 1), tf.cumsum(x, 2, exclusive=True, reverse=True), *m.top_k(x, 2),
        tf.reduce_any(x > 0, 1), tf.reduce_all(x > -1, 1), x < y, x <= y, x > y, x >= y, tf.equal(x, y), tf.not_equal(x, y),
        tf.logical_and(x > 0, y > 0), tf.logical_or(x > 0, y > 0), tf.logical_not(x > 0), tf.where(x > y, x, y),
        tf.cast(x, tf.int32), tf.cast(x > 0, tf.float32), tf.broadcast_to(x, [2, 2, 3, 4]),
        tf.scatter_nd([[1], [3]], x, [4, 3, 4]),
    )  # fmt: skip


@of((2, 3), (2, 3), dtype=tf.int32)
def integers(x: Any, y: Any) -> Any:
    m, places = tf.math, m_rows()
    return (
        x + y, x * y, x - y, m.floordiv(x, y + 1), m.floormod(x, y + 1), tf.maximum(x, y), tf.cast(x, tf.int64), tf.one_hot(x, 4),
        tf.gather(places, x), tf.gather(tf.stack([x, y, x], 1), x, batch_dims=1), tf.fill([2, 2], 3) + x[0, 0],
    )  # fmt: skip


def m_rows() -> Any:
    return weights(5, 3)


@of((2, 3))
def control(x: Any) -> Any:
    step = weights(3)
    loop = tf.while_loop(
        lambda k, v: (k < 5) & (tf.reduce_sum(v) < 1e3), lambda k, v: (k + 1, v * 1.5 + step), [tf.constant(0), x]
    )
    return (*loop, tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2.0, lambda: x - step))


@of((2, 4, 4, 12))
def weight_only(x: Any) -> Any:
    """Weights large enough for the converter to quantize them alone."""
    y = tf.nn.relu(tf.nn.conv2d(x, weights(3, 3, 12, 12), 2, "SAME"))
    return tf.matmul(tf.reshape(y, [2, 48]), weights(48, 24))


@of((1, None, None, 2))
def dynamic_image(x: Any) -> Any:
    """The amount of padding depends on the size."""
    return tf.nn.conv2d(x, weights(3, 3, 2, 3), 2, "SAME")


@of((None, 3, 4))
def dynamic_shapes(x: Any) -> Any:
    return tf.reshape(x, [tf.shape(x)[0], -1]) * 2.0


def net() -> Any:
    """A typical mobile network: an image of three channels, a depthwise block with a skip connection, a classifier."""
    inputs = layers.Input((12, 12, 3), batch_size=1)
    x = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu6")(inputs)
    y = layers.DepthwiseConv2D(3, padding="same")(x)
    y = layers.ReLU(6.0)(layers.BatchNormalization()(y))
    x = layers.Add()([x, layers.Conv2D(8, 1)(y)])
    x = layers.GlobalAveragePooling2D()(layers.MaxPool2D(2)(x))
    return tf.keras.Model(inputs, layers.Dense(5, activation="softmax")(x))


def recurrent() -> Any:
    """Two LSTMs, of which one returns the states of all steps."""
    inputs = layers.Input((6, 4), batch_size=2)
    return tf.keras.Model(inputs, layers.LSTM(3)(layers.LSTM(5, return_sequences=True)(inputs)))


def converted(converter: Any, shapes: Sequence[Any], numbers: str) -> bytes:
    """Return the file of a converter: float, 8-bit weights (`dynamic`), f16 weights, int8, or 16-bit activations."""
    ops = tf.lite.OpsSet
    if numbers != "float":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if numbers == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if numbers in ("int8", "int16"):
        calibration = np.random.default_rng(1)
        converter.representative_dataset = lambda: (
            [calibration.standard_normal(s).astype(np.float32) for s in shapes] for _ in range(20)
        )
    if numbers == "int8":
        converter.target_spec.supported_ops = [ops.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    if numbers == "int16":
        converter.target_spec.supported_ops = [ops.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8]
    return converter.convert()


def files() -> dict[str, bytes]:
    made: dict[str, bytes] = {"others": others(), "sparse": sparse(), "mediapipe": mediapipe()}
    for name, (function, specs) in FUNCTIONS.items():
        concrete = tf.function(function, input_signature=specs).get_concrete_function()
        for numbers in KINDS.get(name, ("float",)):
            converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete])
            made[f"{name}_{numbers}"] = converted(converter, [s.shape for s in specs], numbers)
    nets = {"net": (net(), ("float", "float16", "int8", "int16")), "lstm": (recurrent(), ("float", "int8"))}
    for name, (model, kinds) in nets.items():
        for numbers in kinds:
            converter = tf.lite.TFLiteConverter.from_keras_model(model)
            made[f"{name}_{numbers}"] = converted(converter, [model.input_shape], numbers)
    return made


# Operators that the converter does not make, as one file


def others() -> bytes:
    x = random.standard_normal((1, 4, 4, 3)).astype(np.float32)
    attributes = list(flexbuffers.Dumps({}))
    composite = {"name": "ours.nothing", "decompositionSubgraphIndex": 1, "compositeAttributes": attributes}
    half, places = x[0, :2, :2], np.array([2, 0], np.int32)
    pool = {"padding": 0, "strideW": 2, "strideH": 2, "filterWidth": 3, "filterHeight": 3}
    operators: list[tuple[str, str | None, dict[str, Any], list[Any], type]] = [
        ("GELU", "GeluOptions", {"approximate": False}, ["x"], np.float32),
        ("RELU_0_TO_1", None, {}, ["x"], np.float32),
        ("L2_POOL_2D", "Pool2DOptions", pool, ["x"], np.float32),
        ("MAX_POOL_2D", "Pool2DOptions", {**pool, "fusedActivationFunction": 1}, ["x"], np.float32),
        ("MUL", "MulOptions", {"fusedActivationFunction": 2}, ["x", "x"], np.float32),
        ("EMBEDDING_LOOKUP", None, {}, [places, weights(4, 3).numpy()], np.float32),
        ("DYNAMIC_UPDATE_SLICE", None, {}, ["x", half[None], np.array([0, 1, 3, 0], np.int32)], np.float32),
        ("SELECT_V2", None, {}, [np.array([True, False, True]), "x", np.float32(2)], np.float32),
        ("ZEROS_LIKE", None, {}, ["x"], np.float32),
        ("RANK", None, {}, ["x"], np.int32),
        ("RANGE", None, {}, [np.int32(7), np.int32(1), np.int32(-2)], np.int32),
        ("SQUEEZE", "SqueezeOptions", {"squeezeDims": [0]}, ["x"], np.float32),
        ("EXPAND_DIMS", None, {}, ["x", np.int32(-1)], np.float32),
        ("PRELU", None, {}, ["x", half[:1, :1]], np.float32),
        ("FILL", None, {}, [places, np.float32(1.5)], np.float32),
        ("LOGICAL_NOT", None, {}, [np.array([True, False])], np.bool_),
        ("STABLEHLO_COMPOSITE", "StableHLOCompositeOptions", composite, ["x"], np.float32),
        ("L2_NORMALIZATION", "L2NormOptions", {}, [np.float32([[1e-4, 2e-4], [0, 0], [1e-7, 0]])], np.float32),
        (
            "STRIDED_SLICE",
            "StridedSliceOptions",
            {"beginMask": 8},
            ["x", *slices([[0, 1], [-9, 4], [9, 0, -2], [2, 3]])],
            np.float32,
        ),
        (
            "STRIDED_SLICE",
            "StridedSliceOptions",
            {"shrinkAxisMask": 4, "beginMask": 4},
            ["x", *slices([[0, 1], [-9, 0, -1], [2, 3]])],
            np.float32,
        ),
        ("MIRROR_PAD", "MirrorPadOptions", {"mode": 1}, ["x", np.int32([[0, 0], [4, 1], [0, 4], [3, 3]])], np.float32),
        ("GATHER", "GatherOptions", {"axis": 3, "batchDims": 1}, ["x", np.int32([[2, 0]])], np.float32),
        ("TRANSPOSE", None, {}, ["x", np.int32([0, -1, -3, 2])], np.float32),
        ("RESHAPE", "ReshapeOptions", {"newShape": [4, 4, 3]}, ["x"], np.float32),
        ("UNIDIRECTIONAL_SEQUENCE_LSTM", "UnidirectionalSequenceLSTMOptions", *_lstm(4, 3, 2), np.float32),
    ]
    buffers, tensors, made, codes = [schema.BufferT()], [_tensor("x", x.shape, np.float32, 0)], [], []
    outputs: list[int] = []
    for kind, options, fields, operands, dtype in operators:
        inputs: list[int] = []
        for operand in operands:
            if operand is None or isinstance(operand, str):
                # An omitted input, or the result of the previous operator or the data.
                inputs.append({None: -1, "x": 0, "before": len(tensors) - 1}[operand])
                continue
            array = np.asarray(operand)
            buffers.append(schema.BufferT())
            buffers[-1].data = list(array.tobytes())
            tensors.append(_tensor(f"constant{len(tensors)}", array.shape, array.dtype.type, len(buffers) - 1))
            if array.dtype == np.float32 and np.isnan(array).any():
                # The state that the operator keeps between calls.
                tensors[-1].isVariable, tensors[-1].buffer = True, 0
            inputs.append(len(tensors) - 1)
        tensors.append(_tensor(kind.lower(), (), dtype, 0))
        code, operator = schema.OperatorCodeT(), schema.OperatorT()
        code.builtinCode = getattr(schema.BuiltinOperator, kind)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), 1
        operator.opcodeIndex, operator.inputs, operator.outputs = len(codes), inputs, [len(tensors) - 1]
        if options is not None:
            union = "" if hasattr(schema.BuiltinOptions, options) else "2"
            made_of = getattr(schema, f"{options}T")()
            vars(made_of).update(fields)
            setattr(operator, f"builtinOptions{union}Type", getattr(getattr(schema, f"BuiltinOptions{union}"), options))
            setattr(operator, f"builtinOptions{union}", made_of)
        codes.append(code)
        made.append(operator)
        outputs.append(len(tensors) - 1)
    # The decomposition of the composite: a graph that returns its input.
    graph, inner, model = schema.SubGraphT(), schema.SubGraphT(), schema.ModelT()
    graph.tensors, graph.inputs, graph.outputs, graph.operators = tensors, [0], outputs, made
    inner.tensors, inner.inputs, inner.outputs, inner.operators = tensors[:1], [0], [0], []
    model.version, model.operatorCodes, model.subgraphs, model.buffers = 3, codes, [graph, inner], buffers
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def sparse() -> bytes:
    """Return a model of a product with sparse weights of each kind: by rows, by columns, and in blocks."""
    dense = random.standard_normal((8, 8)).astype(np.float32) * (random.random((8, 8)) < 0.3)
    kinds: list[tuple[Sequence[int], Sequence[int], Sequence[Any], Any, type]] = [
        ([0, 1], [], [8, _compressed(dense != 0)], dense[dense != 0], np.float32),
        ([1, 0], [], [8, _compressed(dense.T != 0)], dense.T[dense.T != 0], np.float32),
        ([0, 1], [], [8, _compressed(dense != 0)], dense[dense != 0], np.float16),
    ]
    blocks = dense.reshape(2, 4, 2, 4).swapaxes(1, 2) * np.array([[1, 0], [1, 1]]).reshape(2, 2, 1, 1)
    used = (blocks != 0).any((2, 3))
    kinds.append(([0, 1, 2, 3], [0, 1], [2, _compressed(used), 4, 4], blocks[used], np.float32))
    tensors, buffers, operators, outputs = [_tensor("x", (2, 8), np.float32, 0)], [schema.BufferT()], [], []
    for number, (order, block_map, levels, elements, dtype) in enumerate(kinds):
        buffers.append(schema.BufferT())
        buffers[-1].data = list(np.ascontiguousarray(elements, dtype).tobytes())
        weight = _tensor(f"sparse{number}", (8, 8), dtype, len(buffers) - 1)
        weight.sparsity = schema.SparsityParametersT()
        weight.sparsity.traversalOrder, weight.sparsity.blockMap = list(order), list(block_map)
        weight.sparsity.dimMetadata = [_level(level, number) for level in levels]
        first = len(tensors)
        tensors += [weight, _tensor(f"dense{number}", (8, 8), dtype, 0)]
        operators.append(_operator(0, [first], [first + 1]))
        outputs.append(first + 1)
        if dtype == np.float32:
            tensors.append(_tensor(f"y{number}", (2, 8), np.float32, 0))
            operators.append(_operator(1, [0, first + 1, -1], [first + 2]))
            operators[-1].builtinOptionsType = schema.BuiltinOptions.FullyConnectedOptions
            operators[-1].builtinOptions = schema.FullyConnectedOptionsT()
            outputs.append(first + 2)
    return _model(tensors, buffers, ["DENSIFY", "FULLY_CONNECTED"], operators, outputs)


def _compressed(used: Any) -> tuple[list[int], list[int]]:
    """Return the segments and indices of the true elements of a matrix."""
    return [0, *np.cumsum(used.sum(1)).tolist()], np.nonzero(used)[1].tolist()


def _level(level: int | tuple[list[int], list[int]], number: int) -> Any:
    made = schema.DimensionMetadataT()
    if isinstance(level, int):
        made.format, made.denseSize = schema.DimensionType.DENSE, level
        return made
    vectors = [schema.Int32VectorT, schema.Uint16VectorT, schema.Uint8VectorT]
    made.format = schema.DimensionType.SPARSE_CSR
    made.arraySegmentsType, made.arrayIndicesType = number % 3 + 1, (number + 1) % 3 + 1
    made.arraySegments, made.arrayIndices = vectors[number % 3](), vectors[(number + 1) % 3]()
    made.arraySegments.values, made.arrayIndices.values = level
    return made


def _operator(code: int, inputs: list[int], outputs: list[int]) -> Any:
    operator = schema.OperatorT()
    operator.opcodeIndex, operator.inputs, operator.outputs = code, inputs, outputs
    return operator


def _model(tensors: list[Any], buffers: list[Any], kinds: Sequence[str], operators: list[Any], outputs: list[int]) -> bytes:
    """Return a model of one graph with the first tensor as input; a name that no builtin operator has is a custom one."""
    graph, model, codes = schema.SubGraphT(), schema.ModelT(), []
    for kind in kinds:
        codes.append(schema.OperatorCodeT())
        codes[-1].builtinCode = getattr(schema.BuiltinOperator, kind, schema.BuiltinOperator.CUSTOM)
        codes[-1].deprecatedBuiltinCode, codes[-1].version = min(codes[-1].builtinCode, 127), 1
        codes[-1].customCode = kind if codes[-1].builtinCode == schema.BuiltinOperator.CUSTOM else None
    graph.tensors, graph.inputs, graph.outputs, graph.operators = tensors, [0], outputs, operators
    model.version, model.operatorCodes, model.subgraphs, model.buffers = 3, codes, [graph], buffers
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def mediapipe() -> bytes:
    """Return a model of MediaPipe's custom operators, whose options are C structs, with padding 1 (SAME) or 2 (VALID)."""
    tensors, buffers = [_tensor("x", (1, 5, 6, 3), np.float32, 0)], [schema.BufferT()]
    operators, outputs = list[Any](), list[int]()
    for array in (weights(4, 3, 2, 3).numpy(), weights(4).numpy()):
        buffers.append(schema.BufferT())
        buffers[-1].data = list(array.tobytes())
        tensors.append(_tensor(f"constant{len(tensors)}", array.shape, np.float32, len(buffers) - 1))

    def add(code: int, inputs: list[int], options: Sequence[int], *shapes: Sequence[int]) -> None:
        made = list(range(len(tensors), len(tensors) + len(shapes)))
        tensors.extend(_tensor(f"t{len(tensors)}_{k}", shape, np.float32, 0) for k, shape in enumerate(shapes))
        operators.append(_operator(code, inputs, made))
        operators[-1].customOptions = list(np.array(options, np.int32).tobytes())
        outputs.extend(made)

    add(0, [0, 1, 2], [1, 2, 2, 0, 0], (1, 9, 12, 4))
    add(0, [0, 1, 2], [2, 1, 2, 0, 0], (1, 11, 7, 4))
    add(1, [0], [1, 2, 2, 2, 2, 1, 0, 0, 0, 0], (1, 3, 3, 3), (1, 3, 3, 3))
    add(2, outputs[-2:], [1, 2, 2, 2, 2, 0, 0, 0, 0, 0], (1, 6, 6, 3))
    add(1, [0], [1, 2, 2, 3, 3, 0, 0, 0, 0, 0], (1, 3, 3, 3), (1, 3, 3, 3))
    add(1, [0], [2, 1, 2, 2, 3, 0, 0, 0, 0, 0], (1, 2, 5, 3), (1, 2, 5, 3))
    kinds = ["Convolution2DTransposeBias", "MaxPoolingWithArgmax2D", "MaxUnpooling2D"]
    return _model(tensors, buffers, kinds, operators, outputs)


def run_mediapipe(file: bytes) -> tuple[list[Any], list[Any]]:
    """Return inputs and the results of PyTorch: LiteRT's package does not have these operators."""
    x, (w, b) = random.standard_normal((1, 5, 6, 3)).astype(np.float32), (_constant(file, k) for k in (1, 2))
    channels_first = torch.from_numpy(x).permute(0, 3, 1, 2)
    kernel = torch.from_numpy(w).permute(3, 0, 1, 2)

    def transposed(strides: tuple[int, int], rows: slice) -> Any:
        full = torch.nn.functional.conv_transpose2d(channels_first, kernel, torch.from_numpy(b), strides)
        return full[:, :, rows].permute(0, 2, 3, 1).numpy()

    def pooled(size: tuple[int, int], strides: tuple[int, int], low: tuple[int, int], high: tuple[int, int]) -> Any:
        padded = torch.nn.functional.pad(channels_first, (low[1], high[1], low[0], high[0]), value=-np.inf)
        y, flat = torch.nn.functional.max_pool2d(padded, size, strides, return_indices=True)
        rows, columns = flat // padded.shape[3], flat % padded.shape[3]
        starts = [torch.arange(n) * stride for n, stride in zip(y.shape[2:], strides, strict=True)]
        indices = (rows - starts[0][:, None]) * size[1] + columns - starts[1]
        return [a.permute(0, 2, 3, 1).numpy() for a in (y, indices.to(torch.float32) + 0.1)]

    maxima, indices = pooled((2, 2), (2, 2), (0, 0), (1, 0))
    maxima = np.maximum(maxima, 0)
    unpooled = np.zeros((1, 6, 6, 3), np.float32)
    for at in np.ndindex(*maxima.shape):
        row, column = divmod(int(indices[at]), 2)
        unpooled[0, 2 * at[1] + row, 2 * at[2] + column, at[3]] = maxima[at]
    results = [transposed((2, 2), slice(1, 10)), transposed((2, 1), slice(None)), maxima, indices, unpooled]
    return [x], [*results, *pooled((3, 3), (2, 2), (1, 0), (1, 1)), *pooled((3, 2), (2, 1), (0, 0), (0, 0))]


def _constant(file: bytes, k: int) -> Any:
    tensor = read_file(file).graphs[0].tensors[k]
    return tensor.array()


def slices(bounds: Sequence[Sequence[int]]) -> Sequence[Any]:
    """Return begins, ends and steps of Python slices per axis."""
    entries = [(*pair, 1)[:3] for pair in bounds]
    return [np.array(column, np.int32) for column in zip(*entries, strict=True)]


def _lstm(time: int, data: int, size: int) -> tuple[dict[str, Any], list[Any]]:
    """Return the options and inputs of an LSTM: input weights, recurrent weights and biases for four gates, states."""
    state = np.full((time, size), np.nan, np.float32)
    weighed = [weights(size, n).numpy() for n in (data,) * 4 + (size,) * 4]
    biases = [weights(size).numpy() for _ in range(4)]
    inputs = ["before", *weighed, None, None, None, *biases, None, None, state, state, None, None, None, None]
    return {"fusedActivationFunction": 4, "cellClip": 0.0, "projClip": 0.0, "timeMajor": False}, inputs


def _tensor(name: str, shape: Sequence[int], dtype: type, buffer: int) -> Any:
    tensor, kinds = schema.TensorT(), schema.TensorType
    tensor.name, tensor.shape, tensor.buffer = name, list(shape), buffer
    tensor.type = {np.float32: kinds.FLOAT32, np.int32: kinds.INT32, np.bool_: kinds.BOOL, np.float16: kinds.FLOAT16}[dtype]
    return tensor


def run(file: bytes) -> tuple[list[Any], list[Any]]:
    """Return inputs and the results of LiteRT."""
    interpreter = Interpreter(
        model_content=file, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    inputs: list[Any] = []
    for given in interpreter.get_input_details():
        shape = [5 if size < 0 else int(size) for size in given["shape_signature"]]
        interpreter.resize_tensor_input(given["index"], shape)
        if given["dtype"] == np.float32:
            inputs.append(random.standard_normal(shape).astype(np.float32))
        else:
            low, high = (0, 3) if given["dtype"] == np.int32 else (-128, 128)
            inputs.append(random.integers(low, high, shape).astype(given["dtype"]))
    interpreter.allocate_tensors()
    for given, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(given["index"], array)
    interpreter.invoke()
    return inputs, [interpreter.get_tensor(made["index"]) for made in interpreter.get_output_details()]


def main() -> None:
    made, recorded = files(), dict[str, Any]()
    names = sys.argv[1:] or list(made)
    if len(names) < len(made):
        kept = np.load(io.BytesIO(lzma.decompress(RECORDED.read_bytes())))
        recorded |= {key: kept[key] for key in kept if key.partition("/")[0] not in names}
    for name in names:
        file = made[name]
        inputs, outputs = run_mediapipe(file) if name == "mediapipe" else run(file)
        recorded[f"{name}/file"] = np.frombuffer(file, np.uint8)
        recorded.update({f"{name}/in/{k}": x for k, x in enumerate(inputs)})
        recorded.update({f"{name}/out/{k}": y for k, y in enumerate(outputs)})
    stream = io.BytesIO()
    np.savez(stream, **recorded)
    # Compressing all arrays together takes a third of the space of compressing each.
    RECORDED.write_bytes(lzma.compress(stream.getvalue()))


if __name__ == "__main__":
    main()
