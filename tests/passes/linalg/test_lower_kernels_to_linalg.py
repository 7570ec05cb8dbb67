"""Every op that a kernel may contain computes the same as structured ops on tensors."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of, is_storage_only
from dlc.dialects.dl.dtypes import element_type, numpy_dtype
from dlc.testing.programs import module_of, op_of
from dlc.testing.sample import Sample, assert_close
from tests.mlir import accepted_by_mlir, needs_mlir
from tests.ops.samples import SAMPLES
from tests.passes.linalg.kernels import kernel_of, lowered, run

# Ops that stay outside of kernels, and why.
NOT_IN_KERNELS: dict[type[DlOp], str] = {
    dl.ConstantOp: "a kernel holds single numbers only; arrays are arguments",
    dl.WeightOp: "weights are arguments",
    dl.AddDependencyOp: "it is a name for a buffer of the host program",
    dl.MaxPoolGradientOp: "decomposed, it reads arrays, which are arguments",
    dl.ViewAsOp: "it is a name for a buffer of the host program",
    dl.GcdOp: "its loop is in the host program, or is a kernel already",
    **dict.fromkeys(
        (dl.ArgmaxOp, dl.ArgminOp, dl.CumsumOp, dl.CumprodOp, dl.ArgsortOp, dl.SortOp),
        "decomposed, it has library kernels, which are kernels by themselves",
    ),
    **dict.fromkeys(
        (dl.NonzeroOp, dl.DynamicIotaOp, dl.UniqueOp, dl.NonMaxSuppressionOp, dl.DecodeImageOp),
        "the host computes what has a size of its own",
    ),
    **dict.fromkeys(
        (dl.AllReduceOp, dl.ReduceScatterOp, dl.AllGatherOp, dl.AllToAllOp, dl.PermuteOp, dl.AxisIndexOp),
        "the host exchanges arrays with other ranks",
    ),
    **dict.fromkeys((dl.ToShardsOp, dl.FromShardsOp), "partitioning over ranks replaces them"),
}

IN_KERNELS = [s for s in SAMPLES if s.op not in NOT_IN_KERNELS and all(o.size for o in s.operands)]


def module(sample: Sample):
    return kernel_of(sample.operand_types, lambda b, *x: b.insert(sample.op.make(*x, **sample.properties)).results)


def on_storage(array: np.ndarray) -> np.ndarray:
    return array.view(f"i{array.itemsize}") if array.dtype.kind == "u" or is_storage_only(element_type(array.dtype)) else array


@pytest.mark.parametrize("sample", IN_KERNELS, ids=lambda s: s.name)
def test_every_op(sample: Sample) -> None:
    op = op_of(module_of(sample))
    dtypes = [numpy_dtype(element_type_of(r)) for r in op.results]
    results = run(lowered(module(sample)), *map(on_storage, sample.operands))
    for got, expected in zip(results, sample.expected_results(dtypes), strict=True):
        assert_close(got.view(expected.dtype) if got.dtype.kind == "i" else got, expected, sample.tolerance)


@needs_mlir
def test_mlir_accepts_every_op() -> None:
    accepted_by_mlir([lowered(module(s), fuse=False) for s in IN_KERNELS])
