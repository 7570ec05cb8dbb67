"""Linear systems, roots, minima and integrals: solutions, their derivatives, and errors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import solve
from dlc.errors import ArgumentError, DTypeError, ShapeError

draw = np.random.default_rng(0)
GENERAL = draw.normal(size=(12, 12)) + 6 * np.eye(12)
SYMMETRIC = GENERAL @ GENERAL.T
RIGHT_SIDE = draw.normal(size=12)
ONE = np.float64(1)


def rosenbrock(y: Any, a: Any) -> Any:
    return (a - y[0]) ** 2 + 100 * (y[1] - y[0] ** 2) ** 2


@pytest.mark.parametrize(
    ("solver", "matrix"),
    [
        (solve.CG(1e-12), SYMMETRIC),
        (solve.BiCGStab(1e-12), GENERAL),
        (solve.GMRES(1e-12), GENERAL),
        (solve.GMRES(1e-12, restart=5), GENERAL),
    ],
)
def test_linear_systems(solver: Any, matrix: np.ndarray) -> None:
    def weighted(matrix: Any, b: Any) -> Any:
        result = solve.linear_solve(matrix, b, solver)
        return result.value.sum(), result

    (_, result), (by_matrix, by_right_side) = dlc.jit(dlc.value_and_grad(weighted, (0, 1), has_aux=True))(matrix, RIGHT_SIDE)
    x, adjoint = np.linalg.solve(matrix, RIGHT_SIDE), np.linalg.solve(matrix.T, np.ones(12))
    assert result.converged and 0 < result.stats["num_steps"] <= 120
    np.testing.assert_allclose(result.value, x, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(by_right_side, adjoint, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(by_matrix, -np.outer(adjoint, x), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("solver", [solve.CG(), solve.BiCGStab(), solve.GMRES()])
def test_squares_of_the_right_side_underflow_and_overflow(solver: Any) -> None:
    matrix, b = SYMMETRIC.astype(np.float32), RIGHT_SIDE.astype(np.float32)
    solver_of = dlc.jit(lambda b: solve.linear_solve(matrix, b, solver))
    for scale in (1e-30, 1e25):
        result = solver_of(b * np.float32(scale))
        assert result.converged
        np.testing.assert_allclose(result.value / scale, np.linalg.solve(SYMMETRIC, RIGHT_SIDE), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("solver", "matrix"),
    [
        (solve.LU(), GENERAL),
        (solve.QR(), GENERAL),
        (solve.Cholesky(), SYMMETRIC),
        (solve.Diagonal(), np.diag(np.diag(GENERAL))),
        (solve.Tridiagonal(), np.triu(np.tril(GENERAL, 1), -1)),
    ],
)
def test_direct_solvers(solver: Any, matrix: np.ndarray) -> None:
    """Derivatives by the elements that the solver reads."""

    def first(matrix: Any, b: Any) -> Any:
        result = solve.linear_solve(matrix, b, solver)
        return result.value[0], result

    (_, result), (by_matrix, by_right_side) = dlc.jit(dlc.value_and_grad(first, (0, 1), has_aux=True))(matrix, RIGHT_SIDE)
    x, adjoint = np.linalg.solve(matrix, RIGHT_SIDE), np.linalg.inv(matrix)[0]
    assert result.converged
    np.testing.assert_allclose(result.value, x, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(by_right_side, adjoint, rtol=1e-9, atol=1e-11)
    expected, got = -np.outer(adjoint, x), np.asarray(by_matrix)
    if isinstance(solver, solve.Cholesky):
        # The factor depends on the symmetric part of the matrix.
        expected, got = expected + expected.T, got + got.T
    np.testing.assert_allclose(got, np.where(matrix == 0, 0, expected), rtol=1e-9, atol=1e-11)


def test_operators_with_few_diagonals() -> None:
    lower, upper, middle = RIGHT_SIDE[:5], RIGHT_SIDE[5:10], RIGHT_SIDE[:6] + 4
    dense = np.diag(middle) + np.diag(lower, -1) + np.diag(upper, 1)
    b = RIGHT_SIDE[6:]

    @dlc.jit
    def run(*diagonals: Any) -> Any:
        tridiagonal = solve.TridiagonalLinearOperator(*diagonals)
        diagonal = solve.DiagonalLinearOperator(diagonals[0])
        solvers = ((tridiagonal, solve.Tridiagonal()), (tridiagonal, solve.LU()), (tridiagonal, solve.GMRES(1e-12)))
        solutions = [solve.linear_solve(operator, b, solver).value for operator, solver in solvers]
        return solutions, solve.linear_solve(diagonal, b, solve.Diagonal()).value, dlc.vmap(tridiagonal)(np.eye(6))

    solutions, by_diagonal, rows = run(middle, lower, upper)
    for solution in solutions:
        np.testing.assert_allclose(solution, np.linalg.solve(dense, b), rtol=1e-9)
    np.testing.assert_allclose(by_diagonal, b / middle)
    np.testing.assert_allclose(rows, dense.T)
    with pytest.raises(ShapeError, match=r"got \(6,\), \(5,\) and \(6,\); expected \(n,\), \(n - 1,\) and \(n - 1,\)"):
        solve.linear_solve(solve.TridiagonalLinearOperator(middle, lower, middle), b, solve.Tridiagonal())


def test_more_equations_than_unknowns() -> None:
    tall = GENERAL[:, :4]
    result = dlc.jit(lambda a, b: solve.linear_solve(a, b, solve.QR()))(tall, RIGHT_SIDE)
    np.testing.assert_allclose(result.value, np.linalg.lstsq(tall, RIGHT_SIDE)[0], rtol=1e-10)
    singular = dlc.jit(lambda a, b: solve.linear_solve(a, b, solve.Diagonal()))(np.zeros((2, 2)), np.ones(2))
    assert solve.RESULTS(singular.result) is solve.RESULTS.singular and "singular" in solve.RESULTS.singular.message
    with pytest.raises(dlc.DlcError, match="LU is a direct solver; y0, preconditioner and max_steps are options of CG"):
        solve.linear_solve(GENERAL, RIGHT_SIDE, solve.LU(), max_steps=3)


@pytest.mark.parametrize("solver", [solve.CG(1e-12), solve.BiCGStab(1e-12), solve.GMRES(1e-12, restart=5)])
def test_preconditioners_and_first_guesses(solver: Any) -> None:
    """A matrix whose elements differ by orders of magnitude needs few steps with the inverse of its diagonal."""
    scales = np.logspace(0, 4, 20)
    matrix = np.diag(scales) + 0.1 * np.ones((20, 20))
    if not isinstance(solver, solve.CG):
        matrix += np.triu(np.ones((20, 20))) * 0.1
    b = np.linspace(-1, 1, 20)

    def run(b: Any, preconditioner: Any, y0: Any) -> Any:
        return solve.linear_solve(matrix, b, solver, preconditioner=preconditioner, y0=y0)

    inverse = solve.DiagonalLinearOperator(1 / scales)
    plain, scaled = dlc.jit(lambda b: (run(b, None, None), run(b, inverse, None)), target="reference")(b)
    expected = np.linalg.solve(matrix, b)
    np.testing.assert_allclose(scaled.value, expected, rtol=1e-8)
    assert scaled.converged and 2 * scaled.stats["num_steps"] <= plain.stats["num_steps"]
    guessed = dlc.jit(lambda b, y0: run(b, np.diag(1 / scales), y0), target="reference")(b, expected)
    assert guessed.converged and guessed.stats["num_steps"] == 0
    by_right_side = dlc.jit(dlc.grad(lambda b: run(b, inverse, b).value[3]))(b)
    np.testing.assert_allclose(by_right_side, np.linalg.inv(matrix)[3], rtol=1e-7, atol=1e-12)


def test_a_linear_function_of_a_pytree() -> None:

    def operator(x: Any) -> Any:
        return {"a": 3 * x["a"] + x["b"], "b": x["a"].sum() * np.array([1.0, 0.0]) + 2 * x["b"]}

    b = {"a": np.array([1.0, 2.0]), "b": np.array([3.0, 4.0])}
    result = dlc.jit(lambda b: solve.linear_solve(operator, b, solve.GMRES(1e-12)))(b)
    got = operator(result.value)
    np.testing.assert_allclose(got["a"], b["a"])
    np.testing.assert_allclose(got["b"], b["b"])
    stopped = dlc.jit(lambda b: solve.linear_solve(SYMMETRIC, b, solve.CG(1e-14), max_steps=2))(RIGHT_SIDE)
    assert not stopped.converged and stopped.stats["num_steps"] == 2


def test_roots() -> None:
    def root(a: Any) -> Any:
        return solve.root_find(
            lambda y, a: {"u": y["u"] ** 2 + y["v"] - a, "v": y["u"] - y["v"]}, solve.Newton(), {"u": a, "v": a}, a
        )

    result = dlc.jit(root)(np.float64(2))
    assert result.converged and result.value["u"] == pytest.approx(1) and result.value["v"] == pytest.approx(1)
    assert dlc.grad(lambda a: root(a).value["u"])(np.float64(2)) == pytest.approx(1 / 3)
    assert dlc.grad(dlc.grad(lambda a: root(a).value["u"]))(np.float64(2)) == pytest.approx(-2 / 27)


def test_bisection() -> None:
    interval = solve.Bisection(0.0, 10.0, 1e-14, 1e-14)

    def square_root(a: Any) -> Any:
        return solve.root_find(lambda y, a: y**2 - a, interval, ONE, a)

    assert dlc.jit(square_root)(np.float64(2)).value == pytest.approx(2**0.5, rel=1e-13)
    assert dlc.grad(lambda a: square_root(a).value)(np.float64(2)) == pytest.approx(0.5 / 2**0.5)
    assert not dlc.jit(square_root)(np.float64(200)).converged
    with pytest.raises(ShapeError, match="Bisection of 2 unknowns; expected one; use Newton for several"):
        solve.root_find(lambda y, _: y, interval, np.ones(2))


@pytest.mark.parametrize("solver", [solve.FixedPointIteration(1e-13, 1e-13), solve.Newton(1e-13, 1e-13)])
def test_fixed_points(solver: Any) -> None:
    value, slope = dlc.value_and_grad(lambda a: solve.fixed_point(lambda y, a: dnp.cos(a * y), solver, ONE, a).value)(ONE)
    y = 0.7390851332151607
    assert value == pytest.approx(y) and slope == pytest.approx(-y * np.sin(y) / (1 + np.sin(y)))


@pytest.mark.parametrize("solver", [solve.BFGS(1e-9), solve.LBFGS(1e-9), solve.LBFGS(1e-9, history=2)])
def test_minima(solver: Any) -> None:

    def minimum(a: Any) -> Any:
        return solve.minimise(rosenbrock, solver, np.array([-1.2, 1.0]), a)

    result = dlc.jit(minimum)(ONE)
    assert result.converged
    np.testing.assert_allclose(result.value, [1, 1], rtol=1e-7)
    # The minimum is at (a, a²).
    assert dlc.grad(lambda a: minimum(a).value.sum())(ONE) == pytest.approx(3)


def test_a_minimum_without_derivatives() -> None:
    """The values are those of SciPy's Nelder-Mead method to its tolerance; the derivative is that of the minimum (a, a²)."""
    solver = solve.NelderMead(1e-9, 1e-9)
    run = dlc.jit(lambda a: solve.minimise(rosenbrock, solver, np.array([-1.2, 1.0]), a, max_steps=400))
    result = run(ONE)
    assert result.converged and 100 < result.stats["num_steps"] < 250
    np.testing.assert_allclose(result.value, [1, 1], rtol=1e-6)
    by_a = dlc.jit(dlc.grad(lambda a: solve.minimise(rosenbrock, solver, np.array([-1.2, 1.0]), a, max_steps=400).value[1]))
    assert by_a(ONE) == pytest.approx(2, rel=1e-4)
    absolute = dlc.jit(lambda y: solve.minimise(lambda y, _: dnp.abs(y - 3) + dnp.abs(y), solver, y))(np.float64(7))
    assert absolute.converged and -1e-6 < absolute.value < 3 + 1e-6


