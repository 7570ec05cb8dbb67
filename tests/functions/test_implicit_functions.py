"""`custom_root` and `custom_linear_solve`: values, and derivatives of every order that do not depend on the solver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.errors import DTypeError, ShapeError

draw = np.random.default_rng(0)
MATRIX = draw.normal(size=(4, 4))
SYMMETRIC = MATRIX @ MATRIX.T + 4 * np.eye(4)
RIGHT_SIDE = draw.normal(size=4)


def newton(f: Any, x: Any) -> Any:
    """Find a root by Newton's method: a while loop, which has no reverse mode."""

    def step(state: Any) -> Any:
        value, slope = dlc.jvp(f, (state[0],), (dnp.ones_like(state[0]),))
        return state[0] - value / slope, value

    return lax.while_loop(lambda s: dnp.abs(s[1]) > 1e-13, step, (x, dnp.ones_like(x)))[0]


def cube_root(a: Any) -> Any:
    return lax.custom_root(lambda x: x**3 - a, dnp.ones_like(a), newton, lambda g, y: y / g(1.0))


def conjugate_gradient(matvec: Any, b: Any) -> Any:
    def step(state: Any) -> Any:
        x, direction, residual = state
        product, square = matvec(direction), residual @ residual
        scale = square / (direction @ product)
        next_residual = residual - scale * product
        return x + scale * direction, next_residual + (next_residual @ next_residual) / square * direction, next_residual

    return lax.while_loop(lambda s: s[2] @ s[2] > 1e-26, step, (b * 0, b, b))[0]


def symmetric_solution(matrix: Any, b: Any) -> Any:
    return lax.custom_linear_solve(lambda x: (matrix + matrix.T) @ x / 2, b, conjugate_gradient, symmetric=True)


def general_solution(matrix: Any, b: Any) -> Any:
    """Solve with a while loop in both directions: the normal equations by conjugate gradients."""
    return lax.custom_linear_solve(
        lambda x: matrix @ x,
        b,
        lambda matvec, b: conjugate_gradient(lambda x: matrix.T @ matvec(x), matrix.T @ b),
        lambda vecmat, c: conjugate_gradient(lambda x: matrix @ vecmat(x), matrix @ c),
    )


def test_root_has_derivatives_of_any_order() -> None:
    a = np.float64(8)
    functions = [cube_root]
    for _ in range(3):
        functions.append(dlc.grad(functions[-1]))
    expected = [2, 1 / 12, -2 / 9 * 8 ** (-5 / 3), 10 / 27 * 8 ** (-8 / 3)]
    np.testing.assert_allclose([dlc.jit(f)(a) for f in functions], expected, rtol=1e-12)
    assert dlc.jvp(cube_root, (a,), (np.float64(3),))[1] == pytest.approx(1 / 4)
    np.testing.assert_allclose(dlc.vmap(dlc.grad(cube_root))(np.array([1.0, 8.0, 27.0])), [1 / 3, 1 / 12, 1 / 27])


