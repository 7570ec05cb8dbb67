"""Samples of composite ops, against their definitions in f64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.testing.sample import BF16, F16, F32, F64, I8, I16, I32, U8, Sample, exactly, values

_TOLERANCE = {F32: 2e-6, F64: 1e-13, F16: 1e-3, BF16: 8e-3}
_erf = np.vectorize(math.erf, otypes=[float])


def sample(op: type[DlOp], operands: tuple[np.ndarray, ...], formula: Callable[..., Any], label: str = "", **properties: Any):
    return Sample(op, operands, exactly(formula), properties, _TOLERANCE.get(operands[0].dtype, 0.0), label)


def _activations() -> list[Sample]:
    def sigmoid(x: np.ndarray) -> np.ndarray:
        return np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))

    rows: list[tuple[type[DlOp], Callable[..., Any], dict[str, Any], str]] = [
        (dl.GeluOp, lambda x: x * (1 + _erf(x / 2**0.5)) / 2, {"approximate": "none"}, "none"),
        (
            dl.GeluOp,
            lambda x: x / 2 * (1 + np.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x**3))),
            {"approximate": "tanh"},
            "tanh",
        ),
        (dl.SiluOp, lambda x: x * sigmoid(x), {}, ""),
        (dl.HardsigmoidOp, lambda x: np.clip(0.2 * x + 0.5, 0, 1), {"alpha": 0.2, "beta": 0.5}, ""),
        (dl.HardswishOp, lambda x: x * np.clip(x / 6 + 0.5, 0, 1), {}, ""),
        (dl.LeakyReluOp, lambda x: np.where(x < 0, 0.1 * x, x), {"alpha": 0.1}, ""),
        (dl.EluOp, lambda x: np.where(x < 0, 1.5 * np.expm1(x), x), {"alpha": 1.5}, ""),
        (dl.SeluOp, lambda x: 1.05 * np.where(x < 0, 1.67 * np.expm1(x), x), {"alpha": 1.67, "gamma": 1.05}, ""),
        (dl.SeluOp, lambda x: 1e30 * np.where(x < 0, 1e30 * np.expm1(x), x), {"alpha": 1e30, "gamma": 1e30}, "huge"),
        (dl.CeluOp, lambda x: np.where(x < 0, 2 * np.expm1(x / 2), x), {"alpha": 2.0}, ""),
        (dl.SoftplusOp, lambda x: np.where(x > 30, x, np.log1p(np.exp(np.minimum(x, 30)))), {}, ""),
        (dl.SoftsignOp, lambda x: x / (1 + abs(x)), {}, ""),
        (dl.MishOp, lambda x: x * np.tanh(np.where(x > 30, x, np.log1p(np.exp(np.minimum(x, 30))))), {}, ""),
        (dl.ThresholdedReluOp, lambda x: np.where(x > 0.5, x, 0), {"alpha": 0.5}, ""),
    ]
    return (
        [
            sample(op, (values(d, 3, 17, scale=4.0),), formula, label, **properties)
            for op, formula, properties, label in rows
            for d in (F32, F64, F16, BF16)
        ]
        + [
            sample(op, (np.array([-np.inf, np.inf, np.nan, 100, -100], np.float32),), formula, "special", **properties)
            for op, formula, properties, _ in rows
            if op in (dl.SoftplusOp, dl.HardsigmoidOp, dl.LeakyReluOp, dl.EluOp, dl.ThresholdedReluOp)
        ]
        # e^-x is infinite there.
        + [Sample(dl.SiluOp, (np.float32([-90, -89.5]),), exactly(lambda x: x * sigmoid(x)), {}, 1e-5, "far")]
        # The largest values times at most 1.
        + [sample(dl.HardswishOp, (np.float32([3e38, -3e38]),), lambda x: x * (x > 0), "large")]
        + [
            sample(dl.PreluOp, (values(d, 2, 3, 4), values(d, 3, 1, seed=1)), lambda x, s: np.where(x < 0, x * s, x))
            for d in (F32, BF16, I32)
        ]
    )


def _reductions() -> list[Sample]:
    rows: list[tuple[type[DlOp], Callable[..., Any], tuple[np.dtype, ...]]] = [
        (dl.ReduceMeanOp, np.mean, (F32, F64, F16, BF16)),
        (dl.ReduceL1Op, lambda x, **k: np.sum(abs(x), **k), (F32, F16, I32)),
        (dl.ReduceSumSquareOp, lambda x, **k: np.sum(x * x, **k), (F32, F16, I32)),
        (dl.ReduceL2Op, lambda x, **k: np.sqrt(np.sum(x * x, **k)), (F32, BF16)),
        (dl.ReduceLogSumOp, lambda x, **k: np.log(np.sum(x, **k)), (F32,)),
        (dl.ReduceLogSumExpOp, lambda x, **k: np.log(np.sum(np.exp(x), **k)), (F32, F64, F16)),
    ]
    samples = [
        sample(
            op,
            (abs(values(d, 3, 5, 4)) + 1 if op is dl.ReduceLogSumOp else values(d, 3, 5, 4),),
            lambda x, f=formula, a=axes, k=keep: f(x, axis=a, keepdims=k),
            "kept" if keep else "",
            axes=axes,
            keepdims=keep,
        )
        for op, formula, dtypes in rows
        for d in dtypes
        for axes, keep in (((1,), False), ((0, -1), True))
    ]
    # More elements than the type can represent, and a sum that overflows it.
    many = values(U8, 30, 40)
    samples.append(sample(dl.ReduceMeanOp, (many,), lambda x: int(np.sum(x)) // x.size, "many", axes=(0, 1)))
    least = np.array([[-(2**63), 0], [-5, 2]], np.int64)
    samples.append(sample(dl.ReduceMeanOp, (least,), lambda x: np.array([-(2**62), -1]), "least", axes=(1,)))
    samples.append(sample(dl.ReduceMeanOp, (many[:0],), lambda x: np.zeros(40), "empty", axes=(0,)))
    large = np.array([[1000.0, 1000.0], [-np.inf, -np.inf], [np.inf, 0.0]], np.float32)
    samples.append(
        sample(dl.ReduceLogSumExpOp, (large,), lambda x: np.array([1000 + math.log(2), -np.inf, np.inf]), "overflow", axes=(1,))
    )
    return samples


def _normalisations() -> list[Sample]:
    def softmax(x: np.ndarray, axis: int) -> np.ndarray:
        e = np.exp(x - x.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)

    def layer_norm(x: np.ndarray, scale: np.ndarray, bias: Any = 0.0, axes: tuple[int, ...] = (-1,)) -> np.ndarray:
        return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-3) * scale + bias

    def batch_norm(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        scale, bias, mean, variance = (v[:, None] for v in (scale, bias, mean, variance))
        return (x - mean) / np.sqrt(variance + 1e-3) * scale + bias

    def lrn(x: np.ndarray, size: int) -> np.ndarray:
        low, channels = (size - 1) // 2, x.shape[-1]
        total = np.stack([(x[..., max(c - low, 0) : c - low + size] ** 2).sum(-1) for c in range(channels)], -1)
        return x / (1.5 + 0.1 / size * total) ** 0.75

    samples: list[Sample] = []
    for d in (F32, F64, F16, BF16):
        x, scale, bias = values(d, 3, 4, 10), values(d, 10, seed=1), values(d, 10, seed=2)
        samples += [
            sample(dl.SoftmaxOp, (x,), lambda x: softmax(x, -1), axis=-1),
            sample(dl.SoftmaxOp, (x,), lambda x: softmax(x, 1), "inner", axis=1),
            sample(dl.LogSoftmaxOp, (x,), lambda x: np.log(softmax(x, 2)), axis=2),
            sample(dl.LayerNormOp, (x, scale, bias), layer_norm, axis=-1, epsilon=1e-3),
            sample(dl.LayerNormOp, (x, scale), layer_norm, "no_bias", axis=2, epsilon=1e-3),
            sample(
                dl.LayerNormOp,
                (x, values(d, 4, 10), bias),
                lambda *v: layer_norm(*v, axes=(1, 2)),
                "two_axes",
                axis=1,
                epsilon=1e-3,
            ),
            sample(
                dl.RmsNormOp,
                (x, scale),
                lambda x, s: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) * s,
                axis=-1,
                epsilon=1e-3,
            ),
        ]
    lrn_properties: dict[str, Any] = {"axis": -1, "alpha": 0.1, "beta": 0.75, "bias": 1.5}
    extreme = np.array([[1000.0, 999.0], [-np.inf, 0]], np.float32)
    statistics = (values(F32, 4, seed=1), values(F32, 4, seed=2), values(F32, 4, seed=3), abs(values(F32, 4, seed=4)) + 1)
    samples += [
        sample(dl.LrnOp, (values(F32, 2, 0),), lambda x: x.astype(float), "empty", size=3, **lrn_properties),
        sample(dl.SoftmaxOp, (extreme,), lambda x: softmax(x, 1), "overflow", axis=1),
        sample(dl.BatchNormOp, (values(F32, 2, 4, 5), *statistics), batch_norm, axis=1, epsilon=1e-3),
        sample(
            dl.BatchNormOp,
            (values(F32, 3, 5, 4), *statistics),
            lambda x, *s: batch_norm(x.swapaxes(1, 2), *s).swapaxes(1, 2),
            "last",
            axis=-1,
            epsilon=1e-3,
        ),
        *(
            sample(dl.LrnOp, (values(F32, 2, 3, 7),), lambda x, n=n: lrn(x, n), str(n), size=n, **lrn_properties)
            for n in (3, 4)
        ),
    ]
    return samples


def _quantisation() -> list[Sample]:
    def quantize(x: np.ndarray, scale: np.ndarray, zero: np.ndarray, low: int, high: int) -> np.ndarray:
        return np.clip(np.round(x / scale) + zero.astype(float), low, high)

    # Powers of two as scales: quotients are exact, so that both sides round the same value.
    x = np.array([[-3, -0.25, 0.125, 40], [0.375, 0.625, -70, 1]], np.float32)
    samples = [
        sample(
            dl.QuantizeOp,
            (x, np.float32(0.25).reshape(()), np.array(3, d)),
            lambda x, s, z, d=d: quantize(x, s, z, np.iinfo(d).min, np.iinfo(d).max),
            axis=0,
        )
        for d in (I8, U8, I16)
    ]
    samples += [
        sample(
            dl.QuantizeOp,
            (x, np.array([0.25, 0.5], np.float32), np.array([3, -4], I8)),
            lambda x, s, z: quantize(x, s[:, None], z[:, None], -128, 127),
            "per_axis",
            axis=0,
        ),
        *(
            Sample(
                dl.DequantizeOp,
                (values(d, 2, 3), np.array([0.1, 0.5, 2], np.float32), np.array([1, 0, 2], d)),
                lambda x, s, z: (x.astype(float) - z.astype(float)) * s.astype(float),
                {"axis": 1},
                1e-6,
            )
            for d in (I8, U8, I32)
        ),
        sample(
            dl.QuantizeOp,
            (x, np.array([[0.25, 0.5], [0.125, 2]], np.float32), np.array(3, U8)),
            lambda x, s, z: quantize(x, s.repeat(2, 1), z, 0, 255),
            "blocks",
            axis=1,
        ),
        sample(
            dl.DequantizeOp,
            (values(I8, 6, 2), np.array([[0.5, 1], [2, 0.25]], np.float32), np.array([[1, 2], [-3, 4]], I8)),
            lambda x, s, z: (x - z.repeat(3, 0).astype(float)) * s.repeat(3, 0),
            "blocks",
            axis=0,
        ),
        sample(
            dl.DequantizeOp,
            (values(U8, 6, 2), np.array([[0.5, 1], [2, 0.25]], np.float32), np.array([[1.5, 2.25], [-3, 0.1]], np.float32)),
            lambda x, s, z: (x - z.repeat(3, 0).astype(float)) * s.repeat(3, 0),
            "blocks_with_float_zero_points",
            axis=0,
        ),
        sample(
            dl.DequantizeOp,
            (values(I8, 2, 3), np.array([[0.5, 1, 4], [2, 0.25, 8]], np.float32), np.array(2, I8)),
            lambda x, s, z: (x - z.astype(float)) * s,
            "blocks_of_one",
            axis=1,
        ),
        sample(
            dl.DequantizeOp,
            (values(I8, 4, 0), np.zeros((2, 0), np.float32), np.zeros((2, 0), I8)),
            lambda x, s, z: x.astype(float),
            "blocks_of_nothing",
            axis=0,
        ),
        Sample(
            dl.DynamicQuantizeLinearOp,
            (np.array([-1.0, 0.0, 2.1, 0.5, 3.0], np.float32),),
            # scale 4/255, zero point round(63.75) = 64, then the quotients 63.75·x.
            lambda x: (np.array([0, 64, 198, 96, 255]), np.float64(4 / 255), np.array(64)),
            {},
            1e-6,
        ),
        Sample(
            dl.DynamicQuantizeLinearOp,
            (np.zeros(3, np.float32),),
            lambda x: (np.zeros(3), np.array(1.0), np.array(0)),
            {},
            0.0,
            "zeros",
        ),
    ]
    return samples


SAMPLES = [*_activations(), *_reductions(), *_normalisations(), *_quantisation()]
