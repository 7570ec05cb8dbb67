"""Samples of storage-only types: the value of every code, the nearest code of all kinds of values, and data movement."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import ml_dtypes
import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import element_type
from dlc.testing.sample import BOOL, F16, F32, F64, I8, I32, I64, U8, Sample


@dataclass(frozen=True)
class Float:
    """A format by its definition: `special` codes (of either sign, unless there is one zero) and all others by formula."""

    dtype: np.dtype
    width: int
    mantissa: int
    bias: int
    largest: int
    special: dict[int, float]
    one_zero: bool = False

    def magnitude(self, code: int) -> float:
        exponent, fraction = divmod(code, 1 << self.mantissa)
        if exponent == 0:
            return fraction * 2.0 ** (1 - self.bias - self.mantissa)
        return (1 + fraction / (1 << self.mantissa)) * 2.0 ** (exponent - self.bias)

    def decoded(self, code: int) -> float:
        sign = -1 if code >> (self.width - 1) & 1 else 1
        magnitude = code & ((1 << (self.width - 1)) - 1)
        if self.one_zero:
            return float("nan") if code == self.special_nan else sign * self.magnitude(magnitude)
        return sign * self.special.get(magnitude, self.magnitude(magnitude))

    @property
    def special_nan(self) -> int:
        return 1 << (self.width - 1)

    @cached_property
    def magnitudes(self) -> list[float]:
        """Every magnitude, and the first beyond."""
        return [self.magnitude(code) for code in range(self.largest + 2)]

    def nearest(self, x: float, saturate: bool) -> float:
        """Return the value of the format that `x` is converted to."""
        if np.isnan(x):
            return float("nan") if self.special or self.one_zero else -0.0
        # A value far out of range has no near value of the format.
        inside = min(abs(x), self.magnitudes[-1])
        above = bisect_left(self.magnitudes, inside)
        code = min((above, max(above - 1, 0)), key=lambda c: (abs(self.magnitudes[c] - inside), c % 2))
        if code <= self.largest:
            return float(np.copysign(self.magnitude(code), x))
        if saturate or not (self.special or self.one_zero):
            return float(np.copysign(self.magnitude(self.largest), x))
        return float(np.copysign(self.special.get(self.largest + 1, float("nan")), x))

    def telling(self) -> np.ndarray:
        """Return every magnitude, the midpoints of neighbors and values next to these, and values out of range."""
        every = np.array(self.magnitudes)
        middle = (every[1:] + every[:-1]) / 2
        beside = [np.nextafter(middle.astype(t), t(to)).astype(np.float64) for t in (np.float32, np.float64) for to in (0, 1e9)]
        numbers = np.concatenate([every, middle, *beside, [1e-30, 1e-45, 1e6, 3e38, np.inf, np.nan]])
        return np.concatenate([numbers, -numbers])


def _float(name: str, *fields: int, special: dict[int, float] | None = None, one_zero: bool = False) -> Float:
    return Float(np.dtype(getattr(ml_dtypes, name)), *fields, special or {}, one_zero)


INF, NAN = float("inf"), float("nan")
E4M3FN = _float("float8_e4m3fn", 8, 3, 7, 0x7E, special={0x7F: NAN})
E5M2 = _float("float8_e5m2", 8, 2, 15, 0x7B, special={0x7C: INF, 0x7D: NAN, 0x7E: NAN, 0x7F: NAN})
FLOATS = [
    E4M3FN,
    E5M2,
    _float("float8_e4m3fnuz", 8, 3, 8, 0x7F, one_zero=True),
    _float("float8_e5m2fnuz", 8, 2, 16, 0x7F, one_zero=True),
    _float("float4_e2m1fn", 4, 1, 1, 0x7),
]
POWERS = np.dtype(ml_dtypes.float8_e8m0fnu)
INTEGERS = [np.dtype(getattr(ml_dtypes, name)) for name in ("int4", "uint4", "int2", "uint2")]
CODES = np.arange(256, dtype=np.uint8).reshape(16, 16)


def lowest_bits(x: int, dtype: np.dtype) -> int:
    info = ml_dtypes.iinfo(dtype)
    return (int(x) - info.min) % (1 << info.bits) + info.min


def _cast(x: np.ndarray, to: np.dtype, each: Callable[[float], float], label: str = "", saturate: bool = False) -> Sample:
    def expected(x: np.ndarray) -> np.ndarray:
        return np.array([each(v) for v in x.astype(np.float64).flat]).reshape(x.shape)

    properties = {"to": element_type(to)} | ({"saturate": True} if saturate else {})
    return Sample(dl.CastOp, (x,), expected, properties, label="_".join(filter(None, ("to", to.name, label))))


def _decoding(form: Float, to: np.dtype) -> Sample:
    def expected(x: np.ndarray) -> np.ndarray:
        return np.array([form.decoded(int(code) % (1 << form.width)) for code in x.view(np.uint8).flat]).reshape(x.shape)

    return Sample(dl.CastOp, (CODES.view(form.dtype),), expected, {"to": element_type(to)}, label=f"to_{to.name}")


def _encoding(form: Float, source: np.dtype, saturate: bool) -> Sample:
    with np.errstate(all="ignore"):
        x = form.telling().astype(source) if source.kind == "f" else np.array([0, 1, 7, -9, 460, -70000, 1 << 30], source)
    return _cast(x, form.dtype, lambda v: form.nearest(v, saturate), "saturated" * saturate, saturate)


def _of_integers(dtype: np.dtype, to: np.dtype) -> Sample:
    x = CODES.view(dtype)
    return Sample(
        dl.CastOp,
        (x,),
        lambda x: np.array([lowest_bits(code, dtype) for code in x.view(np.uint8).flat]).reshape(x.shape),
        {"to": element_type(to)},
        label=f"to_{to.name}",
    )


def _to_integers(dtype: np.dtype, source: np.dtype) -> Sample:
    x = np.array([0, 1, -1, 2.7, -2.7, 7.5, -8.5, 9, 15, 16, 300, -300], np.float64).astype(source)
    return _cast(x, dtype, lambda v: lowest_bits(int(v), dtype))


def _moved(dtype: np.dtype) -> list[Sample]:
    x, y = CODES.view(dtype)[:3, 2:9], CODES.view(dtype)[1:4, 4:11]
    indices, mask = np.array([2, 0, -1, 1]), np.arange(21).reshape(3, 7) % 3 == 0
    one = np.array(1, dtype)
    return [
        Sample(dl.TransposeOp, (x,), lambda x: x.T, {"permutation": (1, 0)}),
        Sample(dl.SliceOp, (x,), lambda x: x[1:, 1:6:2], {"starts": (1, 1), "limits": (3, 6), "strides": (1, 2)}),
        Sample(dl.ReshapeOp, (x,), lambda x: x.reshape(7, 3), {"shape": (7, 3)}),
        Sample(dl.ConcatOp, (x, y), lambda x, y: np.concatenate([x, y], 1), {"axis": 1}),
        Sample(dl.GatherOp, (x, indices), lambda x, i: x[i], {"axis": 0}),
        Sample(dl.SelectOp, (mask, x, y), np.where),
        Sample(
            dl.PadOp, (x, one), lambda x, v: np.pad(x, ((0, 1), (2, 0)), constant_values=v), {"low": (0, 2), "high": (1, 0)}
        ),
    ]


def _quantized(form: Float) -> list[Sample]:
    x = np.linspace(-90, 90, 24, dtype=np.float32).reshape(4, 6)
    scale, zero = np.array([0.5, 0.125, 3, 1], np.float32), np.zeros(4, form.dtype)
    codes = CODES.view(form.dtype)[::4, 1:7]

    def quantized(x: np.ndarray, scale: np.ndarray, _: np.ndarray) -> np.ndarray:
        return np.array([[form.nearest(float(v / s), True) for v in row] for row, s in zip(x, scale, strict=True)])

    def dequantized(x: np.ndarray, scale: np.ndarray, _: np.ndarray) -> np.ndarray:
        return x.astype(np.float32) * scale[:, None]

    return [
        Sample(dl.QuantizeOp, (x, scale, zero), quantized, {"axis": 0}),
        Sample(dl.DequantizeOp, (codes, scale, zero), dequantized, {"axis": 0}),
    ]


def _quantized_integers(dtype: np.dtype) -> list[Sample]:
    x = np.linspace(-9, 9, 24, dtype=np.float32).reshape(4, 6)
    scale, zero, info = np.array(0.75, np.float32), np.array(1, dtype), ml_dtypes.iinfo(dtype)
    return [
        Sample(
            dl.QuantizeOp,
            (x, scale, zero),
            lambda x, s, z: np.clip(np.rint(x / s) + z.astype(int), info.min, info.max),
            {"axis": 0},
        ),
        Sample(
            dl.DequantizeOp,
            (CODES.view(dtype), scale, zero),
            lambda x, s, z: (x.astype(np.float32) - z.astype(np.float32)) * s,
            {"axis": 0},
        ),
    ]


def _power(x: float, saturate: bool) -> float:
    """Return the power of two from 2^-127 to 2^127 that is nearest to the magnitude of `x`; the larger one of a tie."""
    if not np.isfinite(x):
        return NAN
    nearest = min((2.0**e for e in range(-127, 129)), key=lambda power: (abs(power - abs(x)), -power))
    return nearest if nearest <= 2.0**127 else 2.0**127 if saturate else NAN


def _powers() -> list[Sample]:
    ends = [0, 2.0**-149, 2.0**-127, 1.4 * 2.0**-127, 1.6 * 2.0**-127, 1.4 * 2.0**127, 1.5 * 2.0**127, INF, NAN]
    x = np.array([*ends, 1, -1, 1.49, 1.5, -3, 0.74, 0.75, 1e30], np.float32)
    codes = CODES.view(POWERS)
    return [
        *(_cast(x, POWERS, lambda v, s=s: _power(v, s), "saturated" * s, s) for s in (False, True)),
        _cast(codes, F32, lambda v: v),
        _cast(codes, F16, lambda v: v),
        Sample(dl.GatherOp, (codes, np.array([2, 0, -1, 1])), lambda x, i: x[i], {"axis": 0}),
    ]


SAMPLES: list[Sample] = [
    *_powers(),
    *(_decoding(form, to) for form in FLOATS for to in (F32, F16)),
    *(_encoding(form, source, saturate) for form in FLOATS for source in (F32, F64) for saturate in (False, True)),
    *(
        _encoding(form, source, saturate)
        for form, source, saturate in zip(FLOATS, (I32, F16) * 2, (False, True) * 2, strict=False)
    ),
    _cast(np.array([True, False]), E5M2.dtype, lambda v: v),
    _cast(np.arange(0x7F, dtype=np.uint8).view(E4M3FN.dtype), E5M2.dtype, lambda v: E5M2.nearest(v, False)),
    _cast(np.arange(0x7C, dtype=np.uint8).view(E5M2.dtype), BOOL, lambda v: v != 0),
    *(_of_integers(dtype, to) for dtype in INTEGERS for to in (I8, F32)),
    *(_to_integers(dtype, source) for dtype in INTEGERS for source in (F32, I64)),
    *_moved(E4M3FN.dtype),
    *_moved(INTEGERS[0]),
    Sample(dl.BitcastOp, (CODES.view(E5M2.dtype),), lambda x: x.view(U8), {"to": element_type(U8)}, label="to_uint8"),
    *_quantized(E4M3FN),
    *_quantized_integers(INTEGERS[0]),
    *_quantized_integers(INTEGERS[3]),
]
