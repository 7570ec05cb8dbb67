"""`dlc.disable_jit`: functions run eagerly, with the results and errors of compiled functions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.errors import DlcError, DTypeError
from dlc.frontend.pytree import flatten

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


@dlc.custom_vjp
def clipped(x: Any) -> Any:
    return x


clipped.defvjp(lambda x: (x, None), lambda kept, ct: (dnp.clip(ct, -0.1, 0.1),))


def loops(x: Any, n: Any) -> Any:
    y, rows = lax.scan(lambda c, row: (c + row.sum(), c), 0, x)
    sums = lax.fori_loop(0, n, lambda i, v: v + i, 1.5)
    none = lax.fori_loop(0, 0, lambda i, v: v + 1.5, 0)
    halved = lax.while_loop(lambda s: s[0] > 1, lambda s: (s[0] / 2, s[1] + 1), (x.sum() + 5, 0))
    return {"scan": (y, rows), "counted": sums, "none": none, "halved": halved, "set": x.at[n, 1].set(2)}


def powers(x: Any) -> Any:
    return (
        lax.cond(x.sum() > 0, lambda v: v**3, lambda v: v * 2, clipped(x)).sum()
        + lax.scan(lambda c, t: (c * t.mean(), None), 1.0, x)[0]
    )


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "loops": (dlc.jit(loops), (X, 2)),
    "gradient": (dlc.value_and_grad(powers), (X + 1,)),
    "Hessian": (dlc.hessian(lambda x: (x**3).sum()), (X[0],)),
    "vmap": (dlc.vmap(lambda row: lax.cond(row.sum() > 0, lambda: row, lambda: -row)), (X,)),
    "pullback": (lambda x: dlc.vjp(dnp.sin, x)[1](x), (X,)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_those_of_the_compiled_function(name: str) -> None:
    function, arguments = FUNCTIONS[name]
    with dlc.disable_jit():
        got, tree = flatten(function(*arguments))
    expected, its = flatten(function(*arguments))
    assert str(tree) == str(its)
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_values_are_available(capsys: pytest.CaptureFixture[str]) -> None:
    @dlc.jit
    def f(x: Any) -> Any:
        y = x * 2
        print(y, f"{y.sum():.1f}", float(y[0]), y.tolist(), repr(y), np.asarray(y).shape)
        return y if y.sum() > 0 else -y

    def loss(x: Any) -> Any:
        print(x[0] > 0, x)
        return (x**2).sum()

    with dlc.disable_jit():
        f(np.float32([1, 2]))
        dlc.grad(loss)(np.float32([1, 2]))
    shown = "[2. 4.] 6.0 2.0 [2.0, 4.0] array([2., 4.], dtype=float32) (2,)\nTrue [1. 2.]\n"
    assert capsys.readouterr().out == shown


def test_symbolic_values_are_errors() -> None:
    def decides(x: Any) -> Any:
        return x if x.sum() > 0 else -x

    def escapes(x: Any) -> Any:
        return float(x.sum()) * x.sum()

    with dlc.disable_jit():
        with pytest.raises(DTypeError, match=r"test_eager.py:\d+: a condition .*dlc.lax.cond"):
            dlc.vmap(decides)(X)
        with pytest.raises(
            DTypeError, match=r"test_eager.py:\d+: float\(\).* constant with respect to the derivative.*stop_gradient"
        ):
            dlc.grad(escapes)(X)
        assert dlc.grad(lambda x: float(dlc.stop_gradient(x)) * x)(3.0) == 3.0


@pytest.mark.parametrize(
    "function",
    [lambda x: x @ x, lambda x: lax.scan(lambda c, v: (c[:1], v), x, x), lambda x: x[dnp.argmax(x) + 9]],
    ids=["shapes", "carry", "index"],
)
def test_errors_are_those_of_the_compiled_function(function: Callable[..., Any]) -> None:
    with pytest.raises(DlcError) as compiled:
        dlc.jit(function)(X)
    with dlc.disable_jit(), pytest.raises(DlcError) as eager:
        dlc.jit(function)(X)
    assert type(eager.value) is type(compiled.value)
    assert str(eager.value) == str(compiled.value)


def test_results_have_memory_of_their_own() -> None:
    @dlc.jit(donate_argnames="state", static_argnames="scale")
    def step(state: Any, x: Any, scale: float) -> Any:
        return state + x * scale, x

    state, x = np.zeros(4, np.float32), np.ones(4, np.float32)
    with dlc.disable_jit():
        new, same = step(state, x, 2.0)
    assert new.base is state and state.tolist() == [2.0] * 4
    assert not np.shares_memory(same, x)


def test_the_environment_disables_it() -> None:
    program = "import dlc\n@dlc.jit\ndef f(x):\n    print(x)\n    return x\nf(3)\nwith dlc.disable_jit(False):\n    f(3)"
    made = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "DLC_JIT": "0", "DLC_CACHE": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout == "3\nTracer(int64[])\n"


def test_condition_is_evaluated_once_per_step() -> None:
    asked = list[float]()

    def goes_on(x: Any) -> Any:
        asked.append(float(x))
        return x < 3

    with dlc.disable_jit():
        dlc.jit(lambda x: lax.while_loop(goes_on, lambda x: x + 1, x))(np.float32(1))
    assert asked == [1, 2, 3]
