"""Derivatives of kernels against finite differences, and of batches against a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.kernels as k
import dlc.numpy as dnp
from dlc.kernel_functions.parallel_dims import parallel_dims
from tests.kernels import kernels, test_kernel_examples, test_tiles
from tests.targets import NATIVE, TARGETS

RNG = np.random.default_rng(0)


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


@dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
def smoothed(x: Any, y: Any) -> None:
    """Exponential smoothing: the variable of the loop is used in a sum."""
    for row in k.grid(x.shape[0]):
        level = k.variable(0, x.dtype)
        for t in k.range(x.shape[1]):
            level.value = 0.75 * level.value + x[row, t]
            y[row, t] = level.value


@dlc.kernel(results=lambda x: (k.Result(x.shape, x.dtype), k.Result(x.shape[:1], x.dtype), k.Result(x.shape[:1], np.int32)))
def several(x: Any, softmax: Any, largest: Any, number: Any) -> None:
    for row in k.grid(x.shape[0]):
        v = x.load(row, 0, width=8)
        weights = k.exp(v - v.max())
        softmax.store(row, 0, value=weights / weights.sum())
        largest[row] = k.stack([v.min(), x[row, 3] * x[row, 2], k.tanh(x[row, 1])]).max()
        number[row] = 3


@dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype, fill=0))
def overwritten(x: Any, y: Any) -> None:
    """Only the last product of each row is left."""
    for row in k.grid(x.shape[0]):
        for j in k.range(0, x.shape[1], 2):
            y[row, 1] = x[row, j] * x[row, j]


@dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
def functions(x: Any, y: Any) -> None:
    for i in k.grid(x.shape[0]):
        v = k.absolute(x[i]) + 0.5
        smooth = k.exp2(v) + k.expm1(v) + k.log(v) + k.log2(v) + k.log1p(v) + k.sqrt(v) + k.rsqrt(v) + k.erf(v)
        y[i] = smooth + k.sin(v) * k.cos(v) - k.power(v, 1.5) / v + k.minimum(v, 1.0) * k.maximum(v, 0.9) + k.floor(v)


def two_results(x: Any) -> Any:
    softmax, largest, _ = several(x)
    return softmax, largest


BLOCK_PRODUCT = test_kernel_examples.CASES["block product"]
CASES: dict[str, tuple[Callable[..., Any], Sequence[np.ndarray]]] = {
    "stencil": (kernels.stencil, [normal(5, 6)]),
    "rms_norm": (kernels.rms_norm, [normal(3, 16), normal(16)]),
    "segment_sum": (lambda x: kernels.segment_sum(x, np.array([0, 2, 2, 1], np.int32), count=3), [normal(4, 3)]),
    "matmul": (test_tiles.matmul, [normal(13, 7), normal(7, 20)]),
    "smoothed": (smoothed, [normal(3, 7)]),
    "several": (two_results, [normal(3, 8)]),
    "local buffer": (kernels.smoothed, [normal(2, 9)]),
    "overwritten": (overwritten, [normal(3, 6)]),
    "functions": (functions, [normal(12)]),
    "3-D stencil": (test_kernel_examples.stencil, [normal(4, 5, 20)]),
    "median": (lambda x: test_kernel_examples.sliding_median(x, window=5), [normal(2, 20)]),
    "segmented sum": (
        lambda x: test_kernel_examples.segmented_sum(x, np.array([0, 3, 3, 9, 12], np.int32)),
        [normal(12, 70)],
    ),
    # Small results, since finite differences of the sine of large ones are inaccurate.
    "block product": (lambda x: 0.01 * BLOCK_PRODUCT[0](x, *BLOCK_PRODUCT[2][1:]), [normal(96)]),
    "attention": (test_kernel_examples.kernel("flash_attention", "attention"), [normal(1, 4, 20, 16), *(normal(1, 2, 20, 16),) * 2]),
    "alignment": (
        lambda costs: test_kernel_examples.kernel("smith_waterman", "alignment_scores")(
            *test_kernel_examples.CASES["alignment"][2][:2], costs
        ),
        [np.array([2, -1.3, -1.1], np.float32)],
    ),
}  # fmt: skip


def loss_of(function: Callable[..., Any]) -> Callable[..., Any]:
    def loss(*operands: Any) -> Any:
        results = function(*operands)
        arrays = results if isinstance(results, tuple) else (results,)
        return sum(((1 + n) * dnp.sin(y)).sum() for n, y in enumerate(arrays))

    return loss


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_against_finite_differences(case: str, target: str) -> None:
    function, operands = CASES[case]
    loss, step = loss_of(function), 1e-3
    gradients = dlc.jit(target=target)(dlc.grad(loss, argnums=tuple(range(len(operands)))))(*operands)
    value = dlc.jit(loss)
    random = np.random.default_rng(0)
    for n, gradient in enumerate(gradients):
        direction = random.normal(size=operands[n].shape).astype(np.float32)

        def at(t: float, n: int = n, direction: np.ndarray = direction) -> float:
            moved = [x + np.float32(t) * direction if m == n else x for m, x in enumerate(operands)]
            return float(np.asarray(value(*moved)))

        expected = (at(step) - at(-step)) / (2 * step)
        np.testing.assert_allclose(float((np.asarray(gradient) * direction).sum()), expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("target", NATIVE)
def test_half_precision(target: str) -> None:
    """The cotangents of half-precision operands are summed in float32."""
    function, (x, packed, scales) = test_kernel_examples.block_product, test_kernel_examples.CASES["block product"][2]
    gradient = dlc.jit(target=target)(dlc.grad(lambda scales: function(x, packed, scales).sum()))(scales)
    weights = np.concatenate([packed & 15, packed >> 4], 2).astype(np.float32) - 8
    np.testing.assert_allclose(gradient, (weights * x.reshape(1, -1, 32)).sum(-1), rtol=2e-3)
    assert gradient.dtype == np.float16


def test_batches_of_derivatives() -> None:
    gradient = dlc.grad(loss_of(kernels.stencil))
    x = normal(3, 5, 6)
    expected = np.stack([np.asarray(dlc.jit(gradient)(element)) for element in x])
    np.testing.assert_allclose(dlc.jit(dlc.vmap(gradient))(x), expected, rtol=1e-6)


def test_kernels_without_an_automatic_derivative() -> None:
    @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
    def recurrence(x: Any, y: Any) -> None:
        for row in k.grid(x.shape[0]):
            state = k.variable(0, x.dtype)
            for t in k.range(x.shape[1]):
                state.value = k.tanh(state.value + x[row, t])
                y[row, t] = state.value

    @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype, fill=1))
    def reads_result(x: Any, y: Any) -> None:
        for i, j in k.grid(*x.shape):
            y[i, j] = y[i, j] * x[i, j]

    x = normal(3, 4)

    @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype), checked=True)
    def checked(x: Any, y: Any) -> None:
        for i, j in k.grid(*x.shape):
            y[i, j] = x[i, j]

    for function, reason in (
        (recurrence, r"is used other than in a sum"),
        (reads_result, r"is used other than in a sum"),
        (kernels.cumulative_maximum, r"arith\.\w+ has no adjoint|is used other than in a sum"),
        (checked, "it has run-time checks"),
    ):
        np.asarray(dlc.jit(function)(x))
        with pytest.raises(
            dlc.UnsupportedError, match=rf"has no derivative: .*{reason}; give the function that calls it a rule"
        ):
            dlc.jit(dlc.grad(lambda x, function=function: function(x).sum()))(x)


@dlc.kernel(results=lambda x: k.Result(x.shape[:1], x.dtype, fill=0))
def cubes(x: Any, y: Any) -> None:
    """Sums in a result."""
    for row in k.grid(x.shape[0]):
        for j in k.range(x.shape[1]):
            y[row] += x[row, j] * x[row, j] * x[row, j]


@dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
def cleared(x: Any, y: Any) -> None:
    """Some elements are replaced by a constant after they are stored."""
    for i, j in k.grid(*x.shape):
        y[i, j] = x[i, j] * x[i, j]
    for i in k.grid(x.shape[0]):
        y[i, 0] = 0


def test_sums_in_results() -> None:
    x = normal(3, 4)
    np.testing.assert_allclose(dlc.grad(lambda x: cubes(x).sum())(x), 3 * x**2, rtol=1e-6)
    expected = 2 * x
    expected[:, 0] = 0
    np.testing.assert_allclose(dlc.grad(lambda x: cleared(x).sum())(x), expected, rtol=1e-6)


@pytest.mark.parametrize("case", ["stencil", "cubes", "functions", "rms_norm"])
def test_second_derivatives(case: str) -> None:
    """Products of the Hessian with a vector, against differences of gradients."""
    function = {"stencil": kernels.stencil, "cubes": cubes, "functions": functions}.get(case)
    if function is None:
        weights = normal(8)
        function = lambda x: kernels.rms_norm(x, weights)  # noqa: E731
    x, direction = (normal(*((6,) if case == "functions" else (3, 8))) for _ in range(2))
    gradient, step = dlc.grad(loss_of(function)), np.float32(1e-2)
    product = dlc.jit(dlc.grad(lambda x: (gradient(x) * direction).sum()))(x)
    differences = np.asarray(gradient(x + step * direction)) - np.asarray(gradient(x - step * direction))
    np.testing.assert_allclose(product, differences / (2 * step), rtol=2e-2, atol=2e-2)


def test_parallel_dimensions() -> None:
    """A dimension stays parallel if its points access different elements of operands and results."""

    def dims_of(function: Any, *operands: np.ndarray) -> list[int]:
        module = dlc.jit(function).lower(*operands)
        (op,) = (op for op in module.program.module.walk() if op.name == "dl.loops")
        body = op.body.function
        (grid,) = (inner for inner in body.body.block.ops if inner.name == "scf.parallel")
        return parallel_dims(grid, set(body.body.block.args))

    x = normal(4, 16)
    assert dims_of(smoothed, x) == [0]
    assert dims_of(kernels.cumulative_maximum, x) == [0]
    assert dims_of(test_tiles.matmul, x, normal(16, 32)) == []
    assert dims_of(test_kernel_examples.stencil, normal(4, 5, 20)) == []
