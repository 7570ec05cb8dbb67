"""Nodes with windows and coordinates: convolution, pooling, resizing, sampling, padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.attribute_nodes import AttributeNode, Draw, NodeDraw

_CONV_TOLERANCE = 1e-5


def _window(d: Draw, rank: int, *, dilated: bool = True, is_pool: bool = False) -> tuple[dict[str, Any], list[int], list[int]]:
    """Return attributes of a window (kernel shape not included), its shape, and spatial sizes that are large enough."""
    kernel, strides = d.shape(rank, 1, 3), d.maybe(d.shape(rank, 1, 3))
    dilations = d.maybe(d.shape(rank, 1, 3)) if dilated else None
    extents = [(k - 1) * (dilations[i] if dilations else 1) + 1 for i, k in enumerate(kernel)]
    # ONNX Runtime ignores dilations where it pads a pool automatically, and pads by a negative size between windows.
    has_gaps = strides is not None and min(e - s for e, s in zip(extents, strides, strict=True)) < 0
    same = () if is_pool and (dilations or has_gaps) else ("SAME_UPPER", "SAME_LOWER")
    auto_pad = d.choice(None, None, "NOTSET", "VALID", *same)
    # Padding is less than the window, so that each window has an element.
    pads = [d.size(0, max(0, k - 1)) for k in (*kernel, *kernel)] if auto_pad in (None, "NOTSET") and d.flag() else None
    sizes = [d.size(e, e + 6) for e in extents]
    return {"strides": strides, "dilations": dilations, "auto_pad": auto_pad, "pads": pads}, kernel, sizes


def _conv(d: Draw) -> AttributeNode:
    rank, group, batch = d.choice(1, 2, 2, 3), d.choice(1, 1, 2, 3), d.size(1, 2)
    window, kernel, sizes = _window(d, rank)
    channels, filters = d.size(1, 3), d.size(1, 3)
    inputs = [
        d.floats([batch, group * channels, *sizes]),
        d.floats([group * filters, channels, *kernel]),
        d.maybe(d.floats([group * filters])),
    ]
    attributes = {**window, "group": group if group > 1 else d.maybe(1), "kernel_shape": d.maybe(kernel)}
    return AttributeNode("Conv", attributes, inputs, 13, constants=d.choice((1, 2), ()), tolerance=_CONV_TOLERANCE)


def _conv_transpose(d: Draw) -> AttributeNode:
    rank, group = d.choice(1, 2, 2), d.choice(1, 1, 2)
    window, kernel, sizes = _window(d, rank)
    channels, filters = d.size(1, 3), d.size(1, 3)
    strides = window["strides"] or [1] * rank
    output_padding = d.maybe([d.size(0, s - 1) for s in strides]) if window["auto_pad"] in (None, "NOTSET") else None
    output_shape = d.maybe([n * s for n, s in zip(sizes, strides, strict=True)], 0.3)
    if output_shape:
        window = {**window, "pads": None, "dilations": None}
    elif min(k - s for k, s in zip(kernel, strides, strict=True)) < 0 and str(window["auto_pad"]).startswith("SAME"):
        # ONNX Runtime does not extend the result to the size in the specification.
        window = {**window, "auto_pad": "VALID"}
    inputs = [
        d.floats([1, group * channels, *sizes]),
        d.floats([group * channels, filters, *kernel]),
        d.maybe(d.floats([group * filters])),
    ]
    attributes = {**window, "group": group, "output_padding": output_padding, "output_shape": output_shape}
    return AttributeNode("ConvTranspose", attributes, inputs, 11, constants=d.choice((1, 2), ()))


def _max_pool(d: Draw) -> AttributeNode:
    rank = d.choice(1, 2, 2, 3)
    window, kernel, sizes = _window(d, rank, is_pool=True)
    outputs = d.choice(1, 1, 2)
    attributes = {**window, "kernel_shape": kernel, "ceil_mode": d.maybe(d.flag())}
    if outputs == 2:
        attributes["storage_order"] = d.maybe(d.flag())
    x = d.distinct([d.size(1, 2), d.size(1, 3), *sizes], d.choice(np.float32, np.float32, np.float64, np.uint8, np.int8))
    return AttributeNode("MaxPool", attributes, [x], 12, outputs, tolerance=0)


def _average_pool(d: Draw) -> AttributeNode:
    opset = d.choice(11, 19, 22)
    window, kernel, sizes = _window(d, d.choice(1, 2, 2, 3), dilated=opset >= 19, is_pool=True)
    attributes = {
        **window,
        "kernel_shape": kernel,
        "ceil_mode": d.maybe(d.flag()),
        "count_include_pad": d.maybe(d.flag()),
    }
    return AttributeNode("AveragePool", attributes, [d.floats([1, 2, *sizes])], opset)


def _lp_pool(d: Draw) -> AttributeNode:
    opset = d.choice(11, 18)
    window, kernel, sizes = _window(d, d.choice(1, 2, 3), dilated=opset >= 18, is_pool=True)
    ceil_mode = d.maybe(d.flag()) if opset >= 18 else None
    attributes = {**window, "kernel_shape": kernel, "p": d.maybe(d.size(1, 3)), "ceil_mode": ceil_mode}
    return AttributeNode("LpPool", attributes, [d.floats([1, 2, *sizes])], opset)


def _global_pool(d: Draw) -> AttributeNode:
    op = d.choice("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
    attributes = {"p": d.maybe(d.size(1, 4))} if op == "GlobalLpPool" else {}
    return AttributeNode(op, attributes, [d.floats([2, 3, *d.shape(d.size(1, 3))])], 13)


def _max_unpool(d: Draw) -> AttributeNode:
    n, kernel, strides = d.size(2, 4), d.size(1, 3), d.size(2, 3)
    pads = d.maybe([d.size(0, 1) for _ in range(2)])
    before, after = pads or (0, 0)
    length = (n - 1) * strides + kernel - before - after
    if length < n:
        pads, length = None, (n - 1) * strides + kernel
    indices = np.stack([d.rng.choice(length, n, replace=False) + c * length for c in range(2)])[None].astype(np.int64)
    attributes = {"kernel_shape": [kernel], "strides": [strides], "pads": pads}
    return AttributeNode("MaxUnpool", attributes, [d.floats([1, 2, n]), indices], 11, tolerance=0)


_COORDINATES = (
    "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric", "tf_crop_and_resize",
)  # fmt: skip


def _resize(d: Draw) -> AttributeNode:
    opset, rank, mode = d.choice(11, 13, 18, 19), d.choice(2, 4, 4), d.choice("nearest", "linear", "cubic")
    coordinates = d.choice(*_COORDINATES)
    if opset < 19 and coordinates == "half_pixel_symmetric":
        coordinates = "half_pixel"
    spatial = 2
    shape = [*d.shape(rank - spatial, 1, 2), *d.shape(spatial, 2, 7)]
    axes = d.maybe([rank - 2, rank - 1]) if opset >= 18 else None
    resized = shape[-2:] if axes else shape
    results = [n if not axes and i < rank - 2 else d.size(1, 11) for i, n in enumerate(resized)]
    has_sizes = d.flag()
    factors = [d.choice(0.5, 0.7, 1.0, 1.5, 2.0, 2.6, 3.0) if axes or i >= rank - 2 else 1.0 for i in range(len(resized))]
    factors = [max(f, 1.01 / n) for f, n in zip(factors, resized, strict=True)]
    roi = None
    if coordinates == "tf_crop_and_resize":
        starts = [d.choice(0.0, 0.1, 0.25) if f != 1.0 or has_sizes else 0.0 for f in factors]
        ends = [d.choice(0.6, 0.8, 1.0, 1.2) for _ in factors]
        if not axes:
            starts, ends = [0.0] * (rank - 2) + starts[-2:], [1.0] * (rank - 2) + ends[-2:]
        # ONNX Runtime copies axes that keep their size.
        sizes = [n if has_sizes else int(n * f) for n, f in zip(results if has_sizes else resized, factors, strict=True)]
        for i, (n, size) in enumerate(zip(resized, sizes, strict=True)):
            if n == size:
                starts[i], ends[i] = 0.0, 1.0
        roi = np.array([*starts, *ends], np.float32)
    antialias = d.maybe(d.flag(), 0.3) if opset >= 18 and mode != "nearest" else None
    policy = d.maybe(d.choice("stretch", "not_larger", "not_smaller"), 0.4) if opset >= 18 and has_sizes and axes else None
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": coordinates,
        "nearest_mode": d.maybe(d.choice("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
        if mode == "nearest"
        else None,
        "cubic_coeff_a": d.maybe(d.choice(-0.5, -0.75, -0.6)) if mode == "cubic" else None,
        "exclude_outside": d.maybe(d.flag()) if mode == "cubic" else None,
        "extrapolation_value": d.maybe(d.choice(0.0, 7.5)),
        "antialias": antialias,
        "axes": axes,
        "keep_aspect_ratio_policy": policy,
    }
    empty = np.zeros(0, np.float32)
    scales = (empty if opset < 13 else None) if has_sizes else np.array(factors, np.float32)
    inputs = [d.floats(shape), roi if roi is not None else (empty if opset < 13 else None), scales]
    if has_sizes:
        inputs.append(np.array(results, np.int64))
    return AttributeNode("Resize", attributes, inputs, opset, constants=(1, 2, 3))


def _grid_sample(d: Draw) -> AttributeNode:
    opset, rank = d.choice((16, 2), (20, 2), (20, 3))
    modes = ("bilinear", "nearest", "bicubic") if opset == 16 else ("linear", "nearest", "cubic")
    attributes = {
        "mode": d.maybe(d.choice(*modes[: 3 if rank == 2 else 2]), 0.8),
        "padding_mode": d.maybe(d.choice("zeros", "border", "reflection"), 0.8),
        "align_corners": d.maybe(d.flag()),
    }
    x = d.floats([2, 2, *d.shape(rank, 1, 5)])
    # Multiples of 1/8: rounded to half precision, coordinates next to the middle of two elements select the other one.
    grid = d.integers([2, *d.shape(rank, 1, 4), rank], -16, 16, np.float32) / np.float32(8)
    return AttributeNode("GridSample", attributes, [x, grid], opset, tolerance=1e-4)


def _affine_grid(d: Draw) -> AttributeNode:
    rank = d.choice(2, 3)
    size = np.array([2, 1, *d.shape(rank, 2, 4)], np.int64)
    inputs = [d.floats([2, rank, rank + 1]), size]
    return AttributeNode("AffineGrid", {"align_corners": d.maybe(d.flag())}, inputs, 20, constants=(1,))


def _roi_align(d: Draw) -> AttributeNode:
    opset, count = d.choice(10, 16), d.size(1, 3)
    attributes = {
        "mode": d.maybe(d.choice("avg", "max")) if opset == 16 else d.maybe("avg"),
        "coordinate_transformation_mode": d.maybe(d.choice("half_pixel", "output_half_pixel")) if opset == 16 else None,
        "output_height": d.maybe(d.size(1, 3)),
        "output_width": d.maybe(d.size(1, 3)),
        "sampling_ratio": d.maybe(d.size(0, 3)),
        "spatial_scale": d.maybe(d.choice(0.5, 1.0, 2.0)),
    }
    starts = d.rng.uniform(-1, 4, (count, 2))
    boxes = np.concatenate([starts, starts + d.rng.uniform(0.1, 4, (count, 2))], 1).astype(np.float32)
    return AttributeNode(
        "RoiAlign", attributes, [d.floats([2, 2, 6, 7]), boxes, d.integers([count], 0, 1)], opset, tolerance=1e-4
    )


def _max_roi_pool(d: Draw) -> AttributeNode:
    count = d.size(1, 3)
    starts = d.integers((count, 2), 0, 3)
    boxes = np.concatenate([d.integers((count, 1), 0, 1), starts, starts + d.integers((count, 2), 0, 4)], 1).astype(np.float32)
    attributes = {"pooled_shape": d.shape(2, 1, 3), "spatial_scale": d.maybe(d.choice(0.5, 1.0))}
    return AttributeNode("MaxRoiPool", attributes, [d.floats([2, 2, 6, 7]), boxes], 10)


def _pad(d: Draw) -> AttributeNode:
    opset, rank = d.choice(11, 13, 18, 19), d.size(1, 4)
    mode = d.choice(None, "constant", "reflect", "edge", *(("wrap",) if opset >= 19 else ()))
    shape = d.shape(rank, 3, 6)
    axes = d.axes(rank) if opset >= 18 and d.flag() else None
    count = rank if axes is None else len(axes)
    lowest = -1 if mode in (None, "constant", "edge") else 0
    pads = np.array(d.sizes(2 * count, lowest, 0, 1, 2), np.int64)
    dtype = d.choice(np.float32, np.float64, np.int32, np.int64)
    value = d.maybe(np.array(3, dtype)) if mode in (None, "constant") else None
    inputs = [d.array(shape, dtype), pads, value, *([np.array(axes, np.int64)] if axes is not None else [])]
    return AttributeNode("Pad", {"mode": mode}, inputs, opset, constants=d.choice((1, 2, 3), (1, 3)), tolerance=0)


def _depth_to_space(d: Draw) -> AttributeNode:
    block = d.size(1, 3)
    if d.flag():
        x = d.floats([2, block * block * d.size(1, 2), *d.shape(2)])
        return AttributeNode(
            "DepthToSpace", {"blocksize": block, "mode": d.maybe(d.choice("DCR", "CRD"))}, [x], 13, tolerance=0
        )
    return AttributeNode("SpaceToDepth", {"blocksize": block}, [d.floats([1, 2, block * 2, block * 3])], 13, tolerance=0)


def _col2im(d: Draw) -> AttributeNode:
    block, sizes, strides, dilations = d.shape(2, 1, 3), d.shape(2, 6, 8), d.shape(2, 1, 2), d.shape(2, 1, 2)
    pads = d.maybe(d.sizes(4, 0, 1))
    before, after = (pads or [0] * 4)[:2], (pads or [0] * 4)[2:]
    counts = [
        (n + p + q - (k - 1) * e - 1) // s + 1
        for n, p, q, k, e, s in zip(sizes, before, after, block, dilations, strides, strict=True)
    ]
    x = d.floats([1, 2 * block[0] * block[1], counts[0] * counts[1]])
    inputs = [x, np.array(sizes, np.int64), np.array(block, np.int64)]
    attributes = {"strides": strides, "dilations": dilations, "pads": pads}
    return AttributeNode("Col2Im", attributes, inputs, 18, constants=(1, 2))


def _lrn(d: Draw) -> AttributeNode:
    attributes = {
        "size": d.size(1, 6),
        "alpha": d.maybe(d.choice(0.5, 1e-4)),
        "beta": d.maybe(d.choice(0.5, 1.0, 0.75)),
        "bias": d.maybe(d.choice(1.0, 2.0)),
    }
    return AttributeNode("LRN", attributes, [d.floats([2, d.size(1, 7), 3, 3])], 13)


WINDOWS: tuple[NodeDraw, ...] = (
    _conv, _conv, _conv_transpose, _conv_transpose, _max_pool, _max_pool, _average_pool, _average_pool, _lp_pool,
    _global_pool, _max_unpool, _resize, _resize, _resize, _grid_sample, _affine_grid, _roi_align, _max_roi_pool, _pad,
    _depth_to_space, _col2im, _lrn,
)  # fmt: skip
