"""The minimum cut of a graph, by Dinic's algorithm."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable


class MinimumCut:
    """A directed graph with capacities, of any hashable nodes, between a source and a sink."""

    SOURCE, SINK = "source", "sink"

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        # Edges of each node; edge e ^ 1 is the reverse of edge e.
        self._edges: list[list[int]] = []
        self._targets: list[int] = []
        self._capacities: list[float] = []
        self._source, self._sink = self._number(self.SOURCE), self._number(self.SINK)

    def _number(self, node: Hashable) -> int:
        number = self._numbers.setdefault(node, len(self._edges))
        if number == len(self._edges):
            self._edges.append([])
        return number

    def add_edge(self, start: Hashable, end: Hashable, capacity: float = math.inf) -> None:
        """Add an edge; cutting it costs `capacity`."""
        for node, target, limit in ((start, end, capacity), (end, start, 0.0)):
            self._edges[self._number(node)].append(len(self._targets))
            self._targets.append(self._number(target))
            self._capacities.append(limit)

    def source_side(self) -> set[Hashable]:
        """Return the nodes on the source's side of a cut with the least sum of capacities.

        Raises ValueError if each cut costs infinitely much.
        """
        while True:
            levels = self._levels()
            if levels[self._sink] < 0:
                return {node for node, number in self._numbers.items() if levels[number] >= 0}
            self._saturate(levels)

    def _levels(self) -> list[int]:
        """Return the distance of each node from the source over edges with capacity left; -1 if there is no path."""
        levels, queue = [-1] * len(self._edges), deque([self._source])
        levels[self._source] = 0
        while queue:
            node = queue.popleft()
            for edge in self._edges[node]:
                target = self._targets[edge]
                if levels[target] < 0 and self._capacities[edge] > 0:
                    levels[target] = levels[node] + 1
                    queue.append(target)
        return levels

    def _saturate(self, levels: list[int]) -> None:
        """Send flow along shortest paths until each of them has an edge without capacity left."""
        next_edges, path, node = [0] * len(self._edges), list[int](), self._source
        while True:
            if node == self._sink:
                flow = min(self._capacities[edge] for edge in path)
                if flow == math.inf:
                    raise ValueError("each cut has an edge of infinite capacity")
                for edge in path:
                    self._capacities[edge] -= flow
                    self._capacities[edge ^ 1] += flow
                full = next(k for k, edge in enumerate(path) if self._capacities[edge] == 0)
                node = self._targets[path[full] ^ 1]
                del path[full:]
            elif next_edges[node] < len(self._edges[node]):
                edge = self._edges[node][next_edges[node]]
                target = self._targets[edge]
                if self._capacities[edge] > 0 and levels[target] == levels[node] + 1:
                    path.append(edge)
                    node = target
                else:
                    next_edges[node] += 1
            elif path:
                node = self._targets[path.pop() ^ 1]
                next_edges[node] += 1
            else:
                return
