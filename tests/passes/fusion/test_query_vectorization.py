"""When attention is vectorized along queries, and the resulting kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.programs.program import DispatchOp
from dlc.ir import SSAValue, i64
from dlc.passes.fusion.form_kernels import FormKernelsPass
from dlc.passes.fusion.masks_by_position import MasksByPositionPass
from dlc.passes.fusion.prepare_attention import PrepareAttentionPass
from dlc.target import CPU_LEVELS
from tests.passes.fusion.test_form_kernels import kernels
from tests.passes.programs import Program, Writer, program, randoms

AVX2 = CPU_LEVELS["cpu:avx2"]
QUERIES, KEYS, VALUES = (2, 4, 24, 8), (2, 4, 21, 8), (2, 4, 21, 20)
Scores = Callable[[Writer, SSAValue, Sequence[SSAValue]], SSAValue]


def attention(scores: Scores | None = None) -> Callable[..., SSAValue]:
    """Return softmax(q · kᵀ)·v with a function applied to the scores."""

    def body(b: Writer, q: SSAValue, k: SSAValue, v: SSAValue, *others: SSAValue) -> SSAValue:
        made = b(dl.MatmulOp, q, b(dl.TransposeOp, k, permutation=(0, 1, 3, 2)))
        return b(dl.MatmulOp, b(dl.SoftmaxOp, made if scores is None else scores(b, made, others), axis=3), v)

    return body


def prepared(p: Program, target: str = "cpu:avx2", exact: bool = False) -> Program:
    at = CPU_LEVELS[target]
    return p.apply(FormKernelsPass(at), MasksByPositionPass(), PrepareAttentionPass(at, exact=exact), tolerance=1e-5)


def is_transposed(p: Program) -> bool:
    """Return whether the first contraction of the last kernel computes [key, query], for the queries and keys above."""
    first = next(op for op in p.module.walk() if isinstance(op, dl.MatmulOp | dl.DotGeneralOp))
    *_, keys, numbers = shape_of(first.lhs)
    *_, more, queries = shape_of(first.rhs)
    return numbers == more and (keys, queries) == (21, 24)


def test_scores_maxima_and_sums_are_transposed() -> None:
    p = prepared(program(attention(), *randoms(QUERIES, KEYS, VALUES)))
    # Keys are read in place.
    assert p.ops == ["dispatch"]
    made = ["transpose", "cast", "matmul", "reduce_max", "sub", "exp", "reduce_sum", "div", "transpose", "matmul"]
    assert kernels(p) == [[*made, "transpose", "mul"]]
    assert is_transposed(p)
    maximum, total = (op for op in p.module.walk() if isinstance(op, dl.ReduceMaxOp | dl.ReduceSumOp))
    assert shape_of(maximum.result) == shape_of(total.result) == (2, 4, 1, 24)


def scaled(b: Writer, q: SSAValue, k: SSAValue, v: SSAValue) -> SSAValue:
    """Scale as ONNX's Attention does: queries, then scores."""
    q = b(dl.MulOp, q, b.scalar(0.5, like=q))
    made = b(dl.MatmulOp, q, b(dl.TransposeOp, k, permutation=(0, 1, 3, 2)))
    return b(dl.MatmulOp, b(dl.SoftmaxOp, b(dl.MulOp, made, b.scalar(3.0, like=q)), axis=3), v)


def test_queries_are_scaled_in_their_copy() -> None:
    p = prepared(program(scaled, *randoms(QUERIES, KEYS, VALUES)))
    assert p.ops == ["dispatch"]
    assert kernels(p)[0][:4] == ["transpose", "mul", "matmul", "reduce_max"]


def test_interleaved_heads_are_read_in_place() -> None:
    def body(b: Writer, q: SSAValue, k: SSAValue, v: SSAValue) -> SSAValue:
        k = b(dl.TransposeOp, k, permutation=(0, 2, 3, 1))
        pairs = {"lhs_batch": (0, 2), "rhs_batch": (0, 1), "lhs_contract": (3,), "rhs_contract": (2,)}
        return b(dl.MatmulOp, b(dl.SoftmaxOp, b(dl.DotGeneralOp, q, k, **pairs), axis=3), v)

    p = prepared(program(body, *randoms((2, 32, 4, 8), (2, 21, 4, 8), VALUES)), "cpu:avx512")
    assert p.ops == ["dispatch"]
    assert "unpack" not in kernels(p)[-1]
    # Two registers of 32 bytes hold a line of values.
    p = prepared(program(body, *randoms((2, 32, 4, 8), (2, 21, 4, 8), VALUES)))
    assert "unpack" in kernels(p)[-1]


