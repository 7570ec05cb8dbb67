"""How far correct compilations of a program may lie apart, element by element.

A value of a program is followed by its array, as the reference computes it, and a bound of the error that its rounding and
that of all values before it may cause: none where every element is exact, infinite where anything goes (a comparison of two
values that rounding may have swapped). The bound follows the op's structure: an elementwise op is evaluated at the corners
of its operands' intervals, in a wider type; a sum takes the magnitudes it adds; a composite is what its decomposition is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp, shape_of, tensor_type
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, numpy_dtype
from dlc.dialects.dl.interfaces import Composite, Contraction, Elementwise, Gathering, Movement, Reduction, Window
from dlc.dialects.dl.pointwise import Binary, Comparison, Unary
from dlc.ir import Block, SSAValue, StringAttr, f64, i64

_FLOATS = {numpy_dtype(t) for name, t in ELEMENT_TYPES.items() if "float" in name}
# Ops that place elements and compute none: errors move as the elements do.
PLACING = (dl.ReshapeOp, dl.PadOp, dl.ConcatOp, dl.PackOp, Movement)
# Float ops whose result is exact, or rounded once from an exact one in the only possible way.
EXACT = (
    *(dl.MaximumOp, dl.MinimumOp, dl.NegOp, dl.AbsOp, dl.SignOp, dl.ReluOp, dl.FloorOp, dl.CeilOp, dl.RoundOp, dl.TruncOp),
    *(dl.CastOp, dl.SelectOp),
)
# One rounding, as IEEE 754 defines it; a sum may be fused with the product before it.
ROUNDED_ONCE = (dl.AddOp, dl.SubOp, dl.MulOp, dl.DivOp, dl.SqrtOp, dl.ReciprocalOp)
# Units in the last place within which functions are, of the library and of the generated code together.
FUNCTION_ULPS = 12
# Where a function is not periodic any more (dlc/passes/loops/elementary/trigonometric.py), by size of the type.
LARGEST_ANGLE = {2: 1e5, 4: 1e5, 8: 1e9}
# Ops that tell zeros apart by sign, which no other op promises to keep.
SIGN_OF_ZERO = (dl.DivOp, dl.ReciprocalOp, dl.RsqrtOp, dl.PowOp, dl.BitcastOp, dl.ModOp, dl.FloordivOp)


@dataclass(frozen=True)
class Tracked:
    """An array and the bound of its elements' errors; None where all are exact. `given`: nothing has computed it."""

    array: Array
    error: Array | None = None
    given: bool = False

    @property
    def free(self) -> Array:
        """Where anything goes."""
        return np.isinf(self.errors)

    @property
    def errors(self) -> Array:
        return np.zeros(self.array.shape) if self.error is None else self.error


def difference(got: Array, want: Tracked) -> str | None:
    """How `got` is more than errors away from `want`: the worst element; None if it is not."""
    expected = want.array
    if (got.dtype, got.shape) != (expected.dtype, expected.shape):
        return f"{got.dtype}{list(got.shape)}, expected {expected.dtype}{list(expected.shape)}"
    # Both the reference and the code may be as far off as the bound.
    allowed = 2 * want.errors
    with np.errstate(all="ignore"):
        if is_float(got.dtype):
            a, b = _wide(got), _wide(expected)
            apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b))
            wrong = ~((apart <= allowed) | np.isinf(allowed))
        else:
            wrong = (got != expected) & ~np.isinf(allowed)
            apart = wrong
    if not wrong.any():
        return None
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {got.size} elements of {got.dtype}{list(got.shape)} differ; at {list(place)} "
        f"{got[place]!r}, expected {expected[place]!r} ± {allowed[place]:.3g}"
    )


def track(op: DlOp, *operands: Tracked) -> list[Tracked]:
    """The results of an op."""
    with np.errstate(all="ignore"):
        arrays = [np.asarray(a) for a in op.evaluate(*(o.array for o in operands))]
        return [Tracked(a, _tidy(a, e)) for a, e in zip(arrays, _errors(op, operands, arrays), strict=True)]


def _tidy(array: Array, error: Array | None) -> Array | None:
    """An error as it is kept: none, or f64 with infinity for what is not known."""
    if error is None or not np.any(error):
        return None
    error = np.broadcast_to(np.where(np.isnan(error), np.inf, error), array.shape).astype(np.float64)
    if not is_float(array.dtype):
        return np.where(error > 0, np.inf, 0.0)
    # An exact infinity or NaN has no neighbours; a finite number next to the largest may overflow.
    finite = np.isfinite(array.astype(np.float64))
    near = np.abs(_wide(array)) + error > _largest(array.dtype)
    return np.where(finite, np.where(near, np.inf, error), np.where(error > 0, np.inf, 0.0))


