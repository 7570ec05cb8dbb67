"""Training steps of ONNX models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import dlc
from dlc.arrays import address_of
from dlc.distributed.mesh_model import compile_on_mesh
from dlc.errors import ShapeError
from dlc.models.model_files import import_program
from dlc.options import Options
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.threads import run_ranks
from dlc.runtime.models.model import Model
from tests.training.models import perceptron, write

draw = np.random.default_rng(3)
X, TARGETS, LABELS = draw.standard_normal((4, 2)), draw.standard_normal((4, 3)), np.array([0, 2, 1, 2])


def build_training_step(path: Path, *settings: Any, target: str = "reference", **named: Any) -> Model:
    return dlc.compile_model(path, target=target, train_step=dlc.TrainStep(*settings, **named))


def test_sgd_subtracts_the_gradient(tmp_path: Path) -> None:
    path = perceptron(tmp_path / "m.onnx", np.float64, 4)
    gradient = dlc.compile_model(path, target="reference", vjp="logits", wrt="weights")
    predicted = gradient(X, np.zeros((4, 3)))["logits"]
    slopes = gradient(X, 2 * (predicted - TARGETS) / 12)
    step = build_training_step(path, "sgd", "mse")
    after = step({"x": X, "targets": TARGETS, "learning_rate": np.float32(0.5)})
    np.testing.assert_allclose(after["loss"], ((predicted - TARGETS) ** 2).mean(), rtol=1e-12)
    for name in ("w1", "b1", "w2", "b2"):
        np.testing.assert_allclose(after[name], gradient.defaults[name] - 0.5 * slopes[f"grad:{name}"], rtol=1e-12)
    assert after["count"] == 1


def test_outputs_are_inputs_of_the_next_step(tmp_path: Path) -> None:
    step = build_training_step(perceptron(tmp_path / "m.onnx", batch=4), "adamw", "mse", learning_rate=0.1)
    assert {info.name for info in step.outputs} - {"loss"} == set(step.defaults) - {"learning_rate"}
    batch: dict[str, Any] = {"x": X.astype(np.float32), "targets": TARGETS.astype(np.float32)}
    weights_and_state: dict[str, Any] = {}
    losses: list[float] = []
    for _ in range(20):
        weights_and_state = {**step({**batch, **weights_and_state})}
        losses.append(float(weights_and_state.pop("loss")))
    assert losses[-1] < losses[0] / 2 and weights_and_state["count"] == 20


def test_losses_on_a_mesh_equal_those_of_one_process(tmp_path: Path) -> None:
    """20 steps with the batch split over `data` and the hidden layer over `model`."""
    path, mesh = perceptron(tmp_path / "m.onnx", batch=4), Mesh.of({"data": 2, "model": 2})
    step = dlc.TrainStep("adam", "mse", learning_rate=0.05)
    program = import_program(path, None, None, step)
    specs = {"x": (("data",), ()), "targets": (("data",), ()), "w1": ((), ("model",)), "w2": (("model",), ())}
    annotations = [specs.get(info.name) for info in program.inputs]
    batch: dict[str, Any] = {"x": X.astype(np.float32), "targets": TARGETS.astype(np.float32)}

    def losses(model: Model) -> list[float]:
        state, result = dict[str, Any](), list[float]()
        for _ in range(20):
            state = {**model({**batch, **state})}
            result.append(float(state.pop("loss")))
        return result

    expected = losses(build_training_step(path, "adam", "mse", learning_rate=0.05))
    options = Options(num_threads=1, cache=False)
    for found in run_ranks(mesh, lambda rank: losses(compile_on_mesh(program, mesh, annotations, "cpu", options))):
        np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_adam_equals_dlc_optim(tmp_path: Path) -> None:
    path = perceptron(tmp_path / "m.onnx", batch=4)
    step = build_training_step(path, "adam", "mse", wrt=("w1",), learning_rate=0.01)
    gradient = dlc.compile_model(path, target="reference", vjp="logits", wrt="w1")
    x, targets = X.astype(np.float32), TARGETS.astype(np.float32)
    optimizer = dlc.optim.adam(0.01)
    params = {"w1": gradient.defaults["w1"]}
    state, weights_and_state = optimizer.init(params), dict[str, Any]()
    for _ in range(3):
        seed = np.zeros((4, 3), np.float32)
        predicted = gradient(x, seed, params["w1"])["logits"]
        slope = gradient(x, np.asarray(2 * (predicted - targets) / 12, np.float32), params["w1"])["grad:w1"]
        updates, state = optimizer.update({"w1": np.asarray(slope)}, state, params)
        params = dlc.optim.apply_updates(params, updates)
        weights_and_state = {**step({"x": x, "targets": targets, **weights_and_state})}
        del weights_and_state["loss"]
    np.testing.assert_allclose(weights_and_state["w1"], params["w1"], rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(weights_and_state["mean:w1"], state.mean["w1"], rtol=2e-4, atol=1e-6)


def test_cross_entropy_of_integer_labels(tmp_path: Path) -> None:
    path = perceptron(tmp_path / "m.onnx", np.float64, 4)
    logits = np.asarray(dlc.compile_model(path, target="reference")(X)["logits"])
    expected = np.log(np.exp(logits).sum(1)) - logits[np.arange(4), LABELS]
    found = build_training_step(path, "sgd", "cross_entropy", momentum=0.9)(X, LABELS)
    np.testing.assert_allclose(found["loss"], expected.mean(), rtol=1e-12)
    assert "velocity:w1" in found


def test_native_code_with_a_dynamic_batch(tmp_path: Path) -> None:
    path = perceptron(tmp_path / "m.onnx")
    build_training_step(path, "sgd", "cross_entropy", target="cpu").save(tmp_path / "s.dlc")
    native, x = dlc.load(tmp_path / "s.dlc"), X.astype(np.float32)
    for count in (4, 3):
        expected = build_training_step(path, "sgd", "cross_entropy")(x[:count], LABELS[:count])
        for name, value in native(x[:count], LABELS[:count]).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)


def test_softmax_outputs_are_errors(tmp_path: Path) -> None:
    path = perceptron(tmp_path / "m.onnx", np.float64, 4, softmax=True)
    with pytest.raises(dlc.DlcError, match=r"'y' is the output of a softmax, but cross_entropy takes logits"):
        build_training_step(path, "sgd", "cross_entropy")
    plain = build_training_step(perceptron(tmp_path / "plain.onnx", np.float64, 4), "sgd", "cross_entropy")
    assert build_training_step(path, "sgd", "cross_entropy", of="logits")(X, LABELS)["loss"] == plain(X, LABELS)["loss"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"optimizer": "lion", "loss": "mse"}, "optimizer = 'lion'; expected one of 'sgd', 'adam', 'adamw'"),
        ({"optimizer": "sgd", "loss": "l1"}, "loss = 'l1'; expected one of 'mse', 'cross_entropy'"),
        ({"optimizer": "adam", "loss": "mse", "momentum": 0.9}, "momentum is a setting of sgd"),
        ({"optimizer": "sgd", "loss": "mse", "weight_decay": 0.1}, "weight_decay is a setting of adamw"),
        ({"optimizer": "sgd", "loss": "mse", "of": "z"}, "no output is named 'z'"),
        ({"optimizer": "sgd", "loss": "mse", "wrt": ("x",)}, "wrt: expected weights, got the input x"),
    ],
)
def test_invalid_steps(tmp_path: Path, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(dlc.DlcError) as raised:
        dlc.compile_model(perceptron(tmp_path / "m.onnx"), train_step=dlc.TrainStep(**settings))
    assert text in str(raised.value)


def test_name_conflicts_with_the_model(tmp_path: Path) -> None:
    nodes, infos = [helper.make_node("Mul", ["count", "w"], ["y"])], (np.float32, (2,))
    path = write(tmp_path / "m.onnx", nodes, {"count": infos}, {"y": infos}, {"w": np.ones(2, np.float32)})
    with pytest.raises(dlc.ModelError, match="two inputs would be named 'count'"):
        build_training_step(path, "sgd", "mse")


def test_donated_arrays_are_updated_in_place(tmp_path: Path) -> None:
    path = perceptron(tmp_path / "m.onnx", batch=4)
    x, targets = X.astype(np.float32), TARGETS.astype(np.float32)
    plain = build_training_step(path, "adamw", "mse", target="cpu")
    build_training_step(path, "adamw", "mse", target="cpu", donate=True).save(tmp_path / "step.dlc")
    step = dlc.load(tmp_path / "step.dlc")
    expected = {**plain({"x": x, "targets": targets})}
    for _ in range(2):
        first = {**step({"x": x, "targets": targets})}
        np.testing.assert_array_equal(first["w1"], expected["w1"])
    del first["loss"], expected["loss"]
    places = {name: address_of(np.asarray(array)) for name, array in first.items() if array.ndim}
    second = step({"x": x, "targets": targets, **first})
    assert {name: address_of(np.asarray(second[name])) for name in places} == places
    np.testing.assert_array_equal(second["w1"], plain({"x": x, "targets": targets, **expected})["w1"])


def test_donation_needs_static_shapes(tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match=r"donate needs static shapes, got x: float32\[.*give them with --shape"):
        build_training_step(perceptron(tmp_path / "m.onnx"), "sgd", "mse", donate=True)
