"""When attention has its queries along the lanes, and what its kernel is then."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.programs.program import DispatchOp
from dlc.ir import SSAValue, i64
from dlc.passes.fusion.form_kernels import FormKernelsPass
from dlc.passes.fusion.masks_by_places import MasksByPlacesPass
from dlc.passes.fusion.prepare_weighted_sums import PrepareWeightedSumsPass
from dlc.target import CPU_LEVELS
from tests.passes.fusion.test_form_kernels import kernels
from tests.passes.programs import Program, Writer, program, randoms

AVX2 = CPU_LEVELS["cpu:avx2"]
QUERIES, KEYS, VALUES = (2, 4, 24, 8), (2, 4, 21, 8), (2, 4, 21, 20)
Scores = Callable[[Writer, SSAValue, Sequence[SSAValue]], SSAValue]


def attention(scores: Scores | None = None) -> Callable[..., SSAValue]:
    """softmax(q · kᵀ)·v, with something done to scores."""

    def body(b: Writer, q: SSAValue, k: SSAValue, v: SSAValue, *others: SSAValue) -> SSAValue:
        made = b(dl.MatmulOp, q, b(dl.TransposeOp, k, permutation=(0, 1, 3, 2)))
        return b(dl.MatmulOp, b(dl.SoftmaxOp, made if scores is None else scores(b, made, others), axis=3), v)

    return body


def prepared(p: Program, target: str = "cpu:avx2", exact: bool = False) -> Program:
    at = CPU_LEVELS[target]
    return p.apply(FormKernelsPass(at), MasksByPlacesPass(), PrepareWeightedSumsPass(at, exact=exact), tolerance=1e-5)


def is_turned(p: Program) -> bool:
    """Whether the first contraction of the last kernel, for the queries and keys above, makes [key, query]."""
    first = next(op for op in p.module.walk() if isinstance(op, dl.MatmulOp | dl.DotGeneralOp))
    *_, keys, numbers = shape_of(first.lhs)
    *_, more, queries = shape_of(first.rhs)
    return numbers == more and (keys, queries) == (21, 24)


def test_scores_maxima_and_sums_go_up_and_down() -> None:
    p = prepared(program(attention(), *randoms(QUERIES, KEYS, VALUES)))
    # Keys are read as they lie.
    assert p.ops == ["dispatch"]
    made = ["transpose", "cast", "matmul", "reduce_max", "sub", "exp", "reduce_sum", "div", "transpose", "matmul"]
    assert kernels(p) == [[*made, "transpose", "mul"]]
    assert is_turned(p)
    maximum, total = (op for op in p.module.walk() if isinstance(op, dl.ReduceMaxOp | dl.ReduceSumOp))
    assert shape_of(maximum.result) == shape_of(total.result) == (2, 4, 1, 24)


def scaled(b: Writer, q: SSAValue, k: SSAValue, v: SSAValue) -> SSAValue:
    """As ONNX's Attention has it: queries, then scores."""
    q = b(dl.MulOp, q, b.scalar(0.5, like=q))
    made = b(dl.MatmulOp, q, b(dl.TransposeOp, k, permutation=(0, 1, 3, 2)))
    return b(dl.MatmulOp, b(dl.SoftmaxOp, b(dl.MulOp, made, b.scalar(3.0, like=q)), axis=3), v)


def test_queries_are_scaled_as_they_are_copied() -> None:
    p = prepared(program(scaled, *randoms(QUERIES, KEYS, VALUES)))
    assert p.ops == ["dispatch"]
    assert kernels(p)[0][:4] == ["transpose", "mul", "matmul", "reduce_max"]


def test_heads_side_by_side_are_read_as_they_lie() -> None:
    def body(b: Writer, q: SSAValue, k: SSAValue, v: SSAValue) -> SSAValue:
        k = b(dl.TransposeOp, k, permutation=(0, 2, 3, 1))
        pairs = {"lhs_batch": (0, 2), "rhs_batch": (0, 1), "lhs_contract": (3,), "rhs_contract": (2,)}
        return b(dl.MatmulOp, b(dl.SoftmaxOp, b(dl.DotGeneralOp, q, k, **pairs), axis=3), v)

    p = prepared(program(body, *randoms((2, 32, 4, 8), (2, 21, 4, 8), VALUES)), "cpu:avx512")
    assert p.ops == ["dispatch"]
    assert "unpack" not in kernels(p)[-1]
    # Registers of 32 bytes hold a line of values.
    p = prepared(program(body, *randoms((2, 32, 4, 8), (2, 21, 4, 8), VALUES)))
    assert "unpack" in kernels(p)[-1]


