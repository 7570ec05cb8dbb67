"""Pretrained and small models on every target, compared with ONNX Runtime; symbolic dimensions are bound by calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import dlc
from dlc.errors import ShapeError
from dlc.runtime.models.model import Model
from dlc.shapes.dims import Dim
from dlc.target import resolve
from tests.models.alone import answers_alone
from tests.models.skeletons import PRETRAINED, deviation, path_of, recordings
from tests.targets import LEVELS, level

TARGETS = ("cpu", "reference")
LABELS = json.loads((PRETRAINED / "magika_v3_3.config.json").read_text())["target_labels_space"]

TOLERANCE = 1e-4
# Cancellation in long f32 sums and their logarithms: ONNX Runtime in f32 is 2e-3 away from the f64 recording.
ILL_CONDITIONED = {("basic_pitch", "reference"): 2.5e-3, ("basic_pitch", "cpu"): 1e-3}

Arrays = dict[str, NDArray]

STATIC = (
    "basic_pitch", "blazeface_front", "mnist_cnn", "mnist_cnn_int8_qdq", "llama_tiny_prefill_16", "silero_vad_16k_op15",
    "gru_stream", "lstm_tagger", "scan_rnn", "loop_if_script",
)  # fmt: skip
SMALL = ("mnist_cnn", "mnist_cnn_int8_qdq", "llama_tiny_prefill_16", "silero_vad_16k_op15", "scan_rnn")


def two_at_once(feeds: Arrays) -> Arrays:
    return {name: np.concatenate([array, array[..., ::-1]]) for name, array in feeds.items()}


def wider(feeds: Arrays) -> Arrays:
    return {name: np.concatenate([array, array[..., ::3]], axis=-1) for name, array in feeds.items()}


def shorter_past(feeds: Arrays) -> Arrays:
    return {name: array[:, :, :5] if name.startswith("past") else array for name, array in feeds.items()}


# Models that leave sizes open, and other inputs than the recorded ones.
SYMBOLIC: dict[str, Callable[[Arrays], Arrays]] = {
    "magika_v3_3": two_at_once,
    "ppocr_v2_cls": wider,
    "gpt2_tiny_decode_kv_dyn": shorter_past,
}


def agree(name: str, target: str, got: Arrays, expected: Arrays) -> None:
    """Raise AssertionError unless every output has the recorded type and is within the model's tolerance."""
    assert set(got) == set(expected)
    steps = output_steps(onnx.load(path_of(name)))
    for output, array in expected.items():
        assert (got[output].dtype, got[output].shape) == (array.dtype, array.shape), output
        if output in steps:
            assert np.abs(got[output].astype(np.float64) - array).max() <= 1.01 * steps[output], output
        else:
            assert deviation(np.asarray(got[output]), array) <= ILL_CONDITIONED.get((name, target), TOLERANCE), output


def output_steps(model: onnx.ModelProto) -> dict[str, float]:
    """Return the quantization step of each output of a quantized model."""
    producers = {name: node for node in model.graph.node for name in node.output}
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    made = {o.name: producers[o.name] for o in model.graph.output}
    return {o: float(arrays[node.input[1]]) for o, node in made.items() if node.op_type == "DequantizeLinear"}


def test_the_quantised_model_has_an_output_step() -> None:
    assert 0 < output_steps(onnx.load(path_of("mnist_cnn_int8_qdq")))["probs"] < 0.01
    assert not output_steps(onnx.load(path_of("mnist_cnn")))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", STATIC)
def test_model(name: str, target: str, tmp_path: Path) -> None:
    first, _ = next(recordings(name))
    model = dlc.compile_model(path_of(name), target=target, input_shapes={n: a.shape for n, a in first.items()})
    for feeds, expected in recordings(name):
        agree(name, target, model(feeds), expected)
    if target == "cpu":
        runs_where_no_compiler_is(name, model, tmp_path / "m.dlc")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_dimensions_are_bound_by_calls(name: str, target: str, tmp_path: Path) -> None:
    model = dlc.compile_model(path_of(name), target=target)
    assert any(isinstance(size, Dim) for info in model.inputs for size in info.shape)
    for feeds, expected in recordings(name):
        agree(name, target, model(feeds), expected)
        if name == "magika_v3_3":
            assert [LABELS[k] for k in model(feeds)["target_label"].argmax(1)] == [
                LABELS[k] for k in expected["target_label"].argmax(1)
            ]
    if target != "reference":
        feeds = SYMBOLIC[name](feeds)
        agree(name, target, model(feeds), dlc.compile_model(path_of(name), target="reference")(feeds))
    if target == "cpu":
        runs_where_no_compiler_is(name, model, tmp_path / "m.dlc")


@pytest.mark.parametrize("target", TARGETS)
def test_a_model_whose_import_needs_shapes_is_imported_at_run_time(target: str, tmp_path: Path) -> None:
    model = dlc.compile_model(path_of("silero_vad_16k_op15"), target=target)
    assert [str(i) for i in model.inputs][:1] == ["input: float32[batch, sequence]"]
    for feeds, expected in recordings("silero_vad_16k_op15"):
        agree("silero_vad_16k_op15", target, model(feeds), expected)
    two = {n: np.concatenate([a, a], axis={"input": 0, "state": 1}[n]) if a.ndim else a for n, a in feeds.items()}
    got = model(two)["output"]
    assert got.shape == (2, 1) and np.abs(np.asarray(got) - expected["output"]).max() < TOLERANCE
    with pytest.raises(ShapeError, match="input: float32"):
        model({**feeds, "input": feeds["input"][0]})
    if target == "cpu":
        runs_where_no_compiler_is("silero_vad_16k_op15", model, tmp_path / "m.dlc")


def runs_where_no_compiler_is(name: str, model: Model, path: Path) -> None:
    """Check a saved model against the recording, in a process without the compiler."""
    model.save(path)
    pairs = list(recordings(name))
    inputs, values, answers = answers_alone(path, [[feeds[info.name] for info in model.inputs] for feeds, _ in pairs])
    assert (inputs, values) == ([*map(str, model.inputs)], [*model.values])
    for got, (_, expected) in zip(answers, pairs, strict=True):
        agree(name, "cpu", got, expected)


# Other tests compile for the best instruction set of this machine.
@pytest.mark.parametrize("target", [level(name) for name in LEVELS if name != resolve("cpu").name])
@pytest.mark.parametrize("name", SMALL)
def test_forced_instruction_sets(name: str, target: str) -> None:
    first, _ = next(recordings(name))
    model = dlc.compile_model(path_of(name), target=target, input_shapes={n: a.shape for n, a in first.items()})
    for feeds, expected in recordings(name):
        agree(name, target, model(feeds), expected)
