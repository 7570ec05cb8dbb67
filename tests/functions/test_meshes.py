"""Functions on a mesh: `dlc.jit(mesh=)`, sharded arguments and results, annotations, and errors. Ranks are threads."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import P, lax
from dlc.errors import ArgumentError, DlcError, DTypeError, ShapeError, UnsupportedError
from dlc.runtime.collectives.shards import shard_of
from dlc.runtime.collectives.threads import run_ranks
from dlc.runtime.program.host_program import Launch, walk
from dlc.testing.sample import F32, values

X, W, B = values(F32, 8, 6), values(F32, 6, 4, seed=1), values(F32, 4, seed=2)
PARAMETERS = {"w": W, "b": B}


def predict(params: Any, x: Any) -> Any:
    return dnp.tanh(x @ params["w"] + params["b"])


EXPECTED = np.tanh(X @ W + B)


@pytest.mark.parametrize("axes", [{"data": 2, "model": 1}, {"data": 4, "model": 1}, {"data": 2, "model": 2}], ids=str)
def test_a_function_on_a_mesh(axes: dict[str, int]) -> None:
    mesh = dlc.make_mesh(axes)
    shardings = ({"w": P(None, "model"), "b": P("model")}, P("data"))
    compiled = dlc.jit(mesh=mesh, in_shardings=shardings, target="reference")(predict)

    def run(rank: int) -> Any:
        y = compiled(PARAMETERS, X)
        again = compiled(PARAMETERS, x=dlc.distribute(X, P(None, ("data", "model")) if mesh.size == 2 else P("data"), mesh))
        return y, dlc.collect(y), dlc.collect({"again": again})["again"]

    for rank, (y, collected, again) in enumerate(run_ranks(mesh, run)):
        assert isinstance(y, dlc.DistributedArray)
        assert (y.shape, y.dtype, y.spec, y.mesh) == ((8, 4), F32, (("data",), ("model",)), mesh)
        assert y.shard.shape == (8 // axes["data"], 4 // axes["model"])
        for array in (collected, again):
            np.testing.assert_allclose(array, EXPECTED, rtol=1e-5)
        with pytest.raises(DTypeError, match=r"DistributedArray\(float32\[8, 4\], P\('data', 'model'\), mesh .* dlc.collect"):
            np.asarray(y)
        assert mesh.coordinates(rank)["data"] == rank // axes["model"]


def test_results_feed_the_next_step_on_the_cpu() -> None:
    """A sharded parameter stays sharded over the steps of a loop; the loss is an ordinary array."""
    mesh, y = dlc.make_mesh({"data": 2}), values(F32, 8, 4, seed=3)

    def loss(w: Any, x: Any) -> Any:
        return dnp.mean((x @ w - y) ** 2)

    @dlc.jit(mesh=mesh, in_shardings=(P("data"), P("data")), out_shardings=(None, P("data")), num_threads=1)
    def step(w: Any, x: Any) -> Any:
        value, gradient = dlc.value_and_grad(loss)(w, x)
        return value, w - 0.1 * gradient

    def run(rank: int) -> Any:
        w, losses = W, []
        for _ in range(3):
            value, w = step(w, X)
            losses.append(float(value))
        return losses, dlc.collect(w)

    expected, losses = W.astype(np.float64), []
    for _ in range(3):
        losses.append(((X @ expected - y) ** 2).mean())
        expected = expected - 0.1 * 2 / y.size * X.T @ (X @ expected - y)
    for got_losses, w in run_ranks(mesh, run):
        np.testing.assert_allclose(got_losses, losses, rtol=1e-5)
        np.testing.assert_allclose(w, expected, rtol=1e-4, atol=1e-5)


def test_direct_calls_on_one_rank() -> None:
    """A call with arrays like those of the last one runs in machine code, and results keep their memory."""
    mesh = dlc.make_mesh({"data": 1})
    double = dlc.jit(mesh=mesh, in_shardings=P("data"), out_shardings=P("data"))(lambda x: 2 * x)
    x, kept = dlc.distribute(X, P("data"), mesh), []
    for k in range(4):
        kept.append(double(x))
        x.shard[0, 0] = k
    direct_call = double._last[0]
    assert direct_call(x.shard) is direct_call(dlc.DistributedArray(X.astype(np.float64), x.spec, mesh)) is None
    for k, y in enumerate(kept):
        np.testing.assert_array_equal(y.shard.ravel()[1:], 2 * X.ravel()[1:])
        assert y.shard[0, 0] == (2 * (k - 1) if k else 2 * X[0, 0])
    np.testing.assert_array_equal(dlc.collect(double(X)), 2 * X)


def test_shard_inside_of_a_function() -> None:
    def function(x: Any) -> Any:
        return dlc.shard(dnp.tanh(x), P("data", P.UNCONSTRAINED)) * 2

    mesh = dlc.make_mesh({"data": 2})
    text = dlc.jit(mesh=mesh)(function).lower(X).as_text("sharding")
    # The annotation propagates to the argument and the result.
    head = text.partition("\nbuiltin.module")[0]
    assert "// x: P('data', None)\n// result: P('data', None)\n// memory" in head and "dl.all_gather" not in text
    # Without a mesh it is the identity, also for derivatives and batches.
    np.testing.assert_array_equal(dlc.shard(X, P("data")), X)
    gradient = dlc.jit(dlc.vmap(dlc.grad(lambda x: dnp.sum(dlc.shard(x**2, P("data"))))))(X)
    np.testing.assert_allclose(gradient, 2 * X, rtol=1e-6)
    batched = dlc.jit(mesh=mesh, out_shardings=P("data"))(dlc.vmap(dlc.grad(lambda x: dnp.sum(dlc.shard(x**2, P(None))))))
    assert batched.lower(X).sharded.inputs == ((("data",), ()),)


def test_a_donated_shard_is_a_copy() -> None:
    x, mesh = values(F32, 4, 2), dlc.make_mesh({"data": 2})
    double = dlc.jit(mesh=mesh, donate_argnames="x", out_shardings=P("data"))(lambda x: x * 2)
    expected, original = 2 * x, x.copy()
    for result in run_ranks(mesh, lambda rank: dlc.collect(double(dlc.distribute(x, P("data"), mesh)))):
        np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(x, original)


def test_a_donated_shard_is_read_before_a_collective() -> None:
    """The sum is computed in another segment than the result that overwrites the shard."""
    x, mesh = values(F32, 4, 2), dlc.make_mesh({"data": 2})

    @dlc.jit(mesh=mesh, donate_argnames="x", in_shardings=(P("data"),), out_shardings=(P("data"), P()))
    def step(x: Any) -> Any:
        return dnp.tanh(x) * 2, dnp.sum(x, axis=0)

    for doubled, total in run_ranks(mesh, lambda rank: dlc.collect(step(x.copy()))):
        np.testing.assert_allclose(doubled, np.tanh(x) * 2, rtol=1e-6)
        np.testing.assert_allclose(total, x.sum(0), rtol=1e-6)


def test_shards_of_another_mesh_with_the_same_names() -> None:
    """The ranks of an axis depend on the order of axes."""
    mesh, other = dlc.make_mesh({"data": 2, "model": 2}), dlc.make_mesh({"model": 2, "data": 2})
    double = dlc.jit(mesh=mesh, out_shardings=P("data"), target="reference")(lambda x: 2 * x)
    shards = run_ranks(mesh, lambda rank: double(dlc.distribute(X, P("data"), other)).shard)
    for rank, shard in enumerate(shards):
        np.testing.assert_array_equal(shard, 2 * shard_of(mesh, rank, X, (("data",), ())))
    with pytest.raises(DlcError, match="the mesh data=8 has 8 ranks, 4 threads run"):
        run_ranks(mesh, lambda rank: double(dlc.distribute(X, P("data"), dlc.make_mesh({"data": 8}))))


def test_the_summary_names_collectives_and_redundant_products() -> None:
    """The head of a model is not annotated: all ranks along `model` compute it."""
    mesh = dlc.make_mesh({"model": 2})

    def function(x: Any, up: Any, down: Any, head: Any) -> Any:
        return (dnp.tanh(x @ up) @ down) @ head

    arguments = [values(F32, *shape) for shape in ((4, 6), (6, 8), (8, 6), (6, 16))]
    compiled = dlc.jit(mesh=mesh, in_shardings=(P(), P(None, "model"), P("model"), P()))(function)
    text = compiled.lower(*arguments).as_text("sharding")
    assert "// dl.all_reduce at test_meshes.py:" in text and ': float32[4, 6] over "model": 1 × 96 bytes sent per rank' in text
    # Both ranks compute 4×6×16 multiply-adds, one of them in vain.
    assert re.search(rf"// redundant at test_meshes.py:\d+: {2 * 4 * 6 * 16} FLOPs of all ranks", text)
    with pytest.raises(UnsupportedError, match="pass a mesh"):
        dlc.jit(function).lower(*arguments).as_text("sharding")


def test_uneven_shards_are_refused_with_the_repair() -> None:
    mesh = dlc.make_mesh({"data": 4})

    def function(x: Any) -> Any:
        return dlc.shard(x, P("data"))

    message = r'test_meshes.py:\d+: dlc.shard: axis 0 of \[30, 8\] in 4 parts of "data": 30 is not a multiple of 4; pad to 32, or P\(None\)'
    with pytest.raises(ShapeError, match=message):
        dlc.jit(mesh=mesh)(function).lower(values(F32, 30, 8))
    with pytest.raises(ShapeError, match=r"dlc\.distribute: axis 0 .* pad to 32"):
        dlc.distribute(values(F32, 30, 8), P("data"), mesh)


def test_invalid_arguments() -> None:
    mesh = dlc.make_mesh({"data": 2})
    with pytest.raises(ArgumentError, match="axis 'data' has the size 0"):
        dlc.make_mesh({"data": 0})
    with pytest.raises(DTypeError, match="expected the name of a mesh axis"):
        P(3)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="need a mesh"):
        dlc.jit(in_shardings=P("data"))(predict)
    with pytest.raises(DTypeError, match="expected a Mesh or None"):
        dlc.jit(mesh={"data": 2})(predict)  # type: ignore[call-overload]
    for entries in ((P(),), (P(), P(), P())):
        with pytest.raises(DTypeError, match=r"in_shardings has \d entries; expected one for each parameter: params, x"):
            dlc.jit(mesh=mesh, in_shardings=entries)(predict).lower(PARAMETERS, X)
    for other in ("data", {"x": P()}):
        with pytest.raises(DTypeError, match=r"in_shardings = .*; expected a P, None, or a tuple, .* per parameter: params, x"):
            dlc.jit(mesh=mesh, in_shardings=other)(predict).lower(PARAMETERS, X)
    with pytest.raises(ShapeError, match="out_shardings of result: 'rows' is not an axis of the mesh data=2"):
        dlc.jit(mesh=mesh, out_shardings=P("rows"))(predict).lower(PARAMETERS, X)
    with pytest.raises(DTypeError, match=r"in_shardings\[0\] is a dict of 'w', but annotates a dict of 'w', 'b'"):
        dlc.jit(mesh=mesh, in_shardings=({"w": P()}, None))(predict).lower(PARAMETERS, X)
    with pytest.raises(ShapeError, match=r"dlc\.shard: P\('data', None\) has 2 entries; expected at most 1, one per axis"):
        dlc.jit(mesh=mesh)(lambda x: dlc.shard(x, P("data", None))).lower(B)
    with pytest.raises(UnsupportedError, match="a function on the mesh data=2 has none"):
        dlc.jit(mesh=mesh)(predict).profile(PARAMETERS, X)
    with pytest.raises(ShapeError, match=r"the donated x is P\('data', None\), the result in its memory P\(None, 'data'\)"):
        donated = dlc.jit(mesh=mesh, donate_argnames="x", in_shardings=(P("data"),), out_shardings=P(None, "data"))
        donated(lambda x: x * 2).lower(X)


@pytest.mark.parametrize(
    "annotate",
    [
        lambda x: dlc.shard(x, P("rows")) * 2,
        lambda x: (dlc.shard(x, P("rows")), x)[1] * 2,
        lambda x: x * dlc.shard(X, P("rows")),
        lambda x: x * dlc.shard(dnp.ones(X.shape), P("rows")),
        lambda x: dlc.grad(lambda x: dnp.sum(dlc.shard(x, P("rows"))))(x),
    ],
    ids=["value", "unused", "constant", "uniform", "derivative"],
)
def test_annotations_of_unknown_axes(annotate: Any) -> None:
    with pytest.raises(ShapeError, match=r"test_meshes.py:\d+: dlc.shard: 'rows' is not an axis of the mesh data=2"):
        dlc.jit(mesh=dlc.make_mesh({"data": 2}))(annotate).lower(X)


def test_functions_on_a_mesh_in_other_functions() -> None:
    """A function on the same mesh keeps its shardings; one on another mesh is refused."""
    mesh = dlc.make_mesh({"data": 2})
    inner = dlc.jit(mesh=mesh, in_shardings=(P("data"),), out_shardings=P(None, "data"))(lambda x: x * 2)
    text = dlc.jit(mesh=mesh)(lambda x: inner(x)).lower(X).as_text("sharding")
    assert "// x: P('data', None)\n// result: P(None, 'data')\n" in text
    for outer, where in ((None, "without a mesh"), (dlc.make_mesh({"model": 2}), "for the mesh model=2")):
        with pytest.raises(DlcError, match=f"on the mesh data=2 is called while a function is traced {where}"):
            dlc.jit(mesh=outer)(lambda x: inner(x)).lower(X)


def test_results_of_collectives_are_not_copied() -> None:
    """A collective writes an output, or the next state of a loop; a state that exchanges rows is updated in place."""
    mesh = dlc.make_mesh({"data": 2})

    def sums(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda k, x: lax.pvary(lax.psum(x, "data"), "data"), lax.psum(x, "data"))

    def rows(x: Any) -> Any:
        return lax.fori_loop(0, 4, lambda k, state: state.at[k].set(lax.ppermute(state[k], "data", [(0, 1), (1, 0)])), x)

    def instructions(function: Any) -> list[Any]:
        mapped = dlc.shard_map(function, in_specs=P("data"), out_specs=P("data"))
        model = dlc.jit(mesh=mesh, num_threads=1)(mapped).lower(X).compile().program.model
        return [instruction for instruction, _ in walk(model.artifact.host.instructions)]

    copies = [i for i in instructions(sums) if isinstance(i, Launch)]
    # Only the last state of the loop, which is in one of two buffers.
    assert len(copies) == 1
    updates = [i for i in instructions(rows) if isinstance(i, Launch) and "scatter_rows" in str(i.kernel)]
    assert [launch.arguments[0] == launch.arguments[-1] for launch in updates] == [True]