def _errors(op: DlOp, operands: Sequence[Tracked], arrays: Sequence[Array]) -> Sequence[Array | None]:
    exact = all(o.error is None for o in operands)
    match op:
        case dl.ConstantOp() | dl.WeightOp():
            return [None]
        case dl.IotaOp():
            return [_spacing(arrays[0]) * 2 if is_float(arrays[0].dtype) else None]
        case Composite() if exact and not any(is_float(o.array.dtype) for o in operands):
            return [None] * len(arrays)
        case dl.CumsumOp() | dl.CumprodOp() if is_float(arrays[0].dtype):
            return [_reduced(op, operands[0], arrays[0])]
        case Composite():
            return _decomposed(op, operands, arrays)
        case dl.GatherOp() | dl.GatherNdOp() | dl.GatherElementsOp():
            x, places = operands
            if places.free.any():
                return [np.full(arrays[0].shape, np.inf)]
            return [None if exact else op.evaluate(x.errors, places.array)[0]]
        case _ if isinstance(op, PLACING):
            return [None if exact else op.evaluate(*(o.errors for o in operands))[0]]
        case _ if exact and isinstance(op, EXACT):
            return [None]
        case Elementwise():
            return [_elementwise(op, operands, arrays[0])]
        case _ if not any(is_float(o.array.dtype) for o in operands):
            return [None if exact else _touched(op, operands)]
        case Reduction() | Window():
            return [_reduced(op, operands[0], arrays[0])]
        case Contraction():
            return [_contracted(op, operands, arrays[0])]
        case Gathering():
            # What is compared on the way to a place decides which place it is.
            return [None if exact else np.full(arrays[0].shape, np.inf)]
        case _:
            raise NotImplementedError(f"{op.name}: say in {__name__} how errors go through it")


# Decompositions


def _decomposed(op: Composite, operands: Sequence[Tracked], arrays: Sequence[Array]) -> list[Array | None]:
    """The errors of the results as simpler ops compute them; the reference may round in other places."""
    block = Block(arg_types=op.operand_types)
    whole = type(op).create(operands=block.args, properties=op.properties, result_types=op.result_types)
    block.add_op(whole)
    results = whole.decompose(*block.args)
    known: dict[SSAValue, Tracked] = dict(zip(block.args, operands, strict=True))
    for step in block.ops:
        if step is not whole:
            assert isinstance(step, DlOp)
            known.update(zip(step.results, track(step, *(known[v] for v in step.operands)), strict=True))
    errors = [_other_formula(known[r], array) for r, array in zip(results, arrays, strict=True)]
    if isinstance(op, dl.BatchNormOp | dl.ConvTransposeOp | dl.ScatterElementsOp | dl.ScatterNdOp):
        # Products move from data to statistics, padding is multiplied, updates of one element are combined in any order: what
        # infinities give there is not promised.
        kinds = [_class(_wide(a), arrays[0].dtype) for a in (known[results[0]].array, arrays[0])]
        apart = kinds[0] != kinds[1]
        error = 0 if errors[0] is None else errors[0]
        if isinstance(op, dl.ScatterElementsOp | dl.ScatterNdOp) and op.combination in ("add", "mul"):
            error = error + _in_another_order(op, operands)
        return [np.where(apart, np.inf, error)]
    return errors


def _in_another_order(op: dl.ScatterElementsOp | dl.ScatterNdOp, operands: Sequence[Tracked]) -> Array:
    """What the roundings of sums or products of updates come to."""
    x, indices, updates = operands
    block = Block(arg_types=[tensor_type(o.array.shape, i64 if o is indices else f64) for o in operands])

    def of(a: Array, b: Array, mode: str) -> Array:
        properties = {**op.properties, "mode": StringAttr(mode)}
        return type(op).make(*block.args, **properties).evaluate(a, indices.array.astype(np.int64), b)[0]

    count = of(np.zeros(x.array.shape), np.ones(updates.array.shape), "add")
    return count * _unit(x.array.dtype) * of(_finite(x.array), _finite(updates.array), op.combination)


def _other_formula(decomposed: Tracked, array: Array) -> Array | None:
    if not is_float(array.dtype):
        return decomposed.error
    same = _apart(_wide(decomposed.array), _wide(array)) == 0
    rounding = np.where(same, 0, _spacing(array) * FUNCTION_ULPS)
    return None if decomposed.error is None and same.all() else decomposed.errors + rounding


