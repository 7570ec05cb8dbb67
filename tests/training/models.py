"""Small ONNX models with weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, helper, numpy_helper

Arrays = Mapping[str, NDArray[Any]]


def write(
    path: Path,
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, tuple[Any, Sequence[int | str]]],
    outputs: Mapping[str, tuple[Any, Sequence[int | str]]],
    weights: Arrays,
) -> Path:
    """Write a model file; inputs and outputs are given as dtypes and shapes."""

    def declared(infos: Mapping[str, tuple[Any, Sequence[int | str]]]) -> list[onnx.ValueInfoProto]:
        types = {name: helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for name, (dtype, _) in infos.items()}
        return [helper.make_tensor_value_info(name, types[name], shape) for name, (_, shape) in infos.items()]

    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", declared(inputs), declared(outputs), initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def perceptron(path: Path, dtype: Any = np.float32, batch: int | str = "N", *, softmax: bool = False) -> Path:
    """Write a network from two inputs to three logits with eight hidden units, optionally with a softmax."""
    draw = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="first"),
        helper.make_node("Add", ["a", "b1"], ["b"], name="bias"),
        helper.make_node("Tanh", ["b"], ["h"], name="hidden"),
        helper.make_node("Gemm", ["h", "w2", "b2"], ["logits"], name="last"),
    ]
    if softmax:
        nodes.append(helper.make_node("Softmax", ["logits"], ["y"], name="softmax", axis=-1))
    weights = {
        "w1": draw.standard_normal((2, 8)).astype(dtype),
        "b1": draw.standard_normal(8).astype(dtype),
        "w2": draw.standard_normal((8, 3)).astype(dtype),
        "b2": np.zeros(3, dtype),
        "steps": np.arange(3),
    }
    return write(path, nodes, {"x": (dtype, (batch, 2))}, {"y" if softmax else "logits": (dtype, (batch, 3))}, weights)


def loss(path: Path, dtype: Any = np.float64) -> Path:
    """Write a model from four elements to a scalar: the mean of (x·w)³ after a normalization with fixed statistics."""
    draw = np.random.default_rng(1)
    nodes = [
        helper.make_node("BatchNormalization", ["x", "scale", "shift", "mean", "variance"], ["n"], name="norm"),
        helper.make_node("Mul", ["n", "w"], ["p"], name="times"),
        helper.make_node("Mul", ["p", "p"], ["q"], name="square"),
        helper.make_node("Mul", ["q", "p"], ["r"], name="cube"),
        helper.make_node("ReduceMean", ["r"], ["loss"], name="mean", keepdims=0),
    ]
    weights = {
        "w": draw.standard_normal(4), "scale": draw.standard_normal(4), "shift": draw.standard_normal(4),
        "mean": draw.standard_normal(4), "variance": 1 + draw.random(4),
    }  # fmt: skip
    arrays = {name: a.astype(dtype) for name, a in weights.items()}
    return write(path, nodes, {"x": (dtype, (2, 4))}, {"loss": (dtype, ())}, arrays)


def differences(f: Any, at: Arrays, direction: Arrays, step: float = 1e-5) -> float:
    """Return the directional derivative of a scalar function by finite differences."""
    ahead, behind = ({name: a + sign * step * direction[name] for name, a in at.items()} for sign in (1, -1))
    return float((f(ahead) - f(behind)) / (2 * step))
