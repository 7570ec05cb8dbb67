"""Derivative transformations: compositions, pytrees, custom rules, and errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import ml_dtypes
import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.errors import DlcError, DTypeError, ShapeError, UnsupportedError

X = np.array([1.0, 2.0, 3.0])


def reference(function: Callable[..., Any]) -> Callable[..., Any]:
    return dlc.jit(target="reference")(lambda *args: function(*args))


@pytest.mark.parametrize("call", [lambda f: f, reference], ids=["by_itself", "traced"])
def test_derivatives_of_vmap_of_derivatives(call: Callable[..., Any]) -> None:
    def cubes(x: Any) -> Any:
        return dnp.sum(dlc.vmap(lambda a: dlc.jvp(lambda t: t**3, (a,), (1.0,))[1])(x))

    np.testing.assert_allclose(call(dlc.grad(cubes))(X), 6 * X)


def test_unused_intermediate_values_are_not_computed() -> None:
    def slope(x: Any) -> Any:
        y = dlc.vmap(dnp.sin)(x)
        return dlc.grad(lambda t: dnp.sum(dlc.jvp(lambda u: 3 * u, (y,), (t,))[1]))(x)

    np.testing.assert_array_equal(reference(slope)(X), [3, 3, 3])


def test_orders() -> None:
    """The derivative of sinc at 0 comes from a custom rule, at every order."""
    f, found = dnp.sinc, []
    for _ in range(4):
        f = dlc.grad(f)
        found.append(float(reference(f)(0.0)))
    np.testing.assert_allclose(found, [0, -(np.pi**2) / 3, 0, np.pi**4 / 5], atol=1e-12)


@dataclass
class Layer:
    w: Any
    b: Any


class Pair(NamedTuple):
    w: Any
    b: Any


@pytest.mark.parametrize("kind", [Layer, Pair])
def test_containers(kind: Any) -> None:
    gradient = reference(dlc.grad(lambda p: dnp.sum(p.w * p.b)))(kind(X, np.float32(2)))
    assert type(gradient) is kind
    np.testing.assert_array_equal(gradient.w, [2, 2, 2])
    assert (gradient.b, gradient.b.dtype) == (6, np.float32)


def test_dicts_in_another_order() -> None:
    def f(p: Any) -> Any:
        return {"x": p["a"] * p["b"] ** 2, "y": p["b"]}

    point = {"a": 1.0, "b": 3.0}
    _, tangents = reference(lambda p: dlc.jvp(f, (p,), ({"b": 1.0, "a": 10.0},)))(point)
    assert tangents == {"x": 96, "y": 1}
    (pulled,) = reference(lambda p: dlc.vjp(f, p)[1]({"y": 100.0, "x": 1.0}))(point)
    assert pulled == {"a": 9, "b": 106}


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_dtypes(dtype: Any) -> None:
    """The gradient has the dtype of the argument; scalars are weakly typed."""
    gradient = reference(dlc.grad(lambda x, s: dnp.sum(dnp.tanh(x) * s)))(np.full(3, 0.5, dtype), 2.0)
    assert gradient.dtype == dtype
    np.testing.assert_allclose(gradient.astype(np.float64), 2 / np.cosh(0.5) ** 2, rtol=4 * float(ml_dtypes.finfo(dtype).eps))
    (pulled,) = reference(lambda x: dlc.vjp(lambda x: x * x, x)[1](1.0))(dtype(3))
    assert (pulled, pulled.dtype) == (6, dtype)


def test_inactive_arguments_of_any_type() -> None:
    value, tangent = dlc.jvp(lambda x, n, y: x**n * y, (2.0, 3, np.inf), (1.0, None, None))
    assert (value, tangent) == (np.inf, np.inf)


def test_arguments_that_are_ignored_have_zeros() -> None:
    g, zeros = reference(dlc.grad(lambda x, y: x * x, (0, 1)))(2.0, X)
    assert g == 4
    np.testing.assert_array_equal(zeros, [0, 0, 0])


def test_the_derivative_of_nested_recurrences() -> None:
    def f(x: Any) -> Any:
        def outer(_: Any, e: Any) -> Any:
            _, ys = lax.scan(lambda c, a: (c, dnp.sin(a)), x, x)
            return None, (ys * e, -ys)

        _, (a, b) = lax.scan(outer, None, x)
        return dnp.sum(a * 2) + dnp.sum(b)

    expected = np.cos(X) * (2 * X.sum() - 3) + 2 * np.sin(X).sum()
    np.testing.assert_allclose(reference(dlc.grad(f))(X), expected)


def ruled(rule: Callable[..., Any], function: Callable[..., Any] = lambda x: x**4, **settings: Any) -> Any:
    made = dlc.custom_jvp(function, **settings)
    made.defjvp(rule)
    return made


def _by_scan(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    return x**4, lax.scan(lambda c, _: (c * x, None), 4 * dx, None, 3)[0]


def _by_while(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    last, _ = lax.while_loop(lambda s: s[1] < 3, lambda s: (s[0] * x, s[1] + 1), (4 * dx, 0))
    return x**4, last


def _by_cond(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    return x**4, lax.cond(x > 0, lambda: 4 * x**3 * dx, lambda: dx)


@pytest.mark.parametrize("rule", [_by_scan, _by_while, _by_cond])
def test_rules_with_loops_and_branches(rule: Callable[..., Any]) -> None:
    assert reference(dlc.grad(ruled(rule)))(2.0) == 32


def test_static_and_keyword_arguments_of_rules() -> None:
    f = ruled(
        lambda n, m, p, t: (p[0] ** n * m, n * m * p[0] ** (n - 1) * t[0]), lambda n, x, m: x**n * m, nondiff_argnums=(0, 2)
    )
    assert reference(dlc.grad(lambda x: f(3, x, m=5)))(2.0) == 60


def test_custom_rule_applies_at_every_order() -> None:
    """The body returns 1; the rule states that the function is its own derivative."""
    f = dlc.custom_jvp(lambda x: x * 0 + 1)
    f.defjvp(lambda p, t: (f(p[0]), f(p[0]) * t[0]))
    g: Any = f
    for _ in range(5):
        g = dlc.grad(g)
        assert reference(g)(1.0) == 1


def leaking(x: Any) -> Any:
    found: list[Any] = []
    dlc.grad(lambda a: found.append(a * 2) or a * a)(x)
    return found[0] + 1


def custom(backward: Callable[..., Any], function: Callable[..., Any] = lambda x: x * 2) -> Any:
    made = dlc.custom_vjp(function)
    made.defvjp(lambda *args: (function(*args), None), backward)
    return made


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: dlc.grad(lambda p: p["a"])({"a": 1.0, "n": [1]}), DTypeError, "argument 0['n'][0] has dtype int64, which has no gra"),
        (lambda: dlc.grad(lambda a, b: a * b, (0, -2))(1.0, 2.0), DTypeError, "[0, 0] selects an argument twice"),
        (lambda: dlc.grad(lambda a: a, 1)(1.0), DTypeError, "argnums 1, but the call has 1 positional arguments"),
        (lambda: dlc.grad(lambda a: a, cast(Any, "a"))(1.0), DTypeError, "dlc.grad: argnums = 'a'; expected an integer"),
        *[
            (lambda t=t: t(cast(Any, 3)), DTypeError, "= 3; expected a function")
            for t in (dlc.grad, dlc.vmap, dlc.hessian, dlc.checkpoint, dlc.custom_jvp, dlc.custom_vjp)
        ],
        (lambda: dlc.grad(lambda a: a * X)(1.0), ShapeError, "returned an array of shape (3,); expected a scalar: sum"),
        (lambda: dlc.grad(lambda a: (a, a))(1.0), ShapeError, "returned a tuple of 2; expected a float scalar (for other results, set has_aux)"),
        (lambda: dlc.grad(lambda a: a > 0)(1.0), DTypeError, "returned bool; expected a float"),
        (lambda: dlc.jvp(lambda p: p["x"], ({"x": 2.0},), ({"y": 1.0},)), ShapeError, "tangents[0] is a dict of 'y'; expected"),
        (lambda: dlc.jvp(lambda a: a, 2.0, 1.0), DTypeError, "dlc.jvp: primals = 2.0; expected a list"),
        (lambda: dlc.jvp(lambda a: a, (2,), (1,)), DTypeError, "primals[0] has dtype int64, which has no tangent"),
        (lambda: dlc.vjp(lambda a: a * X, 2.0)[1](np.ones(2)), ShapeError, "cotangent has shape (2,); expected (3,)"),
        (lambda: dlc.jit(leaking)(1.0), DlcError, "a value of the body of a loop, a branch or a transformed function is used"),
        (lambda: dlc.grad(ruled(lambda p, t: (p[0], dnp.sin(t[0]))))(1.0), UnsupportedError, "is not linear in the tangents"),
        (
            lambda: dlc.grad(ruled(lambda p, t: (p[0], dnp.where(t[0] > 0, t[0], 0))))(1.0),
            UnsupportedError,
            "is not linear in the tangents",
        ),
        (lambda: dlc.grad(ruled(lambda p, t: (p[0], (t[0], t[0]))))(1.0), ShapeError, "the rule's tangent is a tuple of 2"),
        (lambda: dlc.grad(dlc.custom_jvp(lambda x: x))(1.0), DlcError, "<lambda> has no JVP rule"),
        (
            lambda: dlc.grad(lambda w: ruled(lambda p, t: (p[0] * w, t[0] * w), lambda x: x * w)(2.0))(3.0),
            UnsupportedError,
            "the function captures a differentiated value; pass it as an argument",
        ),
        (lambda: dlc.grad(custom(lambda _, ct: ct * 2))(1.0), DTypeError, "the backward rule returned a Tracer; expected a tuple"),
        (lambda: dlc.grad(custom(lambda _, ct: (ct, ct)))(1.0), DTypeError, "returned a tuple of 2; expected a tuple of 1"),
        (lambda: dlc.jvp(custom(lambda _, ct: (ct,)), (1.0,), (1.0,)), UnsupportedError, "a custom_vjp rule has no forward mode"),
    ],
)  # fmt: skip
def test_errors_name_the_line(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=r"test_derivatives.py:\d+: .*" + re.escape(message)):
        call()


def test_none_as_zero_cotangent() -> None:
    f = custom(lambda _, ct: (ct * 7, None), lambda x, y: x * y)
    assert reference(dlc.grad(f, (0, 1)))(2.0, 3.0) == (7, 0)


def test_arguments_that_the_value_does_not_depend_on() -> None:
    def loss(params: Any, scale: Any) -> Any:
        forgotten = params["b"] * 2  # noqa: F841
        return lax.fori_loop(0, 3, lambda _, y: y * params["w"], scale)

    params = {"w": 2.0, "b": X, "c": np.float32(1)}
    assert dlc.grad(loss, unused="zeros")(params, 1.0)["c"] == 0
    with pytest.raises(DlcError, match=r"dlc.value_and_grad: the value does not depend on .*'b'\], .*'c'\]; leave it out"):
        dlc.value_and_grad(loss, unused="error")(params, 1.0)
    assert dlc.grad(lambda w: loss({"w": w, "b": X}, 1.0), unused="error")(2.0) == 12
    with pytest.raises(DlcError, match=r"dlc\.grad: unused = 'raise'; expected one of 'zeros', 'error'"):
        dlc.grad(loss, unused="raise")  # pyright: ignore[reportArgumentType]
