"""Direct calls: the arguments that they accept, fallback to Python, and reference counts."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from struct import Struct
from typing import Any

import numpy as np
import onnx.parser
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.arrays import Array
from dlc.runtime.cpu.direct_calls import is_supported_layout

X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
ROWS = np.arange(24, dtype=np.float32).reshape(4, 6)


def several(x: Any, y: Any) -> Any:
    return {"sum": x + y, "all": x.sum(), "wide": (x + dnp.zeros((1000, 1, 1)), x[:, :0])}


@pytest.fixture(scope="module")
def compiled() -> Any:
    function = dlc.jit(several, num_threads=1)
    function(X, X)
    return function


@pytest.fixture(scope="module")
def call(compiled: Any) -> Any:
    direct_calls = compiled.lower(X, X).compile().direct_calls
    direct_calls.record([X, X])
    assert direct_calls.call is not None
    return direct_calls.call


def test_results_equal_those_of_python_calls(call: Any) -> None:
    results = call(X, X.copy().view(Array))
    assert all(type(r) is Array and r.flags.writeable for r in results)
    assert [r.shape for r in results] == [(4, 6), (), (1000, 4, 6), (4, 0)]
    np.testing.assert_array_equal(results[0], 2 * X)
    np.testing.assert_array_equal(results[2][999], X)
    before = [r.copy() for r in results]
    call(X + 1, X)
    for r, b in zip(results, before, strict=True):
        np.testing.assert_array_equal(r, b, err_msg="a later call must not change earlier results")


@pytest.mark.parametrize(
    "arguments",
    [
        (X,),
        (X, X, X),
        (X, X.astype(np.float64)),
        (X, X.T),
        (X, X[:, ::-1]),
        (X, X.reshape(-1)),
        (X, X.reshape(2, 12)),
        (X, X.tolist()),
        (X, np.ma.array(X)),
        (X, 1.0),
        (X, None),
        (np.frombuffer(b"\0" + X.tobytes(), np.float32, offset=1).reshape(X.shape), X),
        (X, X.astype(">f4")),
    ],
    ids=range(13),
)
def test_inexact_arguments_fall_back_to_python(call: Any, arguments: tuple[Any, ...]) -> None:
    assert call(*arguments) is None


@pytest.mark.parametrize(("what", "otherwise"), [("_ARRAY_FIELDS", Struct("@qPPiPPPiP")), ("_KNOWN_API_VERSIONS", (0,))])
def test_unsupported_object_layouts_are_detected(monkeypatch: pytest.MonkeyPatch, what: str, otherwise: Any) -> None:
    assert is_supported_layout()
    monkeypatch.setattr(f"dlc.runtime.cpu.direct_calls.{what}", otherwise)
    assert not is_supported_layout.__wrapped__()


def test_all_supported_arguments_are_accepted(compiled: Any) -> None:
    for x, y in ((X, X), (X, X.T.copy().T), (X, 1.0), (X.astype(np.float64), X), (X, X)):
        got = compiled(x, y)
        np.testing.assert_allclose(got["sum"], x + y)
        assert got["wide"][1].shape == (4, 0)
    np.testing.assert_allclose(compiled(X, y=X)["all"], X.sum(), atol=1e-5)
    with dlc.disable_jit():
        np.testing.assert_array_equal(compiled(X, X)["sum"], 2 * X)


def test_references_are_released(call: Any) -> None:
    objects = (X, X.dtype, Array, np.ndarray)
    call(X, X), call(X, X.T)
    before = [sys.getrefcount(o) for o in objects]
    for _ in range(1000):
        call(X, X), call(X, X.T)
    after = [sys.getrefcount(o) for o in objects]
    assert all(abs(a - b) < 100 for a, b in zip(after, before, strict=True))


def test_long_programs_return_to_python_and_raise_errors() -> None:
    def steps(n: Any, x: Any) -> Any:
        _, x = lax.while_loop(lambda s: s[0] > 0, lambda s: (s[0] - 1, s[1] + 1), (n, x))
        return x[n]

    function = dlc.jit(steps, num_threads=1)
    x = np.arange(300.0)
    for n in (3, 200, 3):
        assert function(np.int64(n).reshape(()), x) == 2 * n
    with pytest.raises(dlc.DlcError, match="300"):
        function(np.array(300), x)
    assert function(np.array(7), x) == 14


def test_several_threads_and_processes() -> None:
    function = dlc.jit(lambda x: dnp.cumsum(x @ x.T, 0), num_threads=2)
    x = np.random.default_rng(0).random((96, 96), np.float32)
    expected = [function(x * k) for k in range(4)]
    wrong: list[int] = []

    def check(k: int) -> None:
        for _ in range(100):
            if not np.array_equal(function(x * k), expected[k]):
                wrong.append(k)

    threads = [threading.Thread(target=check, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    # A forked child does not have the threads of its parent's pool.
    child = multiprocessing.get_context("fork").Process(target=lambda: sys.exit(not np.array_equal(function(x), expected[1])))
    child.start()
    child.join(60)
    assert child.exitcode == 0


def test_models_are_called_by_position_and_by_name(compiled: Any) -> None:
    model = compiled.lower(X, X).compile()
    first, second = (info.name for info in model.inputs)
    name = model.outputs[0].name
    for _ in range(2):  # the first call is Python's
        np.testing.assert_array_equal(model(X, 2 * X)[name], X + 2 * X)
        np.testing.assert_array_equal(model(**{first: X, second: 2 * X})[name], X + 2 * X)
        np.testing.assert_array_equal(model(**{second: X, first: X + 1})[name], X + 1 + X)
        np.testing.assert_array_equal(model(X.tolist(), X)[name], 2 * X)
    with pytest.raises(dlc.ShapeError):
        model(X, X[0])


@pytest.fixture(scope="module")
def dynamic_model() -> Any:
    text = """<ir_version: 10, opset_import: ["" : 21]> f (float[n, m] x, float[m] y) => (float[n, m] sum, float[n] squares)
        { sum = Add(x, y) one = Constant<value_ints = [1]>() squares = ReduceSumSquare<keepdims = 0>(x, one) }"""
    return dlc.compile_model(onnx.parser.parse_model(text), num_threads=2)


def check_dynamic(model: Any, x: Any, y: Any) -> None:
    total, squares = model(x, y).values()
    np.testing.assert_array_equal(total, x + y)
    np.testing.assert_allclose(squares, (x * x).sum(1), 1e-5)


def test_repeated_dynamic_shapes(dynamic_model: Any) -> None:
    for rows in (4, 2, 4, 3, 0):
        x, kept = np.ones((rows, 6), np.float32), []
        for k in range(20):
            check_dynamic(dynamic_model, x * k, X[0])
            kept.append((k, dynamic_model(x * k, X[0])["sum"]))
        assert all(np.array_equal(result, x * k + X[0]) for k, result in kept)
        # What is of another size is a call as it was.
        check_dynamic(dynamic_model, X[:, :2].copy(), X[0, :2].copy())
    assert dynamic_model.direct_calls.call(X, X[0]) is None and dynamic_model.direct_calls.call(X[:0], X[0]) is not None
    with pytest.raises(dlc.ShapeError):
        dynamic_model(X, X[0, :2])


def test_dynamic_shapes_in_several_threads(dynamic_model: Any) -> None:
    failed: list[BaseException] = []

    def call(rows: int) -> None:
        x = np.random.default_rng(rows).random((64 * rows, 48), np.float32)
        try:
            for k in range(120):
                check_dynamic(dynamic_model, x[: 64 * (rows - k // 30 % 2)] * k, x[0])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=call, args=(rows,)) for rows in (1, 2, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_concurrent_calls_get_separate_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that call at the same time use a chain of states, which grows up to its limit when one of them finds none free."""
    monkeypatch.setattr("dlc.runtime.cpu.direct_calls._MAX_CONCURRENT_CALLS", 3)
    model = dlc.jit(lambda x: lax.fori_loop(0, 1000, lambda i, y: y + 1, x), num_threads=1).lower(ROWS).compile()
    (name,) = (info.name for info in model.inputs)
    model(ROWS)

    def length() -> int:
        state, count = model.direct_calls.call.__self__, 1
        while (state := state.successor) is not None:
            count += 1
        return count

    assert length() == 1
    for expected in (2, 3, 3):
        state = model.direct_calls.call.__self__
        used = []
        while state is not None:
            state[0] = 1
            used.append(state)
            state = state.successor
        # All states are in use: the call is made by Python.
        np.testing.assert_array_equal(model({name: ROWS})["result"], ROWS + 1000)
        for each in used:
            each[0] = 0
        assert length() == expected
    used[0][0] = 1
    np.testing.assert_array_equal(model.direct_calls.call(2 * ROWS)[0], 2 * ROWS + 1000)
    assert [state[0] for state in used] == [1, 0, 0]
    used[0][0] = 0

    def client(k: int) -> None:
        for _ in range(50):
            np.testing.assert_array_equal(model({name: ROWS + k})["result"], ROWS + k + 1000)

    with ThreadPoolExecutor(6) as clients:
        [*clients.map(client, range(6))]
