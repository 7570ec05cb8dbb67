"""Recurrent networks: RNN, GRU, LSTM.

The products with the input's weights do not depend on the step before: they are one contraction for all steps. A `dl.scan`
does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.contractions.contraction import differ
from dlc.dims import Size
from dlc.errors import ModelError
from dlc.frontend.emit import Emitter, Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.registry import Table
from dlc.frontend.problems import NodeProblem
from dlc.frontend.symbolic import equal
from dlc.ir import i64

table = Table()

Activation = Callable[[Emitter, Value], Value]
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass(frozen=True)
class _Weights:
    """What one direction of a layer has for itself, for `hidden` units with some gates each.

    `input` and `state` are [inputs or hidden, gates · hidden], their biases [gates · hidden], peepholes [3 · hidden].
    """

    hidden: int
    input: Value
    state: Value
    input_bias: Value | None
    state_bias: Value | None
    peepholes: Value | None
    functions: Sequence[Activation]

    def gates(self, emit: Emitter, x: Value, first: int, count: int = 1) -> Value:
        """Some of the gates along the last axis."""
        return emit.slice(x, x.rank - 1, first * self.hidden, (first + count) * self.hidden)


# Given the gates' sums over the input [batch, gates · hidden] and the states [batch, hidden]: the next states.
Cell = Callable[[Emitter, Value, Sequence[Value]], Sequence[Value]]


@table("RNN")
def rnn(node: Node) -> Sequence[Value]:
    def cell(w: _Weights, emit: Emitter, x: Value, states: Sequence[Value]) -> Sequence[Value]:
        (function,), (state,) = w.functions, states
        return (function(emit, _sum(emit, x, emit(dl.MatmulOp, state, w.state))),)

    return _layer(node, ("Tanh",), 1, 1, lambda w: (_biased(node.emit, w), partial(cell, w)))


@table("GRU")
def gru(node: Node) -> Sequence[Value]:
    """Gates: update, reset, hidden."""

    def cell(w: _Weights, emit: Emitter, x: Value, states: Sequence[Value]) -> Sequence[Value]:
        (f, g), (state,) = w.functions, states
        both = _sum(emit, w.gates(emit, x, 0, 2), emit(dl.MatmulOp, state, w.gates(node.emit, w.state, 0, 2)))
        update, reset = (f(emit, w.gates(emit, both, k)) for k in range(2))
        rest = emit(dl.MatmulOp, emit(dl.MulOp, reset, state), w.gates(node.emit, w.state, 2))
        return (_mixed(emit, update, state, g(emit, _sum(emit, w.gates(emit, x, 2), rest))),)

    def cell_with_late_reset(w: _Weights, emit: Emitter, x: Value, states: Sequence[Value]) -> Sequence[Value]:
        (f, g), (state,) = w.functions, states
        products = _sum(emit, emit(dl.MatmulOp, state, w.state), w.state_bias)
        both = _sum(emit, w.gates(emit, x, 0, 2), w.gates(emit, products, 0, 2))
        update, reset = (f(emit, w.gates(emit, both, k)) for k in range(2))
        rest = emit(dl.MulOp, reset, w.gates(emit, products, 2))
        return (_mixed(emit, update, state, g(emit, _sum(emit, w.gates(emit, x, 2), rest))),)

    if node.flag("linear_before_reset"):
        return _layer(node, ("Sigmoid", "Tanh"), 3, 1, lambda w: (w, partial(cell_with_late_reset, w)))
    return _layer(node, ("Sigmoid", "Tanh"), 3, 1, lambda w: (_biased(node.emit, w), partial(cell, w)))


def _mixed(emit: Emitter, update: Value, state: Value, new: Value) -> Value:
    rest = emit(dl.SubOp, emit.scalar(1, update), update)
    return _sum(emit, emit(dl.MulOp, rest, new), emit(dl.MulOp, update, state))


@table("LSTM")
def lstm(node: Node) -> Sequence[Value]:
    """Gates: input, output, forget, cell; peepholes: input, output, forget."""
    coupled = node.flag("input_forget")

    def cell(w: _Weights, emit: Emitter, x: Value, states: Sequence[Value]) -> Sequence[Value]:
        (f, g, h), (state, memory) = w.functions, states
        sums = _sum(emit, x, emit(dl.MatmulOp, state, w.state))

        def gate(k: int, seen: Value) -> Value:
            own = w.gates(emit, sums, k)
            if w.peepholes is None:
                return f(emit, own)
            return f(emit, _sum(emit, own, emit(dl.MulOp, w.gates(node.emit, w.peepholes, k), seen)))

        add = gate(0, memory)
        keep = emit(dl.SubOp, emit.scalar(1, add), add) if coupled else gate(2, memory)
        new = g(emit, w.gates(emit, sums, 3))
        following = _sum(emit, emit(dl.MulOp, keep, memory), emit(dl.MulOp, add, new))
        return emit(dl.MulOp, gate(1, following), h(emit, following)), following

    return _layer(node, ("Sigmoid", "Tanh", "Tanh"), 4, 2, lambda w: (_biased(node.emit, w), partial(cell, w)))


def _sum(emit: Emitter, x: Value, y: Value | None) -> Value:
    return x if y is None else emit(dl.AddOp, x, y)


def _biased(emit: Emitter, w: _Weights) -> _Weights:
    """Both biases as the input's, where nothing is done to the state's products alone."""
    return w if w.input_bias is None else replace(w, input_bias=_sum(emit, w.input_bias, w.state_bias), state_bias=None)


def _layer(
    node: Node, defaults: Sequence[str], gates: int, states: int, cell_of: Callable[[_Weights], tuple[_Weights, Cell]]
) -> Sequence[Value]:
    """Y [steps, directions, batch, hidden], and the last states [directions, batch, hidden]; by batches if `layout` is 1."""
    emit, x, w, r = node.emit, node[0], node[1], node[2]
    by_batch = node.flag("layout")
    if (x.rank, w.rank, r.rank) != (3, 3, 3):
        raise ModelError(f"{node.place}: X, W and R have the ranks {x.rank}, {w.rank} and {r.rank}, expected 3")
    x = emit.transpose(x, (1, 0, 2)) if by_batch else x
    length, batch, hidden = x.shape[0], x.shape[1], int(r.shape[2])
    backward = _DIRECTIONS[node.choice("direction", "forward", tuple(_DIRECTIONS))]
    count = len(backward)
    fit = all(map(equal, (*w.shape[:2], *r.shape[:2]), (count, gates * hidden) * 2))
    if node.integer("hidden_size", hidden) != hidden or not fit:
        raise ModelError(
            f"{node.place}: W {list(w.shape)} and R {list(r.shape)} do not fit {count} directions of {gates} gates"
        )
    functions = _functions(node, defaults, count)
    bias, active = node.get(3), _active(node, length, batch)
    first = [node.get(5 + k) for k in range(states)]
    peepholes = node.get(5 + states) if gates == 4 else None
    state = (batch, count, hidden) if by_batch else (count, batch, hidden)
    for what, value, shape in (
        ("B", bias, (count, 2 * gates * hidden)),
        ("P", peepholes, (count, 3 * hidden)),
        ("sequence_lens", node.get(4), (batch,)),
        *((f"initial state {k}", s, state) for k, s in enumerate(first)),
    ):
        if value is not None and (value.rank != len(shape) or any(map(differ, value.shape, shape))):
            raise ModelError(f"{node.place}: {what} has the shape {list(value.shape)}, expected {list(shape)}")
    sequences: list[Value] = []
    last: list[list[Value]] = [[] for _ in range(states)]
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
        sums = _sum(emit, emit(dl.MatmulOp, x, weights.input), weights.input_bias)
        begin = [_first(emit, s, d, by_batch, (batch, hidden), x) for s in first]
        ends, made = _run(emit, cell, (sums, *active), begin, length, reverse)
        sequences.append(emit.reshape(made, (length, 1, batch, hidden)))
        for all_ends, end in zip(last, ends, strict=True):
            all_ends.append(emit.reshape(end, (1, batch, hidden)))
    y, ends = _joined(emit, sequences, 1), [_joined(emit, end, 0) for end in last]
    return [emit.transpose(y, (2, 0, 1, 3)), *(emit.transpose(e, (1, 0, 2)) for e in ends)] if by_batch else [y, *ends]


def _run(
    emit: Emitter, cell: Cell, sequences: Sequence[Value], states: Sequence[Value], length: Size, reverse: bool
) -> tuple[Sequence[Value], Value]:
    """The last states, and the first state after each step; where a batch's sequence has ended, states stay and 0 is made."""

    def step(inner: Emitter, states: Sequence[Value], elements: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        x, *active = elements
        following = cell(inner, x, states)
        if not active:
            return following, following[:1]
        made = inner(dl.SelectOp, active[0], following[0], inner.scalar(0, x))
        return [inner(dl.SelectOp, active[0], new, old) for new, old in zip(following, states, strict=True)], [made]

    ends, (made,) = emit.scan(states, sequences, length, step, reverse)
    return ends, made


def _active(node: Node, length: Size, batch: Size) -> list[Value]:
    """Whether each batch's sequence goes on, as a sequence [steps, batch, 1]; nothing if all are as long as they can be."""
    lengths, emit = node.get(4), node.emit
    if lengths is None or (lengths.known is not None and all(n == length for n in lengths.known.reshape(-1))):
        return []
    steps = emit.reshape(emit.iota(length), (length, 1, 1))
    return [emit(dl.LessOp, steps, emit.reshape(emit.cast(lengths, i64), (1, batch, 1)))]


def _row(emit: Emitter, x: Value, k: int) -> Value:
    return emit.reshape(emit.slice(x, 0, k, k + 1), x.shape[1:])


def _first(emit: Emitter, state: Value | None, d: int, by_batch: bool, shape: tuple[Size, Size], like: Value) -> Value:
    if state is None:
        return emit.full(0, shape, like)
    return _row(emit, emit.transpose(state, (1, 0, 2)) if by_batch else state, d)


def _joined(emit: Emitter, values: Sequence[Value], axis: int) -> Value:
    return emit(dl.ConcatOp, *values, axis=axis) if len(values) > 1 else values[0]


def _affine(emit: Emitter, x: Value, alpha: float, beta: float) -> Value:
    return emit(dl.AddOp, emit(dl.MulOp, x, emit.scalar(alpha, x)), emit.scalar(beta, x))


def _scaled_tanh(emit: Emitter, x: Value, alpha: float, beta: float) -> Value:
    return emit(dl.MulOp, emit(dl.TanhOp, emit(dl.MulOp, x, emit.scalar(beta, x))), emit.scalar(alpha, x))


def _op(op: type[DlOp]) -> Callable[..., Value]:
    def activation(emit: Emitter, x: Value, **properties: float) -> Value:
        return emit(op, x, **properties)

    return activation


# Functions with what their α and β are where the node does not say; of the last two ONNX gives none, these are ONNX Runtime's.
_FUNCTIONS: dict[str, tuple[Callable[..., Value], dict[str, float]]] = {
    "relu": (_op(dl.ReluOp), {}), "tanh": (_op(dl.TanhOp), {}), "sigmoid": (_op(dl.SigmoidOp), {}),
    "softsign": (_op(dl.SoftsignOp), {}), "softplus": (_op(dl.SoftplusOp), {}),
    "leakyrelu": (_op(dl.LeakyReluOp), {"alpha": 0.01}), "thresholdedrelu": (_op(dl.ThresholdedReluOp), {"alpha": 1.0}),
    "elu": (_op(dl.EluOp), {"alpha": 1.0}), "hardsigmoid": (_op(dl.HardsigmoidOp), {"alpha": 0.2, "beta": 0.5}),
    "affine": (_affine, {"alpha": 0.0, "beta": 0.0}), "scaledtanh": (_scaled_tanh, {"alpha": 0.0, "beta": 0.0}),
}  # fmt: skip


def _functions(node: Node, defaults: Sequence[str], directions: int) -> list[list[Activation]]:
    """The functions of each direction."""
    names = node.texts("activations", list(defaults) * directions)
    if len(names) != len(defaults) * directions:
        raise ModelError(f"{node.place}: {len(names)} activations for {directions} directions of {len(defaults)}")
    given = {name: iter(node.reals(f"activation_{name}", ())) for name in ("alpha", "beta")}
    clip = node.real("clip", 0.0)
    # The gates' sums are clipped; what an LSTM makes of its cell is not, as ONNX Runtime has it.
    made = [_function(node, name, given, clip if k % len(defaults) < 2 else 0.0) for k, name in enumerate(names)]
    return [made[k : k + len(defaults)] for k in range(0, len(made), len(defaults))]


def _function(node: Node, name: str, given: dict[str, Iterator[float]], clip: float) -> Activation:
    # Exporters do not agree on capitals.
    if name.lower() not in _FUNCTIONS:
        raise NodeProblem("attribute", f"activation '{name}'; supported: {', '.join(_FUNCTIONS)}")
    activation, defaults = _FUNCTIONS[name.lower()]
    properties = {key: next(given[key], default) for key, default in defaults.items()}

    def function(emit: Emitter, x: Value) -> Value:
        if clip > 0:
            x = emit(dl.MaximumOp, emit(dl.MinimumOp, x, emit.scalar(clip, x)), emit.scalar(-clip, x))
        return activation(emit, x, **properties)

    return function
