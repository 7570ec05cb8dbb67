"""Complex numbers: the results and operands of Fourier transforms, and their arithmetic.

`dlc.numpy.fft`, `1j * x`, complex dtypes and complex arguments create complex arrays, which are pairs of real arrays. They
support the operators + - * / @ **, comparisons, the functions here, elementary functions such as `sin`, and functions that act
on the two parts separately (componentwise.py). For everything else use `.real` and `.imag`. The order of complex numbers is
that of their real parts, then of their imaginary parts.
Derivatives treat the two parts as two real arrays: the gradient of a real function points in the direction of steepest ascent.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from dlc.errors import DTypeError, ShapeError, UnsupportedError
from dlc.frontend.complex_numbers import Complex, component_dtype, contains_complex, from_parts, is_complex, real_and_imaginary
from dlc.frontend.trace import is_python_scalar
from dlc.numpy.apply import (
    AnyDType,
    ArrayLike,
    Axes,
    Operand,
    as_dtype,
    complex_operand,
    convert,
    normalize_axes,
    normalize_axis,
    operand,
    promote_to_float,
    refuse,
    result_dtype,
)
from dlc.numpy.componentwise import componentwise
from dlc.numpy.functions import comparison as cmp
from dlc.numpy.functions import (
    cumulative,
    data_dependent_shapes,
    floats,
    joining,
    matrix_products,
    reductions,
    shape_manipulation,
    sorting,
)
from dlc.numpy.functions import elementwise as ew
from dlc.numpy.functions.complex_functions import COMPLEX_FUNCTIONS
from dlc.numpy.functions.creation import ones_like, zeros_like
from dlc.numpy.functions.einstein_summation import einsum
from dlc.numpy.functions.indexing import getitem, take_along_axis

__all__ = [
    "abs", "angle", "astype", "conj", "exp", "imag", "iscomplex", "iscomplexobj", "isreal", "isrealobj", "log", "real", "sqrt",
]  # fmt: skip

# A real or complex scalar or array.
ComplexArrayLike: TypeAlias = "ArrayLike | Complex | complex"


def _parts(x: Any) -> tuple[Any, Any]:
    """Return the real and the imaginary part; None as the imaginary part of a real value."""
    return real_and_imaginary(x if is_complex(x) else complex_operand(x)) if contains_complex(x) else (x, None)


def _complex_array(real: Any, imag: Any) -> Any:
    """Return a complex array from its real and imaginary parts, which are broadcast; an imaginary part of None is 0."""
    components = promote_to_float(real, 0.0 if imag is None else imag)
    if components[0].dtype.itemsize < 4:
        components = [convert(component, np.float32) for component in components]
    return from_parts(*shape_manipulation.broadcast_arrays(*components))


def promote_to_inexact(*xs: ComplexArrayLike) -> list[Operand]:
    """Convert the operands to a common floating-point dtype, or a common complex one if an operand is complex."""
    if not any(map(is_complex, xs)):
        return promote_to_float(*cast("Sequence[ArrayLike]", xs))
    dtype = result_dtype(*xs)
    return [convert(x, dtype) for x in xs]


def _promoted_parts(*xs: ComplexArrayLike) -> list[tuple[Any, Any]]:
    """Return the parts of each operand, in the component dtype of their common complex dtype; None for the 0 of a real one."""
    dtype = component_dtype(result_dtype(*xs))
    return [(convert(a, dtype), None if b is None else convert(b, dtype)) for a, b in map(_parts, xs)]


def _negate_component(x: Any) -> Any:
    return None if x is None else ew.negative(x)


def _sum(x: Any, y: Any) -> Any:
    return y if x is None else x if y is None else ew.add(x, y)


def _add_or_subtract(x: ComplexArrayLike, y: ComplexArrayLike, sign: int = 1) -> Any:
    (a, b), (c, d) = _promoted_parts(x, y)
    return _complex_array(*(_sum(p, q if sign > 0 else _negate_component(q)) for p, q in ((a, c), (b, d))))


def _subtract(x: ComplexArrayLike, y: ComplexArrayLike) -> Any:
    return _add_or_subtract(x, y, -1)


def _multilinear(function: Callable[..., Any]) -> Callable[..., Any]:
    """Extend a function that is linear in each array: f(a + b·i, …) = f(a, …) + f(b, …)·i."""

    def extended(*operands: Any, **settings: Any) -> Any:
        k = next((k for k, x in enumerate(operands) if is_complex(x)), None)
        if k is None:
            return function(*operands, **settings)
        (a, b), (c, d) = (_parts(extended(*operands[:k], part, *operands[k + 1 :], **settings)) for part in _parts(operands[k]))
        return _complex_array(_sum(a, _negate_component(d)), _sum(b, c))

    return extended


_multiply_parts = _multilinear(ew.multiply)


def _multiply(x: ComplexArrayLike, y: ComplexArrayLike) -> Any:
    return _multiply_parts(*(a if b is None else from_parts(a, b) for a, b in _promoted_parts(x, y)))


def _conjugated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Extend a dot product, which conjugates its first operand."""
    product = _multilinear(function)

    def extended(x: Any, y: Any, **settings: Any) -> Any:
        return product(conj(x), y, **settings)

    return extended


