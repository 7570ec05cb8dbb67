"""Every op of the `dl` dialect is documented, has a sample, and implements one interface."""

from __future__ import annotations

import inspect
import sys

import pytest

from dlc.dialects import dl
from dlc.dialects.dl import interfaces
from dlc.dialects.dl.base import DlOp
from tests.ops.samples import SAMPLES

OPS = [op for op in dl.Dl.operations if issubclass(op, DlOp)]
# Ops of program structure, not of tensors, which have no samples.
PROGRAM = {
    *(dl.KernelOp, dl.DispatchOp, dl.YieldOp),
    *(dl.ScanOp, dl.WhileOp, dl.IfOp, dl.FailOp, dl.PrintOp, dl.BindSizeOp),
    *(dl.JvpOp, dl.VjpOp, dl.VmapOp, dl.CustomJvpOp, dl.CustomVjpOp, dl.LinearCallOp, dl.CheckpointOp),
}
INTERFACES = [
    interfaces.Elementwise,
    interfaces.Reduction,
    interfaces.Contraction,
    interfaces.Window,
    interfaces.DataMovement,
    interfaces.GatherLike,
    interfaces.ScatterLike,
    interfaces.LibraryKernel,
    interfaces.Composite,
    interfaces.DataDependent,
]
OPS_WITHOUT_INTERFACE: dict[type[DlOp], str] = {
    dl.ConstantOp: "a literal: kernels hold it as arith.constant",
    dl.WeightOp: "a name of the weights store",
    dl.ReshapeOp: "another view of the same buffer",
    dl.ViewAsOp: "another view of the same buffer",
    dl.AddDependencyOp: "another view of the same buffer",
}
OPS_WITHOUT_SAMPLE: dict[type[DlOp], str] = {
    dl.WeightOp: "its value is in the weights store",
    dl.ForeignCallOp: "its function is registered by a trace: see tests/functions/test_ffi.py",
    **dict.fromkeys(dl.op_classes_of(dl.strings), "string pools belong to calls: see tests/frontend/onnx/test_strings.py"),
}


def test_ops_are_program_or_tensor_ops() -> None:
    assert {op for op in dl.Dl.operations if not issubclass(op, DlOp)} == PROGRAM
    assert len({op.name for op in OPS}) == len(OPS)
    for op in OPS:
        assert getattr(dl, op.__name__) is op


@pytest.mark.skipif(sys.flags.optimize > 1, reason="python -OO takes docstrings away")
def test_documented() -> None:
    documents = {op.name: inspect.cleandoc(vars(op).get("__doc__") or "") for op in OPS}
    assert not [name for name, doc in documents.items() if not doc.split("\n\n")[0].endswith((".", ":"))]


def test_op_names_match_class_names() -> None:
    named = {op: "".join(w.capitalize() for w in op.name.removeprefix("dl.").split("_")) + "Op" for op in OPS}
    assert not [op.name for op, name in named.items() if op.__name__ != name]


def test_sampled() -> None:
    sampled = {s.op for s in SAMPLES}
    assert not [op.name for op in OPS if (op in OPS_WITHOUT_SAMPLE) == (op in sampled)]


def test_implements_one_interface() -> None:
    implemented = {op: [i for i in INTERFACES if issubclass(op, i)] for op in OPS}
    assert not [op.name for op, found in implemented.items() if len(found) != (op not in OPS_WITHOUT_INTERFACE)]
