"""First and second moments of a layer's inputs, which GPTQ rounding needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from onnx import NodeProto

from dlc.quantization.graph import int_attribute

# Number of positions sampled per set of inputs.
_MAX_POSITIONS = 512
# Layers with more entries are rounded to nearest, because the products would need too much memory: 5,000 entries take 100 MB.
MAX_ENTRIES = 5000


class Moments:
    """Sums of x and of x·xᵀ, where x [groups, entries] are the inputs that multiply weights [groups, outputs, entries]."""

    def __init__(self, node: NodeProto, weights: tuple[int, ...]) -> None:
        self.node, self.weights = node, weights
        self.groups = int_attribute(node, "group", 1) if node.op_type == "Conv" else 1
        entries = int(np.prod(weights[1:])) if node.op_type == "Conv" else weights[_entry_axis(node)]
        self.count = 0
        self.sum = np.zeros((self.groups, entries))
        self.products = np.zeros((self.groups, entries, entries), np.float32)

    def add(self, x: NDArray[Any]) -> None:
        """Add the inputs of a layer."""
        rows = self._patches(x) if self.node.op_type == "Conv" else _sample_rows(x.reshape(-1, x.shape[-1]))[None]
        self.count += rows.shape[1]
        self.sum += rows.sum(1)
        self.products += rows.transpose(0, 2, 1) @ rows

    def _patches(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the input patches of a convolution at sampled positions: [groups, positions, entries]."""
        rank = x.ndim - 2
        kernel = self.weights[2:]
        strides, dilations = (_int_list_attribute(self.node, name, rank) for name in ("strides", "dilations"))
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        x = np.pad(x, [(0, 0), (0, 0), *_pads(self.node, x.shape[2:], spans, strides)])
        windows = sliding_window_view(x, spans, axis=tuple(range(2, 2 + rank)))
        steps = (slice(None), slice(None), *(slice(None, None, s) for s in strides), *(slice(None, None, d) for d in dilations))
        windows = windows[steps]
        positions = windows.shape[2 : 2 + rank]
        sampled = np.unravel_index(_spread_indices(int(np.prod(positions))), positions)
        # [N, C, positions, *kernel]
        sampled_windows = windows[(slice(None), slice(None), *sampled)]
        n, c, count = sampled_windows.shape[:3]
        rows = sampled_windows.reshape(n, self.groups, c // self.groups, count, -1).transpose(1, 0, 3, 2, 4)
        return np.ascontiguousarray(rows).reshape(self.groups, n * count, -1)


def _spread_indices(num_positions: int) -> NDArray[np.int64]:
    """Return at most `_MAX_POSITIONS` evenly spaced indices below `num_positions`."""
    return np.unique(np.linspace(0, num_positions - 1, min(num_positions, _MAX_POSITIONS)).astype(np.int64))


def _sample_rows(rows: NDArray[Any]) -> NDArray[Any]:
    return rows[_spread_indices(len(rows))]


def _entry_axis(node: NodeProto) -> int:
    return 1 if node.op_type == "Gemm" and int_attribute(node, "transB", 0) else 0


def _pads(node: NodeProto, sizes: Sequence[int], spans: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Return the padding before and after each axis."""
    mode = next((a.s for a in node.attribute if a.name == "auto_pad"), b"NOTSET")
    if mode in (b"SAME_UPPER", b"SAME_LOWER"):
        total_padding = [max((-(-n // s) - 1) * s + k - n, 0) for n, k, s in zip(sizes, spans, strides, strict=True)]
        halves = [(m // 2, m - m // 2) for m in total_padding]
        return halves if mode == b"SAME_UPPER" else [(high, low) for low, high in halves]
    pads = next((list(a.ints) for a in node.attribute if a.name == "pads"), list[int]())
    if mode == b"VALID" or not pads:
        return [(0, 0)] * len(sizes)
    return list(zip(pads[: len(sizes)], pads[len(sizes) :], strict=True))


def _int_list_attribute(node: NodeProto, name: str, rank: int) -> list[int]:
    return next((list(a.ints) for a in node.attribute if a.name == name), [1] * rank)
