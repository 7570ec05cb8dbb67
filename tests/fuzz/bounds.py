"""How far correct compilations of a program may lie apart, element by element.

A value of a program is followed by its array, as the reference computes it, and a bound of the error that its rounding and
that of all values before it may cause: none where every element is exact, infinite where anything goes (a comparison of two
values that rounding may have swapped). The bound follows the op's structure: an elementwise op is evaluated at the corners
of its operands' intervals, in a wider type; a sum takes the magnitudes it adds; a composite is what its decomposition is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.arithmetic.pointwise import Binary, Comparison, Unary
from dlc.dialects.dl.base import Array, DlOp, number
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import (
    Composite,
    Contraction,
    Elementwise,
    Gathering,
    Movement,
    Procedure,
    Reduction,
    Sequential,
    Window,
)
from dlc.ir import Block, SSAValue, StringAttr
from tests.fuzz.floats import (
    FUNCTION_ULPS,
    computed_in,
    distance,
    extended,
    is_float,
    kind_in,
    largest_of,
    smallest_of,
    spacing,
    unit_of,
    unless_it_may_overflow,
)
from tests.fuzz.sums import contracted, contracted_with_dots, contracted_with_words, in_another_order, reduced, touched
from tests.fuzz.tracked import Tracked

# Ops that place elements and compute none: errors move as the elements do.
PLACING = (dl.ReshapeOp, dl.PadOp, dl.ConcatOp, dl.PackOp, Movement)
# Float ops whose result is exact, or rounded once from an exact one in the only possible way.
EXACT = (
    *(dl.MaximumOp, dl.MinimumOp, dl.NegOp, dl.AbsOp, dl.SignOp, dl.ReluOp, dl.FloorOp, dl.CeilOp, dl.RoundOp, dl.TruncOp),
    *(dl.CastOp, dl.SelectOp, dl.StopGradientOp),
)
# One rounding, as IEEE 754 defines it; a sum may be fused with the product before it.
ROUNDED_ONCE = (dl.AddOp, dl.SubOp, dl.MulOp, dl.DivOp, dl.SqrtOp, dl.ReciprocalOp)
# Ops that tell zeros apart by sign, which no other op promises to keep.
SIGN_OF_ZERO = (dl.DivOp, dl.ReciprocalOp, dl.RsqrtOp, dl.PowOp, dl.Atan2Op, dl.BitcastOp, dl.ModOp, dl.FloordivOp)


def track(op: DlOp, *operands: Tracked, precision: str = "f32") -> list[Tracked]:
    """The results of an op, whose contractions of f32 multiply numbers of this precision."""
    with np.errstate(all="ignore"):
        arrays = [np.asarray(a) for a in op.evaluate(*(o.array for o in operands))]
        return [Tracked(a, _tidy(a, e)) for a, e in zip(arrays, _errors(op, operands, arrays, precision), strict=True)]


def _tidy(array: Array, error: Array | None) -> Array | None:
    """An error as it is kept: none, or f64 with infinity for what is not known."""
    if error is None or not np.any(error):
        return None
    error = np.broadcast_to(np.where(np.isnan(error), np.inf, error), array.shape).astype(np.float64)
    if not is_float(array.dtype):
        return np.where(error > 0, np.inf, 0.0)
    # An exact infinity or NaN has no neighbours; a finite number next to the largest may overflow.
    finite = np.isfinite(array.astype(np.float64))
    # Both sides may be as far off as the bound.
    near = np.abs(extended(array)) + 2 * error > largest_of(array.dtype)
    return np.where(finite, np.where(near, np.inf, error), np.where(error > 0, np.inf, 0.0))


def _errors(op: DlOp, operands: Sequence[Tracked], arrays: Sequence[Array], precision: str) -> Sequence[Array | None]:
    exact = all(o.error is None for o in operands)
    match op:
        case dl.ConstantOp() | dl.WeightOp():
            return [None]
        case dl.IotaOp():
            return [spacing(arrays[0]) * 2 if is_float(arrays[0].dtype) else None]
        case Composite() if exact and not any(is_float(o.array.dtype) for o in operands):
            return [None] * len(arrays)
        case dl.CumsumOp() | dl.CumprodOp() | dl.AccumulateOp() if is_float(arrays[0].dtype):
            return [reduced(op, operands[0], arrays[0])]
        case Composite():
            return _decomposed(op, operands, arrays, precision)
        case dl.GatherOp() | dl.GatherNdOp() | dl.GatherElementsOp():
            x, places = operands
            if places.free.any():
                return [np.full(arrays[0].shape, np.inf)]
            return [None if exact else op.evaluate(x.errors, places.array)[0]]
        case dl.ScatterRowsOp():
            return [None if exact else _scattered(op, operands)]
        case dl.AfterOp():
            return [operands[0].error]
        case _ if isinstance(op, PLACING):
            return [None if exact else op.evaluate(*(o.errors for o in operands))[0]]
        case _ if exact and isinstance(op, EXACT):
            return [None]
        case Elementwise():
            return [_elementwise(op, operands, arrays[0])]
        case Gathering() | Sequential():
            # What is compared on the way to a place decides which place it is.
            return [None if exact else np.full(a.shape, np.inf) for a in arrays]
        case _ if not any(is_float(o.array.dtype) for o in operands):
            return [None if exact else touched(op, operands)]
        case Reduction() | Window():
            return [reduced(op, operands[0], arrays[0])]
        case dl.MatmulWordsOp():
            return [contracted_with_words(op, operands, arrays[0])]
        case dl.MatmulDotsOp():
            return [contracted_with_dots(op, operands, arrays[0])]
        case Contraction():
            return [contracted(op, operands, arrays[0], precision)]
        case Procedure():
            return [_of_factors(exact, a) for a in arrays]
        case _:
            raise NotImplementedError(f"{op.name}: say in {__name__} how errors go through it")


def _decomposed(op: Composite, operands: Sequence[Tracked], arrays: Sequence[Array], precision: str) -> list[Array | None]:
    """The errors of the results as simpler ops compute them; the reference may round in other places."""
    block = Block(arg_types=op.operand_types)
    whole = type(op).create(operands=block.args, properties=op.properties, result_types=op.result_types)
    block.add_op(whole)
    results = whole.decompose(*block.args)
    known: dict[SSAValue, Tracked] = dict(zip(block.args, operands, strict=True))
    for step in block.ops:
        # Checks of indices compute nothing.
        if isinstance(step, DlOp) and step is not whole:
            made = track(step, *(known[v] for v in step.operands), precision=precision)
            known.update(zip(step.results, made, strict=True))
    errors = [_other_formula(known[r], array) for r, array in zip(results, arrays, strict=True)]
    staged = isinstance(op, dl.WinogradInputOp | dl.WinogradOutputOp)
    # Around x there are zeros, which only infinite weights make a difference of.
    padded = isinstance(op, dl.ConvTransposeOp) and not np.isfinite(extended(operands[1].array)).all()
    if staged or padded or isinstance(op, dl.BatchNormOp | dl.DftOp | dl.ScatterElementsOp | dl.ScatterNdOp):
        # Products move from data to statistics, padding is multiplied, updates of one element are combined in any order, a transform has stages, a
        # product of three factors is rounded after two: what infinities give there is not promised.
        kinds = [kind_in(extended(a), arrays[0].dtype) for a in (known[results[0]].array, arrays[0])]
        apart = kinds[0] != kinds[1]
        error = 0 if errors[0] is None else errors[0]
        if isinstance(op, dl.BatchNormOp):
            # Factors may meet denormal numbers in another order.
            error = error + smallest_of(computed_in(arrays[0].dtype))
        if isinstance(op, dl.DftOp):
            # A transform's error is bounded by its whole row's norm (N. Higham, "Accuracy and Stability of Numerical
            # Algorithms", 2002, theorem 24.2): parts of a row meet others that cancel later.
            total = np.abs(extended(operands[0].array)).sum((-2, -1), keepdims=True)
            steps = 1 + np.log2(number(op.length))
            error = error + np.where(np.isfinite(total), steps * unit_of(arrays[0].dtype) * total, 0)
        if isinstance(op, dl.ScatterElementsOp | dl.ScatterNdOp) and op.combination in ("add", "mul"):
            error = error + in_another_order(op, operands)
        return [np.where(apart, np.inf, error)]
    return errors


def _scattered(op: dl.ScatterRowsOp, operands: Sequence[Tracked]) -> Array:
    """Errors add up with what they are of, and an extremum has the larger one; where they multiply, anything goes."""
    x, places, updates = operands
    if places.free.any() or op.mode.data == "mul" or not is_float(x.array.dtype):
        return np.full(x.array.shape, np.inf)
    combined = 0 if op.mode.data == "none" else in_another_order(op, operands)
    mode = "max" if op.mode.data == "min" else op.mode.data
    of_errors = op.create(
        operands=op.operands, properties={**op.properties, "mode": StringAttr(mode)}, result_types=op.result_types
    )
    return of_errors.evaluate(x.errors, places.array, updates.errors)[0] + combined


def _other_formula(decomposed: Tracked, array: Array) -> Array | None:
    if not is_float(array.dtype):
        return decomposed.error
    same = distance(extended(decomposed.array), extended(array)) == 0
    rounding = np.where(same, 0, spacing(array) * FUNCTION_ULPS)
    return None if decomposed.error is None and same.all() else decomposed.errors + rounding


def _of_factors(exact: bool, array: Array) -> Array | None:
    """Of matrices as they are drawn, whose factors follow a small step with one of its size; of others anything goes."""
    if not exact:
        return np.full(array.shape, np.inf)
    if not is_float(array.dtype):
        return None
    return np.full(array.shape, 2000 * np.max(spacing(array), initial=0))


def _elementwise(op: Elementwise, operands: Sequence[Tracked], array: Array) -> Array | None:
    free = np.zeros(array.shape, bool)
    for o in operands:
        # Which of its last two operands a select takes is known where its condition is.
        if not (isinstance(op, dl.SelectOp) and o is not operands[0]):
            free = free | o.free
    if isinstance(op, dl.SinOp | dl.CosOp | dl.TanOp):
        # Between the ends may lie all of a wave.
        free = free | (operands[0].errors > 1)
    if isinstance(op, dl.TanOp):
        # Nor are its ends near what is beside a pole.
        x, by = extended(operands[0].array), 2 * operands[0].errors
        free = free | (np.floor((x - by) / np.pi + 0.5) != np.floor((x + by) / np.pi + 0.5))
    if isinstance(op, dl.SelectOp):
        return _selected(operands, array)
    if isinstance(op, dl.BitcastOp):
        # The bits of a NaN are its maker's choice.
        x = operands[0]
        inexact = (x.errors > 0) | (np.isnan(x.array.astype(np.float64)) if is_float(x.array.dtype) else False)
        return np.where(inexact | ((x.array == 0) & (not x.given)), np.inf, 0.0)
    if isinstance(op, Comparison):
        x, y = operands
        together = np.add(x.errors, y.errors)
        if not np.any(together) or not is_float(x.array.dtype):
            return np.where(free, np.inf, 0.0)
        close = np.abs(extended(x.array) - extended(y.array)) <= together
        return np.where(free | ((together > 0) & close), np.inf, 0.0)
    wide = [extended(o.array) for o in operands]
    exact_value = _formula(op, wide)
    error = np.zeros(array.shape, np.longdouble)
    for corner in _corners(op, operands, wide):
        moved = _formula(op, corner)
        error = np.maximum(error, distance(moved, exact_value))
        error = np.where(kind_in(moved, array.dtype) == kind_in(exact_value, array.dtype), error, np.inf)
    if is_float(array.dtype) and isinstance(op, dl.ModOp):
        error = np.maximum(error, _drift(operands, wide, exact_value))
    if is_float(array.dtype) and not isinstance(op, EXACT):
        error = error + _rounding(op, wide, exact_value, array, error)
    return np.where(free, np.inf, error)


def _formula(op: Elementwise, wide: Sequence[Array]) -> Array:
    if isinstance(op, dl.CastOp):
        target = numpy_dtype(op.to)
        return extended(wide[0].astype(target)) if is_float(target) else extended(op.reference(wide[0].astype(np.float64)))
    assert isinstance(op, Unary | Binary)
    return extended(np.asarray(op.numpy(*wide))) if is_float(wide[0].dtype) else np.asarray(op.numpy(*wide))


def _corners(op: Elementwise, operands: Sequence[Tracked], wide: Sequence[Array]) -> Iterator[list[Array]]:
    """The operands moved to the ends of their intervals, in all combinations but the one that leaves them alone."""
    ends: list[list[Array]] = []
    for k, (o, x) in enumerate(zip(operands, wide, strict=True)):
        by = o.errors
        if isinstance(op, dl.ErfinvOp):
            # The square of the operand rounds.
            by = by + spacing(o.array)
        if isinstance(op, dl.SinOp | dl.CosOp | dl.TanOp) or (isinstance(op, dl.PowOp) and k == 1):
            # The reduction of an angle and the product y·log x round as if the operand did.
            by = by + 4 * spacing(o.array)
        moves = [x]
        if is_float(o.array.dtype) and np.any(by):
            moves += [x - np.where(np.isinf(by), 0, by), x + np.where(np.isinf(by), 0, by)]
            if isinstance(op, dl.PowOp) and k == 1:
                # Of a negative base, whole powers alone are numbers, and they lie between the ends.
                moves.append(np.where(np.abs(np.rint(x) - x) <= 2 * by, np.rint(x), x))
            if isinstance(op, dl.ReciprocalOp) or (isinstance(op, dl.DivOp | dl.ModOp | dl.FloordivOp) and k == 1):
                # Between the ends may lie 0.
                moves.append(np.where(np.abs(x) <= 2 * by, 0, x))
        if isinstance(op, SIGN_OF_ZERO) and is_float(o.array.dtype) and not o.given:
            moves.append(np.where(x == 0, -x, x))
        if not is_float(o.array.dtype) and o.array.dtype == bool and o.free.any():
            moves = [np.where(o.free, value, o.array) for value in (False, True)]
        ends.append(moves)
    return (list(corner) for corner in itertools.islice(itertools.product(*ends), 1, None))


def _selected(operands: Sequence[Tracked], array: Array) -> Array | None:
    condition, x, y = operands
    if all(o.error is None for o in operands):
        return None
    error = np.where(condition.array, x.errors, y.errors)
    either = np.maximum(x.errors, y.errors) + distance(extended(x.array), extended(y.array))
    return np.where(condition.free, either, np.broadcast_to(error, array.shape))


def _rounding(op: Elementwise, wide: Sequence[Array], exact: Array, array: Array, error: Array) -> Array:
    """What rounding and the approximation of the function may change in the result, which `error` has moved before."""
    size = array.dtype.itemsize
    if isinstance(op, ROUNDED_ONCE):
        return np.where(
            (exact == extended(array)) & (error == 0), 0, unless_it_may_overflow(exact, spacing(array), array.dtype)
        )
    ulps = spacing(array) * (1 if size == 2 else FUNCTION_ULPS)
    # Denormal results of functions are not promised.
    ulps = np.where(np.isfinite(exact), ulps + smallest_of(computed_in(array.dtype)), 0)
    if isinstance(op, dl.ModOp | dl.FloordivOp):
        ulps = spacing(array)
    return unless_it_may_overflow(exact, ulps, array.dtype)


def _drift(operands: Sequence[Tracked], wide: Sequence[Array], remainder: Array) -> Array:
    """How far a remainder moves while its operands move within their bounds: it may come around to the other end."""
    (x, y), (a, b) = wide, operands
    quotient = np.where(np.isfinite(x / y), np.abs(x / y), 0)
    moved = a.errors + quotient * b.errors
    around = (np.abs(remainder) <= 2 * moved) | (np.abs(y) - np.abs(remainder) <= 2 * moved)
    return np.where(moved > 0, moved + np.where(around, np.abs(y), 0), 0)
