"""Functions that `dlc.jit` compiles for the ranks of a job of MPI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import P
from dlc.errors import DlcError, ModelError
from dlc.runtime.collectives.transport import Transport
from dlc.runtime.program.host_program import PythonCall
from dlc.testing.sample import F32, values


def test_training_steps(transport: Transport) -> None:
    """The parameter is sharded over one mesh axis and the batch over the other; results equal those of one process."""
    x, y, w = values(F32, 8, 6), values(F32, 8, 4, seed=1), values(F32, 6, 4, seed=2)

    def step(w: Any, x: Any) -> Any:
        value, gradient = dlc.value_and_grad(lambda w: dnp.mean((dnp.tanh(x @ w) - y) ** 2))(w)
        return value, w - 0.1 * gradient

    shardings = (P(None, "model"), P("data"))
    on_mesh = dlc.jit(mesh=transport.mesh, in_shardings=shardings, out_shardings=(P(), shardings[0]))(step)
    alone, global_w = dlc.jit(target="reference")(step), w
    for _ in range(3):
        loss, w = on_mesh(w, x)
        expected, global_w = alone(global_w, x)
        np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert isinstance(w, dlc.DistributedArray) and w.mesh == transport.mesh
    np.testing.assert_allclose(dlc.collect(w), global_w, rtol=1e-4, atol=1e-6)


def test_direct_calls(transport: Transport) -> None:
    """Calls like the last one bypass the checks of arguments; others do not, and results are the same."""
    mesh = transport.mesh

    def total(x: Any, y: Any) -> Any:
        return dnp.sum(x * y), x + y

    on_mesh = dlc.jit(mesh=mesh, in_shardings=(None, P("data")), out_shardings=(P(), P("data")))(total)
    x, y = values(F32, 8, 6), values(F32, 8, 6, seed=1)
    split = [dlc.distribute(x, spec, mesh) for spec in (P("data"), P(None, "model"))]
    for first in (*split, x, split[0], x.astype(">f4"), dlc.distribute(x, P("rows"), dlc.make_mesh({"rows": mesh.size}))):
        for second in (y, y, dlc.distribute(y, P("data"), mesh), y.copy(order="F"), 2 * y):
            product, both = on_mesh(first, second)
            expected = dlc.collect(second)
            np.testing.assert_allclose(product, np.sum(x * expected), rtol=1e-4)
            assert both.spec == (("data",), ()) and both.mesh == mesh
            np.testing.assert_allclose(dlc.collect(both), x + expected, rtol=1e-6)
    on_mesh(split[0], y)
    with pytest.raises(DlcError):
        on_mesh(split[0], y[:4])
    wrong = dlc.DistributedArray(split[0].shard, (("data",), ()), mesh)
    wrong.shard = wrong.shard[:1]
    with pytest.raises(DlcError):
        on_mesh(wrong, y)


def test_functions_of_shards(transport: Transport) -> None:
    """Each rank sends its rows around the ring, and sums a gradient over all ranks."""
    x, count = values(F32, 8, 6), transport.mesh.sizes["data"]

    def ring(scale: Any, x: Any) -> Any:
        moved = dlc.lax.ppermute(x, "data", [(k, (k + 1) % count) for k in range(count)])
        return dlc.lax.pmean(dnp.sum(scale * moved * x), ("data", "model"))

    on_shards = dlc.shard_map(ring, in_specs=(P(), P("data")), out_specs=P(), mesh=transport.mesh)
    gradient = dlc.jit(mesh=transport.mesh)(dlc.grad(on_shards))(np.float32(2), x)
    np.testing.assert_allclose(gradient, np.sum(x * np.roll(x, 8 // count, axis=0)) / count, rtol=1e-4)


def test_arrays_saved_by_one_mesh_and_loaded_by_another(transport: Transport, tmp_path: Path) -> None:
    folder = Path(transport.exchange(str(tmp_path).encode(), "folder")[0].decode())
    x, other = values(F32, 8, 6), dlc.make_mesh({"rows": transport.mesh.size})
    dlc.save_arrays(folder, {"x": dlc.distribute(x, P("data", "model"), transport.mesh), "step": 3})
    loaded = dlc.load_arrays(folder, {"x": x, "step": 0}, {"x": P("rows"), "step": None}, other)
    assert loaded["x"].shard.shape == (8 // transport.mesh.size, 6) and loaded["step"] == 3
    np.testing.assert_array_equal(dlc.collect(loaded["x"]), x)


def test_selections_of_split_arrays(transport: Transport) -> None:
    """Ranks compute selections whole, since collectives need sizes that do not depend on data."""
    x = values(F32, 8, 6)
    on_mesh = dlc.jit(mesh=transport.mesh, in_shardings=P("data"), out_shardings=P())(
        lambda x: (dnp.sum(dnp.cumsum(x[x > 0])), dnp.tanh(x) @ x.T)
    )
    total, product = on_mesh(x)
    np.testing.assert_allclose(total, np.cumsum(x[x > 0]).sum(), rtol=1e-4)
    np.testing.assert_allclose(product, np.tanh(x) @ x.T, rtol=1e-4, atol=1e-5)


def test_split_constants(transport: Transport) -> None:
    """Each rank stores its parts of split constants, packed for its kernels."""
    mesh, x, up, down = transport.mesh, values(F32, 8, 6), values(F32, 6, 16, seed=1), values(F32, 16, 6, seed=2)
    on_mesh = dlc.jit(mesh=mesh, out_shardings=P())(lambda x: dnp.tanh(x @ dlc.shard(up, P(None, "data"))) @ down)
    np.testing.assert_allclose(on_mesh(x), np.tanh(x @ up) @ down, rtol=1e-4, atol=1e-5)
    lowered = on_mesh.lower(x)
    stored = lowered.compile().program.model.artifact.weights.values()
    assert sum(w.nbytes for w in stored) == (up.nbytes + down.nbytes) // mesh.sizes["data"]
    assert (
        f"{(up.nbytes + down.nbytes) // mesh.sizes['data']} of {up.nbytes + down.nbytes} bytes of constants"
        in lowered.as_text("sharding")
    )


def test_saved_functions(transport: Transport, tmp_path: Path) -> None:
    """A file of this rank takes and returns shards; one with split constants belongs to its rank."""
    mesh, x, w = transport.mesh, values(F32, 8, 6), values(F32, 6, 16, seed=1)
    axes = tuple(mesh.sizes)

    @dlc.jit(mesh=mesh, in_shardings=(P("data"),), out_shardings=P())
    def on_mesh(x: Any) -> Any:
        return dnp.sum(x @ dlc.shard(w, P(None, axes)), 0)

    on_mesh.save(tmp_path / "own.dlc", x)
    loaded = dlc.load(tmp_path / "own.dlc")
    (result,) = loaded(dlc.distribute(x, P("data"), mesh).shard).values()
    np.testing.assert_allclose(result, np.sum(x @ w, 0), rtol=1e-4)
    others = transport.exchange((tmp_path / "own.dlc").read_bytes(), "files")
    with pytest.raises(ModelError, match=r"it has the constants of rank \d; load the file that rank \d saved"):
        dlc.load(others[transport.rank - 1])


def test_overlapped_collectives(transport: Transport) -> None:
    """The sum of one layer's gradient is pending while the next gradient is computed."""
    x, layers = values(F32, 512, 1024), [values(F32, 1024, 1024, seed=k, scale=0.03) for k in (1, 2)]

    def step(layers: Any, x: Any) -> Any:
        gradients = dlc.grad(lambda layers: dnp.sum(dnp.tanh(dnp.tanh(x @ layers[0]) @ layers[1]) ** 2))(layers)
        return [w - 1e-3 * gradient for w, gradient in zip(layers, gradients, strict=True)]

    on_mesh = dlc.jit(mesh=transport.mesh, in_shardings=(P(), P("data")), out_shardings=P(), num_threads=1)(step)
    instructions = on_mesh.lower(layers, x).compile().program.model.artifact.host.instructions
    names = [i.op if isinstance(i, PythonCall) else "launch" for i in instructions]
    assert names.count("wait") >= 1 and "launch" in names[names.index("all_reduce") : names.index("wait")]
    expected = dlc.jit(step, num_threads=1)(layers, x)
    for _ in range(3):
        for got, want in zip(on_mesh(layers, x), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_pipeline(transport: Transport) -> None:
    """Four stages of different shapes; the loss decreases as in one process."""
    shapes = [(6, 8), (8, 4), (4, 8), (8, 3)]
    weights = [values(F32, *shape, scale=0.5, seed=k) for k, shape in enumerate(shapes)]
    x, y = values(F32, 16, 6, seed=8), values(F32, 16, 3, seed=9)

    def network(weights: Any, x: Any, y: Any) -> Any:
        for k, w in enumerate(weights):
            x = dnp.tanh((dlc.stage(x) if k else x) @ w)
        return dnp.mean((x - y) ** 2)

    def step(weights: Any) -> Any:
        value, gradients = dlc.value_and_grad(dlc.pipeline(network, num_micro_batches=4, axis="data"))(weights, x, y)
        return value, [w - 0.1 * gradient for w, gradient in zip(weights, gradients, strict=True)]

    on_mesh, alone = (dlc.jit(mesh=mesh, num_threads=1)(step) for mesh in (transport.mesh, None))
    state = expected = weights
    for _ in range(5):
        value, state = on_mesh(state)
        want, expected = alone(expected)
        np.testing.assert_allclose(value, want, rtol=1e-4)
