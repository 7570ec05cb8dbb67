"""An op of a plug-in for each interface: the checks that `dlc.testing` derives from its samples pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.kernels as k
from dlc import extend
from dlc.errors import UnsupportedError
from dlc.extend.ops import (
    AffineExpr,
    AffineMap,
    Array,
    Body,
    Contraction,
    DataMovement,
    DlBuilder,
    DlOp,
    GatherLike,
    Reduction,
    RowComposite,
    RowwiseKernel,
    SSAValue,
    Structure,
    Tensor,
    TensorType,
    apply,
    dl,
    element_type_of,
    irdl_op_definition,
    operand_def,
    rank_of,
    result_def,
    scalar,
    shape_of,
    tensor_type,
)
from dlc.extend.rules import Term, merge_rows, rows
from dlc.testing import BF16, F32, I8, Sample, checks_of, values


class _SameShape(DlOp):
    """An op on one operand, whose result has its type."""

    def infer(self) -> Sequence[Tensor]:
        (x,) = self.operands
        return [tensor_type(shape_of(x), element_type_of(x))]


@irdl_op_definition
class SwapOp(DataMovement):
    """Swaps the last two axes."""

    name = "kinds.swap"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        *leading, rows, columns = shape_of(self.x)
        return [tensor_type((*leading, columns, rows), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        return np.swapaxes(operands[0], -1, -2)

    def source_map(self) -> AffineMap:
        *leading, rows, columns = map(AffineExpr.dimension, range(rank_of(self.x)))
        return AffineMap(rank_of(self.x), 0, (*leading, columns, rows))


@irdl_op_definition
class LargestOp(Reduction):
    """The largest element of the last axis."""

    name = "kinds.largest"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        return [tensor_type(shape_of(self.x)[:-1], element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        return operands[0].max(-1, initial=-np.inf)

    @property
    def reduction_axes(self) -> tuple[int, ...]:
        return (rank_of(self.x) - 1,)

    @property
    def keeps_reduced_axes(self) -> bool:
        return False

    def identity(self) -> float:
        return -float("inf")

    def combine(self, body: Body, accumulator: SSAValue, element: SSAValue) -> SSAValue:
        return scalar.maximum(body, accumulator, element, element_type_of(self.x))


@irdl_op_definition
class RmsOp(_SameShape, RowComposite):
    """`x` divided by the root of the mean square of its last axis."""

    name = "kinds.rms"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def reference(self, *operands: Array) -> Array:
        x = operands[0].astype(np.float64)
        return (x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)).astype(operands[0].dtype)

    @property
    def row_axes(self) -> tuple[int, ...]:
        return (rank_of(self.x) - 1,)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build, (x,) = DlBuilder(self), operands
        mean = build(dl.ReduceMeanOp, build(dl.MulOp, x, x), axes=self.row_axes, keepdims=True)
        return [build(dl.MulOp, x, build(dl.RsqrtOp, build(dl.AddOp, mean, build.scalar(1e-6, like=mean))))]


@irdl_op_definition
class MirrorOp(_SameShape, GatherLike):
    """The columns in reverse order."""

    name = "kinds.mirror"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def reference(self, *operands: Array) -> Array:
        return np.ascontiguousarray(operands[0][..., ::-1])

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        last = scalar.subtract(body, scalar.as_index(body, shape_of(self.x)[-1]), scalar.as_index(body, 1))
        return scalar.extract(body, sources[0], [*indices[:-1], scalar.subtract(body, last, indices[-1])])


@irdl_op_definition
class RowDotOp(Contraction):
    """`Σₖ x[i, k] · w[i, k]`."""

    name = "kinds.row_dot"
    x = operand_def(TensorType)
    w = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        return [tensor_type(shape_of(self.x)[:1], element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        x, w = operands
        return (x * w).sum(1)

    def structure(self) -> Structure:
        m, k = shape_of(self.x)
        row, column = map(AffineExpr.dimension, range(2))
        maps = AffineMap(2, 0, (row, column)), AffineMap(2, 0, (row, column)), AffineMap(2, 0, (row,))
        return Structure(maps, (m, k), (False, True), ((m, k), (m, k), (m,)))

    def accumulate(self, body: Body, total: SSAValue, *elements: SSAValue) -> SSAValue:
        return scalar.multiply_add(body, *elements, total)


@irdl_op_definition
class RunningMaximumOp(RowwiseKernel, _SameShape):
    """The maximum of each element of a row of `x` [a, n] and those before it; NaN propagates."""

    name = "kinds.running_maximum"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def reference(self, *operands: Array) -> Array:
        return np.maximum.accumulate(operands[0], 1)


def running_maximum(op: RunningMaximumOp, x: Any, y: Any) -> None:
    rows, n = x.shape
    for row in k.grid(rows):
        best = k.variable(x[row, 0])
        for j in k.range(n):
            best.value = k.maximum(best.value, x[row, j])
            y[row, j] = best.value


def _largest_tangent(op: LargestOp, result: Term, operands: Sequence[Term], tangents: Sequence[Term | None]) -> Term:
    (x,), (dx,) = operands, tangents
    assert dx is not None
    is_largest = x.equals(result.reshape(*result.shape, 1)).cast(element_type_of(x.value))
    return (dx * is_largest).sum(len(x.shape) - 1).reshape(*result.shape)


def _root_mean_square(x: Any) -> Any:
    wide = x.astype(np.float64)
    return wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)


SAMPLES = [
    Sample(SwapOp, (values(F32, 2, 3, 4),), lambda x: np.swapaxes(x, 1, 2)),
    Sample(SwapOp, (values(I8, 3, 5),), lambda x: x.T),
    Sample(LargestOp, (values(F32, 2, 3, 4),), lambda x: x.max(-1)),
    Sample(RmsOp, (values(F32, 3, 33),), _root_mean_square, tolerance=1e-5),
    Sample(RmsOp, (values(BF16, 3, 33),), _root_mean_square, tolerance=2e-2),
    Sample(MirrorOp, (values(F32, 4, 3),), lambda x: x[:, ::-1]),
    Sample(RunningMaximumOp, (values(F32, 4, 9),), lambda x: np.maximum.accumulate(x, 1)),
    Sample(RowDotOp, (values(F32, 5, 7), values(F32, 5, 7, seed=1)), lambda x, w: (x * w).sum(1), tolerance=1e-6),
]
PLUGIN = extend.Plugin(
    name="kinds",
    ops=[SwapOp, LargestOp, RmsOp, MirrorOp, RowDotOp, RunningMaximumOp],
    library_kernels={RunningMaximumOp: running_maximum},
    jvp_rules={LargestOp: _largest_tangent},
    transpose_rules={
        SwapOp: lambda op, cotangent, index: cotangent.matrix_transpose(),
        MirrorOp: lambda op, cotangent, index: cotangent.op(MirrorOp),
    },
    no_derivative={RowDotOp: "of this test", RunningMaximumOp: "of this test"},
    batching_rules={SwapOp: rows, MirrorOp: rows, RunningMaximumOp: merge_rows},
    no_batching={RowDotOp: "its operands are matrices"},
    samples=SAMPLES,
)


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    dlc.register(PLUGIN)
    yield
    extend.unregister("kinds")


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_all_checks_pass(sample: Sample) -> None:
    checks = list(checks_of([sample], ["reference", "cpu"]))
    for check in checks:
        check.run()
    names = {check.name for check in checks}
    assert {"round trip", "dynamic shapes on cpu", "random program 0 on cpu"} <= names
    assert ("batching" in names) == (sample.op is not RowDotOp)


def test_errors_of_ops_without_rules_give_the_reason() -> None:
    x = np.ones((2, 3, 4), np.float32)
    with pytest.raises(
        UnsupportedError, match=r"no batching rule for kinds\.row_dot: its operands are matrices; .*of its plug-in"
    ):
        dlc.vmap(lambda x: apply(RowDotOp, x, x))(x)
    with pytest.raises(UnsupportedError, match=r"kinds\.row_dot has no derivative: of this test"):
        dlc.grad(lambda x: apply(RowDotOp, x, x).sum())(x[0])
