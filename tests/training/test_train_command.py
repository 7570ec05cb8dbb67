"""`dlc train` as a user types it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import numpy_helper

from dlc.cli import main
from dlc.runtime.models.model import Model
from dlc.training import training_loop
from tests.training.models import perceptron

draw = np.random.default_rng(4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model, and points of the plane labelled by three sectors."""
    perceptron(tmp_path / "m.onnx")
    x = draw.standard_normal((200, 2))
    labels = np.floor((np.arctan2(x[:, 1], x[:, 0]) / np.pi + 1) * 1.5).clip(0, 2).astype(np.int32)
    np.savez(tmp_path / "data.npz", x=x, labels=labels)
    return tmp_path


def train(folder: Path, *arguments: object, model: str = "m.onnx") -> Result:
    line = ["train", folder / model, "--data", folder / "data.npz", "--loss", "cross_entropy", "-o", folder / "tuned.onnx"]
    given = [str(a) for a in (*line, "--target", "reference", *arguments)]
    return CliRunner().invoke(main, given, catch_exceptions=False)


def weights(path: Path) -> dict[str, Any]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}


def test_the_loss_falls_and_only_weights_change(folder: Path) -> None:
    done = train(folder, "--epochs", 5, "--learning-rate", 0.05, "--json", "--wrt", "w*,b2")
    assert done.exit_code == 0, done.stderr
    losses = json.loads(done.stdout)["losses"]
    assert len(losses) == 5 and losses[-1] < losses[0] / 2
    before, after = weights(folder / "m.onnx"), weights(folder / "tuned.onnx")
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {"w1", "w2", "b2"}
    models = [onnx.load(folder / name) for name in ("m.onnx", "tuned.onnx")]
    for model in models:
        model.graph.ClearField("initializer")
    assert models[0] == models[1]


def test_examples_from_a_folder(folder: Path) -> None:
    (folder / "data").mkdir()
    for name, array in np.load(folder / "data.npz").items():
        np.save(folder / "data" / f"{name}.npy", array)
    whole, mapped = train(folder), train(folder, "--data", folder / "data")
    assert mapped.exit_code == 0 and mapped.stdout == whole.stdout


def test_learning_rate_schedules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, call = list[float](), Model.__call__

    def counted(model: Model, inputs: dict[str, Any]) -> Any:
        given.append(float(inputs["learning_rate"]))
        return call(model, inputs)

    monkeypatch.setattr(Model, "__call__", counted)
    rate = ("--learning-rate", 0.5, "--batch-size", 50)
    assert train(folder, *rate, "--schedule", "linear").exit_code == 0
    assert train(folder, *rate, "--schedule", "cosine", "--warmup", 2).exit_code == 0
    np.testing.assert_allclose(given, [0.5, 0.375, 0.25, 0.125, 0, 0.25, 0.5, 0.25], atol=1e-7)
    for wrong in (("--warmup", 1), ("--schedule", "cosine", "--warmup", 4)):
        refused = train(folder, *rate, *wrong)
        assert refused.exit_code == 2 and "--warmup" in refused.stderr


def test_training_continues_from_a_state(folder: Path) -> None:
    state = folder / "state.npz"
    assert train(folder, "--state", state).exit_code == 0
    assert np.load(state)["count"] == 6  # 200 examples in batches of 32
    again = train(folder, "--state", state, model="tuned.onnx")
    assert again.exit_code == 0 and np.load(state)["count"] == 12
    other = train(folder, "--state", state, "--optimizer", "sgd")
    assert other.exit_code == 1 and "the state of another model or optimizer" in other.stderr


def test_interruption_saves_the_last_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def until(count: int) -> Any:
        def stopped(*given: Any) -> Iterator[training_loop.StepResult]:
            for taken, done in enumerate(training_loop.train(*given)):
                if taken == count:
                    raise KeyboardInterrupt
                yield done

        return stopped

    monkeypatch.setattr("dlc.cli.train.train", until(0))
    done = train(folder)
    assert done.exit_code == 130 and "nothing was written" in done.stderr and not (folder / "tuned.onnx").exists()
    monkeypatch.setattr("dlc.cli.train.train", until(3))
    done = train(folder, "--state", folder / "state.npz")
    assert done.exit_code == 130 and "stopped after step 3 of epoch 1; saved as" in done.stderr
    assert np.load(folder / "state.npz")["count"] == 3
    assert not np.array_equal(weights(folder / "tuned.onnx")["w1"], weights(folder / "m.onnx")["w1"])
    assert not list(folder.glob(".*"))


def test_external_data_is_embedded(folder: Path) -> None:
    onnx.save(onnx.load(folder / "m.onnx"), folder / "e.onnx", save_as_external_data=True, size_threshold=0, location="e.bin")
    assert train(folder, "--wrt", "w1", model="e.onnx").exit_code == 0
    (folder / "e.bin").unlink()
    np.testing.assert_array_equal(weights(folder / "tuned.onnx")["w2"], weights(folder / "m.onnx")["w2"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--loss", "mse"], "expected arrays named x, targets; missing targets; found x [200, 2], labels [200]"),
        (["--wrt", "w9"], "wrt 'w9': no input or weight has this name"),
        (["--batch-size", 201], "expected at least 201 examples, one batch; the data has 200"),
        (["--learning-rate", 1e38, "--optimizer", "sgd"], "try a smaller --learning-rate"),
        (["--of", "z"], "no output is named 'z'"),
        (["--state", "/nowhere/s.npz"], "/nowhere/s.npz: cannot be written: there is no folder /nowhere"),
    ],
)
def test_errors_are_one_message(folder: Path, arguments: list[object], text: str) -> None:
    done = train(folder, *arguments)
    assert done.exit_code == 1 and text in done.stderr
    assert not (folder / "tuned.onnx").exists()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"x": np.zeros((4, 2)), "labels": np.full(4, 3)}, "labels: expected classes 0 to 2, got 3 to 3"),
        ({"x": np.zeros((4, 2)), "labels": np.zeros(4)}, "expected labels: int64[4], got dtype float64"),
        ({"x": np.zeros((4, 2)), "labels": np.zeros(3, int)}, "the same number of examples along axis 0"),
        ({"x": np.zeros((4, 3)), "labels": np.zeros(4, int)}, "expected size 2, got 3"),
    ],
)
def test_invalid_data(folder: Path, data: dict[str, Any], text: str) -> None:
    np.savez(folder / "data.npz", **data)
    done = train(folder)
    assert done.exit_code == 1 and text in done.stderr


def test_static_batch_size(folder: Path) -> None:
    perceptron(folder / "m.onnx", batch=8)
    assert train(folder).exit_code == 0
    done = train(folder, "--batch-size", 16)
    assert done.exit_code == 1 and "--batch-size 16: the model has the batch size 8" in done.stderr