def _partly_extreme(product: DlOp, magnitudes: Array, dtype: np.dtype) -> Array:
    """Where a product of some of the factors may overflow or vanish, though the whole does not."""
    factors = np.where(magnitudes == 0, 1, magnitudes)
    (most,), (least,) = (product.evaluate(f(factors, 1)) for f in (np.maximum, np.minimum))
    return (most > _largest(dtype) / 2) | (least < _smallest(dtype) * 2)


# Elementwise ops


def _elementwise(op: Elementwise, operands: Sequence[Tracked], array: Array) -> Array | None:
    free = np.zeros(array.shape, bool)
    for o in operands:
        # Which of its last two operands a select takes is known where its condition is.
        if not (isinstance(op, dl.SelectOp) and o is not operands[0]):
            free = free | o.free
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
        close = np.abs(_wide(x.array) - _wide(y.array)) <= together
        return np.where(free | ((together > 0) & close), np.inf, 0.0)
    wide = [_wide(o.array) for o in operands]
    exact_value = _formula(op, wide)
    error = np.zeros(array.shape, np.longdouble)
    for corner in _corners(op, operands, wide):
        moved = _formula(op, corner)
        error = np.maximum(error, _apart(moved, exact_value))
        error = np.where(_class(moved, array.dtype) == _class(exact_value, array.dtype), error, np.inf)
    if is_float(array.dtype) and not isinstance(op, EXACT):
        error = error + _rounding(op, wide, exact_value, array)
    return np.where(free, np.inf, error)


def _formula(op: Elementwise, wide: Sequence[Array]) -> Array:
    if isinstance(op, dl.CastOp):
        target = numpy_dtype(op.to)
        return _wide(wide[0].astype(target)) if is_float(target) else _wide(op.reference(wide[0].astype(np.float64)))
    assert isinstance(op, Unary | Binary)
    return _wide(np.asarray(op.numpy(*wide))) if is_float(wide[0].dtype) else np.asarray(op.numpy(*wide))


def _corners(op: Elementwise, operands: Sequence[Tracked], wide: Sequence[Array]) -> Iterator[list[Array]]:
    """The operands moved to the ends of their intervals, in all combinations but the one that leaves them alone."""
    ends: list[list[Array]] = []
    for k, (o, x) in enumerate(zip(operands, wide, strict=True)):
        by = o.errors
        if isinstance(op, dl.SinOp | dl.CosOp | dl.TanOp) or (isinstance(op, dl.PowOp) and k == 1):
            # The reduction of an angle and the product y·log x round as if the operand did.
            by = by + 4 * _spacing(o.array)
        moves = [x]
        if is_float(o.array.dtype) and np.any(by):
            moves += [x - np.where(np.isinf(by), 0, by), x + np.where(np.isinf(by), 0, by)]
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
    either = np.maximum(x.errors, y.errors) + _apart(_wide(x.array), _wide(y.array))
    return np.where(condition.free, either, np.broadcast_to(error, array.shape))


def _rounding(op: Elementwise, wide: Sequence[Array], exact: Array, array: Array) -> Array:
    """What rounding and the approximation of the function may change in the result."""
    size = array.dtype.itemsize
    if isinstance(op, ROUNDED_ONCE):
        return np.where(exact == _wide(array), 0, _close_to_overflow(exact, _spacing(array), array.dtype))
    ulps = _spacing(array) * (1 if size == 2 else FUNCTION_ULPS)
    # Denormal results of functions are not promised.
    ulps = np.where(np.isfinite(exact), ulps + _smallest(_wide_type(array.dtype)), 0)
    if isinstance(op, dl.SinOp | dl.CosOp | dl.TanOp):
        ulps = np.where(np.abs(wide[0]) > LARGEST_ANGLE[size], np.inf, ulps)
    if isinstance(op, dl.ModOp | dl.FloordivOp):
        ulps = _quotient_rounding(op, wide, array)
    return _close_to_overflow(exact, ulps, array.dtype)


