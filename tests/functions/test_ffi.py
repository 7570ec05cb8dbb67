"""Foreign functions: Python callbacks and native functions in traced functions, on all targets."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
from dlc.deploy import write_library
from dlc.errors import DlcError, DTypeError, ShapeError, UnsupportedError
from tests.targets import TARGETS

X = np.arange(6, dtype=np.float32).reshape(2, 3)
SOURCE = """
#include <stdint.h>
void scale(int64_t n, float factor, const float *x, float *y) { for (int64_t i = 0; i < n; i++) y[i] = factor * x[i]; }
void scale_batch(int64_t batch, int64_t n, float factor, const float *x, float *y) { scale(batch * n, factor, x, y); }
int positive(const double *x, double *y) { *y = *x; return *x > 0 ? 0 : 7; }
void sum_and_mean(int64_t n, const double *x, double *sum, double *mean) {
  *sum = 0;
  for (int64_t i = 0; i < n; i++) *sum += x[i];
  *mean = *sum / n;
}
"""
SPEC = dlc.ShapeDtype((), np.float64)


def sine(x: Any) -> Any:
    return dlc.pure_callback(np.sin, x, x)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("native")
    (folder / "f.c").write_text(SOURCE)
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "f.so", folder / "f.c"], check=True)
    except FileNotFoundError:
        pytest.skip("no C compiler")
    return str(folder / "f.so")


@pytest.mark.parametrize("target", TARGETS)
def test_a_callback_runs_on_targets(target: str) -> None:
    compiled = dlc.jit(lambda x: sine(x * 2) + 1, target=target)
    for _ in range(2):
        np.testing.assert_array_equal(np.asarray(compiled(X)), np.sin(X * 2) + 1)


def test_a_callback_outside_of_traced_functions() -> None:
    np.testing.assert_array_equal(sine(X), np.sin(X))
    with dlc.disable_jit():
        np.testing.assert_array_equal(dlc.jit(sine)(X), np.sin(X))


def test_arguments_and_results_are_containers() -> None:
    def split(pair: dict[str, Any], k: Any) -> dict[str, Any]:
        assert isinstance(pair["a"], np.ndarray) and k == 2
        return {"sum": pair["a"] + pair["b"], "rows": (pair["a"].sum(1),)}

    def f(x: Any) -> Any:
        specs = {"rows": (dlc.ShapeDtype((2,), x.dtype),), "sum": x}
        return dlc.pure_callback(split, specs, {"a": x, "b": 2 * x}, 2)

    result = dlc.jit(f)(X)
    np.testing.assert_array_equal(result["sum"], X * 3)
    np.testing.assert_array_equal(result["rows"][0], X.sum(1))


def test_a_callback_may_keep_its_arguments_and_call_compiled_functions() -> None:
    kept = list[Any]()
    triple = dlc.jit(lambda x: x * 3)

    def keep(x: Any) -> Any:
        kept.append(x)
        return np.asarray(triple(x))

    compiled = dlc.jit(lambda x: dlc.pure_callback(keep, x, x + 1) - 1)
    np.testing.assert_array_equal(compiled(X), (X + 1) * 3 - 1)
    compiled(X + 5)
    np.testing.assert_array_equal(kept[0], X + 1)


def test_callbacks_in_control_flow() -> None:
    def step(carry: Any, x: Any) -> Any:
        total = dlc.pure_callback(np.add, x, carry, x)
        return total, total * 2

    total, doubled = dlc.jit(lambda xs: dlc.lax.scan(step, np.float32(0), xs))(X[1])
    assert total == X[1].sum()
    np.testing.assert_array_equal(doubled, np.cumsum(X[1]) * 2)
    branch = dlc.jit(lambda x: dlc.lax.cond(x > 0, sine, lambda x: x, x))
    assert branch(np.float32(2)) == np.sin(np.float32(2)) and branch(np.float32(-2)) == -2
    count = dlc.jit(lambda x: dlc.lax.while_loop(lambda c: c < 10, lambda c: dlc.pure_callback(lambda c: c + 3, c, c), x))
    assert count(np.int32(0)) == 12


def test_a_batch_is_computed_entry_by_entry_or_at_once() -> None:
    shapes = list[tuple[int, ...]]()

    def negate(x: Any) -> Any:
        shapes.append(x.shape)
        return -x

    def f(x: Any, scale: Any, batched: Any = False) -> Any:
        return dlc.pure_callback(lambda x, scale: negate(x) * scale, x, x, scale, batched=batched)

    for batched, expected in ((False, [(3,)] * 2), (True, [(2, 3)]), (lambda x, s: negate(x) * s[:, None], [(2, 3)])):
        shapes.clear()
        scale = np.float32(2) if batched is not True else np.full(3, 2, np.float32)
        result = dlc.vmap(lambda x, s, b=batched: f(x, s, b), in_axes=(0, None))(X, scale)
        np.testing.assert_array_equal(result, X * -2)
        assert shapes == expected
    shapes.clear()
    nested = dlc.vmap(dlc.vmap(lambda x: dlc.pure_callback(negate, x, x, batched=True)))(X)
    np.testing.assert_array_equal(nested, -X)
    assert shapes == [(6,)]
    assert dlc.vmap(sine)(np.ones((0, 3), np.float32)).shape == (0, 3)


def test_batched_branches_and_custom_derivatives() -> None:
    batched = dlc.vmap(lambda x: dlc.lax.cond(x > 0, sine, lambda x: x, x))(X[1] - 4)
    np.testing.assert_array_equal(batched, np.where(X[1] > 4, np.sin(X[1] - 4), X[1] - 4))

    @dlc.custom_vjp
    def with_rule(x: Any) -> Any:
        return sine(x)

    with_rule.defvjp(lambda x: (with_rule(x), x), lambda x, g: (g * dlc.pure_callback(np.cos, x, x),))
    np.testing.assert_array_equal(dlc.grad(lambda x: with_rule(x).sum())(X), np.cos(X))
    np.testing.assert_array_equal(dlc.vmap(dlc.grad(with_rule))(X[1]), np.cos(X[1]))
    with pytest.raises(UnsupportedError, match=r"test_ffi.py:\d+: dlc.pure_callback\(sin\) has no derivative.*custom_vjp"):
        dlc.grad(lambda x: sine(x).sum())(X)


def test_shape_rules_and_symbolic_sizes(library: str) -> None:
    def doubled(x: Any) -> Any:
        def rule(x: Any) -> Any:
            return dlc.ShapeDtype((2 * x.shape[0],), x.dtype)

        return dlc.pure_callback(lambda x: np.concatenate([x, x]), rule, x)

    def scaled(x: Any) -> Any:
        spec = dlc.ShapeDtype((x.shape[0],), x.dtype)
        return dlc.ffi.call(f"{library}:scale", spec, x.shape[0], ctypes.c_float(3), x)

    for f, expected in ((doubled, lambda x: np.concatenate([x, x])), (scaled, lambda x: 3 * x)):
        compiled = dlc.jit(f, dynamic={"x": {0: "n"}})
        for size in (3, 5, 1, 0):
            x = np.arange(size, dtype=np.float32)
            np.testing.assert_array_equal(compiled(x), expected(x))
    f = dlc.jit(lambda x, y: dlc.pure_callback(lambda x: x, y, x), dynamic={"x": {0: "n"}, "y": {0: "m"}})
    with pytest.warns(UserWarning, match="m is not the size of an axis of an argument"):
        f(np.zeros(3), np.zeros(3))


@pytest.mark.parametrize("target", TARGETS)
def test_native_functions(target: str, library: str) -> None:
    def f(x: Any, **batched: Any) -> Any:
        n = x.shape[0]
        return dlc.ffi.call(f"{library}:scale", x, n, ctypes.c_float(0.5), x, **batched) + 1

    expected = X * np.float32(0.5) + 1
    np.testing.assert_array_equal(np.asarray(dlc.jit(f, target=target)(X[1])), expected[1])
    for batched in (None, f"{library}:scale_batch"):
        result = dlc.jit(dlc.vmap(lambda x, b=batched: f(x, batched=b)), target=target)(X)
        np.testing.assert_array_equal(np.asarray(result), expected)


def test_native_functions_with_several_results_argtypes_and_status(library: str) -> None:
    loaded = ctypes.CDLL(library)
    pointer = ctypes.POINTER(ctypes.c_double)
    loaded.sum_and_mean.argtypes = [ctypes.c_int64, pointer, pointer, pointer]
    x = np.array([1.0, 2.0, 6.0])
    for f in (loaded.sum_and_mean, f"{library}:sum_and_mean"):
        assert dlc.jit(lambda x, f=f: dlc.ffi.call(f, (SPEC, SPEC), 3, x))(x) == (9, 3)
    with pytest.raises(DTypeError, match=r"argument 1 is float32\[3\]; the C function takes a pointer to float64"):
        dlc.ffi.call(loaded.sum_and_mean, (SPEC, SPEC), 3, x.astype(np.float32))
    with pytest.raises(DTypeError, match="its argtypes have 4 entries; expected 3: 2 arguments and 1 results"):
        dlc.ffi.call(loaded.sum_and_mean, SPEC, 3, x)
    checked = dlc.jit(lambda x: dlc.ffi.call(f"{library}:positive", SPEC, x, check_status=True))
    assert checked(np.float64(2)) == 2
    with pytest.raises(DlcError, match=r"test_ffi.py:\d+: dlc.ffi.call\(.*positive\): it returned status 7"):
        checked(np.float64(-2))
    with pytest.raises(DlcError, match="was not found"):
        dlc.ffi.call(f"{library}:missing", SPEC, x)
    with pytest.raises(DTypeError, match="got a function; expected a ctypes function"):
        dlc.ffi.call(sine, SPEC, x)


def test_errors_name_the_call() -> None:
    def fail(x: Any) -> Any:
        raise KeyError("a")

    where = r"dl.foreign_call at test_ffi.py:\d+: dlc.pure_callback"
    with pytest.raises(DlcError, match=rf"{where}\(fail\): KeyError: 'a'"):
        dlc.jit(lambda x: dlc.pure_callback(fail, x, x))(X)
    with pytest.raises(ShapeError, match=rf"{where}.*: result 0 is float32\[1, 3\]; expected float32\[2, 3\]"):
        dlc.jit(lambda x: dlc.pure_callback(lambda x: x[:1], x, x))(X)
    with pytest.raises(DTypeError, match=r"result 0 is float64\[2, 3\]; expected float32\[2, 3\]"):
        dlc.pure_callback(lambda x: x.astype(np.float64), X, X)
    with pytest.raises(ShapeError, match="the result is a tuple of 2; expected an array or number"):
        dlc.pure_callback(lambda x: (x, x), X, X)
    with pytest.raises(DTypeError, match=r"result_shapes is a int; expected a dlc\.ShapeDtype"):
        dlc.pure_callback(np.sin, 3, X)
    with pytest.raises(DTypeError, match=r"args\[0\] is a str; expected arrays"):
        dlc.pure_callback(np.sin, X, "text")


def test_artifacts_refuse_foreign_functions(tmp_path: Path) -> None:
    model = dlc.jit(lambda x: sine(x) + 1).lower(X).compile()
    np.testing.assert_array_equal(model(X)["result"], np.sin(X) + 1)
    with pytest.raises(UnsupportedError, match=r"test_ffi.py:\d+: a file cannot contain .* dlc.pure_callback\(sin\)"):
        model.save(tmp_path / "m.dlc")
    assert not list(tmp_path.iterdir())
    with pytest.raises(UnsupportedError, match=r"a library cannot contain foreign_call at test_ffi\.py.* in Python"):
        write_library(model, tmp_path / "m.so")