def test_auxiliary_results() -> None:
    """The second result of a function is that at the solution, and is differentiable."""

    def root(a: Any) -> Any:
        return solve.root_find(lambda y, a: (y**2 - a, {"cube": y**3}), solve.Newton(), ONE, a, has_aux=True)

    assert dlc.jit(root)(np.float64(4)).aux["cube"] == pytest.approx(8)
    assert dlc.jit(dlc.grad(lambda a: root(a).aux["cube"]))(np.float64(4)) == pytest.approx(3)
    iteration = solve.FixedPointIteration(1e-12, 1e-12)
    fixed = dlc.jit(lambda a: solve.fixed_point(lambda y, a: (dnp.cos(a * y), 2 * y), iteration, ONE, a, has_aux=True))(ONE)
    assert fixed.aux == pytest.approx(2 * 0.7390851332151607)
    least = dlc.jit(lambda a: solve.minimise(lambda y, a: ((y - a) ** 2, y + 1), solve.BFGS(), ONE, a, has_aux=True))(ONE * 5)
    assert least.aux == pytest.approx(6)
    with pytest.raises(DTypeError, match=r"root_find: fn returned a .*; expected \(value, aux\) for has_aux=True"):
        solve.root_find(lambda y, _: y, solve.Newton(), ONE, has_aux=True)


