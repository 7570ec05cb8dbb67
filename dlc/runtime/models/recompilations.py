"""Count compilations at run time: log each one if `DLC_LOG=recompiles`, and warn if there are many."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping

from dlc.options import Environment

# More compilations than this trigger a warning.
_MAX_SILENT_RECOMPILATIONS = 8


class Recompilations:
    """Counts the compilations of one function or model; `advice` tells users how to reduce them."""

    def __init__(self, name: str, advice: str) -> None:
        self.count = 0
        self._name, self._advice = name, advice
        self._last: Mapping[str, str] = {}

    def note(self, key: Mapping[str, str], seconds: float) -> None:
        """Record a compilation for `key`: the sizes, settings or arguments that it is specialized for."""
        previous, self._last = self._last, key
        self.count += 1
        changed = [f"{name}: {previous[name]} → {value}" for name, value in key.items() if previous.get(name, value) != value]
        key_text = ", ".join(changed or [f"{name}: {value}" for name, value in key.items()])
        if "recompiles" in Environment.read().log:
            print(f"dlc: {self._name} compiled in {seconds:.2f} s, compilation {self.count}: {key_text}", file=sys.stderr)
        if self.count == _MAX_SILENT_RECOMPILATIONS + 1:
            warning = f"{self._name} was compiled {self.count} times, now for {key_text}; {self._advice}"
            warnings.warn(f"{warning}; DLC_LOG=recompiles shows each", stacklevel=2)