def _divide(x: ComplexArrayLike, y: ComplexArrayLike) -> Any:
    """Divide by Smith's method (Communications of the ACM 5, 1962), which does not overflow in a square.

    A quotient by 0 is infinite, except 0 / 0, and one of a finite number by an infinite one is 0.
    """
    (a, b), (c, d) = _promoted_parts(x, y)
    if d is None:
        return _complex_array(ew.divide(a, c), None if b is None else ew.divide(b, c))
    b = zeros_like(a) if b is None else b
    real_is_larger = cmp.greater_equal(ew.abs(c), ew.abs(d))
    p, q = ew.where(real_is_larger, c, d), ew.where(real_is_larger, d, c)
    r = ew.where(cmp.isinf(q), ew.multiply(ew.sign(p), ew.sign(q)), ew.divide(q, p))
    scale = ew.add(p, ew.multiply(q, r))
    real_numerator = ew.where(real_is_larger, ew.add(a, ew.multiply(b, r)), ew.add(ew.multiply(a, r), b))
    imag_numerator = ew.where(real_is_larger, ew.subtract(b, ew.multiply(a, r)), ew.subtract(ew.multiply(b, r), a))
    is_zero = cmp.logical_and(cmp.equal(c, 0), cmp.equal(d, 0))
    numerators = ew.where(is_zero, a, real_numerator), ew.where(is_zero, b, imag_numerator)
    denominator = ew.where(is_zero, ew.abs(c), scale)
    return _complex_array(*(ew.divide(numerator, denominator) for numerator in numerators))


def _power(x: ComplexArrayLike, y: ComplexArrayLike) -> Any:
    """Return exp(y·log x), or products for a static integer y. A power of 0 is 0 if y has a positive real part; x⁰ is 1."""
    if isinstance(y, int | float) and float(y).is_integer():
        return _integer_power(x, int(y))
    base, exponent = promote_to_inexact(x, y)
    is_zero, is_one = (_equal(v, 0.0) for v in (base, exponent))
    result = exp(_multiply(exponent, log(ew.where(is_zero, 1.0, base))))
    real_exponent: Any = _parts(exponent)[0]
    of_zero = convert(ew.where(cmp.greater(real_exponent, 0), 0.0, math.nan), real_exponent.dtype)
    return ew.where(is_one, 1.0, ew.where(is_zero, _complex_array(of_zero, of_zero), result))


def _integer_power(x: ComplexArrayLike, n: int) -> Any:
    if n < 0:
        return _divide(1.0, _integer_power(x, -n))
    result: Any = None
    while n:
        result = (x if result is None else _multiply(result, x)) if n % 2 else result
        n //= 2
        x = _multiply(x, x) if n else x
    return _complex_array(ones_like(_parts(x)[0]), None) if result is None else result


def _equal(x: ComplexArrayLike, y: ComplexArrayLike) -> Any:
    (a, b), (c, d) = ((p, 0.0 if q is None else q) for p, q in map(_parts, (x, y)))
    return cmp.logical_and(cmp.equal(a, c), cmp.equal(b, d))


