"""`tile-kernels`: turn every loop nest into a grid of tasks over register tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dlc.dialects.dl.base import ints
from dlc.dialects.dl.programs.program import REPRESENTATIVE
from dlc.dialects.sizes import sizes_of, symbol
from dlc.ir import Context, MemRefType, func
from dlc.passes.base import KernelPass, TargetPass
from dlc.passes.structured import ConstantPool
from dlc.passes.tiling.apply_tiles import apply_tiles
from dlc.passes.tiling.choose_tiles import choose_group_tiles, choose_tiles, naive_group_tiles
from dlc.passes.tiling.form_nests import form_loop_nests
from dlc.passes.tiling.join_grids import join_grids
from dlc.passes.tiling.loop_nests import LoopNest, SizedLoopNest
from dlc.passes.tiling.memory_effects import MemoryEffects
from dlc.passes.tiling.plan_files import plan_file
from dlc.passes.tiling.plan_kinds import Plan
from dlc.passes.tiling.tasks.variants import VARIANTS
from dlc.shapes.dims import Dim

# Minimum representative length of a row, in elements, so that rows fill the widest vectors.
_MIN_REPRESENTATIVE_LENGTH = 128


@dataclass(frozen=True)
class TileKernelsPass(TargetPass, KernelPass):
    """Tile each nest by the plan of `choose_tiles`, or of `choose_group_tiles` on a target with work-groups.

        linalg.fill outs(%acc);  linalg.generic (h, w, o, kh, k) … outs(%acc);  linalg.generic (h, w, o) ins(%acc, …)
        outs(%y)
      →
        scf.parallel (%i2, %i0) = (0, 0) to (64, 56) step (32, 1) {level = "grid"} {
          scf.for %j1 = 0 to 56 step 14 {
            … subviews; %acc = memref.alloca : memref<14x32xf32>
            linalg.fill; linalg.generic (w, o, kh, k); linalg.generic (w, o) } }

    Iterators over contiguous memory are merged first (`merge_iterators.py`). Partial tiles get separate code with static
    sizes. The remainder of a symbolic extent is split into tiles of 8, 4, 2 and 1: register tiles along shared dimensions,
    chunks of an op along private ones, such as the length of the rows that it reduces. In elementwise nests, each of these
    tiles of a row is computed for all rows of a task, since short rows consist of a few of them. Plans assume the kernel's
    representative sizes.

    With work-groups the grid's body is one `scf.parallel {level = "item"}`, preceded by the buffers that its work-items
    share; along a symbolic dimension each work-item has one index, guarded by the extent; independent grids are joined.

    `naive`: one work-item per element of the result, without tiles, for comparison. `variant`: the index of an
    alternative CPU plan for autotuning. `exact`: do not skip products with zeros. `plans`: a file with edited plans.
    """

    name = "tile-kernels"

    naive: bool = False
    variant: int = 0
    exact: bool = False
    plans: str = ""

    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        nests = form_loop_nests(kernel, self.target)
        sizes = representative_sizes(kernel, nests)
        constants = ConstantPool(kernel)
        effects = [MemoryEffects.of(nest) for nest in nests]
        plans = self.plans_of(kernel.sym_name.data, [nest.specialize(sizes) for nest in nests])
        grids = [apply_tiles(nest, plan, constants, sizes) for nest, plan in zip(nests, plans, strict=True)]
        if self.target.groups is not None:
            join_grids(kernel, dict(zip(grids, effects, strict=True)), constants)

    def plans_of(self, kernel: str, nests: Sequence[SizedLoopNest]) -> list[Plan]:
        """Return the plans of the loop nests of a kernel. Raises UnsupportedError for a wrong entry of the file of plans."""
        plans = list(map(self.plan, nests))
        if not self.plans:
            return plans
        file = plan_file(self.plans, Path(self.plans).stat().st_mtime_ns)
        file.require_nests(kernel, len(nests))
        return [file.edited(kernel, k, plan, nest) for k, (plan, nest) in enumerate(zip(plans, nests, strict=True))]

    def plan(self, nest: SizedLoopNest) -> Plan:
        """Return the plan of a nest."""
        target = self.target
        if self.naive:
            return naive_group_tiles(nest, target)
        if target.groups is not None:
            return choose_group_tiles(nest, target)
        return choose_tiles(nest, target, VARIANTS[self.variant], self.exact)


def representative_sizes(kernel: func.FuncOp, nests: Sequence[LoopNest]) -> dict[str, int]:
    """Return the representative sizes of a kernel's symbols, which plans assume."""
    sizes = {symbol(k): size for k, size in enumerate(ints(kernel.attributes.get(REPRESENTATIVE)))}
    return sizes | {name: max(sizes[name], _MIN_REPRESENTATIVE_LENGTH) for name in _length_symbols(kernel, nests)}


def _length_symbols(kernel: func.FuncOp, nests: Sequence[LoopNest]) -> set[str]:
    """Return the symbols in row lengths: in the sizes of inner axes, and of dimensions that no tasks split."""
    lengths = [nest.extents[d] for nest in nests for d in nest.symbolic_dims if d not in nest.shared_dims]
    for argument in kernel.body.block.args:
        axes = [size for size in sizes_of(argument) if size != 1] if isinstance(argument.type, MemRefType) else []
        lengths += axes[1:]
    return {name for size in lengths for name in Dim.lift(size).symbols()}
