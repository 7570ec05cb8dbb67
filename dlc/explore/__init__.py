"""The explorer: how a program was compiled, and where its time and memory go, as one HTML page.

    page = explore(program, target, options, inputs=arrays)      compile, measure, lay out
    page.save("page.html")                                       one file, no network access
    page.against(other)                                          comparison of two pages

`data.py` defines everything that a page shows, as plain values. `collector.py` compiles and runs the program, and
`recorded_compilation.py` turns the recording into these values with `graph.py` (ops in kernels), `layout.py` (positions of the
boxes), `measurements.py` (times), `memory.py` (buffers over time), `advice.py` (possible improvements) and
`source_listings.py` (the user's source). `kernel_matching.py` pairs the kernels of two pages, and `json_summary.py` is the
content without IR. `encode.py` compresses the data. `page.py` renders the template in `assets/`, whose scripts draw the page
in the browser.
"""

from __future__ import annotations

from dlc.backends.base import Backend
from dlc.compiler import Program
from dlc.explore.collector import Inputs, collect
from dlc.explore.page import Page
from dlc.instrument.compilation_record import Listing
from dlc.instrument.report import Progress
from dlc.machine.garbage_collection import infrequent_collection
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
    """Compile a program and return its page; the arguments are those of `collect`."""
    with infrequent_collection():
        return Page(collect(program, target, options, inputs=inputs, source=source, progress=progress))
