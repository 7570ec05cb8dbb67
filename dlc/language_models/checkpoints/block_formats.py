"""Block formats of GGUF: how each stores its weights, as integers with a scale and a minimum per group.

The formats are those of ggml (ggml-common.h, ggml-quants.c). A row of a tensor is a sequence of blocks. Every weight is
`scale · integer + minimum`, with one scale, and for some formats a minimum, per group of 16 or 32 weights:

    integers    formats                 scales and minima
    int4        Q4_0                    f16
                Q3_K                    products of an integer and an f16
    uint4       Q4_1                    f16
                Q4_K                    products of an integer and an f16
    int8        Q8_0, Q5_0              f16
                Q6_K                    products of an integer and an f16
    uint8       Q5_1                    f16
                Q5_K, Q2_K              products of an integer and an f16
                IQ4_NL                  f16; integers are indices of a table
                IQ4_XS                  products of an integer and an f16; integers are indices of a table
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from dlc.language_models.quantized_matrix import QuantizedMatrix
from dlc.plugins.tables import ExtensionTable

Array: TypeAlias = "NDArray[Any]"

_INT4, _UINT4 = np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)
_K_ELEMENTS = 256
# The values of the 4-bit codes of IQ4_NL and IQ4_XS.
_IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)


@dataclass(frozen=True)
class GgufType:
    """An element type or block format.

    Attributes:
        elements, bytes: The number of weights of a block, and its size.
        dtype: The element type, if blocks are single elements.
        decode: Returns the quantized matrix of blocks [rows, blocks, bytes].
    """

    name: str
    elements: int
    bytes: int
    dtype: np.dtype[Any] | None = None
    decode: Callable[[Array], QuantizedMatrix] | None = None


def _field(blocks: Array, start: int, count: int, dtype: Any) -> Array:
    """Return `count` values of a dtype from byte `start` of each block."""
    dtype = np.dtype(dtype).newbyteorder("<")
    return np.ascontiguousarray(blocks[..., start : start + count * dtype.itemsize]).view(dtype)


def _floats(blocks: Array, start: int) -> Array:
    """Return the f16 at byte `start` of each block, [rows, blocks]."""
    return _field(blocks, start, 1, np.float16)[..., 0]


def _nibbles(packed: Array) -> Array:
    """Return the 4-bit fields of bytes […, n]: the n low ones, then the n high ones, in […, 2n]."""
    return np.concatenate([packed & 15, packed >> 4], -1)


def _matrix(
    integers: Array,
    scale: Array | QuantizedMatrix,
    minimum: Array | QuantizedMatrix | None = None,
    table: NDArray[np.int8] | None = None,
) -> QuantizedMatrix:
    """Return the matrix of weights `scale · integer + minimum`; integers [rows, …], floats [rows, groups]."""
    return QuantizedMatrix(integers.reshape(integers.shape[0], -1), scale, minimum=minimum, table=table)


def _decode_q8_0(blocks: Array) -> QuantizedMatrix:
    return _matrix(_field(blocks, 2, 32, np.int8), _floats(blocks, 0))


def _decode_q4_0(blocks: Array) -> QuantizedMatrix:
    return _matrix((_nibbles(blocks[..., 2:]).astype(np.int8) - 8).astype(_INT4), _floats(blocks, 0))


def _decode_q4_1(blocks: Array) -> QuantizedMatrix:
    return _matrix(_nibbles(blocks[..., 4:]).astype(_UINT4), _floats(blocks, 0), _floats(blocks, 2))


def _five_bits(blocks: Array, start: int) -> Array:
    """Return the 5-bit integers of blocks: 32 high bits at byte `start`, then the low bits."""
    high_bits = np.unpackbits(blocks[..., start : start + 4], axis=-1, bitorder="little")
    return _nibbles(blocks[..., start + 4 :]) | (high_bits << 4)


def _decode_q5_0(blocks: Array) -> QuantizedMatrix:
    return _matrix(_five_bits(blocks, 2).view(np.int8) - np.int8(16), _floats(blocks, 0))


def _decode_q5_1(blocks: Array) -> QuantizedMatrix:
    return _matrix(_five_bits(blocks, 4), _floats(blocks, 0), _floats(blocks, 2))


def _two_bits(packed: Array) -> Array:
    """Return the 2-bit fields of bytes […, n·32] in the order of K formats: of each 32 bytes first the lowest fields."""
    split = packed.reshape(*packed.shape[:-1], -1, 1, 32)
    return ((split >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & 3).reshape(*packed.shape[:-1], -1)


def _decode_q2_k(blocks: Array) -> QuantizedMatrix:
    scales = blocks[..., :16]
    scale = _matrix((scales & 15).view(np.int8), _floats(blocks, 80))
    return _matrix(_two_bits(blocks[..., 16:80]), scale, _matrix(scales >> 4, -_floats(blocks, 82)))


def _decode_q3_k(blocks: Array) -> QuantizedMatrix:
    high_bytes, low_scales = blocks[..., None, :32], blocks[..., 96:108]
    high_bits = ((high_bytes >> np.arange(8, dtype=np.uint8)[:, None]) & 1).reshape(*blocks.shape[:-1], -1)
    integers = (_two_bits(blocks[..., 32:96]) | (high_bits << 2)).view(np.int8) - np.int8(4)
    high_scales = (low_scales[..., None, 8:] >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & 3
    scales = _nibbles(low_scales[..., :8]) | (high_scales.reshape(*blocks.shape[:-1], -1) << 4)
    return _matrix(integers.astype(_INT4), _matrix(scales.view(np.int8) - np.int8(32), _floats(blocks, 108)))


def _six_bit_scales(blocks: Array) -> tuple[QuantizedMatrix, QuantizedMatrix]:
    """Return the scales and minima of Q4_K and Q5_K, 8 of 6 bits of each block."""
    low, high, last = blocks[..., 4:8], blocks[..., 8:12], blocks[..., 12:16]
    scales = np.concatenate([low & 63, (last & 15) | ((low >> 6) << 4)], -1)
    minima = np.concatenate([high & 63, (last >> 4) | ((high >> 6) << 4)], -1)
    return _matrix(scales.view(np.int8), _floats(blocks, 0)), _matrix(minima, -_floats(blocks, 2))


def _decode_q4_k(blocks: Array) -> QuantizedMatrix:
    packed = blocks[..., 16:].reshape(*blocks.shape[:-1], 4, 32)
    return _matrix(_nibbles(packed).astype(_UINT4), *_six_bit_scales(blocks))


def _decode_q5_k(blocks: Array) -> QuantizedMatrix:
    high_bits = (blocks[..., None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    low_bits = _nibbles(blocks[..., 48:].reshape(*blocks.shape[:-1], 4, 32)).reshape(high_bits.shape)
    return _matrix(low_bits | (high_bits << 4), *_six_bit_scales(blocks))


def _decode_q6_k(blocks: Array) -> QuantizedMatrix:
    lead = blocks.shape[:-1]
    # Two halves of 128 weights: 64 bytes of low bits and 32 bytes of high bits.
    low, high = blocks[..., :128].reshape(*lead, 2, 64), _two_bits(blocks[..., 128:192]).reshape(*lead, 2, 128)
    integers = (_nibbles(low) | (high << 4)).view(np.int8) - np.int8(32)
    return _matrix(integers, _matrix(_field(blocks, 192, 16, np.int8), _floats(blocks, 208)))


def _decode_iq4_nl(blocks: Array) -> QuantizedMatrix:
    return _matrix(_nibbles(blocks[..., 2:]), _floats(blocks, 0), table=_IQ4_VALUES)


def _decode_iq4_xs(blocks: Array) -> QuantizedMatrix:
    high = (_field(blocks, 2, 1, np.uint16) >> np.arange(0, 16, 2, dtype=np.uint16)) & 3
    low = (blocks[..., 4:8, None] >> np.array([0, 4], np.uint8)).reshape(*blocks.shape[:-1], 8) & 15
    scales = (low | (high << 4)).astype(np.int8) - np.int8(32)
    packed = blocks[..., 8:].reshape(*blocks.shape[:-1], 8, 16)
    return _matrix(_nibbles(packed), _matrix(scales, _floats(blocks, 0)), table=_IQ4_VALUES)


def _blocks(name: str, elements: int, bytes: int, decode: Callable[[Array], QuantizedMatrix]) -> GgufType:
    return GgufType(name, elements, bytes, decode=decode)


def _elements(name: str, dtype: Any) -> GgufType:
    return GgufType(name, 1, np.dtype(dtype).itemsize, np.dtype(dtype))


# Tensor types by their number in GGUF.
_BUILTIN_TYPES = {
    0: _elements("F32", np.float32),
    1: _elements("F16", np.float16),
    2: _blocks("Q4_0", 32, 18, _decode_q4_0),
    3: _blocks("Q4_1", 32, 20, _decode_q4_1),
    6: _blocks("Q5_0", 32, 22, _decode_q5_0),
    7: _blocks("Q5_1", 32, 24, _decode_q5_1),
    8: _blocks("Q8_0", 32, 34, _decode_q8_0),
    10: _blocks("Q2_K", _K_ELEMENTS, 84, _decode_q2_k),
    11: _blocks("Q3_K", _K_ELEMENTS, 110, _decode_q3_k),
    12: _blocks("Q4_K", _K_ELEMENTS, 144, _decode_q4_k),
    13: _blocks("Q5_K", _K_ELEMENTS, 176, _decode_q5_k),
    14: _blocks("Q6_K", _K_ELEMENTS, 210, _decode_q6_k),
    20: _blocks("IQ4_NL", 32, 18, _decode_iq4_nl),
    23: _blocks("IQ4_XS", _K_ELEMENTS, 136, _decode_iq4_xs),
    30: _elements("BF16", ml_dtypes.bfloat16),
}
GGUF_TYPES: ExtensionTable[int, GgufType] = ExtensionTable("gguf_types", _BUILTIN_TYPES)
