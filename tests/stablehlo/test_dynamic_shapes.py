"""Modules with dynamic dimensions, as JAX exports them, and ops with shape operands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlc.errors import ShapeError, UnsupportedError
from dlc.models.api import compile_model
from dlc.stablehlo import read_module
from tests.stablehlo.test_reader import module

OPEN = """module @m {
  func.func public @main(%arg0: tensor<?x2xf32>, %arg1: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xi32>, tensor<?x2xf32>) {
    %0 = stablehlo.get_dimension_size %arg0, dim = 0 : (tensor<?x2xf32>) -> tensor<i32>
    %1 = stablehlo.get_dimension_size %arg1, dim = 0 : (tensor<?xf32>) -> tensor<i32>
    %2 = stablehlo.compare EQ, %1, %0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%2, %1) {error_message = "one size, not {0}"} : (tensor<i1>, tensor<i32>) -> ()
    %3:3 = call @inner(%0, %arg0, %arg1) : (tensor<i32>, tensor<?x2xf32>, tensor<?xf32>) -> (tensor<?xf32>, tensor<?xi32>, tensor<?x2xf32>)
    return %3#0, %3#1, %3#2 : tensor<?xf32>, tensor<?xi32>, tensor<?x2xf32>
  }
  func.func private @inner(%n: tensor<i32> {jax.global_constant = "rows"}, %x: tensor<?x2xf32>, %y: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xi32>, tensor<?x2xf32>) {
    %one = stablehlo.constant dense<1> : tensor<1xi32>
    %zero = stablehlo.constant dense<0> : tensor<1xi32>
    %two = stablehlo.constant dense<2> : tensor<i32>
    %size = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %pairs = stablehlo.constant dense<2> : tensor<1xi32>
    %shape = stablehlo.concatenate %size, %pairs, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %wide = stablehlo.dynamic_broadcast_in_dim %y, %shape, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x2xf32>
    %sum = stablehlo.add %x, %wide : tensor<?x2xf32>
    %twice = stablehlo.multiply %n, %two : tensor<i32>
    %all = stablehlo.reshape %twice : (tensor<i32>) -> tensor<1xi32>
    %flat = stablehlo.dynamic_reshape %sum, %all : (tensor<?x2xf32>, tensor<1xi32>) -> tensor<?xf32>
    %last = stablehlo.real_dynamic_slice %flat, %size, %all, %one : (tensor<?xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
    %numbers = stablehlo.dynamic_iota %all, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
    %0 = "stablehlo.dynamic_gather"(%x, %zero, %shape) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1], start_index_map = [0]>}> : (tensor<?x2xf32>, tensor<1xi32>, tensor<2xi32>) -> tensor<?x2xf32>
    return %last, %numbers, %0 : tensor<?xf32>, tensor<?xi32>, tensor<?x2xf32>
  }
}
"""


def test_dynamic_dimensions(tmp_path: Path) -> None:
    path = tmp_path / "open.mlir"
    path.write_text(OPEN)
    model = compile_model(path)
    assert [str(info) for info in model.inputs] == ["arg0: float32[rows, 2]", "arg1: float32[rows]"]
    for n in (1, 4):
        x, y = np.arange(2 * n, dtype=np.float32).reshape(n, 2), np.ones(n, np.float32)
        last, numbers, same = model(x, y).values()
        np.testing.assert_array_equal(last, (x + 1).reshape(-1)[n:])
        np.testing.assert_array_equal(numbers, np.arange(2 * n))
        np.testing.assert_array_equal(same, x)
    with pytest.raises(ShapeError, match="rows"):
        model(np.ones((3, 2), np.float32), np.ones(2, np.float32))


def test_a_data_dependent_shape_is_refused() -> None:
    lines = "%0 = stablehlo.dynamic_iota %a, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>\nreturn %0 : tensor<?xi32>"
    with pytest.raises(UnsupportedError, match=r"m\.mlir:3: stablehlo\.dynamic_iota: operand 0 is a shape"):
        read_module(module(lines, "%a: tensor<1xi32>", "tensor<?xi32>"), "m.mlir")


# The ops that JAX emits for `//` and `%` of sizes.
DIVISION = """
  func.func private @floor_divide(%a: tensor<i32>, %b: tensor<i32>) -> tensor<i32> {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.divide %a, %b : tensor<i32>
    %1 = stablehlo.sign %a : tensor<i32>
    %2 = stablehlo.sign %b : tensor<i32>
    %3 = stablehlo.compare NE, %1, %2, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %4 = stablehlo.remainder %a, %b : tensor<i32>
    %5 = stablehlo.compare NE, %4, %zero, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %6 = stablehlo.and %3, %5 : tensor<i1>
    %7 = stablehlo.subtract %0, %one : tensor<i32>
    %8 = stablehlo.select %6, %7, %0 : tensor<i1>, tensor<i32>
    return %8 : tensor<i32>
  }
  func.func private @remainder(%a: tensor<i32>, %b: tensor<i32>) -> tensor<i32> {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.compare EQ, %b, %zero, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %1 = stablehlo.select %0, %one, %b : tensor<i1>, tensor<i32>
    %2 = stablehlo.remainder %a, %1 : tensor<i32>
    %3 = stablehlo.compare NE, %2, %zero, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %4 = stablehlo.compare LT, %2, %zero, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %5 = stablehlo.compare LT, %1, %zero, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %6 = stablehlo.compare NE, %4, %5, UNSIGNED : (tensor<i1>, tensor<i1>) -> tensor<i1>
    %7 = stablehlo.and %6, %3 : tensor<i1>
    %8 = stablehlo.add %2, %1 : tensor<i32>
    %9 = stablehlo.select %7, %8, %2 : tensor<i1>, tensor<i32>
    return %9 : tensor<i32>
  }
