"""Write the tile plans of a program's kernels to a file, and validate an edited file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlc.compiler.kernels import lower_kernel
from dlc.files.atomic_writes import write_text
from dlc.ir import Context, Operation
from dlc.passes.base import Stage
from dlc.passes.tiling.form_nests import form_loop_nests
from dlc.passes.tiling.plan_files import PlanFile, plan_text
from dlc.passes.tiling.plan_kinds import Plan
from dlc.passes.tiling.tile_kernels import TileKernelsPass, representative_sizes

_TITLE = "# Tile plans, by kernel and loop nest. Edit entries and give the file to --plan; entries left out are dlc's choice.\n"


def with_plans(stages: Sequence[Stage], path: Path) -> tuple[Stage, ...]:
    """Return stages in which tiling uses the plans of a file."""

    def set_plans(p: Any) -> Any:
        return replace(p, plans=str(path)) if isinstance(p, TileKernelsPass) else p

    return tuple(replace(stage, passes=tuple(map(set_plans, stage.passes))) for stage in stages)


def check_plans(path: Path, kernels: Mapping[str, Operation], stages: Sequence[Stage], context: Context) -> None:
    """Raise UnsupportedError, with the line, for an entry of a file of plans that does not match the kernels."""
    file = PlanFile(path)
    file.require_kernels(list(kernels))
    for name in file.kernels:
        _plans_of(kernels[name], stages, context)


def write_plans(path: Path, kernels: Mapping[str, Operation], stages: Sequence[Stage], context: Context) -> None:
    """Write the plans of all kernels with loop nests to a file."""
    tables = [
        plan_text(name, k, plan)
        for name, kernel in kernels.items()
        for k, plan in enumerate(_plans_of(kernel, stages, context))
    ]
    write_text(path, "\n".join([_TITLE, *tables]))


def _plans_of(kernel: Operation, stages: Sequence[Stage], context: Context) -> list[Plan]:
    """Return the plans of the loop nests of a kernel."""
    prefix: list[Stage] = []
    for stage in stages:
        for k, p in enumerate(stage.passes):
            if isinstance(p, TileKernelsPass):
                prefix.append(replace(stage, passes=stage.passes[:k]))
                function, _ = lower_kernel(kernel, prefix, context, check=False)
                nests = form_loop_nests(function, p.target)
                sizes = representative_sizes(function, nests)
                return p.plans_of(function.sym_name.data, [nest.specialize(sizes) for nest in nests])
        prefix.append(stage)
    return []
