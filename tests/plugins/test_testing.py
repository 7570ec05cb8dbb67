"""The checks that `dlc.testing` derives from samples find planted faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from click.testing import CliRunner

import dlc
from dlc import extend
from dlc.extend.ops import (
    Array,
    Body,
    Composite,
    DlBuilder,
    SSAValue,
    Tensor,
    TensorType,
    Unary,
    dl,
    element_type_of,
    irdl_op_definition,
    operand_def,
    result_def,
    scalar,
    shape_of,
    tensor_type,
)
from dlc.testing import F32, Sample, checks_of, exactly, values
from dlc.testing.__main__ import main


@irdl_op_definition
class TripleOp(Unary):
    """`3·x`."""

    name = "test.triple"
    KINDS: ClassVar[tuple[str, ...]] = ("float",)

    def numpy(self, x: Array) -> Array:
        return x * 3

    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        return scalar.multiply(body, scalar.like(body, FACTORS["emit"], x), x)


@irdl_op_definition
class TailSumOp(Composite):
    """The sum of the last axis."""

    name = "test.tail_sum"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        return [tensor_type(shape_of(self.x)[:-1], element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        return operands[0].sum(-1)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build = DlBuilder(self)
        y = build(dl.ReduceSumOp, operands[0], axes=(-1,), keepdims=False)
        return [build(dl.MulOp, y, build.scalar(FACTORS["decompose"] / 3, like=y))]


FACTORS = {"emit": 3, "decompose": 3, "partial": 3}
SAMPLES = [
    Sample(TripleOp, (values(F32, 2, 3),), exactly(lambda x: 3 * x), tolerance=1e-6),
    Sample(TailSumOp, (values(F32, 4, 3),), exactly(lambda x: x.sum(-1)), tolerance=1e-6),
]


def add_batch_axis(context: Any, op: Any) -> Sequence[SSAValue]:
    """Add a batch axis; the op works on the last one."""
    return context.clone_op(op, context.with_batch_axis(op.x))


@pytest.fixture
def registered() -> Iterator[None]:
    plugin = extend.Plugin(
        name="testing",
        ops=[TripleOp, TailSumOp],
        partials={TripleOp: (lambda r, x: FACTORS["partial"],)},
        batching_rules={TailSumOp: add_batch_axis},
        samples=SAMPLES,
    )
    dlc.register(plugin)
    yield
    extend.unregister("testing")


def failures() -> set[str]:
    found = set[str]()
    for check in checks_of(SAMPLES, ["cpu"]):
        try:
            check.run()
        except AssertionError:
            found.add(check.name)
    return found


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (None, set()),
        ("emit", {"scalar body", "results on cpu", "dynamic shapes on cpu", "batching on cpu"}),
        ("decompose", {"decomposition", "results on cpu", "dynamic shapes on cpu", "batching on cpu", "forward mode"}),
        ("partial", {"forward mode"}),
    ],
)
def test_planted_faults_are_found(
    fault: str | None, found: set[str], registered: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault is not None:
        monkeypatch.setitem(FACTORS, fault, 4)
    monkeypatch.setenv("DLC_CACHE", "0")
    by_name = failures()
    assert found <= by_name and (found or not by_name)


def test_the_command_reports_failures_and_ops_without_samples(
    registered: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(*arguments: str) -> Any:
        return CliRunner().invoke(main, list(arguments))

    result = run("testing", "--target", "reference", "-k", "reference")
    assert result.exit_code == 0 and "0 failed, on reference" in result.output
    monkeypatch.setitem(FACTORS, "decompose", 4)
    result = run("testing", "--target", "reference", "-k", "decomposition")
    assert result.exit_code == 1 and "FAILED decomposition[test.tail_sum-float32]: AssertionError" in result.output
    result = run("no_such_package")
    assert result.exit_code == 1 and "no plug-in or package has this name" in result.output
    plugin = extend.Plugin(name="testing", ops=[TripleOp, TailSumOp], samples=SAMPLES[:1])
    dlc.register(plugin)
    result = run("testing", "--target", "reference", "-k", "nothing")
    assert result.exit_code == 1 and "FAILED test.tail_sum has no sample" in result.output


def test_samples_accept_numpy_scalars() -> None:
    sample = Sample(TripleOp, (np.float32(2),), lambda x: 3 * x)
    assert isinstance(sample.operands[0], np.ndarray)
