"""The plan of tasks that run all ops of a nest on one register tile after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dlc.passes.tiling.loop_nests import SizedLoopNest
from dlc.passes.tiling.plan import ThreadTiles
from dlc.target import Target


@dataclass(frozen=True, kw_only=True)
class TaskTiles(ThreadTiles):
    """Independent register tiles.

    Attributes:
        balance_threshold: Unless None, tasks split dynamic extents evenly into as few register tiles as possible. Tiles with
            fewer rows than this use two sets of accumulators, because one would not hide the FMA latency.
    """

    balance_threshold: int | None = None

    def explain(self, nest: SizedLoopNest, target: Target) -> Iterator[str]:
        yield from super().explain(nest, target)
        if self.balance_threshold is not None:
            yield f"dynamic rows are split evenly; tiles of fewer than {self.balance_threshold} rows accumulate twice"
