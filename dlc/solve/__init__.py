"""Numerical solvers: linear systems, roots, minima, integrals and differential equations.

    @dlc.jit
    def period(length):
        swing = lambda t, y, args: dnp.stack([y[1], -9.81 / args * dnp.sin(y[0])])
        return dlc.solve.diffeqsolve(swing, dlc.solve.Tsit5(), 0.0, 2.0, None, dnp.array([1.0, 0.0]), length,
                                     stepsize_controller=dlc.solve.PIDController(1e-8, 1e-10)).ys

Solvers are functions on traced values, built from loops of `dlc.lax`, with the names of lineax, optimistix and diffrax.
Unknowns are arrays or pytrees of floats. Solutions of equations are differentiated by the implicit function theorem, with
respect to all values that the given functions depend on; solutions of differential equations are differentiated step by step.

linear_systems.py           linear_solve: CG, BiCGStab, GMRES
roots.py                    root_find, fixed_point: Newton, Bisection, FixedPointIteration
minimization.py             minimise, least_squares: BFGS, LBFGS, LevenbergMarquardt
quadrature.py               quad: adaptive Gauss-Kronrod
runge_kutta.py              Euler, Midpoint, Heun, Bosh3, Dopri5, Tsit5; implicit: ImplicitEuler, Kvaerno3, Kvaerno5
stochastic.py               noise, and its methods: EulerHeun, ItoMilstein, StratonovichMilstein, SRA1
differential_equations.py   diffeqsolve, with fixed or adaptive steps, dense output and events
vectors.py                  pytrees as vectors
"""

from dlc.argument_validation.validate import validate_arguments
from dlc.solve.differential_equations import ConstantStepSize, DiffEqSolution, Event, PIDController, SaveAt, diffeqsolve
from dlc.solve.linear_systems import CG, GMRES, BiCGStab, linear_solve
from dlc.solve.minimization import BFGS, LBFGS, LevenbergMarquardt, least_squares, minimise
from dlc.solve.quadrature import quad
from dlc.solve.roots import Bisection, FixedPointIteration, Newton, fixed_point, root_find
from dlc.solve.runge_kutta import Bosh3, Dopri5, Euler, Heun, ImplicitEuler, Kvaerno3, Kvaerno5, Midpoint, Tsit5
from dlc.solve.stochastic import (
    SRA1,
    ControlTerm,
    EulerHeun,
    ItoMilstein,
    MultiTerm,
    ODETerm,
    StratonovichMilstein,
    UnsafeBrownianPath,
)
from dlc.solve.vectors import Solution

__all__ = [
    "BFGS", "CG", "GMRES", "LBFGS", "SRA1", "BiCGStab", "Bisection", "Bosh3", "ConstantStepSize", "ControlTerm",
    "DiffEqSolution", "Dopri5", "Euler", "EulerHeun", "Event", "FixedPointIteration", "Heun", "ImplicitEuler",
    "ItoMilstein", "Kvaerno3", "Kvaerno5", "LevenbergMarquardt", "Midpoint", "MultiTerm", "Newton", "ODETerm",
    "PIDController", "SaveAt", "Solution", "StratonovichMilstein", "Tsit5", "UnsafeBrownianPath", "diffeqsolve",
    "fixed_point", "least_squares", "linear_solve", "minimise", "quad", "root_find",
]  # fmt: skip

validate_arguments(globals())
