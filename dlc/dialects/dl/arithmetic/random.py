"""Random numbers: the bits of a counter under a key, and the function that makes uniform numbers normal ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.pointwise import FloatFunction
from dlc.dialects.dl.base import Array, DimsAttr, Tensor, element_type_of, shape_of, sizes, tensor_type
from dlc.dialects.dl.dtypes import element_type, numpy_dtype
from dlc.dialects.dl.interfaces import Body, Gathering
from dlc.dialects.dl.movement.shaping import static_sizes
from dlc.dims import Size, row_major
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

Word = TypeVar("Word")
_UI32, _UI64 = element_type("uint32"), element_type("uint64")
# Threefry-2x32 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011): what each round
# rotates by, in turns of four rounds, after which the key is added.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_TURNS = 5
_PARITY = 0x1BD11BDA
# Into how many elements at a time NumPy's definition is cut, so that they stay in a cache.
_PIECE = 1 << 14


def threefry(
    key: tuple[Word, Word],
    counter: tuple[Word, Word],
    add: Callable[[Word, Word], Word],
    xor: Callable[[Word, Word], Word],
    rotate: Callable[[Word, int], Word],
    literal: Callable[[int], Word],
) -> tuple[Word, Word]:
    """The two words of a counter under a key, high words first, by 20 rounds, in an arithmetic of 32-bit words."""
    keys = (*key, xor(xor(*key), literal(_PARITY)))
    x, y = add(counter[0], keys[0]), add(counter[1], keys[1])
    for turn in range(_TURNS):
        for distance in _ROTATIONS[turn % 2]:
            x = add(x, y)
            y = xor(x, rotate(y, distance))
        x = add(x, keys[(turn + 1) % 3])
        y = add(y, add(keys[(turn + 2) % 3], literal(turn + 1)))
    return x, y


@irdl_op_definition
class RandomBitsOp(Gathering):
    """Random bits by counting: element `i` of a lane, row-major, is the 64-bit counter `first + i` under the lane's key.

    `result[b…, s…]` has the lanes of `key[b…, 2]`, whose last axis is the high and the low word, and of `first[b…]`, and
    `shape` for each of them. The counter is enciphered by threefry2x32, which gives two words: `ui64` is both, high word
    first; of fewer bits are the lowest ones of their exclusive or. The numbers are part of the format: they are the same on
    every target and in every version, whatever the number of threads, and those of JAX for the same key.
    (C1) `key` is of ui32 with a last axis of size 2; (C2) `first` is of ui64 and has the other axes of `key`; (C3) `to` is
    ui8, ui16, ui32 or ui64; (C4) the sizes of `shape` behind the first one are known.
    """

    name = "dl.random_bits"
    key = operand_def(TensorType)
    first = operand_def(TensorType)
    shape = prop_def(DenseArrayBase | DimsAttr)
    to = prop_def(Attribute)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        key, first = shape_of(self.key), shape_of(self.first)
        if element_type_of(self.key) != _UI32 or not key or _differ(key[-1:], (2,)):
            got = f"{element_type_of(self.key)} of shape {key}"
            raise ShapeError(f"dl.random_bits: a key of {got}, expected ui32 with a last axis of size 2 (C1)")
        if element_type_of(self.first) != _UI64 or _differ(first, key[:-1]):
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
        for lane, (words, start) in enumerate(zip(key.reshape(-1, 2), first.reshape(-1), strict=True)):
            for at in range(0, size, _PIECE):
                piece = result[lane, at : at + _PIECE]
                piece[:] = _drawn(words, start + np.arange(at, at + piece.size, dtype=np.uint64), dtype)
        return result.reshape((*first.shape, *shape))

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        lanes = list(indices[: len(shape_of(self.first))])
        strides = row_major((1, *static_sizes(self, sizes(self.shape)[1:])))
        counter = scalar.extract(body, sources[1], lanes)
        for index, stride in reversed(list(zip(indices[len(lanes) :], strides, strict=False))):
            place = body(arith.IndexCastOp(index, i64))
            step = place if stride == 1 else scalar.multiply(body, place, scalar.constant(body, int(stride), i64))
            counter = scalar.add(body, counter, step)

        def high(x: SSAValue) -> SSAValue:
            return body(arith.TruncIOp(body(arith.ShRUIOp(x, scalar.constant(body, 32, i64))), i32))

        def rotate(x: SSAValue, distance: int) -> SSAValue:
            left = body(arith.ShLIOp(x, scalar.constant(body, distance, i32)))
            return scalar.either(body, left, body(arith.ShRUIOp(x, scalar.constant(body, 32 - distance, i32))))

        words = [scalar.extract(body, sources[0], [*lanes, scalar.position(body, k)]) for k in range(2)]
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
            return scalar.either(body, body(arith.ShLIOp(next(wide), scalar.constant(body, 32, i64))), next(wide))
        return scalar.convert(body, body(arith.XOrIOp(x, y)), _UI32, self.to)


def _differ(given: Sequence[Size], others: Sequence[Size]) -> bool:
    """Whether two shapes cannot be the same."""
    known = [pair for pair in zip(given, others, strict=False) if all(isinstance(size, int) for size in pair)]
    return len(given) != len(others) or any(a != b for a, b in known)


def _drawn(key: Array, counter: Array, dtype: np.dtype) -> Array:
    """The bits of these counters under a key."""

    def rotate(x: Array, distance: int) -> Array:
        return (x << np.uint32(distance)) | (x >> np.uint32(32 - distance))

    words = key[:1], key[1:]
    counters = (counter >> np.uint64(32)).astype(np.uint32), counter.astype(np.uint32)
    # On arrays of one axis at least: NumPy warns of scalars that wrap around.
    x, y = threefry(words, counters, np.add, np.bitwise_xor, rotate, lambda value: np.array([value], np.uint32))
    if dtype == np.uint64:
        return x.astype(np.uint64) << np.uint64(32) | y
    return (x ^ y).astype(dtype)


# The ranges of w = -log(1 - x²), each with what w is below, the middle of the range, of w or of its root, and the
# polynomial of the distance from there: Giles, "Approximating the erfinv function" (GPU Computing Gems, 2011).
_Range = tuple[float, float, tuple[float, ...]]
_SINGLE: tuple[_Range, ...] = (
    (5.0, 2.5, (
        2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
        0.246640727, 1.50140941,
    )),
    (np.inf, 3.0, (
        -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
        1.00167406, 2.83297682,
    )),
)  # fmt: skip
_DOUBLE: tuple[_Range, ...] = (
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
    """The number whose `erf` is `x`; ±inf at ±1, NaN outside [-1, 1]."""

    name = "dl.erfinv"

    def numpy(self, x: Array) -> Array:
        w = -np.log((1 - np.abs(x)) * (1 + np.abs(x)))
        result = np.empty_like(x)
        below = -np.inf
        for limit, middle, coefficients in _DOUBLE if x.dtype.itemsize >= 8 else _SINGLE:
            part = (w >= below) & (w < limit)
            offset = (w[part] if below == -np.inf else np.sqrt(w[part])) - x.dtype.type(middle)
            result[part] = np.polyval(np.array(coefficients, x.dtype), offset) * x[part]
            below = limit
        result = np.where(np.abs(x) < 1, result, x * np.inf)
        return np.where(np.abs(x) <= 1, result, np.nan)

    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        narrow, wide = x.type, scalar.wide_float(x.type)
        x = scalar.convert(body, x, narrow, wide)
        # 1 - x² by its factors, of which the small one is exact where it matters.
        size, one = body(math.AbsFOp(x)), scalar.like(body, 1.0, x)
        factors = scalar.multiply(body, scalar.subtract(body, one, size), scalar.add(body, one, size))
        w = body(arith.NegfOp(body(math.LogOp(factors))))
        root = body(math.SqrtOp(w))
        factor: SSAValue | None = None
        for k, (limit, middle, coefficients) in reversed(list(enumerate(_DOUBLE if wide == f64 else _SINGLE))):
            offset = scalar.subtract(body, root if k else w, scalar.like(body, middle, x))
            value = scalar.like(body, coefficients[0], x)
            for coefficient in coefficients[1:]:
                value = scalar.add(body, scalar.multiply(body, value, offset), scalar.like(body, coefficient, x))
            factor = (
                value if factor is None else scalar.select(body, scalar.compare_with(body, "lt", w, limit, wide), value, factor)
            )
        assert factor is not None
        at_one = scalar.compare_with(body, "eq", size, 1.0, wide)
        factor = scalar.select(body, at_one, scalar.like(body, float("inf"), x), factor)
        return scalar.convert(body, scalar.multiply(body, factor, x), wide, narrow)
