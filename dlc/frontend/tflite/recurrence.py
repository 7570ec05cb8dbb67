"""Fused recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import is_float
from dlc.errors import ModelError
from dlc.frontend.emitter import Emitter, ImportedValue
from dlc.frontend.problems import NodeProblem
from dlc.frontend.tflite.node import TfliteConverterTable, TfliteNode

table = TfliteConverterTable()

# Input indices of an LSTM by gate (input, forget, cell, output): input weights, recurrent weights, biases.
_DATA, _STATE, _BIAS = range(1, 5), range(5, 9), range(12, 16)
_OUTPUT, _CELL = 18, 19
# Inputs for peepholes, projection and layer normalization, which are not supported.
_UNSUPPORTED_INPUTS = (9, 10, 11, 16, 17, 20, 21, 22, 23)
# The range of gate sums as 16-bit fixed-point numbers with 12 fractional bits.
_MIN_GATE_SUM, _MAX_GATE_SUM = -8.0, 8.0 - 2.0**-12


@table(
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
    options="activation.i8 cell_clip.f32 projection_clip.f32 time_major.bool asymmetric_inputs.bool diagonal.bool",
)
def lstm(node: TfliteNode) -> ImportedValue:
    """`c' = f·c + i·g, h' = o·tanh(c')` along time, with i, f, o = σ(W·x + R·h + b) and g = tanh(W·x + R·h + b).

    In a quantized LSTM the states are quantized after each step, h to 8 bits and c to 16.
    """
    emit, x = node.emit, node.dequantized(0)
    if any(node.get(k) is not None for k in _UNSUPPORTED_INPUTS) or node.get(1) is None:
        raise NodeProblem(
            "input", "an LSTM with peepholes, a projection, layer normalization or a coupled gate is not supported"
        )
    if node.integer("activation") != 4:
        raise NodeProblem("attribute", "activations other than tanh are not supported")
    if x.rank != 3:
        raise ModelError(f"{node.description}: data of shape {list(x.shape)}; expected rank 3")
    x = x if node.flag("time_major") else emit.transpose(x, (1, 0, 2))
    weights = _concatenated_gates(node, emit, _DATA)
    bias = emit(dl.ConcatOp, *(node.dequantized(k) for k in _BIAS), axis=0)
    gates = emit(dl.AddOp, emit(dl.MatmulOp, x, weights), bias)
    output, cell = node[_OUTPUT], node[_CELL]
    (output_tensor, cell_tensor), size = (node.sources[k] for k in (_OUTPUT, _CELL)), cell.shape[1]
    assert output_tensor is not None and cell_tensor is not None, "node[k] raises ModelError for what is missing"
    recurrent, clip = _concatenated_gates(node, emit, _STATE), node.float_option("cell_clip")

    def step(
        inner: Emitter, states: Sequence[ImportedValue], elements: Sequence[ImportedValue]
    ) -> tuple[Sequence[ImportedValue], Sequence[ImportedValue]]:
        h, c = (
            node.dequantize_as(tensor, state, inner) for tensor, state in zip((output_tensor, cell_tensor), states, strict=True)
        )
        sums = inner(dl.AddOp, elements[0], inner(dl.MatmulOp, h, recurrent))
        if not is_float(output.element_type):
            sums = _clamp(inner, sums, _MIN_GATE_SUM, _MAX_GATE_SUM)
        i, f, g, o = (inner.slice(sums, 1, k * size, (k + 1) * size) for k in range(4))
        i, f, o = (inner(dl.SigmoidOp, gate) for gate in (i, f, o))
        c = inner(dl.AddOp, inner(dl.MulOp, f, c), inner(dl.MulOp, i, inner(dl.TanhOp, g)))
        cell = node.quantize_as(cell_tensor, _clamp(inner, c, -clip, clip) if clip > 0 else c, inner)
        h = inner(dl.MulOp, o, inner(dl.TanhOp, node.dequantize_as(cell_tensor, cell, inner)))
        h = node.quantize_as(output_tensor, h, inner)
        return [h, cell], [h]

    _, (result,) = emit.scan([output, cell], [gates], x.shape[0], step)
    return result if node.flag("time_major") else emit.transpose(result, (1, 0, 2))


def _clamp(emit: Emitter, x: ImportedValue, low: float, high: float) -> ImportedValue:
    return emit(dl.MinimumOp, emit(dl.MaximumOp, x, emit.scalar(low, x)), emit.scalar(high, x))


def _concatenated_gates(node: TfliteNode, emit: Emitter, inputs: Sequence[int]) -> ImportedValue:
    """Concatenate the weights [O, I] of four gates to [I, 4·O]."""
    return emit.transpose(emit(dl.ConcatOp, *(node.dequantized(k) for k in inputs), axis=0), (1, 0))
