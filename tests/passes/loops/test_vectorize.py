"""A vector has the location of the scalar op it comes from, in a body fused from several ops of a model."""

from __future__ import annotations

from dlc.dialects.registry import make_context
from dlc.instrument.provenance import origins
from dlc.ir import parse_module
from dlc.passes.loops.vectorize import VectorizePass

BODY = """
builtin.module {
  func.func @k(%x: memref<8xf32>, %y: memref<8xf32>, %out: memref<8xf32>) attributes {kernel} {
    linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
        iterator_types = ["parallel"]} ins(%x, %y : memref<8xf32>, memref<8xf32>) outs(%out : memref<8xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %e = math.exp %a : f32 loc("#0")
      %s = arith.addf %e, %b : f32 loc("#1")
      linalg.yield %s : f32
    } loc("#1")
    func.return
  }
}
"""


def test_vectors_have_the_location_of_their_op() -> None:
    context = make_context()
    module = parse_module(context, BODY)
    VectorizePass().apply(context, module)
    found = [(op.name, *origins(op.location)) for op in module.walk() if origins(op.location)]
    assert found == [
        ("vector.transfer_read", "#0"),
        ("vector.transfer_read", "#1"),
        ("math.exp", "#0"),
        ("arith.addf", "#1"),
        ("vector.transfer_write", "#1"),
    ]
