"""Random differentiable functions: programs of `dl` ops, and programs of loops and branches, in f64."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import lax
from dlc.backends.reference import evaluate
from dlc.backends.reference.evaluation_context import Frame
from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp
from dlc.dialects.dl.dtypes import element_type, is_float
from dlc.frontend.trace import Tracer
from dlc.ir import Block, ModuleOp, Operation, Region, SSAValue, StringAttr, func
from dlc.passes.autodiff.rules import NO_DERIVATIVE
from dlc.testing.sample import F64
from tests.fuzz.draw_program import random_program
from tests.fuzz.random_control import PLAIN, Body, Interpreter, RandomControl
from tests.fuzz.random_program import RandomProgram
from tests.fuzz.random_values import SIZES

# The number of ops of a function.
MIN_OPS, MAX_OPS = 5, 30
# Ops without derivatives, and ops that only passes after differentiation create.
EXCLUDED_OPS = {*NO_DERIVATIVE, dl.BitcastOp, dl.StopGradientOp, dl.WinogradInputOp, dl.WinogradOutputOp}
_ROUNDING = (dl.FloorOp, dl.CeilOp, dl.RoundOp, dl.TruncOp, dl.FloordivOp)
# The distance between the seeds that are tried for one function, so that no two functions share a seed.
_NEXT_SEED = 2**32


@dataclass(frozen=True)
class Function:
    """A function of f64 arrays; `plain` is the same function in NumPy.

    `finite`: all intermediate values and slopes at the point are finite. Otherwise a zero tangent may be multiplied by an
    infinite slope. `moderate`: no value is so large that a factor of a second derivative, such as its fourth power or the
    reciprocal of that, leaves the range of f64.
    """

    point: list[Array]
    run: Callable[..., list[Any]]
    plain: Callable[..., list[Array]]
    finite: bool
    moderate: bool = True


def random_function(seed: int, sizes: Sequence[int] = SIZES) -> Function:
    """Return the function of a seed: loops and branches if it is odd, else ops on arrays whose axes mostly have one of `sizes`.

    A draw without f64 results is repeated.
    """
    draw = _control if seed % 2 else partial(_program, sizes=sizes)
    while True:
        result = draw(seed)
        if result is not None:
            return result
        seed += _NEXT_SEED


def _control(seed: int) -> Function | None:
    """A function of loops and branches."""
    program = RandomControl(seed, smooth=True)
    if not MIN_OPS <= _statements(program.body) <= MAX_OPS:
        return None

    def runs(interpreter: Interpreter) -> Callable[..., list[Any]]:
        return lambda *inputs: interpreter.run(program.body, {}, inputs)

    # The ops of smooth programs have no poles.
    return _restrict_to_f64(program.inputs, runs(Interpreter(dnp, lax)), runs(Interpreter(np, PLAIN)), True)


def _statements(body: Body) -> int:
    """Count the statements of a body, including those of nested bodies."""
    return sum(1 + sum(map(_statements, statement.bodies)) for statement in body.statements)


def _program(seed: int, sizes: Sequence[int]) -> Function | None:
    """Draw a program of `dl` ops; its results are those that do not depend on lower-precision floats."""
    size = random.Random(seed).randint(MIN_OPS, MAX_OPS)
    program = random_program(seed, size=size, dtype=F64, excluded_ops=EXCLUDED_OPS, sizes=sizes)
    ops = list(program.block.ops)
    low_precision = _low_precision_values(program)
    results = [k.value for k in program.results if k.value not in low_precision and not k.bounded.is_source]
    modes = [op.properties.get("mode") for op in ops]
    computing = [op for op in ops if not isinstance(op, dl.WeightOp | dl.ConstantOp)]
    if not results or not MIN_OPS <= len(computing) <= MAX_OPS or StringAttr("mul") in modes:
        return None
    rng = np.random.default_rng(seed)
    inputs = [x + rng.uniform(-0.4, 0.4, x.shape) if x.dtype == F64 else x for x in program.inputs]

    def run(*inputs: Any) -> list[Any]:
        values: dict[SSAValue, Any] = dict(zip(program.block.args, inputs, strict=True))
        for op in ops:
            values.update(zip(op.results, _retrace(program, op, values), strict=True))
        return [values[v] for v in results]

    module, probe = _module(program.block, results), _EvaluationProbe(rng)
    evaluate(module, inputs, program.weights, observer=probe)
    if probe.depends_on_rounding:
        return None
    return _restrict_to_f64(
        inputs, run, lambda *inputs: evaluate(module, inputs, program.weights), probe.finite, probe.moderate
    )


class _EvaluationProbe:
    """Observer of an evaluation: checks that all values and slopes are finite, and whether rounding determines any result."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.finite = self.moderate = True
        self.depends_on_rounding = False
        # Values computed from Fourier transforms, whose zeros are only zero up to rounding.
        self.noisy: set[SSAValue] = set()

    def __call__(self, op: Operation, frame: Frame, results: Sequence[Any]) -> None:
        # The slopes of results without elements cannot be checked.
        self.finite &= all(x.size and np.isfinite(x).all() for x in results if x.dtype == F64)
        self.moderate &= all(_largest(x) < _MAX_MODERATE for x in results if x.dtype == F64)
        if isinstance(op, DlOp) and op.operands:
            operands = [frame.array(v) for v in op.operands]
            directions = [self.rng.uniform(-1, 1, x.shape) for x in operands]
            # A remainder jumps by the divisor, a rounded value by 1.
            scale = np.abs(operands[1]) if isinstance(op, dl.ModOp) else np.ones(()) if isinstance(op, _ROUNDING) else None
            noisy = not self.noisy.isdisjoint(op.operands)
            if noisy or isinstance(op, dl.DftOp):
                self.noisy.update(op.results)
            for sign in (1, -1):
                perturbed = op.evaluate(
                    *(_perturb(x, sign * direction) for x, direction in zip(operands, directions, strict=True))
                )
                self.depends_on_rounding |= any(_jumps(x, y, scale, noisy) for x, y in zip(results, perturbed, strict=True))
            next_to_zero = op.evaluate(*map(_no_zeros, operands))
            self.finite &= not any(
                _differs(x, y, _TINY * _MAX_SLOPE_FACTOR) for x, y in zip(results, next_to_zero, strict=True)
            )
            for limit in (0, np.inf):
                neighbor = op.evaluate(*(np.nextafter(x, limit) if x.dtype == F64 else x for x in operands))
                self.finite &= not any(
                    _differs(x, y, _MAX_CHANGE_PER_ULP * _largest(x)) for x, y in zip(results, neighbor, strict=True)
                )


