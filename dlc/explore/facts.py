"""What a page says without its texts, as plain values for programs: kernels, runs, memory and time."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dlc.explore.data import Box, Exploration, Kernel, Unit


def facts_of(program: Exploration) -> dict[str, Any]:
    """A program.

    `kernels` have the passes that changed them; `runs` are theirs in the order of the program's text, with the ops that fused,
    and why the next one did not.
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


def _kernel(kernel: Kernel, unit: Unit) -> dict[str, Any]:
    changed_by = [{"stage": step.stage, "pass": step.made_by, "change": step.change} for step in unit.steps[1:]]
    return {**asdict(kernel), "changed_by": changed_by}


def _run(box: Box) -> dict[str, Any]:
    why = {"before": box.before, "reason": box.reason} if box.reason else None
    parts = [asdict(part) for part in box.parts]
    return {
        "kernel": box.name,
        "launch": box.launch,
        "parts": parts,
        "gives": box.results,
        "weights": box.weights,
        "ended": why,
    }
