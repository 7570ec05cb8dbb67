"""The plan of tasks whose register tiles share work: cache blocks, packed panels, prefetches, or a scan for zeros."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dlc.passes.tiling.affine_access import AffineAccess
from dlc.passes.tiling.loop_nests import NestOp, SizedLoopNest, leading_reduction
from dlc.passes.tiling.plan import ThreadTiles, size_text
from dlc.target import Target


@dataclass(frozen=True, kw_only=True)
class BlockedTiles(ThreadTiles):
    """Register tiles of a nest with static sizes that begins with a reduction (packed GEMM).

    Attributes:
        blocks: For dimensions of the leading reduction, the cache block size (kc). A task computes all of its register tiles
            for one block before the next block. Between blocks, accumulators are in memory; the order of additions is that of
            the unblocked sum.
        panels: The operands that a task packs, one block at a time, in the order in which its tiles read them.
        macro_tile: For shared dimensions, the tile (mc, nc) of a task for which operands along them are packed at a time.
        prefetch: The operands to prefetch: during a cache block the next one, or during a product of a batch the next
            product if its reduction is one block.
        zero_trimmed_operand: The operand whose leading and trailing zeros along the reduction each register tile skips.
        mask_operand: An operand of the last op; a register tile where it is all zeros is not computed.
    """

    blocks: Mapping[int, int] = field(default_factory=dict[int, int])
    panels: tuple[int, ...] = ()
    macro_tile: Mapping[int, int] = field(default_factory=dict[int, int])
    prefetch: tuple[int, ...] = ()
    zero_trimmed_operand: int | None = None
    mask_operand: int | None = None

    def check(self, nest: SizedLoopNest) -> None:
        super().check(nest)
        reduction = leading_reduction(nest)
        if reduction is None or nest.dynamic_dims:
            raise ValueError(f"blocks {self.blocks}, panels {self.panels}: must be a reduction with static sizes")
        for d, size in self.blocks.items():
            if d not in reduction.reductions or d in self.chunks or not 1 <= size <= nest.extents[d]:
                raise ValueError(
                    f"blocks[d{d}] = {size}: must be a reduced dimension without chunks, with 1 ≤ size ≤ its extent"
                )
        for d, size in self.macro_tile.items():
            if d not in nest.shared_dims or not self.panels or size % self.tile(d) or size < 1:
                raise ValueError(f"macro_tile[d{d}] = {size}: must be a multiple of the register tile, in a plan with panels")
        has_blocks = any(size < nest.extents[d] for d, size in self.blocks.items())
        for k in self.prefetch:
            access = _plain_access(reduction, k)
            is_in_rows = access is not None and any(access.stride(d) == 1 for d in nest.shared_dims)
            if not is_in_rows or not (has_blocks or any(map(reduction.is_batch_dim, nest.shared_dims))):
                raise ValueError(
                    f"prefetch {self.prefetch}: operand {k} must be read in rows, by a contraction with blocks or a batch"
                )
        k = self.zero_trimmed_operand
        if k is not None and (len(reduction.reductions) != 1 or not 0 <= k < len(reduction.accesses) - 1):
            raise ValueError(f"zero_trimmed_operand {k}: must be an operand of a contraction that reduces one dimension")
        if self.mask_operand is not None and (self.blocks or len(nest.ops) != 3):
            raise ValueError(f"mask_operand {self.mask_operand}: needs one op after the contraction, and no blocks")
        for k in self.panels:
            if _plain_access(reduction, k) is None:
                raise ValueError(f"panels {self.panels}: operand {k} must have plain strides")

    def explain(self, nest: SizedLoopNest, target: Target) -> Iterator[str]:
        yield from super().explain(nest, target)
        if self.panels:
            operands = ", ".join(map(str, self.panels))
            yield f"operands {operands} packed into panels, because many tiles read them and their rows exceed a cache"
        if self.macro_tile:
            yield f"macro tile (its packed operands fit a cache): {size_text(self.macro_tile)}"
        if self.blocks:
            yield f"cache blocks of the reduction, shared by all tiles: {size_text(self.blocks)}"
        if self.prefetch:
            prefetched_unit = "block" if self.blocks else "matrix product of the batch"
            yield f"operands {', '.join(map(str, self.prefetch))} of the next {prefetched_unit} are prefetched"
        if self.zero_trimmed_operand is not None:
            yield f"zeros of operand {self.zero_trimmed_operand} at both ends of the reduction are skipped at run time"
        if self.mask_operand is not None:
            yield f"register tiles where operand {self.mask_operand} of the last op is all zeros are skipped"


def _plain_access(reduction: NestOp, k: int) -> AffineAccess | None:
    """Return the access of an operand of a reduction if it has plain strides, else None."""
    access = reduction.input_accesses.get(k)
    return access if access is not None and access.is_plain else None