def _perturb(x: Array, direction: Array) -> Array:
    """Perturb floats slightly, as different rounding would."""
    return x + 1e-9 * (np.abs(x) + 1e-3) * direction if x.dtype == F64 else x


def _jumps(x: Array, perturbed: Array, scale: Array | None, noisy: bool) -> bool:
    """Return whether two results differ by more than a slope times rounding errors.

    The difference is relative to `scale`, or else to the largest result. In `noisy` results a change of finiteness counts too.
    """
    if x.dtype != F64:
        return x.shape != perturbed.shape or bool((x != perturbed).any())
    with np.errstate(all="ignore"):
        finite = np.isfinite(x) & np.isfinite(perturbed)
        is_far = np.abs(x - perturbed) > 1e-4 * (1 + np.max(np.abs(x), initial=0, where=finite) if scale is None else scale)
        return bool((is_far & finite).any()) or (noisy and bool((np.isfinite(x) != np.isfinite(perturbed)).any()))


# A tiny value replaces zeros, to detect infinite slopes there (square root), together with the largest acceptable slope.
# Changing the last bit of operands detects infinite slopes elsewhere (arccosine): the largest acceptable relative change.
_TINY, _MAX_SLOPE_FACTOR, _MAX_CHANGE_PER_ULP = 1e-100, 1e10, 1e-10
# The largest magnitude of which the fourth power is in the range of f64.
_MAX_MODERATE = 1e75


def _no_zeros(x: Array) -> Array:
    return np.where(x == 0, _TINY, x) if x.dtype == F64 else x


def _differs(x: Array, perturbed: Array, allowed: float) -> bool:
    """Return whether floats differ by more than `allowed`, or some became NaN or infinite."""
    with np.errstate(all="ignore"):
        return x.dtype == F64 and bool((~(np.abs(x - perturbed) <= allowed))[np.isfinite(x)].any())


def _largest(x: Array) -> float:
    return 1 + float(np.max(np.abs(x), initial=0, where=np.isfinite(x))) if x.dtype == F64 else 0


def _module(block: Block, results: Sequence[SSAValue]) -> ModuleOp:
    """Return a program as a module; its block becomes the body of `@main`."""
    block.add_op(func.ReturnOp(*results))
    return ModuleOp([func.FuncOp("main", ([a.type for a in block.args], [r.type for r in results]), Region(block))])


def _low_precision_values(program: RandomProgram) -> set[SSAValue]:
    """Return the values that depend on floats narrower than f64."""
    low_precision: set[SSAValue] = set()
    for value in program.values:
        narrow = is_float(element_type(value.dtype)) and value.dtype != F64
        if narrow or not low_precision.isdisjoint(getattr(value.value.owner, "operands", ())):
            low_precision.add(value.value)
    return low_precision


def _retrace(program: RandomProgram, op: Any, values: dict[SSAValue, Any]) -> Sequence[Any]:
    """Apply an op of a program to the values of a traced function."""
    trace = next(v.owner for v in values.values() if isinstance(v, Tracer))
    if isinstance(op, dl.WeightOp):
        return [program.weights[op.symbol.root_reference.data]]
    operands = {v: trace.value(values[v]).value for v in op.operands}
    return trace.insert(op.clone(operands))


def _restrict_to_f64(
    inputs: Sequence[Array], run: Callable[..., Any], plain: Callable[..., Any], finite: bool, moderate: bool = True
) -> Function | None:
    """Restrict a function to its f64 inputs and results; None if it has none of either."""
    moving = [i for i, x in enumerate(inputs) if x.dtype == F64]

    def restrict(function: Callable[..., Any]) -> Callable[..., list[Any]]:
        def call(*f64_inputs: Any) -> list[Any]:
            arguments = list(inputs)
            for i, x in zip(moving, f64_inputs, strict=True):
                arguments[i] = x
            return [r for r in function(*arguments) if r.dtype == F64]

        return call

    result = Function([inputs[i] for i in moving], restrict(run), restrict(plain), finite, moderate)
    with np.errstate(all="ignore"):
        return result if moving and result.plain(*result.point) else None