def _quotient_rounding(op: dl.ModOp | dl.FloordivOp, wide: Sequence[Array], array: Array) -> Array:
    """A remainder is exact while its quotient is small; next to a whole quotient f64 may take the other side."""
    quotient = np.broadcast_to(np.abs(wide[0] / wide[1]), array.shape)
    limit = 2.0**28 if array.dtype.itemsize < 8 else 2.0**20
    near = np.abs(quotient - np.rint(quotient)) <= quotient * 2.0**-50
    unsure = (quotient > limit) | (near & (quotient != np.rint(quotient)))
    if array.dtype.itemsize == 8:
        unsure = unsure | (near & (quotient > 0))
    error = np.where(unsure & np.isfinite(quotient), np.inf, _spacing(array))
    if array.dtype.itemsize == 8 and isinstance(op, dl.ModOp):
        error = error + np.where(np.isfinite(wide[0]), np.abs(wide[0]), 0) * 2.0**-50
    return error


# Sums, products, extrema, also running ones


def _widened(op: DlOp) -> DlOp:
    """The op on f64."""
    block = Block(arg_types=[tensor_type(shape_of(v), f64) for v in op.operands])
    properties = {k: v for k, v in op.properties.items() if k != "result"}
    wide = type(op).create(operands=block.args, properties=properties)
    wide.set_result_types(wide.infer())
    return wide


def _finite(x: Array) -> Array:
    """Magnitudes in f64, 0 for what is not finite."""
    x = np.abs(x.astype(np.float64))
    return np.where(np.isfinite(x), x, 0)


def _touched(op: DlOp, operands: Sequence[Tracked]) -> Array:
    """Integers and bools: free where an operand that takes part is."""
    if isinstance(op, Contraction):
        return np.full(shape_of(op.results[0]), np.inf)
    x = operands[0]
    if x.array.dtype == bool:
        ends = [op.evaluate(np.where(x.free, end, x.array))[0] for end in (False, True)]
        return np.where(ends[0] == ends[1], 0.0, np.inf)
    return _sum_of(op)(np.where(x.free, 1.0, 0.0)) * np.inf


def _sum_of(op: DlOp):
    """The sums over what an op on one operand reduces, in f64."""
    wide = _widened(op)
    if isinstance(op, dl.CumsumOp | dl.CumprodOp):
        total: DlOp = dl.CumsumOp.create(operands=wide.operands, properties=wide.properties, result_types=wide.result_types)
    elif isinstance(op, Window):
        total = dl.SumPoolOp.create(operands=wide.operands, properties=wide.properties, result_types=wide.result_types)
    else:
        total = dl.ReduceSumOp.create(operands=wide.operands, properties=wide.properties, result_types=wide.result_types)
    return lambda x: total.evaluate(x)[0]


def _reduced(op: DlOp, x: Tracked, array: Array) -> Array | None:
    if isinstance(op, dl.ReduceMaxOp | dl.ReduceMinOp | dl.MaxPoolOp):
        if x.error is None:
            return None
        largest = dl.MaxPoolOp if isinstance(op, Window) else dl.ReduceMaxOp
        wide = _widened(op)
        top = largest.create(operands=wide.operands, properties=wide.properties, result_types=wide.result_types)
        return top.evaluate(np.maximum(x.errors, 0))[0]
    total = _sum_of(op)
    count, magnitudes = total(np.ones(x.array.shape)), _finite(x.array)
    unit = _unit(array.dtype)
    exact = _widened(op).evaluate(x.array.astype(np.float64))[0]
    if isinstance(op, dl.ReduceProdOp | dl.CumprodOp):
        product = _widened(op)
        (low,), (high,) = (product.evaluate(m) for m in (magnitudes, magnitudes + x.errors))
        error = (high - low) + high * count * unit
        error = np.where(np.isfinite(exact) | (total(x.errors) > 0), error, 0)
        error = np.where(_partly_extreme(product, magnitudes, _wide_type(array.dtype)), np.inf, error)
        return _last_rounding(exact, error, array)
    sums = total(magnitudes)
    error = total(x.errors) + np.where(np.isfinite(exact), count * unit * sums, 0)
    if x.error is None and _whole(x.array) and np.max(sums, initial=0) * unit < 1:
        error = np.zeros_like(error)
    return _last_rounding(exact, _unless_overflow(sums, count, error, array), array)


