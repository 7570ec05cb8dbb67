"""Recurrent layers that are one operator."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import is_float
from dlc.errors import ModelError
from dlc.frontend.emit import Emitter, Value
from dlc.frontend.problems import NodeProblem
from dlc.frontend.tflite.node import Node, Table

table = Table()

# The inputs of an LSTM for its gates, input, forget, cell and output: weights of data, of the state, and biases.
_DATA, _STATE, _BIAS = range(1, 5), range(5, 9), range(12, 16)
_OUTPUT, _CELL = 18, 19
# Peepholes, a projection, norms of the gates: none of them is read.
_OTHERS = (9, 10, 11, 16, 17, 20, 21, 22, 23)
# Where sums of a gate end, as integers of 16 bits, 12 of them behind the point.
_LEAST, _MOST = -8.0, 8.0 - 2.0**-12


@table(
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
    options="activation.i8 cell_clip.f32 projection_clip.f32 time_major.bool asymmetric_inputs.bool diagonal.bool",
)
def lstm(node: Node) -> Value:
    """`c' = f·c + i·g, h' = o·tanh(c')` along time, with i, f, o = σ(W·x + R·h + b) and g = tanh(W·x + R·h + b).

    Of integers the states are integers as well, h of 8 bits and c of 16, from step to step.
    """
    emit, x = node.emit, node.real(0)
    if any(node.get(k) is not None for k in _OTHERS) or node.get(1) is None:
        raise NodeProblem("input", "an LSTM with peepholes, a projection, norms or a coupled gate is not supported")
    if node.integer("activation") != 4:
        raise NodeProblem("attribute", "another activation than tanh is not supported")
    if x.rank != 3:
        raise ModelError(f"{node.place}: data of shape {list(x.shape)}; expected rank 3")
    x = x if node.flag("time_major") else emit.transpose(x, (1, 0, 2))
    weights = _stacked(node, emit, _DATA)
    bias = emit(dl.ConcatOp, *(node.real(k) for k in _BIAS), axis=0)
    gates = emit(dl.AddOp, emit(dl.MatmulOp, x, weights), bias)
    output, cell = node[_OUTPUT], node[_CELL]
    (of_output, of_cell), size = (node.sources[k] for k in (_OUTPUT, _CELL)), cell.shape[1]
    assert of_output is not None and of_cell is not None, "node[k] raises ModelError for what is missing"
    recurrent, clip = _stacked(node, emit, _STATE), node.real_option("cell_clip")

    def step(inner: Emitter, states: Sequence[Value], elements: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        h, c = (node.real_of(of, state, inner) for of, state in zip((of_output, of_cell), states, strict=True))
        sums = inner(dl.AddOp, elements[0], inner(dl.MatmulOp, h, recurrent))
        if not is_float(output.element_type):
            sums = _within(inner, sums, _LEAST, _MOST)
        i, f, g, o = (inner.slice(sums, 1, k * size, (k + 1) * size) for k in range(4))
        i, f, o = (inner(dl.SigmoidOp, gate) for gate in (i, f, o))
        c = inner(dl.AddOp, inner(dl.MulOp, f, c), inner(dl.MulOp, i, inner(dl.TanhOp, g)))
        cell = node.stored_as(of_cell, _within(inner, c, -clip, clip) if clip > 0 else c, inner)
        h = inner(dl.MulOp, o, inner(dl.TanhOp, node.real_of(of_cell, cell, inner)))
        h = node.stored_as(of_output, h, inner)
        return [h, cell], [h]

    _, (made,) = emit.scan([output, cell], [gates], x.shape[0], step)
    return made if node.flag("time_major") else emit.transpose(made, (1, 0, 2))


def _within(emit: Emitter, x: Value, low: float, high: float) -> Value:
    return emit(dl.MinimumOp, emit(dl.MaximumOp, x, emit.scalar(low, x)), emit.scalar(high, x))


def _stacked(node: Node, emit: Emitter, inputs: Sequence[int]) -> Value:
    """The weights [O, I] of four gates as [I, 4·O]."""
    return emit.transpose(emit(dl.ConcatOp, *(node.real(k) for k in inputs), axis=0), (1, 0))
