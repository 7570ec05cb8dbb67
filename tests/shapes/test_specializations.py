"""One cache of specializations: as few programs as the guards of a function or model demand."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dlc
import dlc.numpy
from dlc.errors import DlcError, ShapeError, UnsupportedError
from dlc.runtime.models.specializations import Specialization, Specializations
from dlc.runtime.models.specialized_model import SpecializedModel
from dlc.shapes.dims import Dim
from dlc.shapes.domain import SizeDomain
from dlc.shapes.guards import Guard
from dlc.shapes.ranges import SizeRange

HEADER = '<ir_version: 8, opset_import: ["" : 18]> g '
N = Dim.symbol("N")


def rows(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


# A function, its symbolic sizes, whether it accepts them, and the maximum number of programs for all sizes.
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., bool], int]] = {
    "branch": (lambda x: x * 2 if x.shape[0] > 10 else x + 1, lambda n: True, 2),
    "two_branches": (lambda x: x[0] if x.shape[0] > 50 else x * 2 if x.shape[0] % 2 == 0 else -x, lambda n: True, 3),
    "slice": (lambda x: x[2:500].sum(0), lambda n: True, 3),
    "backward_slice": (lambda x: x[500:2:-3].sum(0), lambda n: True, 3),
    "first_half": (lambda x: x[: x.shape[0] // 2].sum(0), lambda n: True, 1),
    "element": (lambda x: x[7] * 2, lambda n: n >= 8, 1),
    "divisibility": (lambda x: x.reshape(-1, 2).sum(1), lambda n: n % 2 == 0, 1),
    "broadcast": (lambda x, y: x + y, lambda n, m: n == m or 1 in (n, m), 3),
    "branch_and_broadcast": (
        lambda x, y: x + y if x.shape[0] > 10 else x - y,
        lambda n, m: n == m or 1 in (n, m),
        5,
    ),
}


def sizes(name: str) -> list[tuple[int, ...]]:
    """Return the sizes of 1,000 calls; about half of those of two arguments are equal or 1."""
    random = np.random.default_rng(sum(map(ord, name)))
    single = [(int(n),) for n in random.integers(0, 1000, 1000)]
    if "broadcast" not in name:
        return single
    return [pair for (n,) in single[:250] for pair in ((n, n), (n, 1), (1, n), (n, n + 1))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_compiles_as_few_programs_as_its_guards_demand(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, accepts, max_programs = FUNCTIONS[name]
    compiled = count_compilations(monkeypatch)
    names = ("x", "y")[: function.__code__.co_argcount]
    dynamic = {argument: {0: symbol} for argument, symbol in zip(names, "NM", strict=False)}
    called = dlc.jit(dynamic=dynamic, cache=False, num_threads=1)(function)
    num_refused = 0
    for call in sizes(name):
        arrays = [rows(n, 3) for n in call]
        if accepts(*call):
            np.testing.assert_allclose(called(*arrays), function(*arrays), 1e-5)
        elif num_refused < 20:  # Each refused call is traced, to report the line.
            num_refused += 1
            with pytest.raises(DlcError):
                called(*arrays)
    assert len(compiled) <= max_programs


SLICES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], int]] = {
    "head": (lambda x: (x[:5] ** 2).sum(), lambda x: np.where(np.arange(len(x)) < 5, 2 * x, 0), 2),
    "every_second": (lambda x: (x[2::2] ** 2).sum(), lambda x: np.where(np.arange(len(x)) % 2 + (np.arange(len(x)) < 2), 0, 2 * x), 2),
    "half": (lambda x: (x[: x.shape[0] // 2] ** 2).sum(), lambda x: np.where(np.arange(len(x)) < len(x) // 2, 2 * x, 0), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", SLICES)
def test_gradients_of_slices_are_not_compiled_for_each_size(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, derivative, max_programs = SLICES[name]
    compiled = count_compilations(monkeypatch)
    gradient = dlc.jit(target="reference", dynamic={"x": {0: "N"}}, cache=False)(dlc.grad(function))
    for n in (9, 6, 5, 4, 3, 2, 1, 0, 30):
        np.testing.assert_allclose(gradient(rows(n)), derivative(rows(n)), 1e-6)
    assert len(compiled) <= max_programs


def test_pads_by_sizes_and_pools_of_the_same_size_have_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def padded(xp: Any, x: Any, y: Any) -> Any:
        return xp.pad(x, ((len(y) if xp is np else y.shape[0], x.shape[0] // 2), (0, 1)), constant_values=3)

    compiled = count_compilations(monkeypatch)
    dynamic = {"x": {0: "N", 1: "K"}, "y": {0: "M"}}
    called = dlc.jit(dynamic=dynamic, cache=False, num_threads=1)(lambda x, y: padded(dlc.numpy, x, y))
    pool = dlc.jit(dynamic={"x": {1: "H"}}, cache=False, num_threads=1)(lambda x: dlc.nn.avg_pool(x, 3, 2, "same"))
    static_pool = dlc.jit(target="reference", cache=False)(lambda x: dlc.nn.avg_pool(x, 3, 2, "same"))
    for n, k, m in ((4, 3, 2), (1, 2, 1), (5, 5, 7), (33, 17, 40)):
        x, y = rows(n, k), rows(m)
        np.testing.assert_array_equal(called(x, y), padded(np, x, y))
    assert len(compiled) == 1
    for h in (8, 1, 2, 33):
        np.testing.assert_allclose(pool(rows(1, h, 4, 2)), static_pool(rows(1, h, 4, 2)), 1e-5)


def count_compilations(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list to which each new specialization is added."""
    compiled: list[object] = []
    add = Specializations[Any].add

    def counted(cache: Specializations[Any], specialization: Specialization[Any]) -> None:
        compiled.append(specialization)
        add(cache, specialization)

    monkeypatch.setattr(Specializations, "add", counted)
    return compiled