def test_large_interleaved_keys_and_values_are_copied() -> None:
    def body(b: Writer, q: SSAValue, k: SSAValue, v: SSAValue) -> SSAValue:
        k = b(dl.TransposeOp, k, permutation=(0, 2, 3, 1))
        pairs = {"lhs_batch": (0, 2), "rhs_batch": (0, 1), "lhs_contract": (3,), "rhs_contract": (2,)}
        weights = b(dl.SoftmaxOp, b(dl.DotGeneralOp, q, k, **pairs), axis=3)
        pairs = {"lhs_batch": (0, 1), "rhs_batch": (0, 2), "lhs_contract": (3,), "rhs_contract": (1,)}
        return b(dl.DotGeneralOp, weights, v, **pairs)

    p = prepared(program(body, *randoms((1, 64, 4, 64), (1, 512, 4, 64), (1, 512, 4, 64))), "cpu:avx512")
    assert kernels(p)[:2] == [["transpose"], ["transpose"]]
    assert p.ops == ["dispatch", "dispatch", "dispatch"]


def inner_first_keys(b: Writer, q: SSAValue, k: SSAValue, v: SSAValue) -> SSAValue:
    return b(dl.MatmulOp, b(dl.SoftmaxOp, b(dl.MatmulOp, q, k), axis=3), v)


@pytest.mark.parametrize(
    "body, q, k",
    [
        # With 26 queries a fifth of the lanes would be empty.
        (attention(), (2, 4, 26, 8), KEYS),
        (attention(), (2, 40, 4, 8), (2, 40, 21, 8)),
        # The elements of a key are strided.
        (inner_first_keys, QUERIES, (2, 4, 8, 21)),
    ],
)
def test_other_kernels_are_vectorized_along_keys(body: Callable[..., SSAValue], q: tuple[int, ...], k: tuple[int, ...]) -> None:
    p = prepared(program(body, *randoms(q, k, (*k[:2], 21, 20))))
    assert "unpack" in kernels(p)[-1]
    assert not is_transposed(p)


@pytest.mark.parametrize("heads, transposed", [(4, True), (8, True), (16, False)])
def test_keys_with_set_conflicts_are_copied(heads: int, transposed: bool) -> None:
    """Interleaved heads of 64 elements have a stride of 1,024, 2,048 or 4,096 bytes."""

    def body(b: Writer, q: SSAValue, k: SSAValue, v: SSAValue) -> SSAValue:
        k = b(dl.TransposeOp, k, permutation=(0, 2, 3, 1))
        return b(dl.MatmulOp, b(dl.SoftmaxOp, b(dl.MatmulOp, q, k), axis=3), v)

    p = prepared(program(body, *randoms((1, heads, 32, 64), (1, 21, heads, 64), (1, heads, 21, 20))), "cpu:avx512")
    assert ("unpack" in kernels(p)[-1]) != transposed


def added(b: Writer, scores: SSAValue, others: Sequence[SSAValue]) -> SSAValue:
    return b(dl.AddOp, scores, others[0])


def causal(b: Writer, scores: SSAValue, others: Sequence[SSAValue]) -> SSAValue:
    queries, keys = shape_of(scores)[-2:]
    i, j = (b(dl.IotaOp, size=(n,), to=i64, start=0, step=1) for n in (queries, keys))
    seen = b(dl.LessEqualOp, j, b(dl.ReshapeOp, i, shape=(queries, 1)))
    return b(dl.SelectOp, seen, scores, b.scalar(-np.inf, like=scores))


@pytest.mark.parametrize(
    "scores, mask, transposed",
    [
        (added, (2, 1, 1, 21), True),
        (added, (21,), True),
        (added, (4, 24, 1), True),
        (added, (1, 1), True),
        (causal, (), True),
        # Its rows are along queries: lanes would be strided.
        (added, (24, 21), False),
    ],
)
def test_masks_without_a_row_per_query_are_transposed(scores: Scores, mask: tuple[int, ...], transposed: bool) -> None:
    others = [] if scores is causal else [mask]
    p = prepared(program(attention(scores), *randoms(QUERIES, KEYS, VALUES, *others)))
    assert is_transposed(p) == transposed


def test_exact_results_are_not_transposed() -> None:
    p = prepared(program(attention(), *randoms(QUERIES, KEYS, VALUES)), exact=True)
    assert not is_transposed(p)


def test_grouped_heads_share_keys_in_place() -> None:
    p = prepared(program(attention(), *randoms(QUERIES, (2, 1, 21, 8), (2, 1, 21, 20))))
    assert is_transposed(p)
    (dispatch,) = (op for op in p.main.body.block.ops if isinstance(op, DispatchOp))
    assert shape_of(dispatch.arguments[1]) == (2, 1, 21, 8)


def test_a_kernel_that_scales_other_values_is_unchanged() -> None:
    def body(b: Writer, q: SSAValue, k: SSAValue, v: SSAValue, more: SSAValue) -> Sequence[SSAValue]:
        return scaled(b, q, k, v), b(dl.MulOp, more, b.scalar(0.5, like=q))

    p = prepared(program(body, *randoms(QUERIES, KEYS, VALUES, QUERIES)))
    assert ["mul"] in kernels(p)
    assert p.ops == ["dispatch", "dispatch"]
