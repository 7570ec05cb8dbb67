"""Every op of the `dl` dialect is documented, sampled, and known to passes by an interface."""

from __future__ import annotations

import inspect
import sys

import pytest

from dlc.dialects import dl
from dlc.dialects.dl import interfaces
from dlc.dialects.dl.base import DlOp
from tests.ops.samples import SAMPLES

OPS = [op for op in dl.Dl.operations if issubclass(op, DlOp)]
# Ops of programs, not of tensors: no samples of their own.
PROGRAM = {
    *(dl.KernelOp, dl.DispatchOp, dl.YieldOp),
    *(dl.ScanOp, dl.WhileOp, dl.IfOp, dl.FailOp, dl.PrintOp, dl.DecideOp),
    *(dl.JvpOp, dl.VjpOp, dl.VmapOp, dl.CustomJvpOp, dl.CustomVjpOp, dl.CheckpointOp),
}
INTERFACES = [
    interfaces.Elementwise,
    interfaces.Reduction,
    interfaces.Contraction,
    interfaces.Window,
    interfaces.Movement,
    interfaces.Gathering,
    interfaces.Scattering,
    interfaces.Procedure,
    interfaces.Composite,
    interfaces.DataDependent,
]
KNOWN_WITHOUT_INTERFACE: dict[type[DlOp], str] = {
    dl.ConstantOp: "a literal: kernels hold it as arith.constant",
    dl.WeightOp: "a name of the weights store",
    dl.ReshapeOp: "another view of the same buffer",
    dl.WordsOp: "another view of the same buffer",
    dl.AfterOp: "another name of the same buffer",
}
KNOWN_WITHOUT_SAMPLE: dict[type[DlOp], str] = {
    dl.WeightOp: "its value is in the store",
    **dict.fromkeys(dl.ops_of(dl.text), "text is a call's: tests/frontend/onnx/test_text.py runs models of it"),
}


def test_the_dialect_holds_programs_and_tensor_ops() -> None:
    assert {op for op in dl.Dl.operations if not issubclass(op, DlOp)} == PROGRAM
    assert len({op.name for op in OPS}) == len(OPS)
    for op in OPS:
        assert getattr(dl, op.__name__) is op


@pytest.mark.skipif(sys.flags.optimize > 1, reason="python -OO takes docstrings away")
def test_documented() -> None:
    documents = {op.name: inspect.cleandoc(vars(op).get("__doc__") or "") for op in OPS}
    assert not [name for name, doc in documents.items() if not doc.split("\n\n")[0].endswith((".", ":"))]


def test_named_after_its_class() -> None:
    named = {op: "".join(w.capitalize() for w in op.name.removeprefix("dl.").split("_")) + "Op" for op in OPS}
    assert not [op.name for op, name in named.items() if op.__name__ != name]


def test_sampled() -> None:
    sampled = {s.op for s in SAMPLES}
    assert not [op.name for op in OPS if (op in KNOWN_WITHOUT_SAMPLE) == (op in sampled)]


def test_implements_one_interface() -> None:
    implemented = {op: [i for i in INTERFACES if issubclass(op, i)] for op in OPS}
    assert not [op.name for op, found in implemented.items() if len(found) != (op not in KNOWN_WITHOUT_INTERFACE)]
