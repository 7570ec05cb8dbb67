"""Derivatives of ONNX models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import helper

import dlc
from dlc.cli import main
from tests.models import skeletons
from tests.training.models import differences, loss, perceptron, write
from tests.training.torch_comparison import wrong_gradients

MNIST = skeletons.path_of("mnist_cnn")
draw = np.random.default_rng(2)


def test_gradient_of_all_weights_and_the_input(tmp_path: Path) -> None:
    path = perceptron(tmp_path / "m.onnx", np.float64, 5)
    model = dlc.compile_model(path, target="reference", vjp="logits", wrt=["x", "weights"])
    x, cotangent = draw.standard_normal((5, 2)), draw.standard_normal((5, 3))
    at = {"x": x, **model.defaults}
    found = model({"x": x, "cotangent:logits": cotangent})
    assert list(found) == ["logits", "grad:x", "grad:w1", "grad:b1", "grad:w2", "grad:b2"]
    along = {name: draw.standard_normal(a.shape) for name, a in at.items()}
    slope = sum(float((found[f"grad:{name}"] * d).sum()) for name, d in along.items())

    def f(values: Any) -> Any:
        return (model({"cotangent:logits": cotangent, **values})["logits"] * cotangent).sum()

    np.testing.assert_allclose(slope, differences(f, at, along), rtol=1e-8)


def test_native_gradient_equals_the_evaluator(tmp_path: Path) -> None:
    x, cotangent = (draw.standard_normal(shape).astype(np.float32) for shape in ((1, 1, 28, 28), (1, 10)))
    native, reference = (
        dlc.compile_model(MNIST, target=target, vjp="probs", wrt="weights")(x, cotangent) for target in ("cpu", "reference")
    )
    for name, expected in reference.items():
        np.testing.assert_allclose(native[name], expected, atol=2e-6 * float(np.abs(expected).max()) + 1e-12)


def test_an_artifact_of_a_gradient_runs_without_a_compiler(tmp_path: Path) -> None:
    """Compare the gradient of a residual network with PyTorch and with finite differences."""
    assert not wrong_gradients("residual", tmp_path, recorded=1e-11, differences=1e-8, step=1e-5)


def test_gradient_artifact_in_f32_agrees_with_f64(tmp_path: Path) -> None:
    assert not wrong_gradients("residual", tmp_path, recorded=1e-6, differences=1e-5, step=1e-7, narrow=True)


def test_gradient_artifact_of_resnet18_agrees_with_pytorch(tmp_path: Path) -> None:
    """Most weights agree to 1e-5; rounding moves some elements of the first layers across the zero of a ReLU."""
    assert not wrong_gradients("resnet18", tmp_path, recorded=1e-2, differences=2e-2, step=1e-9, narrow=True)


def test_weights_are_optional_inputs(tmp_path: Path) -> None:
    model = dlc.compile_model(loss(tmp_path / "m.onnx"), target="reference", vjp="loss", wrt="w")
    x = draw.standard_normal((2, 4))
    assert model(x)["loss"] == model(x=x, w=model.defaults["w"])["loss"] != model(x=x, w=2 * model.defaults["w"])["loss"]


def test_default_cotangent_is_one(tmp_path: Path) -> None:
    model = dlc.compile_model(loss(tmp_path / "m.onnx"), target="reference", vjp="loss", wrt="w")
    x = draw.standard_normal((2, 4))
    twice = model({"x": x, "cotangent:loss": np.float64(2)})
    np.testing.assert_allclose(2 * model(x)["grad:w"], twice["grad:w"])


def test_all_weights_means_trainable_weights(tmp_path: Path) -> None:
    model = dlc.compile_model(loss(tmp_path / "m.onnx"), target="reference", vjp="loss", wrt="weights")
    # Not the statistics of the normalization.
    assert set(model.defaults) == {"w", "scale", "shift", "cotangent:loss"}


def test_forward_mode_agrees_with_reverse_mode(tmp_path: Path) -> None:
    path = loss(tmp_path / "m.onnx")
    x, dx, dw = draw.standard_normal((2, 4)), draw.standard_normal((2, 4)), draw.standard_normal(4)
    forward = dlc.compile_model(path, target="reference", jvp="loss", wrt=["x", "w"])(
        {"x": x, "tangent:x": dx, "tangent:w": dw}
    )
    reverse = dlc.compile_model(path, target="reference", vjp="loss", wrt=["x", "w"])(x)
    expected = (reverse["grad:x"] * dx).sum() + (reverse["grad:w"] * dw).sum()
    np.testing.assert_allclose(forward["tangent:loss"], expected, rtol=1e-12)


def test_hessian_vector_product(tmp_path: Path) -> None:
    path, x, v = loss(tmp_path / "m.onnx"), draw.standard_normal((2, 4)), draw.standard_normal(4)
    model = dlc.compile_model(path, target="reference", hvp="loss", wrt="w")
    found = model({"x": x, "tangent:w": v})
    assert list(found) == ["loss", "grad:w", "hvp:w"]
    w = model.defaults["w"]
    ahead, behind = (model({"x": x, "tangent:w": v, "w": w + s * 1e-5 * v})["grad:w"] for s in (1, -1))
    np.testing.assert_allclose(found["hvp:w"], (ahead - behind) / 2e-5, rtol=1e-7)


def test_a_dynamic_batch_is_compiled_once(tmp_path: Path) -> None:
    model = dlc.compile_model(perceptron(tmp_path / "m.onnx"), vjp="logits", wrt="w*")
    model.save(tmp_path / "g.dlc")
    fixed = dlc.compile_model(tmp_path / "m.onnx", target="reference", vjp="logits", wrt="w*", input_shapes={"x": (3, 2)})
    x, cotangent = draw.standard_normal((3, 2)).astype(np.float32), np.ones((3, 3), np.float32)
    for name, expected in fixed(x, cotangent).items():
        np.testing.assert_allclose(dlc.load(tmp_path / "g.dlc")(x, cotangent)[name], expected, rtol=1e-5, atol=1e-6)


def test_inner_tensors_can_be_differentiated(tmp_path: Path) -> None:
    model = dlc.compile_model(perceptron(tmp_path / "m.onnx", batch=2), target="reference", vjp="h", wrt="b1")
    x, cotangent = np.ones((2, 2), np.float32), np.ones((2, 8), np.float32)
    found = model(x, cotangent)
    np.testing.assert_allclose(found["grad:b1"], (1 - found["h"] ** 2).sum(0), rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"vjp": "logit", "wrt": "w1"}, "no output is named 'logit' (did you mean 'logits'?); the outputs are logits"),
        ({"vjp": "logits", "wrt": "w3"}, "wrt 'w3': no input or weight has this name"),
        ({"vjp": "logits", "wrt": "w3"}, "float inputs: x; float weights: w1, b1, w2, b2"),
        ({"vjp": "logits", "wrt": "steps"}, "wrt 'steps': expected a float dtype, got steps: int64[3]"),
        ({"vjp": "logits", "wrt": "h"}, "wrt 'h': it is the output of a node"),
        ({"vjp": "logits", "wrt": "z*"}, "wrt 'z*'"),
        ({"hvp": "logits", "wrt": "w1"}, "hvp of 'logits': expected an output of one element"),
        ({"hvp": ["logits", "h"], "wrt": "w1"}, "hvp = ['logits', 'h']; expected a string or None"),
        ({"vjp": "logits"}, "differentiate by"),
        ({"wrt": "w1"}, "wrt needs vjp, jvp or hvp"),
        ({"vjp": "logits", "jvp": "logits", "wrt": "w1"}, "vjp and jvp cannot be combined"),
        ({"train_step": dlc.TrainStep("sgd", "mse"), "wrt": "w1"}, "for a training step, pass TrainStep"),
        ({"vjp": "logits", "wrt": "x", "input_values": {"x": np.ones((2, 2), np.float32)}}, "a constant has no gradient"),
    ],
)
def test_errors_list_the_available_names(tmp_path: Path, given: dict[str, Any], text: str) -> None:
    with pytest.raises(dlc.DlcError) as raised:
        dlc.compile_model(perceptron(tmp_path / "m.onnx"), target="reference", **given)
    assert text in str(raised.value)


def test_weights_that_determine_shapes_have_no_gradient(tmp_path: Path) -> None:
    nodes = [helper.make_node("Resize", ["x", "", "scales"], ["y"], name="larger", mode="nearest")]
    scales = {"scales": np.array([1, 1, 2, 2], np.float32)}
    write(tmp_path / "m.onnx", nodes, {"x": (np.float32, (1, 1, 2, 2))}, {"y": (np.float32, (1, 1, 4, 4))}, scales)
    with pytest.raises(dlc.UnsupportedError, match="they have no gradient; remove them from wrt"):
        dlc.compile_model(tmp_path / "m.onnx", vjp="y", wrt="scales")


def test_a_dump_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text("builtin.module {}")
    with pytest.raises(dlc.ModelError, match="need an ONNX model"):
        dlc.compile_model(tmp_path / "m.mlir", vjp="y", wrt="x")


def test_on_the_command_line(tmp_path: Path) -> None:
    path, made = perceptron(tmp_path / "m.onnx", batch=2), tmp_path / "g.dlc"
    done = CliRunner().invoke(main, ["compile", str(path), "--vjp", "logits", "--wrt", "x,w1", "-o", str(made)])
    assert done.exit_code == 0, done.stderr
    assert "output  grad:x: float32[2, 2]" in done.stdout
    assert "optional inputs: w1: float32[2, 8]" in done.stdout
    shown = CliRunner().invoke(main, ["run", str(made), "--json"])
    assert shown.exit_code == 0, shown.stderr
    assert "grad:w1" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--vjp", "logits"], "differentiate by"),
        (["--loss", "mse"], "--loss: only valid for a training step"),
        (["--train-step", "sgd"], "add --loss"),
        (["--train-step", "sgd", "--loss", "mse", "--vjp", "logits", "--wrt", "x"], "exclude each other; compile two models"),
        (["--train-step", "adam", "--loss", "mse", "--momentum", "0.9"], "a setting of sgd"),
    ],
)
def test_usage_errors(tmp_path: Path, arguments: list[str], text: str) -> None:
    done = CliRunner().invoke(main, ["compile", str(perceptron(tmp_path / "m.onnx")), *arguments])
    assert done.exit_code == 2 and text in done.stderr
