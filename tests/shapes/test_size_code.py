"""Size functions evaluate polynomials exactly, for any symbol names and magnitudes."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from dlc.errors import ModelError
from dlc.shapes.dims import Dim, Size, is_nonnegative, substitute
from dlc.shapes.parsing import parse_size
from dlc.shapes.size_code import size_function

N, M = Dim.symbol("N"), Dim.symbol("import os; M")


def drawn(draw: Random, depth: int = 3) -> Size:
    if depth == 0:
        return draw.choice([N, M, draw.randint(-9, 9)])
    a, b = drawn(draw, depth - 1), drawn(draw, depth - 1)
    match draw.randint(0, 3):
        case 0:
            return a + b
        case 1:
            return a - b
        case 2:
            return a * b
        case _:
            return a // draw.randint(1, 9)


@pytest.mark.parametrize("seed", range(40))
def test_functions_evaluate_polynomials(seed: int) -> None:
    draw = Random(seed)
    sizes = [drawn(draw) for _ in range(4)]
    at = size_function([str(N), str(M)], (sizes[:2], [], (sizes[2], (sizes[3],))))
    for n, m in ((0, 0), (1, 5), (7, 3), (10**12, 10**30)):
        a, b, c, d = (substitute(size, {str(N): n, str(M): m}) for size in sizes)
        assert at(n, m) == ((a, b), (), (c, (d,)))
        assert all(int(value) >= 0 for value, size in zip((a, b, c, d), sizes, strict=True) if is_nonnegative(size))


def test_numbers_of_any_length() -> None:
    large = 7**9000
    assert size_function(["N"], (N * large, -large))(2) == (2 * large, -large)


def test_an_unknown_symbol_is_rejected() -> None:
    with pytest.raises(ModelError, match="import os; M"):
        size_function(["N"], (N, (M,)))


def test_division_by_zero() -> None:
    with pytest.raises(ZeroDivisionError):
        size_function(["N"], (64 // N,))(0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("N", True), ("2 * N * M + 3", True), ("(N + 5) // 2", True), ("N - 1", False), ("-N", False), ("(-N) // 2", False)],
)
def test_never_negative(text: str, expected: bool) -> None:
    assert is_nonnegative(parse_size(text)) == expected


@pytest.mark.parametrize("text", ["-N // 3", "(4 - 2 * N) // 6", "(2 * N - 6 * M - 1) // 4", "-(-N // 8)", "(-N - 1) // -2"])
def test_floor_divisions_round_down_for_negative_dividends(text: str) -> None:
    size = parse_size(text)
    for n, m in product(range(10), repeat=2):
        assert substitute(size, {"N": n, "M": m}) == eval(text, {"N": n, "M": m})


def test_equal_roundings_up_are_the_same_size() -> None:
    assert -(-N // 8) == (N + 7) // 8
