"""Numerical solvers: linear systems, roots, minima, integrals and differential equations.

    @dlc.jit
    def period(length):
        swing = lambda t, y, args: dnp.stack([y[1], -9.81 / args * dnp.sin(y[0])])
        return dlc.solve.diffeqsolve(swing, dlc.solve.Tsit5(), 0.0, 2.0, None, dnp.array([1.0, 0.0]), length,
                                     stepsize_controller=dlc.solve.PIDController(1e-8, 1e-10)).ys

Solvers are functions on traced values, built from loops of `dlc.lax`, with the names of lineax, optimistix and diffrax.
Unknowns are arrays or pytrees of floats. Solutions of equations are differentiated by the implicit function theorem, with
respect to all values that the given functions depend on; solutions of differential equations are differentiated step by step.

linear_systems.py           linear_solve
direct_linear_solvers.py    LU, QR, Cholesky, Diagonal, Tridiagonal; DiagonalLinearOperator, TridiagonalLinearOperator
krylov_methods.py           CG, BiCGStab, GMRES
roots.py                    root_find, fixed_point: Newton, Bisection, FixedPointIteration
minimization.py             minimise: BFGS, LBFGS
nelder_mead.py              NelderMead
least_squares.py            least_squares: GaussNewton, LevenbergMarquardt, Dogleg
quadrature.py               quad: adaptive Gauss-Kronrod
runge_kutta.py              Euler, Midpoint, Heun, Bosh3, Dopri5, Tsit5; implicit: ImplicitEuler, Kvaerno3, Kvaerno5
brownian_motion.py          UnsafeBrownianPath, VirtualBrownianTree
stochastic.py               terms, and methods for noise: EulerHeun, ItoMilstein, StratonovichMilstein, SRA1
step_size_controllers.py    ConstantStepSize, PIDController
saving.py                   SaveAt, DiffEqSolution, dense output
integration.py              the steps of an initial value problem; DirectAdjoint, RecursiveCheckpointAdjoint
differential_equations.py   diffeqsolve, with events
results.py                  Solution, RESULTS
vectors.py                  pytrees as vectors
"""

from dlc.argument_validation.validate import validate_arguments
from dlc.solve.brownian_motion import UnsafeBrownianPath, VirtualBrownianTree
from dlc.solve.differential_equations import Event, diffeqsolve
from dlc.solve.direct_linear_solvers import (
    LU,
    QR,
    Cholesky,
    Diagonal,
    DiagonalLinearOperator,
    Tridiagonal,
    TridiagonalLinearOperator,
)
from dlc.solve.integration import DirectAdjoint, RecursiveCheckpointAdjoint
from dlc.solve.krylov_methods import CG, GMRES, BiCGStab
from dlc.solve.least_squares import Dogleg, GaussNewton, LevenbergMarquardt, least_squares
from dlc.solve.linear_systems import linear_solve
from dlc.solve.minimization import BFGS, LBFGS, minimise
from dlc.solve.nelder_mead import NelderMead
from dlc.solve.quadrature import quad
from dlc.solve.results import RESULTS, Solution
from dlc.solve.roots import Bisection, FixedPointIteration, Newton, fixed_point, root_find
from dlc.solve.runge_kutta import Bosh3, Dopri5, Euler, Heun, ImplicitEuler, Kvaerno3, Kvaerno5, Midpoint, Tsit5
from dlc.solve.saving import DenseInterpolation, DiffEqSolution, SaveAt
from dlc.solve.step_size_controllers import ConstantStepSize, PIDController
from dlc.solve.stochastic import SRA1, ControlTerm, EulerHeun, ItoMilstein, MultiTerm, ODETerm, StratonovichMilstein

__all__ = [
    "BFGS", "CG", "GMRES", "LBFGS", "LU", "QR", "RESULTS", "SRA1", "BiCGStab", "Bisection", "Bosh3", "Cholesky",
    "ConstantStepSize", "ControlTerm", "DenseInterpolation", "Diagonal", "DiagonalLinearOperator", "DiffEqSolution",
    "DirectAdjoint", "Dogleg", "Dopri5", "Euler", "EulerHeun", "Event", "FixedPointIteration", "GaussNewton", "Heun",
    "ImplicitEuler", "ItoMilstein", "Kvaerno3", "Kvaerno5", "LevenbergMarquardt", "Midpoint", "MultiTerm", "NelderMead",
    "Newton", "ODETerm", "PIDController", "RecursiveCheckpointAdjoint", "SaveAt", "Solution", "StratonovichMilstein",
    "Tridiagonal", "TridiagonalLinearOperator", "Tsit5", "UnsafeBrownianPath", "VirtualBrownianTree", "diffeqsolve",
    "fixed_point", "least_squares", "linear_solve", "minimise", "quad", "root_find",
]  # fmt: skip

validate_arguments(globals())
