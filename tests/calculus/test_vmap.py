"""`dlc.vmap`: pytree arguments and results, in traced functions and on its own, and errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of
from dlc.errors import DTypeError, ShapeError
from dlc.ir import Context
from dlc.passes.transformations.expand_transformations import ExpandTransformationsPass


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile the function as part of another one."""
    return dlc.jit(lambda *args: function(*args))


@pytest.mark.parametrize("call", [lambda f: f, traced, dlc.jit], ids=["by_itself", "traced", "jit"])
def test_rows_times_a_matrix(call: Callable[..., Any]) -> None:
    x, w = floats(5, 3), floats(3, 4)
    y = call(dlc.vmap(lambda row, w: dnp.tanh(row @ w), in_axes=(0, None)))(x, w)
    np.testing.assert_allclose(y, np.tanh(x @ w), rtol=1e-5, atol=1e-6)


def test_axes_of_arguments_and_results() -> None:
    x, y = floats(3, 5), floats(5, 2)
    both = dlc.vmap(lambda a, b: (a, a.sum() * b), in_axes=(-1, 0), out_axes=(0, -1))(x, y)
    np.testing.assert_array_equal(both[0], x.T)
    np.testing.assert_allclose(both[1], (x.sum(0)[:, None] * y).T, rtol=1e-6)


@dataclass
class Layer:
    w: Any
    b: Any


