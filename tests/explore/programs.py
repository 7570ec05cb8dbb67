"""What the explorer's tests look at: a small function with a loop, and the smallest of models, each explored once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.api import program_of
from dlc.backends.cpu.limits import Limits
from dlc.explore import collect
from dlc.explore.data import Exploration
from dlc.explore.sources import onnx_listing
from dlc.measure import kernels
from dlc.options import Options

MNIST = Path(__file__).parents[1] / "models" / "small" / "mnist_cnn.onnx"
# Measuring the machine's own takes longer than a test should.
LIMITS = Limits(1e11, 5e10, 1e10)


@dlc.jit(target="cpu:avx2", num_threads=1)
def recurrence(w, xs):
    def step(h, x):
        h = dnp.tanh(h @ w + x)
        return h, h.sum()

    last, sums = lax.scan(step, dnp.zeros((4, 16), "float32"), xs)
    return dnp.exp(last), sums


W, XS = np.eye(16, dtype=np.float32), np.ones((40, 4, 16), np.float32)


def tiny(op: str, result: int = TensorProto.FLOAT, rank: int = 1) -> ModelProto:
    """A model of one node on four numbers."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info("y", result, [None] * rank)
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], "only")], "tiny", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


@cache
def explored() -> Exploration:
    """The function."""
    kernels.measured_limits = lambda target, threads=1: LIMITS
    return collect(recurrence.lower(W, XS).program, "cpu:avx2", Options.of(num_threads=1), inputs=[W, XS])


@cache
def mnist() -> Exploration:
    """The model."""
    kernels.measured_limits = lambda target, threads=1: LIMITS
    x = np.zeros((1, 1, 28, 28), np.float32)
    program = program_of(MNIST, None, None, None)
    options = Options.of(num_threads=1)
    return collect(program, "cpu:avx2", options, inputs=[x], source=onnx_listing(MNIST))
