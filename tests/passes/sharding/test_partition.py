"""Partitioned programs: results on all ranks equal the unsharded program, with the expected collectives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import P
from dlc.compiler import Program, compile
from dlc.compiler.sharding import ShardedProgram, shard_program
from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.distributed.collectives import Collective
from dlc.dialects.dl.distributed.sharding import PartialSpec
from dlc.errors import DlcError, ShapeError
from dlc.ir import Block, ModuleOp, Region, f32, func, i64, walk_ops
from dlc.runtime.collectives.mesh import Mesh
from dlc.testing.sample import BF16, F32, values
from dlc.weights import WeightStore
from tests.fuzz.programs import OPTIONS
from tests.fuzz.random_program import named_values
from tests.fuzz.shardings import run_sharded

Specs = Sequence[PartialSpec | None]
DATA, BOTH = Mesh.of({"data": 2}), Mesh.of({"data": 2, "model": 2})
D, M, R = ("data",), ("model",), ()


def check(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    mesh: Mesh,
    inputs: Specs,
    outputs: Specs = (),
    tolerance: float = 1e-5,
) -> Counter[str]:
    """Compare a sharded function with the function itself, and count its collectives."""
    program = dlc.jit(function).lower(*arguments).program
    outputs = outputs or [None] * len(program.outputs)
    got = run_sharded(program, mesh, inputs, outputs, arguments)
    expected = dlc.jit(target="reference")(function)(*arguments)
    for a, b in zip(got, expected if isinstance(expected, tuple) else (expected,), strict=True):
        np.testing.assert_allclose(a.astype(np.float64), np.asarray(b).astype(np.float64), rtol=tolerance, atol=tolerance)
    return count(shard_program(program, mesh, inputs, outputs))


def count(sharded: ShardedProgram) -> Counter[str]:
    return Counter(op.name.removeprefix("dl.") for op in walk_ops(sharded.program.module, Collective))


def mlp_loss(w1: Any, b1: Any, w2: Any, x: Any, y: Any) -> Any:
    return dnp.mean((dnp.tanh(x @ w1 + b1) @ w2 - y) ** 2)


MLP = [values(F32, *shape, seed=k, scale=0.5) for k, shape in enumerate([(6, 8), (8,), (8, 4), (12, 6), (12, 4)])]
DATA_PARALLEL: Specs = [None, None, None, (D, R), (D, R)]


def train_step(w1: Any, b1: Any, w2: Any, x: Any, y: Any) -> Any:
    loss, gradients = dlc.value_and_grad(mlp_loss, argnums=(0, 1, 2))(w1, b1, w2, x, y)
    return (loss, *(p - 0.1 * g for p, g in zip((w1, b1, w2), gradients, strict=True)))


@pytest.mark.parametrize("mesh", [DATA, Mesh.of({"data": 4}), BOTH], ids=str)
def test_data_parallel_step_reduces_once(mesh: Mesh) -> None:
    """XLA (jax 0.10.2, four devices) makes 1 all-reduce of this step as well."""
    assert check(train_step, MLP, mesh, DATA_PARALLEL) == {"all_reduce": 1}


def test_optimizer_state_shards_zero_1() -> None:
    """Annotated optimizer states: one reduce_scatter of gradients, one all_gather of parameters, and the loss.

    XLA (jax 0.10.2, four devices) makes 1 all-reduce and 2 all-gathers.
    """

    def step(w1: Any, w2: Any, m1: Any, m2: Any, x: Any, y: Any) -> Any:
        loss, gradients = dlc.value_and_grad(mlp_loss, argnums=(0, 2))(w1, MLP[1], w2, x, y)
        states = [0.9 * m + g for m, g in zip((m1, m2), gradients, strict=True)]
        return (loss, *(p - 0.1 * m for p, m in zip((w1, w2), states, strict=True)), *states)

    w1, _, w2, x, y = MLP
    arguments = [w1, w2, w1 * 0.5, w2 * 0.5, x, y]
    inputs: Specs = [(R, R), (R, R), (D, R), (D, R), (D, R), (D, R)]
    counts = check(step, arguments, DATA, inputs, [None, (R, R), (R, R), (D, R), (D, R)])
    assert counts == {"reduce_scatter": 1, "all_gather": 1, "all_reduce": 1, "axis_index": 1}


def accumulated_step(params: Any, momenta: Any, x: Any, y: Any) -> Any:
    """Sum gradients over micro-batches; each sum is split."""

    def micro_step(gradients: Any, batch: Any) -> Any:
        loss, new = dlc.value_and_grad(lambda p: mlp_loss(p[0], MLP[1], p[1], *batch))(params)
        return [dlc.shard(g + n, P("data")) for g, n in zip(gradients, new, strict=True)], loss

    gradients, losses = dlc.lax.scan(micro_step, [dnp.zeros_like(p) for p in params], (x, y))
    momenta = [0.9 * m + g for m, g in zip(momenta, gradients, strict=True)]
    return (dnp.sum(losses), *(p - 0.1 * m for p, m in zip(params, momenta, strict=True)), *momenta)


@pytest.mark.parametrize("stage", [2, 3])
def test_zero_2_and_3(stage: int) -> None:
    """Stage 2 scatters the gradients of each micro-batch; stage 3 also gathers the parameters for it."""
    w1, _, w2, x, y = MLP
    arguments = [[w1, w2], [w1, w2], np.stack([x, 2 * x]), np.stack([y, y])]
    batch, split = (R, D, R), (D, R)
    parameters = split if stage == 3 else (R, R)
    specs: Specs = [parameters, parameters, split, split, batch, batch]
    program = dlc.jit(accumulated_step).lower(*arguments).program
    outputs: Specs = [(), parameters, parameters, split, split]
    leaves = [*arguments[0], *arguments[1], *arguments[2:]]
    got = run_sharded(program, DATA, specs, outputs, leaves)
    for a, b in zip(got, dlc.jit(target="reference")(accumulated_step)(*arguments), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    collectives = walk_ops(shard_program(program, DATA, specs, outputs).program.module, Collective)
    by_loop = Counter((op.name, isinstance(op.parent_op(), dl.ScanOp)) for op in collectives)
    assert by_loop["dl.reduce_scatter", True] == 1 and by_loop["dl.all_gather", stage == 3] == 1
    assert ("dl.reduce_scatter", False) not in by_loop and ("dl.all_gather", stage == 2) not in by_loop


def test_large_messages_are_not_merged() -> None:
    """Sums of 3 MB each are reduced by themselves; those of a few bytes share a message."""
    sharded = shard_program(
        dlc.jit(lambda *xs: tuple(dnp.sum(x, 0) for x in xs)).lower(*[dlc.ShapeDtype((2, n), F32) for n in (4, 1 << 20, 5)] * 2).program,
        DATA, [(D, R)] * 6, [None] * 6,
    )  # fmt: skip
    assert count(sharded)["all_reduce"] == 3


def test_tensor_parallel_block_has_four_reductions() -> None:
    """Megatron's partition: one all_reduce after attention and one after the MLP, in each direction; XLA makes 4 as well."""
    batch, tokens, width, heads = 2, 4, 8, 2
    shapes = [(width, heads, 4), (width, heads, 4), (width, heads, 4), (heads, 4, width), (width, 16), (16, width)]
    parameters = [values(F32, *shape, seed=k, scale=0.3) for k, shape in enumerate(shapes)]

    def block(x: Any, q: Any, k: Any, v: Any, o: Any, up: Any, down: Any) -> Any:
        normalized = dlc.nn.rms_norm(x, np.ones(width, np.float32))
        queries, keys, contents = (dnp.einsum("btd,dhk->bhtk", normalized, w) for w in (q, k, v))
        weights = dlc.nn.softmax(dnp.einsum("bhtk,bhsk->bhts", queries, keys))
        x = x + dnp.einsum("bhtk,hkd->btd", dnp.einsum("bhts,bhsk->bhtk", weights, contents), o)
        return x + dlc.nn.gelu(dlc.nn.rms_norm(x, np.ones(width, np.float32)) @ up) @ down

    def loss(x: Any, *parameters: Any) -> Any:
        return dnp.sum(block(x, *parameters) ** 2)

    def gradients(*arguments: Any) -> Any:
        return dlc.grad(loss, argnums=tuple(range(7)))(*arguments)

    column, row = (R, M, R), (M, R, R)
    inputs: Specs = [(R, R, R), column, column, column, row, (R, M), (M, R)]
    arguments = [values(F32, batch, tokens, width), *parameters]
    mesh = Mesh.of({"model": 2})
    assert check(loss, arguments, mesh, inputs) == {"all_reduce": 2}
    assert check(gradients, arguments, mesh, inputs) == {"all_reduce": 4}