def _not_equal(x: ComplexArrayLike, y: ComplexArrayLike) -> Any:
    return cmp.logical_not(_equal(x, y))


def _ordering(compare: Callable[..., Any]) -> Callable[..., Any]:
    """Extend an ordering comparison to complex numbers: the real parts are compared first, then the imaginary parts."""
    compare_strictly = {cmp.less_equal: cmp.less, cmp.greater_equal: cmp.greater}.get(compare, compare)

    def extended(x: ComplexArrayLike, y: ComplexArrayLike) -> Any:
        (a, b), (c, d) = ((p, 0.0 if q is None else q) for p, q in map(_parts, (x, y)))
        is_undefined = cmp.logical_or(*(cmp.isnan(convert(v, np.float64) if is_python_scalar(v) else v) for v in (b, d)))
        strictly = cmp.logical_and(compare_strictly(a, c), cmp.logical_not(is_undefined))
        return cmp.logical_or(strictly, cmp.logical_and(cmp.equal(a, c), compare(b, d)))

    return extended


def _array_equal(x1: ComplexArrayLike, x2: ComplexArrayLike, /, *, equal_nan: bool = False) -> Any:
    x, y = promote_to_inexact(x1, x2)
    if x.shape != y.shape:
        return np.asarray(False)
    are_undefined = cmp.logical_and(*(_for_parts(cmp.isnan, cmp.logical_or)(v) for v in (x, y)))
    return reductions.all(cmp.logical_or(_equal(x, y), are_undefined) if equal_nan else _equal(x, y))


def _isclose(
    x1: ComplexArrayLike, x2: ComplexArrayLike, /, rtol: float = 1e-5, atol: float = 1e-8, *, equal_nan: bool = False
) -> Any:
    x, y = promote_to_inexact(x1, x2)
    isfinite, isnan = _for_parts(cmp.isfinite, cmp.logical_and), _for_parts(cmp.isnan, cmp.logical_or)
    is_within = cmp.less_equal(abs(_subtract(x, y)), ew.add(ew.multiply(abs(y), rtol), atol))
    result = cmp.logical_or(_equal(x, y), cmp.logical_and(is_within, isfinite(y)))
    return cmp.logical_or(result, cmp.logical_and(isnan(x), isnan(y))) if equal_nan else result


def _allclose(*args: Any, **settings: Any) -> Any:
    return reductions.all(_isclose(*args, **settings))


def _of_nonzero(function: Callable[..., Any]) -> Callable[..., Any]:
    """Extend a function of booleans to complex numbers, which are true if they are not 0."""

    def extended(*operands: Any, **settings: Any) -> Any:
        return function(*(_not_equal(x, 0.0) if is_complex(x) else x for x in operands), **settings)

    return extended


def _correlate(x: ComplexArrayLike, v: ComplexArrayLike, /, mode: str = "valid") -> Any:
    return _multilinear(cumulative.correlate)(x, conj(v), mode=mode)


def _array_equiv(x1: ComplexArrayLike, x2: ComplexArrayLike, /) -> Any:
    x, y = promote_to_inexact(x1, x2)
    return cmp.array_equiv(*(joining.stack(_parts(v), -1) for v in (x, y)))


