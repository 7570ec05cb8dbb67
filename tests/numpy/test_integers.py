"""Integer functions: divisors of many elements in one loop, and bits as bytes of words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from tests.targets import NATIVE

DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def _pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return random pairs and the ones that take the most steps, Fibonacci numbers, and limits."""
    limits, rng = np.iinfo(dtype), np.random.default_rng(1)
    fibonacci = [1, 1]
    while sum(fibonacci[-2:]) <= limits.max:
        fibonacci.append(sum(fibonacci[-2:]))
    x, y = (rng.integers(limits.min, limits.max, 61, dtype, endpoint=True) for _ in range(2))
    x[:7] = [0, 0, limits.max, limits.min, limits.max - 1, fibonacci[-1], limits.max]
    y[:7] = [0, 7, limits.max, 0, limits.max, fibonacci[-2], 1]
    return x, y


@pytest.mark.parametrize("target", NATIVE)
def test_divisors_of_all_integer_types(target: str) -> None:
    pairs = {dtype: _pairs(dtype) for dtype in DTYPES}

    @dlc.jit(target=target)
    def divide(arguments: dict[str, Any]) -> dict[str, Any]:
        return {name: (dnp.gcd(x, y), dnp.lcm(x, y)) for name, (x, y) in arguments.items()}

    for dtype, (divisors, multiples) in divide(pairs).items():
        x, y = pairs[dtype]
        np.testing.assert_array_equal(divisors, np.gcd(x, y), err_msg=dtype)
        np.testing.assert_array_equal(multiples, np.lcm(x, y), err_msg=dtype)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_divisors_and_bits_of_symbolic_sizes(target: str) -> None:
    @dlc.jit(target=target, dynamic={"x": {0: "n"}, "y": {0: "n"}}, cache=False)
    def compute(x: Any, y: Any) -> Any:
        return dnp.gcd(x, y), dnp.packbits(x), dnp.unpackbits(dnp.astype(y, dnp.uint8))

    x, y = _pairs("int32")
    for n in (61, 16, 1):
        expected = np.gcd(x[:n], y[:n]), np.packbits(x[:n]), np.unpackbits(y[:n].astype(np.uint8))
        for got, array in zip(compute(x[:n], y[:n]), expected, strict=True):
            np.testing.assert_array_equal(got, array)


def test_divisors_and_bits_under_vmap() -> None:
    x, y = (v[:60].reshape(3, 20) for v in _pairs("int32"))

    def compute(x: Any, y: Any) -> Any:
        return dnp.gcd(x, y), dnp.packbits(x), dnp.unpackbits(dnp.astype(y, dnp.uint8))

    expected = np.gcd(x, y), np.packbits(x, axis=1), np.unpackbits(y.astype(np.uint8), axis=1)
    for got, array in zip(dlc.jit(dlc.vmap(compute))(x, y), expected, strict=True):
        np.testing.assert_array_equal(got, array)


@pytest.mark.parametrize("target", NATIVE)
def test_a_part_of_unpacked_bits(target: str) -> None:
    x = np.random.default_rng(0).integers(0, 256, 40, np.uint8)
    bits = dlc.jit(target=target)(lambda x: (dnp.unpackbits(x + np.uint8(1))[3:], dnp.unpackbits(x)[64:128] * 2))(x)
    np.testing.assert_array_equal(bits[0], np.unpackbits(x + np.uint8(1))[3:])
    np.testing.assert_array_equal(bits[1], np.unpackbits(x)[64:128] * 2)
