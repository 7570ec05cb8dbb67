"""Resize images one axis at a time: each element of the result interpolates one or two elements of the operand."""

from __future__ import annotations

import numpy as np

from dlc.dialects.dl.base import Array
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.interpolation import interpolate_axis
from dlc.frontend.size_limits import require_axis_length
from dlc.frontend.tflite.node import TfliteConverterTable, TfliteNode

table = TfliteConverterTable()


def _axes(node: TfliteNode, x: ImportedValue) -> list[tuple[int, int, int]]:
    """Return the image axes with their sizes before and after."""
    sizes = node.constant_integers(1, "size")
    if x.rank != 4 or len(sizes) != 2 or min(sizes) < 1:
        raise ModelError(f"{node.description}: cannot resize an image of shape {list(x.shape)} to sizes {list(sizes)}")
    require_axis_length(node.description, max(sizes))
    return [(axis, int(x.shape[axis]), size) for axis, size in zip((1, 2), sizes, strict=True)]


def _scale(node: TfliteNode, size: int, result_size: int) -> np.float32:
    """Return the distance in the operand of adjacent result elements, in f32 like TFLite."""
    aligns_corners = node.flag("align_corners") and result_size > 1
    return np.float32(size - 1) / np.float32(result_size - 1) if aligns_corners else np.float32(size) / np.float32(result_size)


@table("RESIZE_BILINEAR", options="height.i32 width.i32 align_corners.bool half_pixel_centers.bool")
def resize_bilinear(node: TfliteNode) -> ImportedValue:
    y = node.dequantized(0)
    for axis, size, result_size in _axes(node, y):
        if size != result_size:
            y = interpolate_axis(node.emit, node.results[0].name, y, axis, *_linear(node, size, result_size))
    return node.activate_and_quantize(y)


def _linear(node: TfliteNode, size: int, result_size: int) -> tuple[Array, Array]:
    """Return the two indices that each index of the result interpolates, and their weights."""
    scale, indices = _scale(node, size, result_size), np.arange(result_size, dtype=np.float32)
    half = np.float32(0.5)
    positions = (indices + half) * scale - half if node.flag("half_pixel_centers") else indices * scale
    lower = np.maximum(np.floor(positions), 0)
    upper = np.minimum(lower + 1, size - 1)
    weight = np.clip(positions - lower, 0, 1)
    return np.stack([lower, upper]).astype(np.int64), np.stack([1 - weight, weight])


@table("RESIZE_NEAREST_NEIGHBOR", options="align_corners.bool half_pixel_centers.bool")
def resize_nearest_neighbor(node: TfliteNode) -> ImportedValue:
    y = node[0]
    for axis, size, result_size in _axes(node, y):
        offset = np.float32(0.5 if node.flag("half_pixel_centers") else 0)
        positions = (np.arange(result_size, dtype=np.float32) + offset) * _scale(node, size, result_size)
        # Round half away from 0, like C.
        rounded_positions = np.floor(positions + np.float32(0.5)) if node.flag("align_corners") else np.floor(positions)
        indices = np.clip(rounded_positions, 0, size - 1).astype(np.int64)
        if size != result_size:
            y = interpolate_axis(node.emit, node.results[0].name, y, axis, indices[np.newaxis], np.ones((1, result_size)))
    return y