def test_half_precision_sums_cross_ranks_in_f32() -> None:
    x, w = values(BF16, 4, 64, seed=1), values(BF16, 64, 4, seed=2)
    for function, arguments in ((lambda x, w: x @ w, [x, w]), (lambda x, w: dnp.sum(x, 1) + dnp.sum(w, 0), [x, w])):
        specs: Specs = [(R, D), (D, R)]
        sharded = shard_program(dlc.jit(function).lower(*arguments).program, DATA, specs, [None])
        reduced = [op for op in walk_ops(sharded.program.module, Collective)]
        assert reduced and all(element_type_of(op.operands[0]) == f32 for op in reduced)
        check(function, arguments, DATA, specs, tolerance=1e-2)


def test_partial_sums_of_integers_are_not_divided() -> None:
    x = np.arange(8)
    assert check(lambda x: dnp.sum(x) // 3, [x], DATA, [(D,)])["all_reduce"] == 1


def test_a_reshape_is_sharded_by_a_common_divisor() -> None:
    mesh = Mesh.of({"data": 4})
    assert check(lambda x: dnp.tanh(x.reshape(5, 4)), [values(F32, 20)], mesh, [(D,)])["all_gather"] == 1
    assert check(lambda x: dnp.tanh(x.reshape(4, 5)), [values(F32, 20)], mesh, [(D,)]) == {}


def test_a_donated_argument_keeps_its_sharding() -> None:
    """A parameter is combined with a sharded state; as a donated argument it has one sharding before and after."""

    def step(w: Any, m: Any, x: Any) -> Any:
        m = 0.9 * m + dlc.grad(lambda w: dnp.sum(dnp.tanh(x @ w) ** 2))(w)
        return w - 0.1 * m, m

    w, x = MLP[0], MLP[3]
    program = dlc.jit(donate_argnames=("w", "m"))(step).lower(w, w, x).program
    sharded = shard_program(program, DATA, [None, (D, R), (D, R)], [None, None])
    assert sharded.inputs[:2] == sharded.outputs == ((D, R), (D, R))
    assert count(sharded)["all_gather"] == 1


def test_loops_carry_shards() -> None:
    """Data parallel, a recurrence has no collectives inside; its parameter gradient is reduced once after it."""

    def final(w: Any, xs: Any) -> Any:
        return dnp.sum(dlc.lax.scan(lambda h, x: (dnp.tanh(h @ w + x), h), dnp.zeros(xs.shape[1:], np.float32), xs)[0])

    w, xs = values(F32, 4, 4, scale=0.3), values(F32, 3, 6, 4, seed=1)
    counts = check(dlc.grad(final), [w, xs], DATA, [None, (R, D, R)])
    assert counts["all_reduce"] == 1 and "all_gather" not in counts
    assert check(dlc.grad(final), [w, xs], Mesh.of({"model": 2}), [(R, M), None])["all_gather"] >= 1


def test_conditionals_and_while_loops() -> None:
    def function(x: Any) -> Any:
        y = dlc.lax.cond(dnp.sum(x) > 0, dnp.tanh, lambda x: -x, x)
        return dlc.lax.while_loop(lambda y: dnp.max(y) > 1e-2, lambda y: y * 0.5, y)

    for scale in (1.0, -1.0):
        check(function, [np.abs(values(F32, 4, 6)) * np.float32(scale)], BOTH, [(D, M)], [(D, M)])


def test_softmax_over_a_sharded_axis_is_decomposed() -> None:
    counts = check(lambda x: dlc.nn.softmax(x), [values(F32, 4, 8)], DATA, [(R, D)], [(R, D)])
    # The maximum is gathered: MPI's reduction drops NaN.
    assert counts == {"all_gather": 1, "all_reduce": 1}


def test_an_embedding_of_split_rows_is_not_gathered() -> None:
    """Each rank reads and updates its own rows, and the ranks add the vectors that they read."""
    table, ids, target = values(F32, 512, 32), np.array([[3, -1, 511], [256, 255, 3]]), values(F32, 2, 3, 32, seed=1)

    def step(table: Any, ids: Any) -> Any:
        loss, gradient = dlc.value_and_grad(lambda table: dnp.sum(dlc.nn.embedding(table, ids) * target))(table)
        return loss, table - 0.1 * gradient

    # Over `data`, ranks get all indices, or gather the cotangents.
    for mesh, rows in ((BOTH, M), (DATA, D)):
        inputs: Specs = [(rows, R), (D, R)]
        outputs: Specs = [None, (rows, R)]
        check(step, [table, ids], mesh, inputs, outputs)
        sharded = shard_program(dlc.jit(step).lower(table, ids).program, mesh, inputs, outputs)
        moved = [op for op in walk_ops(sharded.program.module, Collective) if op.operands]
        assert moved and all(op.operand_bytes < table.nbytes // 4 for op in moved)
    assert check(lambda x, i: dnp.take(x, i % 32, axis=1), [table, ids], DATA, [(R, D), None])["all_reduce"] == 1


@pytest.mark.parametrize("mode", ["none", "add", "max"])
@pytest.mark.parametrize("clamped", [None, True], ids=["ignored", "clamped"])
def test_scatters_to_split_rows(mode: str, clamped: bool | None) -> None:
    """Indices count from the end, are out of bounds, and repeat."""
    x, indices = values(F32, 8, 3), np.array([0, 7, -8, -1, 4, 4, 3, -9, 8, 100])
    updates = values(F32, 10, 3, seed=1)
    block = Block(arg_types=[tensor_type(a.shape, t) for a, t in ((x, f32), (indices, i64), (updates, f32))])
    y = DlBuilder(block)(dl.ScatterRowsOp, *block.args, mode=mode, clamped=clamped)
    block.add_op(func.ReturnOp(y))
    main = func.FuncOp("main", ([a.type for a in block.args], [y.type]), Region(block))
    main.arg_attrs, main.res_attrs = named_values("x", 3), named_values("y", 1)
    program = Program(ModuleOp([main]), WeightStore(), "scatter")
    arrays = [x, indices, updates]
    (expected,) = compile(program, "reference", OPTIONS).run_unchecked(arrays)
    (got,) = run_sharded(program, DATA, [(D, R), None, None], [(D, R)], arrays)
    np.testing.assert_array_equal(got, expected)
    assert "all_gather" not in count(shard_program(program, DATA, [(D, R), None, None], [(D, R)]))


def test_an_index_outside_of_split_rows_is_an_error() -> None:
    with pytest.raises(DlcError, match="index 8 is outside axis 0 of size 8"):
        check(lambda x, i: x[i], [values(F32, 8, 3), np.array([0, 8])], DATA, [(D, R), None])


def test_layouts_move_by_all_to_all() -> None:
    assert check(lambda x: dnp.tanh(x), [values(F32, 4, 8)], DATA, [(D, R)], [(R, D)]) == {"all_to_all": 1}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            ((), ("data",)),
            r"in_shardings of x: axis 1 of \[4, 5\] in 2 parts of \"data\": 5 is not a multiple of 2; pad to 6, or P\(N",
        ),
        ((("rows",), ()), "in_shardings of x: 'rows' is not an axis of the mesh data=2"),
        ((("data",), ("data",)), "uses a mesh axis twice"),
        (((), (), ()), r"has 3 entries for the shape \[4, 5\]"),
    ],
)
def test_invalid_annotations(spec: PartialSpec, message: str) -> None:
    program = dlc.jit(lambda x: x + 1).lower(values(F32, 4, 5)).program
    with pytest.raises(ShapeError, match=message):
        shard_program(program, DATA, [spec], [None])


def test_partial_sums_are_not_scaled_by_infinity_or_divided_by_zero() -> None:
    """The parts 1 and -0.5 of a sum would become ∞ - ∞."""
    x = np.array([[1, 2], [-0.5, 3]], np.float32)

    def function(x: Any, zero: Any) -> Any:
        total = dnp.sum(x, axis=0)
        return total * np.float32(np.inf), total / zero

    assert check(function, [x, np.float32(0)], DATA, [(D, R), None], [(R,), (R,)]) == {"all_reduce": 1}
