"""Attention as one kernel: when two contractions are fused, and how the kernel is prepared."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from dlc.dialects import dl
from dlc.ir import Context, SSAValue
from dlc.passes.fusion.form_kernels import FormKernelsPass
from dlc.passes.fusion.prepare_attention import PrepareAttentionPass
from dlc.target import CPU_LEVELS, OPENCL_PROFILES
from tests.passes.fusion.test_form_kernels import kernels
from tests.passes.programs import Program, Writer, program, randoms

AVX2 = CPU_LEVELS["cpu:avx2"]
# With 26 queries the last lanes would be empty: attention is vectorized along keys.
QUERIES, KEYS, VALUES = (2, 4, 26, 8), (2, 4, 21, 8), (2, 4, 21, 20)


def attention(b: Writer, q: SSAValue, k: SSAValue, v: SSAValue) -> SSAValue:
    scores = b(dl.MatmulOp, q, b(dl.TransposeOp, k, permutation=(0, 1, 3, 2)))
    return b(dl.MatmulOp, b(dl.SoftmaxOp, b(dl.MulOp, scores, b.scalar(0.5, like=q)), axis=3), v)


def prepared(exact: bool = False) -> Program:
    p = program(attention, *randoms(QUERIES, KEYS, VALUES))
    return p.apply(FormKernelsPass(AVX2), PrepareAttentionPass(AVX2, exact=exact), tolerance=1e-5)


def test_keys_are_packed_and_results_scaled_last() -> None:
    p = prepared()
    # 21 keys fill two panels.
    assert p.ops == ["dispatch", "reshape", "dispatch", "dispatch"]
    padding, packing, main = kernels(p)
    assert (padding, packing) == (["pad"], ["transpose"])
    assert main == ["transpose", "unpack", "matmul", "mul", "reduce_max", "sub", "exp", "reduce_sum", "div", "matmul", "mul"]
    (weights,) = (op for op in p.module.walk() if isinstance(op, dl.ExpOp))
    assert weights.absolute_accuracy is not None


@pytest.mark.parametrize(
    "target, width, packed",
    [
        # (width, packed): four lines in all sets, in half and in a quarter of the sets; five lines; a single line.
        ("cpu:avx512", 64, False),
        ("cpu:avx512", 128, False),
        ("cpu:avx512", 256, True),
        ("cpu:avx512", 80, False),
        ("cpu:avx2", 64, True),
    ],
)
def test_values_with_set_conflicts_are_packed(target: str, width: int, packed: bool) -> None:
    p = program(attention, *randoms((1, 2, 256, 8), (1, 2, 256, 8), (1, 2, 256, width)))
    for made in (FormKernelsPass(CPU_LEVELS[target]), PrepareAttentionPass(CPU_LEVELS[target])):
        made.apply(Context(), p.module)
    assert kernels(p)[-1].count("unpack") == packed


def test_exact_sums_are_unchanged() -> None:
    assert kernels(prepared(exact=True))[-1] == ["transpose", "unpack", "matmul", "mul", "softmax", "matmul"]


def with_weights(b: Writer, q: SSAValue, k: SSAValue, v: SSAValue) -> Sequence[SSAValue]:
    y = attention(b, q, k, v)
    return [y, y.owner.operands[0]]


def test_weights_with_other_readers_are_stored() -> None:
    """The backward pass is such a reader."""
    p = program(with_weights, *randoms(QUERIES, KEYS, VALUES)).apply(FormKernelsPass(AVX2), tolerance=1e-5)
    assert kernels(p) == [["transpose"], ["matmul", "mul"], ["softmax"], ["matmul"]]


@pytest.mark.parametrize("target", ["cpu:avx2", "opencl:cpu256", "opencl:gpu"])
def test_few_rows_and_devices_have_separate_kernels(target: str) -> None:
    shapes = [(1, 1, 24, 8), (1, 1, 21, 8), (1, 1, 21, 20)] if target == "cpu:avx2" else [QUERIES, KEYS, VALUES]
    p = program(attention, *randoms(*shapes)).apply(FormKernelsPass((CPU_LEVELS | OPENCL_PROFILES)[target]), tolerance=1e-5)
    assert kernels(p) == [["transpose"], ["matmul", "mul"], ["softmax"], ["matmul"]]


def logarithm(b: Writer, q: SSAValue, k: SSAValue, v: SSAValue) -> SSAValue:
    """Weights that are no softmax: their rows must be whole."""
    scores = b(dl.MatmulOp, q, b(dl.TransposeOp, k, permutation=(0, 1, 3, 2)))
    return b(dl.MatmulOp, b(dl.LogSoftmaxOp, scores, axis=3), v)


LONG = (1, 4, 32, 2), (1, 4, 8200, 2), (1, 4, 8200, 3)
WHOLE = [["transpose"], ["matmul", "mul"], ["softmax"], ["matmul"]]


@pytest.mark.parametrize(
    "body, dtype, exact, expected",
    [
        (attention, np.float32, False, [["transpose"], ["matmul", "mul", "softmax", "matmul"]]),
        (attention, np.float32, True, WHOLE),
        (attention, np.float16, False, WHOLE),
        (logarithm, np.float32, False, [["transpose"], ["matmul"], ["log_softmax"], ["matmul"]]),
    ],
)
def test_long_rows_are_fused_with_an_online_softmax(
    body: Callable[..., SSAValue], dtype: type, exact: bool, expected: list[list[str]]
) -> None:
    p = program(body, *(x.astype(dtype) for x in randoms(*LONG)))
    FormKernelsPass(AVX2, exact=exact).apply(Context(), p.module)
    assert kernels(p) == expected


def test_fully_masked_rows_are_zero() -> None:
    """Their sums are 0/0 until the final select, as the weights were before."""

    def body(b: Writer, q: SSAValue, k: SSAValue, v: SSAValue, mask: SSAValue) -> SSAValue:
        scores = b(dl.MatmulOp, q, b(dl.TransposeOp, k, permutation=(0, 1, 3, 2)))
        scores = b(dl.SelectOp, mask, scores, b.scalar(-np.inf, like=q))
        top = b(dl.ReduceMaxOp, scores, axes=(3,), keepdims=True)
        attends = b(dl.GreaterOp, top, b.scalar(-np.inf, like=q))
        weights = b(dl.SelectOp, attends, b(dl.SoftmaxOp, scores, axis=3), b.scalar(0.0, like=q))
        return b(dl.MatmulOp, weights, v)

    mask = np.random.default_rng(0).random((26, 21)) < 0.5
    mask[5] = False
    p = program(body, *randoms(QUERIES, KEYS, VALUES), mask)
    p.apply(FormKernelsPass(AVX2), PrepareAttentionPass(AVX2), tolerance=1e-5)
    assert kernels(p)[-1][-3:] == ["matmul", "mul", "select"]
    (y,) = p.run()
    assert not y[:, :, 5].any()
    assert y[:, :, 6].all()
