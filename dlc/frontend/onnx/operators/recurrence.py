"""Recurrent networks: RNN, GRU, LSTM.

The products of the input with its weights do not depend on the previous step: they are one contraction for all steps. The rest
is a `dl.scan`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.errors import ModelError
from dlc.frontend.emitter import Emitter, ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.problems import NodeProblem
from dlc.ir import i64
from dlc.shapes.dims import Size, are_equal

table = ConverterTable()

Activation = Callable[[Emitter, ImportedValue], ImportedValue]
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass(frozen=True)
class _Weights:
    """The weights of one direction of a layer with `hidden` units and a number of gates.

    Shapes: `input` [inputs, gates · hidden] and `recurrent` [hidden, gates · hidden], which are ONNX's W and R
    transposed, their biases [gates · hidden], peepholes [3 · hidden].
    """

    hidden: int
    input: ImportedValue
    recurrent: ImportedValue
    input_bias: ImportedValue | None
    recurrent_bias: ImportedValue | None
    peepholes: ImportedValue | None
    functions: Sequence[Activation]

    def gates(self, emit: Emitter, x: ImportedValue, first: int, count: int = 1) -> ImportedValue:
        """Slice `count` gates, from `first` on, from the last axis."""
        return emit.slice(x, x.rank - 1, first * self.hidden, (first + count) * self.hidden)


# (emitter, x · W + b of one step [batch, gates · hidden], states [batch, hidden]) -> next states.
Cell = Callable[[Emitter, ImportedValue, Sequence[ImportedValue]], Sequence[ImportedValue]]


@table("RNN")
def rnn(node: OnnxNode) -> Sequence[ImportedValue]:
    def cell(weights: _Weights, emit: Emitter, x: ImportedValue, states: Sequence[ImportedValue]) -> Sequence[ImportedValue]:
        (function,), (state,) = weights.functions, states
        return (function(emit, _sum(emit, x, emit(dl.MatmulOp, state, weights.recurrent))),)

    return _layer(node, ("Tanh",), 1, 1, lambda w: (_merge_biases(node.emit, w), partial(cell, w)))


@table("GRU")
def gru(node: OnnxNode) -> Sequence[ImportedValue]:
    """Gate order: update, reset, hidden."""

    def cell(weights: _Weights, emit: Emitter, x: ImportedValue, states: Sequence[ImportedValue]) -> Sequence[ImportedValue]:
        (f, g), (state,) = weights.functions, states
        pre_activations = _sum(
            emit, weights.gates(emit, x, 0, 2), emit(dl.MatmulOp, state, weights.gates(node.emit, weights.recurrent, 0, 2))
        )
        update, reset = (f(emit, weights.gates(emit, pre_activations, k)) for k in range(2))
        recurrent_sum = emit(dl.MatmulOp, emit(dl.MulOp, reset, state), weights.gates(node.emit, weights.recurrent, 2))
        return (_interpolate(emit, update, state, g(emit, _sum(emit, weights.gates(emit, x, 2), recurrent_sum))),)

    def cell_linear_before_reset(
        weights: _Weights, emit: Emitter, x: ImportedValue, states: Sequence[ImportedValue]
    ) -> Sequence[ImportedValue]:
        (f, g), (state,) = weights.functions, states
        products = _sum(emit, emit(dl.MatmulOp, state, weights.recurrent), weights.recurrent_bias)
        pre_activations = _sum(emit, weights.gates(emit, x, 0, 2), weights.gates(emit, products, 0, 2))
        update, reset = (f(emit, weights.gates(emit, pre_activations, k)) for k in range(2))
        recurrent_sum = emit(dl.MulOp, reset, weights.gates(emit, products, 2))
        return (_interpolate(emit, update, state, g(emit, _sum(emit, weights.gates(emit, x, 2), recurrent_sum))),)

    if node.flag("linear_before_reset"):
        return _layer(node, ("Sigmoid", "Tanh"), 3, 1, lambda w: (w, partial(cell_linear_before_reset, w)))
    return _layer(node, ("Sigmoid", "Tanh"), 3, 1, lambda w: (_merge_biases(node.emit, w), partial(cell, w)))


def _interpolate(emit: Emitter, update: ImportedValue, state: ImportedValue, new: ImportedValue) -> ImportedValue:
    complement = emit(dl.SubOp, emit.scalar(1, update), update)
    return _sum(emit, emit(dl.MulOp, complement, new), emit(dl.MulOp, update, state))


@table("LSTM")
def lstm(node: OnnxNode) -> Sequence[ImportedValue]:
    """Gate order: input, output, forget, cell; peepholes: input, output, forget."""
    is_coupled = node.flag("input_forget")

    def cell(weights: _Weights, emit: Emitter, x: ImportedValue, states: Sequence[ImportedValue]) -> Sequence[ImportedValue]:
        (f, g, h), (hidden_state, cell_state) = weights.functions, states
        pre_activations = _sum(emit, x, emit(dl.MatmulOp, hidden_state, weights.recurrent))

        def gate(k: int, peephole_state: ImportedValue) -> ImportedValue:
            pre_activation = weights.gates(emit, pre_activations, k)
            if weights.peepholes is None:
                return f(emit, pre_activation)
            return f(
                emit, _sum(emit, pre_activation, emit(dl.MulOp, weights.gates(node.emit, weights.peepholes, k), peephole_state))
            )

        input_gate = gate(0, cell_state)
        forget_gate = emit(dl.SubOp, emit.scalar(1, input_gate), input_gate) if is_coupled else gate(2, cell_state)
        new = g(emit, weights.gates(emit, pre_activations, 3))
        next_cell_state = _sum(emit, emit(dl.MulOp, forget_gate, cell_state), emit(dl.MulOp, input_gate, new))
        return emit(dl.MulOp, gate(1, next_cell_state), h(emit, next_cell_state)), next_cell_state

    return _layer(node, ("Sigmoid", "Tanh", "Tanh"), 4, 2, lambda w: (_merge_biases(node.emit, w), partial(cell, w)))


def _sum(emit: Emitter, x: ImportedValue, y: ImportedValue | None) -> ImportedValue:
    return x if y is None else emit(dl.AddOp, x, y)


def _merge_biases(emit: Emitter, weights: _Weights) -> _Weights:
    """Add the recurrent bias to the input bias, for cells that only use the sum of both products."""
    return (
        weights
        if weights.input_bias is None
        else replace(weights, input_bias=_sum(emit, weights.input_bias, weights.recurrent_bias), recurrent_bias=None)
    )


def _layer(
    node: OnnxNode, defaults: Sequence[str], gates: int, states: int, cell_of: Callable[[_Weights], tuple[_Weights, Cell]]
) -> Sequence[ImportedValue]:
    """Return Y [steps, directions, batch, hidden] and the last states [directions, batch, hidden].

    With `layout` 1 the batch is the first axis of both.
    """
    emit, x, w, r = node.emit, node[0], node[1], node[2]
    by_batch = node.flag("layout")
    if (x.rank, w.rank, r.rank) != (3, 3, 3):
        raise ModelError(f"{node.description}: X, W and R must have rank 3, got {x.rank}, {w.rank} and {r.rank}")
    x = emit.transpose(x, (1, 0, 2)) if by_batch else x
    length, batch, hidden = x.shape[0], x.shape[1], int(r.shape[2])
    backward = _DIRECTIONS[node.choice("direction", "forward", tuple(_DIRECTIONS))]
    count = len(backward)
    have_matching_sizes = all(map(are_equal, (*w.shape[:2], *r.shape[:2]), (count, gates * hidden) * 2))
    if node.integer("hidden_size", hidden) != hidden or not have_matching_sizes:
        raise ModelError(
            f"{node.description}: W {list(w.shape)} and R {list(r.shape)} do not match {count} directions of {gates} gates"
        )
    functions = _functions(node, defaults, count)
    bias, active = node.get(3), _active(node, length, batch)
    initial_states = [node.get(5 + k) for k in range(states)]
    peepholes = node.get(5 + states) if gates == 4 else None
    state = (batch, count, hidden) if by_batch else (count, batch, hidden)
    for input_name, value, shape in (
        ("B", bias, (count, 2 * gates * hidden)),
        ("P", peepholes, (count, 3 * hidden)),
        ("sequence_lens", node.get(4), (batch,)),
        *((f"initial state {k}", s, state) for k, s in enumerate(initial_states)),
    ):
        if value is None:
            continue
        sizes = zip(value.shape, shape, strict=False)
        if value.rank != len(shape) or any(node.emit.are_different(size, n, node.description) for size, n in sizes):
            raise ModelError(f"{node.description}: {input_name} has the shape {list(value.shape)}, expected {list(shape)}")
    sequences: list[ImportedValue] = []
    states_by_direction: list[list[ImportedValue]] = [[] for _ in range(states)]
    for d, reverse in enumerate(backward):
        weights, cell = cell_of(
            _Weights(
                hidden,
                emit.transpose(_row(emit, w, d), (1, 0)),
                emit.transpose(_row(emit, r, d), (1, 0)),
                None if bias is None else emit.slice(_row(emit, bias, d), 0, 0, gates * hidden),
                None if bias is None else emit.slice(_row(emit, bias, d), 0, gates * hidden, 2 * gates * hidden),
                None if peepholes is None else _row(emit, peepholes, d),
                functions[d],
            )
        )
        input_terms = _sum(emit, emit(dl.MatmulOp, x, weights.input), weights.input_bias)
        first_states = [_initial_state(emit, s, d, by_batch, (batch, hidden), x) for s in initial_states]
        final_states, result = _run(emit, cell, (input_terms, *active), first_states, length, reverse)
        sequences.append(emit.reshape(result, (length, 1, batch, hidden)))
        for collected, end in zip(states_by_direction, final_states, strict=True):
            collected.append(emit.reshape(end, (1, batch, hidden)))
    y, final_states = _concatenate(emit, sequences, 1), [_concatenate(emit, end, 0) for end in states_by_direction]
    return (
        [emit.transpose(y, (2, 0, 1, 3)), *(emit.transpose(e, (1, 0, 2)) for e in final_states)]
        if by_batch
        else [y, *final_states]
    )


def _run(
    emit: Emitter, cell: Cell, sequences: Sequence[ImportedValue], states: Sequence[ImportedValue], length: Size, reverse: bool
) -> tuple[Sequence[ImportedValue], ImportedValue]:
    """Scan one direction; return the last states and the first state after each step.

    After the end of a sequence its states are unchanged and its outputs are 0.
    """

    def step(
        inner: Emitter, states: Sequence[ImportedValue], elements: Sequence[ImportedValue]
    ) -> tuple[Sequence[ImportedValue], Sequence[ImportedValue]]:
        x, *active = elements
        next_states = cell(inner, x, states)
        if not active:
            return next_states, next_states[:1]
        result = inner(dl.SelectOp, active[0], next_states[0], inner.scalar(0, x))
        return [inner(dl.SelectOp, active[0], new, old) for new, old in zip(next_states, states, strict=True)], [result]

    final_states, (result,) = emit.scan(states, sequences, length, step, reverse)
    return final_states, result


def _active(node: OnnxNode, length: Size, batch: Size) -> list[ImportedValue]:
    """Return a mask of the steps before the end of each sequence, [steps, batch, 1]; an empty list if all have full length."""
    lengths, emit = node.get(4), node.emit
    if lengths is None or (lengths.constant_value is not None and all(n == length for n in lengths.constant_value.reshape(-1))):
        return []
    steps = emit.reshape(emit.iota(length), (length, 1, 1))
    return [emit(dl.LessOp, steps, emit.reshape(emit.cast(lengths, i64), (1, batch, 1)))]


def _row(emit: Emitter, x: ImportedValue, k: int) -> ImportedValue:
    return emit.reshape(emit.slice(x, 0, k, k + 1), x.shape[1:])


def _initial_state(
    emit: Emitter, state: ImportedValue | None, d: int, by_batch: bool, shape: tuple[Size, Size], like: ImportedValue
) -> ImportedValue:
    if state is None:
        return emit.full(0, shape, like)
    return _row(emit, emit.transpose(state, (1, 0, 2)) if by_batch else state, d)


def _concatenate(emit: Emitter, values: Sequence[ImportedValue], axis: int) -> ImportedValue:
    return emit(dl.ConcatOp, *values, axis=axis) if len(values) > 1 else values[0]


def _affine(emit: Emitter, x: ImportedValue, alpha: float, beta: float) -> ImportedValue:
    return emit(dl.AddOp, emit(dl.MulOp, x, emit.scalar(alpha, x)), emit.scalar(beta, x))


def _scaled_tanh(emit: Emitter, x: ImportedValue, alpha: float, beta: float) -> ImportedValue:
    return emit(dl.MulOp, emit(dl.TanhOp, emit(dl.MulOp, x, emit.scalar(beta, x))), emit.scalar(alpha, x))


def _op(op: type[DlOp]) -> Callable[..., ImportedValue]:
    def activation(emit: Emitter, x: ImportedValue, **properties: float) -> ImportedValue:
        return emit(op, x, **properties)

    return activation


# Activation functions with their default α and β; for the last two, ONNX has no defaults, these are ONNX Runtime's.
_FUNCTIONS: dict[str, tuple[Callable[..., ImportedValue], dict[str, float]]] = {
    "relu": (_op(dl.ReluOp), {}), "tanh": (_op(dl.TanhOp), {}), "sigmoid": (_op(dl.SigmoidOp), {}),
    "softsign": (_op(dl.SoftsignOp), {}), "softplus": (_op(dl.SoftplusOp), {}),
    "leakyrelu": (_op(dl.LeakyReluOp), {"alpha": 0.01}), "thresholdedrelu": (_op(dl.ThresholdedReluOp), {"alpha": 1.0}),
    "elu": (_op(dl.EluOp), {"alpha": 1.0}), "hardsigmoid": (_op(dl.HardsigmoidOp), {"alpha": 0.2, "beta": 0.5}),
    "affine": (_affine, {"alpha": 0.0, "beta": 0.0}), "scaledtanh": (_scaled_tanh, {"alpha": 0.0, "beta": 0.0}),
}  # fmt: skip


def _functions(node: OnnxNode, defaults: Sequence[str], directions: int) -> list[list[Activation]]:
    """Return the activation functions of each direction."""
    names = node.strings("activations", list(defaults) * directions)
    if len(names) != len(defaults) * directions:
        raise ModelError(
            f"{node.description}: got {len(names)} activations, expected {len(defaults)} for each of {directions} directions"
        )
    coefficients = {name: iter(node.reals(f"activation_{name}", ())) for name in ("alpha", "beta")}
    clip = node.real("clip", 0.0)
    # As in ONNX Runtime, pre-activations are clipped, but not the cell of an LSTM.
    results = [_function(node, name, coefficients, clip if k % len(defaults) < 2 else 0.0) for k, name in enumerate(names)]
    return [results[k : k + len(defaults)] for k in range(0, len(results), len(defaults))]


def _function(node: OnnxNode, name: str, coefficients: dict[str, Iterator[float]], clip: float) -> Activation:
    # Exporters differ in capitalization.
    if name.lower() not in _FUNCTIONS:
        raise NodeProblem("attribute", f"activation '{name}'; supported: {', '.join(_FUNCTIONS)}")
    activation, defaults = _FUNCTIONS[name.lower()]
    properties = {key: next(coefficients[key], default) for key, default in defaults.items()}

    def function(emit: Emitter, x: ImportedValue) -> ImportedValue:
        if clip > 0:
            x = emit(dl.MaximumOp, emit(dl.MinimumOp, x, emit.scalar(clip, x)), emit.scalar(-clip, x))
        return activation(emit, x, **properties)

    return function
