"""Kernels against NumPy on every target, batched, differentiated, in loops and in saved models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.kernels as k
import dlc.numpy as dnp
from dlc.dialects.registry import make_context
from dlc.ir import parse_module
from tests.kernels import kernels
from tests.targets import NATIVE, TARGETS

DTYPES = [np.float32, np.float64, np.int32]


def values(dtype: Any, *shape: int) -> np.ndarray:
    return (np.random.default_rng(len(shape)).normal(size=shape) * 20).astype(dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_cumulative_maximum(target: str, dtype: Any) -> None:
    x = values(dtype, 5, 9)
    y = dlc.jit(target=target)(lambda x: kernels.cumulative_maximum(x) + 1)(x)
    np.testing.assert_array_equal(y, np.maximum.accumulate(x, 1) + 1)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 4, 8, 16])
def test_rms_norm(target: str, dtype: Any, width: int) -> None:
    x, w = values(dtype, 6, 32), values(dtype, 32)
    y = dlc.jit(target=target)(lambda x, w: kernels.rms_norm(x, w, width=width))(x, w)
    np.testing.assert_allclose(y, kernels.rms_norm_by_numpy(x, w), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7, 11), (2, 300), (1, 4), (3, 3)])
def test_stencil(target: str, dtype: Any, shape: tuple[int, int]) -> None:
    x = values(dtype, *shape)
    y = dlc.jit(target=target)(kernels.stencil)(x)
    np.testing.assert_allclose(y, kernels.stencil_by_numpy(x), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ids_dtype", [np.int32, np.int64, np.uint8])
def test_segment_sum(target: str, dtype: Any, ids_dtype: Any) -> None:
    x, ids = values(dtype, 20, 3), np.random.default_rng(0).integers(0, 6, 20).astype(ids_dtype)
    y = dlc.jit(target=target)(lambda x, ids: kernels.segment_sum(x, ids, count=5))(x, ids)
    np.testing.assert_allclose(y, kernels.segment_sum_by_numpy(x, ids, 5), rtol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_two_results(target: str, dtype: Any) -> None:
    x = values(dtype, 300, 13)
    smallest, position = dlc.jit(target=target)(kernels.row_minimum)(x)
    np.testing.assert_array_equal(smallest, x.min(1))
    np.testing.assert_array_equal(position, x.argmin(1))
    assert position.dtype == np.int32


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint16, np.uint64])
def test_clip(target: str, dtype: Any) -> None:
    x, info = values(np.float32, 10), np.iinfo(dtype)
    ids = np.array([0, 3, 9, 10, 100, info.max, info.min, info.max - 1], dtype)
    y = dlc.jit(target=target)(kernels.gather_clipped)(x, ids)
    # Integers of 64 bits, signed or not, are compared as signed ones.
    signed = ids.view(np.int64) if dtype == np.uint64 else ids.astype(np.int64)
    np.testing.assert_array_equal(y, x[np.clip(signed, 0, 9)])


@pytest.mark.parametrize("target", TARGETS)
def test_buffer(target: str) -> None:
    x = values(np.float32, 4, 30)
    y = dlc.jit(target=target)(kernels.smoothed)(x)
    np.testing.assert_allclose(y, kernels.smoothed_by_numpy(x), rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_data_dependent_bounds(target: str) -> None:
    @dlc.kernel(results=lambda n: k.Result(n.shape, np.int32))
    def counts(n: Any, y: Any) -> None:
        for i in k.grid(n.shape[0]):
            count = k.variable(0, np.int32)
            for _ in k.range(2, k.index(n[i])):
                count.value += 1
            for _ in k.range(k.index(n[i]), 4, 3):
                count.value += 100
            y[i] = count.value

    n = np.array([5, 2, 1, 0, -3, 7, 100], np.int32)
    expected = [len(range(2, v)) + 100 * len(range(v, 4, 3)) for v in n]
    np.testing.assert_array_equal(dlc.jit(target=target)(counts)(n), expected)


def test_outside_of_a_traced_function() -> None:
    x = values(np.float32, 5, 9)
    np.testing.assert_array_equal(kernels.cumulative_maximum(x), np.maximum.accumulate(x, 1))
    with dlc.disable_jit():
        np.testing.assert_array_equal(kernels.cumulative_maximum(x), np.maximum.accumulate(x, 1))
        np.testing.assert_array_equal(dlc.jit(kernels.cumulative_maximum)(x), np.maximum.accumulate(x, 1))


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_empty_arrays(shape: tuple[int, int]) -> None:
    assert kernels.stencil(np.zeros(shape, np.float32)).shape == shape


def test_weights() -> None:
    """Operands that are constants of the program."""
    x = values(np.float32, 5, 9)
    y = dlc.jit(lambda z: kernels.cumulative_maximum(x) * z)(np.float32(2))
    np.testing.assert_array_equal(y, np.maximum.accumulate(x, 1) * 2)


@pytest.mark.parametrize("target", NATIVE)
def test_vmap(target: str) -> None:
    x, ids = values(np.float32, 4, 6, 5), np.random.default_rng(0).integers(0, 3, (4, 6))

    def sums(x: Any, ids: Any) -> Any:
        return kernels.segment_sum(x, ids, count=3)

    both = dlc.jit(target=target)(dlc.vmap(sums))(x, ids)
    np.testing.assert_allclose(both, np.stack([sums(a, b) for a, b in zip(x, ids, strict=True)]), rtol=1e-6)
    shared = dlc.jit(target=target)(dlc.vmap(sums, in_axes=(0, None)))(x, ids[0])
    np.testing.assert_allclose(shared, np.stack([sums(a, ids[0]) for a in x]), rtol=1e-6)
    twice = dlc.jit(target=target)(dlc.vmap(dlc.vmap(kernels.smoothed)))(np.stack([x, -x]))
    np.testing.assert_allclose(twice, np.stack([[kernels.smoothed(a) for a in y] for y in (x, -x)]), rtol=1e-6)


def test_vmap_of_vectors() -> None:
    x, w = values(np.float32, 3, 6, 32), values(np.float32, 32)
    y = dlc.jit(dlc.vmap(kernels.rms_norm, in_axes=(0, None)))(x, w)
    np.testing.assert_allclose(y, kernels.rms_norm_by_numpy(x, w), rtol=1e-5, atol=1e-5)


def test_scan() -> None:
    x = values(np.float32, 4, 9)

    def step(carry: Any, _: Any) -> Any:
        carry = kernels.smoothed(carry)
        return carry, carry.sum()

    expected, sums = x, []
    for _ in range(5):
        expected = kernels.smoothed_by_numpy(expected)
        sums.append(expected.sum())
    last, totals = dlc.jit(lambda x: dlc.lax.scan(step, x, None, length=5))(x)
    np.testing.assert_allclose(last, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(totals, sums, rtol=1e-4)


def test_branch() -> None:
    x = values(np.float32, 4, 9)
    f = dlc.jit(lambda x, flag: dlc.lax.cond(flag, kernels.smoothed, kernels.stencil, x))
    np.testing.assert_allclose(f(x, np.bool_(True)), kernels.smoothed_by_numpy(x), rtol=1e-6)
    np.testing.assert_allclose(f(x, np.bool_(False)), kernels.stencil_by_numpy(x), rtol=1e-5, atol=1e-4)


def test_custom_vjp() -> None:
    @dlc.custom_vjp
    def smooth(x: Any) -> Any:
        return kernels.smoothed(x)

    # The means of neighbors are a symmetric linear map.
    smooth.defvjp(lambda x: (kernels.smoothed(x), None), lambda _, g: (kernels.smoothed(g),))

    def loss(x: Any) -> Any:
        return (dnp.sin(smooth(x)) ** 2).sum()

    x, step = values(np.float64, 2, 5) / 20, 1e-6
    gradient = dlc.jit(dlc.grad(loss))(x)
    for index in np.ndindex(*x.shape):
        delta = np.zeros_like(x)
        delta[index] = step
        numeric = (loss(x + delta) - loss(x - delta)) / (2 * step)
        np.testing.assert_allclose(gradient[index], numeric, rtol=1e-5, atol=1e-7)


def test_without_derivative() -> None:
    with pytest.raises(
        dlc.UnsupportedError, match=r"test_kernels.py:\d+: the kernel cumulative_maximum has no derivative.*custom_vjp"
    ):
        dlc.jit(dlc.grad(lambda x: kernels.cumulative_maximum(x).sum()))(values(np.float32, 2, 5))


def test_saved_model(tmp_path: Path) -> None:
    x = values(np.float32, 4, 9)
    dlc.jit(kernels.smoothed).lower(x).compile().save(tmp_path / "smoothed.dlc")
    (result,) = dlc.load(tmp_path / "smoothed.dlc")(x=x).values()
    np.testing.assert_allclose(result, kernels.smoothed_by_numpy(x), rtol=1e-6)


@pytest.mark.parametrize("stage", ["dl", "fusion", "linalg", "loops"])
def test_dumps_are_parsed(stage: str) -> None:
    x = values(np.float32, 4, 9)
    text = dlc.jit(kernels.smoothed).lower(x).as_text(stage)
    module = parse_module(make_context(), text)
    module.verify()
    assert "smoothed" in text


def test_passes_preserve_results() -> None:
    x = values(np.float32, 4, 9)
    y = dlc.jit(check_each_pass=True)(lambda x: kernels.smoothed(x) + 1)(x)
    np.testing.assert_allclose(y, kernels.smoothed_by_numpy(x) + 1, rtol=1e-6)


def test_equal_kernels_are_compiled_once() -> None:
    text = (
        dlc.jit(lambda x, y: (kernels.smoothed(x), kernels.smoothed(y))).lower(*[values(np.float32, 2, 5)] * 2).as_text("loops")
    )
    assert text.count("func.func @smoothed") == 1


@pytest.mark.parametrize("target", TARGETS)
def test_clipped_indices_and_buffers_of_empty_arrays(target: str) -> None:
    @dlc.kernel(results=lambda x, ids: k.Result(x.shape, x.dtype, fill=0))
    def gather(x: Any, ids: Any, y: Any) -> None:
        for i in k.grid(x.shape[0]):
            row = k.buffer((2, x.shape[1]), x.dtype)
            for j in k.range(x.shape[1]):
                row[1, j] = x[k.clip(ids[i], x.shape[0]), j]
                y[i, j] = row[1, j]

    for shape in ((0, 0), (0, 3), (2, 0), (2, 3)):
        x = np.ones(shape, np.float32)
        np.testing.assert_array_equal(dlc.jit(target=target)(gather)(x, np.full(shape[0], 9, np.int32)), x)
