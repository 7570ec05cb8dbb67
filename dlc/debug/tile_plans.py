"""Distinguish a wrong tile plan of a kernel from its wrong application: run the kernel with the simplest plan."""

from __future__ import annotations

import numpy as np

from dlc.backends.reference import evaluate
from dlc.compiler import load_program
from dlc.instrument.check import Fault
from dlc.instrument.compare import largest_deviation, tolerance_of
from dlc.ir import func
from dlc.passes.base import kernels_of
from dlc.passes.structured import ConstantPool
from dlc.passes.tiling.apply_tiles import apply_tiles
from dlc.passes.tiling.form_nests import form_loop_nests
from dlc.passes.tiling.loop_nests import SizedLoopNest
from dlc.passes.tiling.tasks.task_tiles import TaskTiles
from dlc.passes.tiling.tile_kernels import TileKernelsPass
from dlc.pipelines import parse
from dlc.target import Target


def describe_plans(fault: Fault, target: Target) -> str:
    """Describe the tile plans of a kernel that tiling breaks, and test a simpler plan; return "" for other faults."""
    if fault.kernel is None or not fault.step.name.startswith(TileKernelsPass.name):
        return ""
    (tiling,) = (p for p in parse(fault.step.name, target) if isinstance(p, TileKernelsPass))
    program = load_program(fault.reproducer.folder / "before.mlir")
    inputs = [np.load(fault.reproducer.folder / f"{info.name}.npy") for info in program.inputs]
    expected = evaluate(program.module, inputs)
    (kernel,) = kernels_of(program.module)
    nests = [nest.specialize({}) for nest in form_loop_nests(kernel, target)]
    lines = [f"plan of loop nest {k}: {tiling.plan(nest)}" for k, nest in enumerate(nests)]
    for nest in nests:
        _apply_simplest(nest, kernel)
    difference = largest_deviation(evaluate(program.module, inputs), expected)[1]
    if difference <= tolerance_of([*inputs, *expected]):
        verdict = "the results are correct: check how the plan above is applied"
    else:
        verdict = f"the results are off by {difference:.1e}: the fault is in applying plans, not in the plan above"
    return "\n".join([*lines, f"with the simplest plan (one task per point) {verdict}"])


def _apply_simplest(nest: SizedLoopNest, kernel: func.FuncOp) -> None:
    """Tile the loop nest with one task per point, or per panel of a packed operand."""
    panels = {d: min(p, nest.extents[d]) for d, p in nest.panel_sizes.items() if d in nest.shared_dims}
    plan = TaskTiles(grid=dict.fromkeys(nest.shared_dims, 1) | panels, register=panels, order=tuple(nest.shared_dims))
    plan.check(nest)
    apply_tiles(nest, plan, ConstantPool(kernel))
