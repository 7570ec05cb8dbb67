"""`dlc.shard_map`: functions of shards, their collectives and derivatives, against the global functions. Ranks are threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import P, lax
from dlc.errors import DlcError, DTypeError, ShapeError, UnsupportedError
from dlc.runtime.collectives.threads import run_ranks
from dlc.testing.sample import F32, values

MESH = dlc.make_mesh({"data": 2, "model": 2})
X, W, Y = values(F32, 8, 4), values(F32, 4, 6, seed=1), values(F32, 8, 6, seed=2)
BOTH = ("data", "model")


def run(function: Callable[..., Any], *arguments: Any, mesh: Any = MESH) -> Any:
    """Return the collected results of a function on a mesh, which are equal on all ranks."""
    compiled = dlc.jit(mesh=mesh, target="reference")(function)
    first, *others = run_ranks(mesh, lambda rank: dlc.collect(compiled(*arguments)))
    for other in others:
        for a, b in zip(dlc.tree.leaves(first), dlc.tree.leaves(other), strict=True):
            np.testing.assert_array_equal(a, b)
    return first


def mapped(function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
    return dlc.shard_map(function, in_specs=in_specs, out_specs=out_specs)


# Collectives: the function of a shard of X along `data`, the spec of its result, and the expected global result.
PARTS = [X[:4], X[4:]]
CASES: dict[str, tuple[Callable[[Any], Any], P, Any]] = {
    "psum": (lambda x: lax.psum(x, "data"), P(), X[:4] + X[4:]),
    "psum of both axes": (lambda x: lax.psum(x, BOTH), P(), 2 * (X[:4] + X[4:])),
    "psum of a number": (lambda x: x * lax.psum(1, "data") + lax.axis_size(BOTH), P("data"), 2 * X + 4),
    "psum of bools": (lambda x: lax.psum(x > 0, "data"), P(), (X[:4] > 0).astype(int) + (X[4:] > 0)),
    "psum of a constant": (lambda x: x + lax.psum(np.ones(4, np.float32), "data"), P("data"), X + 2),
    "pmean": (lambda x: lax.pmean({"x": x}, "data")["x"], P(), (X[:4] + X[4:]) / 2),
    "pmean of int8": (lambda x: lax.pmean((x > 0).astype(np.int8) * 100, "data"), P(), 50.0 * (X[:4] > 0) + 50.0 * (X[4:] > 0)),
    "pmax": (lambda x: lax.pmax(x, "data"), P(), np.maximum(X[:4], X[4:])),
    "pmin": (lambda x: lax.pmin(x, "data"), P(), np.minimum(X[:4], X[4:])),
    "all_gather": (lambda x: lax.all_gather(x, "data", axis=1)[None], P("data"), np.stack([np.stack(PARTS, 1)] * 2)),
    "all_gather, tiled": (lambda x: lax.all_gather(x, "data", axis=-1, tiled=True), P("data"), np.tile(np.concatenate(PARTS, 1), (2, 1))),
    "psum_scatter": (lambda x: lax.psum_scatter(x.reshape(2, 2, 4), "data"), P("data"), X[:4] + X[4:]),
    "psum_scatter, tiled": (lambda x: lax.psum_scatter(x, "data", scatter_dimension=1, tiled=True), P(None, "data"), X[:4] + X[4:]),
    "all_to_all": (
        lambda x: lax.all_to_all(x.reshape(4, 2, 2), "data", 1, 0), P(None, "data"),
        np.concatenate([np.stack([p.reshape(4, 2, 2)[:, k] for p in PARTS]) for k in range(2)], 1),
    ),
    "all_to_all, tiled": (lambda x: lax.all_to_all(x, "data", 1, 0, tiled=True), P(None, "data"), X),
    "all_to_all along one axis": (
        lambda x: lax.all_to_all(x, "data", 0, 0, tiled=True), P("data"), np.concatenate([X[:2], X[4:6], X[2:4], X[6:]])
    ),
    "ppermute": (lambda x: lax.ppermute(x, "data", [(0, 1)]), P("data"), np.concatenate([0 * X[:4], X[:4]])),
    "ppermute of a scalar": (
        lambda x: lax.ppermute(dnp.sum(x), "data", [(0, 1)])[None], P("data"), np.array([0, X[:4].sum()], F32)
    ),
    "ring": (lambda x: lax.ppermute(x, "data", [(0, 1), (1, 0)]), P("data"), np.concatenate([X[4:], X[:4]])),
    "axis_index": (lambda x: x + lax.axis_index("data"), P("data"), X + np.repeat([0, 1], 4)[:, None].astype(F32)),
    "axis_index of both axes": (
        lambda x: x[:1, 0] + 10 * lax.axis_index(BOTH), P(BOTH), X[[0, 0, 4, 4], 0] + np.array([0, 10, 20, 30], F32)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_collectives(name: str) -> None:
    function, spec, expected = CASES[name]
    got = run(mapped(function, P("data"), spec), X)
    assert got.dtype == np.asarray(expected).dtype
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("name", [n for n in CASES if "bools" not in n and "int8" not in n])
def test_derivatives_of_collectives(name: str) -> None:
    """The Jacobian of a collective, by reverse mode, forward mode, and a batch, equals that by differences: it is linear."""
    function, spec, expected = CASES[name]
    on_shards = mapped(function, P("data"), spec)
    seed = values(F32, *np.shape(expected), seed=5)

    def derivatives(x: Any, dx: Any) -> Any:
        y, dy = dlc.jvp(on_shards, (x,), (dx,))
        (gradient,) = dlc.vjp(on_shards, x)[1](seed)
        batched = dlc.vmap(dlc.grad(lambda x: dnp.sum(on_shards(x) * seed)), in_axes=2)(dnp.stack([x, x + dx], 2))
        return dy, gradient, batched, y, on_shards(x + 1e-3 * dx)

    direction = values(F32, *X.shape, seed=6)
    dy, gradient, batched, y, moved = run(derivatives, X, direction)
    np.testing.assert_allclose(dy, (moved - y) / 1e-3, atol=2e-2)
    np.testing.assert_allclose(np.sum(gradient * direction), np.sum(seed * dy), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(batched[0], gradient, rtol=1e-5, atol=1e-6)
    assert batched.shape == (2, *X.shape)


def mlp(x: Any, w: Any) -> Any:
    """Split the features of both products, as Megatron does; `Y` is captured."""
    hidden = dnp.tanh(x @ w)
    return lax.psum(hidden @ (w.T * 0.5), "model")


def test_a_tensor_parallel_block_and_its_gradients() -> None:
    """One all_reduce forward and one backward, and one for the gradients of the parameters."""
    block = mapped(mlp, (P("data"), P(None, "model")), P("data"))

    def step(x: Any, w: Any) -> Any:
        return dlc.value_and_grad(lambda x, w: dnp.mean(block(x, w) ** 2), argnums=(0, 1))(x, w)

    def reference(x: Any, w: Any) -> Any:
        return dlc.value_and_grad(lambda x, w: dnp.mean((dnp.tanh(x @ w) @ (w.T * 0.5)) ** 2), argnums=(0, 1))(x, w)

    for got, expected in zip(dlc.tree.leaves(run(step, X, W)), dlc.tree.leaves(dlc.jit(reference)(X, W)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-7)
    text = dlc.jit(mesh=MESH)(step).lower(X, W).as_text("sharding")
    assert "// x: P('data', None)\n// w: P(None, 'model')" in text
    assert text.count("= dl.all_reduce") == 3 and "dl.all_gather" not in text
    # Ranks compute different products; only the loss is computed by both ranks along `model`.
    line = mlp.__code__.co_firstlineno + 2
    assert f"// redundant at test_shard_map.py:{line}:" not in text


def test_gradients_inside_of_a_function_of_shards() -> None:
    """The gradient of replicated parameters is summed over the ranks, as in jax.shard_map."""

    def train(w: Any, x: Any, y: Any) -> Any:
        loss, gradient = dlc.value_and_grad(lambda w: lax.pmean(dnp.mean((x @ w - y) ** 2), "data"))(w)
        return loss, w - 0.1 * gradient

    loss, w = run(mapped(train, (P(), P("data"), P("data")), P()), W, X, Y)
    np.testing.assert_allclose(loss, np.mean((X @ W - Y) ** 2), rtol=1e-5)
    np.testing.assert_allclose(w, W - 0.1 * 2 / Y.size * X.T @ (X @ W - Y), rtol=1e-4, atol=1e-6)


def test_values_that_vary_already() -> None:
    """The gradient of a shard is that of its rank, also if the function declares again that the shard varies."""
    product = mapped(lambda x: lax.psum(lax.pvary(x, "data") ** 2, "data"), (P("data"),), P())
    np.testing.assert_allclose(run(dlc.grad(lambda x: dnp.sum(product(x))), X), 2 * X, rtol=1e-6)


def test_loops_and_branches_of_shards() -> None:
    """Rotate shards around a ring, with a captured parameter; derivatives through the loop equal those of the product."""

    def ring(x: Any, scale: Any) -> Any:
        count = lax.axis_size("data")

        def step(carry: Any, _: Any) -> Any:
            total, block = carry
            total = total + scale * lax.cond(lax.axis_index("data") > 0, lambda b: b**2, lambda b: b * b, block)
            return (total, lax.ppermute(block, "data", [(k, (k + 1) % count) for k in range(count)])), None

        return lax.scan(step, (dnp.zeros_like(x), x), None, length=count)[0][0]

    def gradients(x: Any, scale: Any) -> Any:
        def loss(x: Any, scale: Any) -> Any:
            local = mapped(lambda x: ring(x, 2 * scale), P("data"), P("data"))
            return dnp.sum(dnp.sin(local(x)))

        return dlc.value_and_grad(loss, argnums=(0, 1))(x, scale)

    def reference(x: Any, scale: Any) -> Any:
        return dlc.value_and_grad(
            lambda x, s: 2 * dnp.sum(dnp.sin(2 * s * (x[:4] ** 2 + x[4:] ** 2))), argnums=(0, 1)
        )(x, scale)  # fmt: skip

    expected = dlc.jit(reference)(X, np.float32(0.3))
    for a, b in zip(dlc.tree.leaves(run(gradients, X, np.float32(0.3))), dlc.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_branches_that_differ_between_ranks() -> None:
    """A captured parameter is read in one branch: its gradient is summed by all ranks, after the branch."""

    def loss(scale: Any, x: Any) -> Any:
        def body(scale: Any, x: Any) -> Any:
            y = lax.cond(dnp.sum(x) > 0, lambda: dnp.sin(scale) * x, lambda: x)
            return lax.psum(dnp.sum(y**2), "data")

        return mapped(body, (P(), P("data")), P())(scale, x)

    x = np.concatenate([np.abs(X[:4]), -np.abs(X[4:])])
    got = run(dlc.grad(loss), np.float32(0.4), x)
    np.testing.assert_allclose(got, 2 * np.sin(0.4) * np.cos(0.4) * np.sum(x[:4] ** 2), rtol=1e-5)


def test_second_derivatives() -> None:
    def loss(w: Any, x: Any) -> Any:
        return dnp.sum(mapped(lambda w, x: lax.psum(dnp.tanh(x @ w), "data"), (P(), P("data")), P())(w, x) ** 2)

    def plain(w: Any, x: Any) -> Any:
        y = dnp.tanh(x @ w)
        return dnp.sum((y[:4] + y[4:]) ** 2)

    def product(function: Any) -> Any:
        return lambda w, x, v: dlc.grad(lambda w: dnp.sum(dlc.grad(function)(w, x) * v))(w)

    v = values(F32, *W.shape, seed=9)
    np.testing.assert_allclose(run(product(loss), W, X, v), dlc.jit(product(plain))(W, X, v), rtol=1e-3, atol=1e-3)


def test_custom_rules_and_checkpoints_of_shards() -> None:
    @dlc.custom_vjp
    def scaled(w: Any, x: Any) -> Any:
        return w * x

    scaled.defvjp(lambda w, x: (w * x, (w, x)), lambda saved, c: (dnp.sum(c * saved[1], 0), c * saved[0]))

    def loss(w: Any, x: Any) -> Any:
        function = dlc.checkpoint(lambda w, x: lax.pmean(dnp.sum(dnp.sin(scaled(w, x)), 0), "data"))
        return dnp.sum(mapped(function, (P(), P("data")), P())(w, x))

    w = values(F32, 4, seed=3)
    got = run(dlc.grad(loss), w, X)
    np.testing.assert_allclose(got, (np.cos(w * X) * X).sum(0) / 2, rtol=1e-5)


def test_native_programs_and_calls_outside_of_jit() -> None:
    function = dlc.shard_map(lambda x: lax.psum(dnp.sum(x**2), "data"), in_specs=P("data"), out_specs=P(), mesh=MESH)
    for result in run_ranks(MESH, lambda rank: function(X)):
        np.testing.assert_allclose(result, np.sum(X**2), rtol=1e-5)


def test_errors() -> None:
    rows = P("data")

    def lower(function: Callable[..., Any], in_specs: Any = rows, out_specs: Any = rows, **options: Any) -> Any:
        compiled = dlc.shard_map(function, in_specs=in_specs, out_specs=out_specs, **options)
        return dlc.jit(mesh=MESH)(compiled).lower(X)

    cases: list[tuple[Callable[[], Any], type[DlcError], str]] = [
        (lambda: lower(lambda x: x, out_specs=P()), ShapeError, r"test_shard_map\.py:\d+: .*varies along 'data', but its spec P\(None, None\)"),
        (lambda: lower(lambda x: x, P(None, "rows")), ShapeError, "in_specs: 'rows' is not an axis of the mesh data=2,model=2"),
        (lambda: lower(lambda x: x, P(None, None, "data")), ShapeError, "has 3 entries"),
        (lambda: lower(lambda x: x, P(P.UNCONSTRAINED)), DTypeError, "has P.UNCONSTRAINED; expected mesh axes or None"),
        (lambda: lower(lambda x: x, (P(), P())), DTypeError, "in_specs is a tuple of 2, but annotates a tuple of 1"),
        (lambda: lower(lambda x: lax.psum(x, "rows")), DTypeError, r"dlc\.lax\.psum: 'rows' is not an axis"),
        (lambda: lower(lambda x: dlc.shard(x, P("data"))), DlcError, r"dlc\.shard: called inside"),
        (lambda: lower(lambda x: mapped(lambda x: x, P(), P())(x)), DlcError, r"dlc\.shard_map: called inside"),
        (lambda: lower(lambda x: lax.psum_scatter(x, "data")), ShapeError, "scatter_dimension 0 has size 4; expected 2, or tiled=True"),
        (lambda: lower(lambda x: lax.all_gather(x, "data", axis=3)), ShapeError, "axis 3 for an array of rank 3"),
        (lambda: lower(lambda x: lax.ppermute(x, "data", [(0, 2)])), ShapeError, r"dl\.permute: pairs"),
        (lambda: lower(lambda x: x, mesh=dlc.make_mesh({"data": 4})), ShapeError, "its mesh is data=4, the function runs on data=2,model=2"),
        (lambda: dlc.jit(mapped(lambda x: x, P(), P())).lower(X), DlcError, "no mesh; pass mesh="),
        (lambda: dlc.jit(lambda x: lax.psum(x, "data")).lower(X), DlcError, r"dlc\.lax\.psum: called outside"),
    ]  # fmt: skip
    for call, error, message in cases:
        with pytest.raises(error, match=message):
            call()


def test_data_dependent_sizes() -> None:
    """A rank whose memory does not suffice repeats the call, with its collectives: all ranks must do so."""
    x = values(F32, 4, 3)

    def shards(selected: Callable[[Any], Any]) -> Any:
        def total(x: Any) -> Any:
            selection = selected(x)
            return lax.psum(dnp.sum(selection[selection > 0]), "data")

        return dlc.shard_map(total, in_specs=P("data"), out_specs=P())

    expected = (2 * x[:2] + 2 * x[2:])[x[:2] + x[2:] > 0].sum()
    got = run(shards(lambda x: lax.psum(x, "data")), x, mesh=dlc.make_mesh({"data": 2}))
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    with pytest.raises(
        UnsupportedError, match=r"test_shard_map.py:\d+: dl.nonzero: the size of its result varies along 'data'"
    ):
        run(shards(lambda x: x), x, mesh=dlc.make_mesh({"data": 2}))
