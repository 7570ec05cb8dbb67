"""The domain `ai.onnx.preview.training`: derivatives, and steps of optimisers.

Gradient(W, X) {xs = [W], zs = [X], y = Y}   ⟶   dY/dW, of Y as the graph has it
Momentum(R, T, X1, X2, G1, G2, V1, V2)       ⟶   X1', X2', V1', V2', of a rate, a count, and tensors of each kind in turn
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, shape_of
from dlc.dialects.dl.dtypes import is_float
from dlc.errors import ModelError
from dlc.frontend.emit import Emitter, Value, discard
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.registry import Table
from dlc.frontend.problems import NodeProblem

DOMAIN = "ai.onnx.preview.training"
table = Table()


@table("Gradient")
def gradient(node: Node) -> list[Value]:
    """What the elements of `y` together are derived by each of `xs`, where `xs` and `zs` have the values of the inputs."""
    emit, names, y = node.emit, node.texts("xs"), node.text("y")
    others, count = node.texts("zs", ()), len(names)
    if len(node.inputs) != count + len(others) or not names:
        raise ModelError(f"{node.place}: {len(node.inputs)} inputs for {count} names in xs and {len(others)} in zs")
    values = [node[k] for k in range(len(node.inputs))]
    of, function = values[:count], node.between([*names, *others], y)
    for name, x in zip(names, of, strict=True):
        if x.is_text or not is_float(x.element_type):
            raise NodeProblem("dtype", f"'{name}' in xs is {x}, which has no derivative; expected floats")

    def run(inner: Emitter, arguments: Sequence[Value]) -> Sequence[Value]:
        return node.inline(function, [*arguments, *values[count:]], inner)

    body = emit.body([x.type for x in of], run)
    assert body.last_op is not None
    (made,) = body.last_op.operands
    if not is_float(element_type_of(made)):
        discard(body)
        raise NodeProblem("dtype", f"'{y}' is of {element_type_of(made)}, which has no derivative; expected floats")
    one = emit.full(1, shape_of(made), element_type_of(made))
    return emit.results(dl.VjpOp.of([*map(emit.ssa, of)], [emit.ssa(one)], body, range(count), [0]))[1:]


def _scaled(emit: Emitter, x: Value, factor: float) -> Value:
    return emit(dl.MulOp, x, emit.scalar(factor, x))


def _each(node: Node, kinds: int, step: Callable[..., Sequence[Value]]) -> list[Value]:
    """What `step` makes of each tensor and what belongs to it, all of one kind before those of the next."""
    count, left = divmod(len(node.inputs) - 2, kinds)
    if left or count < 1:
        raise ModelError(f"{node.place}: {len(node.inputs) - 2} tensors, of {kinds} kinds")
    made = [step(*(node[2 + k + kind * count] for kind in range(kinds))) for k in range(count)]
    return [of_one[kind] for kind in range(kinds - 1) for of_one in made]


def _regular(node: Node, x: Value, gradient: Value) -> Value:
    """The gradient with that of `norm_coefficient` · |x|² / 2."""
    return node.emit(dl.AddOp, _scaled(node.emit, x, node.real("norm_coefficient", 0.0)), gradient)


def _started(node: Node, then: Value, otherwise: Value) -> Value:
    """One value from the second step on, another one in the first."""
    emit, count = node.emit, node[1]
    return emit(dl.SelectOp, emit(dl.GreaterOp, count, emit.scalar(0, count)), then, otherwise)


@table("Momentum")
def momentum(node: Node) -> list[Value]:
    emit, rate, alpha = node.emit, node[0], node.real("alpha")
    nesterov = node.choice("mode", "standard", ("standard", "nesterov")) == "nesterov"
    beta = _started(node, emit.scalar(node.real("beta"), rate), emit.scalar(1, rate))

    def step(x: Value, gradient: Value, velocity: Value) -> Sequence[Value]:
        gradient = _regular(node, x, gradient)
        velocity = emit(dl.AddOp, _scaled(emit, velocity, alpha), emit(dl.MulOp, beta, gradient))
        way = emit(dl.AddOp, gradient, _scaled(emit, velocity, alpha)) if nesterov else velocity
        return emit(dl.SubOp, x, emit(dl.MulOp, rate, way)), velocity

    return _each(node, 3, step)


@table("Adagrad")
def adagrad(node: Node) -> list[Value]:
    emit, rate, epsilon = node.emit, node[0], node.real("epsilon", 0.0)
    slower = _scaled(emit, emit.cast(node[1], rate.element_type), node.real("decay_factor", 0.0))
    rate = emit(dl.DivOp, rate, emit(dl.AddOp, slower, emit.scalar(1, slower)))

    def step(x: Value, gradient: Value, squares: Value) -> Sequence[Value]:
        gradient = _regular(node, x, gradient)
        squares = emit(dl.AddOp, squares, emit(dl.MulOp, gradient, gradient))
        size = emit(dl.SqrtOp, squares)
        size = emit(dl.AddOp, size, emit.scalar(epsilon, size))
        return emit(dl.SubOp, x, emit(dl.DivOp, emit(dl.MulOp, rate, gradient), size)), squares

    return _each(node, 3, step)


@table("Adam")
def adam(node: Node) -> list[Value]:
    emit, rate, epsilon = node.emit, node[0], node.real("epsilon", 0.0)
    alpha, beta, after = node.real("alpha", 0.9), node.real("beta", 0.999), node.real("norm_coefficient_post", 0.0)
    count = emit.cast(node[1], rate.element_type)

    def left(factor: float) -> Value:
        """1 - factor^T"""
        return emit(dl.SubOp, emit.scalar(1, rate), emit(dl.PowOp, emit.scalar(factor, rate), count))

    corrected = emit(dl.MulOp, rate, emit(dl.DivOp, emit(dl.SqrtOp, left(beta)), left(alpha)))
    rate = _started(node, corrected, rate)

    def step(x: Value, gradient: Value, mean: Value, squares: Value) -> Sequence[Value]:
        gradient = _regular(node, x, gradient)
        mean = emit(dl.AddOp, _scaled(emit, mean, alpha), _scaled(emit, gradient, 1 - alpha))
        square = emit(dl.MulOp, gradient, gradient)
        squares = emit(dl.AddOp, _scaled(emit, squares, beta), _scaled(emit, square, 1 - beta))
        size = emit(dl.SqrtOp, squares)
        size = emit(dl.AddOp, size, emit.scalar(epsilon, size))
        moved = emit(dl.SubOp, x, emit(dl.MulOp, rate, emit(dl.DivOp, mean, size)))
        return _scaled(emit, moved, 1 - after), mean, squares

    return _each(node, 4, step)
