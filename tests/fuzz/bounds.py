"""Error bounds: how far results of correct compilations of a program may differ, element by element.

Each value of a program is tracked as an array, computed by the reference, and a bound of the error that rounding in its op and
all ops before it may cause: None if every element is exact, infinite if any value is acceptable (for example a comparison of
two values that differ by less than their errors). Elementwise ops are evaluated at the corners of their operands' intervals in
a wider type; a sum uses the magnitudes of its terms; a composite uses its decomposition.
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
    DataMovement,
    Elementwise,
    GatherLike,
    LibraryKernel,
    Reduction,
    RowwiseKernel,
    Window,
)
from dlc.ir import Block, SSAValue, StringAttr
from tests.fuzz.bounded_value import BoundedArray
from tests.fuzz.floats import (
    FUNCTION_ULPS,
    compute_dtype,
    distance,
    epsilon_of,
    is_float,
    largest_of,
    number_class,
    smallest_normal_of,
    spacing,
    unbounded_near_overflow,
    widen,
)
from tests.fuzz.reduction_bounds import (
    contraction_error,
    integer_error,
    reduction_error,
    reordering_error,
    weight_only_dot_error,
    weight_only_error,
)

# Ops that only move elements: they move error bounds in the same way.
DATA_MOVEMENT_OPS = (dl.ReshapeOp, dl.PadOp, dl.ConcatOp, dl.PackOp, DataMovement)
# Float ops whose result is uniquely defined: exact, or correctly rounded.
EXACT_OPS = (
    *(dl.MaximumOp, dl.MinimumOp, dl.NegOp, dl.AbsOp, dl.SignOp, dl.ReluOp, dl.FloorOp, dl.CeilOp, dl.RoundOp, dl.TruncOp),
    *(dl.CastOp, dl.SelectOp, dl.StopGradientOp),
)
# Ops with one IEEE 754 rounding; a sum may be fused with a preceding product (FMA).
ROUNDED_ONCE = (dl.AddOp, dl.SubOp, dl.MulOp, dl.DivOp, dl.SqrtOp, dl.ReciprocalOp)
# Ops whose result depends on the sign of a zero, which other ops do not guarantee.
SIGNED_ZERO_OPS = (dl.DivOp, dl.ReciprocalOp, dl.RsqrtOp, dl.PowOp, dl.Atan2Op, dl.BitcastOp, dl.ModOp, dl.FloordivOp)


def track(op: DlOp, *operands: BoundedArray, precision: str = "f32") -> list[BoundedArray]:
    """Evaluate an op with error bounds; `precision` is the precision of f32 contractions with weights."""
    with np.errstate(all="ignore"):
        arrays = [np.asarray(a) for a in op.evaluate(*(o.array for o in operands))]
        return [
            BoundedArray(a, _normalize_error(a, e))
            for a, e in zip(arrays, _errors(op, operands, arrays, precision), strict=True)
        ]


def _normalize_error(array: Array, error: Array | None) -> Array | None:
    """Normalize an error bound: None if all zero, else f64, with infinity for unknown bounds."""
    if error is None or not np.any(error):
        return None
    error = np.broadcast_to(np.where(np.isnan(error), np.inf, error), array.shape).astype(np.float64)
    if not is_float(array.dtype):
        return np.where(error > 0, np.inf, 0.0)
    # An exact infinity or NaN has no rounding error; a finite value near the largest may overflow.
    finite = np.isfinite(array.astype(np.float64))
    # The reference and the compiled code may each differ by the bound.
    may_overflow = np.abs(widen(array)) + 2 * error > largest_of(array.dtype)
    return np.where(finite, np.where(may_overflow, np.inf, error), np.where(error > 0, np.inf, 0.0))


def _errors(op: DlOp, operands: Sequence[BoundedArray], arrays: Sequence[Array], precision: str) -> Sequence[Array | None]:
    exact = all(o.error is None for o in operands)
    match op:
        case dl.ConstantOp() | dl.WeightOp():
            return [None]
        case dl.IotaOp():
            return [spacing(arrays[0]) * 2 if is_float(arrays[0].dtype) else None]
        case Composite() if exact and not any(is_float(o.array.dtype) for o in operands):
            return [None] * len(arrays)
        case dl.CumsumOp() | dl.CumprodOp() | dl.AccumulateOp() if is_float(arrays[0].dtype):
            return [reduction_error(op, operands[0], arrays[0])]
        case Composite():
            return _decomposition_error(op, operands, arrays, precision)
        case dl.GatherOp() | dl.GatherNdOp() | dl.GatherElementsOp():
            x, indices = operands
            if indices.unbounded.any():
                return [np.full(arrays[0].shape, np.inf)]
            return [None if exact else op.evaluate(x.errors, indices.array)[0]]
        case dl.ScatterRowsOp():
            return [None if exact else _scatter_error(op, operands)]
        case dl.AddDependencyOp():
            return [operands[0].error]
        case _ if isinstance(op, DATA_MOVEMENT_OPS):
            return [None if exact else op.evaluate(*(o.errors for o in operands))[0]]
        case _ if exact and isinstance(op, EXACT_OPS):
            return [None]
        case Elementwise():
            return [_elementwise(op, operands, arrays[0])]
        case GatherLike() | RowwiseKernel():
            # Comparisons determine the index that is read, so that inexact operands may change it.
            return [None if exact else np.full(a.shape, np.inf) for a in arrays]
        case _ if not any(is_float(o.array.dtype) for o in operands):
            return [None if exact else integer_error(op, operands)]
        case Reduction() | Window():
            return [reduction_error(op, operands[0], arrays[0])]
        case dl.MatmulWeightOnlyOp():
            return [weight_only_error(op, operands, arrays[0])]
        case dl.MatmulWeightOnlyDotOp():
            return [weight_only_dot_error(op, operands, arrays[0])]
        case Contraction():
            return [contraction_error(op, operands, arrays[0], precision)]
        case LibraryKernel():
            return [
                _factorization_error(exact, a, [b for b in arrays if (b.shape, b.dtype) == (a.shape, a.dtype)]) for a in arrays
            ]
        case _:
            raise NotImplementedError(f"{op.name}: define its error bound in {__name__}")


def _decomposition_error(
    op: Composite, operands: Sequence[BoundedArray], arrays: Sequence[Array], precision: str
) -> list[Array | None]:
    """Return the errors of the results as the decomposition computes them; the reference may round differently."""
    block = Block(arg_types=op.operand_types)
    composite = type(op).create(operands=block.args, properties=op.properties, result_types=op.result_types)
    block.add_op(composite)
    results = composite.decompose(*block.args)
    values: dict[SSAValue, BoundedArray] = dict(zip(block.args, operands, strict=True))
    for step in block.ops:
        # Index checks have no results.
        if isinstance(step, DlOp) and step is not composite:
            step_results = track(step, *(values[v] for v in step.operands), precision=precision)
            values.update(zip(step.results, step_results, strict=True))
    errors = [_formula_error(values[r], array) for r, array in zip(results, arrays, strict=True)]
    staged = isinstance(op, dl.WinogradInputOp | dl.WinogradOutputOp)
    # Padding zeros contribute only if multiplied by infinite weights.
    padded = isinstance(op, dl.ConvTransposeOp) and not np.isfinite(widen(operands[1].array)).all()
    if staged or padded or isinstance(op, dl.BatchNormOp | dl.DftOp | dl.ScatterElementsOp | dl.ScatterNdOp):
        # Products move from data to statistics, padding is multiplied, updates of one element are combined in any order, a transform has stages, a
        # product of three factors is rounded after two: what infinities give there is not promised.
        kinds = [number_class(widen(a), arrays[0].dtype) for a in (values[results[0]].array, arrays[0])]
        differs = kinds[0] != kinds[1]
        error = 0 if errors[0] is None else errors[0]
        if isinstance(op, dl.BatchNormOp):
            # Factors may meet denormal numbers in another order.
            error = error + smallest_normal_of(compute_dtype(arrays[0].dtype))
        if isinstance(op, dl.DftOp):
            # A transform's error is bounded by its whole row's norm (N. Higham, "Accuracy and Stability of Numerical
            # Algorithms", 2002, theorem 24.2): parts of a row meet others that cancel later.
            total = np.abs(widen(operands[0].array)).sum((-2, -1), keepdims=True)
            steps = 1 + np.log2(number(op.length))
            error = error + np.where(np.isfinite(total), steps * epsilon_of(arrays[0].dtype) * total, 0)
        if (
            isinstance(op, dl.ScatterElementsOp | dl.ScatterNdOp)
            and op.combination in ("add", "mul")
            and is_float(arrays[0].dtype)
        ):
            error = error + reordering_error(op, operands)
        return [np.where(differs, np.inf, error)]
    return errors


def _scatter_error(op: dl.ScatterRowsOp, operands: Sequence[BoundedArray]) -> Array:
    """Return the errors of a scatter: they add up, a maximum has the larger one, and products are unbounded."""
    x, indices, updates = operands
    if indices.unbounded.any() or op.mode.data == "mul" or not is_float(x.array.dtype):
        return np.full(x.array.shape, np.inf)
    combined = 0 if op.mode.data == "none" else reordering_error(op, operands)
    mode = "max" if op.mode.data == "min" else op.mode.data
    error_op = op.create(
        operands=op.operands, properties={**op.properties, "mode": StringAttr(mode)}, result_types=op.result_types
    )
    return error_op.evaluate(x.errors, indices.array, updates.errors)[0] + combined


def _formula_error(decomposed: BoundedArray, array: Array) -> Array | None:
    if not is_float(array.dtype):
        return decomposed.error
    same = distance(widen(decomposed.array), widen(array)) == 0
    rounding = np.where(same, 0, spacing(array) * FUNCTION_ULPS)
    return None if decomposed.error is None and same.all() else decomposed.errors + rounding


def _factorization_error(exact: bool, array: Array, parts: Sequence[Array]) -> Array | None:
    """Return the errors of a matrix factorization: small for exact operands, which are well-conditioned, else unbounded.

    They are relative to the largest of `parts`: the imaginary parts of real eigenvalues are rounding errors of the real parts.
    """
    if not exact:
        return np.full(array.shape, np.inf)
    if not is_float(array.dtype):
        return None
    return np.full(array.shape, 2000 * max(float(np.max(spacing(part), initial=0)) for part in parts))


def _elementwise(op: Elementwise, operands: Sequence[BoundedArray], array: Array) -> Array | None:
    unbounded = np.zeros(array.shape, bool)
    for o in operands:
        # An unbounded condition is handled by _select_error.
        if not (isinstance(op, dl.SelectOp) and o is not operands[0]):
            unbounded = unbounded | o.unbounded
    if isinstance(op, dl.SinOp | dl.CosOp | dl.TanOp):
        # The interval may contain a whole period.
        unbounded = unbounded | (operands[0].errors > 1)
    if isinstance(op, dl.TanOp):
        # The interval may contain a pole.
        x, by = widen(operands[0].array), 2 * operands[0].errors
        unbounded = unbounded | (np.floor((x - by) / np.pi + 0.5) != np.floor((x + by) / np.pi + 0.5))
    if isinstance(op, dl.SelectOp):
        return _select_error(operands, array)
    if isinstance(op, dl.BitcastOp):
        # The payload of a NaN is not defined.
        x = operands[0]
        inexact = (x.errors > 0) | (np.isnan(x.array.astype(np.float64)) if is_float(x.array.dtype) else False)
        return np.where(inexact | ((x.array == 0) & (not x.is_source)), np.inf, 0.0)
    if isinstance(op, Comparison):
        x, y = operands
        error_sum = np.add(x.errors, y.errors)
        if not np.any(error_sum) or not is_float(x.array.dtype):
            return np.where(unbounded, np.inf, 0.0)
        may_swap = np.abs(widen(x.array) - widen(y.array)) <= error_sum
        return np.where(unbounded | ((error_sum > 0) & may_swap), np.inf, 0.0)
    wide = [widen(o.array) for o in operands]
    exact_value = _formula(op, wide)
    error = np.zeros(array.shape, np.longdouble)
    for corner in _corners(op, operands, wide):
        perturbed = _formula(op, corner)
        error = np.maximum(error, distance(perturbed, exact_value))
        error = np.where(number_class(perturbed, array.dtype) == number_class(exact_value, array.dtype), error, np.inf)
    if is_float(array.dtype) and isinstance(op, dl.ModOp):
        error = np.maximum(error, _remainder_error(operands, wide, exact_value))
    if is_float(array.dtype) and not isinstance(op, EXACT_OPS):
        error = error + _rounding_error(op, wide, exact_value, array, error)
    return np.where(unbounded, np.inf, error)


def _formula(op: Elementwise, wide: Sequence[Array]) -> Array:
    if isinstance(op, dl.CastOp):
        target = numpy_dtype(op.to)
        return widen(wide[0].astype(target)) if is_float(target) else widen(op.reference(wide[0].astype(np.float64)))
    assert isinstance(op, Unary | Binary)
    return widen(np.asarray(op.numpy(*wide))) if is_float(wide[0].dtype) else np.asarray(op.numpy(*wide))


def _corners(op: Elementwise, operands: Sequence[BoundedArray], wide: Sequence[Array]) -> Iterator[list[Array]]:
    """Yield the operands at the ends of their intervals, in all combinations except that of the operands themselves."""
    intervals: list[list[Array]] = []
    for k, (o, x) in enumerate(zip(operands, wide, strict=True)):
        by = o.errors
        if isinstance(op, dl.ErfinvOp):
            # The square of the operand rounds.
            by = by + spacing(o.array)
        if isinstance(op, dl.SinOp | dl.CosOp | dl.TanOp) or (isinstance(op, dl.PowOp) and k == 1):
            # The reduction of an angle and the product y·log x round as if the operand did.
            by = by + 4 * spacing(o.array)
        candidates = [x]
        if is_float(o.array.dtype) and np.any(by):
            candidates += [x - np.where(np.isinf(by), 0, by), x + np.where(np.isinf(by), 0, by)]
            if isinstance(op, dl.PowOp) and k == 1:
                # Powers of a negative base are NaN except for integer exponents, which may be inside the interval.
                candidates.append(np.where(np.abs(np.rint(x) - x) <= 2 * by, np.rint(x), x))
            if isinstance(op, dl.ReciprocalOp) or (isinstance(op, dl.DivOp | dl.ModOp | dl.FloordivOp) and k == 1):
                # The interval may contain 0.
                candidates.append(np.where(np.abs(x) <= 2 * by, 0, x))
        if isinstance(op, SIGNED_ZERO_OPS) and is_float(o.array.dtype) and not o.is_source:
            candidates.append(np.where(x == 0, -x, x))
        if not is_float(o.array.dtype) and o.array.dtype == bool and o.unbounded.any():
            candidates = [np.where(o.unbounded, value, o.array) for value in (False, True)]
        intervals.append(candidates)
    return (list(corner) for corner in itertools.islice(itertools.product(*intervals), 1, None))


def _select_error(operands: Sequence[BoundedArray], array: Array) -> Array | None:
    condition, x, y = operands
    if all(o.error is None for o in operands):
        return None
    error = np.where(condition.array, x.errors, y.errors)
    error_of_either = np.maximum(x.errors, y.errors) + distance(widen(x.array), widen(y.array))
    return np.where(condition.unbounded, error_of_either, np.broadcast_to(error, array.shape))


def _rounding_error(op: Elementwise, wide: Sequence[Array], exact: Array, array: Array, error: Array) -> Array:
    """Return the error of rounding and of function approximation, in addition to the propagated `error`."""
    size = array.dtype.itemsize
    if isinstance(op, ROUNDED_ONCE):
        return np.where((exact == widen(array)) & (error == 0), 0, unbounded_near_overflow(exact, spacing(array), array.dtype))
    ulps = spacing(array) * (1 if size == 2 else FUNCTION_ULPS)
    # Functions may flush denormal results to zero.
    ulps = np.where(np.isfinite(exact), ulps + smallest_normal_of(compute_dtype(array.dtype)), 0)
    if isinstance(op, dl.ModOp | dl.FloordivOp):
        ulps = spacing(array)
    return unbounded_near_overflow(exact, ulps, array.dtype)


def _remainder_error(operands: Sequence[BoundedArray], wide: Sequence[Array], remainder: Array) -> Array:
    """Return the propagated error of a remainder, which may wrap around by the divisor."""
    (x, y), (a, b) = wide, operands
    quotient = np.where(np.isfinite(x / y), np.abs(x / y), 0)
    operand_error = a.errors + quotient * b.errors
    near_end = (np.abs(remainder) <= 2 * operand_error) | (np.abs(y) - np.abs(remainder) <= 2 * operand_error)
    return np.where(operand_error > 0, operand_error + np.where(near_end, np.abs(y), 0), 0)
