"""Checks of every sample: round trip, verification, reference, inference and decomposition."""

from __future__ import annotations

import ml_dtypes
import pytest

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, tensor_type
from dlc.dialects.dl.dtypes import element_type
from dlc.dialects.dl.interfaces import Composite
from dlc.errors import DTypeError, ShapeError
from dlc.ir import Block, f32
from dlc.testing.op_checks import check_decomposition, check_reference, check_round_trip, check_symbolic_sizes, check_verifier
from dlc.testing.sample import Sample
from tests.ops.samples import SAMPLES

every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=[s.name for s in SAMPLES])


def test_sample_names_are_unique() -> None:
    names = [s.name for s in SAMPLES]
    assert sorted(names) == sorted(set(names))


@every_sample
def test_round_trip(sample: Sample) -> None:
    check_round_trip(sample)


@every_sample
def test_verifier_rejects_a_wrong_result_type(sample: Sample) -> None:
    check_verifier(sample)


@every_sample
def test_reference(sample: Sample) -> None:
    check_reference(sample)


# Ops that require static sizes, and the reason.
OPS_WITH_STATIC_SIZES: dict[type[DlOp], str] = {
    dl.ConvTransposeOp: "its weights are rearranged by their sizes",
    dl.HouseholderOp: "which of two sizes is smaller is the number of reflections",
    dl.LoopsOp: "its body is traced for static sizes",
    dl.PackNibblesOp: "an even number share bytes",
    dl.UnpackOp: "the number of tiles must be that of `size`",
}


@pytest.mark.parametrize(
    "sample", [s for s in SAMPLES if s.op not in OPS_WITH_STATIC_SIZES and s.operands], ids=lambda s: s.name
)
def test_inference_on_symbolic_sizes(sample: Sample) -> None:
    def is_static(operand: int, axis: int) -> bool:
        depth = sample.op in (dl.GatherNdOp, dl.ScatterNdOp) and operand == 1 and axis == sample.operands[1].ndim - 1
        in_blocks = (
            sample.op in (dl.QuantizeOp, dl.DequantizeOp)
            and sample.label.startswith("blocks")
            and axis == sample.properties["axis"]
        )
        return depth or in_blocks

    check_symbolic_sizes(sample, is_static)


@pytest.mark.parametrize("sample", [s for s in SAMPLES if issubclass(s.op, Composite)], ids=lambda s: s.name)
def test_composites_agree_with_their_decomposition(sample: Sample) -> None:
    check_decomposition(sample)


def test_errors_name_the_op_and_the_shapes() -> None:
    x, y = Block(arg_types=[tensor_type((2, 3), f32), tensor_type((4,), f32)]).args
    with pytest.raises(ShapeError, match=r"dl.add: shapes \(2, 3\) and \(4,\) do not broadcast"):
        dl.AddOp.make(x, y)


def test_arithmetic_on_storage_only_types_is_refused() -> None:
    (x,) = Block(arg_types=[tensor_type((2,), element_type(ml_dtypes.int4))]).args
    with pytest.raises(DTypeError, match=r"dl\.neg: element type i4 is storage-only; dl.cast it first"):
        dl.NegOp.make(x)
    dl.ReshapeOp.make(x, shape=(2, 1))
