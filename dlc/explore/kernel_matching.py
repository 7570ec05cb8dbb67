"""Compare two explorations: match their kernels and find the first stage at which they differ."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeVar

from dlc.explore.data import Exploration, KernelPair, KernelSummary, Unit

T = TypeVar("T")

# Weights of the similarity of two kernels: origins, origins without derivative marks, text, and name.
_ORIGINS_WEIGHT, _PRIMAL_ORIGINS_WEIGHT, _TEXT_WEIGHT, _NAME_WEIGHT = 1.0, 0.5, 0.5, 0.25


def match_kernels(left: Exploration, right: Exploration) -> tuple[KernelPair, ...]:
    """Pair the kernels of two explorations by similarity, in the order of `left`; unmatched kernels of `right` follow."""
    units = [{unit.name: unit for unit in page.units if unit.kind == "kernel"} for page in (left, right)]
    first_texts = [{name: _first_text(unit) for name, unit in kernel_units.items()} for kernel_units in units]

    def similarity(a: KernelSummary, b: KernelSummary) -> float:
        return (
            _ORIGINS_WEIGHT * _dice_coefficient(a.origins, b.origins)
            + _PRIMAL_ORIGINS_WEIGHT * _dice_coefficient(_primal_origins(a.origins), _primal_origins(b.origins))
            + _TEXT_WEIGHT * (first_texts[0][a.name] == first_texts[1][b.name])
            + _NAME_WEIGHT * (_unnumbered_name(a.name) == _unnumbered_name(b.name))
        )

    matches = _best_matches(left.kernels, right.kernels, similarity)
    matched = [(a.name, right.kernels[matches[i]].name if i in matches else "") for i, a in enumerate(left.kernels)]
    unmatched = [("", b.name) for j, b in enumerate(right.kernels) if j not in matches.values()]
    return tuple(
        KernelPair(a, b, first_difference(units[0][a], units[1][b]) if a and b else "") for a, b in chain(matched, unmatched)
    )


def _best_matches(left: Sequence[T], right: Sequence[T], similarity: Callable[[T, T], float]) -> dict[int, int]:
    """Match items greedily by similarity; return the index in `right` by index in `left`."""
    scores = [(similarity(a, b), i, j) for i, a in enumerate(left) for j, b in enumerate(right)]
    matches, used_indices = dict[int, int](), set[int]()
    for score, i, j in sorted(scores, key=lambda k: (-k[0], abs(k[1] - k[2]), k[1])):
        if score > 0 and i not in matches and j not in used_indices:
            matches[i] = j
            used_indices.add(j)
    return matches


def first_difference(left: Unit, right: Unit) -> str:
    """Return the first common stage after which the texts differ, "code" if only the code formats differ, or ""."""
    stage_texts = [{step.stage: _text(unit.name, step.listing.text) for step in unit.steps} for unit in (left, right)]
    changed_stages = (
        stage for stage in stage_texts[0] if stage in stage_texts[1] and stage_texts[0][stage] != stage_texts[1][stage]
    )
    return next(changed_stages, "" if stage_texts[0].keys() == stage_texts[1].keys() else "code")


def _first_text(unit: Unit) -> str:
    return _text(unit.name, unit.steps[0].listing.text)


def _text(name: str, text: str) -> str:
    """Return a kernel's text without the kernel's name, which depends on the other kernels."""
    return re.sub(rf"(?<![\w.]){re.escape(name)}(?!\w)", "kernel", text)


def _unnumbered_name(name: str) -> str:
    return re.sub(r"_\d+$", "", name)


def _primal_origins(origins: Sequence[str]) -> list[str]:
    return [re.sub(r"^(∂ )+", "", name) for name in origins]


def _dice_coefficient(a: Sequence[str], b: Sequence[str]) -> float:
    """Return the share of common names (Dice coefficient)."""
    left, right = set(a), set(b)
    return 2 * len(left & right) / (len(left) + len(right)) if left or right else 0.0