def test_reasons_for_the_end() -> None:
    no_root = dlc.jit(lambda y: solve.root_find(lambda y, _: y**2 + 1, solve.Newton(), y, max_steps=20))(np.float64(0.3))
    assert solve.RESULTS(no_root.result) is solve.RESULTS.nonlinear_max_steps_reached
    diverged = dlc.jit(lambda y: solve.fixed_point(lambda y, _: y**2, solve.FixedPointIteration(), y))(np.float64(3))
    assert solve.RESULTS(diverged.result) is solve.RESULTS.nonlinear_divergence and diverged.stats["num_steps"] < 15
    assert solve.RESULTS.successful.message == ""


@pytest.mark.parametrize("solver", [solve.GaussNewton(1e-9), solve.Dogleg(1e-9), solve.LevenbergMarquardt(1e-9)])
def test_methods_of_least_squares(solver: Any) -> None:
    """Rosenbrock's function as a sum of squares from its standard start, in batches; its minimum is at (a, a²)."""

    def fit(a: Any) -> Any:
        residuals = lambda y, a: (dnp.stack([10 * (y[1] - y[0] ** 2), a - y[0]]), y.sum())  # noqa: E731
        return solve.least_squares(residuals, solver, np.array([-1.2, 1.0]), a, has_aux=True)

    a = np.array([1.0, 0.5, 3.0])
    result = dlc.jit(dlc.vmap(fit))(a)
    assert np.all(result.converged)
    np.testing.assert_allclose(result.value, np.stack([a, a * a], 1), rtol=1e-7)
    np.testing.assert_allclose(result.aux, a + a * a, rtol=1e-7)
    assert dlc.jit(dlc.grad(lambda a: fit(a).value[1]))(ONE) == pytest.approx(2)


