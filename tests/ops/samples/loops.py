"""Samples of kernels with explicit loops: a cumulative maximum, and scaled rows with vectors."""

from __future__ import annotations

import numpy as np

from dlc.backends import reference
from dlc.dialects import dl
from dlc.dialects.dl.dtypes import element_type
from dlc.dialects.dl.library_kernels.loops import LoopBodyAttr
from dlc.dialects.registry import make_context
from dlc.ir import ArrayAttr, func, parse_module
from dlc.testing.sample import F32, F64, I32, U32, Sample, values

# The evaluator of bodies.
_ = reference
_CUMULATIVE_MAXIMUM = """
func.func @cumulative_maximum(%x: memref<3x7xELEMENT>, %y: memref<3x7xELEMENT>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c7 = arith.constant 7 : index
  "scf.parallel"(%c0, %c3, %c1) <{operandSegmentSizes = array<i32: 1, 1, 1, 0>}> ({
  ^bb0(%i: index):
    %best = memref.alloca() : memref<1xELEMENT>
    %first = memref.load %x[%i, %c0] : memref<3x7xELEMENT>
    memref.store %first, %best[%c0] : memref<1xELEMENT>
    scf.for %j = %c0 to %c7 step %c1 {
      %old = memref.load %best[%c0] : memref<1xELEMENT>
      %element = memref.load %x[%i, %j] : memref<3x7xELEMENT>
      %new = MAXIMUM %old, %element : ELEMENT
      memref.store %new, %best[%c0] : memref<1xELEMENT>
      memref.store %new, %y[%i, %j] : memref<3x7xELEMENT>
    }
    scf.reduce
  }) : (index, index, index) -> ()
  func.return
}
"""
_SCALED_ROWS = """
func.func @scaled_rows(%x: memref<4x8xf32>, %w: memref<8xf32>, %y: memref<4x8xf32>, %z: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  "scf.parallel"(%c0, %c4, %c1) <{operandSegmentSizes = array<i32: 1, 1, 1, 0>}> ({
  ^bb0(%i: index):
    %row = vector.transfer_read %x[%i, %c0], %zero {in_bounds = [true]} : memref<4x8xf32>, vector<8xf32>
    %scale = vector.transfer_read %w[%c0], %zero {in_bounds = [true]} : memref<8xf32>, vector<8xf32>
    %scaled = arith.mulf %row, %scale : vector<8xf32>
    vector.transfer_write %scaled, %y[%i, %c0] {in_bounds = [true]} : vector<8xf32>, memref<4x8xf32>
    %sum = vector.reduction <add>, %scaled : vector<8xf32> into f32
    memref.store %sum, %z[%i] : memref<4xf32>
    scf.reduce
  }) : (index, index, index) -> ()
  func.return
}
"""


def _body(text: str) -> LoopBodyAttr:
    function = next(iter(parse_module(make_context(), text).ops))
    assert isinstance(function, func.FuncOp)
    return LoopBodyAttr.of(function)


def _cumulative_maximum(dtype: np.dtype) -> Sample:
    maximum = {I32: "arith.maxsi", U32: "arith.maxui"}.get(dtype, "arith.maximumf")
    text = _CUMULATIVE_MAXIMUM.replace("ELEMENT", f"{'f' if dtype.kind == 'f' else 'i'}{8 * dtype.itemsize}")
    properties = {"body": _body(text.replace("MAXIMUM", maximum)), "elements": ArrayAttr([element_type(dtype)])}
    return Sample(
        dl.LoopsOp, (values(dtype, 3, 7),), lambda x: np.maximum.accumulate(x, 1), properties, label="cumulative_maximum"
    )


SAMPLES = [
    *map(_cumulative_maximum, (F32, F64, I32, U32)),
    Sample(
        dl.LoopsOp,
        (values(F32, 4, 8), values(F32, 8)),
        lambda x, w: (x * w, (x * w).sum(1)),
        {
            "body": _body(_SCALED_ROWS),
            "elements": ArrayAttr([element_type(F32), element_type(F32)]),
        },
        1e-6,
        "scaled_rows",
    ),
]
