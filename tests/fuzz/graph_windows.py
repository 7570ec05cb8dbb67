"""Recipes for window operators, resizes and recurrences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dlc.testing.sample import F32, I8, U8
from tests.fuzz.floats import epsilon_of, finite_magnitudes
from tests.fuzz.random_graph import GraphValue, RandomGraph
from tests.fuzz.random_values import SMALL_SIZES, Unsuitable


def _image(g: RandomGraph, op: str) -> GraphValue:
    return g.any(g.types_of(op), lambda s: len(s) in (3, 4, 5) and 0 not in s, (3, 4, 4, 4, 5))


def _window(g: RandomGraph, spatial: tuple[int, ...], dilated: bool = True, ruled: bool = True) -> dict[str, Any]:
    """Choose kernel, strides, and either padding amounts or an `auto_pad` mode."""
    kernel = [g.random.randint(1, min(4, s)) for s in spatial]
    settings: dict[str, Any] = {"kernel_shape": kernel, "strides": [g.random.choice([1, 1, 2, 3]) for _ in spatial]}
    if ruled and g.random.random() < 0.3:
        return settings | {"auto_pad": g.random.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])}
    if dilated:
        settings["dilations"] = [
            g.random.choice([1, 2]) if (k - 1) * 2 < s else 1 for k, s in zip(kernel, spatial, strict=True)
        ]
    return settings | {"pads": [g.random.randint(0, k - 1) for k in (*kernel, *kernel)]}


def _conv(g: RandomGraph, op: str) -> GraphValue:
    x = _image(g, op)
    channels, window = x.shape[1], _window(g, x.shape[2:])
    groups = g.random.choice([1, 1, channels, *(n for n in (2, 3, 4) if channels % n == 0)]) if op != "ConvTranspose" else 1
    outputs = g.random.choice([1, 2, 5]) if groups > 1 else g.random.choice([1, 3, 8, 16])
    kernel = window["kernel_shape"]
    if op == "ConvTranspose":
        w = g.fresh(x.dtype, (channels, outputs, *kernel), 0.3)
    else:
        dtype = g.random.choice([I8, U8]) if op == "ConvInteger" else x.dtype
        depth = channels // groups
        w = g.fresh(dtype, (groups * outputs, depth, *kernel), (depth * math.prod(kernel)) ** -0.5)
    bias = [g.fresh(x.dtype, (groups * outputs,))] if op != "ConvInteger" and g.flag() else []
    return g.add(op, g.finite(x), g.finite(w), *bias, group=groups, **window)


def _pool(g: RandomGraph, op: str) -> GraphValue:
    x = g.without_nan(_image(g, op))
    if g.opset < 10 and op == "MaxPool":
        raise Unsuitable
    window = _window(g, x.shape[2:], dilated=op == "MaxPool" and g.opset >= 10, ruled=False)
    if op == "AveragePool":
        window["count_include_pad"] = int(g.flag())
    if op == "LpPool":
        window["p"] = g.random.choice([1, 2])
        # dlc computes it as an average times the window's size.
        largest = math.prod(window["kernel_shape"]) ** (1 / window["p"]) * np.max(finite_magnitudes(x.array), initial=0)
        window["tolerance"] = 4 * epsilon_of(x.dtype) * float(largest)
    elif g.opset >= 10:
        window["ceil_mode"] = int(g.flag() and op == "MaxPool" and not any(window["pads"]))
    if op == "MaxPool":
        # `onnx.reference` applies unequal padding to the wrong axis.
        window["pads"] = [min(window["pads"])] * len(window["pads"])
    return g.add(op, x, **window)


def _global_pool(g: RandomGraph, op: str) -> GraphValue:
    return g.add(op, g.any(g.types_of(op), lambda s: len(s) == 4 and 0 not in s, (4,)))


def _resize(g: RandomGraph, op: str) -> GraphValue:
    x = g.tame(F32, lambda s: len(s) in (3, 4) and 0 not in s, (3, 4, 4))
    # `onnx.reference` rounds interpolation weights differently.
    tolerance = 1e-5 * float(np.max(np.abs(x.array), initial=1))
    scales = np.float32([1, 1, *(g.random.choice([0.5, 1, 1.5, 2, 3]) for _ in x.shape[2:])])
    if op == "Upsample":
        scales = np.maximum(scales, 1)
        return g.add(
            op,
            x,
            scales=scales.tolist() if g.opset < 9 else scales,
            mode=g.random.choice(["nearest", "linear"]),
            tolerance=tolerance,
        )
    if g.opset < 11:
        return g.add(op, x, scales=scales, mode=g.random.choice(["nearest", "linear"]), tolerance=tolerance)
    mode = g.random.choice(["nearest", "linear", "cubic"] if len(x.shape) == 4 else ["nearest", "linear"])
    transforms = ["half_pixel", "asymmetric", *(["pytorch_half_pixel"] if mode != "cubic" else [])]
    settings: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": g.random.choice(transforms)}
    if mode == "nearest":
        settings["nearest_mode"] = g.random.choice(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
    if g.flag():
        if settings["coordinate_transformation_mode"] == "pytorch_half_pixel" and any(n % 1 for n in scales * x.shape if n < 2):
            # `onnx.reference` handles fractional sizes below 2 differently.
            raise Unsuitable
        return g.add(op, x, scales=scales, roi=np.zeros(0, np.float32), tolerance=tolerance, **settings)
    sizes = [*x.shape[:2], *(max(1, math.floor(n * s)) for n, s in zip(x.shape[2:], scales[2:], strict=True))]
    more = {} if g.opset >= 13 else {"roi": np.zeros(0, np.float32), "scales": np.zeros(0, np.float32)}
    return g.add(op, x, sizes=np.int64(sizes), tolerance=tolerance, **more, **settings)


def _grid_sample(g: RandomGraph, op: str) -> GraphValue:
    x = g.tame(F32, lambda s: len(s) == 4 and 0 not in s, (4,))
    grid = g.source(g.rng.uniform(-1.2, 1.2, (x.shape[0], *(g.random.choice(SMALL_SIZES) for _ in range(2)), 2)).astype(F32))
    mode = g.random.choice(["bilinear", "nearest"] if g.opset < 20 else ["linear", "nearest", "cubic"])
    # `onnx.reference` deviates from PyTorch and ONNX Runtime in cubic mode at the border.
    padding = g.random.choice(["zeros", "reflection", *(["border"] if mode != "cubic" else [])])
    return g.add(
        op,
        x,
        grid,
        mode=mode,
        padding_mode=padding,
        align_corners=int(g.flag()),
        tolerance=1e-4 * float(np.max(np.abs(x.array), initial=1)),
    )


def _recurrence(g: RandomGraph, op: str) -> GraphValue:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    steps, batch, inputs, hidden = (g.random.choice([1, 2, 3]), g.random.choice([1, 2, 5]), *g.random.choices(SMALL_SIZES, k=2))
    direction = g.random.choice(["forward", "reverse", "bidirectional"])
    n = 2 if direction == "bidirectional" else 1
    x = g.fresh(F32, (steps, batch, inputs))
    parameters = [g.fresh(F32, (n, gates * hidden, inputs), 0.5), g.fresh(F32, (n, gates * hidden, hidden), 0.5)]
    if 1 in (inputs, hidden):
        x, *parameters = map(g.finite, (x, *parameters))
    parameters += [g.fresh(F32, (n, 2 * gates * hidden))] * g.flag()
    settings: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if op == "GRU":
        settings["linear_before_reset"] = int(g.flag())
    # `onnx.reference` computes 1 - gate of a GRU with an absolute rounding error.
    tolerance = 1e-6 if op == "GRU" else 0.0
    return g.add(op, x, *parameters, results=3 if op == "LSTM" else 2, tolerance=tolerance, **settings)


def _roi_align(g: RandomGraph, op: str) -> GraphValue:
    if g.opset < 16:
        raise Unsuitable  # `onnx.reference` applies the half-pixel shift that only later versions define
    x, n = g.tame(F32, lambda s: len(s) == 4 and 0 not in s, (4,)), g.random.choice([1, 2, 3])
    corners, extents = g.rng.uniform(-2, 6, (n, 2)), g.rng.uniform(0.5, 9, (n, 2))
    height, width = g.random.choices([1, 2, 3], k=2)
    return g.add(
        op,
        x,
        g.source(np.concatenate([corners, corners + extents], 1).astype(F32)),
        g.source(g.rng.integers(0, x.shape[0], n)),
        mode=g.random.choice(["avg", "max"]),
        output_height=height,
        output_width=width,
        sampling_ratio=g.random.choice([0, 0, 1, 2]),
        spatial_scale=g.random.choice([1.0, 0.7]),
        coordinate_transformation_mode=g.random.choice(["half_pixel", "output_half_pixel"]),
        tolerance=1e-4 * float(np.max(np.abs(x.array), initial=1)),
    )


def _det(g: RandomGraph, op: str) -> GraphValue:
    n = g.random.choice([1, 2, 3, 5])
    return g.add(op, g.source((g.rng.standard_normal((2, n, n)) + 2 * n * np.eye(n)).astype(F32)))


WINDOWS: dict[str, Callable[[RandomGraph, str], GraphValue]] = {
    **dict.fromkeys(["Conv", "ConvInteger", "ConvTranspose"], _conv),
    **dict.fromkeys(["AveragePool", "LpPool", "MaxPool"], _pool),
    **dict.fromkeys(["GlobalAveragePool", "GlobalMaxPool"], _global_pool),
    **dict.fromkeys(["Resize", "Upsample"], _resize),
    "GridSample": _grid_sample,
    "RoiAlign": _roi_align,
    **dict.fromkeys(["RNN", "GRU", "LSTM"], _recurrence),
    "Det": _det,
}
