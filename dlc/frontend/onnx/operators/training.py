"""The domain `ai.onnx.preview.training`: gradients and optimizer steps.

Gradient(W, X) {xs = [W], zs = [X], y = Y}   ⟶   dY/dW, of Y as the graph computes it
Momentum(R, T, X1, X2, G1, G2, V1, V2)       ⟶   X1', X2', V1', V2': learning rate, step count, tensors, gradients, velocities
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, shape_of
from dlc.dialects.dl.dtypes import is_float
from dlc.errors import ModelError
from dlc.frontend.emitter import Emitter, ImportedValue, discard_block
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.problems import NodeProblem

DOMAIN = "ai.onnx.preview.training"
table = ConverterTable()


@table("Gradient")
def gradient(node: OnnxNode) -> list[ImportedValue]:
    """Differentiate the sum of `y` with respect to each of `xs`, where `xs` and `zs` have the values of the inputs."""
    emit, names, y = node.emit, node.strings("xs"), node.string("y")
    other_names, count = node.strings("zs", ()), len(names)
    if len(node.inputs) != count + len(other_names) or not names:
        raise ModelError(f"{node.description}: {len(node.inputs)} inputs for {count} names in xs and {len(other_names)} in zs")
    values = [node[k] for k in range(len(node.inputs))]
    variables, function = values[:count], node.subgraph_between([*names, *other_names], y)
    for name, x in zip(names, variables, strict=True):
        if x.is_string or not is_float(x.element_type):
            raise NodeProblem("dtype", f"'{name}' in xs is {x}, which is not differentiable; expected floats")

    def run(inner: Emitter, arguments: Sequence[ImportedValue]) -> Sequence[ImportedValue]:
        return node.import_subgraph(function, [*arguments, *values[count:]], inner)

    body = emit.body([x.type for x in variables], run)
    assert body.last_op is not None
    (result,) = body.last_op.operands
    if not is_float(element_type_of(result)):
        discard_block(body)
        raise NodeProblem("dtype", f"'{y}' is of {element_type_of(result)}, which is not differentiable; expected floats")
    cotangent = emit.full(1, shape_of(result), element_type_of(result))
    return emit.insert(dl.VjpOp.of([*map(emit.ssa, variables)], [emit.ssa(cotangent)], body, range(count), [0]))[1:]


def _scaled(emit: Emitter, x: ImportedValue, factor: float) -> ImportedValue:
    return emit(dl.MulOp, x, emit.scalar(factor, x))


def _map_tensors(node: OnnxNode, num_roles: int, step: Callable[..., Sequence[ImportedValue]]) -> list[ImportedValue]:
    """Apply `step` to each tensor and its state; the inputs are grouped by role: all tensors, all gradients, each state."""
    count, remainder = divmod(len(node.inputs) - 2, num_roles)
    if remainder or count < 1:
        raise ModelError(f"{node.description}: {len(node.inputs) - 2} tensors are not a multiple of {num_roles}")
    results = [step(*(node[2 + k + role * count] for role in range(num_roles))) for k in range(count)]
    return [tensors[role] for role in range(num_roles - 1) for tensors in results]


def _add_weight_decay(node: OnnxNode, x: ImportedValue, gradient: ImportedValue) -> ImportedValue:
    """Add the gradient of `norm_coefficient` · |x|² / 2."""
    return node.emit(dl.AddOp, _scaled(node.emit, x, node.real("norm_coefficient", 0.0)), gradient)


def _after_first_step(node: OnnxNode, then: ImportedValue, otherwise: ImportedValue) -> ImportedValue:
    """Select `then` from the second step on, `otherwise` in the first."""
    emit, count = node.emit, node[1]
    return emit(dl.SelectOp, emit(dl.GreaterOp, count, emit.scalar(0, count)), then, otherwise)


@table("Momentum")
def momentum(node: OnnxNode) -> list[ImportedValue]:
    emit, rate, alpha = node.emit, node[0], node.real("alpha")
    nesterov = node.choice("mode", "standard", ("standard", "nesterov")) == "nesterov"
    beta = _after_first_step(node, emit.scalar(node.real("beta"), rate), emit.scalar(1, rate))

    def step(x: ImportedValue, gradient: ImportedValue, velocity: ImportedValue) -> Sequence[ImportedValue]:
        gradient = _add_weight_decay(node, x, gradient)
        velocity = emit(dl.AddOp, _scaled(emit, velocity, alpha), emit(dl.MulOp, beta, gradient))
        direction = emit(dl.AddOp, gradient, _scaled(emit, velocity, alpha)) if nesterov else velocity
        return emit(dl.SubOp, x, emit(dl.MulOp, rate, direction)), velocity

    return _map_tensors(node, 3, step)


@table("Adagrad")
def adagrad(node: OnnxNode) -> list[ImportedValue]:
    emit, rate, epsilon = node.emit, node[0], node.real("epsilon", 0.0)
    decay = _scaled(emit, emit.cast(node[1], rate.element_type), node.real("decay_factor", 0.0))
    rate = emit(dl.DivOp, rate, emit(dl.AddOp, decay, emit.scalar(1, decay)))

    def step(x: ImportedValue, gradient: ImportedValue, squares: ImportedValue) -> Sequence[ImportedValue]:
        gradient = _add_weight_decay(node, x, gradient)
        squares = emit(dl.AddOp, squares, emit(dl.MulOp, gradient, gradient))
        denominator = emit(dl.SqrtOp, squares)
        denominator = emit(dl.AddOp, denominator, emit.scalar(epsilon, denominator))
        return emit(dl.SubOp, x, emit(dl.DivOp, emit(dl.MulOp, rate, gradient), denominator)), squares

    return _map_tensors(node, 3, step)


@table("Adam")
def adam(node: OnnxNode) -> list[ImportedValue]:
    emit, rate, epsilon = node.emit, node[0], node.real("epsilon", 0.0)
    alpha, beta, decay_after_step = node.real("alpha", 0.9), node.real("beta", 0.999), node.real("norm_coefficient_post", 0.0)
    count = emit.cast(node[1], rate.element_type)

    def bias_correction(factor: float) -> ImportedValue:
        """Return 1 - factor^T, the bias correction."""
        return emit(dl.SubOp, emit.scalar(1, rate), emit(dl.PowOp, emit.scalar(factor, rate), count))

    corrected = emit(dl.MulOp, rate, emit(dl.DivOp, emit(dl.SqrtOp, bias_correction(beta)), bias_correction(alpha)))
    rate = _after_first_step(node, corrected, rate)

    def step(x: ImportedValue, gradient: ImportedValue, mean: ImportedValue, squares: ImportedValue) -> Sequence[ImportedValue]:
        gradient = _add_weight_decay(node, x, gradient)
        mean = emit(dl.AddOp, _scaled(emit, mean, alpha), _scaled(emit, gradient, 1 - alpha))
        square = emit(dl.MulOp, gradient, gradient)
        squares = emit(dl.AddOp, _scaled(emit, squares, beta), _scaled(emit, square, 1 - beta))
        denominator = emit(dl.SqrtOp, squares)
        denominator = emit(dl.AddOp, denominator, emit.scalar(epsilon, denominator))
        updated = emit(dl.SubOp, x, emit(dl.MulOp, rate, emit(dl.DivOp, mean, denominator)))
        return _scaled(emit, updated, 1 - decay_after_step), mean, squares

    return _map_tensors(node, 4, step)
