"""Pipeline parallelism: losses and gradients equal those of one process. Ranks are threads."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.runtime.collectives.threads import run_ranks
from dlc.testing.sample import F32, values

# Four stages of different functions. The scale is read by all of them; no size of the embedding is a multiple of 4.
PARAMETERS = {
    "embedding": values(F32, 10, 6),
    "weights": [values(F32, *shape, scale=0.5, seed=k) for k, shape in enumerate([(6, 8), (8, 8), (8, 5)])],
    "bias": values(F32, 8, seed=3),
    "scale": np.float32(1.5),
    "head": values(F32, 5, 3, seed=4),
    "unused": values(F32, 2, 2),
}
TOKENS, TARGETS = np.arange(16) % 10, values(F32, 16, 3, seed=7)


def network(parameters: Any, tokens: Any, targets: Any) -> Any:
    first, second, third = parameters["weights"]
    h = dnp.tanh(parameters["scale"] * parameters["embedding"][tokens] @ first + parameters["bias"])
    h = dlc.stage(h)
    h = dnp.tanh(h @ second + parameters["bias"])
    even = tokens % 2 == 0
    h, narrow, even = dlc.stage((h, h @ third, even))
    narrow = dnp.where(dnp.reshape(even, (-1, 1)), narrow, narrow + dnp.mean(h, axis=1, keepdims=True))
    (narrow,) = dlc.stage([narrow])
    return dnp.mean((narrow @ parameters["head"] * parameters["scale"] - targets) ** 2)


def pipelined(axes: dict[str, int], num_micro_batches: int = 4, function: Any = network) -> Any:
    batch_axes = [name for name in axes if name == "data"]
    return dlc.pipeline(function, num_micro_batches=num_micro_batches, batch_axes=batch_axes)


def on_ranks(axes: dict[str, int], function: Any, *arguments: Any) -> list[list[Any]]:
    """Return the results of all ranks."""
    mesh = dlc.make_mesh(axes) if axes else None
    compiled = dlc.jit(mesh=mesh, num_threads=1)(function)

    def run(rank: int) -> list[Any]:
        return dlc.tree.leaves(dlc.collect(compiled(*arguments)))

    return run_ranks(mesh, run) if mesh else [run(0)]


def require_close(axes: dict[str, int], function: Any, expected: Any, *arguments: Any, rtol: float = 1e-5) -> None:
    """Require that the function on all ranks of a mesh equals another one in one process."""
    wanted = dlc.tree.leaves(dlc.jit(expected)(*arguments))
    for results in on_ranks(axes, function, *arguments):
        for got, want in zip(results, wanted, strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got.astype(F32), want.astype(F32), rtol=0, atol=rtol * max(1, np.abs(want).max()))


@pytest.mark.parametrize("axes", [{}, {"stage": 1}, {"stage": 2}, {"stage": 4}, {"data": 2, "stage": 2}], ids=str)
def test_loss_and_gradients(axes: dict[str, int]) -> None:
    require_close(axes, dlc.value_and_grad(pipelined(axes)), dlc.value_and_grad(network), PARAMETERS, TOKENS, TARGETS)


@pytest.mark.parametrize("axes", [{}, {"stage": 4}], ids=str)
def test_gradients_of_the_batch(axes: dict[str, int]) -> None:
    """Targets are read by the last stage; their gradient is the sum over all ranks, by micro-batch."""
    gradients = dlc.grad(pipelined(axes, 2), argnums=2)
    require_close(axes, gradients, dlc.grad(network, argnums=2), PARAMETERS, TOKENS, TARGETS)


def test_schedule() -> None:
    """M + 2(S - 1) ticks exchange two messages each; parameters and their gradients are exchanged once."""
    step = dlc.jit(mesh=dlc.make_mesh({"stage": 4}), num_threads=1)(dlc.value_and_grad(pipelined({}, 8)))
    text = step.lower(PARAMETERS, TOKENS, TARGETS).as_text("sharding").partition("builtin.module")[0]
    float_messages = [line for line in text.splitlines() if "dl.permute" in line and "float32" in line]
    assert len(float_messages) == 2 and all(": 14 × " in line for line in float_messages)
    assert text.count("dl.all_to_all") == 2
    assert "// parameters['weights'][1]: P('stage', None)" in text


def test_loss_alone() -> None:
    """Without derivatives, M + S - 1 ticks exchange a message per dtype."""
    compiled = dlc.jit(mesh=dlc.make_mesh({"stage": 2}), num_threads=1)(pipelined({}, 8))
    text = compiled.lower(PARAMETERS, TOKENS, TARGETS).as_text("sharding").partition("builtin.module")[0]
    messages = [line for line in text.splitlines() if "dl.permute" in line]
    assert len(messages) == 2 and all(": 9 × " in line for line in messages)
    require_close({"stage": 2}, pipelined({}), network, PARAMETERS, TOKENS, TARGETS)


def test_layers_in_a_scan() -> None:
    """Each stage scans over its own stacked layers."""
    layers = [values(F32, 3, 6, 6, scale=0.3, seed=k) for k in range(2)]
    x = values(F32, 8, 6, seed=9)

    def stacked(layers: Any, x: Any) -> Any:
        for k, group in enumerate(layers):
            x = dlc.stage(x) if k else x
            x = lax.scan(lambda h, w: (h + dnp.tanh(h @ w), None), x, group)[0]
        return dnp.mean(x**2)

    gradients = dlc.value_and_grad(pipelined({}, 2, stacked), argnums=(0, 1))
    require_close({"stage": 2}, gradients, dlc.value_and_grad(stacked, argnums=(0, 1)), layers, x)


def test_values_that_are_not_passed() -> None:
    """A later stage computes a value again that was not passed to dlc.stage, and its gradient is complete."""

    def with_skip(w: Any, x: Any) -> Any:
        first = dnp.tanh(x @ w[0])
        h = dlc.stage(first @ w[1])
        return dnp.mean((h + first) ** 2)

    arguments = [values(F32, 4, 4, seed=k) for k in range(2)], values(F32, 8, 4, seed=3)
    require_close({"stage": 2}, dlc.value_and_grad(pipelined({}, 4, with_skip)), dlc.value_and_grad(with_skip), *arguments)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["f16", "bf16"])
def test_half_precision(dtype: Any) -> None:
    """Gradients of 16-bit parameters are added in f32; the loss is in single precision."""

    def mixed(w: Any, x: Any) -> Any:
        h = dlc.stage(dnp.tanh(x @ w[0]))
        return dnp.mean((h @ w[1]).astype(np.float32) ** 2)

    arguments = [values(F32, 4, 4, seed=k).astype(dtype) for k in range(2)], values(F32, 32, 4, seed=3).astype(dtype)
    gradients, expected = dlc.value_and_grad(pipelined({}, 16, mixed)), dlc.value_and_grad(mixed)
    require_close({"stage": 2}, gradients, expected, *arguments, rtol=1e-2)


def test_second_derivatives() -> None:
    def function(w: Any, x: Any) -> Any:
        return dnp.mean((dlc.stage(dnp.tanh(x @ w[0])) @ w[1]) ** 2)

    def product(loss: Any) -> Any:
        return lambda w, x: dlc.grad(lambda w: dnp.sum(dlc.grad(loss)(w, x)[0] ** 2))(w)

    arguments = [values(F32, 4, 4, seed=k) for k in range(2)], values(F32, 4, 4, seed=3)
    require_close({"stage": 2}, product(pipelined({}, 2, function)), product(function), *arguments)


def test_custom_rules() -> None:
    @dlc.custom_vjp
    def double(x: Any) -> Any:
        return 2 * x

    double.defvjp(lambda x: (2 * x, ()), lambda residuals, cotangent: (3 * cotangent,))

    def function(w: Any, x: Any) -> Any:
        return dnp.mean(double(dlc.stage(x * w)))

    arguments = np.float32(2), values(F32, 4, 3)
    require_close({"stage": 2}, dlc.value_and_grad(pipelined({}, 2, function)), dlc.value_and_grad(function), *arguments)


def test_stage_without_a_pipeline() -> None:
    assert dlc.stage({"a": 1}) == {"a": 1}
    np.testing.assert_array_equal(dlc.jit(lambda x: dlc.stage(x) + 1)(np.ones(2)), 2)


def test_errors() -> None:
    def lower(axes: dict[str, int], function: Any = network, count: int = 4, **options: Any) -> None:
        piped = dlc.pipeline(function, num_micro_batches=count, **options)
        dlc.jit(mesh=dlc.make_mesh(axes) if axes else None)(piped).lower(PARAMETERS, TOKENS, TARGETS)

    def without_mean(parameters: Any, tokens: Any, targets: Any) -> Any:
        return dlc.stage(targets) * 2

    def in_a_loop(parameters: Any, tokens: Any, targets: Any) -> Any:
        return dnp.sum(lax.fori_loop(0, 3, lambda k, x: dlc.stage(x), targets))

    with pytest.raises(ShapeError, match=r"test_pipeline.py:\d+: dlc.pipeline: the function has 4 stages, for 3 ranks; call"):
        lower({"stage": 3})
    with pytest.raises(DTypeError, match="'stage' is not an axis of the mesh data=2"):
        lower({"data": 2})
    with pytest.raises(DTypeError, match="the axis 'stage' is given twice"):
        lower({"stage": 2}, batch_axes=["stage"])
    with pytest.raises(DlcError, match=r"test_pipeline.py:\d+: dlc.stage: called in the body of a loop"):
        lower({"stage": 2}, in_a_loop)
    for axes in ({}, {"stage": 2}):
        with pytest.raises(ShapeError, match="batch size 16; expected a multiple of num_micro_batches = 5"):
            lower(axes, count=5)
        with pytest.raises(ShapeError, match="num_micro_batches = 0; expected at least 1"):
            lower(axes, count=0)
        with pytest.raises(ShapeError, match=r"the function returned float32 of shape \(4, 3\); expected the loss, a scalar"):
            lower(axes, without_mean)
        with pytest.raises(ShapeError, match="the function returned a NoneType; expected the loss"):
            lower(axes, lambda parameters, tokens, targets: dlc.stage(None))
        with pytest.raises(ShapeError, match=r"batch\[1\] has shape \(8, 3\); expected the batch as axis 0 of all arrays"):
            mesh = dlc.make_mesh(axes) if axes else None
            dlc.jit(mesh=mesh)(pipelined({}, 2)).lower(PARAMETERS, TOKENS, TARGETS[:8])
