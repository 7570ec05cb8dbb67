"""The automatic choice of shardings: known best partitions of small programs, and the results of partitioned programs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import P
from dlc.compiler.sharding import AutoSharding, ShardedProgram, shard_program
from dlc.dialects.dl.distributed.collectives import Collective
from dlc.errors import DTypeError
from dlc.ir import walk_ops
from dlc.passes.sharding.one_hot_program import OneHotProgram
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.threads import run_ranks
from dlc.testing.sample import F32, values

pytest.importorskip("scipy", reason="the solver is scipy's: pip install -e '.[dist]'")
WHOLE = ((), ())


def loss_of(parameters: Any, x: Any, y: Any) -> Any:
    h = x
    for up, down in parameters:
        h = h + dnp.tanh(h @ up) @ down
    return dnp.mean((h - y) ** 2)


def step(parameters: Any, x: Any, y: Any) -> Any:
    loss, gradients = dlc.value_and_grad(loss_of)(parameters, x, y)
    return loss, dlc.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients)


def sharded_step(batch: int, width: int, hidden: int, mesh: Mesh, memory_price: float = 0.0) -> ShardedProgram:
    shapes = [[(width, hidden), (hidden, width)]] * 2
    parameters = [[dlc.ShapeDtype(shape, F32) for shape in block] for block in shapes]
    data = dlc.ShapeDtype((batch, width), F32)
    program = dlc.jit(donate_argnames="parameters")(step).lower(parameters, data, data).program
    none = [None] * len(program.inputs), [None] * len(program.outputs)
    return shard_program(program, mesh, *none, AutoSharding(memory_price))


def collectives(sharded: ShardedProgram) -> Counter[str]:
    return Counter(op.name.removeprefix("dl.") for op in walk_ops(sharded.program.module, Collective) if op.operands)


def test_a_wide_batch_is_data_parallel() -> None:
    sharded = sharded_step(4096, 64, 64, Mesh.of({"ranks": 4}))
    assert sharded.inputs == (*[WHOLE] * 4, (("ranks",), ()), (("ranks",), ()))
    assert collectives(sharded) == {"all_reduce": 1}


def test_a_narrow_batch_of_wide_layers_is_tensor_parallel() -> None:
    """Megatron's pair: columns of the first product, rows of the second."""
    sharded = sharded_step(16, 1024, 4096, Mesh.of({"ranks": 4}))
    assert sharded.inputs == (*[((), ("ranks",)), (("ranks",), ())] * 2, WHOLE, WHOLE)
    assert set(collectives(sharded)) == {"all_reduce"} and sharded.shard_calls == []


def test_a_tiny_model_is_not_split() -> None:
    sharded = sharded_step(4, 8, 8, Mesh.of({"ranks": 4}))
    assert sharded.inputs == (WHOLE,) * 6 and not collectives(sharded)


def test_memory_price_splits_arguments() -> None:
    """At a second per 100 MB, parameters are split as well."""
    sharded = sharded_step(4096, 64, 64, Mesh.of({"ranks": 4}), memory_price=1e-8)
    assert all(any(spec) for spec in sharded.inputs)


def test_results_on_two_mesh_axes() -> None:
    """Annotations are respected: the batch is split over `data`; the shardings over `model` are chosen."""
    mesh = dlc.make_mesh({"data": 2, "model": 2})
    parameters = [[values(F32, 8, 16, scale=0.3), values(F32, 16, 8, seed=1, scale=0.3)]]
    x, y = values(F32, 4, 8, seed=2), values(F32, 4, 8, seed=3)
    shardings = (None, P("data"), None)
    compiled = dlc.jit(mesh=mesh, in_shardings=shardings, auto=True, memory_price=1e-3, target="reference")(step)
    sharded = compiled.lower(parameters, x, y).sharded
    assert sharded is not None and sharded.inputs[2] == (("data",), ())
    assert {name for axes in sharded.inputs[0] for name in axes} == {"data", "model"}
    expected = dlc.jit(target="reference")(step)(parameters, x, y)
    for result in run_ranks(mesh, lambda rank: dlc.collect(compiled(parameters, x, y))):
        for a, b in zip(dlc.tree.leaves(result), dlc.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_recurrences() -> None:
    """The states of a loop have one sharding; sequences have that of their elements."""

    def final(w: Any, xs: Any) -> Any:
        return dnp.sum(dlc.lax.scan(lambda h, x: (dnp.tanh(h @ w + x), h), dnp.zeros(xs.shape[1:], np.float32), xs)[0])

    w, xs = values(F32, 64, 64, scale=0.1), values(F32, 3, 1024, 64, seed=1)
    mesh = dlc.make_mesh({"ranks": 2})
    compiled = dlc.jit(mesh=mesh, auto=True, target="reference")(dlc.grad(final))
    assert "// w: P(None, None)\n// xs: P(None, 'ranks', None)" in compiled.lower(w, xs).as_text("sharding")
    expected = dlc.jit(target="reference")(dlc.grad(final))(w, xs)
    for result in run_ranks(mesh, lambda rank: compiled(w, xs)):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_an_integer_program() -> None:
    """Options with the least costs of their own (0, 1) have a costly pair."""
    program = OneHotProgram()
    first, second = program.choice([0, 2]), program.choice([3, 1])
    program.add_pair(first, second, np.array([[0.0, 9.0], [9.0, 0.5]]))
    assert program.solve(1.0) == [0, 0]
    program.add_costs(first, [1, 0])
    assert program.solve(1.0) == [1, 1]


def test_auto_needs_a_mesh() -> None:
    with pytest.raises(DTypeError, match="auto needs a mesh"):
        dlc.jit(auto=True)(step)