"""
# Functions of a vector %x of %n elements; %k is a run-time value, %s the shape [n], %one and %zero are [1] and [0].
FUNCTIONS = {
    "cumulative sums": (
        "%p = stablehlo.subtract %s, %one : tensor<1xi32>\n"
        "%w = stablehlo.concatenate %p, %zero, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>\n"
        "%padding = stablehlo.reshape %w : (tensor<2xi32>) -> tensor<1x2xi32>\n"
        "%r = stablehlo.custom_call @stablehlo.dynamic_reduce_window(%x, %f, %s, %one, %one, %one, %padding) "
        "{called_computations = [@add]} : (tensor<?xf32>, tensor<f32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, "
        "tensor<1xi32>, tensor<1x2xi32>) -> tensor<?xf32>",
        lambda x, k: np.cumsum(x),
    ),
    "reverse cumulative maxima": (
        "%p = stablehlo.subtract %s, %one : tensor<1xi32>\n"
        "%w = stablehlo.concatenate %zero, %p, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>\n"
        "%padding = stablehlo.reshape %w : (tensor<2xi32>) -> tensor<1x2xi32>\n"
        "%least = stablehlo.constant dense<0xFF800000> : tensor<f32>\n"
        "%r = stablehlo.custom_call @stablehlo.dynamic_reduce_window(%x, %least, %s, %one, %one, %one, %padding) "
        "{called_computations = [@max]} : (tensor<?xf32>, tensor<f32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, "
        "tensor<1xi32>, tensor<1x2xi32>) -> tensor<?xf32>",
        lambda x, k: np.maximum.accumulate(x[::-1])[::-1],
    ),
    "branches": (
        '%r = "stablehlo.case"(%k) ({\n stablehlo.return %x : tensor<?xf32>\n}, {\n'
        "  %v = stablehlo.negate %x : tensor<?xf32>\n  stablehlo.return %v : tensor<?xf32>\n"
        "}) : (tensor<i32>) -> tensor<?xf32>",
        lambda x, k: -x if k else x,
    ),
    "padding": (
        "%r = stablehlo.dynamic_pad %x, %f, %one, %s, %one : (tensor<?xf32>, tensor<f32>, tensor<1xi32>, tensor<1xi32>, "
        "tensor<1xi32>) -> tensor<?xf32>",
        lambda x, k: np.concatenate([[0], np.stack([x, 0 * x], 1).reshape(-1)[:-1], 0 * x]),
    ),
    "a convolution": (
        "%m = stablehlo.remainder %s, %two : tensor<1xi32>\n"
        "%w = stablehlo.concatenate %m, %one, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>\n"
        "%padding = stablehlo.reshape %w : (tensor<2xi32>) -> tensor<1x2xi32>\n"
        "%sizes = stablehlo.concatenate %one, %s, %one, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>\n"
        "%in = stablehlo.dynamic_reshape %x, %sizes : (tensor<?xf32>, tensor<3xi32>) -> tensor<1x?x1xf32>\n"
        "%filter = stablehlo.constant dense<1.0> : tensor<2x1x1xf32>\n"
        '%y = "stablehlo.dynamic_conv"(%in, %filter, %padding) <{batch_group_count = 1 : i64, dimension_numbers = '
        "#stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>, feature_group_count = 1 : i64, window_strides = array<i64: 1>}> : "
        "(tensor<1x?x1xf32>, tensor<2x1x1xf32>, tensor<1x2xi32>) -> tensor<1x?x1xf32>\n"
        "%t = stablehlo.add %s, %m : tensor<1xi32>\n"
        "%r = stablehlo.dynamic_reshape %y, %t : (tensor<1x?x1xf32>, tensor<1xi32>) -> tensor<?xf32>",
        lambda x, k: np.convolve(np.concatenate([[0] * (len(x) % 2), x, [0]]), [1, 1], "valid"),
    ),
    "a slice with a run-time start": (
        "%at = stablehlo.reshape %k : (tensor<i32>) -> tensor<1xi32>\n%most = stablehlo.subtract %s, %two : tensor<1xi32>\n"
        "%from = stablehlo.clamp %zero, %at, %most : tensor<1xi32>\n%to = stablehlo.add %from, %two : tensor<1xi32>\n"
        "%v = stablehlo.real_dynamic_slice %x, %from, %to, %one : (tensor<?xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) "
        "-> tensor<2xf32>\n%r = stablehlo.dynamic_reshape %v, %two : (tensor<2xf32>, tensor<1xi32>) -> tensor<2xf32>",
        lambda x, k: x[(at := min(max(k, 0), len(x) - 2)) : at + 2],
    ),
    "quotients": (
        "%c = stablehlo.constant dense<-2> : tensor<i32>\n%d = stablehlo.constant dense<2> : tensor<i32>\n"
        "%less = stablehlo.add %n, %c : tensor<i32>\n"
        "%q = call @floor_divide(%less, %d) : (tensor<i32>, tensor<i32>) -> tensor<i32>\n"
        "%t = stablehlo.reshape %q : (tensor<i32>) -> tensor<1xi32>\n"
        "%r = stablehlo.dynamic_broadcast_in_dim %f, %t, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>",
        lambda x, k: np.zeros((len(x) - 2) // 2),
    ),
    "remainders": (
        "%c = stablehlo.constant dense<-1> : tensor<i32>\n"
        "%q = call @remainder(%c, %n) : (tensor<i32>, tensor<i32>) -> tensor<i32>\n"
        "%t = stablehlo.reshape %q : (tensor<i32>) -> tensor<1xi32>\n"
        "%r = stablehlo.real_dynamic_slice %x, %t, %s, %one : (tensor<?xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) "
        "-> tensor<?xf32>",
        lambda x, k: x[-1 % len(x) :],
    ),
    "a composite": (
        '%t:2 = stablehlo.composite "chlo.top_k" %x {composite_attributes = {k = 2 : i64}, decomposition = @unknown} : '
        "(tensor<?xf32>) -> (tensor<2xf32>, tensor<2xi32>)\n"
        '%r = stablehlo.composite "mine" %t#0 {decomposition = @twice} : (tensor<2xf32>) -> tensor<2xf32>',
        lambda x, k: 2 * np.sort(x)[:-3:-1],
    ),
}
HELPERS = """
  func.func private @add(%p: tensor<f32>, %q: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %p, %q : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @max(%p: tensor<f32>, %q: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.maximum %p, %q : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @twice(%p: tensor<2xf32>) -> tensor<2xf32> {
    %0 = stablehlo.add %p, %p : tensor<2xf32>
    return %0 : tensor<2xf32>
  }
  func.func private @unknown(%p: tensor<?xf32>) -> (tensor<2xf32>, tensor<2xi32>) {
    %0:2 = stablehlo.custom_call @nobody_knows(%p) : (tensor<?xf32>) -> (tensor<2xf32>, tensor<2xi32>)
    return %0#0, %0#1 : tensor<2xf32>, tensor<2xi32>
  }
"""
BEFORE = """    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
    %s = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %f = stablehlo.constant dense<0.0> : tensor<f32>
    %zero = stablehlo.constant dense<0> : tensor<1xi32>
    %one = stablehlo.constant dense<1> : tensor<1xi32>
    %two = stablehlo.constant dense<2> : tensor<1xi32>
    %low = stablehlo.constant dense<-3> : tensor<i32>
    %least = stablehlo.constant dense<0> : tensor<i32>
    %above = stablehlo.add %n, %low : tensor<i32>
    %enough = stablehlo.compare GE, %above, %least, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%enough, %n) {error_message = "3 or more, not {0}"} : (tensor<i1>, tensor<i32>) -> ()
"""


def test_ops_with_shape_operands(tmp_path: Path) -> None:
    """Each op for two lengths, compiled once; a function without callers may contain unsupported ops."""
    made = [
        f"  func.func private @f{number}(%x: tensor<?xf32>, %k: tensor<i32>) -> tensor<?xf32> {{\n{BEFORE}{lines}\n"
        "    return %r : tensor<?xf32>\n  }\n"
        for number, (lines, _) in enumerate(FUNCTIONS.values())
    ]
    calls = [f"    %{k} = call @f{k}(%x, %k) : (tensor<?xf32>, tensor<i32>) -> tensor<?xf32>\n" for k in range(len(FUNCTIONS))]
    types = ", ".join(["tensor<?xf32>"] * len(FUNCTIONS))
    text = (
        f"module @m {{\n  func.func public @main(%x: tensor<?xf32>, %k: tensor<i32>) -> ({types}) {{\n{''.join(calls)}"
        f"    return {', '.join(f'%{k}' for k in range(len(FUNCTIONS)))} : {types}\n  }}\n{''.join(made)}{DIVISION}{HELPERS}}}\n"
    )
    path = tmp_path / "open.mlir"
    path.write_text(text)
    model = compile_model(path, target="reference")
    for n, k in ((4, 1), (7, 0)):
        x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
        for name, found, (_, expected) in zip(FUNCTIONS, model(x, np.int32(k)).values(), FUNCTIONS.values(), strict=True):
            np.testing.assert_allclose(found, expected(x, k), rtol=1e-6, err_msg=name)
    with pytest.raises(ShapeError, match=r"x_0.*3\.\."):
        model(np.zeros(2, np.float32), np.int32(0))


def test_branches_with_different_sizes_are_refused() -> None:
    lines = (
        '%0 = "stablehlo.if"(%b) ({\n stablehlo.return %a : tensor<?xf32>\n}, {\n'
        "  %1 = stablehlo.concatenate %a, %a, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>\n"
        "  stablehlo.return %1 : tensor<?xf32>\n}) : (tensor<i1>) -> tensor<?xf32>\nreturn %0 : tensor<?xf32>"
    )
    with pytest.raises(UnsupportedError, match=r"branches return different types"):
        read_module(module(lines, "%a: tensor<?xf32>, %b: tensor<i1>", "tensor<?xf32>"), "m.mlir")