def test_trees_and_prefixes_of_them() -> None:
    layer, x = Layer(floats(4, 3, 2), floats(2)), {"x": floats(4, 3), "scale": 2.0}

    def apply(layer: Layer, given: dict[str, Any]) -> dict[str, Any]:
        y = given["x"] @ layer.w + layer.b
        return {"y": y * given["scale"], "norm": (y * y).sum()}

    out = dlc.vmap(apply, in_axes=(Layer(0, None), {"scale": None, "x": 0}), out_axes={"y": 1, "norm": 0})(layer, x)
    y = np.einsum("lk,lkn->ln", x["x"], layer.w) + layer.b
    np.testing.assert_allclose(out["y"], 2 * y.T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(out["norm"], (y * y).sum(1), rtol=1e-5)


def test_keyword_arguments_are_batched_along_axis_0() -> None:
    x, y = floats(4), floats(4)
    np.testing.assert_array_equal(dlc.vmap(lambda x, *, y: x + y)(x, y=y), x + y)


def test_unbatched_static_arguments() -> None:
    x = floats(4, 3)
    scaled = dlc.vmap(lambda x, how: x * 2 if how == "twice" else x, in_axes=(0, None))
    np.testing.assert_array_equal(scaled(x, "twice"), 2 * x)
    np.testing.assert_array_equal(traced(lambda x: scaled(x, "once"))(x), x)


def test_nested_vmap_and_closures() -> None:
    x, y, z = floats(3), floats(4), floats(4)

    @dlc.jit
    def pairs(x: Any, y: Any, z: Any) -> Any:
        return dlc.vmap(lambda a: dlc.vmap(lambda b, c: a * b + c + z.sum())(y, z))(x)

    np.testing.assert_allclose(pairs(x, y, z), x[:, None] * y + z + z.sum(), rtol=1e-5, atol=1e-6)


def test_unbatched_results() -> None:
    same, repeated = dlc.vmap(lambda x, y: (y + 1, y), in_axes=(0, None), out_axes=(None, 0))(floats(3), floats(2))
    np.testing.assert_array_equal(same, floats(2) + 1)
    np.testing.assert_array_equal(repeated, np.stack([floats(2)] * 3))


def test_weak_types_are_preserved() -> None:
    """The weak type of an unbatched argument is preserved: half precision is not promoted to single."""
    x = floats(3).astype(np.float16)
    assert dlc.vmap(lambda x, s: x * s, in_axes=(0, None))(x, 2.0).dtype == np.float16
    assert traced(lambda x: dlc.vmap(lambda x: x * 2.5)(x))(x).dtype == np.float16


@pytest.mark.parametrize("count", [0, 1])
def test_batch_sizes_0_and_1(count: int) -> None:
    def steps(n: Any, x: Any) -> Any:
        return lax.while_loop(lambda s: s[0] > 0, lambda s: (s[0] - 1, s[1] * 2), (n, x))[1]

    y = dlc.vmap(steps)(np.full(count, 3), floats(count, 2))
    np.testing.assert_array_equal(y, floats(count, 2) * 8)


def test_loops_and_branches() -> None:
    def collatz(n: Any) -> Any:
        def step(state: Any) -> Any:
            n, count = state
            return lax.cond(n % 2 == 0, lambda: n // 2, lambda: 3 * n + 1), count + 1

        return lax.while_loop(lambda state: state[0] != 1, step, (n, 0))[1]

    np.testing.assert_array_equal(dlc.vmap(collatz)(np.arange(1, 12)), [0, 1, 7, 2, 5, 8, 16, 3, 19, 6, 14])

    def recurrence(x: Any) -> Any:
        return lax.scan(lambda h, v: (h * 0.5 + v, h.sum()), dnp.zeros(2, dtype=np.float32), x)

    x = floats(3, 6, 2)
    last, sums = dlc.vmap(recurrence)(x)
    for k in range(3):
        h, expected = np.zeros(2, np.float32), list[np.float32]()
        for v in x[k]:
            expected.append(h.sum())
            h = h * np.float32(0.5) + v
        np.testing.assert_allclose(last[k], h, rtol=1e-5)
        np.testing.assert_allclose(sums[k], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["set", "add"])
def test_finished_elements_of_a_while_loop_keep_their_rows(mode: str) -> None:
    """An update of a row is masked: a select of the whole array would take time for all of its rows."""

    def fill(n: Any, x: Any) -> Any:
        def step(s: Any) -> Any:
            k, x = s
            x = getattr(x.at[(3 * k) % 7], mode)(x[k % 7] + k)
            return k + 1, getattr(x.at[(k + 2) % 7], mode)(-1.5)

        return lax.while_loop(lambda s: s[0] < n, step, (0, x))[1]

    counts, x = np.array([0, 9, 3, 7]), np.random.default_rng(0).standard_normal((4, 7))
    x[0, 0] = -0.0
    batched = dlc.vmap(fill)
    results, single = dlc.jit(batched, cache=False)(counts, x), dlc.jit(fill, cache=False)
    for n, row, result in zip(counts, x, results, strict=True):
        expected = single(n, row)
        np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(np.signbit(result), np.signbit(expected))
    module = dlc.jit(batched, cache=False).lower(counts, x).program.module.clone()
    ExpandTransformationsPass().apply(Context(), module)
    assert not any(isinstance(op, dl.SelectOp) and shape_of(op.results[0]) == (4, 7) for op in module.walk())


def test_unbatched_loop_in_a_batched_branch() -> None:
    """Unbatched values are not batched unnecessarily, and the loop's carry stays unbatched."""

    def counted(x: Any) -> Any:
        def steps() -> Any:
            return lax.scan(lambda h, k: (dnp.at(h)[k].add(k), None), dnp.zeros(4), np.arange(4))[0].sum() * x

        return lax.cond(x > 0, steps, lambda: x)

    np.testing.assert_array_equal(dlc.vmap(counted)(np.array([1.0, -2.0, 3.0])), [6, -2, 18])


def stack_examples(function: Callable[..., Any], *args: np.ndarray) -> np.ndarray:
    """Apply the function to one example after the other."""
    return np.stack([np.asarray(dlc.jit(function)(*lane)) for lane in zip(*args, strict=True)])


def test_batched_indices() -> None:
    def written(x: Any, place: Any) -> Any:
        return dnp.at(x)[place].set(7.0)

    def taken(x: Any, place: Any) -> Any:
        return dnp.take(x, place, axis=1)

    x, places = floats(4, 7, 6), np.array([[1, 0], [-1, 5], [3, 3], [-6, 2]])
    for function in (written, taken):
        np.testing.assert_array_equal(dlc.vmap(function)(x, places), stack_examples(function, x, places))


def test_batched_random_keys() -> None:
    """A key of each example draws the values that it draws unbatched; a key that is closed over draws the same values for
    all.
    """

    def drawn(key: Any) -> Any:
        words, order = dlc.random.split(key)
        return dlc.random.normal(words, (3,)), dlc.random.permutation(order, 7)

    keys = dlc.random.split(dlc.random.key(0), 4)
    for got, expected in zip(dlc.vmap(drawn)(keys), zip(*(drawn(key) for key in keys), strict=True), strict=True):
        np.testing.assert_allclose(got, np.stack(expected), rtol=1e-6)
    same = dlc.vmap(lambda x, key: x + dlc.random.normal(key, (3,)), in_axes=(0, None))(np.zeros((2, 3), np.float32), keys[0])
    np.testing.assert_array_equal(same[0], same[1])


def test_derivatives_and_vmap_compose() -> None:
    """Differentiation and batching compose in any order."""

    def loss(w: Any, x: Any) -> Any:
        return (dnp.tanh(x @ w) ** 2).sum()

    w, x = floats(3, 4), floats(5, 3)
    gradients = np.stack([dlc.grad(loss)(w, row) for row in x])
    np.testing.assert_allclose(dlc.vmap(dlc.grad(loss), in_axes=(None, 0))(w, x), gradients, rtol=1e-5, atol=1e-6)
    total = dlc.grad(lambda w: dlc.vmap(loss, in_axes=(None, 0))(w, x).sum())(w)
    np.testing.assert_allclose(total, gradients.sum(0), rtol=1e-5, atol=1e-6)
    jacobians = dlc.vmap(dlc.jacrev(lambda row: dnp.sin(row @ w)))(x)
    np.testing.assert_allclose(jacobians, np.cos(x @ w)[:, :, None] * w.T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: lax.while_loop(lambda s: dnp.abs(s * s - x[0]) > 1e-5, lambda s: (s + x[0] / s) / 2, x[0]),
        lambda x: lax.scan(lambda h, v: (dnp.tanh(h * 0.5 + v), None), x[0], x)[0],
        lambda x: lax.cond(x.sum() > 5, lambda: dnp.sin(x).sum(), lambda: (x * x).sum()),
        lambda x: dlc.checkpoint(lambda v: dnp.sin(dnp.exp(v)))(x).sum(),
        lambda x: dnp.linalg.norm(x),
    ],
    ids=["while", "scan", "cond", "checkpoint", "rule_of_its_own"],
)
def test_derivatives_of_compound_ops(function: Callable[[Any], Any]) -> None:
    x = np.abs(floats(4, 3)) + 1
    gradients = stack_examples(dlc.grad(function), x)
    np.testing.assert_allclose(dlc.vmap(dlc.grad(function))(x), gradients, rtol=1e-4, atol=1e-5)
    total = dlc.grad(lambda x: dlc.vmap(function)(x).sum())(x)
    np.testing.assert_allclose(total, gradients, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_every_pass_is_checked(target: str) -> None:
    """Also the values that are computed before vmap is expanded."""
    checked = dlc.jit(target=target, check_each_pass=True)(lambda x: dlc.vmap(lambda row: row / row.sum())(x))
    x = np.abs(floats(4, 3))
    np.testing.assert_allclose(checked(x), x / x.sum(1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: dnp.sort(x @ x.T, 1)[:, ::-1],
        lambda x: dnp.take(x, dnp.argmax(x[:, 0]), axis=0),
        lambda x: dnp.at(x)[dnp.argmax(x[:, 0])].add(1.0),
        lambda x: lax.scan(lambda total, row: (total + row, total), dnp.zeros(3), x)[1],
        lambda x: lax.while_loop(lambda x: x.sum() < 9, lambda x: 2 * x + 1, x),
        lambda x: dlc.vmap(dlc.grad(lambda row: dnp.exp(row).sum()))(x),
        lambda x: dnp.linalg.cholesky(x.T @ x + dnp.eye(3)),
    ],
)
def test_symbolic_batch_size(function: Callable[[Any], Any]) -> None:
    """One program serves all batch sizes that its guards allow."""
    compiled = dlc.jit(dlc.vmap(function), dynamic={"x": {0: "n"}})
    for count in (2, 5, 1):
        x = floats(count, 4, 3)
        np.testing.assert_allclose(compiled(x), stack_examples(function, x), rtol=1e-4, atol=1e-5)


def test_convolution_with_batched_weights() -> None:
    x, w = floats(3, 2, 6, 6, 4), floats(3, 3, 3, 4, 5)
    np.testing.assert_allclose(dlc.vmap(dlc.nn.conv)(x, w), stack_examples(dlc.nn.conv, x, w), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: dlc.vmap(dnp.add)(floats(5), floats(3)),
            ShapeError,
            r"sizes of the batch axes differ \(.*: 5 along axis 0, .*: 3 ",
        ),
        (lambda: dlc.vmap(lambda x: x, in_axes=(0, 0))(floats(5)), ShapeError, "in_axes has 2 entries for 1 positional"),
        (lambda: dlc.vmap(lambda x: x, in_axes=2)(floats(5, 3)), ShapeError, r"x has shape \(5, 3\) and no axis 2"),
        (lambda: dlc.vmap(lambda x: x, in_axes=({"a": 0},))(floats(5)), ShapeError, "in_axes has {'a': 0} for an array"),
        (lambda: dlc.vmap(lambda x: x, in_axes=({"a": 0},))({"b": floats(5)}), ShapeError, "for a dict of 'b'; expected"),
        (lambda: dlc.vmap(lambda x: x, in_axes=None)(floats(5)), ShapeError, "no argument is batched"),
        (
            lambda: dlc.vmap(lambda x: x, out_axes=2)(floats(5)),
            ShapeError,
            "out_axes 2 for result, which has 1 axes including the batch axis",
        ),
        (lambda: dlc.vmap(lambda x: x, out_axes=(0, 0))(floats(5)), ShapeError, "out_axes has .* for an array or number"),
        (lambda: dlc.vmap(lambda x: x, out_axes=None)(floats(5)), ShapeError, "output 0 is batched .batch size 5"),
        (
            lambda: dlc.vmap(lambda p: p["x"])({"x": floats(5), "how": "so"}),
            DTypeError,
            r"p\['how'\] is a str.*None in in_axes",
        ),
        (lambda: traced(dlc.vmap(lambda x, y: x + y))(floats(5), 2.0), ShapeError, r"y has shape \(\) and no axis 0"),
    ],
)
def test_errors_name_the_argument_and_the_line(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=r"test_vmap.py:\d+: dlc.vmap: .*" + message):
        call()
