"""Programs of the explorer's tests: functions like whole models and very small models, each explored once."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper

import dlc
import dlc.numpy as dnp
from dlc import lax, nn, optim
from dlc.backends.cpu import limits
from dlc.backends.limits import Limits
from dlc.explore import Page, collect
from dlc.explore.data import Exploration, PipelineStep, Unit
from dlc.explore.source_listings import onnx_listing
from dlc.models.model_files import import_program
from dlc.options import Options
from tests.targets import SHORT

MNIST = Path(__file__).parents[1] / "models" / "small" / "mnist_cnn.onnx"
# Fixed limits, because measuring the machine takes too long for a test.
LIMITS = Limits(1e11, 5e10, 1e10)


@dlc.jit(target=SHORT, num_threads=1)
def recurrence(w, xs):
    def step(h, x):
        h = dnp.tanh(h @ w + x)
        return h, h.sum()

    last, sums = lax.scan(step, dnp.zeros((4, 16), "float32"), xs)
    return dnp.exp(last), sums


W, XS = np.eye(16, dtype=np.float32), np.ones((40, 4, 16), np.float32)


def tiny(op: str, result: int = TensorProto.FLOAT, rank: int = 1, size: int = 4) -> ModelProto:
    """Return a model with one node on a few elements."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [size])
    y = helper.make_tensor_value_info("y", result, [None] * rank)
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], "only")], "tiny", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def rows() -> ModelProto:
    """Return a model with two kernels and a dynamic number of rows."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in "xy")
    nodes = [helper.make_node("Softmax", ["x"], ["s"], "one"), helper.make_node("CumSum", ["s", "axis"], ["y"], "other")]
    axis = helper.make_tensor("axis", TensorProto.INT64, [], [1])
    graph = helper.make_graph(nodes, "rows", [x], [y], [axis])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def windows() -> ModelProto:
    """Return a model with one kernel on a row of at least nine elements."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, size]) for name, size in (("x", "n"), ("y", None)))
    graph = helper.make_graph([helper.make_node("MaxPool", ["x"], ["y"], "only", kernel_shape=[9])], "windows", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def sums() -> ModelProto:
    """Return a model whose shapes depend on the values of an input."""
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])]
    given += [helper.make_tensor_value_info("axes", TensorProto.INT64, [1])]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], "sums", keepdims=0)
    graph = helper.make_graph([node], "sums", given, [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def chosen_rows() -> ModelProto:
    """Return a model with a data-dependent size: `exp` of the rows of `x` whose sum is positive."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 8])
    nodes = [
        helper.make_node("ReduceSum", ["x", "axis"], ["sums"], "sums", keepdims=0),
        helper.make_node("Greater", ["sums", "zero"], ["is_above"], "above"),
        helper.make_node("Compress", ["x", "is_above"], ["kept"], "kept", axis=0),
        helper.make_node("Exp", ["kept"], ["y"], "grown"),
    ]
    known = [helper.make_tensor("axis", TensorProto.INT64, [1], [1]), helper.make_tensor("zero", TensorProto.FLOAT, [], [0])]
    graph = helper.make_graph(nodes, "chosen", [x], [y], known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def three_rows() -> ModelProto:
    """Return a model that continues only with exactly three selected rows."""
    model = chosen_rows()
    model.graph.node.append(helper.make_node("Reshape", ["y", "shape"], ["flat"], "flat"))
    model.graph.initializer.append(helper.make_tensor("shape", TensorProto.INT64, [1], [24]))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("flat", TensorProto.FLOAT, [24]))
    return model


@cache
def explored() -> Exploration:
    """Return the exploration of the function."""
    limits.measured_limits = lambda target, threads=1: LIMITS
    return collect(recurrence.lower(W, XS).program, SHORT, Options.of(num_threads=1), inputs=[W, XS])


def _until(tanh):
    return lax.while_loop(lambda state: state[0] < 5, lambda state: (state[0] + 1, dnp.tanh(state[1])), (0, tanh))[1]


@cache
def until() -> Exploration:
    """Return a data-dependent loop whose input has the name of a kernel, with a state too large for one kernel."""
    limits.measured_limits = lambda target, threads=1: LIMITS
    tanh = np.ones((64, 128), np.float32)
    return collect(dlc.jit(_until).lower(tanh).program, SHORT, Options.of(num_threads=1), inputs=[tanh])


@cache
def mnist() -> Exploration:
    """Return the exploration of the model."""
    limits.measured_limits = lambda target, threads=1: LIMITS
    x = np.zeros((1, 1, 28, 28), np.float32)
    program = import_program(MNIST, None, None, None)
    options = Options.of(num_threads=1)
    return collect(program, SHORT, options, inputs=[x], source=onnx_listing(MNIST))


def _residual(x, w):
    h = nn.relu(nn.conv(x, w, padding="same"))
    return nn.relu(nn.conv(h, w, padding="same") + x)


def _block(x, w):
    q, k, v = dnp.split(x @ w, 3, axis=-1)
    scores = nn.softmax(q @ k.T)
    return nn.gelu(x + scores @ v)


def _kept(x, w):
    return dnp.tanh(x[x.sum(axis=1) > 0] @ w)


def _step(weights, state, x, labels):
    def loss(weights):
        return nn.softmax_cross_entropy(nn.relu(x @ weights[0]) @ weights[1], labels).mean()

    value, gradients = dlc.value_and_grad(loss)(weights)
    return value, _ADAM.update(gradients, state, weights)


_ADAM = optim.adamw(1e-3, weight_decay=0.01)
_WEIGHTS = [np.ones((16, 32), np.float32), np.ones((32, 10), np.float32)]
FUNCTIONS = {
    "a residual net": (_residual, (np.ones((1, 8, 8, 8), np.float32), np.ones((3, 3, 8, 8), np.float32))),
    "attention": (_block, (np.ones((16, 32), np.float32), np.ones((32, 96), np.float32))),
    "a choice of rows": (_kept, (np.eye(16, 32, dtype=np.float32), np.ones((32, 32), np.float32))),
    "a training step": (_step, (_WEIGHTS, _ADAM.init(_WEIGHTS), np.ones((8, 16), np.float32), np.arange(8))),
}


# Six rows, three of which are selected.
ROWS = np.ones((6, 8), np.float32) * np.array([[1], [-1], [1], [1], [-1], [-1]], np.float32)


@cache
def page_of_counts() -> Page:
    """Return the page of the model with a data-dependent size."""
    limits.measured_limits = lambda target, threads=1: LIMITS
    return dlc.compile_model(chosen_rows(), target=SHORT, num_threads=1).explore(ROWS)


@cache
def explored_function(name: str) -> Exploration:
    """Return the exploration of one of the functions."""
    limits.measured_limits = lambda target, threads=1: LIMITS
    function, arguments = FUNCTIONS[name]
    jitted = dlc.jit(function)
    program, arrays = jitted.lower(*arguments).program, jitted.arrays(*arguments)
    return collect(program, SHORT, Options.of(num_threads=1), inputs=arrays)


def changed() -> Exploration:
    """Return the model as another compiler could have compiled it: a renamed kernel, other tiles, and one kernel less."""
    one = mnist()
    kernels = tuple(replace(k, name="first") if k.name == "conv_add_relu" else k for k in one.kernels if k.name != "softmax")
    units = tuple(_tiled_otherwise(u) if u.name == "conv_add_relu" else u for u in one.units if u.name != "softmax")
    return replace(one, kernels=kernels, units=units)


def _tiled_otherwise(unit: Unit) -> Unit:
    def step(step: PipelineStep) -> PipelineStep:
        text = step.listing.text.replace("@conv_add_relu", "@first")
        if step.stage == "tiling":
            text = text.replace("%c1 = arith.constant 1", "%c1 = arith.constant 7")
        return replace(step, listing=replace(step.listing, text=text))

    return Unit("kernel", "first", tuple(map(step, unit.steps)))