def test_least_squares() -> None:
    times = np.linspace(0, 2, 30)
    data = 2.5 * np.exp(-1.3 * times)

    def residuals(p: Any, data: Any) -> Any:
        return p["c"] * dnp.exp(-p["k"] * times) - data

    def fit(data: Any) -> Any:
        return solve.least_squares(residuals, solve.LevenbergMarquardt(1e-12), {"c": ONE, "k": ONE}, data)

    result = dlc.jit(fit)(data)
    assert result.converged and result.value["c"] == pytest.approx(2.5) and result.value["k"] == pytest.approx(1.3)
    jacobian = np.stack([np.exp(-1.3 * times), -2.5 * times * np.exp(-1.3 * times)], 1)
    by_data = dlc.grad(lambda data: fit(data).value["k"])(data)
    np.testing.assert_allclose(by_data, np.linalg.pinv(jacobian)[1], rtol=1e-7, atol=1e-9)


def test_integrals() -> None:
    peak = dlc.jit(lambda a: solve.quad(lambda x, a: dnp.exp(-a * x * x), -5.0, 5.0, a))(np.float64(40))
    assert peak.converged and peak.value == pytest.approx((np.pi / 40) ** 0.5)

    def value(a: Any, upper: Any) -> Any:
        return solve.quad(lambda x, a: a * x * dnp.sqrt(x), 0.0, upper, a).value

    by_factor, by_limit = dlc.grad(value, (0, 1))(np.float64(3), np.float64(4))
    assert by_factor == pytest.approx(0.4 * 4**2.5) and by_limit == pytest.approx(24)
    gaussian = lambda x, a: dnp.exp(-a * x * x)  # noqa: E731
    half = np.sqrt(np.pi / 0.7) / 2
    for low, high, want in (
        (-np.inf, np.inf, 2 * half),
        (np.inf, -np.inf, -2 * half),
        (0.0, np.inf, half),
        (np.inf, 0.0, -half),
        (-np.inf, 0.0, half),
        (0.0, -np.inf, -half),
    ):
        infinite = dlc.jit(lambda a, low=low, high=high: solve.quad(gaussian, low, high, a))(np.float64(0.7))
        assert infinite.converged and np.allclose(infinite.value, want, rtol=1e-9), (low, high)
    tail = dlc.jit(dlc.grad(lambda x: solve.quad(lambda t, _: dnp.exp(-t), x, np.inf).value))
    assert np.allclose(tail(np.float64(0.3)), -np.exp(-0.3))
    vector = solve.quad(lambda x, _: dnp.stack([x, x**2], 1), np.float64(0), np.float64(3))
    np.testing.assert_allclose(vector.value, [4.5, 9])


