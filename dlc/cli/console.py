"""The consoles of the commands: `out` for results, `err` for progress and errors."""

from __future__ import annotations

import sys

from rich.console import Console

from dlc.options import columns

# Tables are at most 160 columns wide if there is neither a terminal nor COLUMNS.
# Emoji codes are off, so that names such as `grad:x: float32[4]` are printed unchanged.
# sys.stdout is None if the process was started without a standard output.
_is_terminal = sys.stdout is not None and sys.stdout.isatty()  # pyright: ignore[reportUnnecessaryComparison]
out = Console(soft_wrap=True, highlight=False, emoji=False, width=None if _is_terminal else columns() or 160)
err = Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)
