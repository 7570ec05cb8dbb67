"""Ops on 4-bit integers and 8-bit floats, compared with ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from dlc.compiler import Program, compile
from dlc.errors import UnsupportedError
from dlc.options import Options
from dlc.stablehlo import read_module
from tests.stablehlo.test_reader import module

_ELEMENTWISE = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum}


def results(target: str, lines: str, *operands: np.ndarray) -> list[np.ndarray]:
    """Return the results of `lines` for the operands %a, %b of the same type."""
    element = {"int4": "i4", "uint4": "ui4", "float8_e4m3fn": "f8E4M3FN", "float8_e5m2": "f8E5M2"}[operands[0].dtype.name]
    text = lines.replace("{V}", f"tensor<{len(operands[0])}x{element}>").replace("{S}", f"tensor<{element}>")
    types = ", ".join(f"%{name}: tensor<{len(operands[0])}x{element}>" for name in "ab")
    read = read_module(module(text, types, text.rpartition(" : ")[2]), "m.mlir")
    model = compile(Program(read.module, read.weights, "main"), target, Options(cache=False))
    return [np.asarray(y) for y in model.run_unchecked(operands)]


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_results_are_rounded_or_wrap(target: str, dtype: str) -> None:
    storage = np.dtype(getattr(ml_dtypes, dtype))
    is_integer = "int" in dtype
    wide = {"int4": np.int8, "uint4": np.uint8}.get(dtype, np.float32)
    low = -8 if dtype == "int4" else 0
    a, b = (np.random.default_rng(seed).integers(low, low + 16, 7).astype(storage) for seed in range(2))
    lines = "".join(f"%{name} = stablehlo.{name} %a, %b : {{V}}\n" for name in _ELEMENTWISE)
    number = "1" if is_integer else "1.0"
    lines += (
        f"%c = stablehlo.constant dense<{number}> : {{S}}\n%k = stablehlo.constant dense<[{', '.join([number] * 7)}]> : {{V}}\n"
        "%plus = stablehlo.add %a, %k : {V}\n"
        "%sum = stablehlo.reduce(%a init: %c) applies stablehlo.add across dimensions = [0] : ({V}, {S}) -> {S}\n"
        "%i = stablehlo.constant dense<0> : tensor<i32>\n%n = stablehlo.constant dense<3> : tensor<i32>\n"
        "%one = stablehlo.constant dense<1> : tensor<i32>\n"
        "%loop:2 = stablehlo.while(%j = %i, %s = %a) : tensor<i32>, {V} cond {\n"
        "%t = stablehlo.compare LT, %j, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>\nstablehlo.return %t : tensor<i1>\n} do {\n"
        "%j2 = stablehlo.add %j, %one : tensor<i32>\n%s2 = stablehlo.add %s, %b : {V}\n"
        "stablehlo.return %j2, %s2 : tensor<i32>, {V}\n}\n"
        "%f = stablehlo.convert %a : ({V}) -> tensor<7xf32>\n%back = stablehlo.convert %f : (tensor<7xf32>) -> {V}\n"
        "%dot = stablehlo.dot_general %a, %b, contracting_dims = [0] x [0] : ({V}, {V}) -> tensor<f32>\n"
        "return %add, %multiply, %maximum, %plus, %sum, %loop#1, %back, %dot : {V}, {V}, {V}, {V}, {S}, {V}, {V}, tensor<f32>"
    )
    x, y = a.astype(wide), b.astype(wide)

    def stored(value: np.ndarray) -> np.ndarray:
        """The lowest bits of an integer, or the nearest float."""
        value = np.asarray(value, wide)
        return (((value - low) % 16 + low) if is_integer else value).astype(storage)

    looped = a
    for _ in range(3):
        looped = stored(looped.astype(wide) + y)
    wanted = [stored(function(x, y)) for function in _ELEMENTWISE.values()]
    wanted += [
        stored(x + wide(1)),
        stored(x.sum(dtype=wide) + wide(1)),
        looped,
        a,
        np.asarray(a, np.float32) @ b.astype(np.float32),
    ]
    for got, value in zip(results(target, lines, a, b), wanted, strict=True):
        assert got.dtype == value.dtype
        np.testing.assert_array_equal(got.astype(np.float32), value.astype(np.float32))


def test_an_op_that_counts_bits_is_refused() -> None:
    a = np.zeros(3, ml_dtypes.int4)
    with pytest.raises(UnsupportedError, match="popcnt: not supported for integers of less than 8 bits"):
        results("reference", "%0 = stablehlo.popcnt %a : {V}\nreturn %0 : {V}", a, a)
