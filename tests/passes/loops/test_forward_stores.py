"""`forward-stores`: stored values are forwarded to loads, across loops that carry them, not across possible writes."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.backends.reference import evaluate_function
from dlc.dialects.registry import make_context
from dlc.ir import ModuleOp, memref, parse_module, scf
from dlc.passes.base import kernels_of
from dlc.passes.loops.forward_stores import ForwardStoresPass

CONTEXT = make_context()


def forwarded(body: str, space: str = "") -> ModuleOp:
    """Return a kernel of a grid of two points, with a buffer `%t` each, after the pass."""
    text = f"""
    builtin.module {{ func.func @k(%x: memref<4xf32>, %y: memref<2xf32>) attributes {{kernel}} {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %c4 = arith.constant 4 : index
      %zero = arith.constant 0.0 : f32
      "scf.parallel"(%c0, %c2, %c1) <{{operandSegmentSizes = array<i32: 1, 1, 1, 0>}}> ({{
      ^bb0(%i: index):
        %t = memref.alloca() : memref<2xf32{space}>
        {body.replace("SPACE", space)}
        scf.reduce
      }}) {{level = "grid"}} : (index, index, index) -> ()
      func.return }} }}"""
    module = parse_module(CONTEXT, text)
    before = evaluate_kernel(module)
    ForwardStoresPass().apply(CONTEXT, module)
    module.verify()
    np.testing.assert_array_equal(evaluate_kernel(module), before)
    return module


def evaluate_kernel(module: ModuleOp) -> np.ndarray:
    (kernel,) = kernels_of(module)
    y = np.zeros(2, np.float32)
    evaluate_function(kernel, [np.array([1, 2, 4, 8], np.float32), y])
    return y


def count(module: ModuleOp, op: type) -> int:
    return sum(isinstance(o, op) for o in module.walk())


SUM = """
memref.store %zero, %t[%c0] : memref<2xf32SPACE>
scf.for %a = %c0 to %c2 step %c1 {
  scf.for %k = %c0 to %c4 step %c1 {
    %s = memref.load %t[%c0] : memref<2xf32SPACE>
    %v = memref.load %x[%k] : memref<4xf32>
    %n = arith.addf %s, %v : f32
    memref.store %n, %t[%c0] : memref<2xf32SPACE>
  }
}
%r = memref.load %t[%c0] : memref<2xf32SPACE>
memref.store %r, %y[%i] : memref<2xf32>
"""


def test_loops_carry_a_single_location() -> None:
    module = forwarded(SUM)
    assert (count(module, memref.AllocaOp), count(module, memref.LoadOp), count(module, memref.StoreOp)) == (0, 1, 1)
    assert [len(op.iter_args) for op in module.walk() if isinstance(op, scf.ForOp)] == [1, 1]


@pytest.mark.parametrize(
    "body",
    [
        SUM.replace("%s = memref.load %t[%c0]", "%s = memref.load %t[%c0]").replace("store %n, %t[%c0]", "store %n, %t[%a]"),
        SUM.replace("memref.store %n, %t[%c0] : memref<2xf32SPACE>",
                    "%even = arith.cmpi eq, %k, %c1 : index\nscf.if %even {\nmemref.store %n, %t[%c0] : memref<2xf32SPACE>\n}"),
    ],
    ids=["another place", "a branch"],
)  # fmt: skip
def test_other_loops_keep_their_buffer(body: str) -> None:
    assert count(forwarded(body), memref.AllocaOp) == 1


def test_barrier_invalidates_shared_buffers() -> None:
    body = """
    memref.store %zero, %t[%c0] : memref<2xf32SPACE>
    "gpu.barrier"() : () -> ()
    %r = memref.load %t[%c0] : memref<2xf32SPACE>
    memref.store %r, %y[%i] : memref<2xf32>
    """
    assert count(forwarded(body), memref.LoadOp) == 0
    assert count(forwarded(body, ", #gpu.address_space<workgroup>"), memref.LoadOp) == 1
    within = body.replace('"gpu.barrier"() : () -> ()', 'scf.for %k = %c0 to %c1 step %c1 {\n"gpu.barrier"() : () -> ()\n}')
    assert count(forwarded(within, ", #gpu.address_space<workgroup>"), memref.LoadOp) == 1


def test_shared_buffers_are_not_carried() -> None:
    assert count(forwarded(SUM, ", #gpu.address_space<workgroup>"), memref.AllocaOp) == 1
