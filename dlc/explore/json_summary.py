"""The content of a page without IR, as JSON values: kernels, launches, memory and compilation time."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dlc.explore.data import Box, Exploration, KernelSummary, Unit


def summarize(program: Exploration) -> dict[str, Any]:
    """Return the summary of a program.

    `kernels` lists the passes that changed each kernel; `runs` are the launches in program order, with the fused ops and the
    reason why the next op was not fused.
    """
    units = {unit.name: unit for unit in program.units}
    return {
        "name": program.name,
        "target": program.target,
        "version": program.version,
        "inputs": program.inputs,
        "outputs": program.outputs,
        "sizes": program.sizes,
        "kernels": [_kernel(kernel, units[kernel.name]) for kernel in program.kernels],
        "runs": [_run(box) for box in program.graph.boxes if box.kind == "kernel"],
        "memory": asdict(program.memory),
        "compilation": {
            "seconds": program.seconds,
            "phases": program.phases,
            "passes": [{"stage": stage, "pass": spec, "seconds": seconds} for stage, spec, seconds in program.passes],
        },
    }


def _kernel(kernel: KernelSummary, unit: Unit) -> dict[str, Any]:
    changed_by = [{"stage": step.stage, "pass": step.producer, "change": step.change} for step in unit.steps[1:]]
    return {**asdict(kernel), "changed_by": changed_by}


def _run(box: Box) -> dict[str, Any]:
    fusion_stop = {"next_op": box.next_op, "reason": box.reason} if box.reason else None
    groups = [asdict(group) for group in box.groups]
    return {
        "kernel": box.name,
        "launch": box.launch,
        "groups": groups,
        "results": box.results,
        "weights": box.weights,
        "fusion_stop": fusion_stop,
    }
