"""What was found once and is kept for the next time, as long as that is not much more than the next program needs."""

from __future__ import annotations

from typing import Any

# More than small programs have in common: what is kept of a large one is hardly ever asked for again.
_MANY = 1 << 12
_all: list[dict[Any, Any]] = []


def remembered() -> dict[Any, Any]:
    """An empty dictionary for what can be found anew at any time."""
    made: dict[Any, Any] = {}
    _all.append(made)
    return made


def forget_much() -> None:
    """Empties the large ones, to be called where a program is done: its attributes would stay for ever.

    The collector goes through them each time that it looks at everything, as it does three times where Python ends.
    """
    for known in _all:
        if len(known) > _MANY:
            known.clear()