def test_root_of_a_pytree() -> None:
    def circle_and_line(radius: Any, slope: Any) -> Any:
        def f(point: Any) -> Any:
            return {"x": point["x"] ** 2 + point["y"] ** 2 - radius**2, "y": point["y"] - slope * point["x"]}

        def solve(f: Any, guess: Any) -> Any:
            x = radius / dnp.sqrt(1 + slope**2)
            return {"x": x, "y": slope * x}, 7

        def tangent_solve(g: Any, y: Any) -> Any:
            leaves = dlc.tree.leaves(y)
            columns = [dlc.tree.leaves(g({"x": i == 0, "y": i == 1} | {"x": 1.0 - i, "y": 0.0 + i})) for i in range(2)]
            solution = dnp.linalg.solve(dnp.stack([dnp.stack(c) for c in columns], 1), dnp.stack(leaves))
            return {"x": solution[0], "y": solution[1]}

        root, aux = lax.custom_root(f, {"x": dnp.ones_like(radius), "y": dnp.ones_like(radius)}, solve, tangent_solve, True)
        return root["x"] + 2 * root["y"] + 0 * aux

    r, s = np.float64(2), np.float64(0.5)
    by_radius, by_slope = dlc.grad(circle_and_line, (0, 1))(r, s)
    x = r / np.sqrt(1 + s**2)
    assert by_radius == pytest.approx((1 + 2 * s) * x / r)
    assert by_slope == pytest.approx(2 * x - (1 + 2 * s) * x * s / (1 + s**2))


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize(("solve", "matrix"), [(symmetric_solution, SYMMETRIC), (general_solution, MATRIX)])
def test_linear_solution(solve: Any, matrix: np.ndarray, target: str) -> None:
    def loss(matrix: Any, b: Any) -> Any:
        return (dnp.arange(1.0, 5.0) * solve(matrix, b)).sum()

    x, adjoint = np.linalg.solve(matrix, RIGHT_SIDE), np.linalg.solve(matrix.T, np.arange(1.0, 5.0))
    value, (by_matrix, by_right_side) = dlc.jit(dlc.value_and_grad(loss, (0, 1)), target=target)(matrix, RIGHT_SIDE)
    expected = -np.outer(adjoint, x)
    if solve is symmetric_solution:
        expected = (expected + expected.T) / 2
    np.testing.assert_allclose(value, np.arange(1.0, 5.0) @ x, rtol=1e-10)
    np.testing.assert_allclose(by_matrix, expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(by_right_side, adjoint, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("solve", [symmetric_solution, general_solution])
def test_second_derivatives_and_batches(solve: Any) -> None:
    def scaled(t: Any) -> Any:
        return solve(SYMMETRIC * t, RIGHT_SIDE).sum()

    # x is proportional to 1 / t.
    total = np.linalg.solve(SYMMETRIC, RIGHT_SIDE).sum()
    for second in (dlc.hessian(scaled), dlc.jacfwd(dlc.jacfwd(scaled)), dlc.jacrev(dlc.grad(scaled))):
        np.testing.assert_allclose(second(np.float64(2)), 2 * total / 8, rtol=1e-8)
    batched = dlc.vmap(dlc.grad(lambda m, b: solve(m, b).sum(), 1), (0, None))(np.stack([SYMMETRIC, 2 * SYMMETRIC]), RIGHT_SIDE)
    adjoint = np.linalg.solve(SYMMETRIC, np.ones(4))
    np.testing.assert_allclose(batched, [adjoint, adjoint / 2], rtol=1e-8)


def test_a_solver_that_divides_by_the_right_side() -> None:
    """Chord steps solve for zeros, for which such a solver is undefined; these are not passed to it."""

    def fixed_steps(matvec: Any, b: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            x, direction, residual = state
            product, square = matvec(direction), residual @ residual
            next_residual = residual - square / (direction @ product) * product
            next_direction = next_residual + (next_residual @ next_residual) / square * direction
            return x + square / (direction @ product) * direction, next_direction, next_residual

        return lax.fori_loop(0, 2, step, (b * 0, b, b))[0]

    matrix, b = np.array([[4.0, 1.0], [1.0, 3.0]]), np.array([1.0, 2.0])

    def square(a: Any) -> Any:
        x = lax.custom_linear_solve(lambda x: (matrix * a) @ x, b, fixed_steps, symmetric=True)
        return x @ x

    norm = np.linalg.solve(matrix, b) @ np.linalg.solve(matrix, b)
    assert dlc.grad(square)(np.float64(1)) == pytest.approx(-2 * norm)
    assert dlc.grad(dlc.grad(square))(np.float64(1)) == pytest.approx(6 * norm)


def test_the_value_does_not_solve_twice() -> None:
    """If the value is not used, the program contains the transposed system only, and no system for zeros."""
    gradient = dlc.jit(dlc.grad(lambda b: symmetric_solution(SYMMETRIC, b).sum()))
    text = gradient.lower(RIGHT_SIDE).as_text("dl")
    assert text.count("scf.while") + text.count("dl.while") == 1


def test_without_transposed_solver_a_loop_has_no_reverse_mode() -> None:
    def solution(b: Any) -> Any:
        return lax.custom_linear_solve(lambda x: SYMMETRIC @ x, b, conjugate_gradient).sum()

    assert dlc.jvp(solution, (RIGHT_SIDE,), (RIGHT_SIDE,))[1] == pytest.approx(np.linalg.solve(SYMMETRIC, RIGHT_SIDE).sum())
    with pytest.raises(dlc.DlcError, match="reverse mode needs the solver of the transposed system"):
        dlc.grad(solution)(RIGHT_SIDE)


def test_errors() -> None:
    with pytest.raises(ShapeError, match=r"custom_linear_solve: matvec\(x\) has shape \(3,\); expected \(4,\)"):
        dlc.grad(lambda b: lax.custom_linear_solve(lambda x: x[:3], b, lambda _, b: b).sum())(RIGHT_SIDE)
    with pytest.raises(DTypeError, match="custom_root: initial_guess has dtype int64"):
        dlc.grad(lambda a: lax.custom_root(lambda x: x - a, np.int64(1), lambda f, x: x, lambda g, y: y))(np.float64(1))
    with pytest.raises(DTypeError, match="custom_root: solve is a int; expected a function"):
        lax.custom_root(lambda x: x, 1.0, 3, lambda g, y: y)
