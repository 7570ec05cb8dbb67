"""Every sample under `dl.vmap`, compared with the op on each batch entry."""

from __future__ import annotations

import pytest

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.distributed.collectives import Collective
from dlc.dialects.dl.distributed.shard_map import ShardMapBoundary
from dlc.dialects.dl.interfaces import Composite, DataDependent
from dlc.dialects.dl.programs.control import Control
from dlc.errors import UnsupportedError
from dlc.passes.batching.control_flow import CONTROL
from dlc.passes.batching.expand_vmap import RULES
from dlc.testing.batching_checks import batched_module, check_batching, check_batching_on_target, check_small_batch, expand_all
from dlc.testing.sample import Sample
from tests.ops.samples import SAMPLES
from tests.targets import NATIVE

# Ops that no vmap body contains, and the reason.
OPS_WITHOUT_BATCHING: dict[type[DlOp], str] = {
    dl.ConstantOp: "the same in all lanes",
    dl.WeightOp: "the same in all lanes",
    dl.IotaOp: "the same in all lanes",
    dl.SizeOp: "the same in all lanes",
    dl.PackOp: "made by assign-layouts, when no transformation is left",
    dl.UnpackOp: "made by assign-layouts, when no transformation is left",
    dl.MatmulWeightOnlyOp: "made by weight-only-contractions, when no transformation is left",
    dl.MatmulWeightOnlyDotOp: "made by quantize-weights, when no transformation is left",
}


def batching_rule(op: type[DlOp]) -> object:
    """Return the batching rule of an op; the op itself if it is batched by its decomposition."""
    return next((RULES[c] for c in op.__mro__ if c in RULES), op)


# Data-dependent ops whose result sizes do not depend on data.
STATIC_SIZES = (dl.ForeignCallOp, Collective, ShardMapBoundary)


def is_refused(op: type[DlOp]) -> bool:
    """Return whether the result sizes of an op depend on data."""
    return issubclass(op, DataDependent) and not issubclass(op, STATIC_SIZES)


BATCHED = [s for s in SAMPLES if s.op not in (*OPS_WITHOUT_BATCHING, dl.AxisIndexOp, dl.ForeignCallOp) and not is_refused(s.op)]
# One sample per op, and one per rule, for slower tests.
ONE_EACH = list({s.op: s for s in BATCHED}.values())
ONE_PER_RULE = list({batching_rule(s.op): s for s in ONE_EACH}.values())


@pytest.mark.parametrize("sample", BATCHED, ids=lambda s: s.name)
def test_samples_are_batched(sample: Sample) -> None:
    check_batching(sample)


@pytest.mark.parametrize("target", NATIVE)
@pytest.mark.parametrize("sample", ONE_PER_RULE, ids=lambda s: s.name)
def test_batched_samples_on_targets(sample: Sample, target: str) -> None:
    check_batching_on_target(sample, target)


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("sample", ONE_EACH, ids=lambda s: s.name)
def test_batch_sizes_0_and_1(sample: Sample, count: int) -> None:
    check_small_batch(sample, count)


@pytest.mark.parametrize("sample", [s for s in SAMPLES if is_refused(s.op)], ids=lambda s: s.name)
def test_data_dependent_sizes_are_refused(sample: Sample) -> None:
    module, _ = batched_module(sample, (True,) * len(sample.operands), [0 for _ in sample.operands])
    with pytest.raises(UnsupportedError, match="data-dependent result sizes"):
        expand_all(module)


def test_every_op_is_batched_or_listed() -> None:
    """Every op has a rule, a decomposition, or a reason for having neither."""
    ops = [op for op in dl.Dl.operations if issubclass(op, DlOp)]
    ruled = {op: issubclass(op, Composite) or batching_rule(op) is not op for op in ops}
    assert not [op.name for op in ops if ruled[op] + (op in OPS_WITHOUT_BATCHING) + is_refused(op) != 1]


def test_every_control_flow_op_is_batched() -> None:
    transformed = {dl.JvpOp, dl.VjpOp, dl.VmapOp}
    assert {op for op in dl.Dl.operations if issubclass(op, Control)} - transformed == set(CONTROL)