def _contracted(op: DlOp, operands: Sequence[Tracked], array: Array) -> Array | None:
    wide, (a, b) = _widened(op), operands

    def of(x: Array, y: Array) -> Array:
        return wide.evaluate(x, y)[0]

    x, y = _finite(a.array), _finite(b.array)
    count, sums, unit = of(np.ones(x.shape), np.ones(y.shape)), of(x, y), _unit(array.dtype)
    exact = of(a.array.astype(np.float64), b.array.astype(np.float64))
    error = np.where(np.isfinite(exact), count * unit * sums, 0)
    if a.error is None and b.error is None and _whole(a.array) and _whole(b.array) and np.max(sums, initial=0) * unit < 1:
        error = np.zeros_like(error)
    if a.error is not None or b.error is not None:
        error = error + of(x, b.errors) + of(a.errors, y) + of(a.errors, b.errors)
        # A factor whose sign is not known makes any infinity of an infinite one.
        error = np.where(np.isfinite(exact), error, np.inf)
    return _last_rounding(exact, _unless_overflow(sums, count, error, array), array)


def _unless_overflow(sums: Array, count: Array, error: Array, array: Array) -> Array:
    """The error, infinite where a sum of some of the magnitudes may overflow."""
    return np.where(sums * (1 + count * _unit(array.dtype)) >= _largest(_wide_type(array.dtype)), np.inf, error)


def _last_rounding(exact: Array, error: Array, array: Array) -> Array:
    """A sum's error, with what the rounding to the result's type may add; f16 and bf16 are summed in f32."""
    if array.dtype.itemsize == 2:
        error = np.where(error > 0, error + _spacing(array), error)
    # Products and sums below the normal numbers lose digits that no relative bound has.
    error = np.where(error > 0, error + 4 * _spacing(np.zeros((), _wide_type(array.dtype))), error)
    return _close_to_overflow(_wide(exact), error, array.dtype)


# Numbers


def is_float(dtype: np.dtype) -> bool:
    """Whether it is a dtype of floats; ml_dtypes has integers too that NumPy knows nothing of."""
    return dtype in _FLOATS or dtype == np.longdouble


def _wide(x: Array) -> Array:
    # ml_dtypes convert to NumPy's own types only.
    return (
        x.astype(np.float64).astype(np.longdouble)
        if x.dtype.kind == "V"
        else x.astype(np.longdouble)
        if is_float(x.dtype)
        else x
    )


def _wide_type(dtype: np.dtype) -> np.dtype:
    """What a 16-bit float is computed in."""
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype


def _unit(dtype: np.dtype) -> float:
    """The relative error of one operation in the type that a sum is kept in."""
    return float(ml_dtypes.finfo(_wide_type(dtype)).eps)


def _largest(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(dtype).max) if is_float(dtype) else np.inf


def _smallest(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(dtype).smallest_normal)


def _spacing(x: Array) -> Array:
    """The distance between an element and the next number of its type; 0 for integers, infinities and NaN."""
    if not is_float(x.dtype):
        return np.zeros(x.shape)
    info = ml_dtypes.finfo(x.dtype)
    magnitudes = np.abs(x.astype(np.float64))
    _, exponents = np.frexp(np.maximum(magnitudes, float(info.smallest_normal)))
    return np.where(np.isfinite(magnitudes), np.ldexp(1.0, exponents - 1 - info.nmant), 0.0)


def _whole(x: Array) -> bool:
    """Whether all elements are whole numbers."""
    x = x.astype(np.float64)
    return bool(np.all(np.isfinite(x) & (x == np.rint(x))))


def _apart(a: Array, b: Array) -> Array:
    """The distance between two results, 0 where they are the same infinity or both NaN; of integers and bools 0 or inf."""
    if not is_float(a.dtype):
        return np.where(a == b, 0.0, np.inf)
    return np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b))


def _class(x: Array, dtype: np.dtype) -> Array:
    """What kind of number `x` becomes in `dtype`: finite 0, infinite ±1, NaN 2."""
    if not is_float(x.dtype) or not is_float(dtype):
        return np.zeros(x.shape)
    x = x.astype(dtype).astype(np.float64)
    return np.where(np.isnan(x), 2, np.where(np.isinf(x), np.sign(x), 0))


def _close_to_overflow(exact: Array, error: Array, dtype: np.dtype) -> Array:
    """The error, infinite where it decides whether the result overflows."""
    exact, largest = np.abs(exact), np.longdouble(_largest(dtype))
    # Half a step above the largest number is where rounding starts to give infinity.
    step = largest * np.longdouble(float(ml_dtypes.finfo(dtype).eps))
    slack = np.maximum(np.where(np.isnan(error), np.inf, error), np.where(error > 0, step * FUNCTION_ULPS, 0))
    certain, possible = exact - slack > largest + step, exact + slack > largest
    error = np.where(certain & np.isfinite(exact), 0, error)
    return np.where(possible & ~certain & (slack > 0), np.inf, error)
