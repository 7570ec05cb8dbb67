"""One convolution with its epilogue, at three stages, computes the same as NumPy."""

from pathlib import Path

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from dlc.backends.reference import EvaluationError, evaluate, evaluate_function
from dlc.dialects.registry import make_context
from dlc.ir import ModuleOp, func, parse_module

TOUR = Path(__file__).parent / "tour"


def load(text: str) -> ModuleOp:
    module = parse_module(make_context(), text)
    module.verify()
    return module


def the_function(module: ModuleOp) -> func.FuncOp:
    (function,) = [op for op in module.ops if isinstance(op, func.FuncOp)]
    return function


@pytest.fixture(scope="module")
def convolution():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((58, 58, 64), np.float32)
    w = rng.standard_normal((2, 3, 3, 64, 32), np.float32) / 24
    b = rng.standard_normal((2, 32), np.float32)
    s = rng.standard_normal((58, 58, 2, 32), np.float32)
    windows = sliding_window_view(x, (3, 3), axis=(0, 1))
    c = np.einsum("hwckl,pklco->hwpo", windows, w, optimize=True) + b + s[1:-1, 1:-1]
    return (x, w, b, s), np.maximum(c, 0)


def test_tensors(convolution):
    (x, w, b, s), expected = convolution
    function = the_function(load((TOUR / "linalg.mlir").read_text()))
    y = np.full((58, 58, 2, 32), 7, np.float32)
    (result,) = evaluate_function(function, [x, w, b, s, y])
    np.testing.assert_allclose(result[1:-1, 1:-1], expected, atol=1e-5)
    border = np.ones((58, 58), bool)
    border[1:-1, 1:-1] = False
    assert (result[border] == 7).all()
    # Tensors are values: the destination that was passed in has not changed.
    assert (y == 7).all()


@pytest.mark.parametrize("stage", ["tiling", "loops"])
def test_buffers(convolution, stage):
    (x, w, b, s), expected = convolution
    function = the_function(load((TOUR / f"{stage}.mlir").read_text()))
    y = np.zeros((58, 58, 2, 32), np.float32)
    assert evaluate_function(function, [x, w.reshape(2, 3, 192, 32), b, s, y]) == []
    np.testing.assert_allclose(y[1:-1, 1:-1], expected, atol=1e-5)
    assert not y[0].any() and not y[:, -1].any()


PROGRAM = """
builtin.module @kernels {
  func.func @double(%x: memref<2x3xf32>, %y: memref<6xf32>) attributes {kernel} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c6 = arith.constant 6 : index
    %flat = memref.collapse_shape %x [[0, 1]] : memref<2x3xf32> into memref<6xf32>
    "scf.parallel"(%c0, %c6, %c1) <{operandSegmentSizes = array<i32: 1, 1, 1, 0>}> ({
    ^bb0(%i: index):
      %a = memref.load %flat[%i] : memref<6xf32>
      %b = arith.addf %a, %a : f32
      memref.store %b, %y[%i] : memref<6xf32>
      "scf.reduce"() : () -> ()
    }) {level = "grid"} : (index, index, index) -> ()
    func.return
  }
  func.func @add(%x: memref<6xf32>, %w: memref<6xf32>, %y: memref<6xf32>) attributes {kernel} {
    linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                    iterator_types = ["parallel"]} ins(%x, %w : memref<6xf32>, memref<6xf32>) outs(%y : memref<6xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %c = arith.addf %a, %b : f32
      linalg.yield %c : f32
    }
    func.return
  }
}
"""


def test_a_host_program_on_buffers():
    module = load(
        PROGRAM
        + """
    func.func @main(%x: memref<2x3xf32>, %y: memref<6xf32>) {
      %w = host.weight @w : memref<6xf32>
      %t = host.arena 64 : i64 : memref<6xf32>
      %v = memref.reinterpret_cast %t to offset: [0], sizes: [6], strides: [1] : memref<6xf32> to memref<6xf32>
      host.launch @kernels::@double(%x, %t) : memref<2x3xf32>, memref<6xf32>
      host.launch @kernels::@add(%v, %w, %y) : memref<6xf32>, memref<6xf32>, memref<6xf32>
      func.return
    }"""
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (y,) = evaluate(module, [x], {"w": np.full(6, 10, np.float32)})
    np.testing.assert_array_equal(y, 2 * x.reshape(-1) + 10)


def test_a_dispatch_allocates_destinations():
    module = load(
        PROGRAM
        + """
    func.func @main(%x: tensor<2x3xf32>) -> tensor<6xf32> {
      %y = dl.dispatch @double(%x) : (tensor<2x3xf32>) -> tensor<6xf32>
      func.return %y : tensor<6xf32>
    }"""
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (y,) = evaluate(module, [x])
    np.testing.assert_array_equal(y, 2 * x.reshape(-1))


def test_a_kernel_of_dl_ops():
    module = load("""
    dl.kernel @k(%x: tensor<3xf32>) -> (tensor<3xf32>) {
      %y = dl.add %x, %x : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      dl.yield %y : tensor<3xf32>
    }
    func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      %w = dl.weight {symbol = @w, type = tensor<3xf32>} : () -> tensor<3xf32>
      %y = dl.dispatch @k(%x) : (tensor<3xf32>) -> tensor<3xf32>
      %z = dl.add %y, %w : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      func.return %z : tensor<3xf32>
    }""")
    x = np.array([1, 2, 3], np.float32)
    (y,) = evaluate(module, [x], {"w": x})
    np.testing.assert_array_equal(y, 3 * x)


def test_an_argument_of_another_shape_is_refused():
    module = load("func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> { func.return %x : tensor<3xf32> }")
    with pytest.raises(EvaluationError, match=r"argument 0 of @main: expected f32 \(3,\), got float32 \(4,\)"):
        evaluate(module, [np.zeros(4, np.float32)])
    with pytest.raises(EvaluationError, match="no function @other"):
        evaluate(module, [], function="other")
