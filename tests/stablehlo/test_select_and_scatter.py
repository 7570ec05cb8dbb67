"""Select and scatter with any selection, sum, initial value and padding, compared with a loop over the windows."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.stablehlo.test_reader import run

SELECTIONS: dict[str, Callable[..., Any]] = {"GE": operator.ge, "LE": operator.le, "GT": operator.gt}
COMBINATIONS: dict[str, Callable[..., Any]] = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum}
KERNEL, STRIDES = (3, 2), (2, 2)


def loop_over_windows(
    x: np.ndarray, source: np.ndarray, init: int, padding: Any, select: Callable[..., Any], combine: Callable[..., Any]
) -> np.ndarray:
    """The definition: elements are visited in row-major order, and padding is not selected."""
    result = np.full_like(x, init)
    for window in np.ndindex(source.shape):
        selected = None
        for offset in product(*map(range, KERNEL)):
            position = tuple(w * s + o - low for w, s, o, (low, _) in zip(window, STRIDES, offset, padding, strict=True))
            is_inside = all(0 <= p < n for p, n in zip(position, x.shape, strict=True))
            if is_inside and (selected is None or not select(x[selected], x[position])):
                selected = position
        if selected is not None:
            result[selected] = combine(result[selected], source[window])
    return result


@pytest.mark.parametrize("padding", [((0, 0), (0, 0)), ((1, 1), (2, 0))], ids=["valid", "padded"])
@pytest.mark.parametrize(("init", "combine"), [(0, "add"), (5, "add"), (2, "multiply"), (3, "maximum")])
@pytest.mark.parametrize(("dtype", "select"), [("i8", "GE"), ("i64", "LE"), ("f32", "GT"), ("f32", "GE"), ("ui32", "GT")])
def test_select_and_scatter(dtype: str, select: str, init: int, combine: str, padding: Any) -> None:
    numpy_dtype = {"i8": np.int8, "i64": np.int64, "f32": np.float32, "ui32": np.uint32}[dtype]
    rng = np.random.default_rng(0)
    x = rng.integers(0, 4, (6, 7)).astype(numpy_dtype)
    shape = [(n + sum(pair) - k) // s + 1 for n, pair, k, s in zip(x.shape, padding, KERNEL, STRIDES, strict=True)]
    source = rng.integers(0, 100, shape).astype(numpy_dtype)
    of_x, of_source, scalar = f"tensor<6x7x{dtype}>", f"tensor<{shape[0]}x{shape[1]}x{dtype}>", f"tensor<{dtype}>"
    value = f"{init}.0" if dtype == "f32" else str(init)
    lines = (
        f"%z = stablehlo.constant dense<{value}> : {scalar}\n"
        '%0 = "stablehlo.select_and_scatter"(%a, %b, %z) <{window_dimensions = array<i64: 3, 2>, '
        f"window_strides = array<i64: 2, 2>, padding = dense<{[list(pair) for pair in padding]}> : tensor<2x2xi64>}}> ({{\n"
        f"^bb0(%p: {scalar}, %q: {scalar}):\n%1 = stablehlo.compare {select}, %p, %q : ({scalar}, {scalar}) -> tensor<i1>\n"
        f"stablehlo.return %1 : tensor<i1>\n}}, {{\n^bb0(%p: {scalar}, %q: {scalar}):\n"
        f"%1 = stablehlo.{combine} %p, %q : {scalar}\nstablehlo.return %1 : {scalar}\n}}) : "
        f"({of_x}, {of_source}, {scalar}) -> {of_x}\nreturn %0 : {of_x}"
    )
    wanted = loop_over_windows(x, source, init, padding, SELECTIONS[select], COMBINATIONS[combine])
    np.testing.assert_array_equal(run(lines, x, source)[0], wanted)
