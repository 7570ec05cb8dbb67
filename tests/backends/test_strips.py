"""Winograd convolutions of large images in strips: small images, with costs that make them large, and fused neighbors."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dlc
import dlc.numpy as dnp
from dlc import nn
from dlc.backends.base import Backend
from dlc.backends.cpu.backend import Cpu
from dlc.backends.opencl.backend import OpenCL
from dlc.compiler import Program, compile, emit
from dlc.cost_model import WinogradCosts
from dlc.frontend.onnx import import_model
from dlc.options import Options
from dlc.runtime.opencl.devices import all_devices
from dlc.target import Target, resolve

RNG = np.random.default_rng(0)
# Transforms are free, and three tiles with 16 input and output channels fill the cache.
COSTS = WinogradCosts(input=0, output=0, runtime_weight=0, weight=0, cached_bytes=1 << 10, strip_bytes=3 * 36 * 3 * 32 * 4)
X, SKIP = (RNG.standard_normal((2, 24, 24, 16)).astype(np.float32) for _ in range(2))
W, U = (RNG.standard_normal((3, 3, 16, 16)).astype(np.float32) / 12 for _ in range(2))


def in_strips(target: Target) -> Target:
    return replace(target, costs=replace(target.costs, winograd=COSTS))


@cache
def backend(name: str) -> Backend:
    """Return a target for which all images are large."""
    if name == "cpu":
        return Cpu(in_strips(resolve(name)))
    local = OpenCL(name).for_local_device()
    assert local.selected is not None
    device, target = local.selected
    return replace(local, selected=(device, in_strips(target)))


def loss(x: Any, w: Any, u: Any, skip: Any) -> Any:
    """Two convolutions: the first followed by a ReLU, the second with another use of its result."""
    y = dnp.maximum(nn.conv(x, w, padding="same"), 0)
    return dnp.sum((nn.conv(y, u, padding="same") + skip) ** 2)


def test_gradients() -> None:
    """Gradients of images and weights, computed and transformed at run time; sums over tiles are accumulated per strip."""
    step = dlc.value_and_grad(loss, argnums=(0, 1, 2))
    inputs = X, W, U, SKIP
    runtime_weight = dlc.jit(step, target=backend("cpu"))
    # Two convolutions and two image gradients in two strips each, and two weight gradients.
    assert runtime_weight.lower(*inputs).as_text("dl").count("dl.winograd_output") >= 10
    value, gradients = runtime_weight(*inputs)
    expected, others = dlc.jit(step, target="reference", numerics="strict")(*inputs)
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    for got, wanted in zip(gradients, others, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-4 * np.abs(wanted).max())


def test_runtime_weights_in_panels() -> None:
    """With many output channels, forward and backward: weights are packed to panels at run time."""
    step = dlc.value_and_grad(lambda x, w: dnp.sum(nn.conv(x, w, padding="same") ** 2), argnums=(0, 1))
    inputs = X, RNG.standard_normal((3, 3, 16, 128)).astype(np.float32) / 12
    runtime_weight = {threads: dlc.jit(step, target=backend("cpu"), num_threads=threads) for threads in (1, 2)}
    assert "dl.unpack" in runtime_weight[1].lower(*inputs).as_text("dl")
    value, gradients = runtime_weight[1](*inputs)
    again, same = runtime_weight[2](*inputs)
    expected, others = dlc.jit(step, target="reference", numerics="strict")(*inputs)
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    for got, wanted in zip(gradients, others, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-4 * np.abs(wanted).max())
    for one, two in zip((value, *gradients), (again, *same), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.skipif(not all_devices(), reason="no OpenCL device")
def test_on_a_device() -> None:
    step = dlc.value_and_grad(loss, argnums=1)
    runtime_weight = dlc.jit(step, target=backend("opencl"))
    assert runtime_weight.lower(X, W, U, SKIP).as_text("dl").count("dl.winograd_output") >= 7
    expected, gradient = dlc.jit(step, target="reference", numerics="strict")(X, W, U, SKIP)
    value, got = runtime_weight(X, W, U, SKIP)
    np.testing.assert_allclose(np.asarray(value), expected, rtol=1e-4)
    np.testing.assert_allclose(np.asarray(got), gradient, atol=1e-4 * np.abs(gradient).max())


def quantised() -> onnx.ModelProto:
    """Int8 convolutions; scales are powers of two, so that nothing is rounded."""
    scale = numpy_helper.from_array(np.array(1 / 16, np.float32), "scale")
    zero = numpy_helper.from_array(np.array(120, np.uint8), "zero")
    small = numpy_helper.from_array(np.array(1 / 1024, np.float32), "small")
    none = numpy_helper.from_array(np.array(0, np.int8), "none")
    weights = [numpy_helper.from_array(RNG.integers(-128, 128, (16, 16, 3, 3), np.int8), name) for name in ("w0", "w1")]
    nodes, x = [], "x"
    for k in range(2):
        nodes += [
            helper.make_node("DequantizeLinear", [x, "scale", "zero"], [f"d{k}"]),
            helper.make_node("DequantizeLinear", [f"w{k}", "small", "none"], [f"f{k}"]),
            helper.make_node("Conv", [f"d{k}", f"f{k}"], [f"c{k}"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [f"c{k}"], [f"r{k}"]),
            helper.make_node("QuantizeLinear", [f"r{k}", "scale", "zero"], [x := "y" if k else "q"]),
        ]
    shape = [1, 16, 24, 24]
    values = [helper.make_tensor_value_info(name, TensorProto.UINT8, shape) for name in "xy"]
    graph = helper.make_graph(nodes, "quantised", values[:1], values[1:], [scale, zero, small, none, *weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_integers_between_bytes() -> None:
    """Integer sums are exact, in strips too; int8 dot products would be faster than Winograd, so pairs are used here."""
    imported = import_model(quantised())
    program = Program(imported.module, imported.weights)
    x = RNG.integers(0, 256, (1, 16, 24, 24), np.uint8)
    pairs = Cpu(replace(in_strips(resolve("cpu")), dot_products=("i16",)))
    assert emit(program, "dl", pairs).count("dl.winograd_output") >= 4
    (got,) = compile(program, pairs)({"x": x}).values()
    (wanted,) = compile(program, "reference", Options(numerics="strict"))({"x": x}).values()
    assert len(np.unique(wanted)) > 50
    np.testing.assert_array_equal(got, wanted)