def test_errors() -> None:
    with pytest.raises(ShapeError, match=r"linear_solve: operator has shape \(12, 12\); expected \(3, 3\) for 3 unknowns"):
        solve.linear_solve(SYMMETRIC, np.ones(3))
    with pytest.raises(ShapeError, match=r"minimise: fn returned an array of shape \(2,\); expected a scalar"):
        dlc.jit(lambda: solve.minimise(lambda y, _: y, solve.BFGS(), np.ones(2)))()
    with pytest.raises(DTypeError, match="root_find: got an array of dtype bool; expected floats"):
        solve.root_find(lambda y, _: y, solve.Newton(), np.array([True]))
    with pytest.raises(DTypeError, match="minimise: solver is a Newton; expected one of BFGS, LBFGS, NelderMead"):
        solve.minimise(lambda y, _: y, solve.Newton(), ONE)
    with pytest.raises(ShapeError, match="root_find: fn returned 3 values for 2 unknowns; expected as many"):
        solve.root_find(lambda y, _: dnp.stack([y[0], y[1], y[0]]), solve.Newton(), np.ones(2))
    with pytest.raises(ShapeError, match="which has no arrays; expected at least one float"):
        solve.linear_solve(lambda x: x, {})
    with pytest.raises(
        ShapeError, match=r"quad: fn returned an array of shape \(\); expected \(15, …\), a value for each point"
    ):
        solve.quad(lambda x, _: x.sum(), 0.0, 1.0)


def test_negative_tolerances() -> None:
    with pytest.raises(ArgumentError, match=r"root_find: rtol = -1e-08; expected a number >= 0"):
        solve.root_find(lambda y, _: y, solve.Newton(rtol=-1e-8), ONE)
    with pytest.raises(ArgumentError, match=r"linear_solve: atol = nan; expected a number >= 0"):
        solve.linear_solve(SYMMETRIC, SYMMETRIC[0], solve.CG(atol=float("nan")))
    with pytest.raises(ArgumentError, match=r"minimise: gtol = -1"):
        solve.minimise(lambda y, _: y * y, solve.BFGS(gtol=-1), ONE)
    with pytest.raises(ArgumentError, match=r"quad: atol = -1"):
        solve.quad(lambda x, _: x, 0.0, 1.0, atol=-1)
    with pytest.raises(ArgumentError, match=r"diffeqsolve: rtol = -0.001"):
        controller = solve.PIDController(-1e-3, 1e-3)
        solve.diffeqsolve(lambda t, y, _: -y, solve.Tsit5(), 0.0, 1.0, None, 1.0, stepsize_controller=controller)


def test_one_program_for_all_numbers_of_unknowns() -> None:
    half = dlc.jit(lambda b: solve.linear_solve(lambda x: 2 * x, b, solve.CG()).value, dynamic={"b": {0: "n"}})
    root = dlc.jit(lambda b: solve.root_find(lambda x, _: x * x - b, solve.Newton(), b).value, dynamic={"b": {0: "n"}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a function that is specialized per shape warns
        for size in (1, 3, 4):
            b = np.arange(1.0, size + 1)
            np.testing.assert_allclose(half(b), b / 2)
            np.testing.assert_allclose(root(b), np.sqrt(b))
