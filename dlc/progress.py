"""What takes long, shown on a terminal while it goes on; nothing elsewhere."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from dlc.instrument.report import Progress


@contextmanager
def shown_on(console: Console | None = None) -> Generator[Progress | None]:
    """Gives who shows on a console, by default standard error, what is about to be done; None where that is neither a terminal
    nor a notebook."""
    console = console or Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield None
        return
    with console.status("reading") as status:
        yield lambda step: status.update(escape(str(step)))
