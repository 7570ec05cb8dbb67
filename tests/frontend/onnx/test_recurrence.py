"""RNN, GRU and LSTM against results of ONNX Runtime in `recurrence.npz`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper

from dlc.compiler import Program, compile
from dlc.errors import ModelError, UnsupportedError
from dlc.frontend.onnx import import_model
from dlc.options import Options
from tests.frontend.onnx.build import model, run

RECORDED = Path(__file__).with_name("recurrence.npz")
STEPS, BATCH, INPUTS, HIDDEN = 6, 3, 5, 4
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
LENGTHS = np.int32([6, 2, 4])
# Each case: the operator, its attributes, and its optional inputs.
CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "rnn": ("RNN", {}, ""),
    "rnn reverse, some shorter": ("RNN", {"direction": "reverse"}, "B sequence_lens initial_h"),
    "rnn relu, clipped": ("RNN", {"activations": ["Relu"], "clip": 0.4}, "B"),
    "rnn affine": ("RNN", {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.25]}, "B"),
    "gru": ("GRU", {}, "B initial_h"),
    "gru late reset": ("GRU", {"linear_before_reset": 1}, "B initial_h"),
    "gru late reset without biases": ("GRU", {"linear_before_reset": 1}, ""),
    "gru both ways, some shorter": ("GRU", {"direction": "bidirectional"}, "B sequence_lens"),
    "gru other functions": (
        "GRU", {"activations": ["HardSigmoid", "LeakyRelu"], "activation_alpha": [0.3, 0.2], "activation_beta": [0.4]}, "B",
    ),
    "lstm": ("LSTM", {}, "B initial_h initial_c"),
    "lstm scaled": (
        "LSTM",
        {"activations": ["Sigmoid", "ScaledTanh", "ScaledTanh"], "activation_alpha": [1.7, 0.9], "activation_beta": [0.6, 1.2]},
        "B",
    ),
    "lstm reverse": ("LSTM", {"direction": "reverse"}, "B"),
    "lstm both ways, some shorter": ("LSTM", {"direction": "bidirectional"}, "B sequence_lens initial_h initial_c"),
    "lstm with peepholes": ("LSTM", {}, "B P"),
    "lstm with peepholes and no biases": ("LSTM", {}, "P initial_c"),
    "lstm coupled": ("LSTM", {"input_forget": 1}, "B"),
    "lstm clipped": ("LSTM", {"clip": 0.5}, "B"),
}  # fmt: skip


def case(name: str, steps: int | str = STEPS) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """Return the model of a case, with weights, and its inputs."""
    op, attributes, optional = CASES[name]
    rng = np.random.default_rng(len(name))
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    rows = GATES[op] * HIDDEN

    def numbers(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32) / 2

    weights = {"W": numbers(directions, rows, INPUTS), "R": numbers(directions, rows, HIDDEN)}
    feeds = {"X": numbers(STEPS, BATCH, INPUTS)}
    for given in optional.split():
        if given == "B":
            weights["B"] = numbers(directions, 2 * rows)
        elif given == "P":
            weights["P"] = numbers(directions, 3 * HIDDEN)
        else:
            feeds[given] = LENGTHS if given == "sequence_lens" else numbers(directions, BATCH, HIDDEN)
    names = ["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"]
    inputs = [n if n in weights or n in feeds else "" for n in names[: {"LSTM": 8}.get(op, 6)]]
    outputs = ["Y", "Y_h", "Y_c"][: 3 if op == "LSTM" else 2]
    node = helper.make_node(op, inputs, outputs, name="layer", hidden_size=HIDDEN, **attributes)
    shapes: dict[str, list[int | str]] = {n: list(a.shape) for n, a in feeds.items()}
    shapes["X"][0] = steps
    dtypes = {"sequence_lens": onnx.TensorProto.INT32}
    return model([node], shapes, outputs, weights=weights, dtypes=dtypes), feeds


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("name", CASES)
def test_layer(name: str, target: str) -> None:
    source, feeds = case(name)
    imported = import_model(source)
    inputs = [feeds[i.name] for i in imported.inputs]
    program = Program(imported.module, imported.weights)
    got = compile(program, target, Options(num_threads=1, workers=1)).run_unchecked(inputs)
    with np.load(RECORDED) as recorded:
        for info, array in zip(imported.outputs, got, strict=True):
            np.testing.assert_allclose(np.asarray(array), recorded[f"{name}/{info.name}"], atol=2e-6, err_msg=info.name)


def test_a_symbolic_sequence_length() -> None:
    open_, feeds = case("lstm", "steps")
    fixed, _ = case("lstm")
    imported = import_model(open_)
    assert [str(s) for s in imported.outputs[0].shape] == ["steps", "1", "3", "4"]
    expected = run(import_model(fixed), feeds)
    model = compile(Program(imported.module, imported.weights), "cpu", Options(num_threads=1, workers=1))
    got = model.run_unchecked([feeds[i.name] for i in imported.inputs])
    for array, wanted in zip(got, expected.values(), strict=True):
        np.testing.assert_allclose(np.asarray(array), wanted, atol=1e-6)


def test_mismatched_shapes_are_refused() -> None:
    source, _ = case("lstm")
    (layer,) = source.graph.node
    layer.attribute[0].i = 5
    with pytest.raises(ModelError, match=r"'layer'.*do not match 1 directions of 4 gates"):
        import_model(source)
    source, _ = case("rnn relu, clipped")
    layer = source.graph.node[0]
    next(a for a in layer.attribute if a.name == "activations").strings[0] = b"Sine"
    with pytest.raises(UnsupportedError, match=r"'layer'.*activation 'Sine'; supported: relu, tanh"):
        import_model(source)


def record() -> None:
    """Record the results again: `python -m tests.frontend.onnx.test_recurrence`."""
    from onnxruntime import InferenceSession

    recorded: dict[str, Any] = {}
    for name in CASES:
        source, feeds = case(name)
        session = InferenceSession(source.SerializeToString(), providers=["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs()]
        recorded |= {f"{name}/{n}": a for n, a in zip(names, session.run(names, feeds), strict=True)}
    np.savez_compressed(RECORDED, **recorded)


if __name__ == "__main__":
    record()
