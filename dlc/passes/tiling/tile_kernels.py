"""`tile-kernels`: every nest becomes a grid of tasks over register tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.dl.base import ints
from dlc.dialects.dl.programs.program import REPRESENTATIVE
from dlc.dialects.sizes import sizes_of, symbol
from dlc.dims import Dim
from dlc.ir import Context, MemRefType, func
from dlc.passes.base import KernelPass, TargetPass
from dlc.passes.structured import Constants
from dlc.passes.tiling.apply_tiles import apply_tiles
from dlc.passes.tiling.choose_groups import choose_groups, naive_groups
from dlc.passes.tiling.choose_tiles import choose_tiles
from dlc.passes.tiling.form_nests import nests_of
from dlc.passes.tiling.independent import Touched
from dlc.passes.tiling.join_grids import join_grids
from dlc.passes.tiling.nests import Nest, OpenNest
from dlc.passes.tiling.plan import TilePlan
from dlc.passes.tiling.variants import VARIANTS

# What plans take for a length, whatever batch the kernel names: rows of it fill the widest vectors.
_LENGTH = 128


@dataclass(frozen=True)
class TileKernelsPass(TargetPass, KernelPass):
    """Cuts each nest as `choose_tiles` plans it for the target, or `choose_groups` for one with groups of items.

        linalg.fill outs(%acc);  linalg.generic (h, w, o, kh, k) … outs(%acc);  linalg.generic (h, w, o) ins(%acc, …) outs(%y)
      →
        scf.parallel (%i2, %i0) = (0, 0) to (64, 56) step (32, 1) {level = "grid"} {
          scf.for %j1 = 0 to 56 step 14 {
            … subviews; %acc = memref.alloca : memref<14x32xf32>
            linalg.fill; linalg.generic (w, o, kh, k); linalg.generic (w, o) } }

    Requires views as `collapse-iterators` leaves them. What does not divide is code of its own, with static sizes; where
    an extent is known only when the kernel runs, what is left of it is computed in tiles of 8, 4, 2 and 1: parts of a task
    along a dimension that all stages share, chunks of a single stage along one of its own, such as the length of rows that
    it reduces. Plans are made for the sizes that the kernel says are representative. In groups the grid's body is one
    `scf.parallel {level = "item"}`, before which the buffers stand that its items share; of an open extent each item has one
    place, if it is within; grids that do not depend on one another are one there. `naive` is for comparison: an item
    for each element of the result, and no tiles. `variant` is the number of one of the other plans for a CPU that are worth
    measuring. `exact`: sums leave nothing out.
    """

    name = "tile-kernels"

    naive: bool = False
    variant: int = 0
    exact: bool = False

    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        nests = nests_of(kernel)
        sizes = planned_sizes(kernel, nests)
        constants = Constants(kernel)
        touched = [Touched.of(nest) for nest in nests]
        grids = [apply_tiles(nest, self.plan(nest.at(sizes)), constants, sizes) for nest in nests]
        if self.target.groups is not None:
            join_grids(kernel, dict(zip(grids, touched, strict=True)), constants)

    def plan(self, nest: Nest) -> TilePlan:
        """How a nest is cut."""
        target = self.target
        if self.naive:
            return naive_groups(nest, target)
        if target.groups is not None:
            return choose_groups(nest, target)
        return choose_tiles(nest, target, VARIANTS[self.variant], self.exact)


def planned_sizes(kernel: func.FuncOp, nests: Sequence[OpenNest]) -> dict[str, int]:
    """What plans take for the sizes of a kernel that come with a call."""
    sizes = {symbol(k): size for k, size in enumerate(ints(kernel.attributes.get(REPRESENTATIVE)))}
    return sizes | {name: max(sizes[name], _LENGTH) for name in _lengths(kernel, nests)}


def _lengths(kernel: func.FuncOp, nests: Sequence[OpenNest]) -> set[str]:
    """The sizes that are no batch: those of inner axes, and those that a task walks along by itself."""
    found = [nest.extents[d] for nest in nests for d in nest.symbolic if d not in nest.shared]
    for argument in kernel.body.block.args:
        axes = [size for size in sizes_of(argument) if size != 1] if isinstance(argument.type, MemRefType) else []
        found += axes[1:]
    return {name for size in found for name in Dim.lift(size).symbols()}
