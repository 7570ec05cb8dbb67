"""The derivative of every op: forward mode against finite differences, reverse mode against forward mode."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, tensor_type
from dlc.dialects.dl.interfaces import Composite
from dlc.ir import Block, f64
from dlc.passes.autodiff.jvp_rules import JVP_RULES
from dlc.passes.autodiff.partials import PARTIALS
from dlc.passes.autodiff.rules import NO_DERIVATIVE, ZERO
from dlc.passes.autodiff.transpose_rules import TRANSPOSE_RULES
from dlc.testing.derivative_checks import check_forward_mode, check_reverse_mode, has_float_operands, point_of
from dlc.testing.derivative_points import Point
from dlc.testing.sample import Sample
from tests.ops.samples import SAMPLES

# Intervals in which functions are smooth; (0.2, 0.8) for all others.
_DOMAINS = {dl.AcoshOp: (1.2, 1.8)}
# Ops that are not differentiable functions of their float operands.
_NOT_SMOOTH: dict[type[DlOp], str] = {
    dl.CastOp: "between floats it is tested in programs; to integers its derivative is 0",
    **dict.fromkeys((dl.BitcastOp, dl.ViewAsOp), "the bits of a number are no smooth function of it"),
    dl.ModOp: "tested at chosen points",
    dl.FloordivOp: "0 but for steps",
    dl.UniqueOp: "has no derivative",
    dl.DequantizeOp: "of scales, whose operands are integers",
    dl.QuantizeOp: "its results are integers",
    dl.DynamicQuantizeLinearOp: "it rounds",
    dl.StopGradientOp: "its derivative is 0 by definition",
}


def _is_sampled(sample: Sample) -> bool:
    refused = sample.op in (*_NOT_SMOOTH, *NO_DERIVATIVE, dl.WinogradInputOp, dl.WinogradOutputOp) or "mul" in sample.label
    # Functions of complex matrices have rules of their own, which tests/numpy/test_complex_matrices.py tests.
    refused |= "complex" in sample.properties
    return not refused and has_float_operands(sample)


def _distinct(samples: list[Sample]) -> list[Sample]:
    """Return one of the samples that differ only in dtype."""
    found = {(s.op, s.label, tuple(x.shape for x in s.operands)): s for s in samples}
    return list(found.values())


def _point(sample: Sample) -> Point:
    point = point_of(sample, *_DOMAINS.get(sample.op, (0.2, 0.8)))
    floats = list(point.operands)
    if sample.op is dl.CholeskyOp:
        floats[0] = floats[0] + 4 * np.eye(floats[0].shape[-1])
    return _at(point.sample, floats)


def _at(sample: Sample, operands: list[np.ndarray]) -> Point:
    """Return the op at operands; for a pooling gradient the second operand is the pooled first one."""
    if sample.op is dl.MaxPoolGradientOp:
        x = Block(arg_types=[tensor_type(operands[0].shape, f64)]).args[0]
        operands[1] = dl.MaxPoolOp.make(x, **sample.properties).reference(operands[0])
    return Point(sample, tuple(operands))


every_sample = pytest.mark.parametrize("sample", _distinct(list(filter(_is_sampled, SAMPLES))), ids=lambda s: s.name)


@every_sample
def test_forward_mode_matches_finite_differences(sample: Sample) -> None:
    check_forward_mode(_point(sample))


@every_sample
def test_reverse_mode_is_the_transpose_of_forward_mode(sample: Sample) -> None:
    check_reverse_mode(_point(sample))


# Ops that compare elements have a derivative at NaN, equal in both modes; others do not.
_COMPARING = (
    *(dl.MaximumOp, dl.MinimumOp, dl.MaxPoolOp, dl.MaxPoolGradientOp, dl.SortOp, dl.ReluOp),
    dl.LeakyReluOp,
)


@pytest.mark.parametrize(
    "sample", _distinct([s for s in SAMPLES if s.op in _COMPARING and _is_sampled(s)]), ids=lambda s: s.name
)
def test_both_modes_agree_at_nan(sample: Sample) -> None:
    point = _point(sample)
    operands = [np.where(np.arange(x.size).reshape(x.shape) % 3 == 1, np.nan, x) for x in point.operands]
    check_reverse_mode(_at(point.sample, operands))


def _rules(op: type[DlOp]) -> list[str]:
    tables = {"partials": PARTIALS, "transpose": TRANSPOSE_RULES, "tangent": JVP_RULES, "zero": ZERO, "none": NO_DERIVATIVE}
    return [name for name, table in tables.items() if op in table]


# Ops whose results are never floats, or that have no operands.
_NO_FLOATS: dict[type[DlOp], str] = {
    **dict.fromkeys((dl.ConstantOp, dl.WeightOp, dl.IotaOp, dl.SizeOp), "it reads no elements"),
    **dict.fromkeys(
        (dl.EqualOp, dl.NotEqualOp, dl.LessOp, dl.LessEqualOp, dl.GreaterOp, dl.GreaterEqualOp, dl.IsnanOp, dl.IsinfOp),
        "its result is a condition",
    ),
    **dict.fromkeys((dl.AndOp, dl.OrOp, dl.XorOp, dl.NotOp, dl.ReduceAnyOp, dl.ReduceAllOp), "of conditions"),
    **dict.fromkeys(
        (
            dl.BitwiseAndOp,
            dl.BitwiseOrOp,
            dl.BitwiseXorOp,
            dl.BitwiseNotOp,
            dl.ShiftLeftOp,
            dl.ShiftRightOp,
        ),
        "of integers",
    ),
    **dict.fromkeys((dl.NonzeroOp, dl.TrueIndicesOp, dl.BinarySearchOp, dl.ArgExtremumOp), "its result is places"),
    **dict.fromkeys((dl.DecodeImageOp, *dl.op_classes_of(dl.strings)), "bytes or strings"),
    **dict.fromkeys((dl.RadixSortOp, dl.SmallestKOp, dl.DynamicIotaOp), "of integers"),
    dl.RandomBitsOp: "its result is bits",
}


def test_every_op_has_a_rule_or_a_reason() -> None:
    """One rule each, or two where an op is linear in some operands only; else it is decomposed, or has no float results."""
    for op in dl.Dl.operations:
        if issubclass(op, DlOp):
            found = _rules(op)
            linear_in_some_modes = op in (dl.AllReduceOp, dl.ScatterRowsOp, dl.TriangularSolveOp) and found == [
                "transpose",
                "tangent",
            ]
            known = 0 if not found and issubclass(op, Composite) else 1
            assert linear_in_some_modes or len(found) + (op in _NO_FLOATS) == known, op.name
