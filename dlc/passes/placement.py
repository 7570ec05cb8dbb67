"""Insert passes into a pipeline at anchors: after or before another pass, or at the end of a stage."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dlc.errors import UnsupportedError
from dlc.ir import ModulePass
from dlc.passes.base import Stage, TargetPass
from dlc.plugins.plugin import PassPlacement
from dlc.target import Target


def stage_of_anchor(placement: PassPlacement, all_stages: Sequence[Stage]) -> str:
    """Return the stage of a placement. Raises UnsupportedError if no stage or pass has the name of its anchor."""
    anchor = placement.stage or placement.after or placement.before
    for stage in all_stages:
        if anchor == stage.name if placement.stage else any(p.name == anchor for p in stage.passes):
            return stage.name
    names = [s.name for s in all_stages] if placement.stage else [p.name for s in all_stages for p in s.passes]
    matches = difflib.get_close_matches(str(anchor), names, n=1)
    hint = f"did you mean {matches[0]}?" if matches else "`dlc passes` lists stages and passes"
    kind = "stage" if placement.stage else "pass"
    raise UnsupportedError(f"pass {placement.pass_class.name}: there is no {kind} {anchor!r} to place it at; {hint}")


def place_passes(
    stages: Sequence[Stage], all_stages: Sequence[Stage], placements: Sequence[PassPlacement], target: Target
) -> tuple[Stage, ...]:
    """Return the stages of a pipeline with further passes.

    `all_stages` have all built-in passes: they give the position of an anchor that this pipeline lacks. Passes at the same
    anchor run in the order of `placements`.
    """
    by_stage = {stage.name: stage for stage in all_stages}
    placed: dict[str, list[PassPlacement]] = {}
    for placement in placements:
        placed.setdefault(stage_of_anchor(placement, all_stages), []).append(placement)
    return tuple(
        replace(stage, passes=_placed(stage.passes, by_stage[stage.name].passes, placed[stage.name], target))
        if stage.name in placed
        else stage
        for stage in stages
    )


def _placed(
    passes: Sequence[ModulePass], all_passes: Sequence[ModulePass], placements: Sequence[PassPlacement], target: Target
) -> tuple[ModulePass, ...]:
    remaining = list(passes)
    result: list[ModulePass] = []
    names = [p.name for p in all_passes]
    ends = {name: len(names) - 1 - names[::-1].index(name) for name in names}
    for k, name in enumerate(names):
        result += [_create(p.pass_class, target) for p in placements if p.before == name and names.index(name) == k]
        if remaining and remaining[0].name == name:
            result.append(remaining.pop(0))
        result += [_create(p.pass_class, target) for p in placements if p.after == name and ends[name] == k]
    return (*result, *remaining, *(_create(p.pass_class, target) for p in placements if p.stage))


def _create(pass_class: Any, target: Target) -> ModulePass:
    return pass_class(target) if issubclass(pass_class, TargetPass) else pass_class()
