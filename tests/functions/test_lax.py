"""`dlc.lax`: loops and conditionals on traced values, against NumPy, and their errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.errors import DlcError, DTypeError, ShapeError, UnsupportedError
from dlc.runtime.opencl.devices import all_devices
from tests.fuzz import control
from tests.fuzz.trials import Trial

draw = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)


def check(function: Callable[..., Any], expected: Any, *arguments: Any, rtol: float = 1e-5) -> None:
    """Assert the result of a function on plain arrays, traced on the reference backend, and compiled."""
    runs = [function(*arguments), *(dlc.jit(target=t, cache=False)(function)(*arguments) for t in ("reference", "cpu"))]
    for got in runs:
        leaves, wanted = dlc.tree.leaves(got), dlc.tree.leaves(expected)
        assert dlc.tree.flatten(got)[1] == dlc.tree.flatten(expected)[1]
        for a, b in zip(leaves, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6)
            assert np.asarray(a).dtype == np.asarray(b).dtype and np.shape(a) == np.shape(b)


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class State:
    mean: Any
    count: Any


# Branches


@pytest.mark.parametrize("sign", [1, -1])
def test_one_branch_of_two(sign: int) -> None:
    x = np.abs(normal(4)) * np.float32(sign)
    check(lambda x: lax.cond(x.sum() > 0, lambda v: v + 1, lambda v: v * 2, x), x + 1 if sign > 0 else x * 2, x)
    # A closure, and a number as condition, which is true if nonzero.
    check(lambda x: lax.cond(x[0] * 0, lambda: x, lambda: -x), -x, x)


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 3, 4, 9])
def test_one_branch_of_many(index: int) -> None:
    x, w = normal(3), normal(3, 3)
    branches = [lambda v: v, lambda v: v * 2, lambda v: v @ w, lambda v: v - 1, lambda v: dnp.flip(v)]
    expected = [x, x * 2, x @ w, x - 1, x[::-1]][min(max(index, 0), 4)]
    check(lambda i, x: lax.switch(i, branches, x), expected, np.int32(index), x)
    check(lambda i, x: lax.switch(i, branches[:1], x), x, np.int32(index), x)


def test_branches_give_trees_whose_dicts_match_by_key() -> None:
    x = normal(3)

    def function(x: Any) -> Any:
        return lax.cond(
            x[0] > 100,
            lambda: {"a": Pair(x, 1.0), "b": [None, State(x, 2)]},
            lambda: {"b": [None, State(2 * x, x[0].astype(np.int32))], "a": Pair(-x, x[1])},
        )

    expected = {"a": Pair(-x, x[1]), "b": [None, State(2 * x, x[0].astype(np.int32))]}
    check(function, expected, x)


def test_numbers_from_branches_take_the_dtype_of_arrays() -> None:
    traced = dlc.jit(lambda x: lax.cond(x[0] > 0, lambda: (x[0], 1, 1), lambda: (0, 2.5, 2)), target="reference")
    assert [r.dtype for r in traced(np.float32([1]))] == [np.float32, np.float64, np.int64]
    # The result stays weakly typed: it takes the dtype of the array operand.
    assert dlc.jit(lambda x: lax.cond(x[0] > 0, lambda: 1, lambda: 2.5) * x, target="reference")(normal(2)).dtype == np.float32


def test_static_condition_is_evaluated_during_tracing() -> None:
    x = normal(3)
    check(lambda x: lax.cond(True, lambda: x, lambda: None), x, x)
    check(lambda x: lax.switch(7, [lambda: None, lambda: x]), x, x)
    assert "dl.if" not in dlc.jit(lambda x: lax.cond(np.bool_(False), lambda: 1, lambda: x)).lower(x).as_text()


def test_branches_without_results() -> None:
    check(lambda x: lax.cond(x[0] > 0, lambda: None, lambda: None), None, normal(2))


# Loops


def test_while_loop() -> None:
    def newton(a: Any) -> Any:
        def far(s: Any) -> Any:
            return dnp.abs(s["x"] * s["x"] - a) > 1e-3 * a

        return lax.while_loop(far, lambda s: {"x": (s["x"] + a / s["x"]) / 2, "steps": s["steps"] + 1}, {"steps": 0, "x": a})

    for a in (2.0, 1.0, 300.0):
        x, steps = np.float32(a), 0
        while abs(x * x - np.float32(a)) > 1e-3 * a:
            x, steps = (x + np.float32(a) / x) / 2, steps + 1
        check(newton, {"x": x, "steps": steps}, np.float32(a))


@pytest.mark.parametrize(("lower", "upper"), [(0, 5), (-2, 3), (3, 3), (4, 1)])
@pytest.mark.parametrize("known", [True, False])
def test_fori_loop(lower: int, upper: int, known: bool) -> None:
    x = normal(6)
    expected, at = x.copy(), np.zeros(6, np.float32)
    for i in range(lower, upper):
        expected, at[i] = expected * 2 + i, x[i] * i

    def function(x: Any, lower: Any, upper: Any) -> Any:
        def step(i: Any, s: Any) -> Any:
            number = dnp.asarray(i, np.float32)
            return s[0] * 2 + number, dnp.at(s[1])[i].set(x[i] * number)

        return lax.fori_loop(lower, upper, step, (x, dnp.zeros(6)))

    if known:
        check(lambda x: function(x, lower, upper), (expected, at), x)
    else:
        check(function, (expected, at), x, np.int32(lower), np.int64(upper))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("unroll", [1, True])
def test_scan(reverse: bool, unroll: Any) -> None:
    xs = {"a": normal(5, 3), "b": np.arange(5)}
    w = normal(3, 3)

    def step(state: Any, x: Any) -> Any:
        h = dnp.tanh(state["h"] @ w + x["a"])
        return {"n": state["n"] + x["b"], "h": h}, (h * 2, None, x["b"])

    h, n, made = np.zeros(3, np.float32), 0, np.zeros((5, 3), np.float32)
    for k in range(5)[:: -1 if reverse else 1]:
        h, n = np.tanh(h @ w + xs["a"][k]), n + xs["b"][k]
        made[k] = h * 2

    def function(xs: Any) -> Any:
        return lax.scan(step, {"h": dnp.zeros(3), "n": 0}, xs, reverse=reverse, unroll=unroll)

    check(function, ({"h": h, "n": n}, (made, None, xs["b"])), xs)


def test_scan_with_length_only() -> None:
    powers = np.array([1, 2, 4, 8], np.float32)
    check(lambda x: lax.scan(lambda c, _: (c + c, c), x, length=4), (np.float32(16), powers), np.float32(1))


def test_map() -> None:
    x, y = normal(4, 3), normal(4)
    check(lambda x, y: lax.map(lambda p: Pair(p[0] * p[1], p[1] > 0), (x, y)), Pair(x * y[:, None], y > 0), x, y)


def test_no_steps() -> None:
    x = normal(0, 3)
    expected = (np.float32(1), {"y": np.zeros((0, 2), np.float32)})
    check(lambda x: lax.scan(lambda c, r: (c + r[0], {"y": r[:2] * c}), np.float32(1), x), expected, x)
    check(lambda x: lax.map(lambda r: r.sum(), x), np.zeros(0, np.float32), x)
    check(lambda x: lax.while_loop(lambda s: s[0] < 0, lambda s: (s[0] - 1, s[1] * 2), (1, x)), (1, x), x)


def test_swapped_and_unchanged_carries() -> None:
    x, y = normal(3), normal(3)
    check(lambda x, y: lax.fori_loop(0, 5, lambda i, s: (s[1], s[0], s[2]), (x, y, x)), (y, x, x), x, y)
    constant = normal(2)
    expected = (x, (np.stack([constant] * 3), np.stack([y] * 3)))
    check(lambda x, y: lax.scan(lambda c, _: (c, (constant, y)), x, length=3), expected, x, y)


def test_weak_carries_take_the_dtype_of_steps() -> None:
    x = np.arange(4, dtype=np.float32)
    # Weak types settle one after the other: the second becomes strong once the first is.
    check(lambda x: lax.fori_loop(0, 2, lambda i, s: (s[1], s[0] + x[1]), (0, 0)), (np.float32(1), np.float32(1)), x)
    check(lambda x: lax.fori_loop(0, 3, lambda i, c: c + x[i], 0), np.float32(3), x)
    check(lambda x: lax.fori_loop(0, 3, lambda i, c: c & (x[i] < 2), True), np.bool_(False), x)
    # A carry that stays weakly typed in each step is weakly typed after the loop, and so is the counter.
    check(lambda x: lax.fori_loop(0, 3, lambda i, c: c + 0.5, 0) * x, 1.5 * x, x)
    check(lambda x: lax.fori_loop(0, 3, lambda i, c: c + i * x, x), x + 3 * x, x)


def test_loops_in_branches_in_loops() -> None:
    x = normal(5)

    def function(x: Any) -> Any:
        def row(i: Any, total: Any) -> Any:
            small = lax.while_loop(lambda v: dnp.abs(v) > 0.1, lambda v: v / dnp.asarray(2 + i, np.float32), x[i])
            return lax.cond(
                small > 0, lambda: total + small + lax.fori_loop(0, i, lambda j, s: s + x[j], 0.0), lambda: total - 1
            )

        return lax.scan(lambda c, n: (lax.fori_loop(0, n, row, c), c), np.float32(0), np.arange(4))

    total, made = np.float32(0), []
    for n in range(4):
        made.append(total)
        for i in range(n):
            v = x[i]
            while abs(v) > 0.1:
                v = v / (2 + i)
            total = total + v + x[:i].sum() if v > 0 else total - 1
    check(function, (np.float32(total), np.float32(made)), x)


def test_weights_and_compiled_functions_in_bodies() -> None:
    w, x = normal(4, 4), normal(4)
    inner = dlc.jit(lambda v, b: dnp.tanh(v @ w + b))

    def function(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, v: inner(v, np.ones(4, np.float32)) + lax.map(lambda r: r.sum(), w), x)

    v = x
    for _ in range(3):
        v = np.tanh(v @ w + 1) + w.sum(1)
    check(function, v, x)
    text = str(dlc.jit(function).lower(x).program.module)
    assert text.count("dl.weight") == 2 and text.index("dl.weight") < text.index("dl.scan")


# Random programs


@pytest.mark.parametrize(("targets", "count"), [(("plain", "reference"), 40), (("cpu", "dynamic"), 6)])
def test_random_programs(targets: tuple[str, ...], count: int) -> None:
    # Compilation is slow: more programs run on one of both targets each.
    chosen = [Trial("control", n, targets if n < count else (targets[n % 2],)) for n in range(max(count, 20))]
    assert not [f"{trial}\n{wrong}" for trial, _, wrong in control.fuzz(chosen, 1) if wrong is not None]


@pytest.mark.skipif(not all_devices(), reason="no OpenCL device")
@pytest.mark.parametrize("target", control.DEVICES)
def test_random_programs_on_a_device(target: str) -> None:
    assert not [f"{trial}\n{wrong}" for trial in control.trials(0, 3, target) if (wrong := control.run(trial)[1]) is not None]


# Errors

X = np.arange(4, dtype=np.float32)
LEAKED: list[Any] = []

DIFFERENT: dict[str, tuple[Callable[[Any], Any], type[DlcError], str]] = {
    "results": (
        lambda x: lax.cond(x[0] > 0, lambda: {"a": x, "b": (x, 1)}, lambda: {"b": (x[:2], 1.5), "a": x.astype(int)}),
        ShapeError,
        r"lax\.cond: result\['a'\] of true_fun is float32\[4\], result\['a'\] of false_fun is int64\[4\]; "
        r"result\['b'\]\[0\] of true_fun is float32\[4\], result\['b'\]\[0\] of false_fun is float32\[2\]; expected the same",
    ),
    "structure": (
        lambda x: lax.cond(x[0] > 0, lambda: {"a": x, "b": (x, x)}, lambda: {"a": x, "b": [x, x]}),
        ShapeError,
        r"result\['b'\] of true_fun is a tuple of 2, result\['b'\] of false_fun is a list of 2",
    ),
    "keys": (
        lambda x: lax.cond(x[0] > 0, lambda: {"a": x}, lambda: {"a": x, "b": x}),
        ShapeError,
        r"result of true_fun is a dict of 'a', result of false_fun is a dict of 'a', 'b'",
    ),
    "branches": (
        lambda x: lax.switch(x[0].astype(int), [lambda: x, lambda: x, lambda: x > 0]),
        DTypeError,
        r"lax\.switch: result of branches\[0\] is float32\[4\], result of branches\[2\] is bool\[4\]; .*\.astype",
    ),
    "branches beside a number": (
        lambda x: lax.switch(x[0].astype(int), [lambda: 1, lambda: x[0], lambda: x[0].astype(int)]),
        DTypeError,
        r"result of branches\[1\] is float32\[\], result of branches\[2\] is int64\[\]",
    ),
    "a number": (
        lambda x: lax.cond(x[0] > 0, lambda: x[0].astype(int), lambda: 0.5),
        DTypeError,
        r"true_fun is int64\[\], result of false_fun is float64\[\] \(a number\)",
    ),
    "text": (lambda x: lax.cond(x[0] > 0, lambda: {"a": "x"}, lambda: x), DTypeError, r"result\['a'\] of true_fun is a str"),
    "carry": (
        lambda x: lax.scan(lambda c, _: ({"h": c["h"][:2]}, None), {"h": x}, x),
        ShapeError,
        r"lax\.scan: init\['h'\] is float32\[4\], carry\['h'\] from f is float32\[2\]",
    ),
    "carry's dtype": (
        lambda x: lax.fori_loop(0, 3, lambda i, c: c + np.float64(1), x),
        DTypeError,
        r"lax\.fori_loop: init_val is float32\[4\], value from body_fun is float64\[4\]; .*\.astype",
    ),
    "carry's structure": (
        lambda x: lax.while_loop(lambda c: c[0] > 0, lambda c: (c, c), x),
        ShapeError,
        "lax.while_loop: init_val is an array or number, value from body_fun is a tuple of 2",
    ),
    "a number that becomes an array": (
        lambda x: lax.fori_loop(0, 3, lambda i, c: c + x, 0.0),
        ShapeError,
        r"init_val is float64\[\] \(a number\), value from body_fun is float32\[4\]",
    ),
    "no pair": (lambda x: lax.scan(lambda c, t: c + t, 0.0, x), DlcError, "f returned an array or number; expected a pair"),
    "lengths": (lambda x: lax.scan(lambda c, t: (c, c), 0.0, {"a": x, "b": x[:3]}), ShapeError, r"xs\['a'\]: 4, xs\['b'\]: 3"),
    "length": (lambda x: lax.scan(lambda c, t: (c, c), 0.0, x, length=3), ShapeError, "length: 3, xs: 4"),
    "no length": (lambda x: lax.scan(lambda c, t: (c, c), 0.0), ShapeError, "neither arrays in xs nor a length"),
    "no axis": (lambda x: lax.map(lambda t: t, (x, x[0])), ShapeError, r"lax\.map: xs\[1\] has no axes"),
    "unroll": (lambda x: lax.scan(lambda c, t: (c, c), 0.0, x, unroll=3), UnsupportedError, "unroll=3; expected 1.*True"),
    "condition": (lambda x: lax.while_loop(lambda c: c > 0, lambda c: c, x), ShapeError, r"cond_fun returned bool\[4\]"),
    "number as condition": (lambda x: lax.while_loop(lambda c: c, lambda c: c, x[0]), DTypeError, "the result of a comparison"),
    "pred": (lambda x: lax.cond(x > 0, lambda: x, lambda: x), ShapeError, r"pred has shape \(4,\)"),
    "index": (lambda x: lax.switch(x[0], [lambda: x]), DTypeError, "index is of dtype float32; expected an integer"),
    "no branches": (lambda x: lax.switch(x[0].astype(int), []), ShapeError, "no branches"),
    "bound": (
        lambda x: lax.fori_loop(0, x[0], lambda i, c: c, x),
        DTypeError,
        "upper is of dtype float32; expected an integer",
    ),
    "bounds": (lambda x: lax.fori_loop(x.astype(int), 3, lambda i, c: c, x), ShapeError, r"lower has shape \(4,\)"),
    "inside": (lambda x: lax.fori_loop(0, 3, lambda i, c: c @ np.ones((3, 3)), x), ShapeError, "matmul"),
    "leak": (
        lambda x: (lax.fori_loop(0, 3, lambda i, c: (LEAKED.append(c), c)[1], x), LEAKED[-1] + 1),
        DlcError,
        "of the body of a loop, a branch or a transformed function is used outside of that body; make it part of what the body returns",
    ),
    "leak of a branch": (
        lambda x: lax.cond(x[0] > 0, lambda: (LEAKED.append(x + 1), x)[1], lambda: LEAKED[-1]),
        DlcError,
        "used outside of that body",
    ),
    "if": (lambda x: x if x[0] > 0 else -x, DTypeError, r"dlc\.lax\.cond for if, dlc\.lax\.while_loop for while.*numpy\.where"),
    "range": (lambda x: range(x[0].astype(int)), DTypeError, r"dlc\.lax\.fori_loop for a loop"),
    "for": (lambda x: list(x[0]), ShapeError, r"dlc\.lax\.fori_loop"),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_errors_name_differing_leaves(case: str) -> None:
    function, kind, message = DIFFERENT[case]
    with pytest.raises(kind, match=message) as caught:
        dlc.jit(target="reference")(function)(X)
    first = inspect.getsourcelines(function)[1]
    assert str(caught.value).startswith(tuple(f"test_lax.py:{first + k}: " for k in range(3))), caught.value


@pytest.mark.parametrize("case", ["no pair", "lengths", "no length", "condition", "pred", "index", "bound"])
def test_errors_of_plain_arrays(case: str) -> None:
    function, kind, message = DIFFERENT[case]
    with pytest.raises(kind, match=message):
        function(X)


def test_leaked_tracer() -> None:
    kept: list[Any] = []
    dlc.jit(lambda x: kept.append(x[0]) or x, target="reference")(X)
    with pytest.raises(DlcError, match="used outside of the call"):
        lax.cond(kept[0], lambda: 1, lambda: 2)
    with pytest.raises(DlcError, match="used outside of the call"):
        bool(kept[0])


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_a_body_that_fails_leaves_nothing_behind(target: str) -> None:
    @dlc.jit(target=target, cache=False)
    def function(x: Any) -> Any:
        for attempt in (
            lambda: lax.fori_loop(0, 3, lambda i, c: dnp.exp(x) @ np.ones((3, 3)), x),
            lambda: lax.cond(x[0] > 0, lambda: dnp.exp(x), lambda: dnp.exp(x)[:2]),
        ):
            with pytest.raises(ShapeError):
                attempt()
        return x + 1

    np.testing.assert_array_equal(function(X), X + 1)
    assert "exp" not in function.lower(X).as_text()


# Trees


def test_trees() -> None:
    tree = {"b": [1, None, Pair(2, 3)], "a": State(4, ())}
    assert dlc.tree.leaves(tree) == [4, 1, 2, 3]
    leaves, shape = dlc.tree.flatten(tree)
    assert dlc.tree.unflatten(shape, [10 * x for x in leaves]) == {"a": State(40, ()), "b": [10, None, Pair(20, 30)]}
    assert dlc.tree.map(lambda x, y: x - y, tree, dict(reversed(tree.items()))) == {
        "b": [0, None, Pair(0, 0)],
        "a": State(0, ()),
    }
    assert dlc.tree.flatten({10: 1, 9: 2, "x": 3}) == dlc.tree.flatten({"x": 3, 9: 2, 10: 1})
    with pytest.raises(ShapeError, match=r"tree\['b'\]\[1\] is None, rest\[0\]\['b'\]\[1\] is an array or number"):
        dlc.tree.map(max, tree, tree | {"b": [1, 2, Pair(2, 3)]})
    with pytest.raises(ShapeError, match="2 leaves for a tree with 4"):
        dlc.tree.unflatten(shape, [1, 2])
