"""Float models to quantize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator


def model_of(
    nodes: Sequence[NodeProto],
    weights: dict[str, NDArray[Any]],
    x: Sequence[int | str],
    y: str = "y",
    rank: int = 2,
    opset: int = 20,
) -> ModelProto:
    """Return a model with one float input `x`."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(x))]
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_tensor_value_info(y, TensorProto.FLOAT, [f"d{k}" for k in range(rank)])], constants
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def small_net(batch: int | str = 1, opset: int = 20) -> ModelProto:
    """Return a network with BatchNorm after a convolution, a grouped convolution, a sum, a pool and a classifier."""
    draw = np.random.default_rng(0)

    def normal(*shape: int) -> NDArray[np.float32]:
        return draw.standard_normal(shape).astype(np.float32)

    # Some channels have much smaller values than the others.
    spread = np.geomspace(0.1, 4, 8).astype(np.float32)
    weights = {
        "w1": normal(8, 3, 3, 3), "gamma": (1 + normal(8) / 4) * spread, "beta": normal(8) * spread, "mean": normal(8),
        "variance": draw.uniform(1, 20, 8).astype(np.float32), "w2": normal(8, 1, 3, 3) / 3, "b2": normal(8),
        "w3": normal(8, 8, 1, 1) / 3, "b3": normal(8), "w4": normal(5, 8), "b4": normal(5), "shape": np.array([-1, 8]),
    }  # fmt: skip
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["c1"], name="first", strides=[2, 2], auto_pad="SAME_UPPER"),
        node("BatchNormalization", ["c1", "gamma", "beta", "mean", "variance"], ["n1"], name="norm"),
        node("Relu", ["n1"], ["r1"], name="relu"),
        node("MaxPool", ["r1"], ["p1"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p1", "w2", "b2"], ["c2"], name="depthwise", group=8, pads=[1, 1, 1, 1]),
        node("Conv", ["c2", "w3", "b3"], ["c3"], name="pointwise"),
        node("Add", ["c3", "p1"], ["s"], name="sum"),
        node("GlobalAveragePool", ["s"], ["a"], name="mean"),
        node("Reshape", ["a", "shape"], ["f"], name="flat"),
        node("Gemm", ["f", "w4", "b4"], ["y"], name="classes", transB=1),
    ]
    return model_of(nodes, weights, (batch, 3, 16, 16), opset=opset)


def evaluated(model: ModelProto, x: NDArray[Any]) -> NDArray[Any]:
    """Check a model and run it with ONNX's reference evaluator."""
    onnx.checker.check_model(model, full_check=True)
    return np.asarray(ReferenceEvaluator(model).run(None, {"x": x})[0])


def images(count: int, seed: int = 1) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((count, 1, 3, 16, 16)).astype(np.float32)
