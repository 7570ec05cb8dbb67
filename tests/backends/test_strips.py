"""Convolutions by Winograd's tiles, in strips where images are large: small ones that are made to, with what is around them."""

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
from dlc.costs import Winograd
from dlc.frontend.onnx import import_model
from dlc.options import Options
from dlc.runtime.opencl.devices import all_devices
from dlc.target import Target, resolve

RNG = np.random.default_rng(0)
# Tiles cost nothing, and three of them with 16 channels in and out fill a cache.
COSTS = Winograd(input=0, output=0, made=0, weight=0, cached_bytes=1 << 10, strip_bytes=3 * 36 * 3 * 32 * 4)
X, SKIP = (RNG.standard_normal((2, 24, 24, 16)).astype(np.float32) for _ in range(2))
W, U = (RNG.standard_normal((3, 3, 16, 16)).astype(np.float32) / 12 for _ in range(2))


def in_strips(target: Target) -> Target:
    return replace(target, machine=replace(target.machine, winograd=COSTS))


@cache
def backend(name: str) -> Backend:
    """A target that finds all images large."""
    if name == "cpu":
        return Cpu(in_strips(resolve(name)))
    here = OpenCL(name).here()
    assert here.chosen is not None
    device, target = here.chosen
    return replace(here, chosen=(device, in_strips(target)))


def loss(x: Any, w: Any, u: Any, skip: Any) -> Any:
    """Two of them, the first with a ReLU behind it, the second with what is read elsewhere."""
    y = dnp.maximum(nn.conv(x, w, padding="same"), 0)
    return dnp.sum((nn.conv(y, u, padding="same") + skip) ** 2)


def test_gradients() -> None:
    """Of images and of weights, which are computed and transformed anew: sums over tiles are added up strip by strip."""
    step = dlc.value_and_grad(loss, argnums=(0, 1, 2))
    inputs = X, W, U, SKIP
    made = dlc.jit(step, target=backend("cpu"))
    # Of the two convolutions and of two gradients of images in two strips, and of two of weights.
    assert made.lower(*inputs).as_text("dl").count("dl.winograd_output") >= 10
    value, gradients = made(*inputs)
    expected, others = dlc.jit(step, target="reference", numerics="strict")(*inputs)
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    for got, wanted in zip(gradients, others, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-4 * np.abs(wanted).max())


def test_weights_that_are_computed_in_panels() -> None:
    """Of many output channels, forward and backward: panels are made in each run."""
    step = dlc.value_and_grad(lambda x, w: dnp.sum(nn.conv(x, w, padding="same") ** 2), argnums=(0, 1))
    inputs = X, RNG.standard_normal((3, 3, 16, 128)).astype(np.float32) / 12
    made = {threads: dlc.jit(step, target=backend("cpu"), num_threads=threads) for threads in (1, 2)}
    assert "dl.unpack" in made[1].lower(*inputs).as_text("dl")
    value, gradients = made[1](*inputs)
    again, same = made[2](*inputs)
    expected, others = dlc.jit(step, target="reference", numerics="strict")(*inputs)
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    for got, wanted in zip(gradients, others, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-4 * np.abs(wanted).max())
    for one, two in zip((value, *gradients), (again, *same), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.skipif(not all_devices(), reason="no OpenCL device")
def test_on_a_device() -> None:
    step = dlc.value_and_grad(loss, argnums=1)
    made = dlc.jit(step, target=backend("opencl"))
    assert made.lower(X, W, U, SKIP).as_text("dl").count("dl.winograd_output") >= 7
    expected, gradient = dlc.jit(step, target="reference", numerics="strict")(X, W, U, SKIP)
    value, got = made(X, W, U, SKIP)
    np.testing.assert_allclose(np.asarray(value), expected, rtol=1e-4)
    np.testing.assert_allclose(np.asarray(got), gradient, atol=1e-4 * np.abs(gradient).max())


def quantised() -> onnx.ModelProto:
    """Bytes go in and come out, and between the convolutions they stay bytes; scales are powers of two, so that none rounds."""
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
    """Their sums are exact, in strips as in one. Four bytes at a time are multiplied quicker than by tiles: here it is pairs."""
    imported = import_model(quantised())
    program = Program(imported.module, imported.weights)
    x = RNG.integers(0, 256, (1, 16, 24, 24), np.uint8)
    pairs = Cpu(replace(in_strips(resolve("cpu")), dots=("i16",)))
    assert emit(program, "dl", pairs).count("dl.winograd_output") >= 4
    (got,) = compile(program, pairs)({"x": x}).values()
    (wanted,) = compile(program, "reference", Options(numerics="strict"))({"x": x}).values()
    assert len(np.unique(wanted)) > 50
    np.testing.assert_array_equal(got, wanted)
