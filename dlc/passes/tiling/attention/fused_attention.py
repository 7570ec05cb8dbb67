"""The plan of attention: all ops of a tile of queries, in loops that several ops share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dlc.passes.tiling.attention.online_softmax import match_online_softmax
from dlc.passes.tiling.loop_nests import SizedLoopNest, can_split
from dlc.passes.tiling.plan import TilePlan, check_shared_size, explain_tasks
from dlc.target import Target


@dataclass(frozen=True)
class FusedLoop:
    """Ops that share loops over steps of a tile.

    Attributes:
        first: The position of the first op.
        end: The position after the last op.
        steps: Pairs (dimension, step), outermost first.
        skips_masked: Whether to skip steps that do not affect the result. If the ops end in a masked select, these are
            the fully masked steps; for a contraction, the steps of the outermost loop in which the first operand is all
            zeros.
        unmasked: A dimension and a block size. The loop along the dimension ends after the last block that is not fully
            masked, by the mask of the first fused loop that ends in a masked select.
    """

    first: int
    end: int
    steps: tuple[tuple[int, int], ...]
    skips_masked: bool = False
    unmasked: tuple[int, int] | None = None

    def check(self, nest: SizedLoopNest) -> None:
        """Raise ValueError, naming the loop, if its steps are not legal for the nest."""
        nest_ops = nest.ops[self.first : self.end]
        for d, step in self.steps:
            if not 1 <= step <= nest.extents.get(d, 0):
                raise ValueError(f"fused loop {self}: d{d} must be a dimension of the nest, with 1 ≤ step ≤ its extent")
            reductions = [op for op in nest_ops if d in op.reductions]
            if not all(op.is_contraction or can_split(op, nest) for op in reductions):
                raise ValueError(f"fused loop {self}: a reduction cannot be split: it has no combiner or no identity")
            if any(a.root in {op.output.root for op in reductions} for op in nest_ops for a in op.inputs):
                raise ValueError(f"fused loop {self}: an op reads the result of a reduction before it is complete")
            if any(t.modulus % step for op in nest_ops for a in op.inputs for t in a.terms if t.iterator == d and t.modulus):
                raise ValueError(f"fused loop {self}: the step must divide the panels of a packed operand")
            if self.unmasked is not None and self.unmasked[0] == d and self.unmasked[1] % step:
                raise ValueError(f"fused loop {self}: the unmasked size must be a multiple of the step")

    def __str__(self) -> str:
        skips = ", skips" if self.skips_masked else ""
        unmasked = "" if self.unmasked is None else f", d{self.unmasked[0]} up to the last unmasked {self.unmasked[1]}"
        steps = ", ".join(f"d{d} by {step}" for d, step in self.steps)
        return f"ops {self.first} to {self.end - 1}: {steps}{skips}{unmasked}"


@dataclass(frozen=True, kw_only=True)
class FusedAttention(TilePlan):
    """Fused loops over tiles of queries.

    Attributes:
        query_dim: The shared dimension of the queries.
        queries: The size of a tile along `query_dim`.
        fused_loops: The fused loops inside a tile; the other ops run on the whole tile.
        online_softmax: A dimension and the size of its key blocks. The fused loops up to the last reduction along it run block
            by block, with an online softmax (`online_softmax.py`), and buffers along it hold one block.
        prefetches_rows: Whether to prefetch the results of a task, and the queries of the next one.
    """

    query_dim: int
    queries: int
    fused_loops: tuple[FusedLoop, ...]
    online_softmax: tuple[int, int] | None = None
    prefetches_rows: bool = False

    def tile(self, d: int) -> int:
        return self.queries if d == self.query_dim else 1

    def panel_step(self, nest: SizedLoopNest, d: int) -> int:
        # Fused loops check the panels of their own dimensions.
        is_fused = any(d == x for fused_loop in self.fused_loops for x, _ in fused_loop.steps)
        return 1 if is_fused else super().panel_step(nest, d)

    def check(self, nest: SizedLoopNest) -> None:
        check_shared_size(nest, "queries", self.query_dim, self.queries)
        super().check(nest)
        next_position = 0
        for fused_loop in self.fused_loops:
            if not next_position <= fused_loop.first < fused_loop.end <= len(nest.ops):
                raise ValueError(f"fused loop {fused_loop}: its ops must follow those of the previous loop")
            fused_loop.check(nest)
            next_position = fused_loop.end
        if self.online_softmax is None:
            return
        d, size = self.online_softmax
        if match_online_softmax(nest, d) is None:
            raise ValueError(f"online_softmax[d{d}]: must be the reduced dimension of a softmax in fused loops")
        if not 1 <= size <= nest.extents[d] or (size < nest.extents[d] and size % nest.panel_sizes.get(d, 1)):
            raise ValueError(
                f"online_softmax[d{d}] = {size}: must be a multiple of an operand's panels, and at most the extent"
            )

    def explain(self, nest: SizedLoopNest, target: Target) -> Iterator[str]:
        yield from super().explain(nest, target)
        yield explain_tasks(self.grid, nest, target)
        yield f"tiles of {self.queries} queries along d{self.query_dim}, in fused loops"
        yield from (f"  {fused_loop}" for fused_loop in self.fused_loops)
        if self.online_softmax is not None:
            d, size = self.online_softmax
            yield f"online softmax: d{d} in blocks of {size} that fit the cache; each block rescales earlier sums"
        if self.prefetches_rows:
            yield "the results of a task and the queries of the next one are prefetched"
