"""Model arguments: paths, bytes, open files and messages; pickled and copied models."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dlc
from dlc.errors import ModelError
from dlc.runtime.models.model import Model
from dlc.runtime.saving.container import to_bytes
from tests.models.skeletons import path_of

MNIST = path_of("mnist_cnn")
X = np.linspace(0, 1, 784, dtype=np.float32).reshape(1, 1, 28, 28)


@pytest.fixture(scope="module")
def model() -> Model:
    return dlc.compile_model(MNIST, num_threads=1)


def results(model: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(array) for array in model(X).values()]


@pytest.mark.parametrize("kind", [str, Path, bytes, bytearray, memoryview, io.BytesIO, onnx.load_from_string, "open"])
def test_all_kinds_of_model_sources(kind: Any, model: Model) -> None:
    if kind == "open":
        with MNIST.open("rb") as file:
            given = dlc.compile_model(file)
    else:
        given = dlc.compile_model(kind(MNIST if kind in (str, Path) else MNIST.read_bytes()))
    for got, expected in zip(results(given), results(model), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("make", [dlc.compile_model, dlc.load])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (3, "got int"),
        (None, "got NoneType"),
        (b"", "not a"),
        (b"some text", "not a"),
        (io.StringIO("text"), "open it with mode 'rb'"),
        ("no/such/model", "cannot be read"),
    ],
)
def test_invalid_sources_are_rejected(make: Any, given: Any, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        make(given)


def test_a_message_without_external_data_is_rejected(tmp_path: Path) -> None:
    weights = onnx.numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, 4]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    path = tmp_path / "m.onnx"
    onnx.save(onnx.helper.make_model(graph), path, save_as_external_data=True, size_threshold=0)
    with pytest.raises(ModelError, match="give the model's path instead of its bytes"):
        dlc.compile_model(path.read_bytes())


def test_a_training_step_of_a_model_in_memory() -> None:
    step = dlc.compile_model(MNIST.read_bytes(), vjp="probs", wrt="input")
    assert step.inputs[0].shape == (1, 1, 28, 28)


def test_a_model_is_pickled_with_its_threads(model: Model) -> None:
    again = pickle.loads(pickle.dumps(model))
    assert again.num_threads == 1 and again.inputs == model.inputs
    for got, expected in zip(results(again), results(model), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_model_is_sent_to_other_processes(model: Model) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        (got,) = pool.submit(model, X).result().values()
    np.testing.assert_array_equal(got, results(model)[0])


def test_a_copy_of_a_model_is_the_model(model: Model) -> None:
    assert copy.copy(model) is model and copy.deepcopy({"a": [model]})["a"][0] is model


def test_a_model_without_code_cannot_be_pickled() -> None:
    with pytest.raises(dlc.UnsupportedError, match="has no code to save; compile it for cpu or opencl"):
        pickle.dumps(dlc.compile_model(MNIST, target="reference"))


def test_loading_from_bytes_and_into_memory(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "m.dlc"
    model.save(path)
    content = path.read_bytes()
    with path.open("rb") as file:
        loaded = [dlc.load(content), dlc.load(file), dlc.load(path, mapped=False)]
    # A model in memory is independent of later changes of the file.
    path.write_bytes(bytes(len(content)))
    for again in loaded:
        np.testing.assert_array_equal(results(again)[0], results(model)[0])


def test_every_damaged_byte_of_a_model_in_memory_is_found(model: Model) -> None:
    content = bytearray(to_bytes(model))
    for at in np.random.default_rng(0).integers(0, len(content), 50):
        content[at] ^= 1
        with pytest.raises(dlc.DlcError):
            dlc.load(content)
        content[at] ^= 1


def test_the_version() -> None:
    assert dlc.__version__.count(".") == 2 and "__version__" in dir(dlc)


def test_reading_the_version_imports_nothing() -> None:
    code = "import sys, dlc; dlc.__version__; assert not {'xdsl', 'onnx', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
