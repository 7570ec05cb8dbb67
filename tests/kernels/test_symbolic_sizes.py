"""Kernels on arrays of symbolic sizes: one program for all sizes that meet its guards."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.kernels as k
from dlc.dialects.registry import make_context
from dlc.ir import parse_module
from examples.kernels.flash_attention import flash_attention
from tests.kernels import kernels
from tests.targets import TARGETS


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def check(
    f: Callable[..., Any],
    calls: Sequence[Sequence[np.ndarray]],
    expected: Callable[..., np.ndarray],
    dynamic: Any,
    target: str = "cpu",
    compilations: int = 1,
) -> None:
    """Compare calls of a function with NumPy, and count its compilations."""
    parameters = [p.name for p in inspect.signature(f).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    compiled = dlc.jit(target=target, dynamic=dict(zip(parameters, dynamic, strict=True)))(f)
    for operands in calls:
        np.testing.assert_allclose(compiled(*operands), expected(*operands), rtol=1e-5, atol=1e-4)
    assert len(compiled._specializations.entries) == compilations


@dlc.kernel(results=lambda x, i: k.Result(i.shape, x.dtype), checked=True)
def take(x: Any, i: Any, y: Any) -> None:
    for j in k.grid(i.shape[0]):
        y[j] = x[k.index(i[j])]


ROWS_AND_COLUMNS = [{0: "n", 1: "m"}]


@pytest.mark.parametrize("target", TARGETS)
def test_rows_and_columns(target: str) -> None:
    calls = [(values(*shape),) for shape in ((3, 5), (1, 1), (20, 2))]
    check(kernels.centered, calls, lambda x: x - x.mean(1, keepdims=True), ROWS_AND_COLUMNS, target)


@pytest.mark.parametrize("target", TARGETS)
def test_masked_tiles(target: str) -> None:
    """Masks compare indices with the sizes of a call."""
    calls = [(values(m, depth), values(depth, n)) for m, depth, n in ((2, 3, 5), (3, 1, 8), (10, 4, 17))]
    check(kernels.matmul, calls, lambda a, b: a @ b, [{0: "m", 1: "depth"}, {0: "depth", 1: "n"}], target)


def test_without_elements() -> None:
    """The size 0 violates a guard: nothing is written, and loops over elements of it do not run."""
    calls = [(values(*shape),) for shape in ((3, 5), (0, 5), (3, 0), (2, 2))]
    check(kernels.centered, calls, lambda x: x - x.sum(1, keepdims=True) / max(x.shape[1], 1), ROWS_AND_COLUMNS, compilations=3)


def test_flash_attention() -> None:
    def attention(q: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        key, value = np.repeat(key, 2, 1), np.repeat(value, 2, 1)
        scores = np.einsum("bhqd,bhkd->bhqk", q, key) / np.sqrt(q.shape[-1])
        weights = np.exp(np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf))
        return weights @ value / weights.sum(-1, keepdims=True)

    calls = [(values(b, 4, n, 8), values(b, 2, n, 8), values(b, 2, n, 8)) for b, n in ((1, 33), (2, 50))]
    check(flash_attention, calls, attention, [{0: "b", 2: "n"}] * 3)


def test_sizes_of_results() -> None:
    calls = [(values(n),) for n in (8, 3, 65)]
    check(kernels.pair_sums, calls, lambda x: x[: len(x) // 2 * 2].reshape(-1, 2).sum(1), [{0: "n"}])


def test_strips() -> None:
    """Whole strips, and strips of one index for the rest, which is absent where the width divides the size."""
    check(kernels.doubled, [(values(n),) for n in (19, 33, 16, 64)], lambda x: 2 * x, [{0: "n"}], compilations=2)


def test_guards_of_bounds() -> None:
    """An access in bounds for some sizes only makes a guard, and the error of other sizes names them."""
    rms_norm = dlc.jit(dynamic={"x": {0: "n", 1: "m"}, "w": {0: "m"}})(lambda x, w: kernels.rms_norm(x, w))
    for m in (16, 40):
        x, w = values(3, m), values(m)
        np.testing.assert_allclose(rms_norm(x, w), kernels.rms_norm_by_numpy(x, w), rtol=1e-5)
    with pytest.raises(dlc.ShapeError, match=r"kernel rms_norm: index .* of x with 8 elements from there is not within"):
        rms_norm(values(3, 12), values(12))


def test_checked_indices() -> None:
    f = dlc.jit(dynamic={"x": {0: "n"}, "i": {0: "m"}})(lambda x, i: take(x, i))
    for n, m in ((4, 8), (9, 3)):
        x, i = values(n), np.arange(m) % n
        np.testing.assert_array_equal(f(x, i), x[i])
    with pytest.raises(dlc.DlcError, match=r"kernel take: index 9 of x is not within 0..n - 1"):
        f(values(9), np.array([0, 9, 1]))


@pytest.mark.parametrize("target", TARGETS)
def test_derivative(target: str) -> None:
    def gradient(x: Any) -> Any:
        return dlc.grad(lambda x: (kernels.centered(x) ** 3).sum())(x)

    def expected(x: np.ndarray) -> np.ndarray:
        squares = 3 * (x - x.mean(1, keepdims=True)) ** 2
        return squares - squares.mean(1, keepdims=True)

    check(gradient, [(values(*shape),) for shape in ((3, 5), (2, 2), (4, 9))], expected, ROWS_AND_COLUMNS, target)


def test_batched() -> None:
    """A static batch of arrays of symbolic sizes."""
    calls = [(values(2, *shape),) for shape in ((3, 5), (4, 2))]
    check(dlc.vmap(kernels.centered), calls, lambda x: x - x.mean(2, keepdims=True), [{1: "n", 2: "m"}])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dynamic", [{0: "b"}, {0: "b", 1: "n"}, {0: "n", 1: "n"}])
def test_symbolic_batch(dynamic: dict[int, str], target: str) -> None:
    """A batch of symbolic size, which may also be a size of the arrays."""
    shapes = [(n, n if dynamic[0] == "n" else 4, 6) for n in (3, 1, 5)]
    calls = [(values(*shape),) for shape in shapes]
    check(dlc.vmap(kernels.centered), calls, lambda x: x - x.mean(2, keepdims=True), [dynamic], target)


def test_derivative_of_a_symbolic_batch() -> None:
    def gradient(x: Any) -> Any:
        return dlc.vmap(dlc.grad(lambda x: (kernels.centered(x) ** 2).sum()))(x)

    calls = [(values(n, 3, 5),) for n in (2, 1, 0)]
    check(gradient, calls, lambda x: 2 * (x - x.mean(2, keepdims=True)), [{0: "b"}])


def test_checked_indices_of_a_symbolic_batch() -> None:
    f = dlc.jit(dlc.vmap(take, in_axes=(0, None)), dynamic={"x": {0: "b"}})
    i = np.array([2, 0, 1], np.int32)
    for n in (2, 1, 3):
        x = values(n, 4)
        np.testing.assert_array_equal(f(x, i), x[:, i])
    with pytest.raises(dlc.DlcError, match=r"kernel take: index 7 of x is not within 0..3"):
        f(values(2, 4), np.array([0, 7], np.int32))


@pytest.mark.parametrize("target", TARGETS)
def test_local_buffers(target: str) -> None:
    """The first size of a local buffer may be symbolic."""
    calls = [(values(*shape),) for shape in ((2, 5), (3, 7))]
    check(kernels.smoothed, calls, kernels.smoothed_by_numpy, [{0: "n", 1: "m"}], target)


def test_local_buffers_of_other_shapes() -> None:
    @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype, fill=0))
    def masked(x: Any, y: Any) -> None:
        for i in k.grid(x.shape[0]):
            k.buffer(x.shape[1], x.dtype).load(i, width=8, fill=0)

    @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype, fill=0))
    def two_axes(x: Any, y: Any) -> None:
        for _ in k.grid(x.shape[0]):
            k.buffer((2, x.shape[1]), x.dtype)

    with pytest.warns(UserWarning, match="specialized per shape: .*a masked access along axis 0 of the buffer, whose size is"):
        dlc.jit(dynamic={"x": {1: "m"}})(masked)(values(2, 5))
    with pytest.warns(UserWarning, match="specialized per shape: .*the size m is symbolic"):
        dlc.jit(dynamic={"x": {1: "m"}})(lambda x: two_axes(x))(values(2, 5))


def test_program_is_parsed() -> None:
    lowered = dlc.jit(dynamic={"x": {0: "n:1..", 1: "m:1.."}})(lambda x: kernels.centered(x)).lower(values(3, 5))
    parse_module(make_context(), str(lowered.program.module)).verify()


def test_saved_model(tmp_path: Path) -> None:
    lowered = dlc.jit(dynamic={"x": {0: "n:1..", 1: "m:1.."}})(lambda x: kernels.centered(x)).lower(values(3, 5))
    lowered.compile().save(tmp_path / "centered.dlc")
    model = dlc.load(tmp_path / "centered.dlc")
    for shape in ((2, 7), (11, 3)):
        x = values(*shape)
        np.testing.assert_allclose(next(iter(model(x=x).values())), x - x.mean(1, keepdims=True), rtol=1e-5, atol=1e-5)


def test_passes_preserve_results() -> None:
    f = dlc.jit(check_each_pass=True, dynamic={"x": {0: "n", 1: "m"}})(lambda x: kernels.centered(x) + 1)
    np.testing.assert_allclose(f(x := values(3, 5)), x - x.mean(1, keepdims=True) + 1, rtol=1e-5, atol=1e-5)
