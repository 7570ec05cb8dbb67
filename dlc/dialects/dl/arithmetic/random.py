"""Random bits from a keyed counter (threefry), and erfinv, which maps uniform to normal samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from dlc.dialects.dims_attribute import DimsAttr
from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.pointwise import FloatFunction
from dlc.dialects.dl.base import Array, Tensor, compatible, element_type_of, shape_of, sizes, tensor_type
from dlc.dialects.dl.dtypes import element_type, numpy_dtype
from dlc.dialects.dl.interfaces import Body, GatherLike
from dlc.dialects.dl.movement.shaping import static_sizes
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    Attribute,
    DenseArrayBase,
    SSAValue,
    TensorType,
    arith,
    f64,
    i32,
    i64,
    irdl_op_definition,
    math,
    operand_def,
    prop_def,
    result_def,
)
from dlc.shapes.dims import row_major

Word = TypeVar("Word")
_UI32, _UI64 = element_type("uint32"), element_type("uint64")
# Threefry-2x32 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011): the rotation distances
# of each round, in groups of four rounds, after which the key is added.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_NUM_ROUND_GROUPS = 5
_KEY_PARITY = 0x1BD11BDA
# Block size of the NumPy reference, in elements; intermediate arrays of a block stay in the cache.
_CHUNK_ELEMENTS = 1 << 14


def threefry(
    key: tuple[Word, Word],
    counter: tuple[Word, Word],
    add: Callable[[Word, Word], Word],
    xor: Callable[[Word, Word], Word],
    rotate: Callable[[Word, int], Word],
    literal: Callable[[int], Word],
) -> tuple[Word, Word]:
    """Encrypt a counter with a key in 20 rounds; both are two 32-bit words, high word first. `add`, … define the arithmetic."""
    keys = (*key, xor(xor(*key), literal(_KEY_PARITY)))
    x, y = add(counter[0], keys[0]), add(counter[1], keys[1])
    for group in range(_NUM_ROUND_GROUPS):
        for distance in _ROTATIONS[group % 2]:
            x = add(x, y)
            y = xor(x, rotate(y, distance))
        x = add(x, keys[(group + 1) % 3])
        y = add(y, add(keys[(group + 2) % 3], literal(group + 1)))
    return x, y


@irdl_op_definition
class RandomBitsOp(GatherLike):
    """Counter-based random bits: element `i` of a batch entry, row-major, is the counter `first + i` encrypted with its key.

    `result[b…, s…]` has the batch axes of `key[b…, 2]`, whose last axis holds the high and the low word, and of `first[b…]`;
    the axes of `shape` follow. The counter is encrypted by threefry2x32, which gives two 32-bit words: `ui64` is
    both, high word first; narrower types are the lowest bits of their exclusive or. The bits are specified: they are the same
    on every target, in every version and with any number of threads, and equal those of JAX for the same key.

    (C1) `key` is ui32 with a last axis of size 2; (C2) `first` is ui64 and has the other axes of `key`; (C3) `to` is ui8,
    ui16, ui32 or ui64; (C4) the sizes of `shape` after the first one are static.
    """

    name = "dl.random_bits"
    key = operand_def(TensorType)
    first = operand_def(TensorType)
    shape = prop_def(DenseArrayBase | DimsAttr)
    to = prop_def(Attribute)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        key, first = shape_of(self.key), shape_of(self.first)
        if element_type_of(self.key) != _UI32 or not key or not compatible(key[-1:], (2,)):
            got = f"{element_type_of(self.key)} of shape {key}"
            raise ShapeError(f"dl.random_bits: key is {got}; expected ui32 with a last axis of size 2 (C1)")
        if element_type_of(self.first) != _UI64 or not compatible(first, key[:-1]):
            got = f"{element_type_of(self.first)} of shape {first}"
            raise ShapeError(f"dl.random_bits: first is {got}, expected ui64 of shape {key[:-1]} (C2)")
        if self.to not in map(element_type, ("uint8", "uint16", "uint32", "uint64")):
            raise DTypeError(f"dl.random_bits: element type {self.to}, expected ui8, ui16, ui32 or ui64 (C3)")
        return [tensor_type((*key[:-1], *sizes(self.shape)), self.to)]

    def reference(self, *operands: Array) -> Array:
        key, first = operands
        shape, dtype = static_sizes(self, sizes(self.shape)), numpy_dtype(self.to)
        size = int(np.prod(shape, dtype=np.int64))
        result = np.empty((first.size, size), dtype)
        for entry, (words, start) in enumerate(zip(key.reshape(-1, 2), first.reshape(-1), strict=True)):
            for chunk_start in range(0, size, _CHUNK_ELEMENTS):
                chunk = result[entry, chunk_start : chunk_start + _CHUNK_ELEMENTS]
                chunk[:] = _random_bits(words, start + np.arange(chunk_start, chunk_start + chunk.size, dtype=np.uint64), dtype)
        return result.reshape((*first.shape, *shape))

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        batch_indices = list(indices[: len(shape_of(self.first))])
        strides = row_major((1, *static_sizes(self, sizes(self.shape)[1:])))
        counter = scalar.extract(body, sources[1], batch_indices)
        for index, stride in reversed(list(zip(indices[len(batch_indices) :], strides, strict=False))):
            position = body(arith.IndexCastOp(index, i64))
            step = position if stride == 1 else scalar.multiply(body, position, scalar.constant(body, int(stride), i64))
            counter = scalar.add(body, counter, step)

        def high(x: SSAValue) -> SSAValue:
            return body(arith.TruncIOp(body(arith.ShRUIOp(x, scalar.constant(body, 32, i64))), i32))

        def rotate(x: SSAValue, distance: int) -> SSAValue:
            high_bits = body(arith.ShLIOp(x, scalar.constant(body, distance, i32)))
            return scalar.bit_or(body, high_bits, body(arith.ShRUIOp(x, scalar.constant(body, 32 - distance, i32))))

        words = [scalar.extract(body, sources[0], [*batch_indices, scalar.as_index(body, k)]) for k in range(2)]
        x, y = threefry(
            (words[0], words[1]),
            (high(counter), body(arith.TruncIOp(counter, i32))),
            lambda a, b: scalar.add(body, a, b),
            lambda a, b: body(arith.XOrIOp(a, b)),
            rotate,
            lambda value: scalar.constant(body, value, i32),
        )
        if self.to == _UI64:
            wide = (scalar.convert(body, word, _UI32, _UI64) for word in (x, y))
            return scalar.bit_or(body, body(arith.ShLIOp(next(wide), scalar.constant(body, 32, i64))), next(wide))
        return scalar.convert(body, body(arith.XOrIOp(x, y)), _UI32, self.to)


def _random_bits(key: Array, counter: Array, dtype: np.dtype) -> Array:
    """Return the random bits: counters encrypted with a key."""

    def rotate(x: Array, distance: int) -> Array:
        return (x << np.uint32(distance)) | (x >> np.uint32(32 - distance))

    words = key[:1], key[1:]
    counters = (counter >> np.uint64(32)).astype(np.uint32), counter.astype(np.uint32)
    # Arrays, not scalars: NumPy warns when scalars wrap around.
    x, y = threefry(words, counters, np.add, np.bitwise_xor, rotate, lambda value: np.array([value], np.uint32))
    if dtype == np.uint64:
        return x.astype(np.uint64) << np.uint64(32) | y
    return (x ^ y).astype(dtype)


# Polynomial approximations of erfinv(x) / x on ranges of w = -log(1 - x²): the upper bound of w, the center c, and the
# coefficients of a polynomial in w - c (first range) or √w - c: Giles, "Approximating the erfinv function" (GPU Computing Gems,
# 2011).
_Approximation = tuple[float, float, tuple[float, ...]]
_F32_APPROXIMATIONS: tuple[_Approximation, ...] = (
    (5.0, 2.5, (
        2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
        0.246640727, 1.50140941,
    )),
    (np.inf, 3.0, (
        -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
        1.00167406, 2.83297682,
    )),
)  # fmt: skip
_F64_APPROXIMATIONS: tuple[_Approximation, ...] = (
    (6.25, 3.125, (
        -3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18, 1.115787767802518096e-17,
        -1.333171662854620906e-16, 2.0972767875968561637e-17, 6.6376381343583238325e-15, -4.0545662729752068639e-14,
        -8.1519341976054721522e-14, 2.6335093153082322977e-12, -1.2975133253453532498e-11, -5.4154120542946279317e-11,
        1.051212273321532285e-09, -4.1126339803469836976e-09, -2.9070369957882005086e-08, 4.2347877827932403518e-07,
        -1.3654692000834678645e-06, -1.3882523362786468719e-05, 0.0001867342080340571352, -0.00074070253416626697512,
        -0.0060336708714301490533, 0.24015818242558961693, 1.6536545626831027356,
    )),
    (16.0, 3.25, (
        2.2137376921775787049e-09, 9.0756561938885390979e-08, -2.7517406297064545428e-07, 1.8239629214389227755e-08,
        1.5027403968909827627e-06, -4.013867526981545969e-06, 2.9234449089955446044e-06, 1.2475304481671778723e-05,
        -4.7318229009055733981e-05, 6.8284851459573175448e-05, 2.4031110387097893999e-05, -0.0003550375203628474796,
        0.00095328937973738049703, -0.0016882755560235047313, 0.0024914420961078508066, -0.0037512085075692412107,
        0.005370914553590063617, 1.0052589676941592334, 3.0838856104922207635,
    )),
    (np.inf, 5.0, (
        -2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09, -3.7894654401267369937e-09,
        7.6157012080783393804e-09, -1.4960026627149240478e-08, 2.9147953450901080826e-08, -6.7711997758452339498e-08,
        2.2900482228026654717e-07, -9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05,
        7.5995277030017761139e-05, -0.00021503011930044477347, -0.00013871931833623122026, 1.0103004648645343977,
        4.8499064014085844221,
    )),
)  # fmt: skip


@irdl_op_definition
class ErfinvOp(FloatFunction):
    """The inverse of `dl.erf`: ±inf at ±1, NaN outside [-1, 1]."""

    name = "dl.erfinv"

    def numpy(self, x: Array) -> Array:
        w = -np.log((1 - np.abs(x)) * (1 + np.abs(x)))
        result = np.empty_like(x)
        lower_bound = -np.inf
        for upper_bound, center, coefficients in _F64_APPROXIMATIONS if x.dtype.itemsize >= 8 else _F32_APPROXIMATIONS:
            in_range = (w >= lower_bound) & (w < upper_bound)
            offset = (w[in_range] if lower_bound == -np.inf else np.sqrt(w[in_range])) - x.dtype.type(center)
            result[in_range] = np.polyval(np.array(coefficients, x.dtype), offset) * x[in_range]
            lower_bound = upper_bound
        result = np.where(np.abs(x) < 1, result, x * np.inf)
        return np.where(np.abs(x) <= 1, result, np.nan)

    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        narrow, wide = x.type, scalar.wide_float(x.type)
        x = scalar.convert(body, x, narrow, wide)
        # 1 - x² as (1 - |x|)·(1 + |x|): the small factor is exact near |x| = 1, where cancellation would cost digits.
        magnitude, one = body(math.AbsFOp(x)), scalar.like(body, 1.0, x)
        factors = scalar.multiply(body, scalar.subtract(body, one, magnitude), scalar.add(body, one, magnitude))
        w = body(arith.NegfOp(body(math.LogOp(factors))))
        root = body(math.SqrtOp(w))
        factor: SSAValue | None = None
        approximations = _F64_APPROXIMATIONS if wide == f64 else _F32_APPROXIMATIONS
        for k, (upper_bound, center, coefficients) in reversed(list(enumerate(approximations))):
            offset = scalar.subtract(body, root if k else w, scalar.like(body, center, x))
            value = scalar.like(body, coefficients[0], x)
            for coefficient in coefficients[1:]:
                value = scalar.add(body, scalar.multiply(body, value, offset), scalar.like(body, coefficient, x))
            factor = (
                value
                if factor is None
                else scalar.select(body, scalar.compare_with(body, "lt", w, upper_bound, wide), value, factor)
            )
        assert factor is not None
        is_one = scalar.compare_with(body, "eq", magnitude, 1.0, wide)
        factor = scalar.select(body, is_one, scalar.like(body, float("inf"), x), factor)
        return scalar.convert(body, scalar.multiply(body, factor, x), wide, narrow)
