"""`arith` and `math` where NumPy's own result would differ, and at edge cases."""

import numpy as np
import pytest

from dlc.backends.reference import evaluate
from dlc.backends.reference.scalars import fma
from dlc.dialects.registry import make_context
from dlc.ir import parse_module

INT_MIN = -(2**31)
INF, NAN = np.inf, np.nan


def run(op: str, x: np.ndarray, y: np.ndarray, t: str, result: str, suffix: str = "") -> np.ndarray:
    binary = ", %b" if y is not None else ""
    arguments = f"%x: tensor<{x.size}x{t}>, %y: tensor<{x.size}x{t}>, %o: tensor<{x.size}x{result}>"
    row = "affine_map<(i) -> (i)>"
    module = parse_module(
        make_context(),
        f"""
        func.func @main({arguments}) -> tensor<{x.size}x{result}> {{
          %r = linalg.generic {{indexing_maps = [{row}, {row}, {row}], iterator_types = ["parallel"]}}
            ins(%x, %y : tensor<{x.size}x{t}>, tensor<{x.size}x{t}>) outs(%o : tensor<{x.size}x{result}>) {{
          ^bb0(%a: {t}, %b: {t}, %c: {result}):
            %e = {op} %a{binary} : {t}{suffix}
            linalg.yield %e : {result}
          }} -> tensor<{x.size}x{result}>
          func.return %r : tensor<{x.size}x{result}>
        }}""",
    )
    module.verify()
    kind = {"i1": np.bool_, "i8": np.int8, "i32": np.int32, "i64": np.int64, "f32": np.float32}
    (got,) = evaluate(module, [x, y if y is not None else x, np.zeros(x.size, kind[result])])
    return got


BINARY = [
    ("arith.addi", "i32", [2**31 - 1], [1], [INT_MIN]),
    ("arith.divsi", "i32", [7, -7, 7, -7, 5, INT_MIN], [2, 2, -2, -2, 0, -1], [3, -3, -3, 3, 0, INT_MIN]),
    ("arith.divui", "i8", [-1, -2], [2, 0], [127, 0]),
    ("arith.remui", "i8", [-1, -2], [10, 0], [5, 0]),
    ("arith.maxui", "i8", [-1, 3], [1, 4], [-1, 4]),
    ("arith.minsi", "i8", [-1, 3], [1, 4], [-1, 3]),
    ("arith.shli", "i8", [1, 1, 3], [7, 8, 1], [-128, 0, 6]),
    ("arith.shrui", "i8", [-1, -1], [1, 8], [127, 0]),
    ("arith.shrsi", "i8", [-128, -128, 64], [1, 8, 2], [-64, -1, 16]),
    ("arith.addi", "i1", [1, 1, 0], [1, 0, 0], [0, 1, 0]),
    ("arith.maximumf", "f32", [1, NAN, 2], [2, 1, NAN], [2, NAN, NAN]),
    ("arith.divf", "f32", [1, -1, 0], [0, 0, 0], [INF, -INF, NAN]),
    ("math.copysign", "f32", [1, 2], [-0.0, 1], [-1, 2]),
]


@pytest.mark.parametrize(("op", "t", "x", "y", "expected"), BINARY, ids=[f"{b[0]}-{b[1]}" for b in BINARY])
def test_binary(op, t, x, y, expected):
    dtype = {"i1": np.bool_, "i8": np.int8, "i32": np.int32, "f32": np.float32}[t]
    got = run(op, np.array(x, dtype), np.array(y, dtype), t, t)
    np.testing.assert_array_equal(got, np.array(expected, dtype))


COMPARISONS = [
    ("arith.cmpi ult,", "i8", [-1, 1], [1, -1], [0, 1]),
    ("arith.cmpi slt,", "i8", [-1, 1], [1, -1], [1, 0]),
    ("arith.cmpf olt,", "f32", [1, NAN, 2], [2, 1, 1], [1, 0, 0]),
    ("arith.cmpf ult,", "f32", [1, NAN, 2], [2, 1, 1], [1, 1, 0]),
    ("arith.cmpf one,", "f32", [1, NAN, 2], [2, 1, 2], [1, 0, 0]),
    ("arith.cmpf une,", "f32", [1, NAN, 2], [2, 1, 2], [1, 1, 0]),
    ("arith.cmpf ord,", "f32", [1, NAN], [2, 1], [1, 0]),
    ("arith.cmpf uno,", "f32", [1, NAN], [2, 1], [0, 1]),
]


@pytest.mark.parametrize(("op", "t", "x", "y", "expected"), COMPARISONS, ids=[c[0].strip(",") for c in COMPARISONS])
def test_comparison(op, t, x, y, expected):
    dtype = {"i8": np.int8, "f32": np.float32}[t]
    np.testing.assert_array_equal(run(op, np.array(x, dtype), np.array(y, dtype), t, "i1"), np.array(expected, np.bool_))


CONVERSIONS = [
    ("arith.fptosi", np.float32, "f32", "i8", [1.9, -1.9, 300, -300, INF, NAN], [1, -1, 127, -128, 127, 0]),
    ("arith.fptoui", np.float32, "f32", "i8", [1.9, -1.9, 300], [1, 0, -1]),
    ("arith.fptosi", np.float32, "f32", "i64", [1e30, -1e30], [2**63 - 1, -(2**63)]),
    ("arith.extsi", np.bool_, "i1", "i8", [1, 0], [-1, 0]),
    ("arith.extui", np.bool_, "i1", "i8", [1, 0], [1, 0]),
    ("arith.extui", np.int8, "i8", "i32", [-1], [255]),
    ("arith.trunci", np.int32, "i32", "i8", [300, -129], [44, 127]),
    ("arith.trunci", np.int32, "i32", "i1", [2, 3], [0, 1]),
    ("arith.uitofp", np.int8, "i8", "f32", [-1], [255]),
    ("arith.bitcast", np.float32, "f32", "i32", [1.0, -0.0], [0x3F800000, INT_MIN]),
]


@pytest.mark.parametrize(("op", "dtype", "t", "to", "x", "expected"), CONVERSIONS, ids=[f"{c[0]}-{c[3]}" for c in CONVERSIONS])
def test_conversion(op, dtype, t, to, x, expected):
    got = run(op, np.array(x, dtype), None, t, to, f" to {to}")
    np.testing.assert_array_equal(got, np.array(expected, got.dtype))


def test_fma_rounds_once():
    # (1 + 2⁻³⁰)² − 1 − 2⁻²⁹ = 2⁻⁶⁰, which is lost if the product is rounded.
    a = np.array(1 + 2.0**-30)
    assert fma(a, a, np.array(-1 - 2.0**-29)) == 2.0**-60
    with np.errstate(all="ignore"):
        assert fma(np.array(INF), np.array(1.0), np.array(1.0)) == INF
        assert fma(np.array(1e300), np.array(1e300), np.array(-INF)) == -INF
