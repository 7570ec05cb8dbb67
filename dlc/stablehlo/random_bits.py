"""Random bits of `rng_bit_generator`: Threefry and Philox with XLA's counters and order, so that equal states give equal bits.

The algorithms are those of Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011): threefry2x32 with 20 rounds, and
philox4x32 with 10. The state is a 64-bit key, and a counter of 64 bits, or for Philox of up to 128; a call adds the number of
encrypted counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.dialects import dl
from dlc.dialects.dl.dtypes import element_type, is_integer, numpy_dtype
from dlc.numpy.apply import apply, convert
from dlc.stablehlo.node import Converter, StableHloNode, StableHloValue, element_of
from dlc.stablehlo.syntax import DYNAMIC

_PHILOX_ROUNDS = 10
# The factors of the rounds, and the increments of the key's words between them.
_PHILOX_FACTORS, _PHILOX_KEY_STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)


def rng_bit_generator(node: StableHloNode) -> Sequence[StableHloValue]:
    """Return the next state and the bits. The default algorithm is Philox, as in XLA on a CPU."""
    (state,), shape = node.arrays, node.op.types[1].shape
    element = element_of(node.op.types[1], node.where)
    if DYNAMIC in shape or not is_integer(element):
        raise node.unsupported("only integers of a static shape are supported")
    dtype = numpy_dtype(element)
    algorithm = node.keyword(("DEFAULT", "PHILOX", "THREE_FRY"), "rng_algorithm", "algorithm")
    generate = _threefry_bits if algorithm == "THREE_FRY" else _philox_bits
    next_state, bits = generate(state, shape, 64 if dtype.itemsize == 8 else 32)
    return [node.value(next_state), node.value(convert(bits, dtype))]


def _split(x: Any) -> tuple[Any, Any]:
    """Return the low and the high words of 64-bit integers."""
    return convert(x, np.uint32), convert(dnp.right_shift(x, np.uint64(32)), np.uint32)


def _join(low: Any, high: Any) -> Any:
    """Return 64-bit integers of low and high words."""
    return dnp.bitwise_or(convert(low, np.uint64), dnp.left_shift(convert(high, np.uint64), np.uint64(32)))


def _counters(first: Any, count: int) -> Any:
    return dnp.add(first, np.arange(count, dtype=np.uint64))


def _threefry_bits(state: Any, shape: Sequence[int], width: int) -> tuple[Any, Any]:
    """Return the next state and bits of Threefry: two words per counter.

    They are one number of 64 bits, or two of 32 bits, which alternate along one axis.
    """
    axis = _halved_axis(shape)
    half = [(n + 1) // 2 if a == axis else n for a, n in enumerate(shape)]
    count = prod(shape if width == 64 else half)
    # `dl.random_bits` encrypts the high word of a counter as the first one, XLA the low word.
    counters = _join(*_split(_counters(state[1], count))[::-1])
    key = dnp.broadcast_to(dnp.stack(_split(state[0])), (count, 2))
    second, first = _split(apply(dl.RandomBitsOp, key, counters, shape=(), to=element_type(np.dtype(np.uint64))))
    next_state = dnp.stack([state[0], dnp.add(state[1], np.uint64(count))])
    if width == 64:
        return next_state, dnp.reshape(_join(first, second), tuple(shape))
    if not shape:
        return next_state, dnp.reshape(first, ())
    pairs = dnp.stack([dnp.reshape(x, tuple(half)) for x in (first, second)], axis=axis + 1)
    whole = dnp.reshape(pairs, tuple(2 * n if a == axis else n for a, n in enumerate(half)))
    return next_state, dnp.take(whole, np.arange(shape[axis]), axis=axis)


def _halved_axis(shape: Sequence[int]) -> int:
    """Return the first axis of even size, or the first one of the largest size."""
    even = (a for a, n in enumerate(shape) if n % 2 == 0)
    return next(even, max(range(len(shape)), key=lambda a: shape[a], default=0))


def _philox_bits(state: Any, shape: Sequence[int], width: int) -> tuple[Any, Any]:
    """Return the next state and bits of Philox: four words per counter.

    They are parts of consecutive numbers. If the state has two elements, its key is also the high half of the counter.
    """
    has_high_counter = state.shape[0] == 3
    low, high = state[1], state[2 if has_high_counter else 0]
    count = -(-prod(shape) * width // 128)
    lows = _counters(low, count)
    words = _philox([*_split(lows), *_split(_high_counter(lows, low, high))], _split(state[0]))
    numbers = dnp.stack([_join(*words[:2]), _join(*words[2:])] if width == 64 else words, axis=1)
    bits = dnp.reshape(dnp.reshape(numbers, (-1,))[: prod(shape)], tuple(shape))
    next_low = dnp.add(low, np.uint64(count))
    next_high = [_high_counter(next_low, low, high)] if has_high_counter else []
    return dnp.stack([state[0], next_low, *next_high]), bits


def _high_counter(sums: Any, low: Any, high: Any) -> Any:
    """Return the high halves of counters for low halves that were added to `low`, which carry if they wrapped."""
    return dnp.add(high, convert(dnp.less(sums, low), np.uint64))


def _philox(counter: Sequence[Any], key: Sequence[Any]) -> Sequence[Any]:
    """Encrypt counters of four words, the lowest first."""
    a, b, c, d = counter
    for _ in range(_PHILOX_ROUNDS):
        (low_a, high_a), (low_c, high_c) = (
            _split(dnp.multiply(convert(x, np.uint64), np.uint64(factor)))
            for x, factor in zip((a, c), _PHILOX_FACTORS, strict=True)
        )
        a, b = dnp.bitwise_xor(dnp.bitwise_xor(high_c, b), key[0]), low_c
        c, d = dnp.bitwise_xor(dnp.bitwise_xor(high_a, d), key[1]), low_a
        key = [dnp.add(word, np.uint32(step)) for word, step in zip(key, _PHILOX_KEY_STEPS, strict=True)]
    return [a, b, c, d]


OPERATORS: dict[str, Converter] = {"stablehlo.rng_bit_generator": rng_bit_generator}
