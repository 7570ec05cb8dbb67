"""Random functions to be differentiated: programs of `dl` ops and programs of loops and branches, of floats of 64 bits."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import lax
from dlc.backends.reference import evaluate
from dlc.backends.reference.machine import Frame
from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp
from dlc.dialects.dl.dtypes import element_type, is_float
from dlc.frontend.trace import Tracer
from dlc.ir import Block, ModuleOp, Operation, Region, SSAValue, StringAttr, func
from dlc.passes.autodiff.rules import NO_DERIVATIVE
from tests.fuzz.drawing import random_program
from tests.fuzz.random_control import PLAIN, Body, Interpreter, RandomControl
from tests.fuzz.random_program import RandomProgram
from tests.ops.sample import F64

# How many ops a function has.
LEAST, MOST = 5, 30
# What has no derivative, and what the compiler makes when derivatives are done.
LEFT_OUT = {*NO_DERIVATIVE, dl.BitcastOp, dl.StopGradientOp, dl.WinogradInputOp, dl.WinogradOutputOp}
_ROUNDING = (dl.FloorOp, dl.CeilOp, dl.RoundOp, dl.TruncOp, dl.FloordivOp)
# Seeds of one function lie so far apart that no two functions are drawn from the same.
_NEXT_DRAW = 2**32


@dataclass(frozen=True)
class Function:
    """A function of arrays of f64 to some; `plain` is the same by NumPy.

    `finite` says that all it computes at its point is, and its slopes: where they are not, a slope of nothing may be nothing
    times infinity.
    """

    point: list[Array]
    run: Callable[..., list[Any]]
    plain: Callable[..., list[Array]]
    finite: bool


def function(seed: int) -> Function:
    """The function of a seed: loops and branches if it is odd, else ops; what is of no floats is drawn anew."""
    draw = _control if seed % 2 else _program
    while True:
        made = draw(seed)
        if made is not None:
            return made
        seed += _NEXT_DRAW


def _control(seed: int) -> Function | None:
    """A function of loops and branches."""
    program = RandomControl(seed, smooth=True)
    if not LEAST <= _statements(program.body) <= MOST:
        return None

    def runs(interpreter: Interpreter) -> Callable[..., list[Any]]:
        return lambda *inputs: interpreter.run(program.body, {}, inputs)

    # Its ops have no poles.
    return _of_floats(program.inputs, runs(Interpreter(dnp, lax)), runs(Interpreter(np, PLAIN)), True)


def _statements(body: Body) -> int:
    """How many statements a body has, with those in its loops and branches."""
    return sum(1 + sum(map(_statements, statement.bodies)) for statement in body.statements)


def _program(seed: int) -> Function | None:
    """A program of `dl` ops, of which only results that no narrower float is on the way to are kept."""
    program = random_program(seed, size=random.Random(seed).randint(LEAST, MOST), dtype=F64, leave_out=LEFT_OUT)
    ops = list(program.block.ops)
    rough = _rough(program)
    results = [k.value for k in program.results if k.value not in rough and not k.tracked.given]
    modes = [op.properties.get("mode") for op in ops]
    computing = [op for op in ops if not isinstance(op, dl.WeightOp | dl.ConstantOp)]
    if not results or not LEAST <= len(computing) <= MOST or StringAttr("mul") in modes:
        return None
    numbers = np.random.default_rng(seed)
    inputs = [x + numbers.uniform(-0.4, 0.4, x.shape) if x.dtype == F64 else x for x in program.inputs]

    def run(*inputs: Any) -> list[Any]:
        known: dict[SSAValue, Any] = dict(zip(program.block.args, inputs, strict=True))
        for op in ops:
            known.update(zip(op.results, _again(program, op, known), strict=True))
        return [known[v] for v in results]

    module, watched = _module(program.block, results), _Watched(numbers)
    evaluate(module, inputs, program.weights, watch=watched)
    if watched.undecided:
        return None
    return _of_floats(inputs, run, lambda *inputs: evaluate(module, inputs, program.weights), watched.finite)


class _Watched:
    """What is seen of an evaluation: whether all floats and slopes are finite, and whether roundings decide anything."""

    def __init__(self, numbers: np.random.Generator) -> None:
        self.numbers = numbers
        self.finite = True
        self.undecided = False
        # What is made of transforms: their parts that are zero are roundings.
        self.noisy: set[SSAValue] = set()

    def __call__(self, op: Operation, frame: Frame, made: Sequence[Any]) -> None:
        # Slopes of results without elements are not seen.
        self.finite &= all(x.size and np.isfinite(x).all() for x in made if x.dtype == F64)
        if isinstance(op, DlOp) and op.operands:
            operands = [frame.array(v) for v in op.operands]
            ways = [self.numbers.uniform(-1, 1, x.shape) for x in operands]
            # What is left by a division jumps by the divisor, what is rounded by 1.
            reach = np.abs(operands[1]) if isinstance(op, dl.ModOp) else np.ones(()) if isinstance(op, _ROUNDING) else None
            noisy = not self.noisy.isdisjoint(op.operands)
            if noisy or isinstance(op, dl.DftOp):
                self.noisy.update(op.results)
            for sign in (1, -1):
                moved = op.evaluate(*(_moved(x, sign * way) for x, way in zip(operands, ways, strict=True)))
                self.undecided |= any(_jumps(x, y, reach, noisy) for x, y in zip(made, moved, strict=True))
            next_to_zero = op.evaluate(*map(_no_zeros, operands))
            self.finite &= not any(_apart(x, y, _NEXT_TO_ZERO * _STEEP) for x, y in zip(made, next_to_zero, strict=True))
            for towards in (0, np.inf):
                beside = op.evaluate(*(np.nextafter(x, towards) if x.dtype == F64 else x for x in operands))
                self.finite &= not any(_apart(x, y, _BESIDE * _largest(x)) for x, y in zip(made, beside, strict=True))


def _moved(x: Array, way: Array) -> Array:
    """Floats that are a little different, as other roundings would make them."""
    return x + 1e-9 * (np.abs(x) + 1e-3) * way if x.dtype == F64 else x


def _jumps(x: Array, moved: Array, reach: Array | None, noisy: bool) -> bool:
    """Whether results differ by more than a slope makes of roundings.

    They may be large as `reach` says, or else as the largest of them is; of `noisy` ones also those count that become infinite.
    """
    if x.dtype != F64:
        return x.shape != moved.shape or bool((x != moved).any())
    with np.errstate(all="ignore"):
        finite = np.isfinite(x) & np.isfinite(moved)
        far = np.abs(x - moved) > 1e-4 * (1 + np.max(np.abs(x), initial=0, where=finite) if reach is None else reach)
        return bool((far & finite).any()) or (noisy and bool((np.isfinite(x) != np.isfinite(moved)).any()))


# What stands for a zero to see whether the slope there is infinite, as that of a root, and by how much more results move then;
# and how far they move, of 1, by the last bit of operands where it is infinite elsewhere, as that of an arccosine.
_NEXT_TO_ZERO, _STEEP, _BESIDE = 1e-100, 1e10, 1e-10


def _no_zeros(x: Array) -> Array:
    return np.where(x == 0, _NEXT_TO_ZERO, x) if x.dtype == F64 else x


def _apart(x: Array, moved: Array, allowed: float) -> bool:
    """Whether floats are further apart than is allowed, or some are no number any more."""
    with np.errstate(all="ignore"):
        return x.dtype == F64 and bool((~(np.abs(x - moved) <= allowed))[np.isfinite(x)].any())


def _largest(x: Array) -> float:
    return 1 + float(np.max(np.abs(x), initial=0, where=np.isfinite(x))) if x.dtype == F64 else 0


def _module(block: Block, results: Sequence[SSAValue]) -> ModuleOp:
    """A program as a module; its block becomes the body of `@main`."""
    block.add_op(func.ReturnOp(*results))
    return ModuleOp([func.FuncOp("main", ([a.type for a in block.args], [r.type for r in results]), Region(block))])


def _rough(program: RandomProgram) -> set[SSAValue]:
    """The values that are computed from narrower floats than those of 64 bits, or that say how they are stored."""
    rough: set[SSAValue] = set()
    for known in program.values:
        narrow = is_float(element_type(known.dtype)) and known.dtype != F64
        if narrow or not rough.isdisjoint(getattr(known.value.owner, "operands", ())):
            rough.add(known.value)
    return rough


def _again(program: RandomProgram, op: Any, known: dict[SSAValue, Any]) -> Sequence[Any]:
    """The results of an op of a program in the function that is traced."""
    trace = next(v.owner for v in known.values() if isinstance(v, Tracer))
    if isinstance(op, dl.WeightOp):
        return [program.weights[op.symbol.root_reference.data]]
    values = {v: trace.value(known[v]).value for v in op.operands}
    return trace.insert(op.clone(values))


def _of_floats(inputs: Sequence[Array], run: Callable[..., Any], plain: Callable[..., Any], finite: bool) -> Function | None:
    """The function of the inputs of f64 alone, to its results of them; None if it has none of either."""
    moving = [i for i, x in enumerate(inputs) if x.dtype == F64]

    def of(function: Callable[..., Any]) -> Callable[..., list[Any]]:
        def call(*given: Any) -> list[Any]:
            arguments = list(inputs)
            for i, x in zip(moving, given, strict=True):
                arguments[i] = x
            return [r for r in function(*arguments) if r.dtype == F64]

        return call

    made = Function([inputs[i] for i in moving], of(run), of(plain), finite)
    with np.errstate(all="ignore"):
        return made if moving and made.plain(*made.point) else None