def test_many_keys_and_values_of_heads_side_by_side_are_brought_together() -> None:
    def body(b: Writer, q: SSAValue, k: SSAValue, v: SSAValue) -> SSAValue:
        k = b(dl.TransposeOp, k, permutation=(0, 2, 3, 1))
        pairs = {"lhs_batch": (0, 2), "rhs_batch": (0, 1), "lhs_contract": (3,), "rhs_contract": (2,)}
        weights = b(dl.SoftmaxOp, b(dl.DotGeneralOp, q, k, **pairs), axis=3)
        pairs = {"lhs_batch": (0, 1), "rhs_batch": (0, 2), "lhs_contract": (3,), "rhs_contract": (1,)}
        return b(dl.DotGeneralOp, weights, v, **pairs)

    p = prepared(program(body, *randoms((1, 64, 4, 64), (1, 512, 4, 64), (1, 512, 4, 64))), "cpu:avx512")
    assert kernels(p)[:2] == [["transpose"], ["transpose"]]
    assert p.ops == ["dispatch", "dispatch", "dispatch"]


def lies_by_numbers(b: Writer, q: SSAValue, k: SSAValue, v: SSAValue) -> SSAValue:
    return b(dl.MatmulOp, b(dl.SoftmaxOp, b(dl.MatmulOp, q, k), axis=3), v)


@pytest.mark.parametrize(
    "body, q, k",
    [
        # Of 26 lanes a fifth would be empty.
        (attention(), (2, 4, 26, 8), KEYS),
        (attention(), (2, 40, 4, 8), (2, 40, 21, 8)),
        # The numbers of a key lie apart.
        (lies_by_numbers, QUERIES, (2, 4, 8, 21)),
    ],
)
def test_others_have_keys_along_the_lanes(body: Callable[..., SSAValue], q: tuple[int, ...], k: tuple[int, ...]) -> None:
    p = prepared(program(body, *randoms(q, k, (*k[:2], 21, 20))))
    assert "unpack" in kernels(p)[-1]
    assert not is_turned(p)


@pytest.mark.parametrize("heads, turned", [(4, True), (8, True), (16, False)])
def test_keys_that_crowd_a_few_sets_of_the_nearest_cache_are_copied(heads: int, turned: bool) -> None:
    """Heads of 64 side by side are 1,024, 2,048 and 4,096 bytes apart."""

    def body(b: Writer, q: SSAValue, k: SSAValue, v: SSAValue) -> SSAValue:
        k = b(dl.TransposeOp, k, permutation=(0, 2, 3, 1))
        return b(dl.MatmulOp, b(dl.SoftmaxOp, b(dl.MatmulOp, q, k), axis=3), v)

    p = prepared(program(body, *randoms((1, heads, 32, 64), (1, 21, heads, 64), (1, heads, 21, 20))), "cpu:avx512")
    assert ("unpack" in kernels(p)[-1]) != turned


def added(b: Writer, scores: SSAValue, others: Sequence[SSAValue]) -> SSAValue:
    return b(dl.AddOp, scores, others[0])


def causal(b: Writer, scores: SSAValue, others: Sequence[SSAValue]) -> SSAValue:
    queries, keys = shape_of(scores)[-2:]
    i, j = (b(dl.IotaOp, size=(n,), to=i64, start=0, step=1) for n in (queries, keys))
    seen = b(dl.LessEqualOp, j, b(dl.ReshapeOp, i, shape=(queries, 1)))
    return b(dl.SelectOp, seen, scores, b.scalar(-np.inf, like=scores))


@pytest.mark.parametrize(
    "scores, mask, turned",
    [
        (added, (2, 1, 1, 21), True),
        (added, (21,), True),
        (added, (4, 24, 1), True),
        (added, (1, 1), True),
        (causal, (), True),
        # Its rows are those of queries: lanes would lie apart.
        (added, (24, 21), False),
    ],
)
def test_masks_are_turned_that_have_no_row_for_each_query(scores: Scores, mask: tuple[int, ...], turned: bool) -> None:
    others = [] if scores is causal else [mask]
    p = prepared(program(attention(scores), *randoms(QUERIES, KEYS, VALUES, *others)))
    assert is_turned(p) == turned


def test_nothing_is_turned_where_results_must_be_exact() -> None:
    p = prepared(program(attention(), *randoms(QUERIES, KEYS, VALUES)), exact=True)
    assert not is_turned(p)


def test_grouped_heads_share_keys_as_they_lie() -> None:
    p = prepared(program(attention(), *randoms(QUERIES, (2, 1, 21, 8), (2, 1, 21, 20))))
    assert is_turned(p)
    (dispatch,) = (op for op in p.main.body.block.ops if isinstance(op, DispatchOp))
    assert shape_of(dispatch.arguments[1]) == (2, 1, 21, 8)


def test_a_kernel_that_scales_other_values_too_stays() -> None:
    def body(b: Writer, q: SSAValue, k: SSAValue, v: SSAValue, more: SSAValue) -> Sequence[SSAValue]:
        return scaled(b, q, k, v), b(dl.MulOp, more, b.scalar(0.5, like=q))

    p = prepared(program(body, *randoms(QUERIES, KEYS, VALUES, QUERIES)))
    assert ["mul"] in kernels(p)
    assert p.ops == ["dispatch", "dispatch"]
