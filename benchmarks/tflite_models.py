"""Benchmark TFLite models against LiteRT: differences of results, and speed on one thread.

    python benchmarks/tflite_models.py [NET …]

Builds each network in Keras with random weights and plausible batch-norm statistics, converts it to a float and an int8 model,
and prints a row for each: the largest difference from LiteRT (for int8 in quantization steps, with the share of elements that
differ), the difference between LiteRT's own two sets of kernels (XNNPACK and the optimized ones), and LiteRT's time divided by
dlc's (fastest of interleaved calls). Needs TensorFlow and LiteRT: `pip install tensorflow-cpu ai-edge-litert`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
from optional_imports import optional_imports

import dlc

with optional_imports(__doc__):
    import tensorflow as tf
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

TIMED_CALLS = 50
layers, random = tf.keras.layers, np.random.default_rng(1)


def batch_norm(x: Any) -> Any:
    return layers.BatchNormalization()(x)


def hard_swish(x: Any) -> Any:
    return layers.Lambda(lambda v: v * tf.nn.relu6(v + 3.0) * (1 / 6.0))(x)


def pad_channels(x: Any, channels: int) -> Any:
    num_added = channels - x.shape[-1]
    return layers.Lambda(lambda v: tf.pad(v, [[0, 0], [0, 0], [0, 0], [0, num_added]]))(x) if num_added else x


def separable(x: Any, channels: int, stride: int, size: int) -> Any:
    """A separable convolution with a skip connection."""
    y = layers.Conv2D(channels, 1)(layers.DepthwiseConv2D(size, strides=stride, padding="same")(x))
    x = layers.MaxPool2D(2, padding="same")(x) if stride == 2 else x
    return layers.Add()([pad_channels(x, channels), y])


def mobilenet_v1() -> Any:
    return tf.keras.applications.MobileNet((224, 224, 3), weights=None, classifier_activation=None)


def mobilenet_v2() -> Any:
    return tf.keras.applications.MobileNetV2((224, 224, 3), weights=None, classifier_activation=None)


def face_detector() -> Any:
    """A network like BlazeFace: two grids of anchors with boxes and scores."""
    inputs = layers.Input((128, 128, 3))
    x = layers.Conv2D(24, 5, strides=2, padding="same", activation="relu")(inputs)
    for channels in (24, 28, -32, 36, 42, -48, 56, 64, 72, 80, 88):
        x = layers.ReLU()(separable(x, abs(channels), 2 if channels < 0 else 1, 5))
    fine = x
    for stride in (2, 1, 1, 1, 1):
        x = layers.ReLU()(separable(x, 96, stride, 5))

    def heads(values: int) -> Any:
        grids = [(fine, 512, 2), (x, 384, 6)]
        rows = [layers.Reshape((anchors, values))(layers.Conv2D(values * n, 1)(grid)) for grid, anchors, n in grids]
        return layers.Concatenate(1)(rows)

    return tf.keras.Model(inputs, [heads(16), heads(1)])


def segmenter() -> Any:
    """A network like a selfie segmenter: MobileNetV3 blocks, a decoder with resizes, a transposed convolution."""
    inputs = layers.Input((128, 128, 3))
    x = hard_swish(layers.Conv2D(16, 3, strides=2, padding="same")(inputs))
    skips = [x]

    def gate(x: Any, channels: int, hidden: int = 0) -> Any:
        s = layers.GlobalAveragePooling2D(keepdims=True)(x)
        s = layers.Conv2D(hidden, 1, activation="relu")(s) if hidden else s
        return layers.Conv2D(channels, 1, activation="sigmoid")(s)

    for expanded, channels, stride in ((16, 16, 2), (72, 24, 2), (88, 24, 1), (96, 32, 2), (128, 32, 1), (128, 32, 1)):
        y = hard_swish(batch_norm(layers.Conv2D(expanded, 1)(x)))
        y = hard_swish(batch_norm(layers.DepthwiseConv2D(3, strides=stride, padding="same")(y)))
        y = batch_norm(layers.Conv2D(channels, 1)(layers.Multiply()([y, gate(y, expanded, max(expanded // 4, 8))])))
        x = layers.Add()([x, y]) if stride == 1 and x.shape[-1] == channels else y
        skips += [x] if stride == 2 else []
    for skip in skips[-2::-1]:
        channels = skip.shape[-1]
        x = layers.Conv2D(channels, 1, activation="relu")(layers.UpSampling2D(2, interpolation="bilinear")(x))
        x = layers.Add()([x, layers.Multiply()([skip, gate(layers.Concatenate()([x, skip]), channels)])])
        x = layers.Add()([x, layers.DepthwiseConv2D(3, padding="same", activation="relu")(x)])
    return tf.keras.Model(inputs, layers.Conv2DTranspose(1, 2, strides=2, padding="same", activation="sigmoid")(x))


def hand_landmarks() -> Any:
    def prelu(x: Any) -> Any:
        return layers.PReLU(shared_axes=[1, 2], alpha_initializer="random_uniform")(x)

    inputs = layers.Input((112, 112, 3))
    x = prelu(layers.Conv2D(16, 3, strides=2, padding="same")(inputs))
    for channels in (32, 64, 128, 192):
        x = prelu(separable(prelu(separable(x, channels, 2, 3)), channels, 1, 3))
    x = layers.GlobalAveragePooling2D()(x)
    scores = [layers.Dense(1, activation="sigmoid")(x) for _ in range(2)]
    return tf.keras.Model(inputs, [layers.Dense(63)(x), *scores, layers.Dense(63)(x)])


def keyword_spotter() -> Any:
    """Depthwise-separable blocks on 49 audio frames of 10 coefficients."""
    inputs = layers.Input((49, 10, 1))
    x = layers.ReLU()(batch_norm(layers.Conv2D(64, (10, 4), strides=2, padding="same")(inputs)))
    for _ in range(4):
        x = layers.ReLU()(batch_norm(layers.DepthwiseConv2D(3, padding="same")(x)))
        x = layers.ReLU()(batch_norm(layers.Conv2D(64, 1)(x)))
    x = layers.Flatten()(layers.AveragePooling2D((25, 5))(x))
    return tf.keras.Model(inputs, layers.Dense(12, activation="softmax")(x))


NETS: Sequence[Callable[[], Any]] = (
    mobilenet_v1, mobilenet_v2, face_detector, segmenter, hand_landmarks, keyword_spotter,
)  # fmt: skip


def randomize_batch_norms(model: Any) -> None:
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            scale, shift, mean, variance = layer.get_weights()
            shift, mean = (0.2 * random.standard_normal(v.shape) for v in (shift, mean))
            layer.set_weights(
                [scale * (0.6 + 0.8 * random.random(scale.shape)), shift, mean, 0.5 + random.random(variance.shape)]
            )


def convert(model: Any, integers: bool) -> bytes:
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if integers:
        shape = (1, *model.input_shape[1:])
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([random.standard_normal(shape).astype(np.float32)] for _ in range(10))
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    return converter.convert()


def litert(file: bytes, x: Any, kernels: Any = OpResolverType.AUTO) -> tuple[Callable[[], None], list[Any]]:
    """Return a function that runs a model again, and the outputs of the first run."""
    interpreter = Interpreter(model_content=file, num_threads=1, experimental_op_resolver_type=kernels)
    index = interpreter.get_input_details()[0]["index"]
    interpreter.resize_tensor_input(index, x.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(index, x)
    interpreter.invoke()
    return interpreter.invoke, [interpreter.get_tensor(output["index"]) for output in interpreter.get_output_details()]


def format_difference(left: Sequence[Any], right: Sequence[Any]) -> str:
    """Format the largest difference, for int8 with the share of elements that differ."""
    differences = [np.abs(np.asarray(a).astype(np.float64) - b) for a, b in zip(left, right, strict=True)]
    largest = max(d.max() for d in differences)
    if right[0].dtype != np.int8:
        return f"{largest:.0e}"
    return f"{largest:.0f} ({max((d > 0).mean() for d in differences):.0%})"


def time_ratio(first: Callable[[], object], second: Callable[[], object]) -> float:
    """Return the fastest time of the second function divided by that of the first."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(TIMED_CALLS):
        for run, samples in zip((first, second), times, strict=True):
            start = time.perf_counter()
            run()
            samples.append(time.perf_counter() - start)
    return min(times[1]) / min(times[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", metavar="NET", help="any of: " + ", ".join(net.__name__ for net in NETS))
    selected_nets = parser.parse_args().nets
    tf.keras.utils.set_random_seed(0)
    for net in NETS:
        if selected_nets and net.__name__ not in selected_nets:
            continue
        model = net()
        randomize_batch_norms(model)
        for integers in (False, True):
            file, shape = convert(model, integers), (1, *model.input_shape[1:])
            x = random.standard_normal(shape).astype(np.float32)
            x = np.clip(np.round(50 * x), -128, 127).astype(np.int8) if integers else x
            compiled = dlc.compile_model(file, num_threads=1)
            run, expected = litert(file, x)
            _, optimized = litert(file, x, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
            outputs = list(compiled(x).values())
            ratio = time_ratio(lambda c=compiled, x=x: c(x), run)
            kind = "int8" if integers else "float"
            differences = f"{format_difference(outputs, expected)} | {format_difference(expected, optimized)}"
            print(f"| {net.__name__} | {kind} | {differences} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
