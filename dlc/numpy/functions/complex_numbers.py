"""Complex numbers: the results and operands of Fourier transforms, and their arithmetic.

`dlc.numpy.fft`, `1j * x` and complex arguments create complex arrays, which are pairs of real arrays. They support the
operators + - * / @ **, == and !=. They also support the functions here, elementary functions such as `sin`, and functions that
act on the two parts separately (componentwise.py). For everything else use `.real` and `.imag`.
Derivatives treat the two parts as two real arrays: the gradient of a real function points in the direction of steepest ascent.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from dlc.errors import DTypeError, UnsupportedError
from dlc.frontend.complex_numbers import Complex, component_dtype, from_parts, is_complex, real_and_imaginary
from dlc.frontend.trace import is_python_scalar
from dlc.numpy.apply import (
    AnyDType,
    ArrayLike,
    Axes,
    Operand,
    as_dtype,
    convert,
    normalize_axes,
    operand,
    promote_to_float,
    refuse,
)
from dlc.numpy.functions import comparison as cmp
from dlc.numpy.functions import (
    cumulative,
    data_dependent_shapes,
    floats,
    joining,
    matrix_products,
    reductions,
    shape_manipulation,
)
from dlc.numpy.functions import elementwise as ew
from dlc.numpy.functions.complex_functions import COMPLEX_FUNCTIONS
from dlc.numpy.functions.creation import empty_like, ones_like, zeros_like
from dlc.numpy.functions.einstein_summation import einsum
from dlc.numpy.functions.indexing import getitem

__all__ = ["abs", "angle", "astype", "conj", "exp", "imag", "log", "real", "sqrt"]

# A real or complex scalar or array.
ComplexArrayLike: TypeAlias = "ArrayLike | Complex | complex"


def _parts(x: Any) -> tuple[Any, Any]:
    """Return the real and the imaginary part; None as the imaginary part of a real value."""
    return real_and_imaginary(x) if is_complex(x) else (x, None)


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
    pairs = [_parts(np.asarray(x) if isinstance(x, complex) else x) for x in xs]
    operands = promote_to_float(*(part for pair in pairs for part in pair if part is not None))
    dtype = np.promote_types(operands[0].dtype, np.float32)

    def convert_parts(a: Any, b: Any) -> Operand:
        a = convert(a, dtype)
        return from_parts(a, zeros_like(a) if b is None else convert(b, dtype))

    return [convert_parts(*pair) for pair in pairs]


def _negate_component(x: Any) -> Any:
    # Negating a Python scalar keeps it weakly typed.
    return None if x is None else -x if is_python_scalar(x) else ew.negative(x)


def _sum(x: Any, y: Any) -> Any:
    return y if x is None else x if y is None else ew.add(x, y)


def _add_or_subtract(x: ComplexArrayLike, y: ComplexArrayLike, sign: int = 1) -> Any:
    (a, b), (c, d) = _parts(x), _parts(y)
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


_multiply = _multilinear(ew.multiply)


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
    (a, b), (c, d) = _parts(x), _parts(y)
    if d is None:
        return _complex_array(ew.divide(a, c), None if b is None else ew.divide(b, c))
    a, b, c, d = promote_to_float(a, 0.0 if b is None else b, c, d)
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


def _like(function: Callable[..., Any]) -> Callable[..., Any]:
    """Extend a function that fills an array of the shape and dtype of `x` with a real number."""

    def extended(x: Any, dtype: AnyDType = None, **settings: Any) -> Any:
        target, real_part = x.dtype if dtype is None else as_dtype(dtype), _parts(x)[0]
        if target.kind != "c":
            return function(real_part, target, **settings)
        result = function(real_part, component_dtype(target), **settings)
        return from_parts(result, zeros_like(result))

    return extended


def _correlate(x: ComplexArrayLike, v: ComplexArrayLike, /, mode: str = "valid") -> Any:
    return _multilinear(cumulative.correlate)(x, conj(v), mode=mode)


def _array_equiv(x1: ComplexArrayLike, x2: ComplexArrayLike, /) -> Any:
    return reductions.all(_equal(x1, x2))


def _for_parts(function: Callable[..., Any], combine: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that applies `function` to both parts, and combines the results."""

    def extended(x: Any, *args: Any, **settings: Any) -> Any:
        return combine(*(function(part, *args, **settings) for part in _parts(x)))

    return extended


def _square(x: Any) -> Any:
    return _multiply(x, x)


def _reciprocal(x: Any) -> Any:
    return _divide(1.0, x)


def _variance(x: Any, axis: Axes = None, dtype: AnyDType = None, **settings: Any) -> Any:
    if dtype is not None:
        refuse(UnsupportedError(f"var: dtype {as_dtype(dtype)} of a complex array; convert it with .astype"))
    return ew.add(*(reductions.var(part, axis, **settings) for part in _parts(x)))


def _deviation(*args: Any, **settings: Any) -> Any:
    return ew.sqrt(_variance(*args, **settings))


def _prod(
    x: Any,
    axis: Axes = None,
    dtype: AnyDType = None,
    *,
    keepdims: bool = False,
    initial: ComplexArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Any:
    """Return the product of complex elements, of pairs of them until one is left."""
    x = x if where is None else ew.where(where, x, 1.0)
    x = x if dtype is None else astype(x, dtype)
    axes = normalize_axes("prod", x, axis)
    shape = [1 if a in axes else s for a, s in enumerate(x.shape) if keepdims or a not in axes]
    count = math.prod(x.shape[a] for a in axes)
    factors = shape_manipulation.reshape(shape_manipulation.moveaxis(x, axes, range(len(axes))), (count, *shape))
    if count == 0:
        ones = np.ones((1, *shape), _parts(x)[0].dtype)
        factors, count = _complex_array(ones, zeros_like(ones)), 1
    while count > 1:
        half = count // 2
        products = _multiply(getitem(factors, slice(half)), getitem(factors, slice(half, 2 * half)))
        factors = joining.concat([products, getitem(factors, slice(2 * half, None))]) if count % 2 else products
        count -= half
    result = getitem(factors, 0)
    return result if initial is None else _multiply(result, initial)


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
    cmp.array_equal: _array_equal, cmp.array_equiv: _array_equiv,
    **{f: _like(f) for f in (zeros_like, ones_like, empty_like)},
    cmp.isclose: _isclose, cmp.allclose: _allclose,
    **{f: _of_nonzero(f) for f in (
        cmp.logical_and, cmp.logical_not, cmp.logical_or, cmp.logical_xor, reductions.any, reductions.all,
        reductions.count_nonzero, data_dependent_shapes.nonzero,
    )},
    **{f: _for_parts(f, from_parts) for f in (ew.rint, ew.round, floats.nan_to_num)},
    cumulative.convolve: _multilinear(cumulative.convolve), cumulative.correlate: _correlate,
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
        return (rule if any(map(is_complex, operands)) else function)(*operands, **settings)

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
