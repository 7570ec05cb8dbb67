"""Whether a kernel's tile plan is at fault, or what applies it: the plan in words, and the kernel under the simplest one."""

from __future__ import annotations

import numpy as np

from dlc.backends.reference import evaluate
from dlc.compiler import load_program
from dlc.instrument.check import Fault
from dlc.instrument.compare import tolerance_of, worst
from dlc.ir import func
from dlc.passes.base import kernels_of
from dlc.passes.structured import Constants
from dlc.passes.tiling.apply_tiles import apply_tiles
from dlc.passes.tiling.form_nests import nests_of
from dlc.passes.tiling.nests import Nest
from dlc.passes.tiling.plan import TilePlan
from dlc.passes.tiling.tile_kernels import TileKernelsPass
from dlc.pipelines import parse
from dlc.target import Target


def describe_plans(fault: Fault, target: Target) -> str:
    """For a kernel that tiling makes wrong, its plans and whether a simpler one is right; nothing for other faults."""
    if fault.kernel is None or not fault.step.name.startswith(TileKernelsPass.name):
        return ""
    (tiling,) = (p for p in parse(fault.step.name, target) if isinstance(p, TileKernelsPass))
    program = load_program(fault.evidence.folder / "before.mlir")
    inputs = [np.load(fault.evidence.folder / f"{info.name}.npy") for info in program.inputs]
    expected = evaluate(program.module, inputs)
    (kernel,) = kernels_of(program.module)
    nests = [nest.at({}) for nest in nests_of(kernel)]
    lines = [f"plan of its nest {k}: {tiling.plan(nest)}" for k, nest in enumerate(nests)]
    for nest in nests:
        _apply_simplest(nest, kernel)
    off = worst(evaluate(program.module, inputs), expected)[1]
    if off <= tolerance_of([*inputs, *expected]):
        verdict = "it is right: look at how the plan above is applied"
    else:
        verdict = f"it is off by {off:.1e}: not this plan is at fault, but what applies plans"
    return "\n".join([*lines, f"with the simplest plan, a task per point, {verdict}"])


def _apply_simplest(nest: Nest, kernel: func.FuncOp) -> None:
    """Cuts the nest into a task per point, or per panel of a packed operand."""
    panels = {d: min(p, nest.extents[d]) for d, p in nest.packed_periods.items() if d in nest.shared}
    plan = TilePlan(grid=dict.fromkeys(nest.shared, 1) | panels, register=panels, order=tuple(nest.shared))
    plan.check(nest)
    apply_tiles(nest, plan, Constants(kernel))
