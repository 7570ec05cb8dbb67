"""Show progress of a compilation in a terminal or notebook."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from dlc.instrument.report import Progress


@contextmanager
def progress_on(console: Console | None = None) -> Generator[Progress | None]:
    """Yield a progress callback that updates a status line of a console, by default standard error.

    Yield None if the console is neither a terminal nor a notebook.
    """
    console = console or Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield None
        return
    with console.status("reading") as status:
        yield lambda step: status.update(escape(str(step)))
