"""Images of another size: each axis by itself, a place of the result from one place or two of the operand."""

from __future__ import annotations

import numpy as np

from dlc.dialects.dl.base import Array
from dlc.errors import ModelError
from dlc.frontend.addressable import require_countable
from dlc.frontend.emit import Value
from dlc.frontend.interpolation import interpolated
from dlc.frontend.tflite.node import Node, Table

table = Table()


def _axes(node: Node, x: Value) -> list[tuple[int, int, int]]:
    """The axes of an image with their sizes, before and after."""
    sizes = node.integers_of(1, "size")
    if x.rank != 4 or len(sizes) != 2 or min(sizes) < 1:
        raise ModelError(f"{node.place}: an image of shape {list(x.shape)} to sizes {list(sizes)}")
    require_countable(node.place, max(sizes))
    return [(axis, int(x.shape[axis]), size) for axis, size in zip((1, 2), sizes, strict=True)]


def _scale(node: Node, size: int, resized: int) -> np.float32:
    """How far places of the operand lie apart for neighbours of the result, in f32 as TFLite computes it."""
    by_corners = node.flag("align_corners") and resized > 1
    return np.float32(size - 1) / np.float32(resized - 1) if by_corners else np.float32(size) / np.float32(resized)


@table("RESIZE_BILINEAR", options="height.i32 width.i32 align_corners.bool half_pixel_centers.bool")
def resize_bilinear(node: Node) -> Value:
    y = node.real(0)
    for axis, size, resized in _axes(node, y):
        if size != resized:
            y = interpolated(node.emit, node.results[0].name, y, axis, *_linear(node, size, resized))
    return node.finished(y)


def _linear(node: Node, size: int, resized: int) -> tuple[Array, Array]:
    """The two places of each place of the result, and their weights."""
    scale, numbers = _scale(node, size, resized), np.arange(resized, dtype=np.float32)
    half = np.float32(0.5)
    places = (numbers + half) * scale - half if node.flag("half_pixel_centers") else numbers * scale
    lower = np.maximum(np.floor(places), 0)
    upper = np.minimum(lower + 1, size - 1)
    weight = np.clip(places - lower, 0, 1)
    return np.stack([lower, upper]).astype(np.int64), np.stack([1 - weight, weight])


@table("RESIZE_NEAREST_NEIGHBOR", options="align_corners.bool half_pixel_centers.bool")
def resize_nearest_neighbor(node: Node) -> Value:
    y = node[0]
    for axis, size, resized in _axes(node, y):
        offset = np.float32(0.5 if node.flag("half_pixel_centers") else 0)
        places = (np.arange(resized, dtype=np.float32) + offset) * _scale(node, size, resized)
        # To the nearest, from the middle away from 0, as C rounds.
        found = np.floor(places + np.float32(0.5)) if node.flag("align_corners") else np.floor(places)
        indices = np.clip(found, 0, size - 1).astype(np.int64)
        if size != resized:
            y = interpolated(node.emit, node.results[0].name, y, axis, indices[np.newaxis], np.ones((1, resized)))
    return y
