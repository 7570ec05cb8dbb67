"""Training steps of ONNX models, as models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import dlc
from dlc.arrays import address_of
from dlc.errors import ShapeError
from dlc.runtime.models.model import Model
from tests.training.models import perceptron, write

draw = np.random.default_rng(3)
X, TARGETS, LABELS = draw.standard_normal((4, 2)), draw.standard_normal((4, 3)), np.array([0, 2, 1, 2])


def step_of(path: Path, *settings: Any, target: str = "reference", **named: Any) -> Model:
    return dlc.compile_model(path, target=target, train_step=dlc.TrainStep(*settings, **named))


def test_gradient_descent_goes_against_the_gradient(tmp_path: Path) -> None:
    path = perceptron(tmp_path / "m.onnx", np.float64, 4)
    gradient = dlc.compile_model(path, target="reference", vjp="logits", wrt="weights")
    predicted = gradient(X, np.zeros((4, 3)))["logits"]
    slopes = gradient(X, 2 * (predicted - TARGETS) / 12)
    step = step_of(path, "sgd", "mse")
    after = step({"x": X, "targets": TARGETS, "learning_rate": np.float32(0.5)})
    np.testing.assert_allclose(after["loss"], ((predicted - TARGETS) ** 2).mean(), rtol=1e-12)
    for name in ("w1", "b1", "w2", "b2"):
        np.testing.assert_allclose(after[name], gradient.defaults[name] - 0.5 * slopes[f"grad:{name}"], rtol=1e-12)
    assert after["count"] == 1


def test_what_a_step_gives_the_next_one_takes(tmp_path: Path) -> None:
    step = step_of(perceptron(tmp_path / "m.onnx", batch=4), "adamw", "mse", learning_rate=0.1)
    assert {info.name for info in step.outputs} - {"loss"} == set(step.defaults) - {"learning_rate"}
    batch: dict[str, Any] = {"x": X.astype(np.float32), "targets": TARGETS.astype(np.float32)}
    carried: dict[str, Any] = {}
    losses: list[float] = []
    for _ in range(20):
        carried = {**step({**batch, **carried})}
        losses.append(float(carried.pop("loss")))
    assert losses[-1] < losses[0] / 2 and carried["count"] == 20


def test_adam_is_the_optimiser_of_dlc_optim(tmp_path: Path) -> None:
    path = perceptron(tmp_path / "m.onnx", batch=4)
    step = step_of(path, "adam", "mse", wrt=("w1",), learning_rate=0.01)
    gradient = dlc.compile_model(path, target="reference", vjp="logits", wrt="w1")
    x, targets = X.astype(np.float32), TARGETS.astype(np.float32)
    optimizer = dlc.optim.adam(0.01)
    params = {"w1": gradient.defaults["w1"]}
    state, carried = optimizer.init(params), dict[str, Any]()
    for _ in range(3):
        seed = np.zeros((4, 3), np.float32)
        predicted = gradient(x, seed, params["w1"])["logits"]
        slope = gradient(x, np.asarray(2 * (predicted - targets) / 12, np.float32), params["w1"])["grad:w1"]
        updates, state = optimizer.update({"w1": np.asarray(slope)}, state, params)
        params = dlc.optim.apply_updates(params, updates)
        carried = {**step({"x": x, "targets": targets, **carried})}
        del carried["loss"]
    np.testing.assert_allclose(carried["w1"], params["w1"], rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(carried["mean:w1"], state.mean["w1"], rtol=2e-4, atol=1e-6)


def test_cross_entropy_of_integer_labels(tmp_path: Path) -> None:
    path = perceptron(tmp_path / "m.onnx", np.float64, 4)
    logits = np.asarray(dlc.compile_model(path, target="reference")(X)["logits"])
    expected = np.log(np.exp(logits).sum(1)) - logits[np.arange(4), LABELS]
    found = step_of(path, "sgd", "cross_entropy", momentum=0.9)(X, LABELS)
    np.testing.assert_allclose(found["loss"], expected.mean(), rtol=1e-12)
    assert "velocity:w1" in found


def test_native_code_takes_any_batch(tmp_path: Path) -> None:
    path = perceptron(tmp_path / "m.onnx")
    step_of(path, "sgd", "cross_entropy", target="cpu").save(tmp_path / "s.dlc")
    native, x = dlc.load(tmp_path / "s.dlc"), X.astype(np.float32)
    for count in (4, 3):
        expected = step_of(path, "sgd", "cross_entropy")(x[:count], LABELS[:count])
        for name, value in native(x[:count], LABELS[:count]).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)


def test_of_a_softmax_the_logits_are_trained(tmp_path: Path) -> None:
    path = perceptron(tmp_path / "m.onnx", np.float64, 4, softmax=True)
    with pytest.raises(dlc.DlcError, match=r"'y' is a softmax, and cross_entropy takes what it is of: say 'logits'"):
        step_of(path, "sgd", "cross_entropy")
    plain = step_of(perceptron(tmp_path / "plain.onnx", np.float64, 4), "sgd", "cross_entropy")
    assert step_of(path, "sgd", "cross_entropy", of="logits")(X, LABELS)["loss"] == plain(X, LABELS)["loss"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"optimizer": "lion", "loss": "mse"}, "optimizer = 'lion'; expected one of 'sgd', 'adam', 'adamw'"),
        ({"optimizer": "sgd", "loss": "l1"}, "loss = 'l1'; expected one of 'mse', 'cross_entropy'"),
        ({"optimizer": "adam", "loss": "mse", "momentum": 0.9}, "momentum is a setting of sgd"),
        ({"optimizer": "sgd", "loss": "mse", "weight_decay": 0.1}, "weight_decay is a setting of adamw"),
        ({"optimizer": "sgd", "loss": "mse", "of": "z"}, "no output is called 'z'"),
        ({"optimizer": "sgd", "loss": "mse", "wrt": ("x",)}, "x is an input; a training step changes weights"),
    ],
)
def test_misuse_says_what_there_is(tmp_path: Path, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(dlc.DlcError) as raised:
        dlc.compile_model(perceptron(tmp_path / "m.onnx"), train_step=dlc.TrainStep(**settings))
    assert text in str(raised.value)


def test_names_that_a_step_adds_are_none_of_the_model(tmp_path: Path) -> None:
    nodes, infos = [helper.make_node("Mul", ["count", "w"], ["y"])], (np.float32, (2,))
    path = write(tmp_path / "m.onnx", nodes, {"count": infos}, {"y": infos}, {"w": np.ones(2, np.float32)})
    with pytest.raises(dlc.ModelError, match="two inputs would be called 'count'"):
        step_of(path, "sgd", "mse")


def test_a_step_writes_over_what_it_is_given_and_not_over_the_files_weights(tmp_path: Path) -> None:
    path = perceptron(tmp_path / "m.onnx", batch=4)
    x, targets = X.astype(np.float32), TARGETS.astype(np.float32)
    plain = step_of(path, "adamw", "mse", target="cpu")
    step_of(path, "adamw", "mse", target="cpu", donate=True).save(tmp_path / "step.dlc")
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


def test_memory_is_donated_where_sizes_are_known(tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match=r"donate needs sizes that are known; x: float32\[.*say them \(--shape\)"):
        step_of(perceptron(tmp_path / "m.onnx"), "sgd", "mse", donate=True)
