"""`forward-to-next-iteration`: which loads become carried values, and that results stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlc.backends.reference.evaluation_context import EvaluationContext, Frame
from dlc.backends.reference.program import argument
from dlc.dialects.registry import make_context
from dlc.ir import Context, func, memref, parse_module, scf
from dlc.passes.loops.forward_to_next_iteration import ForwardToNextIterationPass

# The body of a loop over %i = 0 … 7 that may read and write %x, and whether the load is carried.
BODIES = {
    "next": ("%k = arith.addi %i, %c1 : index", "memref.load %x[%i]", "memref.store %v, %x[%k]", True),
    "reverse": (
        "%k = arith.subi %c8, %i : index\n %l = arith.subi %k, %c1 : index", "memref.load %x[%k]", "memref.store %v, %x[%l]", True
    ),
    "two apart": ("%k = arith.addi %i, %c2 : index", "memref.load %x[%i]", "memref.store %v, %x[%k]", False),
    "same": ("", "memref.load %x[%i]", "memref.store %v, %x[%i]", False),
    "fixed": ("", "memref.load %x[%c1]", "memref.store %v, %x[%i]", False),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_loads_of_elements_stored_by_the_previous_iteration(name: str) -> None:
    index, load, store, is_carried = BODIES[name]
    text = f"""builtin.module {{
  func.func @f(%x: memref<12xf32>) attributes {{kernel}} {{
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c8 = arith.constant 8 : index
    %half = arith.constant 0.5 : f32
    scf.for %i = %c0 to %c8 step %c1 {{
      {index}
      %a = {load} : memref<12xf32>
      %v = arith.mulf %a, %half : f32
      {store} : memref<12xf32>
    }}
    func.return
  }}
}}"""
    module = parse_module(make_context(), text)
    (function,) = [op for op in module.walk() if isinstance(op, func.FuncOp)]

    def run() -> Any:
        x = np.arange(1, 13, dtype=np.float32)
        type_ = function.function_type.inputs.data[0]
        Frame(EvaluationContext({}, {})).run(function.body.block, [argument("x", x, type_)])
        return x

    expected = run()
    ForwardToNextIterationPass().apply(Context(), module)
    np.testing.assert_array_equal(run(), expected)
    (loop,) = [op for op in module.walk() if isinstance(op, scf.ForOp)]
    assert any(isinstance(op, memref.LoadOp) for op in loop.walk()) is not is_carried
