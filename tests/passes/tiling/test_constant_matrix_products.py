"""Products with constant matrices: shared subexpressions are found, and results equal the matrix product."""

from __future__ import annotations

import numpy as np
import pytest

import dlc.compiler
from dlc.dialects import dl
from dlc.dialects.dl.base import tensor_type
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, dense_attribute
from dlc.ir import SSAValue, f32
from dlc.options import Options
from dlc.passes.dl.contractions.winograd_algorithms import FLOAT_ALGORITHMS
from dlc.passes.tiling.constant_matrix_products import LinearCombination, factor_common_terms
from tests.passes.programs import Writer, program, randoms
from tests.targets import NATIVE

_INPUT, _OUTPUT = FLOAT_ALGORITHMS[-1].input, FLOAT_ALGORITHMS[-1].output


def factored(matrix: np.ndarray, dtype: str = "float32") -> tuple[list[LinearCombination], list[LinearCombination]]:
    numbers = matrix.astype(dtype)
    made, rows = factor_common_terms(dense_attribute(numbers, tensor_type(matrix.shape, ELEMENT_TYPES[dtype])))
    return list(made), list(rows)


def additions(matrix: np.ndarray) -> int:
    made, rows = factored(matrix)
    return sum(len(terms) - 1 for terms in (*made, *rows))


# The addition counts of Lavin and Gray; without sharing, each nonzero element would be a multiplication and an addition.
@pytest.mark.parametrize(
    "matrix, least", [(_INPUT, 12), (_OUTPUT, 10), (FLOAT_ALGORITHMS[0].input, 4), (FLOAT_ALGORITHMS[0].output, 4)]
)
def test_rows_share_subexpressions(matrix: np.ndarray, least: int) -> None:
    assert additions(matrix) == least


def test_unshared_terms_are_unchanged() -> None:
    matrix = np.array([[1, 2, 0], [0, 3, 5], [7, 0, 1]])
    assert factored(matrix) == ([], [((0, 1), (1, 2)), ((1, 3), (2, 5)), ((0, 7), (2, 1))])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
@pytest.mark.parametrize("seed", range(8))
def test_factored_rows_equal_the_matrix(dtype: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    matrix = random.integers(-3, 4, random.integers(1, 9, 2)) if seed % 2 or dtype == "int16" else random.random((4, 5)) / 3
    made, rows = factored(matrix, dtype)
    columns = matrix.shape[1]
    values = [np.eye(columns, dtype=object)[k] for k in range(columns)]
    for terms in made:
        values.append(sum(n * values[k] for k, n in terms))
    found = [sum((n * values[k] for k, n in terms), np.zeros(columns, object)) for terms in rows]
    # Rational arithmetic: nothing is rounded.
    np.testing.assert_array_equal(np.array(found, object), matrix.astype(dtype))


def test_integers_stay_integers() -> None:
    made, rows = factored(np.array([[2, 3], [4, 6], [6, 9]]), "int16")
    assert (made, len(rows)) == ([], 3)


@pytest.mark.parametrize(("dtype", "large"), [("float32", 3e38), ("float64", 1e308)])
def test_coefficients_outside_the_dtype_are_not_shared(dtype: str, large: float) -> None:
    made, rows = factored(np.array([[large, 1 / large], [large, 1 / large]]), dtype)
    # The shared pair is scaled by a value of the dtype, or nothing is shared.
    assert all(np.isfinite(np.dtype(dtype).type(float(n))) for terms in (*made, *rows) for _, n in terms)


def times(x: np.ndarray, matrix: np.ndarray, axis: int, target: str) -> np.ndarray:
    """Multiply `x` by a constant matrix along an axis, which becomes the matrix's rows."""

    def body(b: Writer, x: SSAValue) -> SSAValue:
        numbers = dense_attribute(matrix, tensor_type(matrix.shape, f32))
        return b(dl.ModeProductOp, x, b(dl.ConstantOp, value=numbers), axis=axis, to=axis, matrix_values=numbers)

    p = program(body, x)
    model = dlc.compiler.compile(dlc.compiler.Program(p.module, p.weights), target, Options(num_threads=1))
    return next(iter(model(x).values()))


# Square data has the same strides as the matrix.
@pytest.mark.parametrize("target", [*NATIVE, "cpu:generic"])
@pytest.mark.parametrize("axis", [0, 1])
def test_data_with_the_shape_of_the_matrix(axis: int, target: str) -> None:
    matrix = np.array([[1, 0, 1], [2, 0, 2], [1, 1, 1]], np.float32)
    (x,) = randoms((3, 3))
    expected = matrix @ x if axis == 0 else x @ matrix.T
    np.testing.assert_allclose(times(x, matrix, axis, target), expected, 1e-5)


# A matrix with nonfinite elements is read from memory.
@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_nonfinite_matrix_elements(number: float) -> None:
    matrix = np.array([[1, number], [1, 1]], np.float32)
    (x,) = randoms((2, 32))
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(times(x, matrix, 0, "cpu"), matrix @ x, 1e-6)
