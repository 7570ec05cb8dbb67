"""Derivatives of loops with a memory limit."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.compiler import compile
from dlc.instrument.report import Report

X, W, SEQUENCE = np.linspace(0.1, 0.7, 3), np.float64(0.3), np.random.default_rng(0).standard_normal(41) * 0.1


def simulate(reverse: bool) -> Any:
    """Return a scan with a state, a captured weight, a differentiated sequence and an output."""

    def run(x: Any, w: Any, sequence: Any) -> Any:
        def step(state: Any, u: Any) -> Any:
            a, k = state
            a = dnp.sin(a * (1 + w)) + u
            return (a, k + 1), a.sum() * w + k

        (a, _), outputs = lax.scan(step, (x, np.int32(0)), sequence, reverse=reverse)
        return a.sum() + (outputs * outputs).sum()

    return run


# Segments that divide the number of steps or not; and fewer snapshots than segments.
@pytest.mark.parametrize("memory", [None, 1_000, 150])
@pytest.mark.parametrize("reverse", [False, True])
def test_binomial_checkpoints_have_the_same_gradient(memory: int | None, reverse: bool) -> None:
    run = simulate(reverse)
    limited = dlc.checkpoint(run, policy="binomial", memory=memory)
    expected, gradient = (
        dlc.jit(dlc.grad(f, argnums=(0, 1, 2)), target="reference", cache=False)(X, W, SEQUENCE) for f in (run, limited)
    )
    for want, got in zip(expected, gradient, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_binomial_checkpoints_of_batched_functions() -> None:
    def loss(x: Any) -> Any:
        return (lax.scan(lambda c, _: (dnp.sin(c) * 1.1 + c * 0.1, None), x, None, length=20)[0] ** 2).sum()

    limited, x = dlc.checkpoint(loss, policy="binomial", memory=500), np.linspace(-1, 2, 5)
    np.testing.assert_allclose(dlc.vmap(dlc.grad(limited))(x[:, None]), dlc.vmap(dlc.grad(loss))(x[:, None]), rtol=1e-12)


def test_a_million_steps_in_little_memory() -> None:
    """The plain gradient stores 8 MB per residual."""

    def run(x: Any) -> Any:
        return lax.scan(lambda s, _: (dnp.sin(s * 1.5), None), x, None, length=1_000_000)[0]

    functions = run, dlc.checkpoint(policy="binomial", memory="100K")(run)
    plain, limited = (dlc.jit(dlc.grad(f), cache=False).lower(0.3).compile() for f in functions)
    np.testing.assert_allclose(*(list(model(0.3).values()) for model in (limited, plain)))
    assert limited.artifact.host.arena_bytes < 200_000 < 8_000_000 <= plain.artifact.host.arena_bytes


# 400 segments of 64 iterations, or 40 segments of 8 iterations with a large state, are more than there are snapshots.
@pytest.mark.parametrize(("size", "segment_length", "num_segments"), [(1, 64, 400), (20_000, 8, 40)])
def test_a_while_loop_repeats_each_iteration_a_few_times(size: int, segment_length: int, num_segments: int) -> None:
    """The number of iterations is data-dependent."""

    def halve(x: Any, n: Any) -> Any:
        return lax.while_loop(lambda s: s[1] < n, lambda s: (s[0] * (1 + 1 / (s[1] + 1)), s[1] + 1), (x, 0))[0].sum()

    gradient = dlc.jit(dlc.grad(halve), cache=False)
    for n in (0, 1, segment_length - 1, segment_length, segment_length + 1, num_segments * segment_length + 1):
        np.testing.assert_allclose(gradient(np.full(size, 2.0), np.int64(n)), n + 1, rtol=1e-12)


def test_unchanged_states_have_no_tangents() -> None:
    def run(x: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            a, table, b = state
            return (a * table[0] + b, table, b * 0.5), None

        return lax.scan(step, (x, np.ones(500), np.float64(1)), None, length=100)[0][0]

    text = dlc.jit(lambda x: dlc.jvp(run, (x,), (x,))).lower(1.0).as_text("dl")
    (signature,) = re.findall("func.func @scan.*", text)
    # The initial table, and its copy in the carry.
    assert signature.count("memref<500xf64>") == 2


def test_invalid_memory() -> None:
    with pytest.raises(dlc.DlcError, match='memory requires policy="binomial"'):
        dlc.checkpoint(simulate(False), memory="1M")
    with pytest.raises(dlc.DlcError, match="memory is '2 parsecs'; expected a positive number of bytes"):
        dlc.checkpoint(simulate(False), policy="binomial", memory="2 parsecs")


def test_limited_memory_needs_static_sizes() -> None:
    def loss(x: Any) -> Any:
        return lax.scan(lambda carry, row: (dnp.sin(carry + row), carry), x[0], x)[0].sum()

    function = dlc.grad(dlc.checkpoint(loss, policy="binomial", memory=2000))
    compiled, x = dlc.jit(target="reference", dynamic={"x": {0: "N"}}, cache=False)(lambda x: function(x)), np.ones((300, 4))
    report = Report()
    compile(compiled.lower(x).program, "reference", report=report)
    assert "checkpoint: the memory of a scan of symbolic sizes (N) cannot be limited" in (report.specialization_reason or "")
    np.testing.assert_allclose(compiled(x), dlc.jit(target="reference", cache=False)(function)(x))
