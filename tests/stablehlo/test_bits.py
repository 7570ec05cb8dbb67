"""Bitcasts between types of different widths, and high halves of products, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.stablehlo.test_reader import run

NAMES = {"int8": "i8", "uint8": "ui8", "int16": "i16", "uint16": "ui16", "int32": "i32", "uint32": "ui32", "int64": "i64"} | {
    "uint64": "ui64", "float16": "f16", "float32": "f32", "float64": "f64", "bool": "i1",
}  # fmt: skip


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [("float32", "uint8"), ("float64", "int16"), ("int16", "int8"), ("uint64", "float32"), ("int32", "bool")],
)
def test_bitcasts_to_parts_and_back(wide: str, narrow: str) -> None:
    """The parts are along the last axis, as in a little-endian memory."""
    x = np.random.default_rng(0).integers(0, 1 << 32, (2, 3)).astype(wide)
    if narrow == "bool":
        parts = np.unpackbits(x.view(np.uint8), bitorder="little").reshape(2, 3, -1).astype(bool)
    else:
        parts = x.view(narrow).reshape(2, 3, -1)
    whole, split = f"tensor<2x3x{NAMES[wide]}>", f"tensor<2x3x{parts.shape[-1]}x{NAMES[narrow]}>"
    lines = "%0 = stablehlo.bitcast_convert %a : ({}) -> {}\nreturn %0 : {}"
    for operand, wanted, types in ((x, parts, (whole, split)), (parts, x, (split, whole))):
        (got,) = run(lines.format(*types, types[1]), operand)
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got.view(np.uint8), wanted.view(np.uint8))


@pytest.mark.parametrize("dtype", [name for name in NAMES if "int" in name])
def test_high_products(dtype: str) -> None:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    drawn = np.random.default_rng(0).integers(low, high, (2, 20), dtype, endpoint=True)
    a, b = np.concatenate([np.array([[low, low, high, high, 1], [low, high, low, high, low]], dtype), drawn], 1)
    type = f"tensor<25x{NAMES[dtype]}>"
    (got,) = run(f"%0 = chlo.mulhi %a, %b : {type}, {type} -> {type}\nreturn %0 : {type}", a, b)
    assert got.tolist() == [(int(x) * int(y)) >> (8 * a.itemsize) for x, y in zip(a, b, strict=True)]
