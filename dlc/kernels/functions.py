"""Functions of values inside kernels: elementwise mathematics, selection, vectors of constants, and indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from dlc.dialects.compress import CompressOp
from dlc.dialects.dl import scalar
from dlc.dialects.dl.dtypes import is_bool, is_float
from dlc.dialects.dl.interfaces import storage_type
from dlc.errors import DTypeError, ShapeError
from dlc.ir import Attribute, DenseArrayBase, Operation, UnitAttr, arith, f32, f64, i64, math, vector
from dlc.ir import index as index_type
from dlc.kernels.index_ranges import INT64_RANGE, Interval
from dlc.kernels.kernel_trace import KernelTrace, current_kernel_trace
from dlc.kernels.shapes import require_shape
from dlc.kernels.values import (
    Value,
    ValueLike,
    common,
    constant,
    counted,
    element_type_of_dtype,
    matched,
    require_uniform,
    stacked,
)
from dlc.passes import kernel_values
from dlc.passes.kernel_values import KernelValue
from dlc.passes.types import vector_type
from dlc.shapes.traced_dims import TracedSize


def maximum(x: ValueLike, y: ValueLike) -> Value:
    """Return the larger of two values, elementwise; NaN if one is NaN."""
    return _extremum("maximum", x, y, kernel_values.maximum, Interval.maximum)


def minimum(x: ValueLike, y: ValueLike) -> Value:
    """Return the smaller of two values, elementwise; NaN if one is NaN."""
    return _extremum("minimum", x, y, kernel_values.minimum, Interval.minimum)


def _extremum(
    name: str,
    x: ValueLike,
    y: ValueLike,
    compute: Callable[[KernelValue, KernelValue], KernelValue],
    combine: Callable[[Interval, Interval], Interval],
) -> Value:
    trace = current_kernel_trace(name)
    a, b = common(trace, name, x, y)
    require_uniform(f"k.{name}", a, b)
    a.require_arithmetic(f"k.{name}")
    result = compute(a.kernel_value, b.kernel_value)
    return a.index_of(result, combine(a.range, b.range)) if a.is_index else a.derived(result)


def select(condition: Value, x: ValueLike, y: ValueLike) -> Value:
    """Return `x` where the condition holds, else `y`."""
    trace = current_kernel_trace("select")
    require_value(trace, "select", condition)
    if not condition.is_bool:
        raise trace.error(
            f"k.select: a condition of dtype {condition.dtype_name}; expected a boolean, such as x > 0", DTypeError
        )
    a, b = common(trace, "select", x, y)
    require_uniform("k.select", a, b)
    if condition.shape:
        if a.is_index:
            raise trace.error(f"k.select of indices by {condition!r}; convert them with .astype(np.int64)", DTypeError)
        condition, a, b = matched(condition, a, b)
    result = condition.kernel_value.builder.op(
        arith.SelectOp(condition.kernel_value.ssa, a.kernel_value.ssa, b.kernel_value.ssa), signed=a.kernel_value.signed
    )
    return a.index_of(result, a.range | b.range) if a.is_index else a.derived(result)


def fma(x: ValueLike, y: ValueLike, z: ValueLike) -> Value:
    """Return `x · y + z` of floats, rounded once if the target has the instruction."""
    trace = current_kernel_trace("fma")
    a, b, c = common(trace, "fma", x, y, z)
    _require_float(trace, "fma", a)
    return a.derived(kernel_values.fma(a.kernel_value, b.kernel_value, c.kernel_value))


def dot(a: Value, b: Value, total: Value | None = None) -> Value:
    """Return the product of tiles [m, p] and [p, n] of floats, added to a tile `total` [m, n], as p outer products."""
    trace = current_kernel_trace("dot")
    for operand in (a, b, *(() if total is None else (total,))):
        require_value(trace, "dot", operand)
        _require_float(trace, "dot", operand)
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
        raise trace.error(f"k.dot of values of shapes {a.shape} and {b.shape}; expected tiles [m, p] and [p, n]", ShapeError)
    shape = (a.shape[0], b.shape[1])
    if total is None:
        total = full(shape, 0, a.dtype)
    if total.shape != shape or not a.element == b.element == total.element:
        tiles = f"{a!r}, {b!r} and {total!r}"
        raise trace.error(f"k.dot of {tiles}; expected one dtype, and a total of shape {shape}", DTypeError)
    # Columns of a tile are loaded from memory as broadcast elements.
    memory = trace.builder.scratch(*a.shape, element=storage_type(cast(Attribute, a.element)))
    memory.set_vector(a.kernel_value)
    for p in range(a.shape[1]):
        total = fma(a.derived(memory.block((0, p), (shape[0], 1), (0, 1))), b[p], total)
    return total


def shuffle(x: Value, lanes: Sequence[int]) -> Value:
    """Return the vector whose elements are those of `x` in these lanes."""
    current_kernel_trace("shuffle")
    ssa = x.require_usable().kernel_value.ssa
    result_type = vector_type((len(lanes),), storage_type(cast(Attribute, x.element)))
    properties = {"mask": DenseArrayBase.from_list(i64, list(lanes))}
    return x.derived(
        x.kernel_value.builder.op(
            vector.ShuffleOp.create(operands=[ssa, ssa], properties=properties, result_types=[result_type]),
            signed=x.kernel_value.signed,
        )
    )


def compress(mask: Value, x: Value) -> tuple[Value, Value]:
    """Return the elements of a vector whose lanes are true in `mask`, first and in order, and their number as an index.

    The other lanes have unspecified values.
    """
    trace = current_kernel_trace("compress")
    op = CompressOp.create(
        operands=[mask.require_usable().kernel_value.ssa, x.require_usable().kernel_value.ssa],
        result_types=[x.kernel_value.type, index_type],
    )
    result = x.derived(trace.builder.op(op, signed=x.kernel_value.signed))
    return result, x.index_of(KernelValue(trace.builder, op.count), Interval(0, x.shape[0]))


def _math(name: str, op: type[Operation], doc: str, *attributes: str) -> Callable[[Value], Value]:
    """Return an elementwise function of floats of 32 or 64 bits; the op has these attributes."""

    def function(x: Value) -> Value:
        trace = current_kernel_trace(name)
        require_value(trace, name, x)
        _require_float(trace, name, x)
        result = kernel_values.math_op(op, x.kernel_value)
        cast(Operation, result.ssa.owner).attributes |= dict.fromkeys(attributes, UnitAttr())
        return x.derived(result)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


sqrt = _math("sqrt", math.SqrtOp, "Return √x.")
rsqrt = _math("rsqrt", math.RsqrtOp, "Return 1/√x.")
exp = _math("exp", math.ExpOp, "Return eˣ; 0 where it is subnormal.", scalar.FLUSH_SUBNORMALS)
exp2 = _math("exp2", math.Exp2Op, "Return 2ˣ; 0 where it is subnormal.", scalar.FLUSH_SUBNORMALS)
expm1 = _math("expm1", math.ExpM1Op, "Return eˣ - 1, accurate near 0.")
log = _math("log", math.LogOp, "Return the natural logarithm.")
log2 = _math("log2", math.Log2Op, "Return the logarithm to base 2.")
log1p = _math("log1p", math.Log1pOp, "Return log(1 + x), accurate near 0.")
sin = _math("sin", math.SinOp, "Return the sine.")
cos = _math("cos", math.CosOp, "Return the cosine.")
tanh = _math("tanh", math.TanhOp, "Return the hyperbolic tangent.")
erf = _math("erf", math.ErfOp, "Return the error function.")
floor = _math("floor", math.FloorOp, "Return the largest integer that is not above x.")
ceil = _math("ceil", math.CeilOp, "Return the smallest integer that is not below x.")
trunc = _math("trunc", math.TruncOp, "Return x rounded toward zero.")
round = _math("round", math.RoundEvenOp, "Return x rounded to the nearest integer, halves to even.")


def copysign(x: ValueLike, y: ValueLike) -> Value:
    """Return the magnitude of x with the sign of y, of floats."""
    trace = current_kernel_trace("copysign")
    a, b = common(trace, "copysign", x, y)
    _require_float(trace, "copysign", a)
    return a.derived(kernel_values.math_op(math.CopySignOp, a.kernel_value, b.kernel_value))


def power(x: ValueLike, y: ValueLike) -> Value:
    """Return x to the power of y, of floats."""
    trace = current_kernel_trace("power")
    a, b = common(trace, "power", x, y)
    _require_float(trace, "power", a)
    return a.derived(kernel_values.math_op(math.PowFOp, a.kernel_value, b.kernel_value))


def absolute(x: Value) -> Value:
    """Return |x|; the smallest integer is its own absolute value."""
    trace = current_kernel_trace("absolute")
    require_value(trace, "absolute", x)
    return abs(x)


def full(width: int | Sequence[int], value: ValueLike, dtype: Any) -> Value:
    """Return a vector of `width` equal elements, or a tile if `width` has several sizes."""
    trace = current_kernel_trace("full")
    element, shape = element_type_of_dtype(trace, dtype), require_shape(trace, "full", width)
    if isinstance(value, Value):
        scalar_value = value.require_usable().astype(dtype)
        return scalar_value.derived(scalar_value.kernel_value.splat(shape))
    return constant(trace, value, element, shape)


def iota(width: int | Sequence[int], dtype: Any, axis: int = -1) -> Value:
    """Return the vector 0, 1, … width - 1, or the tile of these numbers along `axis` if `width` has several sizes."""
    trace = current_kernel_trace("iota")
    element, shape = element_type_of_dtype(trace, dtype), require_shape(trace, "iota", width)
    if is_bool(element):
        raise trace.error("k.iota of booleans; expected integers or floats", DTypeError)
    if not -len(shape) <= axis < len(shape):
        raise trace.error(f"k.iota: axis {axis} of a tile of shape {shape}", ShapeError)
    rank_after = len(shape) - 1 - axis % len(shape)
    result = counted(trace, shape[axis % len(shape)], rank_after).astype(dtype)
    return result if result.shape == shape else result.derived(result.kernel_value.splat(shape))


def stack(values: Sequence[Value]) -> Value:
    """Return scalars as a vector, or vectors of one shape as the rows of a tile."""
    trace = current_kernel_trace("stack")
    if not values:
        raise trace.error("k.stack of no values; expected one or more", ShapeError)
    first, *others = values
    require_value(trace, "stack", first)
    for other in others:
        require_value(trace, "stack", other)
        if (other.dtype_name, other.shape) != (first.dtype_name, first.shape):
            raise trace.error(f"k.stack of {first!r} and {other!r}; expected one dtype and shape", DTypeError)
    if first.is_index:
        raise trace.error("k.stack of indices; convert them with .astype(np.int64)", DTypeError)
    require_shape(trace, "stack", (len(values), *first.shape))
    return stacked(values)


def index(value: ValueLike) -> Value:
    """Return an integer as an index, of any value: limit it by `k.clip` or `k.when` before it is used."""
    trace = current_kernel_trace("index")
    if not isinstance(value, Value):
        return constant(trace, value, None)
    value.require_usable()
    if value.element is None:
        return value
    if value.shape or is_float(value.element) or value.is_bool:
        raise trace.error(f"k.index of {value!r}; expected one integer; convert with .astype(np.int64)", DTypeError)
    # An unsigned integer of 64 bits may be a negative index.
    limits = Interval(*map(int, scalar.limits(value.element))) if scalar.bits(value.element) < 64 else INT64_RANGE
    wide = value.kernel_value.widened(i64)
    return value.index_of(trace.builder.op(arith.IndexCastOp(wide.ssa, index_type)), limits)


def clip(value: ValueLike, size: TracedSize) -> Value:
    """Return an integer or index limited to 0 … size - 1, as an index."""
    trace = current_kernel_trace("clip")
    if trace.never_runs:
        return index(0)
    if size < 1:
        raise trace.error(f"k.clip: an axis of size {size} has no index", ShapeError)
    return minimum(maximum(index(value), 0), size - 1)


def assume_index(value: ValueLike, size: TracedSize) -> Value:
    """Return an integer or index as an index that is assumed to be in 0 … size - 1; for others, behaviour is undefined.

    `target="reference"` reports accesses that are out of bounds.
    """
    current_kernel_trace("assume_index")
    given = index(value)
    require_uniform("k.assume_index", given)
    return given.index_of(given.kernel_value, Interval(0, size - 1))


def require_value(trace: KernelTrace, function: str, x: object, repair: str = "use the function of NumPy") -> None:
    """Raise DTypeError unless `x` is a value of the kernel, of a scope that is open."""
    if not isinstance(x, Value):
        raise trace.error(f"k.{function}: {x!r:.60} is known while tracing; {repair}", DTypeError)
    x.require_usable()


def _require_float(trace: KernelTrace, function: str, x: Value) -> None:
    if x.element not in (f32, f64):
        hint = "expected float32 or float64; convert with .astype"
        raise trace.error(f"k.{function}: a value of dtype {x.dtype_name}; {hint}", DTypeError)
