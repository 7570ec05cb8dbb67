"""Programs of several ops on which fuzzing found wrong results, compared between the reference and compiled code."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.backends.reference import evaluate
from dlc.compiler import Program, compile
from dlc.dialects.registry import make_context
from dlc.ir import parse_module
from dlc.options import Options
from dlc.testing.sample import assert_close, values
from dlc.weights import WeightStore
from tests.targets import NATIVE

PROGRAMS = {
    "softmax of an unpacked row": """
        func.func @main(%x: tensor<3x100xf32>) -> tensor<273xf32> {
          %u = dl.unpack %x {axis = 0 : i64, tile = 100 : i64, size = 273 : i64} : (tensor<3x100xf32>) -> tensor<273xf32>
          %y = dl.log_softmax %u {axis = 0 : i64} : (tensor<273xf32>) -> tensor<273xf32>
          func.return %y : tensor<273xf32>
        }""",
    "product with an unpacked operand": """
        func.func @main(%a: tensor<5x40xf32>, %x: tensor<3x40x17xf32>) -> tensor<5x45xf32> {
          %u = dl.unpack %x {axis = 1 : i64, tile = 17 : i64, size = 45 : i64} : (tensor<3x40x17xf32>) -> tensor<40x45xf32>
          %y = dl.matmul %a, %u : (tensor<5x40xf32>, tensor<40x45xf32>) -> tensor<5x45xf32>
          func.return %y : tensor<5x45xf32>
        }""",
    "product with weights without columns": """
        func.func @main(%x: tensor<1x1xf32>) -> tensor<1x0xf32> {
          %w = dl.weight {symbol = @nothing, type = tensor<1x0xf32>} : () -> tensor<1x0xf32>
          %y = dl.matmul %x, %w : (tensor<1x1xf32>, tensor<1x0xf32>) -> tensor<1x0xf32>
          func.return %y : tensor<1x0xf32>
        }""",
    "grouped convolution of a transposed convolution": """
        func.func @main(%x: tensor<1x64x1x1x7xui64>, %w: tensor<1x1x1x7x16xui64>, %v: tensor<1x1x1x4x4xui8>)
            -> tensor<1x64x1x1x4xui32> {
          %t = dl.conv_transpose %x, %w {groups = 1 : i64, strides = array<i64: 1, 2, 1>, dilations = array<i64: 2, 1, 1>}
              : (tensor<1x64x1x1x7xui64>, tensor<1x1x1x7x16xui64>) -> tensor<1x64x1x1x16xui64>
          %y = dl.conv %t, %v {groups = 4 : i64, strides = array<i64: 1, 1, 3>, dilations = array<i64: 1, 2, 1>, result = ui32}
              : (tensor<1x64x1x1x16xui64>, tensor<1x1x1x4x4xui8>) -> tensor<1x64x1x1x4xui32>
          func.return %y : tensor<1x64x1x1x4xui32>
        }""",
    "transposed scatter-add": """
        func.func @main(%x: tensor<2x3x5xf32>) -> tensor<3x2x5xf32> {
          %places = dl.constant {value = dense<[1, 0]> : tensor<2xi64>} : () -> tensor<2xi64>
          %zeros = dl.constant {value = dense<0.0> : tensor<2x3x5xf32>} : () -> tensor<2x3x5xf32>
          %sum = dl.scatter_rows %zeros, %places, %x {mode = "add", clamped = true}
              : (tensor<2x3x5xf32>, tensor<2xi64>, tensor<2x3x5xf32>) -> tensor<2x3x5xf32>
          %y = dl.transpose %sum {permutation = array<i64: 1, 0, 2>} : (tensor<2x3x5xf32>) -> tensor<3x2x5xf32>
          func.return %y : tensor<3x2x5xf32>
        }""",
    "scatter-add with splat indices and updates": """
        func.func @main(%x: tensor<17xf32>) -> tensor<17xf32> {
          %places = dl.constant {value = dense<15> : tensor<2x3xi64>} : () -> tensor<2x3xi64>
          %rows = dl.constant {value = dense<0.5> : tensor<2x3xf32>} : () -> tensor<2x3xf32>
          %y = dl.scatter_rows %x, %places, %rows {mode = "add"} : (tensor<17xf32>, tensor<2x3xi64>, tensor<2x3xf32>) -> tensor<17xf32>
          func.return %y : tensor<17xf32>
        }""",
    "scatter-add of reversed rows at one index": """
        func.func @main(%x: tensor<4x5xf32>, %u: tensor<3x5xf32>) -> tensor<4x5xf32> {
          %place = dl.constant {value = dense<2> : tensor<3xi64>} : () -> tensor<3xi64>
          %back = dl.reverse %u {axes = array<i64: 0, 1>} : (tensor<3x5xf32>) -> tensor<3x5xf32>
          %y = dl.scatter_rows %x, %place, %back {mode = "add"} : (tensor<4x5xf32>, tensor<3xi64>, tensor<3x5xf32>) -> tensor<4x5xf32>
          func.return %y : tensor<4x5xf32>
        }""",
    "convolution of a splat": """
        func.func @main(%w: tensor<3x3x4x5xf32>) -> tensor<1x8x7x5xf32> {
          %x = dl.constant {value = dense<0.5> : tensor<1x10x9x4xf32>} : () -> tensor<1x10x9x4xf32>
          %y = dl.conv %x, %w {groups = 1 : i64, strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>}
              : (tensor<1x10x9x4xf32>, tensor<3x3x4x5xf32>) -> tensor<1x8x7x5xf32>
          func.return %y : tensor<1x8x7x5xf32>
        }""",
    "convolution of a transposed image with a reversed kernel": """
        func.func @main(%x: tensor<1x9x10x4xf32>, %w: tensor<3x3x4x5xf32>) -> tensor<1x8x7x5xf32> {
          %t = dl.transpose %x {permutation = array<i64: 0, 2, 1, 3>} : (tensor<1x9x10x4xf32>) -> tensor<1x10x9x4xf32>
          %back = dl.reverse %w {axes = array<i64: 0, 1>} : (tensor<3x3x4x5xf32>) -> tensor<3x3x4x5xf32>
          %y = dl.conv %t, %back {groups = 1 : i64, strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>}
              : (tensor<1x10x9x4xf32>, tensor<3x3x4x5xf32>) -> tensor<1x8x7x5xf32>
          func.return %y : tensor<1x8x7x5xf32>
        }""",
    "scatter-add of rows onto themselves": """
        func.func @main(%x: tensor<4x5xf32>) -> tensor<4x5xf32> {
          %places = dl.constant {value = dense<[1, 3, 3, 0]> : tensor<4xi64>} : () -> tensor<4xi64>
          %rows = dl.relu %x : (tensor<4x5xf32>) -> tensor<4x5xf32>
          %y = dl.scatter_rows %rows, %places, %rows {mode = "add"}
              : (tensor<4x5xf32>, tensor<4xi64>, tensor<4x5xf32>) -> tensor<4x5xf32>
          func.return %y : tensor<4x5xf32>
        }""",
    "scatter-add with the target as indices": """
        func.func @main(%x: tensor<7xi64>, %u: tensor<7xi64>) -> tensor<7xi64> {
          %n = dl.abs %x : (tensor<7xi64>) -> tensor<7xi64>
          %y = dl.scatter_rows %n, %n, %u {mode = "add"} : (tensor<7xi64>, tensor<7xi64>, tensor<7xi64>) -> tensor<7xi64>
          func.return %y : tensor<7xi64>
        }""",
}


@pytest.mark.parametrize("target", [*NATIVE, "cpu:generic"])
@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_program(text: str, target: str) -> None:
    weights = WeightStore()
    weights.add(np.zeros((1, 0), np.float32), "nothing")
    program = Program(parse_module(make_context(), text, "found.mlir"), weights)
    inputs = [np.asarray(values(i.dtype, *map(int, i.shape), seed=k)) for k, i in enumerate(program.inputs)]
    (expected,) = evaluate(program.module, inputs, weights)
    (got,) = compile(program, target, Options(num_threads=1, workers=1)).run_unchecked(inputs)
    assert_close(np.asarray(got), expected, 2e-6 if expected.dtype.kind == "f" else 0)
