"""Two explorations side by side: which kernel of the one is which of the other, and from which stage on they differ."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeVar

from dlc.explore.data import Exploration, Kernel, Pair, Unit

T = TypeVar("T")

# What speaks for two kernels being the same one: where they come from, derivatives apart and not, text, and name.
_ORIGINS, _ROOTS, _TEXT, _NAME = 1.0, 0.5, 0.5, 0.25


def matched(one: Exploration, other: Exploration) -> tuple[Pair, ...]:
    """The kernels of both in the order of `one`, then those that only `other` has; what is most alike first becomes a pair."""
    units = [{unit.name: unit for unit in page.units if unit.kind == "kernel"} for page in (one, other)]
    first = [{name: _formed(unit) for name, unit in of.items()} for of in units]

    def likeness(a: Kernel, b: Kernel) -> float:
        return (
            _ORIGINS * _shared(a.origins, b.origins)
            + _ROOTS * _shared(_roots(a.origins), _roots(b.origins))
            + _TEXT * (first[0][a.name] == first[1][b.name])
            + _NAME * (_stem(a.name) == _stem(b.name))
        )

    found = _likest(one.kernels, other.kernels, likeness)
    both = [(a.name, other.kernels[found[i]].name if i in found else "") for i, a in enumerate(one.kernels)]
    left = [("", b.name) for j, b in enumerate(other.kernels) if j not in found.values()]
    return tuple(Pair(a, b, differs_from(units[0][a], units[1][b]) if a and b else "") for a, b in chain(both, left))


def _likest(ones: Sequence[T], others: Sequence[T], likeness: Callable[[T, T], float]) -> dict[int, int]:
    """Which of others each is, by their places: what is most alike first."""
    alike = [(likeness(a, b), i, j) for i, a in enumerate(ones) for j, b in enumerate(others)]
    found, taken = dict[int, int](), set[int]()
    for score, i, j in sorted(alike, key=lambda k: (-k[0], abs(k[1] - k[2]), k[1])):
        if score > 0 and i not in found and j not in taken:
            found[i] = j
            taken.add(j)
    return found


def differs_from(one: Unit, other: Unit) -> str:
    """The first stage that both go through and leave with another text; `code` if one's code has another form; or nothing."""
    ends = [{step.stage: _text(unit.name, step.listing.text) for step in unit.steps} for unit in (one, other)]
    changed = (stage for stage in ends[0] if stage in ends[1] and ends[0][stage] != ends[1][stage])
    return next(changed, "" if ends[0].keys() == ends[1].keys() else "code")


def _formed(unit: Unit) -> str:
    return _text(unit.name, unit.steps[0].listing.text)


def _text(name: str, text: str) -> str:
    """A kernel's text without its name, which is a matter of the others'."""
    return re.sub(rf"(?<![\w.]){re.escape(name)}(?!\w)", "kernel", text)


def _stem(name: str) -> str:
    return re.sub(r"_\d+$", "", name)


def _roots(origins: Sequence[str]) -> list[str]:
    return [re.sub(r"^(∂ )+", "", name) for name in origins]


def _shared(a: Sequence[str], b: Sequence[str]) -> float:
    """The share of names that both have (Dice's coefficient)."""
    one, other = set(a), set(b)
    return 2 * len(one & other) / (len(one) + len(other)) if one or other else 0.0