def test_sizes_of_1_have_one_program_for_all_other_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(onnx.parser.parse_model(HEADER + "(float[N,3] x, float[M,3] z) => (y) { y = Add(x, z) }"), tmp_path / "m.onnx")
    compiled = count_compilations(monkeypatch)
    model = dlc.compile_model(tmp_path / "m.onnx", cache=False, num_threads=1)
    for n in range(2, 100):
        for shape in ((n, n), (n, 1), (1, n)):
            x, z = rows(shape[0], 3), rows(shape[1], 3)
            np.testing.assert_array_equal(model(x, z)["y"], x + z)
    assert len(compiled) <= 2
    with pytest.raises(ShapeError, match="N = 3, M = 2"):
        model(rows(3, 3), rows(2, 3))
    model.save(tmp_path / "m.dlc")
    loaded = dlc.load(tmp_path / "m.dlc", num_threads=1)
    for n in (2, 7, 1000):
        np.testing.assert_array_equal(loaded(rows(1, 3), rows(n, 3))["y"], rows(1, 3) + rows(n, 3))
    with pytest.raises(ShapeError, match=r"not compiled for N = 3, M = 2; .*dl.add requires N == M"):
        loaded(rows(3, 3), rows(2, 3))


def test_the_log_names_the_violated_guard(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("DLC_LOG", "recompiles")
    called = dlc.jit(dynamic={"x": {0: "N"}}, cache=False, num_threads=1)(lambda x: x * 2 if x.shape[0] > 10 else x)
    for n in (20, 30, 3, 4):
        called(rows(n))
    first, second = capfd.readouterr().err.splitlines()
    assert "compilation 1: x: float32[20]" in first and "violated" not in first
    assert (
        "compilation 2: x: float32[20] → float32[3]; violated guard: test_specializations.py:" in second
        and "requires N >= 11" in second
    )


def test_a_call_finds_a_program_by_key_and_guards() -> None:
    cache = Specializations[str]("f")

    def call(key: str, n: int, program: str, domain: SizeDomain) -> str:
        found = cache.find((key, n), key, {"N": n})
        if found is None:
            found = cache.compile((key, n), key, {"N": n}, lambda: Specialization(program, domain), {"N": str(n)})
        return found.program

    large = SizeDomain({"N": SizeRange(5)}, requirements=(Guard(Dim.lift(N - 5), ">=", "node 's'"),))
    assert call("f32", 7, "large", large) == "large"
    assert call("f32", 9, "unused", SizeDomain()) == "large"
    assert cache.violation("f32", {"N": 4}) == "node 's' requires N >= 5"
    assert call("f32", 4, "small", SizeDomain.of_sizes({"N": 4})) == "small"
    assert call("f64", 7, "double", SizeDomain()) == "double"
    assert call("f32", 4, "unused", SizeDomain()) == "small" and cache.num_compilations == 3


def test_threads_compile_a_program_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = count_compilations(monkeypatch)
    called = dlc.jit(dynamic={"x": {0: "N"}}, cache=False, num_threads=1)(lambda x: x * 2 if x.shape[0] > 10 else x)
    results: dict[int, Any] = {}

    def call(n: int) -> None:
        results[n] = called(rows(n))

    threads = [threading.Thread(target=call, args=(n,)) for n in range(6, 18)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled) == 2
    for n, result in results.items():
        np.testing.assert_array_equal(result, rows(n) * (2 if n > 10 else 1))


def test_specializations_share_weights() -> None:
    w = np.random.default_rng(0).standard_normal((64, 48)).astype(np.float32)
    called = dlc.jit(dynamic={"x": {0: "N"}}, cache=False, num_threads=1)(lambda x: x @ w if x.shape[0] > 10 else x @ w + 1)
    for n in (20, 3):
        np.testing.assert_allclose(called(rows(n, 64)), rows(n, 64) @ w + (n <= 10), 1e-4, 1e-2)
    first, second = (entry.program.model.artifact for entry in called._specializations.entries)
    (a,), (b,) = (
        {id(array) for array in artifact.weights.values() if array.nbytes >= w.nbytes} for artifact in (first, second)
    )
    assert a == b


def test_a_closed_model_has_no_compiler() -> None:
    x = dlc.arrays.TensorInfo("x", (N,), np.dtype(np.float32))
    model = SpecializedModel("closed", (x,), (x,)).model()
    with pytest.raises(UnsupportedError, match="closed: not compiled for N = 3"):
        model(rows(3))
