"""StableHLO text, op by op, with the expected results for some operands."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlc.backends.reference import evaluate
from dlc.dialects.dl.dtypes import element_type
from dlc.errors import DlcError, ModelError, UnsupportedError
from dlc.models.api import compile_model
from dlc.stablehlo import is_stablehlo, read_module
from dlc.stablehlo.node import STABLEHLO_ELEMENTS

X = np.array([[1.5, -2.0, 0.5], [-0.5, 3.0, 2.5]], np.float32)
I = np.array([2, 0, 7], np.int32)  # noqa: E741
ANGLES = (
    np.array([1, -1, 2, 0.0, -0.0, 0.0, np.inf, np.nan, -3], np.float32),
    np.array([2, -2, -0.5, -0.0, 1, 0.0, -np.inf, 1, 0], np.float32),
)


def module(lines: str, types: str, result: str) -> str:
    return f"module @m {{\n  func.func public @main({types}) -> ({result}) {{\n{lines}\n  }}\n}}\n"


def run(lines: str, *operands: np.ndarray, functions: str = "") -> list[np.ndarray]:
    """Return the results of `lines`, the last of which returns, for the operands %a, %b, …; `functions` are other functions."""
    kinds = {element: name for name, element in STABLEHLO_ELEMENTS.items()}
    types = [f"tensor<{''.join(f'{n}x' for n in x.shape)}{kinds[element_type(x.dtype)]}>" for x in operands]
    names = ", ".join(f"%{letter}: {type}" for letter, type in zip("abc", types, strict=False))
    text = module(lines, names, lines.rpartition(" : ")[2]).removesuffix("}\n") + functions + "}\n"
    read = read_module(text, "m.mlir")
    read.module.verify()
    return [np.asarray(y) for y in evaluate(read.module, operands, read.weights)]


CASES: dict[str, tuple[str, tuple[np.ndarray, ...], object]] = {
    "slice": (
        "%0 = stablehlo.slice %a [0:2, 0:3:2] : (tensor<2x3xf32>) -> tensor<2x2xf32>\nreturn %0 : tensor<2x2xf32>",
        (X,),
        X[:, ::2],
    ),
    "pad": (
        "%c = stablehlo.constant dense<9.0> : tensor<f32>\n"
        "%0 = stablehlo.pad %a, %c, low = [0, 1], high = [1, -1], interior = [0, 1] : (tensor<2x3xf32>, tensor<f32>) -> "
        "tensor<3x5xf32>\nreturn %0 : tensor<3x5xf32>",
        (X,),
        np.array([[9, 1.5, 9, -2, 9], [9, -0.5, 9, 3, 9], [9] * 5]),
    ),
    "constants": (
        "%c = stablehlo.constant dense<[[1, 2], [3, -4]]> : tensor<2x2xi32>\n"
        '%d = stablehlo.constant dense<"0x0000803F00000040"> : tensor<2xf32>\n'
        "%e = stablehlo.constant dense<0xFF800000> : tensor<f32>\n"
        "return %c, %d, %e : tensor<2x2xi32>, tensor<2xf32>, tensor<f32>",
        (X,),
        ([[1, 2], [3, -4]], [1, 2], -np.inf),
    ),
    "clamped start": (
        "%c = stablehlo.constant dense<0> : tensor<i32>\n%k = stablehlo.constant dense<9> : tensor<i32>\n"
        "%0 = stablehlo.dynamic_slice %a, %c, %k, sizes = [2, 2] : (tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<2x2xf32>\n"
        "%1 = stablehlo.dynamic_update_slice %a, %0, %c, %c : (tensor<2x3xf32>, tensor<2x2xf32>, tensor<i32>, tensor<i32>) -> "
        "tensor<2x3xf32>\nreturn %1 : tensor<2x3xf32>",
        (X,),
        np.concatenate([X[:, 1:], X[:, 2:]], 1),
    ),
    "gather": (
        "%p = stablehlo.reshape %b : (tensor<3xi32>) -> tensor<3x1xi32>\n"
        '%0 = "stablehlo.gather"(%a, %p) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [1], '
        "start_index_map = [1], index_vector_dim = 1>, slice_sizes = array<i64: 2, 1>}> : (tensor<2x3xf32>, tensor<3x1xi32>) "
        "-> tensor<2x3xf32>\nreturn %0 : tensor<2x3xf32>",
        (X, I),
        X[:, [2, 0, 2]],
    ),
    "maximum and its index": (
        "%i = stablehlo.iota dim = 1 : tensor<2x3xi32>\n%m = stablehlo.constant dense<0xFF800000> : tensor<f32>\n"
        "%z = stablehlo.constant dense<0> : tensor<i32>\n"
        "%0:2 = stablehlo.reduce(%a init: %m), (%i init: %z) across dimensions = [1] : (tensor<2x3xf32>, tensor<2x3xi32>, "
        "tensor<f32>, tensor<i32>) -> (tensor<2xf32>, tensor<2xi32>)\n"
        " reducer(%p: tensor<f32>, %q: tensor<f32>) (%r: tensor<i32>, %s: tensor<i32>) {\n"
        "  %1 = stablehlo.compare GT, %p, %q, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "  %2 = stablehlo.select %1, %p, %q : tensor<i1>, tensor<f32>\n"
        "  %3 = stablehlo.select %1, %r, %s : tensor<i1>, tensor<i32>\n"
        "  stablehlo.return %2, %3 : tensor<f32>, tensor<i32>\n }\n"
        "return %0#0, %0#1 : tensor<2xf32>, tensor<2xi32>",
        (X,),
        ([1.5, 3.0], [0, 1]),
    ),
    "sort": (
        '%0:2 = "stablehlo.sort"(%a, %a) <{dimension = 1 : i64, is_stable = true}> ({\n'
        "^bb0(%p: tensor<f32>, %q: tensor<f32>, %r: tensor<f32>, %s: tensor<f32>):\n"
        "  %1 = stablehlo.compare GT, %p, %q, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "  stablehlo.return %1 : tensor<i1>\n"
        "}) : (tensor<2x3xf32>, tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>)\nreturn %0#1 : tensor<2x3xf32>",
        (X,),
        -np.sort(-X, 1),
    ),
    "sort by two": (
        '%0:2 = "stablehlo.sort"(%a, %b) <{dimension = 0 : i64, is_stable = true}> ({\n'
        "^bb0(%p: tensor<i32>, %q: tensor<i32>, %r: tensor<i32>, %s: tensor<i32>):\n"
        "  %1 = stablehlo.compare LT, %r, %s, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        "  %2 = stablehlo.compare LT, %p, %q, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        "  %3 = stablehlo.compare EQ, %p, %q, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        "  %4 = stablehlo.and %3, %1 : tensor<i1>\n  %5 = stablehlo.or %2, %4 : tensor<i1>\n"
        "  stablehlo.return %5 : tensor<i1>\n"
        "}) : (tensor<4xi32>, tensor<4xi32>) -> (tensor<4xi32>, tensor<4xi32>)\nreturn %0#0, %0#1 : tensor<4xi32>, tensor<4xi32>",
        (np.array([1, 0, 1, 0], np.int32), np.array([5, 9, 4, 8], np.int32)),
        ([0, 0, 1, 1], [8, 9, 4, 5]),
    ),
    "top k in total order": (
        "%0:2 = chlo.top_k(%a, k = 4) : tensor<4xf32> -> (tensor<4xf32>, tensor<4xi32>)\nreturn %0#1 : tensor<4xi32>",
        (np.array([-np.inf, np.copysign(np.nan, -1), np.copysign(np.nan, 1), np.inf], np.float32),),
        [2, 3, 0, 1],
    ),
    "product of booleans": (
        "%z = stablehlo.constant dense<0.0> : tensor<2x3xf32>\n"
        "%p = stablehlo.compare GT, %a, %z, FLOAT : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>\n"
        "%0 = stablehlo.dot_general %p, %p, contracting_dims = [1] x [1] : (tensor<2x3xi1>, tensor<2x3xi1>) -> tensor<2x2xi1>\n"
        "return %0 : tensor<2x2xi1>",
        (X,),
        np.logical_and((X > 0)[:, None], (X > 0)[None]).any(2),
    ),
    "update without elements": (
        "%c = stablehlo.constant dense<0> : tensor<i32>\n%e = stablehlo.constant dense<0.0> : tensor<1x0xf32>\n"
        "%0 = stablehlo.dynamic_update_slice %a, %e, %c, %c : (tensor<2x3xf32>, tensor<1x0xf32>, tensor<i32>, tensor<i32>) -> "
        "tensor<2x3xf32>\nreturn %0 : tensor<2x3xf32>",
        (X,),
        X,
    ),
    "window larger than the operand": (
        "%x = stablehlo.reshape %a : (tensor<2x3xf32>) -> tensor<1x2x3xf32>\n"
        "%w = stablehlo.constant dense<1.0> : tensor<4x3x5xf32>\n"
        "%0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {} "
        "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x2x3xf32>, tensor<4x3x5xf32>) -> "
        "tensor<1x0x5xf32>\nreturn %0 : tensor<1x0x5xf32>",
        (X,),
        np.zeros((1, 0, 5)),
    ),
    "triangular solve in half precision": (
        "%c = stablehlo.constant dense<[[2.0, 0.0], [1.0, 4.0]]> : tensor<2x2xf16>\n"
        "%b = stablehlo.convert %a : (tensor<2x3xf32>) -> tensor<2x3xf16>\n"
        '%0 = "stablehlo.triangular_solve"(%c, %b) <{left_side = true, lower = true, transpose_a = '
        "#stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}> : (tensor<2x2xf16>, tensor<2x3xf16>) -> tensor<2x3xf16>\n"
        "%1 = stablehlo.convert %0 : (tensor<2x3xf16>) -> tensor<2x3xf32>\nreturn %1 : tensor<2x3xf32>",
        (X,),
        np.linalg.solve([[2.0, 0.0], [1.0, 4.0]], X),
    ),
    "generic body": (
        "%c = stablehlo.constant dense<0.0> : tensor<f32>\n%d = stablehlo.constant dense<1.0> : tensor<f32>\n"
        "%0:2 = stablehlo.reduce(%a init: %c), (%a init: %d) across dimensions = [1] : (tensor<2x3xf32>, tensor<2x3xf32>, "
        "tensor<f32>, tensor<f32>) -> (tensor<2xf32>, tensor<2xf32>)\n"
        " reducer(%p: tensor<f32>, %q: tensor<f32>) (%r: tensor<f32>, %s: tensor<f32>) {\n"
        "  %1 = stablehlo.add %p, %q : tensor<f32>\n  %2 = stablehlo.multiply %r, %s : tensor<f32>\n"
        "  stablehlo.return %1, %2 : tensor<f32>, tensor<f32>\n }\n"
        '%3 = "stablehlo.reduce_window"(%a, %d) <{padding = dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>, '
        "window_dimensions = array<i64: 1, 3>, window_strides = array<i64: 1, 2>}> ({\n"
        "^bb0(%p: tensor<f32>, %q: tensor<f32>):\n  %4 = stablehlo.multiply %p, %q : tensor<f32>\n"
        "  stablehlo.return %4 : tensor<f32>\n}) : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x2xf32>\n"
        "return %0#0, %0#1, %3 : tensor<2xf32>, tensor<2xf32>, tensor<2x2xf32>",
        (X,),
        (X.sum(1), X.prod(1), np.stack([X[:, 0] * X[:, 1], X[:, 1] * X[:, 2]], 1)),
    ),
    "dilated windows": (
        "%d = stablehlo.constant dense<0.0> : tensor<f32>\n%m = stablehlo.constant dense<1.0> : tensor<f32>\n"
        '%0 = "stablehlo.reduce_window"(%a, %d) <{base_dilations = array<i64: 1, 3>, window_dimensions = array<i64: 1, 4>, '
        "window_strides = array<i64: 1, 3>}> ({\n"
        "^bb0(%p: tensor<f32>, %q: tensor<f32>):\n  %4 = stablehlo.add %p, %q : tensor<f32>\n"
        "  stablehlo.return %4 : tensor<f32>\n}) : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x2xf32>\n"
        '%1 = "stablehlo.reduce_window"(%a, %m) <{base_dilations = array<i64: 2, 1>, window_dimensions = array<i64: 3, 1>}> ({\n'
        "^bb0(%p: tensor<f32>, %q: tensor<f32>):\n  %5 = stablehlo.multiply %p, %q : tensor<f32>\n"
        "  stablehlo.return %5 : tensor<f32>\n}) : (tensor<2x3xf32>, tensor<f32>) -> tensor<1x3xf32>\n"
        "return %0, %1 : tensor<2x2xf32>, tensor<1x3xf32>",
        (X,),
        (X[:, :2] + X[:, 1:], X[:1] * X[1:]),
    ),
    "case": (
        "%k = stablehlo.constant dense<5> : tensor<i32>\n"
        '%0 = "stablehlo.case"(%k) ({\n stablehlo.return %a : tensor<2x3xf32>\n}, {\n  %1 = stablehlo.negate %a : tensor<2x3xf32>\n'
        "  stablehlo.return %1 : tensor<2x3xf32>\n}) : (tensor<i32>) -> tensor<2x3xf32>\nreturn %0 : tensor<2x3xf32>",
        (X,),
        -X,
    ),
    "bits": (
        "%0 = stablehlo.popcnt %a : tensor<5xi32>\n%1 = stablehlo.count_leading_zeros %a : tensor<5xi32>\n"
        "return %0, %1 : tensor<5xi32>, tensor<5xi32>",
        (np.array([0, 1, -1, 0x0F0F0F0F, 1 << 20], np.int32),),
        ([0, 1, 32, 16, 1], [32, 31, 0, 4, 11]),
    ),
    "next floats": (
        "%0 = chlo.next_after %a, %b : tensor<9xf32>, tensor<9xf32> -> tensor<9xf32>\nreturn %0 : tensor<9xf32>",
        ANGLES,
        np.nextafter(*ANGLES),
    ),
    "shifts": (
        "%c = stablehlo.constant dense<1> : tensor<3xi32>\n%0 = stablehlo.subtract %a, %c : tensor<3xi32>\n"
        "%1 = stablehlo.negate %0 : tensor<3xi32>\n%2 = stablehlo.shift_right_logical %1, %c : tensor<3xi32>\n"
        "%3 = stablehlo.convert %1 : (tensor<3xi32>) -> tensor<3xui32>\n"
        "%4 = stablehlo.convert %c : (tensor<3xi32>) -> tensor<3xui32>\n"
        "%5 = stablehlo.shift_right_arithmetic %3, %4 : tensor<3xui32>\n"
        "return %2, %5 : tensor<3xi32>, tensor<3xui32>",
        (I,),
        ((1 - I).astype(np.uint32) >> 1, ((1 - I) >> 1).astype(np.uint32)),
    ),
    "rounding": (
        "%0 = stablehlo.round_nearest_afz %a : tensor<2x3xf32>\n%1 = stablehlo.round_nearest_even %a : tensor<2x3xf32>\n"
        "return %0, %1 : tensor<2x3xf32>, tensor<2x3xf32>",
        (X,),
        ([[2, -2, 1], [-1, 3, 3]], np.round(X)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_ops(name: str) -> None:
    lines, operands, expected = CASES[name]
    wanted = expected if isinstance(expected, tuple) else (expected,)
    for got, value in zip(run(lines, *operands), wanted, strict=True):
        np.testing.assert_array_equal(got, value)


@pytest.mark.parametrize(
    ("lines", "error", "message"),
    [
        (
            "%0 = stablehlo.partition_id : tensor<ui32>\nreturn %a : tensor<3xi32>",
            UnsupportedError,
            r"stablehlo.partition_id \(line 3\)",
        ),
        ("return %q : tensor<3xi32>", ModelError, "m.mlir:3: return: undefined value %q"),
        (
            "%0 = stablehlo.add %a, %a : tensor<4xi32>\nreturn %0 : tensor<4xi32>",
            ModelError,
            "m.mlir:3: stablehlo.add: its result",
        ),
        ("%0 = call @f(%a) : (tensor<3xi32>) -> tensor<3xi32>\nreturn %0 : tensor<3xi32>", ModelError, "@f is not a function"),
        (
            "%0 = stablehlo.constant dense<[1, 2]> : tensor<3xi32>\nreturn %0 : tensor<3xi32>",
            ModelError,
            "2 elements for the shape",
        ),
        ("%0 = stablehlo.iota dim = : tensor<3xi32>\nreturn %0 : tensor<3xi32>", ModelError, "m.mlir:3: expected"),
        (
            "%0 = stablehlo.convert %a : (tensor<3xi32>) -> tensor<3xcomplex64>\nreturn %0 : tensor<3xi32>",
            UnsupportedError,
            "complex",
        ),
        (
            "%0 = stablehlo.convert %a : (tensor<3xi32>) -> tensor<3xcomplex<f32>>\n"
            "%1 = stablehlo.remainder %0, %0 : tensor<3xcomplex<f32>>\nreturn %a : tensor<3xi32>",
            UnsupportedError,
            "m.mlir:4: stablehlo.remainder: not supported for complex operands",
        ),
        (
            "%0 = stablehlo.tuple %a : tuple<tensor<3xi32>>\nreturn %a : tensor<3xi32>",
            UnsupportedError,
            "m.mlir:3: values of type tuple are not supported",
        ),
        (
            "%0 = stablehlo.custom_call @solve(%a) {operand_layouts = [dense<0> : tensor<1xindex>]} : (tensor<3xi32>) -> "
            "tensor<3xi32>\nreturn %0 : tensor<3xi32>",
            UnsupportedError,
            r"stablehlo.custom_call @solve \(line 3\)",
        ),
        (
            "%p = stablehlo.reshape %a : (tensor<3xi32>) -> tensor<3x1xi32>\n"
            '%0 = "stablehlo.scatter"(%a, %p, %a) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], '
            "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({\n^bb0(%q: tensor<i32>, %r: tensor<i32>):\n"
            "  %1 = stablehlo.subtract %q, %r : tensor<i32>\n  stablehlo.return %1 : tensor<i32>\n"
            "}) : (tensor<3xi32>, tensor<3x1xi32>, tensor<3xi32>) -> tensor<3xi32>\nreturn %0 : tensor<3xi32>",
            UnsupportedError,
            "m.mlir:4: stablehlo.scatter: its body must return the update or be one of",
        ),
    ],
)
def test_errors_name_the_line(lines: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run(lines, I)


@pytest.mark.parametrize(
    ("text", "damaged", "line"),
    [
        ("[0:2]", "[0]", 4),
        ("[0:2]", "[true]", 4),
        ("dense<1>", "dense<one>", 3),
        ("-> tensor<2xi32>\nreturn", "-> tensor<2.5xi32>\nreturn", 4),
        ("return %0", "return %0, %0", 5),
        ("%0 = stablehlo.slice", "%0:2 = stablehlo.slice", 4),
    ],
)
def test_damaged_text_is_a_model_error(text: str, damaged: str, line: int) -> None:
    lines = (
        "%c = stablehlo.constant dense<1> : tensor<i32>\n"
        "%0 = stablehlo.slice %a [0:2] : (tensor<3xi32>) -> tensor<2xi32>\nreturn %0 : tensor<2xi32>"
    )
    whole = module(lines, "%a: tensor<3xi32>", "tensor<2xi32>")
    assert text in whole
    with pytest.raises(ModelError, match=f"m.mlir:{line}: "):
        read_module(whole.replace(text, damaged), "m.mlir")


def test_tokens_are_not_supported() -> None:
    with pytest.raises(UnsupportedError, match=r"m\.mlir:3: values of type !stablehlo\.token are not supported"):
        run('%0 = "stablehlo.create_token"() : () -> !stablehlo.token\nreturn %a : tensor<3xi32>', I)


@pytest.mark.parametrize("x", [X, X.T.copy()], ids=["wide", "tall"])
def test_lu_of_rectangular_matrices(x: np.ndarray) -> None:
    """Pivots are row numbers from 1 for the exchange with each row in turn."""
    rows, columns = x.shape
    type = f"tensor<{rows}x{columns}xf32>"
    lines = (
        f"%0:3 = stablehlo.custom_call @lapack_sgetrf_ffi(%a) {{mhlo.backend_config = {{}}}} : ({type}) -> "
        f"({type}, tensor<2xi32>, tensor<i32>)\nreturn %0#0, %0#1 : {type}, tensor<2xi32>"
    )
    factors, pivots = run(lines, x)
    permuted = x.copy()
    for k, other in enumerate(pivots - 1):
        permuted[[k, other]] = permuted[[other, k]]
    lower = np.tril(factors[:, :2], -1) + np.eye(rows, 2)
    assert np.abs(lower).max() <= 1
    np.testing.assert_allclose(lower @ np.triu(factors[:2]), permuted, rtol=1e-6)


def test_eigenvalues_of_a_general_matrix() -> None:
    types = "tensor<2xf32>, tensor<2xf32>, tensor<2x2xcomplex<f32>>, tensor<2x2xcomplex<f32>>, tensor<i32>"
    options = "mhlo.backend_config = {compute_left = 78 : ui8, compute_right = 86 : ui8}"
    lines = (
        f"%0:5 = stablehlo.custom_call @lapack_sgeev_ffi(%a) {{{options}}} : (tensor<2x2xf32>) -> ({types})\n"
        "%1 = stablehlo.real %0#3 : (tensor<2x2xcomplex<f32>>) -> tensor<2x2xf32>\n"
        "return %0#0, %0#1, %1 : tensor<2xf32>, tensor<2xf32>, tensor<2x2xf32>"
    )
    real, imag, vectors = run(lines, np.array([[0, -2], [2, 0]], np.float32))
    np.testing.assert_allclose([real, imag], [[0, 0], [-2, 2]], atol=1e-6)
    np.testing.assert_allclose(np.abs(vectors), np.sqrt(0.5) * np.eye(2)[:1].repeat(2, 0).T, atol=1e-6)


def test_sharding_is_ignored() -> None:
    """All arrays are on one device."""
    lines = '%0 = sdy.sharding_constraint %a <@mesh, [{"x"}, {}]> : tensor<2x3xf32>\nreturn %0 : tensor<2x3xf32>'
    text = module(lines, '%a: tensor<2x3xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}', "tensor<2x3xf32>")
    mesh = 'sdy.mesh @mesh = <["x"=2]> {stablehlo.mesh = {axes = []}}\n'
    read = read_module(text.replace("  func.func", f"  {mesh}  func.func"), "m.mlir")
    np.testing.assert_array_equal(evaluate(read.module, [X], read.weights)[0], X)


def test_angles() -> None:
    (got,) = run("%0 = stablehlo.atan2 %a, %b : tensor<9xf32>\nreturn %0 : tensor<9xf32>", *ANGLES)
    wanted = np.arctan2(*ANGLES)
    np.testing.assert_allclose(got, wanted, 2e-7)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))


def test_a_file_is_a_model(tmp_path: Path) -> None:
    path = tmp_path / "double.mlir"
    text = "%0 = stablehlo.add %a, %a : tensor<3xi32>\n    return %0 : tensor<3xi32>"
    path.write_text(module(text, "%a: tensor<3xi32>", "tensor<3xi32>"))
    model = compile_model(path, target="reference")
    assert [info.name for info in (*model.inputs, *model.outputs)] == ["a", "result0"]
    np.testing.assert_array_equal(model(I)["result0"], 2 * I)


COMPLEX: dict[str, Callable[[Any], Any]] = {
    "stablehlo.exponential_minus_one": np.expm1,
    "stablehlo.log_plus_one": np.log1p,
    "stablehlo.tan": np.tan,
    "stablehlo.tanh": np.tanh,
    "chlo.sinh": np.sinh,
    "chlo.cosh": np.cosh,
    "chlo.asinh": np.arcsinh,
    "stablehlo.cosine": np.cos,
    "stablehlo.logistic": lambda z: 1 / (1 + np.exp(-z)),
    "stablehlo.cbrt": lambda z: z ** (1 / 3),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_functions_of_complex_numbers(name: str) -> None:
    real, imag = np.array([[1, -0.25, 1e-4, 0, 30], [2, 0.5, -2e-4, 0, 1]], np.float32)
    of_complex = "tensor<5xcomplex<f32>>"
    arrow = f" -> {of_complex}" if name.startswith("chlo") else ""
    lines = (
        f"%0 = stablehlo.complex %a, %b : {of_complex}\n%1 = {name} %0 : {of_complex}{arrow}\n"
        "%2 = stablehlo.real %1 : ({0}) -> tensor<5xf32>\n%3 = stablehlo.imag %1 : ({0}) -> tensor<5xf32>\n"
        "%4 = stablehlo.concatenate %2, %3, dim = 0 : (tensor<5xf32>, tensor<5xf32>) -> tensor<10xf32>\nreturn %4 : tensor<10xf32>"
    ).replace("{0}", of_complex)
    wanted = COMPLEX[name](real + 1j * imag.astype(np.complex128))
    np.testing.assert_allclose(run(lines, real, imag)[0], [*wanted.real, *wanted.imag], rtol=2e-5, atol=1e-10)


def test_powers_of_complex_numbers() -> None:
    real, imag = np.array([[1, -0.25, 0, 0], [2, 0.5, 0, 0]], np.float32)
    exponents = np.array([2, 0.5, 0, 3], np.float32)
    lines = (
        "%0 = stablehlo.complex %a, %b : tensor<4xcomplex<f32>>\n%1 = stablehlo.complex %c, %c : tensor<4xcomplex<f32>>\n"
        "%2 = stablehlo.power %0, %1 : tensor<4xcomplex<f32>>\n"
        "%3 = stablehlo.real %2 : (tensor<4xcomplex<f32>>) -> tensor<4xf32>\nreturn %3 : tensor<4xf32>"
    )
    wanted = [*((real + 1j * imag)[:2] ** (exponents * (1 + 1j))[:2]).real, 1, 0]
    np.testing.assert_allclose(run(lines, real, imag, exponents)[0], wanted, rtol=1e-5)


@pytest.mark.parametrize("order", ["gt", "lt"])
def test_approximate_top_k_is_exact(order: str) -> None:
    x = np.array([[3, 1, 2], [5, 9, 4]], np.float32)
    comparator = (
        f"func.func private @first(%p: tensor<f32>, %q: tensor<f32>, %r: tensor<i32>, %s: tensor<i32>) -> tensor<i1> {{\n"
        f"%0 = stablehlo.compare {order.upper()}, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>\nreturn %0 : tensor<i1>\n}}\n"
    )
    settings = "aggregate_to_topk = true, recall_target = 0.9 : f32, reduction_dim = 1 : i64, top_k = {} : i64"
    lines = (
        "%i = stablehlo.iota dim = 1 : tensor<2x3xi32>\n%n = stablehlo.constant dense<-1> : tensor<i32>\n"
        "%f = stablehlo.constant dense<0.0> : tensor<f32>\n%0:2 = stablehlo.custom_call @ApproxTopK(%a, %i, %f, %n) "
        f"{{called_computations = [@first], mhlo.backend_config = {{{settings}}}}} : "
        "(tensor<2x3xf32>, tensor<2x3xi32>, tensor<f32>, tensor<i32>) -> (tensor<2x2xf32>, tensor<2x2xi32>)\n"
        "return %0#0 : tensor<2x2xf32>"
    )
    wanted = [[3, 2], [9, 5]] if order == "gt" else [[1, 2], [4, 5]]
    np.testing.assert_array_equal(run(lines.replace("top_k = {}", "top_k = 2"), x, functions=comparator)[0], wanted)
    with pytest.raises(UnsupportedError, match="2 results for k = 1"):
        run(lines.replace("top_k = {}", "top_k = 1"), x, functions=comparator)


IDENTITY = "func.func @main(%0: tensor<3xi32>) -> tensor<3xi32> {\n  return %0 : tensor<3xi32>\n}\n"


@pytest.mark.parametrize(
    ("text", "is_expected"),
    [
        ("%0 = chlo.erf_inv %arg0 : tensor<3xf32> -> tensor<3xf32>", True),
        ('%0:2 = "stablehlo.sort"(%a, %b)', True),
        ("  stablehlo.return %0 : tensor<i1>", True),
        (f"module @f attributes {{mhlo.num_partitions = 1 : i32}} {{\n{IDENTITY}}}", True),
        ('%0 = dl.add %a, %b : tensor<3xf32> loc("stablehlo.mlir":3:0)\n#a = loc("stablehlo.mlir":4:0)', False),
    ],
)
def test_text_of_stablehlo(text: str, is_expected: bool) -> None:
    assert is_stablehlo(text) == is_expected


@pytest.mark.parametrize("form", ["{}", "{}#loc = loc(unknown)", "module {{\n{}}}", "builtin.module @m {{\n{}}}"])
def test_functions_without_a_module_and_numbered_arguments(form: str) -> None:
    read = read_module(form.format(IDENTITY), "m.mlir")
    read.module.verify()
    np.testing.assert_array_equal(evaluate(read.module, [I], read.weights)[0], I)


def test_settings_of_a_dot_algorithm() -> None:
    x = X[:, :2]
    lines = (
        "%0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT], algorithm = "
        "<lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, "
        "rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : "
        "(tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>\nreturn %0 : tensor<2x2xf32>"
    )
    np.testing.assert_array_equal(run(lines, x)[0], x @ x)


def test_reductions_of_complex_numbers() -> None:
    """A maximum compares the real parts, and the imaginary parts of equal ones."""
    of_complex, scalar = "tensor<4xcomplex<f32>>", "tensor<complex<f32>>"
    lines = (
        f"%0 = stablehlo.complex %a, %b : {of_complex}\n%one = stablehlo.constant dense<(1.0, 0.0)> : {scalar}\n"
        + "".join(
            f"%{op} = stablehlo.reduce(%0 init: %one) applies stablehlo.{op} across dimensions = [0] : "
            f"({of_complex}, {scalar}) -> {scalar}\n"
            for op in ("multiply", "maximum")
        )
        + f"return %multiply, %maximum : {scalar}, {scalar}"
    )
    z = np.array([2 - 1j, 2 + 3j, -4 + 9j, 1j], np.complex64)
    results = run(lines, z.real.copy(), z.imag.copy())
    np.testing.assert_allclose(results, [z.prod().real, z.prod().imag, 2, 3], 1e-6)


def test_complex_to_real() -> None:
    lines = (
        "%0 = stablehlo.complex %a, %b : tensor<3xcomplex<f32>>\n"
        "%1 = stablehlo.convert %0 : (tensor<3xcomplex<f32>>) -> tensor<3xi32>\n"
        "%2 = stablehlo.convert %0 : (tensor<3xcomplex<f32>>) -> tensor<3xi1>\n"
        "return %1, %2 : tensor<3xi32>, tensor<3xi1>"
    )
    integers, booleans = run(lines, np.array([1.5, 0, 0], np.float32), np.array([9, 2, 0], np.float32))
    np.testing.assert_array_equal(integers, [1, 0, 0])
    # The imaginary part is ignored, as the specification says.
    np.testing.assert_array_equal(booleans, [True, False, False])


def test_parts_of_real_operands() -> None:
    lines = (
        "%0 = stablehlo.real %a : tensor<2x3xf32>\n%1 = stablehlo.imag %a : tensor<2x3xf32>\n"
        "return %0, %1 : tensor<2x3xf32>, tensor<2x3xf32>"
    )
    real, imag = run(lines, X[:, :3])
    np.testing.assert_array_equal(real, X[:, :3])
    np.testing.assert_array_equal(imag, np.zeros_like(X[:, :3]))


def test_constants_keep_the_signs_of_zeros() -> None:
    lines = "%0 = stablehlo.constant dense<[0.0, -0.0]> : tensor<2xf32>\nreturn %0 : tensor<2xf32>"
    np.testing.assert_array_equal(np.signbit(run(lines, I)[0]), [False, True])


def test_indices_above_the_range_of_i64() -> None:
    """They are clamped to the last position, and dropped by a scatter."""
    lines = (
        "%0 = stablehlo.dynamic_slice %a, %b, sizes = [2] : (tensor<3xi32>, tensor<ui64>) -> tensor<2xi32>\n"
        "%p = stablehlo.reshape %b : (tensor<ui64>) -> tensor<1x1xui64>\n"
        '%1 = "stablehlo.gather"(%a, %p) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], '
        "start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}> : (tensor<3xi32>, tensor<1x1xui64>) -> "
        "tensor<1xi32>\n"
        '%2 = "stablehlo.scatter"(%a, %p, %1) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], '
        "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({\n^bb0(%q: tensor<i32>, %r: tensor<i32>):\n"
        "  stablehlo.return %r : tensor<i32>\n}) : (tensor<3xi32>, tensor<1x1xui64>, tensor<1xi32>) -> tensor<3xi32>\n"
        "return %0, %1, %2 : tensor<2xi32>, tensor<1xi32>, tensor<3xi32>"
    )
    for got, wanted in zip(run(lines, I, np.array(1 << 63, np.uint64)), (I[1:], I[2:], I), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_map() -> None:
    lines = (
        "%k = stablehlo.constant dense<2> : tensor<i32>\n"
        '%0 = "stablehlo.map"(%a, %b) <{dimensions = array<i64: 0>}> ({\n^bb0(%p: tensor<i32>, %q: tensor<i32>):\n'
        "%1 = stablehlo.multiply %p, %q : tensor<i32>\n%2 = stablehlo.add %1, %k : tensor<i32>\n"
        "stablehlo.return %2 : tensor<i32>\n}) : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi32>\n"
        '%3 = "stablehlo.map"(%a) <{dimensions = array<i64: 0>}> ({\n^bb0(%p: tensor<i32>):\n'
        "stablehlo.return %k : tensor<i32>\n}) : (tensor<3xi32>) -> tensor<3xi32>\n"
        "return %0, %3 : tensor<3xi32>, tensor<3xi32>"
    )
    products, constants = run(lines, I, I[::-1].copy())
    np.testing.assert_array_equal(products, I * I[::-1] + 2)
    np.testing.assert_array_equal(constants, [2, 2, 2])


def test_a_bitcast_to_the_same_type() -> None:
    x = np.array([True, False])
    (got,) = run("%0 = stablehlo.bitcast_convert %a : (tensor<2xi1>) -> tensor<2xi1>\nreturn %0 : tensor<2xi1>", x)
    np.testing.assert_array_equal(got, x)


def test_sums_and_products_of_booleans() -> None:
    a, b = np.array([[True, True, False, False], [True, False, True, False]])
    lines = (
        "%0 = stablehlo.add %a, %b : tensor<4xi1>\n%1 = stablehlo.multiply %a, %b : tensor<4xi1>\n"
        "return %0, %1 : tensor<4xi1>, tensor<4xi1>"
    )
    for got, wanted in zip(run(lines, a, b), (a | b, a & b), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_the_error_for_a_callback_says_what_to_do() -> None:
    call = "%0 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%a) {index = 0 : ui64} : (tensor<3xi32>) -> tensor<3xi32>"
    with pytest.raises(UnsupportedError, match=r"_callback \(line 3\): a call of Python, .*EQX_ON_ERROR=nan"):
        run(f"{call}\nreturn %0 : tensor<3xi32>", I)


def test_truncated_text_is_an_error_with_a_line() -> None:
    """At every token: in particular no loop over tokens is endless."""
    text = (
        "#loc = loc(unknown)\n"
        'module @m attributes {mhlo.num_replicas = 1 : i32, x = ["a", {b = dense<1> : tensor<1xi32>}]} {\n'
        'func.func @main(%a: tensor<2x3xf32> {jax.arg = 1}) -> (tensor<2xf32> {jax.result_info = "r"}) {\n'
        "%c = stablehlo.constant dense<0.0> : tensor<f32>\n"
        "%0 = stablehlo.reduce(%a init: %c) applies stablehlo.add across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> "
        "tensor<2xf32> loc(#loc)\n"
        '%1 = "stablehlo.slice"(%0) <{start_indices = array<i64: 0>, limit_indices = array<i64: 2>, strides = array<i64: 1>}> : '
        "(tensor<2xf32>) -> tensor<2xf32>\n"
        "%2 = stablehlo.while(%i = %1) : tensor<2xf32> cond {\n%t = stablehlo.constant dense<false> : tensor<i1>\n"
        "stablehlo.return %t : tensor<i1>\n} do {\nstablehlo.return %i : tensor<2xf32>\n}\n"
        "return %2 : tensor<2xf32>\n}\n}\n"
    )
    read_module(text, "m.mlir")
    ends = [match.end() for match in re.finditer(r"[%@#\w.]+|\S", text)][:-1]
    for end in ends:
        with pytest.raises(DlcError, match=r"m\.mlir:\d+: |no function @main"):
            read_module(text[:end], "m.mlir")