def _for_parts(function: Callable[..., Any], combine: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that applies `function` to both parts, and combines the results."""

    def extended(x: Any, *args: Any, **settings: Any) -> Any:
        return combine(*(function(part, *args, **settings) for part in _parts(x)))

    return extended


def _square(x: Any) -> Any:
    return _multiply(x, x)


def _reciprocal(x: Any) -> Any:
    """Return 1/x by Smith's method with NumPy's signs of zeros; the reciprocal of 0 is NaN."""
    c, d = _parts(x)
    real_is_larger = cmp.less_equal(ew.abs(d), ew.abs(c))
    p, q = ew.where(real_is_larger, c, d), ew.where(real_is_larger, d, c)
    r = ew.divide(q, p)
    scale = ew.add(p, ew.multiply(q, r))
    one = ones_like(r)
    real_numerator, imag_numerator = ew.where(real_is_larger, one, r), ew.where(real_is_larger, r, one)
    return _complex_array(ew.divide(real_numerator, scale), ew.divide(ew.negative(imag_numerator), scale))


def _variance(x: Any, axis: Axes = None, dtype: AnyDType = None, **settings: Any) -> Any:
    if dtype is not None:
        refuse(UnsupportedError(f"var: dtype {as_dtype(dtype)} of a complex array; convert it with .astype"))
    return ew.add(*(reductions.var(part, axis, **settings) for part in _parts(x)))


def _deviation(*args: Any, **settings: Any) -> Any:
    return ew.sqrt(_variance(*args, **settings))


def _reduce(function: Callable[[Any, Any], Any], x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """Reduce over axes with at least one element: combine pairs of elements until one is left."""
    shape = [1 if a in axes else s for a, s in enumerate(x.shape) if keepdims or a not in axes]
    count = math.prod(x.shape[a] for a in axes)
    values = shape_manipulation.reshape(shape_manipulation.moveaxis(x, axes, range(len(axes))), (count, *shape))
    while count > 1:
        half = count // 2
        combined = function(getitem(values, slice(half)), getitem(values, slice(half, 2 * half)))
        values = joining.concat([combined, getitem(values, slice(2 * half, None))]) if count % 2 else combined
        count -= half
    return getitem(values, 0)


def _reduction(name: str, function: Callable[[Any, Any], Any], identity: complex | None = None) -> Callable[..., Any]:
    """Extend a reduction by an associative function, without an identity if it has none in the dtype of the elements."""

    def extended(
        x: Any,
        axis: Axes = None,
        *,
        keepdims: bool = False,
        initial: Any = None,
        where: ArrayLike | None = None,
    ) -> Any:
        axes = normalize_axes(name, x, axis)
        neutral: Any = initial if identity is None else identity
        is_empty = math.prod(x.shape[a] for a in axes) == 0
        if neutral is None and (is_empty or where is not None):
            refuse(ShapeError(f"{name}: no elements along axis {axis} of shape {x.shape}; pass initial"))
        if where is not None:
            x = ew.where(where, x, neutral)
        if is_empty:
            x = np.full([1 if a in axes else s for a, s in enumerate(x.shape)], neutral, x.dtype)
        result = _reduce(function, x, axes, keepdims)
        return result if initial is None else function(result, convert(initial, result.dtype))

    return extended


def _prod(x: Any, axis: Axes = None, dtype: AnyDType = None, **settings: Any) -> Any:
    x = x if dtype is None else astype(x, dtype)
    if not is_complex(x):
        return reductions.prod(x, axis, x.dtype, **settings)
    return _reduction("prod", _multiply, 1)(x, axis, **settings)


def _larger_or_smaller(compare: Callable[..., Any]) -> Callable[..., Any]:
    """Return `maximum` or `minimum` in the order of the real, then of the imaginary parts; NaN if an operand is."""
    is_ahead, isnan = _ordering(compare), _for_parts(cmp.isnan, cmp.logical_or)

    def extended(x: ComplexArrayLike, y: ComplexArrayLike) -> Any:
        x, y = promote_to_inexact(x, y)
        return ew.where(cmp.logical_or(is_ahead(x, y), isnan(x)), x, y)

    return extended


_maximum, _minimum = _larger_or_smaller(cmp.greater_equal), _larger_or_smaller(cmp.less_equal)


def _clip(x: Any, a_min: Any = None, a_max: Any = None, /, *, min: Any = None, max: Any = None) -> Any:
    low, high = a_min if min is None else min, a_max if max is None else max
    x = x if low is None else _maximum(x, low)
    return x if high is None else _minimum(x, high)


def _of_defined(function: Callable[..., Any], replacement: int) -> Callable[..., Any]:
    """Extend a function of arrays with NaN: NaN counts as `replacement`."""

    def extended(x: Any, *args: Any, **settings: Any) -> Any:
        return with_complex_rule(function)(
            ew.where(_for_parts(cmp.isnan, cmp.logical_or)(x), replacement, x), *args, **settings
        )

    return extended


def _float_power(x: ComplexArrayLike, y: ComplexArrayLike) -> Any:
    return _power(convert(x, np.complex128), convert(y, np.complex128))


def _cumprod(x: Any, axis: int | None = None, dtype: AnyDType = None) -> Any:
    x = x if dtype is None else astype(x, dtype)
    if not is_complex(x):
        return cumulative.cumprod(x, axis, x.dtype)
    x = shape_manipulation.ravel(x) if axis is None else x
    return cumulative.associative_scan(_multiply, x, normalize_axis("cumprod", x, axis or 0))


def _cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: AnyDType = None, include_initial: bool = False) -> Any:
    return cumulative.cumulative("cumulative_prod", _cumprod, x, axis, dtype, 1 if include_initial else None)


def _argsort(x: Any, axis: int | None = -1, kind: str | None = None, **settings: bool) -> Any:
    """Sort by the real, then by the imaginary parts."""
    x, axis = (shape_manipulation.ravel(x), -1) if axis is None else (x, axis)
    order: Any = None
    for key in reversed(_parts(x)):
        keys = key if order is None else take_along_axis(key, order, axis)
        permutation = sorting.argsort(keys, axis, kind, **settings)
        order = permutation if order is None else take_along_axis(order, permutation, axis)
    return order


def _sort(x: Any, axis: int | None = -1, kind: str | None = None, **settings: bool) -> Any:
    x, axis = (shape_manipulation.ravel(x), -1) if axis is None else (x, axis)
    return take_along_axis(x, _argsort(x, axis, kind, **settings), axis)


def _isin(x: ComplexArrayLike, values: ComplexArrayLike, /, *, invert: bool = False, kind: str | None = None) -> Any:
    """Compare each element with each of `values`."""
    x, values = promote_to_inexact(x, values)
    columns = shape_manipulation.reshape(x, (*x.shape, 1))
    is_member = reductions.any(_equal(columns, shape_manipulation.ravel(values)), axis=-1)
    return cmp.logical_not(is_member) if invert else is_member


def _insert(x: Any, obj: Any, values: Any, /, axis: int | None = None) -> Any:
    if not contains_complex(x):
        return joining.insert(x, obj, astype(values, operand(x).dtype), axis)
    return componentwise("x", "values")(joining.insert)(x, obj, convert(values, x.dtype), axis)


def _exp2(x: Any) -> Any:
    return exp(_multiply(x, math.log(2)))


def _logarithm(base: float) -> Callable[..., Any]:
    """Return the logarithm to a base."""

    def logarithm(x: Any) -> Any:
        return _divide(log(x), math.log(base))

    return logarithm


# The implementation of functions with a complex operand, by the function of real operands.
COMPLEX_RULES: Mapping[Callable[..., Any], Callable[..., Any]] = {
    ew.add: _add_or_subtract, ew.subtract: _subtract, ew.multiply: _multiply, ew.divide: _divide, ew.power: _power,
    ew.square: _square, ew.reciprocal: _reciprocal,
    cmp.equal: _equal, cmp.not_equal: _not_equal, cmp.isnan: _for_parts(cmp.isnan, cmp.logical_or),
    cmp.isinf: _for_parts(cmp.isinf, cmp.logical_or), cmp.isfinite: _for_parts(cmp.isfinite, cmp.logical_and),
    **{f: _ordering(f) for f in (cmp.less, cmp.less_equal, cmp.greater, cmp.greater_equal)},
    cmp.array_equal: _array_equal, cmp.array_equiv: _array_equiv,
    cmp.isclose: _isclose, cmp.allclose: _allclose,
    **{f: _of_nonzero(f) for f in (
        cmp.logical_and, cmp.logical_not, cmp.logical_or, cmp.logical_xor, reductions.any, reductions.all,
        reductions.count_nonzero, data_dependent_shapes.nonzero,
    )},
    **{f: _for_parts(f, from_parts) for f in (ew.rint, ew.round, floats.nan_to_num)},
    cumulative.convolve: _multilinear(cumulative.convolve), cumulative.correlate: _correlate,
    reductions.nansum: _of_defined(reductions.sum, 0), reductions.nanprod: _of_defined(reductions.prod, 1),
    cumulative.nancumsum: _of_defined(cumulative.cumsum, 0), cumulative.nancumprod: _of_defined(cumulative.cumprod, 1),
    cmp.maximum: _maximum, cmp.minimum: _minimum, reductions.max: _reduction("max", _maximum),
    reductions.min: _reduction("min", _minimum), ew.clip: _clip, ew.float_power: _float_power,
    joining.insert: _insert, cumulative.cumprod: _cumprod, cumulative.cumulative_prod: _cumulative_prod,
    sorting.argsort: _argsort, sorting.sort: _sort, sorting.isin: _isin,
    reductions.prod: _prod, reductions.var: _variance, reductions.std: _deviation,
    **{f: _multilinear(f) for f in (
        matrix_products.matmul, matrix_products.dot, matrix_products.inner, matrix_products.outer, matrix_products.tensordot,
        matrix_products.kron, matrix_products.cross, matrix_products.matvec, einsum,
    )},
    **{f: _conjugated(f) for f in (matrix_products.vdot, matrix_products.vecdot, matrix_products.vecmat)},
    **COMPLEX_FUNCTIONS,
    ew.exp2: _exp2, ew.log2: _logarithm(2), ew.log10: _logarithm(10),
}  # fmt: skip


def complex_rule(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the complex implementation of an operator. If there is none, calling the result raises DTypeError."""

    def raise_unsupported(*_: Any) -> Any:
        return refuse(DTypeError(f"{function.__name__} of complex arrays; apply it to .real and .imag"))

    return COMPLEX_RULES.get(function, raise_unsupported)


@functools.cache
def with_complex_rule(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that applies the complex implementation, if there is one, to complex operands."""
    rule = COMPLEX_RULES.get(function)
    if rule is None:
        return function

    @functools.wraps(function)
    def apply_rule(*operands: Any, **settings: Any) -> Any:
        are_complex = [contains_complex(x) for x in operands]
        if not any(are_complex):
            return function(*operands, **settings)
        converted = [
            complex_operand(x) if has_complex and isinstance(x, list | tuple) else x
            for x, has_complex in zip(operands, are_complex, strict=True)
        ]
        return rule(*converted, **settings)

    return apply_rule


def astype(x: ComplexArrayLike, dtype: AnyDType, /, *, copy: bool = True, device: str | None = None) -> Any:
    """Cast `x` to `dtype`: floats to integers truncate and saturate, integers to integers wrap.

    From complex to real dtypes the imaginary part is discarded, with NumPy's warning.
    """
    target = as_dtype(dtype)
    a, b = _parts(x)
    if target.kind == "c":
        component = component_dtype(target)
        a = ew.astype(a, component, copy=copy, device=device)
        return from_parts(a, zeros_like(a) if b is None else ew.astype(b, component, copy=copy))
    if b is not None:
        warnings.warn("Casting complex values to real discards the imaginary part", np.exceptions.ComplexWarning, stacklevel=2)
    return ew.astype(a, target, copy=copy, device=device)


def real(x: ComplexArrayLike, /) -> Any:
    """Return the real part."""
    return operand(_parts(x)[0])


def imag(x: ComplexArrayLike, /) -> Any:
    """Return the imaginary part; 0 for real arrays."""
    a, b = _parts(x)
    return zeros_like(a) if b is None else operand(b)


def iscomplex(x: ComplexArrayLike, /) -> Any:
    """Return whether each element has an imaginary part other than 0."""
    return cmp.not_equal(imag(x), 0)


def isreal(x: ComplexArrayLike, /) -> Any:
    """Return whether each element has an imaginary part of 0."""
    return cmp.equal(imag(x), 0)


def iscomplexobj(x: ComplexArrayLike, /) -> bool:
    """Return whether the dtype of `x` is complex."""
    return contains_complex(x)


def isrealobj(x: ComplexArrayLike, /) -> bool:
    """Return whether the dtype of `x` is real."""
    return not contains_complex(x)


def conj(x: ComplexArrayLike, /) -> Any:
    """Return the complex conjugate; real arrays unchanged."""
    a, b = _parts(x)
    if b is not None:
        return _complex_array(a, _negate_component(b))
    a = operand(a)
    return convert(a, np.int8) if a.dtype == np.bool_ else a


def abs(x: ComplexArrayLike, /) -> Any:
    """Return |x|, also of complex arrays."""
    a, b = _parts(x)
    return ew.abs(a) if b is None else floats.hypot(a, b)


def angle(x: ComplexArrayLike, /, deg: bool = False) -> Any:
    """Return the argument of a complex number in radians, in [-π, π], or degrees if `deg`; 0 or π for real arrays."""
    a, b = _parts(x)
    radians = floats.atan2(imag(a) if b is None else b, a)
    return ew.rad2deg(radians) if deg else radians


def exp(x: ComplexArrayLike, /) -> Any:
    """Return eˣ, for complex a + b·i e^a · (cos b + sin b · i); infinities and NaN follow C99, annex G."""
    a, b = _parts(x)
    if b is None:
        return ew.exp(a)
    a, b = promote_to_float(a, b)
    # Half of the exponent on each side of the cosine: the product may be finite where e^a overflows.
    root = ew.exp(ew.multiply(a, 0.5))
    real, imag = (ew.multiply(ew.multiply(root, wave(b)), root) for wave in (ew.cos, ew.sin))
    is_undirected = cmp.logical_not(cmp.isfinite(b))
    real = ew.where(cmp.logical_and(is_undirected, cmp.isinf(a)), root, real)
    imag = ew.where(cmp.logical_and(is_undirected, cmp.isneginf(a)), 0, imag)
    is_real = cmp.logical_and(cmp.equal(b, 0), cmp.logical_not(cmp.isfinite(root)))
    return _complex_array(real, ew.where(is_real, b, imag))


def log(x: ComplexArrayLike, /) -> Any:
    """Return ln x; for complex x, ln |x| as the real part and the argument as the imaginary part."""
    a, b = _parts(x)
    if b is None:
        return ew.log(a)
    a, b = promote_to_float(a, b)
    longer, ratio, _ = _longer_part(a, b)
    size = ew.add(ew.log(longer), ew.multiply(ew.log1p(ew.multiply(ratio, ratio)), 0.5))
    return _complex_array(ew.where(_is_infinite(a, b), math.inf, size), floats.atan2(b, a))


def sqrt(x: ComplexArrayLike, /) -> Any:
    """Return √x; for complex x, the root with half the argument, with a branch cut along the negative real axis.

    Both parts of a complex root have the precision of their dtype: the larger one is √((|a| + |x|) / 2), and the product of
    both is b / 2. Infinities and NaN follow C99, annex G.
    """
    a, b = _parts(x)
    if b is None:
        return ew.sqrt(a)
    a, b = promote_to_float(a, b)
    longer, ratio, divisor = _longer_part(a, b)
    length, is_right = ew.sqrt(ew.add(ew.multiply(ratio, ratio), 1)), cmp.greater_equal(a, 0)
    # Not `abs`, whose derivative at 0 is 0.
    projection = ew.divide(ew.where(is_right, a, ew.negative(a)), divisor)
    larger = ew.multiply(ew.sqrt(longer), ew.sqrt(ew.multiply(ew.add(projection, length), 0.5)))
    larger = ew.where(_is_infinite(a, b), math.inf, larger)
    smaller = ew.divide(b, ew.multiply(ew.where(cmp.equal(larger, 0), 1, larger), 2))
    smaller = ew.where(cmp.isinf(b), b, smaller)
    real = ew.where(is_right, larger, ew.abs(smaller))
    return _complex_array(real, ew.where(is_right, smaller, floats.copysign(larger, b)))


def _longer_part(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Return the larger one of |a| and |b|, the ratio of the other to it, and the divisor of the ratio, which is not 0."""
    a, b = ew.abs(a), ew.abs(b)
    longer = cmp.maximum(a, b)
    divisor = ew.where(cmp.equal(longer, 0), 1, longer)
    return longer, ew.divide(cmp.minimum(a, b), divisor), divisor


def _is_infinite(a: Any, b: Any) -> Any:
    return cmp.logical_or(cmp.isinf(a), cmp.isinf(b))
