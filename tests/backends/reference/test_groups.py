"""Work-items of a group share local memory and synchronize at barriers."""

import numpy as np
import pytest

from dlc.backends.reference import EvaluationError, control, evaluate
from dlc.dialects.registry import make_context
from dlc.ir import ModuleOp, parse_module
from tests.mlir import accepted_by_mlir, needs_mlir


def groups(body: str) -> ModuleOp:
    """Four work-groups of eight items; `%i` counts groups, `%j` the items of one; they share `%t`."""
    text = f"""
    builtin.module {{ func.func @main(%x: memref<4x8xf32>, %y: memref<4x8xf32>) attributes {{kernel}} {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %c4 = arith.constant 4 : index
      %c7 = arith.constant 7 : index
      %c8 = arith.constant 8 : index
      "scf.parallel"(%c0, %c4, %c1) <{{operandSegmentSizes = array<i32: 1, 1, 1, 0>}}> ({{
      ^bb0(%i: index):
        %t = memref.alloca() : memref<8xf32, #gpu.address_space<workgroup>>
        "scf.parallel"(%c0, %c8, %c1) <{{operandSegmentSizes = array<i32: 1, 1, 1, 0>}}> ({{
        ^bb0(%j: index):
          {body}
          scf.reduce
        }}) {{level = "item"}} : (index, index, index) -> ()
        scf.reduce
      }}) {{level = "grid"}} : (index, index, index) -> ()
      func.return }} }}"""
    module = parse_module(make_context(), text)
    module.verify()
    return module


REVERSED = groups("""
  %v = memref.load %x[%i, %j] : memref<4x8xf32>
  memref.store %v, %t[%j] : memref<8xf32, #gpu.address_space<workgroup>>
  "gpu.barrier"() : () -> ()
  %r = arith.subi %c7, %j : index
  %w = memref.load %t[%r] : memref<8xf32, #gpu.address_space<workgroup>>
  memref.store %w, %y[%i, %j] : memref<4x8xf32>
""")

# A tree reduction: each item adds its right neighbor's value, then every second item, and so on.
SUMMED = groups("""
  %v = memref.load %x[%i, %j] : memref<4x8xf32>
  memref.store %v, %t[%j] : memref<8xf32, #gpu.address_space<workgroup>>
  %width = scf.for %k = %c0 to %c2 step %c1 iter_args(%half = %c4) -> (index) {
    "gpu.barrier"() : () -> ()
    %low = arith.cmpi ult, %j, %half : index
    scf.if %low {
      %far = arith.addi %j, %half : index
      %a = memref.load %t[%j] : memref<8xf32, #gpu.address_space<workgroup>>
      %b = memref.load %t[%far] : memref<8xf32, #gpu.address_space<workgroup>>
      %s = arith.addf %a, %b : f32
      memref.store %s, %t[%j] : memref<8xf32, #gpu.address_space<workgroup>>
    }
    %next = arith.divui %half, %c2 : index
    scf.yield %next : index
  }
  "gpu.barrier"() : () -> ()
  %pair = arith.remui %j, %c2 : index
  %total = memref.load %t[%pair] : memref<8xf32, #gpu.address_space<workgroup>>
  memref.store %total, %y[%i, %j] : memref<4x8xf32>
""")

DIVERGENT = groups("""
  %low = arith.cmpi ult, %j, %c4 : index
  scf.if %low {
    "gpu.barrier"() : () -> ()
  }
""")


@pytest.mark.parametrize("chunk", [8, 24, 2048])
def test_items_exchange_values(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "GRID_POINTS_PER_CHUNK", chunk)
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    (y,) = evaluate(REVERSED, [x])
    np.testing.assert_array_equal(y, x[:, ::-1])
    (y,) = evaluate(SUMMED, [x])
    np.testing.assert_array_equal(y, np.tile(x.reshape(4, 4, 2).sum(1), (1, 4)))


def test_divergent_barrier_is_an_error() -> None:
    with pytest.raises(EvaluationError, match=r"gpu.barrier.*only some work-items of a work-group reach"):
        evaluate(DIVERGENT, [np.zeros((4, 8), np.float32)])


@needs_mlir
def test_mlir_reads_groups() -> None:
    accepted_by_mlir([REVERSED, SUMMED])
