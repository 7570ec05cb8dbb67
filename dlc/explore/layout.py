"""Where the boxes of a graph are drawn: in layers from top to bottom, each below what it reads.

After Sugiyama, Tagawa and Toda, Methods for Visual Understanding of Hierarchical System Structures (1981): layers by longest
paths, the order in each by the means of neighbours; then places as near to the neighbours' as the order allows, which for a
layer is a least-squares problem that pooling adjacent violators solves exactly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from dlc.explore.data import Box, Edge, Graph

WIDTH, HEAD, LINE = 236.0, 34.0, 19.0
_SMALL = 26.0  # the height of a box without parts
_GAP_X, _GAP_Y = 28.0, 34.0
_LANE = 10.0  # what a line that passes a layer takes of it
_MARGIN = 18.0  # around what is inside of a loop
_SWEEPS = 6
# A line over more layers than these would only be in the way: its end is drawn, so long.
_FAR, _STUB = 32, 14.0


def arranged(boxes: Sequence[Box], edges: Sequence[Edge]) -> Graph:
    """The graph of boxes and edges, all with their places; what is inside of a box is drawn in it."""
    placed, drawn = list(boxes), list(edges)
    inside: dict[int | None, list[int]] = defaultdict(list)
    for k, box in enumerate(boxes):
        inside[box.parent].append(k)

    def arrange(parent: int | None) -> tuple[float, float]:
        members = inside[parent]
        sizes = {k: _size(boxes[k], arrange(k) if k in inside else None) for k in members}
        own = [k for k, e in enumerate(edges) if e.source in sizes and e.target in sizes]
        layers = _Layers(sizes, [(edges[k].source, edges[k].target) for k in own])
        for k, (x, y) in layers.places().items():
            placed[k] = replace(placed[k], x=x, y=y, width=sizes[k][0], height=sizes[k][1])
        for k, points, path in zip(own, layers.lines(), layers.paths, strict=True):
            drawn[k] = replace(drawn[k], points=points, far=len(path) == 1)
        return layers.width, layers.height

    width, height = arrange(None)
    return Graph(tuple(placed), tuple(drawn), width, height)


def _size(box: Box, inner: tuple[float, float] | None) -> tuple[float, float]:
    if inner is not None:
        return inner[0] + 2 * _MARGIN, inner[1] + HEAD + _MARGIN
    if box.kind == "kernel":
        return WIDTH, HEAD + LINE * max(1, len(box.parts)) + 8
    return WIDTH * 0.8, _SMALL


@dataclass
class _Place:
    """A box, or where a line passes a layer."""

    width: float
    height: float
    x: float = 0
    above: list[int] = field(default_factory=list[int])
    below: list[int] = field(default_factory=list[int])


class _Layers:
    def __init__(self, sizes: dict[int, tuple[float, float]], edges: Sequence[tuple[int, int]]) -> None:
        names = list(sizes)
        number = {name: k for k, name in enumerate(names)}
        self.names = names
        self.all = [_Place(*sizes[name]) for name in names]
        ends = [(number[a], number[b]) for a, b in edges]
        depth = _depths(len(names), ends)
        self.layers: list[list[int]] = [[] for _ in range(max(depth, default=0) + 1)]
        for k, d in enumerate(depth):
            self.layers[d].append(k)
        self.paths = [self._path(a, b, depth) for a, b in ends]
        self._order()
        self._spread()
        self._stack()

    def _path(self, a: int, b: int, depth: list[int]) -> list[int]:
        """An edge as what it passes, layer by layer; as its end alone, if that is far."""
        if depth[b] - depth[a] > _FAR:
            return [b]
        path = [a]
        for d in range(depth[a] + 1, depth[b]):
            self.all.append(_Place(_LANE, 0))
            self.layers[d].append(len(self.all) - 1)
            path.append(len(self.all) - 1)
        path.append(b)
        for upper, lower in pairwise(path):
            self.all[upper].below.append(lower)
            self.all[lower].above.append(upper)
        return path

    def _order(self) -> None:
        """Orders each layer by the means of the neighbours' places in theirs."""
        place = {k: float(i) for layer in self.layers for i, k in enumerate(layer)}
        for sweep in range(_SWEEPS):
            down = sweep % 2 == 0
            for layer in self.layers if down else reversed(self.layers):
                means = {k: _mean([place[n] for n in self._neighbours(k, down)], place[k]) for k in layer}
                layer.sort(key=means.__getitem__)
                place.update({k: float(i) for i, k in enumerate(layer)})

    def _spread(self) -> None:
        """Gives each place a centre as near to its neighbours' as the order and the widths allow."""
        for layer in self.layers:
            self._settle(layer, [0.0] * len(layer))
        for _ in range(_SWEEPS):
            before = [p.x for p in self.all]
            for down in (True, False):
                for layer in self.layers if down else reversed(self.layers):
                    wanted = [_mean([self.all[n].x for n in self._neighbours(k, down)], self.all[k].x) for k in layer]
                    self._settle(layer, wanted)
            if [p.x for p in self.all] == before:
                break
        left = min((p.x - p.width / 2 for p in self.all), default=0.0)
        for p in self.all:
            p.x -= left
        self.width = max((p.x + p.width / 2 for p in self.all), default=0.0)

    def _neighbours(self, k: int, down: bool) -> list[int]:
        return self.all[k].above if down else self.all[k].below

    def _settle(self, layer: Sequence[int], wanted: Sequence[float]) -> None:
        """The places nearest to the wanted ones, in their order and with gaps between them: pooling adjacent violators."""
        offsets, end = list[float](), 0.0
        for k, before in zip(layer, [None, *layer], strict=False):
            if before is not None:
                end += (self.all[before].width + self.all[k].width) / 2 + _GAP_X
            offsets.append(end)
        pools: list[tuple[float, int]] = []
        for want, offset in zip(wanted, offsets, strict=True):
            total, count = want - offset, 1
            while pools and pools[-1][0] / pools[-1][1] > total / count:
                earlier = pools.pop()
                total, count = total + earlier[0], count + earlier[1]
            pools.append((total, count))
        starts = [total / count for total, count in pools for _ in range(count)]
        for k, start, offset in zip(layer, starts, offsets, strict=True):
            self.all[k].x = start + offset

    def _stack(self) -> None:
        """Gives each layer its height."""
        self.top_of: dict[int, float] = {}
        # Lines pass a layer straight, so that they cross none of its boxes.
        self.bottom_of: dict[int, float] = {}
        top = 0.0
        for layer in self.layers:
            height = max((self.all[k].height for k in layer), default=0.0)
            for k in layer:
                self.top_of[k] = top
                self.bottom_of[k] = top + (self.all[k].height or height)
            top += height + _GAP_Y
        self.height = max(0.0, top - _GAP_Y)

    def places(self) -> dict[int, tuple[float, float]]:
        """The left upper corner of each box."""
        return {name: (self.all[k].x - self.all[k].width / 2, self.top_of[k]) for k, name in enumerate(self.names)}

    def lines(self) -> list[tuple[tuple[float, float], ...]]:
        """The corners of each edge, from the bottom of a box to the top of another."""

        def corners(path: list[int]) -> Iterator[tuple[float, float]]:
            for i, k in enumerate(path):
                x = round(self.all[k].x, 1)
                if len(path) == 1:
                    yield x, round(self.top_of[k] - _STUB, 1)
                if i > 0 or len(path) == 1:
                    yield x, round(self.top_of[k], 1)
                if i < len(path) - 1:
                    yield x, round(self.bottom_of[k], 1)

        return [tuple(corners(path)) for path in self.paths]


def _depths(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The layer of each of some vertices, by the longest path to it."""
    depth = [0] * count
    following: dict[int, list[int]] = defaultdict(list)
    waiting = [0] * count
    for a, b in edges:
        following[a].append(b)
        waiting[b] += 1
    ready = [k for k in range(count) if not waiting[k]]
    for a in ready:
        for b in following[a]:
            depth[b] = max(depth[b], depth[a] + 1)
            waiting[b] -= 1
            if not waiting[b]:
                ready.append(b)
    # What reads nothing stands right above who reads it first.
    read = {b for _, b in edges}
    return [d if k in read or not following[k] else min(depth[b] for b in following[k]) - 1 for k, d in enumerate(depth)]


def _mean(numbers: Sequence[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise
