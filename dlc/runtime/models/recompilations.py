"""What is compiled while calls wait for it, counted: a line each if `DLC_LOG=recompiles`, and a warning where it is much."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping

from dlc.options import Environment

# So many sizes or settings are usual; with more, most of the time goes into compiling.
_USUAL = 8


class Recompilations:
    """Those of one function or model; `advice` says how there would be fewer."""

    def __init__(self, name: str, advice: str) -> None:
        self.count = 0
        self._name, self._advice = name, advice
        self._last: Mapping[str, str] = {}

    def note(self, given: Mapping[str, str], seconds: float) -> None:
        """It was compiled for `given`, by the names of what decides: arguments, sizes, settings."""
        before, self._last = self._last, given
        self.count += 1
        changed = [f"{name}: {before[name]} → {now}" for name, now in given.items() if before.get(name, now) != now]
        what = ", ".join(changed or [f"{name}: {now}" for name, now in given.items()])
        if "recompiles" in Environment.read().log:
            print(f"dlc: {self._name} compiled in {seconds:.2f} s, number {self.count}: {what}", file=sys.stderr)
        if self.count == _USUAL + 1:
            text = (
                f"{self._name} was compiled {self.count} times, now for {what}; {self._advice}; DLC_LOG=recompiles shows each"
            )
            warnings.warn(text, stacklevel=2)
