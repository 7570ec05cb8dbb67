"""Layout of the graph: boxes in layers from top to bottom, each below the boxes that it reads.

After Sugiyama, Tagawa and Toda, Methods for Visual Understanding of Hierarchical System Structures (1981). Longest paths give
the layers, and the mean position of the neighbors gives the order in each layer. Then x coordinates are as near to the
neighbors' as the order allows: a least-squares problem per layer, which the pool-adjacent-violators algorithm solves exactly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from dlc.explore.data import Box, Edge, ModelGraph

BOX_WIDTH_PX, TITLE_HEIGHT_PX, LINE_HEIGHT_PX = 236.0, 34.0, 19.0
_PLAIN_BOX_HEIGHT_PX = 26.0  # the height of a box without op groups
_GAP_X_PX, _GAP_Y_PX = 28.0, 34.0
_EDGE_WIDTH_PX = 10.0  # the width of an edge in a layer that it crosses
_LOOP_MARGIN_PX = 18.0  # around the boxes in a loop
_MAX_SWEEPS = 6
# An edge over more layers is drawn as a stub of this height at its target.
_MAX_EDGE_LAYERS, _STUB_HEIGHT_PX = 32, 14.0


def layout_graph(boxes: Sequence[Box], edges: Sequence[Edge]) -> ModelGraph:
    """Return the graph with coordinates for all boxes and edges; boxes with a parent are laid out inside it."""
    laid_out_boxes, laid_out_edges = list(boxes), list(edges)
    children: dict[int | None, list[int]] = defaultdict(list)
    for k, box in enumerate(boxes):
        children[box.parent].append(k)

    def lay_out_children(parent: int | None) -> tuple[float, float]:
        members = children[parent]
        sizes = {k: _size(boxes[k], lay_out_children(k) if k in children else None) for k in members}
        edge_indices = [k for k, e in enumerate(edges) if e.source in sizes and e.target in sizes]
        layers = _LayeredLayout(sizes, [(edges[k].source, edges[k].target) for k in edge_indices])
        for k, (x, y) in layers.box_positions().items():
            laid_out_boxes[k] = replace(laid_out_boxes[k], x=x, y=y, width=sizes[k][0], height=sizes[k][1])
        for k, points, path in zip(edge_indices, layers.lines(), layers.paths, strict=True):
            laid_out_edges[k] = replace(laid_out_edges[k], points=points, is_stub=len(path) == 1)
        return layers.width, layers.height

    width, height = lay_out_children(None)
    return ModelGraph(tuple(laid_out_boxes), tuple(laid_out_edges), width, height)


def _size(box: Box, content_size: tuple[float, float] | None) -> tuple[float, float]:
    if content_size is not None:
        return content_size[0] + 2 * _LOOP_MARGIN_PX, content_size[1] + TITLE_HEIGHT_PX + _LOOP_MARGIN_PX
    if box.kind == "kernel":
        return BOX_WIDTH_PX, TITLE_HEIGHT_PX + LINE_HEIGHT_PX * max(1, len(box.groups)) + 8
    return BOX_WIDTH_PX * 0.8, _PLAIN_BOX_HEIGHT_PX


@dataclass
class _Vertex:
    """A box, or the point where an edge crosses a layer."""

    width: float
    height: float
    x: float = 0
    above: list[int] = field(default_factory=list[int])
    below: list[int] = field(default_factory=list[int])


class _LayeredLayout:
    """The layout of one level of nesting."""

    def __init__(self, sizes: dict[int, tuple[float, float]], edges: Sequence[tuple[int, int]]) -> None:
        names = list(sizes)
        index_of = {name: k for k, name in enumerate(names)}
        self.names = names
        self.vertices = [_Vertex(*sizes[name]) for name in names]
        end_indices = [(index_of[a], index_of[b]) for a, b in edges]
        depth = _longest_path_layers(len(names), end_indices)
        self.layers: list[list[int]] = [[] for _ in range(max(depth, default=0) + 1)]
        for k, d in enumerate(depth):
            self.layers[d].append(k)
        self.paths = [self._path(a, b, depth) for a, b in end_indices]
        self._order_layers()
        self._assign_x()
        self._assign_y()

    def _path(self, a: int, b: int, depth: list[int]) -> list[int]:
        """Return the vertices of an edge, layer by layer; only its target if the edge is too long."""
        if depth[b] - depth[a] > _MAX_EDGE_LAYERS:
            return [b]
        path = [a]
        for d in range(depth[a] + 1, depth[b]):
            self.vertices.append(_Vertex(_EDGE_WIDTH_PX, 0))
            self.layers[d].append(len(self.vertices) - 1)
            path.append(len(self.vertices) - 1)
        path.append(b)
        for upper, lower in pairwise(path):
            self.vertices[upper].below.append(lower)
            self.vertices[lower].above.append(upper)
        return path

    def _order_layers(self) -> None:
        """Order each layer by the mean position of its neighbors."""
        position = {k: float(i) for layer in self.layers for i, k in enumerate(layer)}
        for sweep in range(_MAX_SWEEPS):
            down = sweep % 2 == 0
            for layer in self.layers if down else reversed(self.layers):
                means = {k: _mean([position[n] for n in self._neighbors(k, down)], position[k]) for k in layer}
                layer.sort(key=means.__getitem__)
                position.update({k: float(i) for i, k in enumerate(layer)})

    def _assign_x(self) -> None:
        """Give each vertex an x coordinate as near to its neighbors' as order and widths allow."""
        for layer in self.layers:
            self._place_layer(layer, [0.0] * len(layer))
        for _ in range(_MAX_SWEEPS):
            old_positions = [p.x for p in self.vertices]
            for down in (True, False):
                for layer in self.layers if down else reversed(self.layers):
                    targets = [_mean([self.vertices[n].x for n in self._neighbors(k, down)], self.vertices[k].x) for k in layer]
                    self._place_layer(layer, targets)
            if [p.x for p in self.vertices] == old_positions:
                break
        left_edge = min((p.x - p.width / 2 for p in self.vertices), default=0.0)
        for p in self.vertices:
            p.x -= left_edge
        self.width = max((p.x + p.width / 2 for p in self.vertices), default=0.0)

    def _neighbors(self, k: int, down: bool) -> list[int]:
        return self.vertices[k].above if down else self.vertices[k].below

    def _place_layer(self, layer: Sequence[int], targets: Sequence[float]) -> None:
        """Set the x coordinates nearest to the targets that keep the order and the gaps, by pooling adjacent violators."""
        offsets, end = list[float](), 0.0
        for k, left_neighbor in zip(layer, [None, *layer], strict=False):
            if left_neighbor is not None:
                end += (self.vertices[left_neighbor].width + self.vertices[k].width) / 2 + _GAP_X_PX
            offsets.append(end)
        pools: list[tuple[float, int]] = []
        for target, offset in zip(targets, offsets, strict=True):
            total, count = target - offset, 1
            while pools and pools[-1][0] / pools[-1][1] > total / count:
                earlier = pools.pop()
                total, count = total + earlier[0], count + earlier[1]
            pools.append((total, count))
        starts = [total / count for total, count in pools for _ in range(count)]
        for k, start, offset in zip(layer, starts, offsets, strict=True):
            self.vertices[k].x = start + offset

    def _assign_y(self) -> None:
        """Set the top and bottom of each vertex."""
        self.top_of: dict[int, float] = {}
        # Edges cross a layer vertically, so that they cross none of its boxes.
        self.bottom_of: dict[int, float] = {}
        top = 0.0
        for layer in self.layers:
            height = max((self.vertices[k].height for k in layer), default=0.0)
            for k in layer:
                self.top_of[k] = top
                self.bottom_of[k] = top + (self.vertices[k].height or height)
            top += height + _GAP_Y_PX
        self.height = max(0.0, top - _GAP_Y_PX)

    def box_positions(self) -> dict[int, tuple[float, float]]:
        """Return the upper left corner of each box."""
        return {name: (self.vertices[k].x - self.vertices[k].width / 2, self.top_of[k]) for k, name in enumerate(self.names)}

    def lines(self) -> list[tuple[tuple[float, float], ...]]:
        """Return the polyline of each edge, from the bottom of its source to the top of its target."""

        def corners(path: list[int]) -> Iterator[tuple[float, float]]:
            for i, k in enumerate(path):
                x = round(self.vertices[k].x, 1)
                if len(path) == 1:
                    yield x, round(self.top_of[k] - _STUB_HEIGHT_PX, 1)
                if i > 0 or len(path) == 1:
                    yield x, round(self.top_of[k], 1)
                if i < len(path) - 1:
                    yield x, round(self.bottom_of[k], 1)

        return [tuple(corners(path)) for path in self.paths]


def _longest_path_layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the layer of each vertex: the length of the longest path to it."""
    depth = [0] * count
    successors: dict[int, list[int]] = defaultdict(list)
    num_unvisited = [0] * count
    for a, b in edges:
        successors[a].append(b)
        num_unvisited[b] += 1
    ready = [k for k in range(count) if not num_unvisited[k]]
    for a in ready:
        for b in successors[a]:
            depth[b] = max(depth[b], depth[a] + 1)
            num_unvisited[b] -= 1
            if not num_unvisited[b]:
                ready.append(b)
    # A vertex without inputs is placed directly above its first reader.
    targets = {b for _, b in edges}
    return [d if k in targets or not successors[k] else min(depth[b] for b in successors[k]) - 1 for k, d in enumerate(depth)]


def _mean(numbers: Sequence[float], default: float) -> float:
    return sum(numbers) / len(numbers) if numbers else default
