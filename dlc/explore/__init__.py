"""What the compiler made of a program and where its time and memory go, as one page to look at.

    page = explore(program, target, options, inputs=arrays)      compiles it, measures it, and draws
    page.save("page.html")                                       one file that needs no network
    page.against(other)                                          two beside each other

`data.py` is all that a page shows, as plain values; `collecting.py` compiles, runs and gathers it by what `seen.py` has
watched, with `graph.py` (ops in kernels), `layout.py` (where they are drawn), `running.py` (times), `memory.py` (buffers over
time), `advice.py` (what can be changed) and `sources.py` (what the user wrote). `matching.py` finds the kernels of one in
another, and `facts.py` is what is said without texts. `encode.py` writes it small, and `page.py` puts it into the template in
`assets/`, whose scripts draw it in the browser.
"""

from __future__ import annotations

from dlc.backends.base import Backend
from dlc.compiler import Program
from dlc.explore.collecting import Inputs, collect
from dlc.explore.page import Page
from dlc.instrument.recording import Listing
from dlc.instrument.report import Progress
from dlc.machine.garbage import collected_rarely
from dlc.options import Options

__all__ = ["Page", "collect", "explore"]


def explore(
    program: Program,
    target: str | Backend = "cpu",
    options: Options | None = None,
    *,
    inputs: Inputs | None = None,
    source: Listing | None = None,
    progress: Progress | None = None,
) -> Page:
    """The page of a program; what `collect` says."""
    with collected_rarely():
        return Page(collect(program, target, options, inputs=inputs, source=source, progress=progress))
