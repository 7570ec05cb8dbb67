"""Programs on a device: device arrays, concurrent calls, errors."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.compiler import Program, compile
from dlc.errors import DeviceError, ShapeError
from dlc.frontend.onnx import import_model
from dlc.runtime.opencl import array, program
from dlc.runtime.opencl.devices import all_devices, open_device, select_device
from dlc.runtime.opencl.program import OpenCLProgram
from dlc.runtime.program.host_program import Parallel
from tests.models.skeletons import path_of

pytestmark = pytest.mark.skipif(not all_devices(), reason="no OpenCL device")


@dlc.jit(target="opencl")
def affine(x: Any, w: Any) -> Any:
    return dnp.maximum(x @ w, 0) + 1


X = np.random.default_rng(0).standard_normal((5, 8), np.float32)
W = np.random.default_rng(1).standard_normal((8, 8), np.float32)


def expected(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.maximum(x @ w, 0) + 1


def test_results_are_arrays() -> None:
    y = affine(X, W)
    assert isinstance(y, dlc.DeviceArray)
    assert (y.shape, y.dtype, y.ndim, y.size, y.nbytes, len(y)) == ((5, 8), np.float32, 2, 40, 160, 5)
    assert y.device.startswith("opencl:") and y.device in repr(y)
    np.testing.assert_allclose(y, expected(X, W), rtol=1e-5)
    host = y.to("cpu")
    assert isinstance(host, dlc.Array) and not host.flags.writeable
    assert y.to("cpu") is host
    np.testing.assert_array_equal(y + 1, host + 1)
    np.testing.assert_array_equal(np.sqrt(y), np.sqrt(host))
    np.testing.assert_array_equal(y[1, 2:], host[1, 2:])
    np.testing.assert_array_equal(np.from_dlpack(y), host)
    assert y.tolist() == host.tolist()
    assert y.astype(np.float64).dtype == np.asarray(y, np.float64).dtype == np.float64
    assert float(affine(X, W)[0, 0]) == host[0, 0]


def test_device_arrays_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    y = affine(X, W)
    w = dlc.to_device(W, "opencl")
    affine(y, w)
    moved: list[int] = []
    monkeypatch.setattr(program, "upload", lambda a, session: moved.append(a.nbytes))
    monkeypatch.setattr(array.DeviceArray, "_fetch", lambda self: moved.append(self.nbytes))
    for _ in range(3):
        y = affine(y, w)
    monkeypatch.undo()
    assert not moved
    x = X
    for _ in range(4):
        x = expected(x, W)
    np.testing.assert_allclose(y, x, rtol=1e-4)


def test_results_outlive_their_model() -> None:
    w = np.random.default_rng(2).standard_normal((1200, 1200), np.float32) / 35
    x = np.ones((600, 1200), np.float32)
    results: list[dlc.DeviceArray] = []
    for _ in range(3):
        results.append(dlc.jit(target="opencl")(lambda x: x @ w @ w @ w)(x))
        gc.collect()  # the weights and the arena are the model's, and the queue is not through with them
    for y in results:
        np.testing.assert_allclose(y, x @ w @ w @ w, rtol=1e-3, atol=1e-3)


def test_explicit_copies() -> None:
    there = dlc.to_device(X, "opencl")
    assert isinstance(there, dlc.DeviceArray) and there.to(there.device) is there
    assert dlc.to_device(there, there.device) is there
    np.testing.assert_array_equal(dlc.to_device(there, "cpu"), X)
    assert isinstance(dlc.to_device(X, "cpu"), dlc.Array)
    with pytest.raises(DeviceError, match="neither"):
        there.to("reference")
    empty = dlc.to_device(np.zeros((0, 3), np.int64), "opencl")
    assert np.asarray(empty).shape == (0, 3)


def test_cpu_programs_reject_device_arrays() -> None:
    there = affine(X, W)
    with pytest.raises(DeviceError, match=r"an argument is on opencl:.*\.to\('cpu'\)"):
        dlc.jit(lambda x: x + 1)(there)
    model = dlc.compile_model(path_of("mnist_cnn"))
    with pytest.raises(DeviceError, match=r"input input: float32.* is on opencl:.*\.to\('cpu'\)"):
        model(dlc.to_device(np.zeros((1, 1, 28, 28), np.float32), "opencl"))


def test_inputs_may_change_after_the_call() -> None:
    x = X.copy()
    y = affine(x, W)
    x[:] = 0
    np.testing.assert_allclose(y, expected(X, W), rtol=1e-5)


def test_inputs_of_any_layout() -> None:
    wide = np.random.default_rng(2).standard_normal((8, 10), np.float32)
    np.testing.assert_allclose(affine(wide.T[::2], W.T), expected(wide.T[::2], W.T), rtol=1e-5)


def test_calls_from_several_threads() -> None:
    inputs = [X + k for k in range(24)]
    affine(X, W)
    with ThreadPoolExecutor(4) as threads:
        for x, y in zip(inputs, threads.map(lambda x: np.asarray(affine(x, W)), inputs), strict=True):
            np.testing.assert_allclose(y, expected(x, W), rtol=1e-4, atol=1e-4)


def test_copies_and_empty_programs() -> None:
    same = dlc.jit(target="opencl")(lambda x: (x, x.reshape(40)))
    for y in same(X):
        np.testing.assert_array_equal(np.ravel(y), X.ravel())
    assert np.asarray(dlc.jit(target="opencl")(lambda x: x * 2)(np.zeros((0, 4), np.float32))).shape == (0, 4)


def test_profiles() -> None:
    imported = import_model(path_of("mnist_cnn"))
    model = compile(Program(imported.module, imported.weights), "opencl")
    zeros = np.zeros((1, 1, 28, 28), np.float32)
    run: Any = model.run_unchecked
    times = run.__self__.profile([zeros])
    assert len(times) > 2 and all(seconds > 0 for _, seconds in times)


def test_dynamic_shapes() -> None:
    function = dlc.jit(target="opencl")(lambda x: dnp.sum(x, axis=0))
    for n in (1, 7):
        np.testing.assert_allclose(function(np.ones((n, 3), np.float32)), np.full(3, n))


def test_one_compilation_serves_all_sizes() -> None:
    @dlc.jit(target="opencl", dynamic={"x": {0: "N:0..64"}})
    def function(x: Any) -> Any:
        y = dnp.exp(x - x.max(axis=1, keepdims=True))
        return dnp.tanh(y @ W).sum(axis=0), y

    def agrees(x: np.ndarray, results: Any) -> None:
        y = np.exp(x - x.max(axis=1, keepdims=True))
        for got, want in zip(results, (np.tanh(y @ W).sum(axis=0), y), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)

    inputs = [np.random.default_rng(n).standard_normal((n, 8), np.float32) for n in (0, 1, 5, 64, 3, 3)]
    with ThreadPoolExecutor(3) as threads:
        for x, results in zip(inputs, list(threads.map(function, inputs)), strict=True):
            agrees(x, results)
    agrees(inputs[2], function(dlc.to_device(inputs[2], "opencl")))
    with pytest.raises(ShapeError, match=r"N = 65; expected a size in the declared range 0\.\.64"):
        function(np.zeros((65, 8), np.float32))
    model: Any = function.lower(inputs[1]).compile()
    assert isinstance(model.run_unchecked.__self__, OpenCLProgram)
    assert all(seconds > 0 for _, seconds in model.run_unchecked.__self__.profile([inputs[3]]))


@pytest.mark.parametrize("size", [5, 1 << 20])
def test_read_only_arrays_are_weights_and_inputs(size: int) -> None:
    session = open_device(select_device("opencl")[0])
    x = np.arange(size, dtype=np.float32)
    x.flags.writeable = False
    for constant in (False, True):
        there = dlc.DeviceArray(session, array.create_buffer(x, session, constant=constant), x.shape, x.dtype)
        np.testing.assert_array_equal(there, x)


@pytest.mark.parametrize("target", ["opencl:gpu", "opencl:small"])
def test_matrix_products_of_symbolic_sizes(target: str) -> None:
    """With symbolic sizes, work-items compute several rows and columns, some of which may be out of bounds."""
    product = dlc.jit(lambda x, w: x @ w + 1, target=target, dynamic={"x": {1: "N"}, "w": {2: "M"}})
    rng = np.random.default_rng(0)
    for n, m in ((1, 1), (3, 130), (65, 7), (131, 64)):
        x, w = (rng.standard_normal(shape, np.float32) for shape in ((2, n, 20), (2, 20, m)))
        np.testing.assert_allclose(np.asarray(product(x, w)), x @ w + 1, rtol=1e-4, atol=1e-4)


def test_sections_run_in_separate_queues() -> None:
    """Chains that a sum joins: results, concurrent calls and measured launches are those of the sequence."""
    rng = np.random.default_rng(0)
    weights = [[rng.standard_normal((32, 32), np.float32) / 6 for _ in range(4)] for _ in range(5)]

    def function(x: Any) -> Any:
        outputs = []
        for layers in weights:
            y = x
            for w in layers:
                y = dnp.tanh(y @ w)
            outputs.append(y)
        return sum(outputs[1:], outputs[0])

    x = rng.standard_normal((4, 32), np.float32)
    models = {mode: dlc.jit(function, target="opencl", inter_op=mode).lower(x).compile() for mode in ("off", "on", "auto")}
    assert [any(isinstance(i, Parallel) for i in m.artifact.host.instructions) for m in models.values()] == [False, True, False]
    right = {k: np.asarray(models["off"](x + k)["result"]) for k in range(8)}
    with ThreadPoolExecutor(4) as clients:
        for k, result in zip(range(8), clients.map(lambda k: models["on"](x + k)["result"], range(8)), strict=True):
            np.testing.assert_array_equal(result, right[k])
    sections = models["on"].artifact
    times = sections.program.profile([np.ascontiguousarray(x)])
    assert [launch for launch, _ in times] == list(sections.host.launches)
    np.testing.assert_array_equal(models["on"](models["on"](x)["result"])["result"], models["off"](right[0])["result"])
