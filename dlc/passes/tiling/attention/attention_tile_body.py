"""The body of a tile of queries: all ops of attention in fused loops; with an online softmax, per key block."""

from __future__ import annotations

from collections.abc import Mapping

from dlc.arrays import ALIGNMENT_BYTES
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.ir import Operation, SSAValue, arith, erase_op
from dlc.passes.structured import Index, OpBuilder
from dlc.passes.tiling.attention.fused_attention import FusedAttention
from dlc.passes.tiling.attention.fused_loops import conjunction, run_fused_loops
from dlc.passes.tiling.attention.match_attention import match_attention
from dlc.passes.tiling.attention.online_softmax import find_shift, match_online_softmax
from dlc.passes.tiling.attention.prefetch_rows import RowPrefetcher, row_prefetchers
from dlc.passes.tiling.attention.softmax_rescaling import SoftmaxRescaling
from dlc.passes.tiling.buffer_views import BufferView
from dlc.passes.tiling.index_conditions import may_hold_in_tile
from dlc.passes.tiling.iteration_ranges import IterationRange, Tile, steps
from dlc.passes.tiling.loop_nests import NestOp, SizedLoopNest, find_masked_select
from dlc.passes.tiling.tile_body import TileBody
from dlc.passes.types import memref_of


class AttentionTileBody(TileBody):
    """All ops of attention on one tile of queries."""

    def __init__(self, nest: SizedLoopNest, plan: FusedAttention, tile: Tile) -> None:
        super().__init__(nest, plan, tile)
        self.plan = plan
        attention = match_attention(nest)
        assert attention is not None
        softmax = match_online_softmax(nest, attention.key_dim)
        self.shift = find_shift(nest, attention.key_dim)
        self.weights, self.prefetchers = None, list[RowPrefetcher]()
        if plan.prefetches_rows and softmax is not None:
            self.weights = nest.ops[softmax.weights]
            self.prefetchers = list(row_prefetchers(nest, plan, softmax.weights, attention.key_dim))

    def run(self, builder: OpBuilder) -> None:
        """Allocate the local buffers, which hold one key block with an online softmax, and emit all ops of the nest."""
        key_block = {} if self.plan.online_softmax is None else dict((self.plan.online_softmax,))
        for root in self.local_roots():
            if (source := self.reusable_buffer(root)) is not None:
                self.local_buffers[root] = self.local_buffers[source]
            else:
                self.make_local(builder, root, {**key_block, **self._aligned_row(root, key_block)})
        if self.plan.online_softmax is None:
            run_fused_loops(self, self.plan.fused_loops, builder, self.tile, range(len(self.nest.ops)), {})
        else:
            self.run_key_blocks(builder, *self.plan.online_softmax)

    def emit_op(
        self, builder: OpBuilder, nest_op: NestOp, tile: Tile, operand_views: Mapping[int, BufferView] | None = None
    ) -> None:
        if nest_op is self.weights:
            for prefetcher in self.prefetchers:
                prefetcher.emit(builder, tile)
        super().emit_op(builder, nest_op, tile, operand_views)

    def annotate(self, op: Operation, nest_op: NestOp, tile: Tile, operand_views: Mapping[int, BufferView]) -> None:
        """Compute row maxima by compare and select: a maximum that propagates NaN takes four instructions on x86-64."""
        if nest_op is not self.shift or not memref_of(op.operands[-1]).get_shape():
            return
        block = op.regions[0].block
        *_, maximum, yield_op = block.ops
        accumulator = block.args[-1]
        (score,) = (v for v in maximum.operands if v is not accumulator)
        is_larger = arith.CmpfOp(accumulator, score, "olt")
        block.insert_ops_before([is_larger, select := arith.SelectOp(is_larger.result, score, accumulator)], maximum)
        yield_op.operands = [select.result]
        erase_op(maximum)

    def _aligned_row(self, root: SSAValue, key_block: Mapping[int, int]) -> dict[int, int]:
        """Return the dimension and the size of a buffer's rows, rounded up so that each of several rows is aligned."""
        *row_dims, d = self.axes_of(root)
        size = key_block.get(d, self.tile[d].size)
        if size == 1 or all(self.tile[row_dim].size == 1 for row_dim in row_dims):
            return {}
        multiple = ALIGNMENT_BYTES // numpy_dtype(memref_of(root).element_type).itemsize
        return {d: -(-size // multiple) * multiple}

    def run_key_blocks(self, builder: OpBuilder, lane: int, size: int) -> None:
        """Emit an online softmax along `lane`, in blocks of `size`, and the ops before and after it."""
        positions, fused_loops = range(len(self.nest.ops)), self.plan.fused_loops
        online_softmax = match_online_softmax(self.nest, lane)
        assert online_softmax is not None
        last, per_row = online_softmax.sums[-1], {*online_softmax.initial, *online_softmax.deferred}
        per_block = [k for k in positions if k <= last and k not in per_row]
        scores = [k for k in per_block if k < online_softmax.weights]
        sums = [k for k in per_block if k >= online_softmax.weights]
        rescaling = SoftmaxRescaling(self, fused_loops, online_softmax, builder)
        run_fused_loops(self, fused_loops, builder, self.tile, online_softmax.initial, {})
        for body_builder, block in steps(builder, self.tile[lane], size, f"b{lane}"):
            # Buffers along the key dimension hold one block, so offsets in them start at 0.
            tile, loop_ends = {**self.tile, lane: IterationRange(block.offset, block.size)}, dict[int, Index]()
            body_builder = self.branch_unless_masked(body_builder, tile, lane)
            run_fused_loops(self, fused_loops, body_builder, tile, scores, loop_ends)
            rescaling.rescale(body_builder, tile)
            run_fused_loops(self, fused_loops, body_builder, tile, sums, loop_ends)
        run_fused_loops(self, fused_loops, builder, self.tile, [*online_softmax.deferred, *positions[last + 1 :]], {})

    def branch_unless_masked(self, builder: OpBuilder, tile: Tile, lane: int) -> OpBuilder:
        """Guard a key block so that it is skipped if it is fully masked; return the builder inside the guard.

        The first block is not guarded.
        """
        masked_loops = [fused_loop for fused_loop in self.plan.fused_loops if fused_loop.unmasked is not None]
        block_start = tile[lane].offset
        if not masked_loops or isinstance(block_start, int):
            return builder
        nest_op, select = next(
            masked_select
            for fused_loop in masked_loops
            if (masked_select := find_masked_select(self.nest.ops[fused_loop.first : fused_loop.end])) is not None
        )
        unmasked = conjunction(builder, (may_hold_in_tile(builder, nest_op, c, tile) for c in select.conditions))
        if unmasked is None:
            return builder
        return builder.branch(builder.op(arith.OrIOp(builder.compare(block_start, "eq", 0), unmasked)))

    def reusable_buffer(self, root: SSAValue) -> SSAValue | None:
        """Return a buffer of earlier fused loops that `root` may overwrite, since it is computed elementwise; else None."""
        nest_ops = self.nest.ops
        nest_op = next(op for op in nest_ops if op.output.root is root)
        fused_loop = next((s for s in self.plan.fused_loops if nest_op in nest_ops[s.first : s.end]), None)
        if fused_loop is None or nest_op.reductions or any(d not in nest_op.dims for d, _ in fused_loop.steps):
            return None
        earlier = nest_ops[: fused_loop.first]
        for source in nest_op.inputs:
            users = [op for op in nest_ops if any(a is not None and a.root is source.root for a in op.accesses)]
            is_equal = source._replace(root=root) == nest_op.output and source.root.type == root.type
            if source.root in self.local_buffers and is_equal and all(op is nest_op or op in earlier for op in users):
                return source.root
        return None
